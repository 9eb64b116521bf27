//! Where a free block goes: this CPU's quicklists, those of a CPU that lacks it, the buddy.

use crate::config::without::Mechanism;
use crate::count::counters::Counter;
use crate::cpu::list::{BATCH, Class, Entry, Held, Lists};
use crate::mem::backing::Backing;
use crate::mem::states::Tally;
use crate::sync::Ordering::Relaxed;
use crate::units::PageId;
use crate::zone::{Cpu, Zone};

/// From this many pages on (512 KiB) the time is asked when a block comes and goes: 25 ns,
/// against 8 us to clear it. The tick that scrubd turns is up to a nap old, and a block that
/// looks older than it is would be taken for one that nobody will ask for soon.
pub(crate) const CLOCKED_PAGES: u32 = 128;

impl<B: Backing> Zone<B> {
    /// Puts a settled block where it will be found again: this CPU's lists, then the buddy.
    #[inline]
    pub(crate) fn put_back(&self, cpu: &Cpu, first: PageId, pages: u32, held: Held, tally: Tally) {
        let class = Class::of(pages).filter(|_| tally.absent == 0 && tally.foreign == 0);
        let Some(class) = class else {
            self.put_to_pool(first, pages, tally);
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
            let tally = self.pool.states.tally(entry.first, class.pages());
            self.put_to_pool(entry.first, class.pages(), tally);
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
            let tally = self.pool.states.tally(entry.first, class.pages());
            self.put_to_pool(entry.first, class.pages(), tally);
        }
    }

    /// The tick to stamp on what is freed now. While scrubd is parked nobody turns the
    /// clock, and what is freed must not look as old as scrubd's sleep is long.
    #[inline]
    fn tick_of_free(&self, pages: u32) -> u32 {
        if self.daemon.is_parked() { self.pool.clock.turn().1 } else { self.tick_for(pages) }
    }

    /// Frees a settled run into the pool.
    #[inline]
    pub(crate) fn put_to_pool(&self, first: PageId, pages: u32, tally: Tally) {
        self.pool.put(first, pages, tally, self.tick_of_free(pages));
    }

    /// Writes down what a block holds that comes back, and counts what of it was handed out zero.
    #[inline]
    pub(crate) fn settle(&self, cpu: &Cpu, first: PageId, pages: u32) -> Tally {
        let slack = Class::of(pages).map(Class::slack);
        let settled = self.pool.settle(&cpu.sparse, first, pages, slack);
        if settled.returned > 0 {
            cpu.demand.note_return(settled.returned);
        }
        settled.tally
    }
}
