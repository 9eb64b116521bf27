//! Requests and returns: which block serves, and what is done to it before it is handed out.
//!
//! The fast path is a swap on a slot of this CPU's quicklist; beyond it every step is an
//! atomic operation on a word that names what it takes, so a thread stopped anywhere holds
//! back only the block in its hands.

use crate::block::{Block, Content, Dirty, Zero, ZeroFront};
use crate::clear::Use;
use crate::clock::{REST_NS, age, ticks};
use crate::config::OnFree;
use crate::config::without::Mechanism;
use crate::count::counters::Counter;
use crate::count::probes;
use crate::cpu::list::{Class, Entry, Held};
use crate::mem::backing::Backing;
use crate::mem::states::PageState;
use crate::pool::settle::Residency;
use crate::sync::Ordering::Relaxed;
use crate::units::{Order, PAGE, PageId};
use crate::zone::inline::TIMED_PAGES;
use crate::zone::put_back::CLOCKED_PAGES;
use crate::zone::{Cpu, Zone};

/// How long a freed block counts as hot, ns: it lies in the cache of its CPU, where a
/// clear in place costs less than to search for a zero block and fetch its lines.
pub(crate) const HOT_NS: u64 = 1_000_000;

/// A block for a request that its CPU's lists have nothing zero for.
enum Found {
    /// All of its pages are resident and zero.
    Zero(PageId),
    Any(PageId),
}

impl<B: Backing> Zone<B> {
    /// `ZERO`: a zeroed block of `pages` pages at a multiple of `align`, cleared inline
    /// only where it is not zero already. `None` when the zone has no such block free.
    #[inline]
    pub fn zero(&self, pages: u32, align: Order) -> Option<Block<Zero>> {
        self.zero_for(pages, align, Use::Unknown)
    }

    /// As [`zero`](Zone::zero), told what its owner will do with the block first.
    #[inline]
    pub fn zero_for(&self, pages: u32, align: Order, first_use: Use) -> Option<Block<Zero>> {
        Some(Block::new(self.zero_to(pages, pages, align, first_use)?, pages))
    }

    /// As [`zero_for`](Zone::zero_for), where only the first `front` pages need be zero: what
    /// was added to round a request up is cleared for nobody.
    #[inline]
    pub fn zero_front(
        &self,
        front: u32,
        pages: u32,
        align: Order,
        first_use: Use,
    ) -> Option<ZeroFront> {
        debug_assert!((1..=pages).contains(&front));
        let first = self.zero_to(front, pages, align, first_use)?;
        Some(ZeroFront::new(first, pages, front))
    }

    /// A block of which `front` pages are zero.
    #[inline]
    fn zero_to(&self, front: u32, pages: u32, align: Order, first_use: Use) -> Option<PageId> {
        let cpu = self.cpu();
        cpu.counters.bump(Counter::ZeroRequests);
        if let Some(first) = self.quick_zero(cpu, pages, align) {
            cpu.demand.note(pages);
            self.hand_out_zero(cpu, first, front, pages);
            return Some(first);
        }
        match self.slow_zero(cpu, pages, align, first_use)? {
            Found::Zero(first) => {
                self.hand_out_zero(cpu, first, front, pages);
                Some(first)
            }
            Found::Any(first) => {
                self.make_zero(cpu, first, front, pages);
                Some(first)
            }
        }
    }

    /// `ONLY_ZERO`: a resident zero block at once, or nothing. Never clears, never
    /// blocks, never asks the kernel for memory.
    pub fn only_zero(&self, pages: u32, align: Order) -> Option<Block<Zero>> {
        let cpu = self.cpu();
        cpu.counters.bump(Counter::OnlyZeroRequests);
        cpu.demand.note(pages);
        let first = self
            .quick_zero(cpu, pages, align)
            .or_else(|| self.own_pool().search_zero(pages, align))
            .filter(|&first| self.give_up_if_untrusted(first, pages))?;
        self.hand_out_zero(cpu, first, pages, pages);
        Some(Block::new(first, pages))
    }

    /// Plain: a block as it is. Prefers dirty and hot; takes zero last of what is resident.
    #[inline]
    pub fn plain(&self, pages: u32, align: Order) -> Option<Block<Dirty>> {
        let cpu = self.cpu();
        cpu.counters.bump(Counter::PlainRequests);
        let counted = |first| {
            cpu.counters.add(Counter::PlainBytes, u64::from(pages) * PAGE as u64);
            Block::new(first, pages)
        };
        if let Some(class) = Class::of(pages) {
            let lists = &cpu.lists[class.index()];
            let dirty = |e: Entry| e.held == Held::Mixed && e.first.is_aligned(align);
            if let Some(entry) = lists.hot_cold.take_hottest(lists.newest(), dirty) {
                return Some(counted(entry.first));
            }
        }
        self.hungry(pages);
        self.slow_plain(cpu, pages, align).map(counted)
    }

