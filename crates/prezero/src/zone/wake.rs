//! What a zone tells its scrubd, and how it does without one.

use crate::count::counters::Counter;
use crate::mem::backing::Backing;
use crate::units::PAGE;
use crate::waker::{Change, Outcome, Woken};
use crate::zone::Zone;

/// Pages that may idle where no scrubd could be started.
/// Fixed: a bound for processes that may start no thread, small beside their blocks.
const IDLE_MOST: u32 = 2048;

impl<B: Backing> Zone<B> {
    /// A block of `pages` was freed: scrubd is told if it must be.
    #[inline]
    pub(crate) fn nudge(&self, pages: u32) {
        if self.waker.must_wake(pages) {
            self.wake(pages);
        }
    }

    #[cold]
    fn wake(&self, pages: u32) {
        let roused = self.waker.wake(pages, || self.own_misses());
        // Without a scrubd memory goes back as the program's own allocator would have it.
        if roused == Woken::CannotStart && self.pool.map.sums.resident() >= IDLE_MOST {
            self.purge_all();
        }
    }

    /// What all CPUs counted of one kind.
    pub(crate) fn counted(&self, counter: Counter) -> u64 {
        self.cpus.iter().map(|cpu| cpu.counters.get(counter)).sum()
    }

    /// ZERO requests that this process had cleared in line; none while the counters are its parent's.
    pub(crate) fn own_misses(&self) -> u64 {
        if self.has_parents_stats() { 0 } else { self.counted(Counter::Misses) }
    }

    /// How often scrubd ended for a call.
    pub fn scrubd_ends(&self) -> u32 {
        self.waker.ends()
    }

    /// Ends scrubd for as long as this process lives, which needs the task. Whether it ended since it had done so `before`
    /// times.
    pub fn give_scrubd_up(&self, before: u32) -> bool {
        self.waker.give_up();
        self.waker.ends() != before
    }

    /// Makes a call that no scrubd may live through. Where none was there it costs next to nothing;
    /// in the child of a vfork it is the call alone. Leaves `errno` as the call left it.
    pub fn without_scrubd<R>(&self, change: Change, call: impl FnOnce() -> R) -> R {
        let waker = &self.waker;
        if waker.is_of_another() {
            return call();
        }
        let over = OnDrop(|| waker.end_is_over());
        let outcome = waker.end();
        if change == Change::View {
            waker.moves();
        }
        let answer = call();
        drop(over);
        if outcome == Outcome::Ended {
            waker.idles(u64::from(self.pool.map.sums.resident()) * PAGE as u64);
        }
        answer
    }
}

/// Runs a closure when it is dropped, also by a panic.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        self.0();
    }
}
