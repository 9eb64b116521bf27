//! The zone: requests in, typed blocks out.
//!
//! Memory flows through it in the order of its fields: backing, buddy with page states,
//! quicklists, requests. Nothing here waits. The fast path is a swap on a slot of this
//! CPU's quicklist; beyond it every step is an atomic operation on a word that names what
//! it takes, so a thread stopped anywhere holds back only the block in its hands.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicU64};

use prezero_sys::memory::Errno;
use prezero_sys::thread;

use crate::backing::{Backing, Memory};
use crate::buddy::Buddy;
use crate::choice::Choice;
use crate::claim::Claim;
use crate::clear::{Engines, Use};
use crate::clock::{Clock, REST_NS, age, ticks};
use crate::config::{Config, EngineChoice};
use crate::daemon::Daemon;
use crate::demand::Demand;
use crate::hand::{Grip, HandSize};
use crate::page::{Block, Content, Dirty, HUGE, HUGE_PAGES, MAX_ORDER, Order, PAGE, PageId, Zero};
use crate::quicklist::{self, CLASSES, Class, Entry, GRANULE, Held, Lists};
use crate::settle::Residency;
use crate::state::{PageState, StateMap};
use crate::stats::{Counter, Counters};
use crate::stock::Stock;
use crate::sync::{AtomicU32, Meta, Ordering::Acquire, Ordering::Relaxed};
use crate::trust::Trust;

/// What one CPU has of its own. All-zero bytes are a valid empty value.
#[repr(C, align(64))]
pub(crate) struct Cpu {
    pub(crate) counters: Counters,
    pub(crate) demand: Demand,
    /// Hits until the next sample (see `trust.rs`).
    pub(crate) countdown: AtomicU32,
    pub(crate) grip: Grip,
    pub(crate) lists: [Lists; CLASSES],
}

// SAFETY: counters, demand and lists are atomics for which all-zero bytes are the empty
// value, and none of them has a destructor.
#[allow(unsafe_code)]
unsafe impl prezero_sys::memory::Plain for Cpu {}

impl Cpu {
    /// Whether anything was ever asked for or freed here. For the looks of scrubd: a machine
    /// may have hundreds of CPUs on which the program never ran.
    pub(crate) fn was_used(&self) -> bool {
        [Counter::ZeroRequests, Counter::PlainRequests, Counter::Frees]
            .into_iter()
            .any(|counter| self.counters.get(counter) != 0)
            || self.grip.frees() != 0
    }
}

/// How long a freed block counts as hot, ns: it lies in the cache of its CPU, where a
/// clear in place costs less than to search for a zero block and fetch its lines.
const HOT_NS: u64 = 1_000_000;

/// From this many pages on (512 KiB) the time is asked when a block comes and goes: 25 ns,
/// against 8 us to clear it. The tick that scrubd turns is up to a nap old, and a block that
/// looks older than it is would be taken for one that nobody will ask for soon.
const CLOCKED_PAGES: u32 = 128;

/// From this many pages on (1 MiB) a clear on the critical path is timed, so that what a
/// hit saves is measured: two looks at the clock, 50 ns, against 20 us at least.
const TIMED_PAGES: u32 = 256;

/// Why a zone could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ZoneError {
    /// The backing is smaller than a huge block, or not a whole number of them.
    #[error("the backing has {0} bytes: a zone needs a whole number of 2 MiB blocks, one at least")]
    Size(usize),
    /// No memory for page states, lists and counters.
    #[error("no memory for the zone's own records: {0}")]
    Records(Errno),
}

