//! The thread that clears, beside what the program does.

use std::cell::RefCell;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use prezero_report::panel::{Panel, Refusal};

use crate::run::{bare, compile, describe, run, run_c, shim, shimmed, text, until};

/// `BLOCKS` of `scrubd_chores.c`, which pauses for 2 ms in each round and loads the library in the hundredth.
const BLOCKS_A_ROUND: u32 = 24;

/// In debug builds the library ends a program whose scrubd calls a function of the malloc family, be it by
/// way of libc.
#[test]
fn scrubd_does_all_its_work_without_libcs_heap() {
    does_all_its_work(&mut shimmed(compile("scrubd_chores.c", &[])));
}

/// What scrubd may call in libc. The compiler writes calls of these anywhere; they work on memory alone, and libc and
/// its standards allow them in a signal handler.
#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
const HARMLESS: [&str; 7] =
    ["__tls_get_addr", "bcmp", "memcmp", "memcpy", "memmove", "memset", "strlen"];

/// A library that hooks all functions of libc that the shim calls or has, but these, and takes others' calls for errors.
#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
pub fn poison(name: &str, harmless: &[&str]) -> PathBuf {
    let symbols = run(bare("nm").args(["-D", "-P"]).arg(shim()));
    let mut names = String::new();
    for line in symbols.lines() {
        let mut words = line.split_whitespace();
        let (Some(name), Some(kind)) = (words.next(), words.next()) else { continue };
        let name = name.split('@').next().unwrap_or_default();
        // What this library has in the place of libc's is libc's for a library before it. `vfork` returns twice.
        let hooked = match kind {
            "U" => name != "environ",
            "w" => !name.starts_with('_'),
            "T" => !name.starts_with("prezero_") && name != "vfork" && !is_of_malloc(name),
            _ => false,
        };
        if hooked && !HARMLESS.contains(&name) && !harmless.contains(&name) {
            names += &format!("X({name})\n");
        }
    }
    for name in ["X(read)", "X(dlsym)", "X(dl_iterate_phdr)"] {
        assert!(names.contains(name), "{names}");
    }
    let list = format!("{}.{name}.names", std::process::id());
    let list = Path::new(env!("CARGO_TARGET_TMPDIR")).join(list);
    std::fs::write(&list, names).expect("a place for it");
    let list = format!("-DNAMES=\"{}\"", list.display());
    compile("scrubd_poison.c", &["-shared", "-fPIC", "-mgeneral-regs-only", &list])
}

/// Another preloaded library may hook any function, and lock there. Here one hooks all of them.
#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
#[test]
fn scrubd_calls_no_function_that_others_may_hook() {
    let poison = poison("scrubd", &[]);
    let tree = format!("/dev/shm/prezero-tree-test-{}-poison", std::process::id());
    let mut program = shimmed(compile("scrubd_chores.c", &[]));
    let preloaded = format!("{} {}", poison.display(), shim().display());
    // As a child, which tells the process that reports.
    program.env("LD_PRELOAD", preloaded).env("PREZERO_PID", std::process::id().to_string());
    does_all_its_work(program.env("PREZERO_TREE", &tree));
    std::fs::remove_file(tree).expect("scrubd made it");
}

/// A bare thread that calls one of these ends the process in a debug build anyway.
#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
fn is_of_malloc(name: &str) -> bool {
    ["alloc", "free", "mallinfo", "malloc_", "mallopt", "memalign"]
        .iter()
        .any(|it| name.contains(it))
}

fn does_all_its_work(program: &mut Command) {
    let locals = compile("scrubd_chores_library.c", &["-shared", "-fPIC"]);
    program.arg(locals).env("PREZERO_DECAY", "300");
    program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = RefCell::new(program.spawn().expect("it starts"));
    let lives = || {
        let mut child = child.borrow_mut();
        if let Some(status) = child.try_wait().expect("it is ours") {
            let mut said = String::new();
            let _ = child.stderr.take().map(|mut pipe| pipe.read_to_string(&mut said));
            panic!("it ended: {status}: {said}");
        }
    };
    // `timeout` stands before the program.
    let children = format!("/proc/{0}/task/{0}/children", child.borrow().id());
    let panel = until("a panel", || {
        lives();
        let own = std::fs::read_to_string(&children).unwrap_or_default();
        let found =
            own.trim().parse().ok().and_then(|pid| prezero_sys::panel::of_process(pid).ok());
        found.and_then(Panel::new)
    });
    let ask = |request: &str| {
        let answer = until(request, || match panel.ask(request, Duration::from_millis(500)) {
            Err(Refusal::Pending) => None,
            answer => Some(answer),
        });
        answer.unwrap_or_else(|refusal| panic!("{request}: {refusal}"));
    };
    let reaches = |name: &str, least: f64| {
        until(name, || {
            lives();
            panel.read().number(name) >= least
        });
    };
    reaches("scrubbed_bytes", f64::from(64 << 20));
    for request in ["set scrub-cache 1M", "set verify sample", "set scrub-rate 9G"] {
        ask(request);
        ask("release");
    }
    // Past the round in which the library comes, and for longer than memory may lie idle.
    reaches("frees", panel.read().number("frees") + f64::from(200 * BLOCKS_A_ROUND));
    assert!(panel.read().number("released_bytes") > 0.0);
    let mut child = child.into_inner();
    drop(child.stdin.take());
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", describe(&output));
    assert_eq!((text(&output.stdout).as_str(), text(&output.stderr).as_str()), ("good\n", ""));
}

/// What a program has for each thread is its own: 208 MiB here.
#[test]
fn scrubd_has_no_copy_of_what_the_program_has_for_each_thread() {
    assert_eq!(run_c("scrubd_locals.c"), "good\n");
}

#[test]
fn scrubd_lives_through_no_change_of_user_namespace_or_root() {
    assert_eq!(run_c("scrubd_rights.c"), "good\n");
}
