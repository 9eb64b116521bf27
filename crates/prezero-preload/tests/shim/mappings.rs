//! Mappings of the zone: what the program changes of them, what a core dump has of them.

use crate::run::{bare, compile, run, run_c, shimmed};

#[test]
fn changed_pages_are_replaced_before_they_are_used_again() {
    let said = run_c("mappings_changed.c");
    assert!(said.contains("mremap into\n"), "{said}");
    assert!(["userfaultfd\n", "here\n"].iter().any(|end| said.ends_with(end)), "{said}");
}

/// Of each call of libc by which a mapping changes, beside the kernel's own memory.
#[test]
fn each_call_does_to_a_block_what_it_does_to_other_memory() {
    let program = compile("mappings_table.c", &[]);
    for verify in ["sample", "full"] {
        assert_eq!(run(shimmed(&program).env("PREZERO_VERIFY", verify)), "good\n", "{verify}");
    }
}

#[test]
fn what_the_kernel_refuses_leaves_a_block_as_it_was() {
    assert_eq!(run_c("mappings_refused.c"), "good\n");
}

#[test]
fn idle_memory_is_left_out_of_core_dumps() {
    let program = compile("mappings_dumped.c", &[]);
    assert_eq!(run(shimmed(program).env("PREZERO_DECAY", "1000")), "good\n");
}

#[test]
fn a_core_has_all_that_is_in_use_and_little_more() {
    let program = compile("mappings_core.c", &[]);
    for verify in ["sample", "full"] {
        let said = run(shimmed(&program).env("PREZERO_VERIFY", verify));
        assert!(["core\n", "no core can be made here\n"].contains(&said.as_str()), "{said}");
    }
}

#[test]
fn what_a_device_was_told_of_stays_at_its_address_or_is_heard_to_leave() {
    let program = compile("mappings_watched.c", &[]);
    for (how, stay) in [("hooks", "auto"), ("mallopt", "auto"), ("neither", "on")] {
        // glibc has no such knob.
        if stay == "auto" {
            assert_eq!(run(bare(&program).arg(how)), "good\n", "{how} without the shim");
        }
        for verify in ["sample", "full"] {
            let mut watched = shimmed(&program);
            watched.env("PREZERO_VERIFY", verify).env("PREZERO_NO_MOVE", stay);
            // Idle memory would be given back before it is left out of core dumps.
            let watched = watched.env("PREZERO_DECAY", "0.1").arg(how);
            assert_eq!(run(watched), "good\n", "{how}, {verify}");
        }
    }
}