    /// Gives a block back. What it holds counts as unknown, whatever its type.
    #[inline]
    pub fn free<C: Content>(&self, block: Block<C>) {
        let (first, pages) = (block.first(), block.pages());
        let cpu = self.cpu();
        if pages >= TIMED_PAGES {
            self.reach.freed(first, pages, || self.pool.clock.now_ns());
        }
        let mut tally = self.settle(cpu, first, pages);
        let mut held = Held::Mixed;
        if self.config.on_free == OnFree::Clear {
            tally = self.clear_freed(cpu, first, pages, tally);
            held = if tally.zero == pages { Held::Zero } else { Held::Mixed };
        }
        cpu.counters.bump(Counter::Frees);
        cpu.counters.add(Counter::FreeBytes, block.bytes() as u64);
        self.put_back(cpu, first, pages, held, tally);
        self.nudge(pages);
    }

    /// Gives a block back that its owner knows to be zero still: never written, or
    /// cleared again. The proof is the owner's word; debug builds check it, and what is
    /// handed out later is sampled like everything else.
    pub fn free_zeroed(&self, block: Block<Zero>) {
        let (first, pages) = (block.first(), block.pages());
        if cfg!(debug_assertions) {
            assert!(self.pool.memory.is_zero(first, pages), "free_zeroed: the block is not zero");
        }
        // The child of a fork under way may see this page as it was before its owner
        // cleared it, and this list as it is after: then it must not be called zero.
        if self.pool.fork_is_under_way() {
            return self.free(block);
        }
        let cpu = self.cpu();
        cpu.counters.bump(Counter::FreesZeroed);
        cpu.counters.add(Counter::FreeBytes, block.bytes() as u64);
        cpu.demand.note_return(pages);
        self.pool.replace_foreign(first, pages);
        self.pool.states.each_run(first, pages, PageState::Absent, |run, n| {
            self.pool.each_residency(run, n, |run, n, resident| {
                if resident == Residency::Resident {
                    self.pool.states.set(run, n, PageState::Zero);
                }
            });
        });
        self.pool.states.each_run(first, pages, PageState::Dirty, |run, n| {
            self.pool.states.set(run, n, PageState::Zero); // the owner cleared what he was given
        });
        let tally = self.pool.states.tally(first, pages);
        let held = if tally.zero == pages { Held::Zero } else { Held::Mixed };
        self.put_back(cpu, first, pages, held, tally);
        self.nudge(pages);
    }

    /// Takes a zero block from this CPU's lists.
    #[inline]
    fn quick_zero(&self, cpu: &Cpu, pages: u32, align: Order) -> Option<PageId> {
        let lists = &cpu.lists[Class::of(pages)?.index()];
        let fits = |e: Entry| e.held == Held::Zero && e.first.is_aligned(align);
        let entry =
            lists.zero.take(fits).or_else(|| lists.hot_cold.take_hottest(lists.newest(), fits))?;
        Some(entry.first)
    }

    /// Nothing zero on this CPU's lists: what is hot there, cleared in place, if it is small
    /// enough for that to beat what is zero and cold in the buddy; then that, then what was in
    /// hand and is not hot, and at last whatever costs least.
    #[cold]
    fn slow_zero(&self, cpu: &Cpu, pages: u32, align: Order, first_use: Use) -> Option<Found> {
        let now = self.tick_for(pages);
        if let Some(class) = Class::of(pages) {
            let lists = &cpu.lists[class.index()];
            let fits = |e: Entry| e.first.is_aligned(align);
            let hot = |e: Entry| fits(e) && u32::from(e.age(now)) <= ticks(HOT_NS);
            let found = if self.choice().hot_wins(pages, first_use) {
                lists.hot_cold.take_hottest(lists.newest(), hot)
            } else {
                None
            };
            if let Some(entry) = found {
                self.note_unless_fresh(cpu, pages, u32::from(entry.age(now)));
                return Some(Found::Any(entry.first));
            }
            if let Some(first) = self.own_pool().search_zero(pages, align) {
                cpu.demand.note(pages);
                return Some(Found::Zero(first));
            }
            if let Some(entry) = lists.hot_cold.take_hottest(lists.newest(), fits) {
                self.note_unless_fresh(cpu, pages, u32::from(entry.age(now)));
                return Some(Found::Any(entry.first));
            }
        } else if let Some(first) = self.take_latest(cpu, pages, align, first_use, now) {
            return Some(Found::Any(first));
        } else if let Some(first) = self.own_pool().search_zero(pages, align) {
            // Before the lists are gathered: to walk them takes as long as the rest of a hit.
            cpu.demand.note(pages);
            return Some(Found::Zero(first));
        }
        self.gather(cpu, pages);
        // What the lists hold may be all that splits a resident block, and to empty them
        // costs less than to fault a page in.
        let found = self
            .own_pool()
            .assemble_zero(pages, align)
            .or_else(|| self.own_pool().search_clearable(pages, align))
            .or_else(|| self.steal(cpu, pages, align))
            .or_else(|| {
                let clearable = || self.own_pool().search_clearable(pages, align);
                let assembled = || self.own_pool().assemble_for_zero(pages, align);
                let any = || assembled().or_else(|| self.own_pool().search_for_zero(pages, align));
                self.search_drained(pages, clearable, any)
            });
        match found {
            Some(first) => {
                let at = self.pool.freed_at[first.huge()].load(Relaxed);
                self.note_unless_fresh(cpu, pages, if at == 0 { u32::MAX } else { age(now, at) });
            }
            None => cpu.counters.bump(Counter::Refused),
        }
        found.map(Found::Any)
    }

