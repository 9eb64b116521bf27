//! How scrubd ends while the process goes on.
//!
//! The kernel refuses some calls while there is a second thread (`unshare` of a user namespace, `setns` into some).
//! Other calls change the calling thread alone where libc knows of no other (`setuid`), and scrubd would keep what
//! the program gave up. So around such a call there is no scrubd. It ends between two steps, where it holds no
//! block, and leaves its state to the next scrubd, which the frees after the call start.
//!
//! The calling thread waits until the kernel has no such thread any more. The wait is bounded: with all CPUs busy
//! an idle thread may not run for long, and only some callers may take it out of its class. After that the call is
//! made as it would have been without prezero.

use std::sync::atomic::Ordering::{AcqRel, Relaxed, SeqCst};

use prezero_sys::thread::{self, SchedClass};

use super::{
    ASLEEP, AWAKE, DOZING, FAILED, GONE, LEAVING, NOT_STARTED, PARKED, START_BYTES, Waker,
};

/// The longest wait for scrubd's end. With all CPUs busy an idle thread takes up to that time.
/// Moved by: `cargo test -p prezero-preload --test shim scrubd`.
const PATIENCE_NS: u64 = 2_000_000_000;
/// Doublings that each end adds to [`START_BYTES`], and their sum at most. A server that changes
/// its user for each request has a scrubd for a small part of its work only.
/// Moved by: `cargo test -p prezero-preload --test shim scrubd`.
const DEARER: u32 = 2;
const DEAREST: u32 = 8;

/// What `overdue` says of a scrubd that has no successor.
/// Fixed: a state of a word.
const FOR_GOOD: u32 = 2;

/// What a call that scrubd must not live through changes for the next one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// The users, groups and rights of the process.
    Rights,
    /// Which files, and so cgroups, it sees.
    View,
}

/// What came of asking scrubd to end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Ended,
    NoneThere,
    /// It did not run in time.
    StillThere,
}

impl Waker {
    /// Whether a thread makes a call that no scrubd may live through, or waits for it to end.
    pub(crate) fn is_unwanted(&self) -> bool {
        self.enders.load(SeqCst) != 0
    }

    /// Whether scrubd is to end.
    pub(crate) fn is_called_off(&self) -> bool {
        self.is_unwanted() || self.overdue.load(Relaxed) != 0
    }

    /// From now on until [`end_is_over`](Waker::end_is_over) there is no scrubd, if it could be
    /// waited for.
    pub(crate) fn end(&self) -> Outcome {
        self.enders.fetch_add(1, SeqCst);
        if self.is_absent() {
            return Outcome::NoneThere;
        }
        self.hurry(SchedClass::Normal);
        let until = thread::monotonic_ns() + PATIENCE_NS;
        while !self.is_absent() && thread::monotonic_ns() < until {
            let word = self.word.load(SeqCst);
            if matches!(word, AWAKE | ASLEEP | DOZING | PARKED)
                && self.word.compare_exchange(word, LEAVING, SeqCst, Relaxed).is_ok()
            {
                thread::futex_wake_one(&self.word);
            }
            self.life.wait();
        }
        if !self.is_absent() {
            // As soon as it runs.
            self.overdue.store(1, Relaxed);
            return Outcome::StillThere;
        }
        let ends = self.ends.fetch_add(1, Relaxed);
        let bytes = START_BYTES << ends.saturating_mul(DEARER).min(DEAREST);
        self.start_bytes.fetch_max(bytes, Relaxed);
        Outcome::Ended
    }

    pub(crate) fn ends(&self) -> u32 {
        self.ends.load(Relaxed)
    }

    /// Ends it, and none starts again. One that is only about to be is the caller's own.
    pub(crate) fn give_up(&self) {
        if self.life.has_begun() {
            if self.end() == Outcome::Ended {
                let _ = self.word.compare_exchange(GONE, FAILED, SeqCst, Relaxed);
            }
            self.end_is_over();
        }
    }

    pub(crate) fn end_is_over(&self) {
        self.enders.fetch_sub(1, SeqCst);
    }

    /// Whether there is no scrubd, not even one that is about to be.
    fn is_absent(&self) -> bool {
        matches!(self.word.load(SeqCst), NOT_STARTED | FAILED | GONE) && self.life.is_over()
    }

    /// Whether this process is another than the zone's: the child of a vfork, in its parent's
    /// memory, or of a bare clone.
    pub(crate) fn is_of_another(&self) -> bool {
        self.process.load(Relaxed) != prezero_sys::process::id()
    }

    /// It takes what the program may need: it ends as soon as it can, and none starts again.
    pub(crate) fn takes_too_much(&self) {
        self.overdue.store(FOR_GOOD, Relaxed);
    }

    /// scrubd's last act but to end. Its legacy to the next scrubd is written down before.
    pub(crate) fn mark_ended(&self) {
        self.idle_thread.store(0, Relaxed);
        let for_good = self.overdue.load(Relaxed) == FOR_GOOD;
        self.word.store(if for_good { FAILED } else { GONE }, SeqCst);
    }

    /// Files lie elsewhere from now on.
    pub(crate) fn moves(&self) {
        self.moved.store(1, Relaxed);
    }

    /// Whether files lie elsewhere than when this was last asked.
    pub(crate) fn has_moved(&self) -> bool {
        self.moved.swap(0, AcqRel) != 0
    }
}
