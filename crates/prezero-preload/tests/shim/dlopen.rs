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

/// A program that opens a plugin by the RUNPATH of a library in between, and by its name alone. That one opens another.
fn opens(way: fn(&Path) -> Command, linked: &[&str]) -> Command {
    let (first, second) = (plugin(linked), plugin(linked));
    let name = first.file_name().and_then(|name| name.to_str()).expect("a name in UTF-8");
    let caller = compile(
        "dlopen_caller.c",
        &["-shared", "-fPIC", "-Wl,-rpath,$ORIGIN", "-Wl,--enable-new-dtags"],
    );
    let caller = caller.to_str().expect("a path in UTF-8");
    let program = compile("dlopen_deepbind.c", &["-rdynamic", "-Wl,--no-as-needed", caller]);
    let mut command = way(&program);
    command.arg(name).arg(format!("{}.line", first.display())).arg(second);
    command
}

const PROGRAMS: &str = "program\nprogram\nprogram\nprogram\ngood\n";
const PLUGINS: &str = "plugin\nplugin\nplugin\nplugin\ngood\n";

#[test]
fn plugin_that_binds_deeply_has_its_own_names_and_frees_what_others_allocated() {
    for linked in LINKED {
        assert_eq!(run(&mut opens(|it| bare(it), linked)), PROGRAMS);
        assert_eq!(run(&mut opens(|it| shimmed(it), linked)), PROGRAMS);
        for when in ["now", "lazy"] {
            assert_eq!(run(opens(|it| bare(it), linked).arg(when)), PLUGINS, "{linked:?}");
            assert_eq!(run(opens(|it| shimmed(it), linked).arg(when)), PLUGINS, "{linked:?}");
            let mut without = opens(|it| shimmed(it), linked);
            assert_eq!(run(without.arg(when).env("PREZERO_DISABLE", "1")), PLUGINS);
        }
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
