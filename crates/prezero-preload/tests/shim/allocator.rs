//! Other allocators: linked into a program, below its `new`, preloaded beside the shim, of a tool.

use std::path::Path;
use std::process::Command;

use crate::run::{HERE, bare, compile, describe, ends, run, shim, shimmed, text};

/// That Debian has to be linked statically; what they need themselves is in every list of flags.
const ALLOCATORS: [&str; 2] = ["libjemalloc.a", "libtcmalloc_minimal.a"];

#[test]
fn programs_linked_with_another_allocator_are_served_by_it() {
    let folder = Path::new("/usr/lib").join(format!("{}-linux-gnu", std::env::consts::ARCH));
    for name in ALLOCATORS {
        let library = folder.join(name);
        if !library.exists() {
            println!("not tried: {name} is not installed");
            continue;
        }
        let whole = format!("-Wl,--whole-archive,{},--no-whole-archive", library.display());
        let flags = [whole.as_str(), "-Wl,--no-as-needed", "-lstdc++", "-lm"];
        for (source, argument) in [("threads_blocks.c", "3"), ("realloc_border.c", "")] {
            let program = compile(source, &flags);
            let said = run(shimmed(&program).arg(argument));
            assert_eq!(said, "good\n", "{name}");
        }
    }
}

#[test]
fn own_operator_new_stays_the_programs() {
    let program = compile("allocator_news.cc", &["-Wl,--no-as-needed", "-lstdc++"]);
    assert_eq!(run(&mut shimmed(&program)), run(&mut bare(&program)));
}

/// rustc brings jemalloc, in a library.
#[test]
fn rust_programs_compile_and_run() {
    let folder =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-rust", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for the program");
    let source = folder.join("program.rs");
    let text = "fn main() {
        let mut words: Vec<String> = (0..200_000u32).map(|n| n.wrapping_mul(2654435761).to_string()).collect();
        words.sort();
        let zeroes = vec![0u8; 3 << 20];
        assert!(zeroes.iter().all(|byte| *byte == 0));
        let text = std::thread::spawn(move || words.concat()).join().unwrap();
        println!(\"{} {}\", text.len(), text.bytes().fold(0u64, |sum, byte| sum.wrapping_mul(31) + u64::from(byte)));
    }";
    std::fs::write(&source, text).expect("the folder is there");
    let built = |name: &str, mut rustc: Command| {
        let program = folder.join(name);
        run(rustc.arg("-O").arg(&source).arg("-o").arg(&program));
        program
    };
    let ways = [built("without", bare("rustc")), built("with", shimmed("rustc"))];
    let said = run(&mut bare(&ways[0]));
    assert!(!said.is_empty());
    assert!(ways.iter().all(|program| run(&mut shimmed(program)) == said));
    std::fs::remove_dir_all(&folder).expect("the folder is ours");
}

#[test]
fn sanitizer_serves_all_of_its_program() {
    let program = compile("allocator_sanitizer.c", &["-fsanitize=address"]);
    // Options of its own say nothing of the order in which libraries are loaded.
    for options in ["", "detect_leaks=0:exitcode=42"] {
        let output = ends(shimmed(&program).env("ASAN_OPTIONS", options));
        let code = if options.is_empty() { 1 } else { 42 };
        assert_eq!(output.status.code(), Some(code), "{}", describe(&output));
        assert_eq!(text(&output.stdout), "allocated\n", "{}", describe(&output));
        assert!(text(&output.stderr).contains("heap-buffer-overflow"), "{}", describe(&output));
    }
}

#[test]
fn valgrind_serves_all_of_its_program() {
    if std::process::Command::new("valgrind").arg("--version").output().is_err() {
        return println!("not tried: valgrind is not installed");
    }
    let program = compile("start_main.c", &[]);
    for tool in ["none", "memcheck"] {
        let mut ways = [bare("valgrind"), bare("valgrind")];
        for valgrind in &mut ways {
            valgrind.args(["-q", &format!("--tool={tool}")]).arg(&program);
        }
        ways[1].env("LD_PRELOAD", shim());
        let said = ways.map(|mut valgrind| run(&mut valgrind));
        assert_eq!(said[0], said[1], "{tool}");
    }
    let mut valgrind = bare("sh");
    valgrind.args(["-c", "PREZERO_PID=$$ exec valgrind -q --tool=none \"$0\""]).arg(&program);
    let output = ends(valgrind.env("LD_PRELOAD", shim()));
    assert_eq!(text(&output.stdout), "next\n", "{}", describe(&output));
    assert_eq!(text(&output.stderr).lines().count(), 1, "{}", describe(&output));
    assert!(text(&output.stderr).contains("valgrind serves it"), "{}", describe(&output));
}

#[test]
fn library_with_a_libc_of_its_own_keeps_its_allocator() {
    let plugin = compile("start_plugin.c", &["-shared", "-fPIC"]);
    assert_eq!(run(shimmed(compile("allocator_namespaces.c", &[])).arg(plugin)), "good\n");
}

