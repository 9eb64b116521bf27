//! Looking at the whole zone: gauges for people, and the checker that tests arm.

use crate::clear::Cache;
use crate::count::counters::Counter;
use crate::count::snapshot::{FreeState, Gauges, Snapshot};
use crate::map::state::{PageState, Tally};
use crate::mem::backing::Backing;
use crate::sync::Ordering::Relaxed;
use crate::units::{Order, PAGE, PageId, SLICE, Span};
use crate::zone::Zone;

/// What [`Zone::check`] found wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Flaw {
    /// A page is free in two places.
    #[error("the slice of page {0} is free twice")]
    FreeTwice(usize),
    /// A free page is recorded as zero and is not.
    #[error("the slice of page {0} is recorded as zero and holds something else")]
    FalseZero(usize),
    /// A free page is recorded as foreign.
    #[error("the slice of page {0} is free and recorded as remapped")]
    FreeForeign(usize),
}

impl<B: Backing> Zone<B> {
    /// All counters, and the zone as it stands. Walks the free blocks: some
    /// microseconds for each GiB in use.
    pub fn snapshot(&self) -> Snapshot {
        self.take_over();
        Snapshot { counters: self.counts(), gauges: self.gauges() }
    }

    /// The counters, and what a clear and a fault cost: all that a report needs, without a walk of free memory.
    pub fn stats(&self) -> Snapshot {
        self.take_over();
        Snapshot { counters: self.counts(), gauges: self.prices() }
    }

    /// scrubd calls `listener` with the counters now and then, and before it sleeps for long. The first one stays.
    ///
    /// # Safety
    /// `listener` runs on a thread that libc may not know: it calls nothing of libc that takes a lock, allocates, or has
    /// data of its own for each thread; and it does not unwind.
    #[allow(unsafe_code)]
    pub unsafe fn report_to(&self, listener: fn(&Snapshot)) {
        let _ = self.waker.listener.set(listener);
    }

    fn prices(&self) -> Gauges {
        let never_scrubs = self.tuning.scrub_start().is_none();
        Gauges { clear_ns_per_page: self.clear_ns_per_page(), never_scrubs, ..Gauges::default() }
    }

    fn gauges(&self) -> Gauges {
        let bytes = |pages: u32| u64::from(pages) * PAGE as u64;
        let mut gauges =
            Gauges { zone_bytes: bytes(self.pool.purge.mapped.pages()), ..self.prices() };
        let mut free = self.count_map(&mut gauges);
        if let Some(span) = self.pool.scrubbing.held() {
            free = free + self.pool.map.tally(span);
        }
        gauges.target_zero_bytes = self.waker.target.load(Relaxed) * PAGE as u64;
        gauges.resident_zero_bytes = bytes(free.zero);
        gauges.resident_dirty_bytes = bytes(free.dirty);
        gauges.absent_bytes = bytes(free.absent);
        let all_free = bytes(free.zero) + bytes(free.dirty) + bytes(free.absent);
        gauges.allocated_bytes = gauges.zone_bytes.saturating_sub(all_free);
        gauges.engine_cached = self.clearing.engine(Cache::Cached).name();
        gauges.engine_bypassing = self.clearing.engine(Cache::Bypassing).name();
        gauges
    }

    /// Counts the free memory of the map, in blocks as the kernel's buddyinfo would show them: their pages.
    fn count_map(&self, gauges: &mut Gauges) -> Tally {
        let mut sum = Tally::default();
        for run in self.pool.map.free_runs() {
            let (mut at, mut left) = (run.first, run.pages);
            while left > 0 {
                let order = Order::fitting(at, left);
                let tally = self.pool.map.tally(Span::new(at, order.pages()));
                gauges.free[order.get() as usize][uniform(tally) as usize] += 1;
                sum = sum + tally;
                (at, left) = (at.plus(order.pages()), left - order.pages());
            }
        }
        sum
    }

    /// What clearing on the critical path took for each page where it was timed. Else what
    /// scrubd's own clears took, whose memory is as cold.
    pub(crate) fn clear_ns_per_page(&self) -> f64 {
        let timed =
            per_page(self.counted(Counter::TimedClearNs), self.counted(Counter::TimedClearBytes));
        let own = |c| self.pool.counters.get(c);
        let known = per_page(own(Counter::ScrubCpuNs), own(Counter::ScrubbedBytes));
        match timed {
            0.0 => known,
            // It is wall time: a clear that was preempted must not count for many.
            _ if known > 0.0 => timed.min(MOST_OF_KNOWN * known),
            _ => timed,
        }
    }

    /// Checks every free page against its record: no page is free twice, none is foreign,
    /// and each that is recorded as zero is read and is zero. For tests, and for a
    /// program that has stopped.
    ///
    /// # Safety
    /// Nothing changes meanwhile: no other thread uses the zone, and its scrubd clears nothing. The check reads
    /// free pages, and a thread that takes a page writes to it.
    ///
    /// # Errors
    /// The first [`Flaw`] found.
    #[allow(unsafe_code)]
    pub unsafe fn check(&self) -> Result<(), Flaw> {
        let mut seen = vec![false; (self.pool.memory.pages / SLICE) as usize];
        let mut visit = |span: Span| {
            for slice in (span.first.0..span.end()).step_by(SLICE as usize).map(PageId) {
                if std::mem::replace(&mut seen[(slice.0 / SLICE) as usize], true) {
                    return Err(Flaw::FreeTwice(slice.index()));
                }
                let pages = Span::new(slice, SLICE);
                match self.pool.map.state(slice) {
                    PageState::Zero if !self.pool.memory.is_zero(pages) => {
                        return Err(Flaw::FalseZero(slice.index()));
                    }
                    PageState::Remapped => return Err(Flaw::FreeForeign(slice.index())),
                    PageState::Absent | PageState::Zero | PageState::Dirty => {}
                }
            }
            Ok(())
        };
        self.pool.map.free_runs().try_for_each(&mut visit)?;
        if let Some(span) = self.pool.scrubbing.held() {
            visit(span)?;
        }
        Ok(())
    }
}

/// The most that a clear in line is believed to cost, in known clears: it may have been
/// preempted.
/// Fixed: a guard; a clear that was not preempted differs by less.
const MOST_OF_KNOWN: f64 = 4.0;

/// 0 if there was no page.
fn per_page(ns: u64, bytes: u64) -> f64 {
    match bytes / PAGE as u64 {
        0 => 0.0,
        pages => ns as f64 / pages as f64,
    }
}

/// The column of the gauges that a free block counts in.
fn uniform(tally: Tally) -> FreeState {
    match tally {
        Tally { zero: 0, absent: 0, .. } => FreeState::Dirty,
        Tally { dirty: 0, absent: 0, .. } => FreeState::Zero,
        Tally { dirty: 0, zero: 0, .. } => FreeState::Absent,
        _ => FreeState::Mixed,
    }
}
