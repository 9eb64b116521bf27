//! Filters of system calls (seccomp): those that the process installs, and those that it began with.
//!
//! **Installed by the process.** From then on requests go to the next allocator, scrubd is gone, and the zone makes no
//! call for its live blocks that glibc's `malloc` would not make. A process that never had a zone gets none. The
//! report is complete then, and written before the filter may forbid it.
//!
//! **There from the beginning.** A child tries what a zone and scrubd call; where the filter ends it there is no
//! zone. `prezero run` does so for its program, says it, and spares programs under the same filters the trial.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use prezero_core::internal::Change;
use prezero_sys::birth;
use prezero_sys::sandbox::{self, Trial};

use super::{HEAP, env, never, report};

/// The smallest request that was looked at more closely before the process confined itself.
static THRESHOLD: AtomicUsize = AtomicUsize::new(usize::MAX);
/// Whether a filter was found that ends the process for calls of a zone.
static IS_FORBIDDEN: AtomicBool = AtomicBool::new(false);
/// Whether the next child would be the first of a namespace, which ends with it.
static CHILD_IS_SPECIAL: AtomicBool = AtomicBool::new(false);

/// Makes a call that installs a filter, where its answer is not negative.
pub fn confined(call: impl FnOnce() -> isize) -> isize {
    // A guest in this memory speaks for itself alone.
    if sandbox::is_confined() || birth::is_guest() {
        return call();
    }
    report::write_once();
    match super::ready() {
        Some(heap) => heap.zone().without_scrubd(Change::Rights, || {
            super::give_back();
            confine(call)
        }),
        None => confine(call),
    }
}

fn confine(call: impl FnOnce() -> isize) -> isize {
    // Before the call: it may hold for all threads.
    sandbox::confine();
    THRESHOLD.fetch_min(HEAP.set_threshold(usize::MAX), Ordering::SeqCst);
    let answer = call();
    if answer >= 0 {
        never();
    } else if sandbox::is_free_again() {
        HEAP.set_threshold(THRESHOLD.load(Ordering::SeqCst));
        report::write_again();
    }
    answer
}

/// Whether a filter was found that ends the process for calls of a zone.
pub fn is_forbidden() -> bool {
    IS_FORBIDDEN.load(Ordering::Relaxed)
}

/// The next child that is made is the first of a namespace of processes.
pub fn child_is_special() {
    CHILD_IS_SPECIAL.store(true, Ordering::Relaxed);
}

/// Whether a filter that was there from the beginning lets a zone and scrubd live. Leaves `errno` as it was.
pub fn may_live() -> bool {
    if sandbox::is_confined() {
        return false;
    }
    if !sandbox::is_filtered() {
        return true;
    }
    let tried = env::tried_filters();
    if tried.is_some() && tried == sandbox::filters() {
        sandbox::was_tried();
        return true;
    }
    if CHILD_IS_SPECIAL.load(Ordering::Relaxed) || sandbox::trial() == Trial::Ends {
        IS_FORBIDDEN.store(true, Ordering::Relaxed);
        return false;
    }
    true
}

/// To be called when the library is loaded.
pub fn at_load() {
    // What a filter may forbid has to be tried first, and short programs are not worth that.
    if !sandbox::is_filtered() {
        // What comes later may come from a guest in this memory.
        birth::current();
    }
}
