//! Where a free block goes: this CPU's quicklists, then the buddy.

use crate::backing::Backing;
use crate::page::PageId;
use crate::quicklist::{BATCH, Class, Entry, Held};
use crate::state::{PageState, Tally};
use crate::stats::Counter;
use crate::sync::Ordering::Relaxed;
use crate::zone::{Cpu, Zone};

impl<B: Backing> Zone<B> {
    /// Puts a settled block where it will be found again: this CPU's lists, then the buddy.
    #[inline]
    pub(crate) fn put_back(&self, cpu: &Cpu, first: PageId, pages: u32, held: Held, tally: Tally) {
        let class = Class::of(pages).filter(|_| tally.absent == 0 && tally.foreign == 0);
        let Some(class) = class else { return self.put_to_buddy(first, pages, tally) };
        let lists = &cpu.lists[class.index()];
        let entry = lists.stamp(Entry::new(first, held, self.tick_of_free(pages)));
        let slots = class.slots();
        if held == Held::Zero {
            if lists.zero.push(entry, slots).is_ok() {
                return;
            }
            cpu.counters.bump(Counter::Overflows);
        }
        if lists.hot_cold.push(entry, slots).is_ok() {
            return;
        }
        self.overflow(cpu, class, BATCH.min(slots));
        if lists.hot_cold.push(entry, slots).is_err() {
            self.put_to_buddy(first, pages, tally);
        }
    }

    /// Moves the coldest blocks of a hot-cold list to the buddy, zero state and all.
    #[cold]
    pub(crate) fn overflow(&self, cpu: &Cpu, class: Class, blocks: usize) {
        let lists = &cpu.lists[class.index()];
        for _ in 0..blocks {
            let Some(entry) = lists.hot_cold.take_coldest(lists.newest(), |_| true) else { return };
            cpu.counters.bump(Counter::BuddyOverflows);
            let tally = self.states.tally(entry.first, class.pages());
            self.put_to_buddy(entry.first, class.pages(), tally);
        }
    }

    /// Frees a settled run into the buddy.
    pub(crate) fn put_to_buddy(&self, first: PageId, pages: u32, tally: Tally) {
        if tally.foreign > 0 {
            return self.abandon_foreign(first, pages);
        }
        if tally.absent < pages {
            self.freed_on.store(prezero_sys::thread::current_cpu() as u32, Relaxed);
            let tick = self.tick_of_free(pages).max(1);
            for huge in first.huge()..=first.plus(pages - 1).huge() {
                self.freed_at[huge].store(tick, Relaxed);
            }
        }
        self.stock.add(tally);
        self.buddy.put_run(first, pages);
    }

    /// Frees a run that was only borrowed from the free memory: it is as old as it was.
    pub(crate) fn return_to_buddy(&self, first: PageId, pages: u32) {
        let tally = self.states.tally(first, pages);
        if tally.absent < pages {
            for freed_at in &self.freed_at[first.huge()..=first.plus(pages - 1).huge()] {
                if freed_at.load(Relaxed) == 0 {
                    // It comes off a quicklist that kept it for long.
                    freed_at.store(self.clock.long_ago(), Relaxed);
                }
            }
        }
        self.stock.add(tally);
        self.buddy.put_run(first, pages);
    }

    /// The tick to stamp on what is freed now. While scrubd is parked nobody turns the
    /// clock, and what is freed must not look as old as scrubd's sleep is long.
    #[inline]
    fn tick_of_free(&self, pages: u32) -> u32 {
        if self.daemon.is_parked() { self.clock.turn().1 } else { self.tick_for(pages) }
    }

    /// Pages whose mapping could not be mended are never used again; the rest is freed.
    #[cold]
    fn abandon_foreign(&self, first: PageId, pages: u32) {
        for state in [PageState::Absent, PageState::Zero, PageState::Dirty] {
            self.states.each_run(first, pages, state, |run, n| {
                self.put_to_buddy(run, n, self.states.tally(run, n));
            });
        }
    }
}
