//! Parts of blocks that the program changes by system calls.

mod common;
use common::run_c;

#[test]
fn changed_pages_are_replaced_before_they_are_used_again() {
    let said = run_c("changed.c");
    assert!(said.contains("mremap into\n"), "{said}");
    assert!(["userfaultfd\n", "here\n"].iter().any(|end| said.ends_with(end)), "{said}");
}