/// One contiguous range of pages with one backing. See the crate's first page.
pub struct Zone<B> {
    pub(crate) memory: Memory<B>,
    pub(crate) states: StateMap,
    pub(crate) buddy: Buddy,
    pub(crate) stock: Stock,
    pub(crate) cpus: Meta<Cpu>,
    pub(crate) claim: Claim,
    /// Tick of the last free in each huge block; 0: none of its free pages is resident.
    pub(crate) freed_at: Meta<AtomicU32>,
    /// The CPU that last freed something into the buddy: a hint where it will be used.
    pub(crate) freed_on: AtomicU32,
    /// The CPU, plus one, that last found no block of a class on its lists; 0: none did.
    pub(crate) hungry: [AtomicU32; CLASSES],
    pub(crate) clock: Clock,
    pub(crate) trust: Trust,
    pub(crate) daemon: Daemon,
    pub(crate) config: Config,
    /// What the CPU's features promise, until scrubd has measured.
    guess: Choice,
    /// What scrubd measured; a pointer and no lock, which a fork might catch half taken.
    pub(crate) measured: AtomicPtr<Choice>,
    /// Forks so far, times [`FORK`], plus how many are under way.
    pub(crate) forks: AtomicU32,
    /// Whether any page was ever marked foreign.
    pub(crate) foreign: AtomicU32,
    /// The most pages that were out of the buddy when memory was last needed.
    pub(crate) peak: AtomicU32,
    /// Pages handed out absent, since the zone began.
    pub(crate) faulted: AtomicU64,
    /// The huge blocks in small pages, one bit each (see [`Backing::small`]).
    pub(crate) in_small: AtomicU64,
}

impl<B> std::fmt::Debug for Zone<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Zone").field("pages", &self.memory.pages).finish_non_exhaustive()
    }
}

impl<B: Backing> Zone<B> {
    /// A zone over all of `backing`, which has never been touched.
    ///
    /// # Errors
    /// [`ZoneError`], when the backing has no whole huge block or records find no memory.
    pub fn new(backing: B, config: &Config) -> Result<Zone<B>, ZoneError> {
        Zone::with_clock(backing, config, thread::monotonic_ns)
    }

    /// A zone that asks `now_ns` for the time, in nanoseconds from any fixed moment.
    ///
    /// # Errors
    /// As for [`Zone::new`].
    pub fn with_clock(
        backing: B,
        config: &Config,
        now_ns: fn() -> u64,
    ) -> Result<Zone<B>, ZoneError> {
        let len = backing.len();
        if len < HUGE || !len.is_multiple_of(HUGE) || len > crate::config::MAX_LIMIT {
            return Err(ZoneError::Size(len));
        }
        let pages = (len / PAGE) as u32;
        let engine = match config.engine {
            EngineChoice::Named(name) => crate::clear::by_name(name),
            EngineChoice::Auto => None,
        };
        let in_small =
            u64::MAX.checked_shl((backing.small() / HUGE) as u32).map_or(u64::MAX, |m| !m);
        let zone = Zone {
            memory: Memory::new(backing),
            states: StateMap::new(pages).map_err(ZoneError::Records)?,
            buddy: Buddy::new(pages).map_err(ZoneError::Records)?,
            stock: Stock::new(),
            cpus: Meta::new(thread::cpu_count()).map_err(ZoneError::Records)?,
            claim: Claim::new(),
            freed_at: Meta::new((pages / HUGE_PAGES) as usize).map_err(ZoneError::Records)?,
            freed_on: AtomicU32::new(0),
            hungry: [const { AtomicU32::new(0) }; CLASSES],
            clock: Clock::new(now_ns),
            trust: Trust::new(config.verify),
            daemon: Daemon::new(),
            config: config.clone(),
            guess: Choice::unmeasured(engine.map_or_else(Engines::uncalibrated, Engines::only)),
            measured: AtomicPtr::new(std::ptr::null_mut()),
            forks: AtomicU32::new(0),
            foreign: AtomicU32::new(0),
            peak: AtomicU32::new(0),
            faulted: AtomicU64::new(0),
            in_small: AtomicU64::new(in_small),
        };
        zone.buddy.put_run(PageId(0), pages);
        Ok(zone)
    }

