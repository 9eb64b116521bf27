//! scrubd as all others see it: a thread that is started, woken and hurried.
//!
//! One thread a zone, `SCHED_IDLE`, started by the first free that leaves it something to do. It has every signal
//! blocked and a descriptor table of its own. It allocates nothing once it runs: a lock in the program's allocator,
//! held by a thread that runs only on an idle CPU, would stop the program.
//!
//! A [`Spawner`] makes the thread: a `pthread` unless the program brings its own
//! ([`allow_scrubd_by`](crate::internal::allow_scrubd_by)).
//!
//! A free looks at one word to see whether it must wake scrubd. It wakes scrubd only for a large block, or when
//! scrubd is parked, so a small free never pays for a system call twice in a row. `scrubd/thread.rs` says what
//! scrubd does then.

use std::ffi::c_void;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64};

use prezero_sys::thread::{self, Life, Pthread, Spawner, Unheard};
use prezero_sys::{birth, sandbox};

use crate::count::snapshot::Snapshot;
use crate::units::PAGE;

mod ending;

pub use ending::Change;
pub(crate) use ending::Outcome;

/// Bytes of scrubd's stack. It recurses nowhere; its deepest frame reads a file into a buffer.
/// Fixed: what the deepest frame needs.
const STACK: usize = 128 << 10;
/// Bytes freed, or blocks freed, before scrubd starts. A program that frees less is not worth the
/// start of a thread.
/// Moved by: `bench real --only ripgrep`, counter `scrubd_cpu_ns`.
pub const START_BYTES: u64 = 8 << 20;
const START_FREES: u64 = 64;
/// Requests that were cleared in line, from which on fewer freed blocks suffice: scrubd would have
/// spared the program these clears.
/// Moved by: `bench grid --idle on --sizes 64K --lines 1,4`.
const START_MISSES: u64 = 4;
const START_FREES_OF_ASKER: u64 = 8;
/// Bytes freed in the child of a fork before its scrubd starts. Most children end soon, and their
/// end waits for an idle thread where CPUs are busy.
/// Moved by: `cargo test -p prezero-preload --test shim fork`.
const CHILD_START_BYTES: u64 = 64 << 20;
/// Pages of a free that is worth a wake-up call. The call takes the program microseconds, the clear
/// milliseconds.
/// Moved by: `bench grid --idle on`.
const WAKE_PAGES: u32 = 16 << 10;
/// The waker's word: what a free must do about it.
/// Fixed: states of a word.
pub(crate) const AWAKE: u32 = 0;
pub(crate) const DOZING: u32 = 1;
pub(crate) const PARKED: u32 = 2;
/// Not started; `zone` says whether it may be.
const NOT_STARTED: u32 = 3;
/// Could not be started.
const FAILED: u32 = 4;
/// Ended, or about to with nothing left to do; as [`NOT_STARTED`] when its thread is gone.
const GONE: u32 = 5;
/// A thread waits for its end.
const LEAVING: u32 = 6;
/// It sleeps for long, and no free wakes it.
pub(crate) const ASLEEP: u32 = 7;

/// What came of telling scrubd of a free.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Woken {
    Done,
    /// There is no scrubd, and there will be none.
    CannotStart,
}

pub(crate) struct Waker {
    /// What a free must do about it.
    pub(crate) word: AtomicU32,
    /// The zone that it serves, which is never dropped; null until it may start.
    zone: AtomicPtr<c_void>,
    start: AtomicPtr<c_void>,
    /// Bytes freed before it was started, and how many start it.
    freed: AtomicU64,
    start_bytes: AtomicU64,
    /// The thread's number, once it is of the idle class; 0: it is not.
    pub(crate) idle_thread: AtomicI32,
    /// The process whose zone this is.
    process: AtomicU32,
    /// Whether its thread is gone.
    pub(crate) life: Life,
    /// What scrubd reports the counters to; unset: nothing.
    pub(crate) listener: OnceLock<fn(&Snapshot)>,
    /// What makes the thread; unset until the zone may start it.
    pub(crate) spawner: OnceLock<&'static dyn Spawner>,
    /// Threads that wait for its end, or make a call that it must not live through.
    enders: AtomicU32,
    /// Whether one of them went on without its end.
    overdue: AtomicU32,
    /// How often it ended, and whether files lie elsewhere since.
    ends: AtomicU32,
    moved: AtomicU32,
    /// What it left to the next; null: nothing.
    pub(crate) left: AtomicPtr<c_void>,
    /// Zero pages that the governor wants in the map.
    pub(crate) target: AtomicU64,
}

