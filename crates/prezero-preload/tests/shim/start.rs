//! How the zone comes to be, or does not.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::run::{HERE, bare, compile, describe, ends, run, shim, shimmed, text};
use prezero_testing::script;

fn main_program() -> PathBuf {
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

/// A root with these programs, and what they are linked with.
struct Root(PathBuf);

impl Root {
    fn with(programs: &[&Path]) -> Root {
        static ROOTS: AtomicUsize = AtomicUsize::new(0);
        let nth = ROOTS.fetch_add(1, Ordering::Relaxed);
        let name = format!("root-{}-{nth}", std::process::id());
        let root = Root(Path::new(env!("CARGO_TARGET_TMPDIR")).join(name));
        for program in programs {
            let linked = run(bare("ldd").arg(program));
            let files = linked.split_whitespace().filter(|word| word.starts_with('/'));
            files.map(Path::new).chain([*program]).for_each(|file| drop(root.copy(file)));
        }
        root
    }

    /// A file of ours at the same place in it.
    fn copy(&self, file: &Path) -> PathBuf {
        let copy = self.0.join(file.strip_prefix("/").expect("a path from the root"));
        std::fs::create_dir_all(copy.parent().expect("a folder")).expect("folders of the root");
        script::copy(file, &copy);
        copy
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).expect("the root is ours");
    }
}

#[test]
fn programs_in_a_root_without_the_shim_start_without_a_line_about_it() {
    let root = Root::with(&[Path::new("/bin/sh")]);
    let mut changed = shimmed("chroot");
    changed.arg(&root.0).args(["/bin/sh", "-c", "/bin/sh -c 'echo one'; echo ${LD_PRELOAD-none}"]);
    let ended = ends(&mut changed);
    let said = text(&ended.stderr);
    if said.contains("Operation not permitted") {
        return println!("not tried: no right to change the root");
    }
    assert_eq!((text(&ended.stdout).as_str(), said.as_str()), ("one\nnone\n", ""));
}

/// A library in `/etc/ld.so.preload` is in setuid programs, too, and their environment is any user's.
#[test]
fn a_setuid_program_takes_no_knob_of_its_callers() {
    const ANYBODY: &str = "--userspec=65534:65534";
    let program = main_program();
    let root = Root::with(&[&program, shim()]);
    let preload = root.0.join("etc/ld.so.preload");
    std::fs::create_dir_all(root.0.join("etc")).expect("a folder of the root");
    std::fs::write(preload, shim().display().to_string()).expect("a file of the root");
    let writable = root.0.join("stats");
    std::fs::create_dir(&writable).expect("a folder of the root");
    let mode = |path: &Path, mode| {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("the root is ours")
    };
    let says = |variable: &str, value: &str| {
        let mut started = bare("chroot");
        started.arg(ANYBODY).arg(&root.0).arg(&program).env(variable, value);
        started.output().expect("chroot starts")
    };
    let copy = root.0.join(program.strip_prefix("/").expect("a path from the root"));
    let plain = says("PREZERO_DISABLE", "1");
    if text(&plain.stderr).contains("Operation not permitted") {
        return println!("not tried: no right to change the root");
    }
    assert_eq!(text(&plain.stdout), "next\n", "a caller's own program: {}", describe(&plain));
    mode(&copy, 0o4755);
    let raised = says("PREZERO_DISABLE", "1");
    assert_eq!(text(&raised.stdout), "zone\n", "{}", describe(&raised));
    says("PREZERO_STATS", "/stats/written");
    assert!(!writable.join("written").exists(), "as the program's owner");
}

#[test]
fn static_program_is_left_alone() {
    assert_eq!(run(&mut shimmed(compile("start_main.c", &["-static"]))), "next\n");
}