    /// The page count to ask for when `bytes` are needed: rounded up to a size that the
    /// quicklists keep. `None` for nothing and for more than the largest order holds.
    #[inline]
    pub fn pages_for(bytes: usize) -> Option<u32> {
        if bytes == 0 || bytes > MAX_ORDER.bytes() {
            return None;
        }
        Some(quicklist::round_up(bytes.div_ceil(PAGE) as u32))
    }

    /// `ZERO`: a zeroed block of `pages` pages at a multiple of `align`, cleared inline
    /// only where it is not zero already. `None` when the zone has no such block free.
    #[inline]
    pub fn zero(&self, pages: u32, align: Order) -> Option<Block<Zero>> {
        self.zero_for(pages, align, Use::Unknown)
    }

    /// As [`zero`](Zone::zero), told what its owner will do with the block first.
    #[inline]
    pub fn zero_for(&self, pages: u32, align: Order, first_use: Use) -> Option<Block<Zero>> {
        let cpu = self.cpu();
        cpu.counters.bump(Counter::ZeroRequests);
        if let Some(first) = self.quick_zero(cpu, pages, align) {
            cpu.demand.note(pages);
            return Some(self.hand_out_zero(cpu, first, pages));
        }
        let hot = if self.choice().hot_wins(pages, first_use) { ticks(HOT_NS) } else { 0 };
        // What is in hand lies at a granule, of whatever alignment.
        if align.pages() <= GRANULE
            && let Some((first, age)) = self.take_hot(pages, hot)
        {
            self.note_unless_fresh(cpu, pages, age);
            return Some(self.clear_hot(cpu, first, pages));
        }
        let first = self.slow_zero(cpu, pages, align, first_use)?;
        Some(self.make_zero(cpu, first, pages))
    }

    /// `ONLY_ZERO`: a resident zero block at once, or nothing. Never clears, never
    /// blocks, never asks the kernel for memory.
    pub fn only_zero(&self, pages: u32, align: Order) -> Option<Block<Zero>> {
        let cpu = self.cpu();
        cpu.counters.bump(Counter::OnlyZeroRequests);
        cpu.demand.note(pages);
        let first = self
            .quick_zero(cpu, pages, align)
            .or_else(|| self.search_zero(pages, align))
            .filter(|&first| self.give_up_if_untrusted(first, pages))?;
        Some(self.hand_out_zero(cpu, first, pages))
    }

