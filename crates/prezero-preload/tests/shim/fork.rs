//! Children of a program whose threads allocate meanwhile.

use crate::run::{bare, compile, run, run_c, shimmed};

#[test]
fn child_of_a_threaded_program_allocates_and_frees() {
    assert_eq!(run(shimmed(compile("threads_blocks.c", &[])).arg("12")), "good\n");
}

#[test]
fn children_of_every_kind_find_what_is_live_and_zeroes() {
    assert_eq!(run_c("fork_kinds.c"), "good\n");
}

#[test]
fn child_of_vfork_allocates_beside_the_parents_threads() {
    assert_eq!(run_c("fork_vfork.c"), "good\n");
}

#[test]
fn what_idles_is_not_copied_for_a_child() {
    let program = compile("fork_idle.c", &[]);
    let said = run(shimmed(&program).args(["256", "20"]));
    assert!(said.contains("MiB resident: fork "), "{said}");
}

#[test]
fn what_the_program_keeps_from_a_child_stays_a_gap_in_it() {
    let program = compile("fork_withheld.c", &[]);
    assert_eq!(run(shimmed(&program).env("PREZERO_THRESHOLD", "4M")), "good\n");
}

#[test]
fn a_child_of_a_parent_without_a_zone_costs_what_it_costs_without_the_shim() {
    /// Pages of the library that a child writes to, or reads first; a zone has more than twice as many.
    const OWN: u32 = 24;
    let program = compile("fork_cold.c", &[]);
    let faults = |said: String| said.trim().parse::<u32>().expect("a number");
    let without = faults(run(&mut bare(&program)));
    let with = faults(run(shimmed(&program).arg("zone")));
    assert!(with <= without + OWN, "{with} page faults, {without} without the shim");
}
