//! What a program frees: addresses that are none, memory that it still writes, what it must not leave.

use std::os::unix::process::ExitStatusExt;

use crate::run::{compile, describe, ends, run, shimmed, text};

fn ends_with_a_line(how: &str, function: &str) {
    let output = ends(shimmed(compile("free_wrong_address.c", &[])).arg(how));
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{}", describe(&output));
    let line = text(&output.stderr);
    let (start, end) = (
        format!("prezero: {function}(): 0x"),
        " is not the start of a live block (invalid pointer or double free)\n",
    );
    assert!(line.starts_with(&start) && line.ends_with(end), "{line}");
    assert_eq!(line.lines().count(), 1);
}

#[test]
fn double_free_aborts() {
    ends_with_a_line("double", "free");
}

#[test]
fn free_inside_a_block_aborts() {
    ends_with_a_line("inside", "free");
}

#[test]
fn free_of_an_odd_address_aborts() {
    ends_with_a_line("odd", "free");
}

#[test]
fn free_of_what_was_never_handed_out_aborts() {
    ends_with_a_line("never", "free");
}

#[test]
fn realloc_of_a_freed_block_aborts() {
    ends_with_a_line("realloc", "realloc");
}

#[test]
fn who_writes_through_dangling_pointers_is_told_once_and_gets_zeroes() {
    let program = compile("free_scribbled.c", &[]);
    let output = ends(shimmed(&program).arg("found"));
    assert!(output.status.success(), "{}", describe(&output));
    assert_eq!(text(&output.stdout), "all zero\n");
    let line = text(&output.stderr);
    assert!(line.starts_with("prezero: a free page that should be zero was written to"), "{line}");
    assert_eq!(line.lines().count(), 1, "{line}");

    // The default sees some of it. What it sees first is said once, and all is cleared from
    // then on.
    let output = ends(shimmed(&program).env("PREZERO_VERIFY", "sample"));
    assert!(output.status.success(), "{}", describe(&output));
    assert!(text(&output.stderr).lines().count() <= 1, "{}", describe(&output));
}

#[test]
fn what_is_written_to_memory_that_went_back_is_found_however_it_is_scattered() {
    let program = compile("free_scattered.c", &[]);
    for step in [1, 2, 3, 8, 15, 16, 64] {
        let output = ends(shimmed(&program).arg(step.to_string()));
        assert!(output.status.success(), "{}", describe(&output));
        let told = text(&output.stderr);
        assert!(told.starts_with("prezero: a free page that should be zero"), "{step}: {told}");
    }
}

#[test]
fn what_is_freed_is_gone_where_that_is_wanted() {
    let program = compile("free_clears.c", &[]);
    // What it looks at after a free must not be unmapped meanwhile.
    let mut cleared = shimmed(&program);
    cleared.env("PREZERO_ZERO_ON_FREE", "on").env("PREZERO_DECAY", "1000");
    assert_eq!(run(&mut cleared), "good\n");
    let threads = compile("threads_blocks.c", &[]);
    assert_eq!(run(shimmed(threads).arg("2").env("PREZERO_ZERO_ON_FREE", "on")), "good\n");
}
