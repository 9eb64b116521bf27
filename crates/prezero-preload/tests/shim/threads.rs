//! Threads and signal handlers that allocate, and a program with one thread.

use crate::run::{compile, run, run_c, shimmed};

#[test]
fn handlers_allocate_and_threads_end_anywhere() {
    assert_eq!(run_c("threads_handlers.c"), "good\n");
}

#[test]
fn blocks_freed_by_other_threads_keep_their_content() {
    assert_eq!(run_c("threads_blocks.c"), "good\n");
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
