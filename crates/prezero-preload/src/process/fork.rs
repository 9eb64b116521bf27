//! `fork` in a program with a zone.
//!
//! The handlers are registered when the library is loaded, before the program can
//! register any of its own. So they run last before a fork and first after it, and
//! whatever the program's handlers allocate finds the zone as it should be. Registering
//! costs one slot in libc's table; without a zone the handlers do nothing.

use std::sync::atomic::{AtomicBool, Ordering};

use super::holes;
use crate::process;

static REGISTERED: AtomicBool = AtomicBool::new(false);

/// Registers the handlers, once.
pub fn register() {
    if !REGISTERED.swap(true, Ordering::Relaxed) {
        // SAFETY: three functions that live as long as the process (`-z nodelete`). A
        // refusal for lack of memory leaves scrubd to notice the fork by itself.
        unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
    }
}

unsafe extern "C" fn before() {
    if let Some(process) = process::ready() {
        // SAFETY: libc calls this before it forks, and one of the two handlers below after it.
        unsafe { process.heap.zone().before_fork() };
    }
}

unsafe extern "C" fn in_parent() {
    if let Some(process) = process::ready() {
        // SAFETY: libc called `before` on this thread, and this is the parent.
        unsafe { process.heap.zone().after_fork_in_parent() };
    }
}

unsafe extern "C" fn in_child() {
    if let Some(process) = process::ready() {
        holes::seal_unforked(&process.heap);
        // SAFETY: libc called `before` on this thread. This is the child, and its first handler.
        unsafe { process.heap.zone().after_fork_in_child() };
    }
}
