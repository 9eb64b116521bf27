//! Whether a thread is gone: not only done, but no longer one of its process.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use rustix::thread::futex;
use rustix::time::Timespec;

use crate::raw;

/// The longest sleep between two looks, ns.
const LOOK_NS: i64 = 1_000_000;
/// The same for a thread that is on its way out: no wake-up tells when it is gone.
const SHORT_NS: i64 = 30_000;

/// The life of one thread at a time.
#[derive(Debug, Default)]
pub struct Life {
    /// Not 0 while it uses its stack.
    alive: AtomicU32,
    /// Its number, from when it is known.
    number: AtomicU32,
}

impl Life {
    /// Over before it begins.
    pub const fn new() -> Life {
        Life { alive: AtomicU32::new(0), number: AtomicU32::new(0) }
    }

    /// A thread is about to be started.
    pub fn begin(&self) {
        self.number.store(0, Relaxed);
        self.alive.store(1, Release);
    }

    /// The calling thread is the one.
    pub fn is_mine(&self) {
        self.number.store(super::current_id() as u32, Release);
    }

    /// None was started; or this is the child of a fork, which does not have it.
    pub fn forget(&self) {
        self.number.store(0, Relaxed);
        self.alive.store(0, Release);
    }

    /// To be called by a `pthread` at its end, for which the kernel tells libc alone.
    pub fn end(&self) {
        self.alive.store(0, Release);
    }

    /// The words that the kernel writes for a thread made by `clone`: the number, when the thread
    /// begins (`CLONE_PARENT_SETTID`), and the one that is cleared when it has left its memory
    /// (`CLONE_CHILD_CLEARTID`).
    pub fn words(&self) -> [*mut u32; 2] {
        [self.number.as_ptr(), self.alive.as_ptr()]
    }

    /// Whether there is, or was, a thread of that number.
    pub fn has_begun(&self) -> bool {
        self.number.load(Acquire) != 0
    }

    /// Whether the thread is gone: the process has no such number any more.
    pub fn is_over(&self) -> bool {
        if self.alive.load(Acquire) != 0 {
            return false;
        }
        let number = self.number.load(Acquire);
        if number == 0 {
            return true;
        }
        if exists(number) {
            return false;
        }
        // The number goes before the rest of the thread does, under a lock that this takes too.
        let _ = rustix::process::test_kill_current_process_group();
        let _ = self.number.compare_exchange(number, 0, AcqRel, Relaxed);
        true
    }

    /// Waits a little for it to be gone.
    pub fn wait(&self) {
        let alive = self.alive.load(Acquire);
        let nap = |ns| Timespec { tv_sec: 0, tv_nsec: ns };
        if alive == 0 {
            let _ = rustix::thread::nanosleep(&nap(SHORT_NS));
        } else {
            // Not private, because the kernel wakes as if it were shared.
            let _ = futex::wait(&self.alive, futex::Flags::empty(), alive, Some(&nap(LOOK_NS)));
        }
    }
}

/// Whether this process has a thread of that number.
fn exists(number: u32) -> bool {
    let own = crate::process::id() as usize;
    // SAFETY: signal 0 is none.
    let answer = unsafe { raw::syscall(libc::SYS_tgkill, [own, number as usize, 0]) };
    answer != -(libc::ESRCH as isize)
}