impl Waker {
    pub(crate) fn new() -> Waker {
        Waker {
            word: AtomicU32::new(NOT_STARTED),
            zone: AtomicPtr::new(std::ptr::null_mut()),
            start: AtomicPtr::new(std::ptr::null_mut()),
            freed: AtomicU64::new(0),
            start_bytes: AtomicU64::new(START_BYTES),
            idle_thread: AtomicI32::new(0),
            process: AtomicU32::new(0),
            life: Life::new(),
            listener: OnceLock::new(),
            spawner: OnceLock::new(),
            enders: AtomicU32::new(0),
            overdue: AtomicU32::new(0),
            ends: AtomicU32::new(0),
            moved: AtomicU32::new(0),
            left: AtomicPtr::new(std::ptr::null_mut()),
            target: AtomicU64::new(0),
        }
    }

    /// Whether scrubd must be told of a free of `pages`.
    #[inline]
    pub(crate) fn must_wake(&self, pages: u32) -> bool {
        match self.word.load(Relaxed) {
            AWAKE | ASLEEP => false,
            DOZING => pages >= WAKE_PAGES,
            _ => true,
        }
    }

    /// A test is its own scrubd, awake.
    #[cfg(test)]
    pub(crate) fn is_the_tests(&self) {
        self.word.store(AWAKE, SeqCst);
    }

    /// Whether scrubd sleeps for longer than the clock may stand.
    #[inline]
    pub(crate) fn clock_stands(&self) -> bool {
        self.word.load(Relaxed) >= PARKED
    }

    /// Tells scrubd of a free of `pages`: wakes it, or counts towards its start. `misses`: ZERO requests that this
    /// process had cleared in line.
    #[cold]
    pub(crate) fn wake(&self, pages: u32, misses: impl FnOnce() -> u64) -> Woken {
        match self.word.load(Relaxed) {
            state @ (DOZING | PARKED)
                if self.word.compare_exchange(state, AWAKE, AcqRel, Relaxed).is_ok() =>
            {
                thread::futex_wake_one(&self.word);
            }
            NOT_STARTED | GONE if sandbox::is_confined() => return Woken::CannotStart,
            // Where none is allowed (yet), no free pays for counting towards one.
            NOT_STARTED | GONE if !self.zone.load(Relaxed).is_null() => {
                let bytes = counts_for(pages, misses());
                if self.freed.fetch_add(bytes, Relaxed) + bytes >= self.start_bytes.load(Relaxed) {
                    self.begin();
                }
            }
            FAILED => return Woken::CannotStart,
            _ => {}
        }
        Woken::Done
    }

    /// Lets scrubd start when there is something to do: a thread that `spawner` makes runs `entry` on `zone`.
    ///
    /// # Safety
    /// `zone` is never dropped and is what `entry` expects.
    #[allow(unsafe_code)]
    pub(crate) unsafe fn allow(
        &self,
        zone: *mut c_void,
        entry: thread::Entry,
        spawner: &'static dyn Spawner,
    ) {
        self.spawner.get_or_init(|| spawner);
        self.process.store(prezero_sys::process::id(), SeqCst);
        self.start.store(entry as *mut c_void, SeqCst);
        self.zone.store(zone, SeqCst);
    }

    /// Idle bytes after scrubd ended: they need a scrubd, whether anything is freed again or not.
    pub(crate) fn idles(&self, bytes: u64) {
        self.freed.store(bytes, Relaxed);
        if bytes >= self.start_bytes.load(Relaxed) {
            self.begin();
        }
    }

