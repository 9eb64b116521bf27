//! `fork` in a program with a zone.
//!
//! The handlers are registered when the library is loaded, before the program can
//! register any of its own. So they run last before a fork and first after it, and
//! whatever the program's handlers allocate finds the zone as it should be. Registering
//! costs one slot in libc's table; without a zone the handlers do nothing.

use std::ffi::c_long;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use prezero_sys::birth;

use super::holes;
use crate::compat::next;
use crate::process;

static REGISTERED: AtomicBool = AtomicBool::new(false);

/// Registers the handlers, once: with glibc's function, which has one argument more than that of POSIX, for a library that
/// may be unmapped. This one is never (`-z nodelete`).
pub fn register() {
    if !REGISTERED.swap(true, Ordering::Relaxed) {
        // SAFETY: three functions that live as long as the process. A refusal for lack of memory leaves scrubd to notice
        // the fork by itself.
        unsafe { next::__register_atfork(before, in_parent, in_child, ptr::null_mut()) };
    }
}

unsafe extern "C" fn before() {
    if let Some(heap) = process::ready() {
        // SAFETY: libc calls this before it forks, and one of the two handlers below after it.
        unsafe { heap.zone().before_fork() };
    }
}

unsafe extern "C" fn in_parent() {
    if let Some(heap) = process::ready() {
        // SAFETY: libc called `before` on this thread, and this is the parent.
        unsafe { heap.zone().after_fork_in_parent() };
    }
}

unsafe extern "C" fn in_child() {
    birth::begins();
    if let Some(heap) = process::ready() {
        holes::seal_unforked(heap);
        // SAFETY: libc called `before` on this thread. This is the child, and its first handler.
        unsafe { heap.zone().after_fork_in_child() };
    }
}

/// Makes a call that makes a child without these handlers, and answers 0 in it. In a guest in this memory it is the call
/// alone.
pub fn without_handlers(call: impl Fn() -> c_long) -> c_long {
    let is_own = process::ready_and_own().is_some();
    let answer = call();
    if answer == 0 && is_own {
        is_a_child();
    }
    answer
}

/// The calling process is a child that such a call made.
pub fn is_a_child() {
    birth::begins();
    if let Some(heap) = process::ready() {
        heap.zone().begins_its_stats();
    }
}
