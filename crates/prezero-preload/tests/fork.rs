//! Forks of a program whose threads allocate meanwhile.

mod common;
use common::{compile, run, shimmed};

#[test]
fn child_of_a_threaded_program_allocates_and_frees() {
    assert_eq!(run(shimmed(compile("threads.c", &[])).arg("12")), "good\n");
}
