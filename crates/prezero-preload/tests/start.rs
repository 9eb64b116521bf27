//! How the zone comes to be, or does not.

use std::path::Path;

mod common;
use common::{bare, compile, describe, ends, run, shim, shimmed, text};

fn main_program() -> std::path::PathBuf {
    compile("main.c", &[])
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
    let library = compile("early.c", &["-shared", "-fPIC"]);
    let program = main_program();
    // In both orders: constructors of the one preloaded last run first.
    for both in [[shim(), &library], [&library, shim()]] {
        let preload = both.map(|path| path.to_str().expect("a path in UTF-8")).join(" ");
        assert_eq!(run(shimmed(&program).env("LD_PRELOAD", preload)), "zone\n");
    }
}

#[test]
fn address_space_limit_that_suffices_without_the_shim_suffices_with_it() {
    let program = compile("limited.c", &[]);
    for limit in ["64", "100", "256", "600", "1024", "6000"] {
        assert_eq!(run(bare(&program).arg(limit)), "good\n");
        assert_eq!(run(shimmed(&program).arg(limit)), "good\n", "{limit} MiB");
    }
}

#[test]
fn libraries_come_and_go() {
    let plugin = compile("plugin.c", &["-shared", "-fPIC"]);
    assert_eq!(run(shimmed(compile("loader.c", &[])).arg(plugin).arg(shim())), "good\n");
}

#[test]
fn shim_loaded_by_hand_stays_when_it_is_closed() {
    let plugin = compile("plugin.c", &["-shared", "-fPIC"]);
    assert_eq!(run(bare(compile("loader.c", &[])).arg(plugin).arg(shim())), "good\n");
}

#[test]
fn static_program_is_left_alone() {
    assert_eq!(run(&mut shimmed(compile("main.c", &["-static"]))), "next\n");
}

#[test]
fn locked_memory_does_not_fill_the_reservation() {
    let program = compile("locked.c", &[]);
    assert_eq!(run(&mut shimmed(&program)), "next\n");
    assert_eq!(run(shimmed(&program).arg("zone first")), "zone\n");
}

/// Debian's other allocators, each behind the shim. A machine without one of them says
/// so; the continuous integration installs all three.
#[test]
fn other_allocators_serve_what_the_zone_does_not() {
    let folder = Path::new("/usr/lib").join(format!("{}-linux-gnu", std::env::consts::ARCH));
    let mut met = 0;
    for name in ["libjemalloc.so.2", "libmimalloc.so.2", "libtcmalloc_minimal.so.4"] {
        let other = folder.join(name);
        if !other.exists() {
            println!("{name} is not installed");
            continue;
        }
        let preload = format!("{} {}", shim().display(), other.display());
        for (source, argument) in [("threads.c", "3"), ("reallocs.c", "")] {
            let program = compile(source, &[]);
            let said = run(shimmed(program).arg(argument).env("LD_PRELOAD", &preload));
            assert_eq!(said, "good\n", "{name}");
        }
        met += 1;
    }
    println!("{met} other allocators met");
}
