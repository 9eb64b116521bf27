//! Where a free block goes: this CPU's quicklists, those of a CPU that lacks it, the buddy.

use crate::config::without::Mechanism;
use crate::count::counters::Counter;
use crate::cpu::list::{BATCH, Class, Entry, Held, Lists};
use crate::mem::backing::Backing;
use crate::mem::states::{PageState, Tally};
use crate::sync::Ordering::Relaxed;
use crate::units::PageId;
use crate::zone::{Cpu, Zone};

impl<B: Backing> Zone<B> {
    /// Puts a settled block where it will be found again: this CPU's lists, then the buddy.
    #[inline]
    pub(crate) fn put_back(&self, cpu: &Cpu, first: PageId, pages: u32, held: Held, tally: Tally) {
        let class = Class::of(pages).filter(|_| tally.absent == 0 && tally.foreign == 0);
        let Some(class) = class else {
            self.put_to_buddy(first, pages, tally);
            return cpu.latest.note(first, pages);
        };
        self.file(cpu, class, Entry::new(first, held, self.tick_of_free(pages)));
    }

    /// Onto a CPU's lists, the buddy if they are full.
    #[inline]
    pub(crate) fn file(&self, cpu: &Cpu, class: Class, entry: Entry) {
        let lists = &cpu.lists[class.index()];
        let entry = lists.stamp(entry);
        let slots = class.slots();
        if entry.held == Held::Zero {
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
            let tally = self.states.tally(entry.first, class.pages());
            self.put_to_buddy(entry.first, class.pages(), tally);
        }
    }

    /// Notes that this CPU has no block of this size left: what overflows elsewhere is sent
    /// here. One thread may allocate what another frees, and the blocks must come back.
    #[cold]
    pub(crate) fn hungry(&self, pages: u32) {
        if let Some(class) = Class::of(pages).filter(|_| self.has(Mechanism::Hungry)) {
            let cpu = prezero_sys::thread::current_cpu() as u32 + 1;
            let word = &self.hungry[class.index()];
            if word.load(Relaxed) != cpu {
                word.store(cpu, Relaxed);
            }
        }
    }

    /// Moves the coldest blocks of a hot-cold list, zero state and all, to the CPU that lacks
    /// them if there is one, or to the buddy.
    #[cold]
    pub(crate) fn overflow(&self, cpu: &Cpu, class: Class, blocks: usize) {
        let lists = &cpu.lists[class.index()];
        let hungry = self.hungry[class.index()].load(Relaxed) as usize;
        let hungry = hungry.checked_sub(1).and_then(|number| self.cpus.get(number));
        let theirs = hungry.filter(|&other| !std::ptr::eq(other, cpu));
        let theirs = theirs.map(|other| &other.lists[class.index()]);
        for _ in 0..blocks {
            let Some(entry) = lists.hot_cold.take_coldest(lists.newest(), |_| true) else { return };
            let sent =
                |there: &Lists| there.hot_cold.push(there.stamp(entry), class.slots()).is_ok();
            if theirs.is_some_and(sent) {
                continue;
            }
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
    pub(crate) fn return_to_buddy(&self, first: PageId, pages: u32) {
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
