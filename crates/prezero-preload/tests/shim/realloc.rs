//! Blocks that change their size.

use crate::run::run_c;

#[test]
fn large_blocks_that_grow_are_moved_and_hold_what_they_held() {
    assert_eq!(run_c("realloc_grown.c"), "good\n");
}

#[test]
fn blocks_that_cross_the_border_of_the_zone_hold_what_they_held() {
    assert_eq!(run_c("realloc_border.c"), "good\n");
}
