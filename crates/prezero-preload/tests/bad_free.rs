//! Addresses that must not be freed end the process with one line.

use std::os::unix::process::ExitStatusExt;

mod common;
use common::{compile, describe, ends, shimmed, text};

fn ends_with_a_line(how: &str, function: &str) {
    let output = ends(shimmed(compile("bad_free.c", &[])).arg(how));
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
