//! Whether the program forbade its allocator to give memory back.
//!
//! Before there were hooks, registration caches told glibc to map no blocks and to trim no heap (`mallopt`): then what
//! is free stays where it is. A program that does so means the zone's memory as well.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

static NO_MAPPINGS: AtomicBool = AtomicBool::new(false);
static NO_TRIMS: AtomicBool = AtomicBool::new(false);

/// The program has set a parameter of glibc's allocator.
pub fn note(parameter: c_int, value: c_int) {
    match parameter {
        libc::M_MMAP_MAX => NO_MAPPINGS.store(value == 0, SeqCst),
        // As a size, and the most that the parameter takes.
        libc::M_TRIM_THRESHOLD => NO_TRIMS.store(value < 0 || value == c_int::MAX, SeqCst),
        _ => return,
    }
    if is_asked()
        && let Some(heap) = super::ready_and_own()
    {
        heap.zone().no_move();
    }
}

/// Whether it forbade both.
pub fn is_asked() -> bool {
    NO_MAPPINGS.load(SeqCst) && NO_TRIMS.load(SeqCst)
}
