//! Threads and signal handlers that allocate, and a program with one thread.

use crate::run::{compile, run, run_c, shim, shimmed};
#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
use crate::scrubd::poison;

#[test]
fn handlers_allocate_and_threads_end_anywhere() {
    assert_eq!(run_c("threads_handlers.c"), "good\n");
}

#[test]
fn blocks_freed_by_other_threads_keep_their_content() {
    assert_eq!(run_c("threads_blocks.c"), "good\n");
}

/// What a request may call in libc beside its malloc: these take no lock.
#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
const LOCKLESS: [&str; 9] = [
    "__errno_location",
    "getauxval",
    "getenv",
    "getrlimit",
    "sysinfo",
    "fcntl",
    "close",
    "sysconf",
    "syscall",
];

#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
#[test]
fn requests_take_no_lock_that_libcs_malloc_does_not_take() {
    let program = compile("threads_requests.c", &["-rdynamic"]);
    let preloaded = format!("{} {}", poison("requests", &LOCKLESS).display(), shim().display());
    assert_eq!(run(shimmed(program).env("LD_PRELOAD", preloaded)), "good\n");
}

#[test]
fn requests_do_not_wait_for_a_thread_that_opens_a_library() {
    let program = compile("threads_opens.c", &["-rdynamic"]);
    let plugin = compile("threads_opens.c", &["-DPLUGIN", "-shared", "-fPIC"]);
    assert_eq!(run(shimmed(&program).arg(&plugin)), "good\n");
    assert_eq!(run(shimmed(&program).arg(&plugin).arg("with a zone")), "good\n");
}

#[test]
fn program_with_one_thread_stays_one_to_libc() {
    let program = compile("threads_single.c", &[]);
    assert_eq!(run(&mut shimmed(&program)), "good\n");
    assert_eq!(run(shimmed(&program).arg("last")), "good\n", "it ends with its own last thread");
}

#[test]
fn knob_makes_scrubd_a_thread_that_libc_knows_of() {
    let program = compile("threads_single.c", &[]);
    let with =
        |value: &str| run(shimmed(&program).arg("several").env("PREZERO_BARE_THREAD", value));
    assert_eq!(with("off"), "good\n");
    let output =
        shimmed(&program).arg("several").env("PREZERO_BARE_THREAD", "on").output().unwrap();
    assert!(!output.status.success(), "nothing but the knob does it: {output:?}");
}