    /// Starts scrubd, unless there is one, or a thread wants none at this moment.
    #[allow(unsafe_code)]
    fn begin(&self) {
        let zone = self.zone.load(Acquire);
        // The caller may be a guest in this memory, and the thread would end with it.
        if zone.is_null() || birth::is_guest() || sandbox::is_confined() {
            return;
        }
        let before = self.word.load(Acquire);
        if !matches!(before, NOT_STARTED | GONE) || !self.life.is_over() || self.is_unwanted() {
            return;
        }
        // A spawner's thread inherits the mask; and no handler waits for the end of what this begins.
        let _unheard = Unheard::new();
        if self.word.compare_exchange(before, AWAKE, SeqCst, Relaxed).is_err() {
            return;
        }
        // A thread that came to wait for its end saw the word, or is seen here.
        if self.is_unwanted() {
            self.word.store(before, SeqCst);
            return;
        }
        self.overdue.store(0, Relaxed);
        // SAFETY: `allow` stored `run::<B>` here before it stored the zone.
        let entry: thread::Entry = unsafe { std::mem::transmute(self.start.load(Acquire)) };
        let life = self.life_for_ever();
        // SAFETY: `zone` points at a zone that is never dropped, which `entry` expects; `run` arrives,
        // leaves, and calls nothing that relies on a lock of libc's; the last thread's life is over.
        let started = unsafe { self.spawner().start(STACK, entry, zone, life) };
        if started.is_err() {
            life.forget();
            self.word.store(FAILED, SeqCst);
        }
    }

    /// What makes the thread.
    pub(crate) fn spawner(&self) -> &'static dyn Spawner {
        *self.spawner.get_or_init(|| &Pthread)
    }

    #[allow(unsafe_code)]
    fn life_for_ever(&self) -> &'static Life {
        // SAFETY: asked for by `begin` alone, once there is a zone that is never dropped, and this
        // is its scrubd.
        unsafe { &*std::ptr::from_ref(&self.life) }
    }

    /// The calling thread is about to wait for scrubd: a fork waits until scrubd is out of the kernel,
    /// the end of the process until it has ended. An idle thread may not run for long.
    pub(crate) fn hurry(&self, class: thread::SchedClass) {
        let scrubd = self.idle_thread.load(Relaxed);
        // The children of vfork and of a bare clone find their parent's written down here.
        if scrubd != 0 && self.process.load(Relaxed) == prezero_sys::process::id() {
            thread::hurry(scrubd, class);
        }
    }

    /// The child of a fork has no scrubd; it gets one when it needs one.
    pub(crate) fn after_fork_in_child(&self) {
        self.freed.store(0, Relaxed);
        self.start_bytes.store(CHILD_START_BYTES, Relaxed);
        self.idle_thread.store(0, Relaxed);
        // Its number is of no use without a scrubd.
        if !sandbox::is_confined() {
            self.process.store(prezero_sys::process::id(), Relaxed);
        }
        self.life.forget();
        self.enders.store(0, Relaxed);
        self.overdue.store(0, Relaxed);
        // It speaks of a panel that a child does not inherit.
        self.left.store(std::ptr::null_mut(), Relaxed);
        self.word.store(NOT_STARTED, SeqCst);
    }
}

/// What a free of `pages` counts towards the start of scrubd, bytes, after `misses` ZERO requests were
/// cleared in line.
fn counts_for(pages: u32, misses: u64) -> u64 {
    let frees = if misses < START_MISSES { START_FREES } else { START_FREES_OF_ASKER };
    (u64::from(pages) * PAGE as u64).max(START_BYTES / frees)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frees of `pages` until scrubd starts, of a program that has each of its blocks cleared in line or none.
    fn frees_until_start(pages: u32, asks: bool) -> u64 {
        let mut freed = 0;
        let counted = |frees: &u64| {
            freed += counts_for(pages, if asks { *frees } else { 0 });
            freed >= START_BYTES
        };
        (1..).find(counted).unwrap()
    }

    #[test]
    fn a_program_that_waits_for_clears_gets_a_scrubd_sooner_than_one_that_does_not() {
        assert_eq!(frees_until_start(16, false), 64);
        assert!((8..=12).contains(&frees_until_start(16, true)));
        assert_eq!(frees_until_start(512, false), 4, "8 MiB");
        assert_eq!(frees_until_start(512, true), 4);
    }
}
