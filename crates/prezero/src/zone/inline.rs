//! Bytes cleared while somebody waits for them: for a request that found too few zero pages, and
//! in a `free` that leaves nothing to be read.

use crate::clear::choice::LAST_FIRST_PAGES;
use crate::count::counters::Counter;
use crate::count::probes;
use crate::cpu::cache::CpuCache;
use crate::mem::backing::Backing;
use crate::mem::states::{PageState, Tally};
use crate::pool::settle::Residency;
use crate::units::{PAGE, PageId};
use crate::zone::Zone;

/// From this many pages on (1 MiB) a clear on the critical path is timed, so that what a
/// hit saves is measured: two looks at the clock, 50 ns, against 7 us at least.
pub(crate) const TIMED_PAGES: u32 = 256;

impl<B: Backing> Zone<B> {
    /// Clears what is not zero of the front of an owned block, and nothing else.
    #[cold]
    pub(crate) fn make_zero(&self, cpu: &CpuCache, first: PageId, front: u32, pages: u32) {
        // Nearly always; and nothing is believed of it.
        if self.pool.states.all(first, front, PageState::Dirty) {
            self.clear_inline(cpu, first, front, |clear| clear(first, front));
            return self.pool.states.set(first, front, PageState::Zero);
        }
        if !self.trust.holds(self, cpu, first, pages) {
            // Nothing that is marked zero is believed any more.
            for kind in [PageState::Zero, PageState::Absent] {
                self.pool.states.each_run(first, pages, kind, |run, n| self.doubt(run, n));
            }
        }
        let tally = self.pool.states.tally(first, front);
        debug_assert_eq!(tally.foreign, 0, "a free page is never foreign");
        let bytes = |pages: u32| pages as u64 * PAGE as u64;
        if tally.dirty > 0 {
            self.clear_inline(cpu, first, tally.dirty, |clear| {
                self.pool.states.each_run(first, front, PageState::Dirty, |run, n| {
                    clear(run, n);
                    self.pool.states.set(run, n, PageState::Zero);
                });
            });
        } else if tally.absent == 0 {
            cpu.counters.bump(Counter::Hits);
            probes::hit(first, front);
        }
        if tally.absent > 0 {
            cpu.counters.add(Counter::AbsentBytes, bytes(tally.absent));
            self.pool.make_way(first, pages, tally.absent);
        }
        cpu.counters.add(Counter::HitBytes, bytes(tally.zero));
    }

    /// What is resident of these pages may hold anything.
    fn doubt(&self, first: PageId, pages: u32) {
        self.pool.each_residency(first, pages, |run, n, residency| {
            if residency != Residency::NotResident {
                self.pool.states.set(run, n, PageState::Dirty);
            }
        });
    }

    /// Clears `dirty` pages, the runs that `each` yields, of the block at `first` while its owner waits.
    #[inline]
    fn clear_inline(
        &self,
        cpu: &CpuCache,
        first: PageId,
        dirty: u32,
        each: impl FnOnce(&mut dyn FnMut(PageId, u32)),
    ) {
        let bytes = u64::from(dirty) * PAGE as u64;
        let choice = self.choice();
        let (engine, near) = choice.inline(bytes as usize, &self.clearing.reach);
        let timed = dirty >= TIMED_PAGES;
        let began = if timed { self.pool.clock.now_ns() } else { 0 };
        each(&mut |run, n| {
            let mut near = near.min(n);
            if near < n {
                self.pool.memory.clear(engine, run.plus(near), n - near);
            }
            while near > 0 {
                let last = near.min(LAST_FIRST_PAGES);
                near -= last;
                self.pool.memory.clear(engine, run.plus(near), last);
            }
        });
        if timed {
            let ended = self.pool.clock.now_ns();
            cpu.counters.add(Counter::TimedClearBytes, bytes);
            cpu.counters.add(Counter::TimedClearNs, ended.saturating_sub(began));
            if choice.is_tried(bytes as usize) {
                self.clearing.reach.note(first, bytes as usize, engine.cache(), began, ended);
            }
        }
        cpu.counters.bump(Counter::Misses);
        cpu.counters.add(Counter::MissBytes, bytes);
        probes::miss(bytes);
    }

    /// Clears what was freed, for those who want it gone: what is dirty of a settled run. What
    /// a child of a fork under way may not believe to be zero stays recorded as dirty.
    #[cold]
    pub(crate) fn clear_freed(
        &self,
        cpu: &CpuCache,
        first: PageId,
        pages: u32,
        tally: Tally,
    ) -> Tally {
        let mark = self.pool.fork_mark();
        let (engine, _) = self.choice().inline(tally.dirty as usize * PAGE, &self.clearing.reach);
        self.pool.states.each_run(first, pages, PageState::Dirty, |run, n| {
            self.pool.memory.clear(engine, run, n);
        });
        cpu.counters.add(Counter::FreedClearedBytes, u64::from(tally.dirty) * PAGE as u64);
        self.pool.publish_zero(first, pages, mark);
        self.pool.states.tally(first, pages)
    }
}
