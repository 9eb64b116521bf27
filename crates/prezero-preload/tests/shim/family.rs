//! The malloc family behind the shim: glibc's answers, blocks as asked for.

use crate::run::{bare, compile, describe, ends, run, run_c, shim, shimmed, text};

#[test]
fn corner_cases_are_answered_as_by_glibc() {
    let program = compile("family_corners.c", &[]);
    assert_eq!(run(&mut shimmed(&program)), run(&mut bare(&program)));
}

#[test]
fn glibcs_own_names_free_and_grow_blocks_of_the_zone() {
    let program = compile("family_names.c", &[]);
    assert_eq!(run(&mut bare(&program)), "good\n", "without the shim");
    assert_eq!(run(&mut shimmed(&program)), "good\n");
}

#[test]
fn blocks_have_size_alignment_content_and_leave_errno() {
    assert_eq!(run_c("family_blocks.c"), "good\n");
}

#[test]
fn large_blocks_among_free_pieces_hold_what_they_should() {
    assert_eq!(run_c("family_pieces.c"), "good\n");
}

#[test]
fn small_blocks_that_come_and_go_are_not_faulted_in_each_time() {
    let program = compile("family_small.c", &[]);
    for large in ["malloc", "calloc", "grown from a large one", "small, then grown"] {
        assert_eq!(run(bare(&program).arg(large)), "good\n", "{large}, without the shim");
        assert_eq!(run(shimmed(&program).arg(large)), "good\n", "{large}");
    }
}

#[test]
fn malloc_trim_gives_back_what_the_zone_has_free() {
    assert_eq!(run_c("family_trim.c"), "good\n");
}

#[test]
fn c_functions_do_what_the_header_says() {
    let library = shim().to_str().expect("a path in UTF-8");
    let program = compile("family_header.c", &["-Wl,--no-as-needed", library]);
    let json = run(&mut shimmed(program));
    assert!(json.starts_with('{') && json.ends_with("}\n"), "{json}");
}

#[test]
fn pools_do_what_the_header_says() {
    let library = shim().to_str().expect("a path in UTF-8");
    let program = compile("family_pool.c", &["-Wl,--no-as-needed", library]);
    assert_eq!(run(&mut shimmed(&program)), "good\n");
    // Where the library stands aside there are pools too.
    assert_eq!(run(shimmed(&program).env("PREZERO_DISABLE", "1")), "good\n");
    for (mistake, function) in [("inside", ""), ("malloc", "_written"), ("twice", "")] {
        let output = ends(shimmed(&program).arg(mistake));
        assert_eq!(output.status.code(), Some(libc::SIGABRT), "{}", describe(&output));
        let line = text(&output.stderr);
        let start = format!("prezero: prezero_pool_give{function}(): 0x");
        let end = " is not the start of a slot that is out (another pool's, or given twice)\n";
        assert!(line.starts_with(&start) && line.ends_with(end), "{line}");
    }
}

#[test]
fn odd_sizes_are_cleared_as_far_as_they_were_asked_for_and_no_farther() {
    let library = shim().to_str().expect("a path in UTF-8");
    let program = compile("family_rounded.c", &["-Wl,--no-as-needed", library]);
    assert_eq!(run(&mut shimmed(program)), "good\n");
}

#[test]
fn larger_threshold_leaves_smaller_blocks_to_the_next_allocator() {
    let program = compile("start_main.c", &[]);
    assert_eq!(run(shimmed(&program).env("PREZERO_THRESHOLD", "1M")), "zone\n");
    assert_eq!(run(shimmed(&program).env("PREZERO_THRESHOLD", "2M")), "next\n");
}

#[test]
fn what_libc_tells_of_its_heap_counts_the_zones_blocks() {
    let program = compile("family_figures.c", &[]);
    assert_eq!(run(&mut bare(&program)), "good\n", "without the shim");
    // What is free must not go back to the kernel meanwhile.
    assert_eq!(run(shimmed(&program).env("PREZERO_NO_MOVE", "on")), "good\n");
}
