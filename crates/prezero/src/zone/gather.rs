//! When the lists' blocks go back to the pool: a CPU's cold ones before the pool is searched, all CPUs' before
//! memory is faulted in.
//!
//! A list serves a block of its size in some nanoseconds, and a block that was freed a moment ago out of the cache.
//! After a pause neither is worth much. A listed block then keeps the free memory on both its sides apart, and the
//! next requests go to memory that was used longer ago. Where others share the L3, memory that was used in the last
//! round is the cheapest to fill.
//!
//! Moved by: `bench waste --only never`.

use crate::class::Class;
use crate::clock::Ticks;
use crate::config::ablation::Mechanism;
use crate::cpu::cache::CpuCache;
use crate::cpu::list::Entry;
use crate::mem::backing::Backing;
use crate::zone::Zone;
use crate::zone::put_back::CLOCKED_PAGES;
use crate::zone::request::HOT_NS;

impl<B: Backing> Zone<B> {
    /// Moves blocks that are hot no more from this CPU's lists to the pool, once in
    /// [`HOT_NS`] at most. The zero lists stay as they are. Not for small blocks, which ask for no
    /// time: what one thread allocates and another frees looks as old as the clock.
    pub(crate) fn gather(&self, cpu: &CpuCache, pages: u32) {
        if pages < CLOCKED_PAGES || !self.has(Mechanism::Gather) {
            return;
        }
        let (now, rest) = (self.pool.clock.turn().tick, Ticks::rounded_up(HOT_NS));
        if cpu.gathered_at.get().is_some_and(|at| now.is_within(rest, at)) {
            return;
        }
        cpu.gathered_at.set(now);
        for class in Class::largest_first() {
            let cold = |e: Entry| e.age(now) >= rest;
            // As if freed now: a block that was used a pause ago must not look as if nothing came back for it.
            while let Some(entry) = cpu.lists(class).hot_cold.take(cold) {
                self.put_listed(class, entry);
            }
        }
    }

    /// Moves what all CPUs' lists hold to the map, for a request that would fault in `pages`
    /// pages otherwise. False if there was nothing, or it is not the [time](Zone::time_to_drain).
    pub(crate) fn drain_for(&self, pages: u32) -> bool {
        self.time_to_drain(pages) && self.drain_all()
    }

    /// Whether all CPUs are to be drained for a request, which then counts as done: of a size that
    /// lists serve not twice in [`HOT_NS`], unless two threads ask at once.
    ///
    /// A block that lies there again so soon is on its way from one thread to another. With one block more
    /// there is always one to steal (`bench pair --threads 1`).
    pub(crate) fn time_to_drain(&self, pages: u32) -> bool {
        let (now, pause) = (self.pool.clock.turn().tick, Ticks::rounded_up(HOT_NS));
        let lately = self.cpus.drained_at.get().is_some_and(|at| now.is_within(pause, at));
        if lately && Class::of(pages).is_some() {
            return false;
        }
        self.cpus.drained_at.set(now);
        true
    }
}
