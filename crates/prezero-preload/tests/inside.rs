//! Programs that bring an allocator of their own.

use std::path::Path;
use std::process::Command;

mod common;
use common::{bare, compile, run, shimmed};

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
        for (source, argument) in [("threads.c", "3"), ("reallocs.c", "")] {
            let program = compile(source, &flags);
            let said = run(shimmed(&program).arg(argument));
            assert_eq!(said, "good\n", "{name}");
        }
    }
}

#[test]
fn own_operator_new_stays_the_programs() {
    let program = compile("news.cc", &["-Wl,--no-as-needed", "-lstdc++"]);
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
