//! How the zone comes to be, or does not.

use std::path::Path;
use std::process::Command;

use crate::run::{HERE, bare, compile, describe, ends, run, shim, shimmed, text};

fn main_program() -> std::path::PathBuf {
    compile("start_main.c", &[])
}

#[test]
fn first_large_request_makes_the_zone() {
    assert_eq!(run(&mut shimmed(main_program())), "zone\n");
}

#[test]
fn disabled_shim_leaves_everything_to_the_next_allocator() {
    assert_eq!(run(shimmed(main_program()).env("PREZERO_DISABLE", "1")), "next\n");
}

#[test]
fn unreadable_knob_is_named_once_and_the_program_runs_without_a_zone() {
    let output = ends(shimmed(main_program()).env("PREZERO_LIMIT", "12 apples"));
    assert!(output.status.success(), "{}", describe(&output));
    assert_eq!(text(&output.stdout), "next\n");
    let line = text(&output.stderr);
    assert!(line.contains("PREZERO_LIMIT=12 apples: "), "{line}");
    assert_eq!(line.lines().count(), 1, "{line}");
}

#[test]
fn threads_and_blocks_before_main_are_served() {
    let library = compile("start_early_library.c", &["-shared", "-fPIC"]);
    let program = main_program();
    // In both orders: constructors of the one preloaded last run first.
    for both in [[shim(), &library], [&library, shim()]] {
        let preload = both.map(|path| path.to_str().expect("a path in UTF-8")).join(" ");
        assert_eq!(run(shimmed(&program).env("LD_PRELOAD", preload)), "zone\n");
    }
}

#[test]
fn libraries_come_and_go() {
    let plugin = compile("start_plugin.c", &["-shared", "-fPIC"]);
    assert_eq!(run(shimmed(compile("start_loader.c", &[])).arg(plugin).arg(shim())), "good\n");
}

#[test]
fn shim_loaded_by_hand_stays_when_it_is_closed() {
    let plugin = compile("start_plugin.c", &["-shared", "-fPIC"]);
    assert_eq!(run(bare(compile("start_loader.c", &[])).arg(plugin).arg(shim())), "good\n");
}

#[test]
fn children_with_another_libc_run_as_without_the_shim() {
    let source = Path::new(HERE).join("tests/c").join("start_musl.c");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("start_musl");
    let Ok(done) = Command::new("musl-gcc").arg("-o").arg(&program).arg(source).output() else {
        return println!("not tried: no musl-gcc (package musl-tools)");
    };
    assert!(done.status.success(), "{}", describe(&done));
    let mut shell = shimmed("sh");
    let script = "\"$0\"; \"$0\" & wait $!";
    assert_eq!(run(shell.args(["-c", script]).arg(program)), "good\ngood\n");
}

#[test]
fn programs_in_a_root_without_the_shim_start_without_a_line_about_it() {
    // A root with a shell and what it is linked with.
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("root-{}", std::process::id()));
    let linked = run(bare("ldd").arg("/bin/sh"));
    let files = linked.split_whitespace().filter(|word| word.starts_with('/')).chain(["/bin/sh"]);
    for file in files {
        let copy = root.join(&file[1..]);
        std::fs::create_dir_all(copy.parent().expect("a folder")).expect("folders of the root");
        std::fs::copy(file, copy).expect("a file of the root");
    }
    let mut changed = shimmed("chroot");
    changed.arg(&root).args(["/bin/sh", "-c", "/bin/sh -c 'echo one'; echo ${LD_PRELOAD-none}"]);
    let ended = ends(&mut changed);
    std::fs::remove_dir_all(&root).expect("the root is ours");
    let said = text(&ended.stderr);
    if said.contains("Operation not permitted") {
        return println!("not tried: no right to change the root");
    }
    assert_eq!((text(&ended.stdout).as_str(), said.as_str()), ("one\nnone\n", ""));
}

#[test]
fn static_program_is_left_alone() {
    assert_eq!(run(&mut shimmed(compile("start_main.c", &["-static"]))), "next\n");
}
