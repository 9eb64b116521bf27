//! Giving idle memory back to the kernel: by age, under pressure, on request.

use crate::block::Run;
use crate::clock::Tick;
use crate::config::ablation::Mechanism;
use crate::count::counters::Counter;
use crate::count::probes;
use crate::map::state::PageState;
use crate::mem::backing::Backing;
use crate::pool::Pool;
use crate::sync::Ordering::Relaxed;
use crate::units::{HUGE_PAGES, PAGE, SLICE, Span};

/// Free memory that may stay resident above the peak in use: a part of it, as a divisor, and some
/// pages. Other allocators keep about as much, and a program seldom faults in what it gave back.
/// Moved by: `prezero bench steady --only handler`, `bench real --only sparse,node`.
pub(crate) const IDLE_SHARE: u32 = 4;
pub(crate) const IDLE_LEAST: u32 = 1024;

/// States of free pages that are memory. Dirty ones first: they cost no clear.
pub(crate) const RESIDENT: [PageState; 2] = [PageState::Dirty, PageState::Zero];

impl<B: Backing> Pool<B> {
    /// `absent` pages of a block are about to be faulted in: gives back as many idle ones where
    /// the zone would hold more than ever was of use. To give back costs a tenth of the faults.
    #[cold]
    pub(crate) fn reclaim_before_fault(&self, span: Span, absent: u32) {
        self.fault_in_suitably(span, absent);
        let excess = self.map.sums.resident().saturating_sub(self.most_idle()).min(absent);
        if excess > 0 && self.has(Mechanism::Reclaim) {
            self.purge(excess, &RESIDENT, |_| true);
        }
    }

    /// Free pages that may be resident without the zone holding more than ever was of use.
    pub(crate) fn most_idle(&self) -> u32 {
        let used = self.used();
        let peak = self.purge.peak.fetch_max(used, Relaxed).max(used);
        peak.saturating_add(peak / IDLE_SHARE + IDLE_LEAST) - used
    }

    /// Gives back the resident free pages of huge blocks of which all resident pages are of these
    /// `kinds` and the last free is `old`, until `most` are given back. True if there were any.
    pub(crate) fn purge(&self, most: u32, kinds: &[PageState], old: impl Fn(Tick) -> bool) -> bool {
        if self.map.sums.resident() == 0 || self.must_not_move() {
            return false;
        }
        let mut done = 0u32;
        let without = RESIDENT.into_iter().find(|kind| !kinds.contains(kind));
        for &kind in kinds {
            while let Some(idle) =
                self.find_idle(SLICE, kind, without, |freed| freed.is_some_and(&old))
            {
                if done >= most {
                    return true;
                }
                if let Some(run) = self.map.take(idle) {
                    let Some(pages) = self.release(run) else { return done > 0 };
                    done += pages;
                }
            }
        }
        done > 0
    }

    /// Gives a run that is out of circulation back to the kernel and puts it back absent: how
    /// many pages were resident. `None` if they are as they were.
    fn release(&self, run: Run) -> Option<u32> {
        let done = self.make_absent(run.span());
        self.put_as_it_was(run);
        done
    }

    /// Gives pages that are out of circulation back to the kernel: how many pages were resident.
    /// `None` if that refused, or pages [stay](crate::pool::no_move).
    pub(crate) fn make_absent(&self, span: Span) -> Option<u32> {
        if self.must_not_move() {
            return None;
        }
        let tally = self.map.tally(span);
        let resident = tally.zero + tally.dirty;
        if self.memory.release(span).is_err() {
            self.counters.add_exact(Counter::BackingErrors, 1);
            return None;
        }
        self.map.set(span, PageState::Absent);
        if span.pages == HUGE_PAGES {
            self.map.forget_freed(span.first.huge() as u32);
        }
        let bytes = |pages: u32| u64::from(pages) * PAGE as u64;
        self.counters.add_exact(Counter::ReleasedBytes, bytes(resident));
        self.counters.add_exact(Counter::UnusedZeroBytes, bytes(tally.zero));
        probes::release(span.first, resident);
        Some(resident)
    }
}
