//! Pages that come back to the pool, and how old they are there.

use crate::mem::backing::Backing;
use crate::mem::states::{PageState, Tally};
use crate::pool::Pool;
use crate::sync::Ordering::Relaxed;
use crate::units::PageId;

impl<B: Backing> Pool<B> {
    /// Frees a settled run into the buddy.
    pub(crate) fn put(&self, first: PageId, pages: u32, tally: Tally, tick: u32) {
        if tally.foreign > 0 {
            return self.abandon_foreign(first, pages, tick);
        }
        if tally.absent < pages {
            self.freed_on.store(prezero_sys::thread::current_cpu() as u32, Relaxed);
            let tick = tick.max(1);
            self.freed_last.store(tick, Relaxed);
            for huge in first.huge()..=first.plus(pages - 1).huge() {
                self.freed_at[huge].store(tick, Relaxed);
            }
            self.note_used(first, pages);
        }
        self.stock.add(tally);
        self.buddy.put_run(first, pages);
        self.offer_excess(first, pages);
    }

    /// Frees a run that was only borrowed from the free memory: it is as old as it was.
    pub(crate) fn put_as_it_was(&self, first: PageId, pages: u32) {
        let tally = self.states.tally(first, pages);
        if tally.absent < pages {
            for freed_at in &self.freed_at[first.huge()..=first.plus(pages - 1).huge()] {
                if freed_at.load(Relaxed) == 0 {
                    // It comes off a quicklist that kept it for long.
                    freed_at.store(self.clock.long_ago(), Relaxed);
                }
            }
            self.note_used(first, pages);
        }
        self.stock.add(tally);
        self.buddy.put_run(first, pages);
    }

    fn note_used(&self, first: PageId, pages: u32) {
        let huge = first.huge() as u32..first.plus(pages - 1).huge() as u32 + 1;
        self.resident.set(huge.clone());
        self.used.set(huge);
    }

    /// Pages whose mapping could not be mended are never used again; the rest is freed.
    #[cold]
    fn abandon_foreign(&self, first: PageId, pages: u32, tick: u32) {
        for state in [PageState::Absent, PageState::Zero, PageState::Dirty] {
            self.states.each_run(first, pages, state, |run, n| {
                self.put(run, n, self.states.tally(run, n), tick);
            });
        }
    }
}