/// Trackers of allocations: each has a part of the family, by the bits of its source, with a header or without.
#[test]
fn programs_with_a_tracker_of_a_part_of_the_family_run_as_without_the_shim() {
    const TRACKERS: [(u32, u32); 8] =
        [(7, 16), (15, 16), (31, 16), (23, 16), (5, 16), (1, 0), (0, 0), (31, 0)];
    let source = Path::new(HERE).join("tests/c/allocator_tracker.c").display().to_string();
    for (at, (defines, header)) in TRACKERS.into_iter().enumerate() {
        let flags = [format!("-DDEFINES={defines}"), format!("-DHEADER={header}")];
        let [defines, header] = [&flags[0], &flags[1]].map(String::as_str);
        let tracker = compile("allocator_tracker.c", &["-shared", "-fPIC", defines, header]);
        let place = if at % 2 == 0 { "-pie" } else { "-no-pie" };
        let family =
            compile("allocator_family.c", &[if at % 2 == 0 { "-fPIE" } else { "-fno-pie" }, place]);
        let linked =
            compile("allocator_family.c", &["-rdynamic", defines, header, source.as_str()]);
        let [shim, tracker] = [shim(), &tracker].map(|path| path.display().to_string());
        let ways = [
            (&family, format!("{shim} {tracker}")),
            (&family, format!("{tracker} {shim}")),
            (&linked, shim.clone()),
        ];
        assert_eq!(run(bare(&family).env("LD_PRELOAD", &tracker)), "good\n", "{flags:?} alone");
        for (program, preload) in ways {
            for verify in ["sample", "full"] {
                let mut program = shimmed(program);
                program.env("LD_PRELOAD", &preload).env("PREZERO_VERIFY", verify);
                assert_eq!(run(&mut program), "good\n", "{flags:?}, {preload}");
            }
        }
    }
}

/// As one does whose tracker is made by the preprocessor or the linker.
#[test]
fn a_program_may_look_at_what_stands_in_front_of_a_block() {
    let program = compile("allocator_family.c", &[]);
    for verify in ["sample", "full"] {
        assert_eq!(run(shimmed(&program).env("PREZERO_VERIFY", verify)), "good\n");
    }
}

#[test]
fn a_tracker_is_named_as_the_reason() {
    let tracker =
        compile("allocator_tracker.c", &["-shared", "-fPIC", "-DDEFINES=7", "-DHEADER=16"]);
    let program = compile("allocator_family.c", &[]);
    let mut shell = bare("sh");
    shell.args(["-c", "PREZERO_PID=$$ exec \"$0\""]).arg(program);
    let output =
        ends(shell.env("LD_PRELOAD", format!("{} {}", shim().display(), tracker.display())));
    assert_eq!(text(&output.stdout), "good\n", "{}", describe(&output));
    assert_eq!(text(&output.stderr).lines().count(), 1, "{}", describe(&output));
    assert!(text(&output.stderr).contains("functions of malloc's family"), "{}", describe(&output));
}

/// Debian's debugging allocators, which have no `malloc_usable_size`. Their banners are theirs.
#[test]
fn debugging_allocators_serve_all_of_their_program() {
    let program = compile("allocator_family.c", &[]);
    let folder = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    for name in ["libduma.so.0", "libdmalloc.so", "libdmallocth.so", "libefence.so.0"] {
        let found = [Path::new("/usr/lib").join(name), Path::new(&folder).join(name)];
        let Some(other) = found.iter().find(|path| path.exists()) else {
            println!("not tried: {name} is not installed");
            continue;
        };
        let [shim, other] = [shim(), other].map(|path| path.display().to_string());
        for preload in [format!("{shim} {other}"), format!("{other} {shim}")] {
            for verify in ["sample", "full"] {
                let mut program = shimmed(&program);
                program.env("LD_PRELOAD", &preload).env("PREZERO_VERIFY", verify);
                let output = ends(program.arg("plain"));
                assert!(
                    text(&output.stdout).ends_with("good\n"),
                    "{preload}: {}",
                    describe(&output)
                );
            }
        }
    }
}

/// Debian's other allocators, each behind the shim. A machine without one of them says
/// so; the continuous integration installs all three.
#[test]
fn other_allocators_serve_what_the_zone_does_not() {
    let folder = Path::new("/usr/lib").join(format!("{}-linux-gnu", std::env::consts::ARCH));
    let mut met = 0;
    for name in [
        "libjemalloc.so.2",
        "libmimalloc.so.2",
        "libmimalloc.so.3",
        "libtcmalloc_minimal.so.4",
        "libtbbmalloc_proxy.so.2",
    ] {
        let other = folder.join(name);
        if !other.exists() {
            println!("{name} is not installed");
            continue;
        }
        let preload = format!("{} {}", shim().display(), other.display());
        for (source, argument) in [("threads_blocks.c", "3"), ("realloc_border.c", "")] {
            let program = compile(source, &[]);
            let said = run(shimmed(program).arg(argument).env("LD_PRELOAD", &preload));
            assert_eq!(said, "good\n", "{name}");
        }
        met += 1;
    }
    println!("{met} other allocators met");
}
