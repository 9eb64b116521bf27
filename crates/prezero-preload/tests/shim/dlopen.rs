//! Libraries that the program opens, and which `malloc` they find.

use std::path::Path;
use std::process::Command;

use crate::run::{bare, compile, run, shimmed};

/// How a linker makes a plugin: slots that are filled at the first call, or all at once and read-only after, or without stubs.
const LINKED: [&[&str]; 3] =
    [&["-Wl,-z,lazy,-z,norelro"], &["-Wl,-z,now,-z,relro"], &["-fno-plt", "-Wl,-z,lazy,-z,relro"]];

fn plugin(linked: &[&str]) -> std::path::PathBuf {
    compile("dlopen_plugin.c", &[&["-shared", "-fPIC"], linked].concat())
}

/// How a plugin is named: the RUNPATH of the library that opens it leads to it, or the place of that library.
const NAMED: [&str; 3] = ["", "$ORIGIN/", "${ORIGIN}/$ORIGIN_/../"];

/// A program that opens a plugin by way of a library in between, which alone finds it. The plugin opens another.
fn opens(way: fn(&Path) -> Command, linked: &[&str], named: &str, function: &str) -> Command {
    let (first, second) = (plugin(linked), plugin(linked));
    let folder = first.parent().expect("a folder");
    // No token, so a folder of that name.
    std::fs::create_dir_all(folder.join("$ORIGIN_")).expect("a folder");
    let name = first.file_name().and_then(|name| name.to_str()).expect("a name in UTF-8");
    let name = format!("{named}{name}");
    let caller = compile(
        "dlopen_caller.c",
        &["-shared", "-fPIC", "-Wl,-rpath,$ORIGIN", "-Wl,--enable-new-dtags"],
    );
    let caller = caller.to_str().expect("a path in UTF-8");
    let program = compile("dlopen_deepbind.c", &["-rdynamic", "-Wl,--no-as-needed", caller]);
    let mut command = way(&program);
    command.arg(name).arg(format!("{}.line", first.display())).arg(second).arg(function);
    command
}

const PROGRAMS: &str = "program\nprogram\nprogram\nprogram\ngood\n";
const PLUGINS: &str = "plugin\nplugin\nplugin\nplugin\ngood\n";

#[test]
fn plugin_that_binds_deeply_has_its_own_names_and_frees_what_others_allocated() {
    for linked in LINKED {
        holds_for(linked, "", "dlopen");
    }
}

#[test]
fn plugin_that_binds_deeply_is_found_however_it_is_named_and_by_either_function() {
    for named in NAMED {
        for function in ["dlopen", "dlmopen"] {
            holds_for(LINKED[0], named, function);
        }
    }
    holds_for(LINKED[0], NAMED[1], "program");
}

fn holds_for(linked: &[&str], named: &str, function: &str) {
    let opens = |way| opens(way, linked, named, function);
    let said = format!("{linked:?} {named} {function}");
    assert_eq!(run(&mut opens(|it| bare(it))), PROGRAMS, "{said}");
    assert_eq!(run(&mut opens(|it| shimmed(it))), PROGRAMS, "{said}");
    for when in ["now", "lazy"] {
        assert_eq!(run(opens(|it| bare(it)).arg(when)), PLUGINS, "{said}");
        assert_eq!(run(opens(|it| shimmed(it)).arg(when)), PLUGINS, "{said}");
        let mut without = opens(|it| shimmed(it));
        assert_eq!(run(without.arg(when).env("PREZERO_DISABLE", "1")), PLUGINS, "{said}");
    }
}

#[test]
fn plugin_that_binds_deeply_and_brings_an_allocator_keeps_it() {
    let program = compile("dlopen_own.c", &[]);
    for linked in LINKED {
        let plugin = compile("dlopen_own.c", &[&["-shared", "-fPIC", "-DPLUGIN"], linked].concat());
        for when in [&[][..], &["lazily"][..]] {
            assert_eq!(run(bare(&program).arg(&plugin).args(when)), "own\nown\n");
            assert_eq!(run(shimmed(&program).arg(&plugin).args(when)), "own\nown\n");
        }
    }
}