    /// Counts a request that was not served zero, unless its block was freed so lately that
    /// nobody could have cleared it.
    fn note_unless_fresh(&self, cpu: &Cpu, pages: u32, age: u32) {
        let fresh = if pages < CLOCKED_PAGES { HOT_NS } else { REST_NS };
        if age > ticks(fresh) {
            cpu.demand.note(pages);
        }
    }

    /// The tick for a block of this size: of small ones as scrubd last turned it, which may
    /// be a nap ago; for large ones the time is asked.
    #[inline]
    pub(crate) fn tick_for(&self, pages: u32) -> u32 {
        if pages >= CLOCKED_PAGES { self.pool.clock.turn().1 } else { self.pool.clock.tick() }
    }

    /// No dirty block on this CPU's hot-cold list: what is resident in the buddy, then
    /// zero from the lists, then absent.
    #[cold]
    fn slow_plain(&self, cpu: &Cpu, pages: u32, align: Order) -> Option<PageId> {
        self.gather(cpu, pages);
        let mut found = self.own_pool().search_resident(pages, align);
        if let (None, Some(class)) = (found, Class::of(pages)) {
            let lists = &cpu.lists[class.index()];
            let fits = |e: Entry| e.first.is_aligned(align);
            found = lists
                .hot_cold
                .take_hottest(lists.newest(), fits)
                .or_else(|| lists.zero.take(fits))
                .map(|entry| entry.first);
        }
        let found = found.or_else(|| self.steal(cpu, pages, align)).or_else(|| {
            let resident = || self.own_pool().search_resident(pages, align);
            let assembled = || self.own_pool().assemble_plain(pages, align);
            let any = || assembled().or_else(|| self.own_pool().search_any(pages, align));
            self.search_drained(pages, resident, any)
        });
        let Some(first) = found else {
            cpu.counters.bump(Counter::Refused);
            return None;
        };
        let tally = self.pool.states.tally(first, pages);
        if tally.zero > 0 {
            cpu.counters.bump(Counter::Wastes);
            cpu.counters.add(Counter::WasteBytes, tally.zero as u64 * PAGE as u64);
        }
        if tally.absent > 0 {
            self.pool.make_way(first, pages, tally.absent);
        }
        Some(first)
    }

    /// A block of this very size off the lists of another CPU, its coldest: what one thread
    /// allocates and another frees comes back so, for the price of a cache line.
    #[cold]
    fn steal(&self, cpu: &Cpu, pages: u32, align: Order) -> Option<PageId> {
        let class = Class::of(pages).filter(|_| self.has(Mechanism::Steal))?;
        let fits = |e: Entry| e.first.is_aligned(align);
        let others = self.cpus.iter().filter(|other| !std::ptr::eq(*other, cpu));
        let mut lists = others.map(|other| &other.lists[class.index()]);
        let found = lists.find_map(|lists| {
            let cold = lists.hot_cold.take_coldest(lists.newest(), fits);
            cold.or_else(|| lists.zero.take(fits))
        });
        Some(found?.first)
    }

    /// A block whose pages are all resident and zero, if the sample agrees; else its front is
    /// cleared.
    #[inline]
    fn hand_out_zero(&self, cpu: &Cpu, first: PageId, front: u32, pages: u32) {
        debug_assert!(self.pool.states.all(first, pages, PageState::Zero), "a hit is all zero");
        if !self.trust.holds(self, cpu, first, pages) {
            return self.make_zero(cpu, first, front, pages);
        }
        cpu.counters.bump(Counter::Hits);
        cpu.counters.add(Counter::HitBytes, front as u64 * PAGE as u64);
        probes::hit(first, front);
    }

    /// `only_zero` must not clear: once trust is lost it serves nothing.
    fn give_up_if_untrusted(&self, first: PageId, pages: u32) -> bool {
        let trusted = self.trust.is_whole();
        if !trusted {
            let tally = self.pool.states.tally(first, pages);
            self.put_to_pool(first, pages, tally);
        }
        trusted
    }
}
