//! Parts of blocks that the program changes by system calls.

mod common;
use common::run_c;

#[test]
fn changed_pages_are_replaced_before_they_are_used_again() {
    let said = run_c("changed.c");
    assert!(said.ends_with("mremap into\n"), "{said}");
}
