//! Whether the child of a `vfork` runs in this process's memory.
//!
//! It has its parent's thread-local storage and is a process of its own: a thread that it starts ends with it, and
//! its limits are not its parent's.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Calls that have begun and not returned in the parent.
static UNDER_WAY: AtomicU32 = AtomicU32::new(0);

/// A `vfork` begins.
pub fn begins() {
    UNDER_WAY.fetch_add(1, Relaxed);
}

/// The parent goes on.
pub fn is_over() {
    UNDER_WAY.fetch_sub(1, Relaxed);
}

/// Whether one is under way, in any thread.
pub fn is_under_way() -> bool {
    UNDER_WAY.load(Relaxed) != 0
}