    /// Plain: a block as it is. Prefers dirty and hot; takes zero last of what is resident.
    #[inline]
    pub fn plain(&self, pages: u32, align: Order) -> Option<Block<Dirty>> {
        if pages.is_multiple_of(GRANULE)
            && align.pages() <= GRANULE
            && Class::of(pages).is_some()
            && let Some(size) = HandSize::holding(pages as usize * PAGE)
            && let Some(block) = self.take_in_hand(size)
        {
            return Some(block.into());
        }
        let cpu = self.cpu();
        cpu.counters.bump(Counter::PlainRequests);
        let counted = |first| {
            cpu.counters.add(Counter::PlainBytes, u64::from(pages) * PAGE as u64);
            Block::new(first, pages)
        };
        if let Some(class) = Class::of(pages) {
            let lists = &cpu.lists[class.index()];
            let dirty = |e: Entry| e.held == Held::Mixed && aligned(e.first, align);
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
        let tally = self.settle(cpu, first, pages);
        if !self.took_in_hand(first, pages) {
            cpu.counters.bump(Counter::Frees);
            cpu.counters.add(Counter::FreeBytes, block.bytes() as u64);
            self.put_back(cpu, first, pages, Held::Mixed, tally);
            self.daemon.nudge(self, pages);
        }
    }

    /// Gives a block back that its owner knows to be zero still: never written, or
    /// cleared again. The proof is the owner's word; debug builds check it, and what is
    /// handed out later is sampled like everything else.
    pub fn free_zeroed(&self, block: Block<Zero>) {
        let (first, pages) = (block.first(), block.pages());
        if cfg!(debug_assertions) {
            assert!(self.memory.is_zero(first, pages), "free_zeroed: the block is not zero");
        }
        // The child of a fork under way may see this page as it was before its owner
        // cleared it, and this list as it is after: then it must not be called zero.
        if self.fork_is_under_way() {
            return self.free(block);
        }
        let cpu = self.cpu();
        cpu.counters.bump(Counter::FreesZeroed);
        cpu.counters.add(Counter::FreeBytes, block.bytes() as u64);
        cpu.demand.note_return(pages);
        self.replace_foreign(first, pages);
        self.states.each_run(first, pages, PageState::Absent, |run, n| {
            self.each_residency(run, n, |run, n, resident| {
                if resident == Residency::Resident {
                    self.states.set(run, n, PageState::Zero);
                }
            });
        });
        self.states.each_run(first, pages, PageState::Dirty, |run, n| {
            self.states.set(run, n, PageState::Zero); // the owner cleared what he was given
        });
        let tally = self.states.tally(first, pages);
        let held = if tally.zero == pages { Held::Zero } else { Held::Mixed };
        self.put_back(cpu, first, pages, held, tally);
        self.daemon.nudge(self, pages);
    }

    /// Where a block lies.
    #[inline]
    pub fn address<C: Content>(&self, block: &Block<C>) -> NonNull<u8> {
        self.memory.address(block.first())
    }

    /// The page that `ptr` points into, if it points into the zone.
    #[inline]
    pub fn page_of(&self, ptr: *const u8) -> Option<PageId> {
        self.memory.offset_of(ptr).map(|offset| PageId((offset / PAGE) as u32))
    }

    /// Bytes at the beginning that are backed by small pages at first.
    pub fn small(&self) -> usize {
        self.memory.backing().small()
    }

    /// Pages in the zone.
    pub fn pages(&self) -> u32 {
        self.memory.pages
    }

    /// Rebuilds a block from what its owner remembered of it.
    ///
    /// # Safety
    /// A block of exactly these pages was handed out by this zone, has not been given
    /// back, and no other `Block` value stands for any of its pages.
    #[allow(unsafe_code)]
    #[inline]
    pub unsafe fn adopt(&self, first: PageId, pages: u32) -> Block<Dirty> {
        Block::new(first, pages)
    }

    /// As [`adopt`](Zone::adopt), for a block that is zero.
    ///
    /// # Safety
    /// As for `adopt`; and the block was handed out as zero and is zero now.
    #[allow(unsafe_code)]
    pub unsafe fn adopt_zero(&self, first: PageId, pages: u32) -> Block<Zero> {
        Block::new(first, pages)
    }

    /// The engines in use, and what each is for.
    #[allow(unsafe_code)]
    #[inline]
    pub(crate) fn choice(&self) -> &Choice {
        // SAFETY: null, or a choice that scrubd leaked for good before it stored this.
        unsafe { self.measured.load(Acquire).as_ref() }.unwrap_or(&self.guess)
    }

    /// What this CPU has of its own; a hint, the thread may be elsewhere by now.
    #[inline]
    pub(crate) fn cpu(&self) -> &Cpu {
        let cpus = &*self.cpus;
        let cpu = thread::current_cpu();
        &cpus[if cpu < cpus.len() { cpu } else { cpu % cpus.len() }]
    }

    /// Takes a zero block from this CPU's lists.
    #[inline]
    fn quick_zero(&self, cpu: &Cpu, pages: u32, align: Order) -> Option<PageId> {
        let lists = &cpu.lists[Class::of(pages)?.index()];
        let fits = |e: Entry| e.held == Held::Zero && aligned(e.first, align);
        let entry =
            lists.zero.take(fits).or_else(|| lists.hot_cold.take_hottest(lists.newest(), fits))?;
        Some(entry.first)
    }

    /// Nothing zero on this CPU's lists: what is hot there, cleared in place, if it is small
    /// enough for that to beat what is zero and cold in the buddy; then that, and at last
    /// whatever costs least.
    #[cold]
    fn slow_zero(&self, cpu: &Cpu, pages: u32, align: Order, first_use: Use) -> Option<PageId> {
        let now = self.tick_for(pages);
        if let Some(class) = Class::of(pages) {
            let lists = &cpu.lists[class.index()];
            let fits = |e: Entry| aligned(e.first, align);
            let hot = |e: Entry| fits(e) && u32::from(e.age(now)) <= ticks(HOT_NS);
            let found = if self.choice().hot_wins(pages, first_use) {
                lists.hot_cold.take_hottest(lists.newest(), hot)
            } else {
                None
            };
            if let Some(entry) = found {
                self.note_unless_fresh(cpu, pages, u32::from(entry.age(now)));
                return Some(entry.first);
            }
            if let Some(first) = self.search_zero(pages, align) {
                cpu.demand.note(pages);
                return Some(first);
            }
            if let Some(entry) = lists.hot_cold.take_hottest(lists.newest(), fits) {
                self.note_unless_fresh(cpu, pages, u32::from(entry.age(now)));
                return Some(entry.first);
            }
        }
        // What the lists hold may be all that splits a resident block, and to empty them
        // costs less than to fault a page in.
        let found = self
            .search_clearable(pages, align)
            .or_else(|| self.steal(cpu, pages, align))
            .or_else(|| self.drain_all().then(|| self.search_clearable(pages, align))?)
            .or_else(|| self.search_for_zero(pages, align));
        match found {
            Some(first) => {
                let at = self.freed_at[first.huge()].load(Relaxed);
                self.note_unless_fresh(cpu, pages, if at == 0 { u32::MAX } else { age(now, at) });
            }
            None => cpu.counters.bump(Counter::Refused),
        }
        found
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
        if pages >= CLOCKED_PAGES { self.clock.turn().1 } else { self.clock.tick() }
    }

    /// No dirty block on this CPU's hot-cold list: what is resident in the buddy, then
    /// zero from the lists, then absent.
    #[cold]
    fn slow_plain(&self, cpu: &Cpu, pages: u32, align: Order) -> Option<PageId> {
        let mut found = self.search_resident(pages, align);
        if let (None, Some(class)) = (found, Class::of(pages)) {
            let lists = &cpu.lists[class.index()];
            let fits = |e: Entry| aligned(e.first, align);
            found = lists
                .hot_cold
                .take_hottest(lists.newest(), fits)
                .or_else(|| lists.zero.take(fits))
                .map(|entry| entry.first);
        }
        let found = found
            .or_else(|| self.steal(cpu, pages, align))
            .or_else(|| self.drain_all().then(|| self.search_resident(pages, align))?)
            .or_else(|| self.search_any(pages, align));
        let Some(first) = found else {
            cpu.counters.bump(Counter::Refused);
            return None;
        };
        let tally = self.states.tally(first, pages);
        if tally.zero > 0 {
            cpu.counters.bump(Counter::Wastes);
            cpu.counters.add(Counter::WasteBytes, tally.zero as u64 * PAGE as u64);
        }
        if tally.absent > 0 {
            self.make_way(&cpu.counters, tally.absent);
        }
        Some(first)
    }

    /// A block of this very size off the lists of another CPU, its coldest: what one thread
    /// allocates and another frees comes back so, for the price of a cache line.
    #[cold]
    fn steal(&self, cpu: &Cpu, pages: u32, align: Order) -> Option<PageId> {
        let class = Class::of(pages)?;
        let fits = |e: Entry| aligned(e.first, align);
        let others = self.cpus.iter().filter(|other| !std::ptr::eq(*other, cpu));
        let mut lists = others.map(|other| &other.lists[class.index()]);
        let found = lists.find_map(|lists| {
            let cold = lists.hot_cold.take_coldest(lists.newest(), fits);
            cold.or_else(|| lists.zero.take(fits))
        });
        Some(found?.first)
    }

    /// A block whose pages are all resident and zero, if the sample agrees.
    #[inline]
    fn hand_out_zero(&self, cpu: &Cpu, first: PageId, pages: u32) -> Block<Zero> {
        debug_assert!(self.states.all(first, pages, PageState::Zero), "a hit is all zero");
        if !self.trust.holds(self, cpu, first, pages) {
            return self.make_zero(cpu, first, pages);
        }
        cpu.counters.bump(Counter::Hits);
        cpu.counters.add(Counter::HitBytes, pages as u64 * PAGE as u64);
        Block::new(first, pages)
    }

    /// Clears what is not zero of an owned block, and nothing else.
    #[cold]
    fn make_zero(&self, cpu: &Cpu, first: PageId, pages: u32) -> Block<Zero> {
        if !self.trust.holds(self, cpu, first, pages) {
            // Nothing that is marked zero is believed any more.
            self.states.each_run(first, pages, PageState::Zero, |run, n| {
                self.states.set(run, n, PageState::Dirty);
            });
        }
        let tally = self.states.tally(first, pages);
        debug_assert_eq!(tally.foreign, 0, "a free page is never foreign");
        let bytes = |pages: u32| pages as u64 * PAGE as u64;
        if tally.dirty > 0 {
            self.clear_inline(cpu, tally.dirty, |clear| {
                self.states.each_run(first, pages, PageState::Dirty, clear);
            });
        } else if tally.absent == 0 {
            cpu.counters.bump(Counter::Hits);
        }
        if tally.absent > 0 {
            cpu.counters.add(Counter::AbsentBytes, bytes(tally.absent));
            self.make_way(&cpu.counters, tally.absent);
        }
        cpu.counters.add(Counter::HitBytes, bytes(tally.zero));
        Block::new(first, pages)
    }

    /// A block out of the hand, which is dirty page by page, for a request for zero.
    fn clear_hot(&self, cpu: &Cpu, first: PageId, pages: u32) -> Block<Zero> {
        debug_assert!(self.states.all(first, pages, PageState::Dirty), "what is in hand is dirty");
        self.clear_inline(cpu, pages, |clear| clear(first, pages));
        Block::new(first, pages)
    }

    /// Clears `dirty` pages, the runs that `each` yields, while their owner waits.
    #[inline]
    fn clear_inline(&self, cpu: &Cpu, dirty: u32, each: impl FnOnce(&mut dyn FnMut(PageId, u32))) {
        let bytes = u64::from(dirty) * PAGE as u64;
        let engine = self.choice().inline(bytes as usize);
        let timed = dirty >= TIMED_PAGES;
        let began = if timed { self.clock.now_ns() } else { 0 };
        each(&mut |run, n| {
            self.memory.clear(engine, run, n);
            self.states.set(run, n, PageState::Zero);
        });
        if timed {
            let took = self.clock.now_ns().saturating_sub(began);
            cpu.counters.add(Counter::TimedClearBytes, bytes);
            cpu.counters.add(Counter::TimedClearNs, took);
        }
        cpu.counters.bump(Counter::Misses);
        cpu.counters.add(Counter::MissBytes, bytes);
    }

    /// `only_zero` must not clear: once trust is lost it serves nothing.
    fn give_up_if_untrusted(&self, first: PageId, pages: u32) -> bool {
        let trusted = self.trust.is_whole();
        if !trusted {
            let tally = self.states.tally(first, pages);
            self.put_to_buddy(first, pages, tally);
        }
        trusted
    }
}

#[inline]
fn aligned(first: PageId, align: Order) -> bool {
    first.0 & (align.pages() - 1) == 0
}
