//! Libraries that the program opens, and which `malloc` they find.

use std::path::Path;
use std::process::Command;

use crate::run::{bare, compile, describe, ends, run, shimmed, text};

/// A program that opens a plugin by the RUNPATH of a library in between, and by its name alone.
fn opens(way: fn(&Path) -> Command) -> Command {
    let plugin = compile("dlopen_plugin.c", &["-shared", "-fPIC"]);
    let name = plugin.file_name().and_then(|name| name.to_str()).expect("a name in UTF-8");
    let caller = compile(
        "dlopen_caller.c",
        &["-shared", "-fPIC", "-Wl,-rpath,$ORIGIN", "-Wl,--enable-new-dtags"],
    );
    let caller = caller.to_str().expect("a path in UTF-8");
    let program = compile("dlopen_deepbind.c", &["-rdynamic", "-Wl,--no-as-needed", caller]);
    let mut command = way(&program);
    command.arg(name).arg(format!("{}.line", plugin.display()));
    command
}

#[test]
fn plugin_that_binds_deeply_frees_what_others_allocated() {
    assert_eq!(run(&mut opens(|it| bare(it))), "program\ngood\n");
    assert_eq!(run(opens(|it| bare(it)).arg("deeply")), "plugin\ngood\n");
    assert_eq!(run(&mut opens(|it| shimmed(it))), "program\ngood\n");
    assert_eq!(run(opens(|it| shimmed(it)).arg("deeply")), "program\ngood\n");
}

#[test]
fn plugin_binds_deeply_where_the_user_or_no_zone_has_it_so() {
    let mut without = opens(|it| shimmed(it));
    assert_eq!(run(without.arg("deeply").env("PREZERO_DISABLE", "1")), "plugin\ngood\n");
    // It finds another `free` than the program then, and its first large block ends the program.
    let ended = ends(opens(|it| shimmed(it)).arg("deeply").env("PREZERO_DEEPBIND", "keep"));
    assert_eq!(text(&ended.stdout), "", "{}", describe(&ended));
    assert!(!ended.status.success(), "{}", describe(&ended));
}
