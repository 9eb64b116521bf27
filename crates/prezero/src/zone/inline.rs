//! Bytes cleared while their owner waits: for a request that found too few zero pages, and in a `free` that leaves
//! nothing to be read.

use crate::count::counters::Counter;
use crate::count::probes;
use crate::cpu::cache::CpuCache;
use crate::map::state::{PageState, Tally};
use crate::mem::backing::Backing;
use crate::pool::classify::Residency;
use crate::units::{PAGE, PageId, Span};
use crate::zone::Zone;

/// Pages from which on each clear in line is timed, so that the price of a miss is known. Two looks at
/// the clock are nothing beside it.
/// Moved by: `prezero run --stats -`.
pub(crate) const TIMED_PAGES: u32 = 256;

/// Whether scrubd had time to clear a block before this request. Then its clear in line is what a hit would have
/// spared, and is timed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rest {
    Rested,
    Hot,
}

impl<B: Backing> Zone<B> {
    /// Clears the pages of an owned block's front that are not zero, and no others.
    #[cold]
    pub(crate) fn make_zero(&self, cpu: &CpuCache, block: Span, front: u32, rest: Rest) {
        // The slice in which the front ends is cleared in part, and stays dirty.
        let (front, slices) = (block.front(front), block.front(front).slices());
        // Nearly always; and nothing is believed of it.
        if self.pool.map.all(slices, PageState::Dirty) {
            self.clear_inline(cpu, front.pages, rest, |clear| clear(front));
            return self.pool.map.set(front.whole_slices(), PageState::Zero);
        }
        if !self.trust.holds(self, cpu, block) {
            // Nothing that is marked zero is believed any more.
            for kind in [PageState::Zero, PageState::Absent] {
                self.pool.map.each_run(block, kind, |run| self.doubt(run));
            }
        }
        let (behind, last) = (slices.pages - front.pages, PageId(slices.end() - 1));
        let tally = self.pool.map.tally(slices).less(behind, self.pool.map.state(last));
        debug_assert_eq!(tally.remapped, 0, "a free page is never remapped");
        let bytes = |pages: u32| pages as u64 * PAGE as u64;
        if tally.dirty > 0 {
            self.clear_inline(cpu, tally.dirty, rest, |clear| {
                self.pool.map.each_run(slices, PageState::Dirty, |run| {
                    let run = run.within(front);
                    clear(run);
                    self.pool.map.set(run.whole_slices(), PageState::Zero);
                });
            });
        } else if tally.absent == 0 {
            cpu.counters.bump(Counter::Hits);
            probes::hit(front);
        }
        if tally.absent > 0 {
            cpu.counters.add(Counter::AbsentBytes, bytes(tally.absent));
            self.pool.reclaim_before_fault(block, tally.absent);
        }
        if tally.zero > 0 {
            cpu.demand.note_hit(block.pages, tally.zero);
            cpu.counters.add(Counter::HitBytes, bytes(tally.zero));
        }
    }

    /// Pages among these that may have content may hold anything.
    fn doubt(&self, span: Span) {
        self.pool.each_residency(span, |run, residency| match residency {
            Residency::Resident | Residency::Unknown => {
                self.pool.map.set(run, PageState::Dirty);
            }
            Residency::Absent => {}
        });
    }

    /// Clears `dirty` pages, the runs that `each` yields, of a block while its owner waits.
    #[inline]
    fn clear_inline(
        &self,
        cpu: &CpuCache,
        dirty: u32,
        rest: Rest,
        each: impl FnOnce(&mut dyn FnMut(Span)),
    ) {
        let bytes = u64::from(dirty) * PAGE as u64;
        let engine = self.clearing.inline(bytes as usize);
        let timed = dirty >= TIMED_PAGES || rest == Rest::Rested;
        let began = if timed { self.pool.clock.now_ns() } else { 0 };
        each(&mut |run: Span| self.pool.memory.clear(engine, run));
        if timed {
            let ended = self.pool.clock.now_ns();
            cpu.counters.add(Counter::TimedClearBytes, bytes);
            cpu.counters.add(Counter::TimedClearNs, ended.saturating_sub(began));
            self.clearing.note(engine, bytes as usize, bytes as usize, ended.saturating_sub(began));
        }
        cpu.counters.bump(Counter::Misses);
        cpu.counters.add(Counter::MissBytes, bytes);
        probes::miss(bytes);
    }

    /// Clears the dirty pages of a freed, settled run. Pages that a child of a fork under way may
    /// not believe to be zero stay recorded as dirty.
    #[cold]
    pub(crate) fn clear_freed(&self, cpu: &CpuCache, span: Span, tally: Tally) -> Tally {
        let mark = self.pool.scrubbing.mark();
        let engine = self.clearing.inline(tally.dirty as usize * PAGE);
        self.pool.map.each_run(span, PageState::Dirty, |run| {
            self.pool.memory.clear(engine, run);
        });
        cpu.counters.add(Counter::FreedClearedBytes, u64::from(tally.dirty) * PAGE as u64);
        self.pool.publish_zero(span, mark);
        self.pool.map.tally(span)
    }
}
