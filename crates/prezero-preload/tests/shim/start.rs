//! How the zone comes to be, or does not.

use crate::run::{bare, compile, describe, ends, run, shim, shimmed, text};

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
fn static_program_is_left_alone() {
    assert_eq!(run(&mut shimmed(compile("start_main.c", &["-static"]))), "next\n");
}
