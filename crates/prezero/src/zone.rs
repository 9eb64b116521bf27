//! The zone: requests in, typed blocks out.
//!
//! Memory flows through it in the order of its fields: backing, buddy with page states,
//! quicklists, requests. Nothing here waits. The fast path is a swap on a slot of this
//! CPU's quicklist; beyond it every step is an atomic operation on a word that names what
//! it takes, so a thread stopped anywhere holds back only the block in its hands.

use std::ptr::NonNull;
use std::sync::atomic::AtomicPtr;

use prezero_sys::memory::Errno;
use prezero_sys::thread;

use crate::backing::{Backing, Memory};
use crate::buddy::Buddy;
use crate::choice::Choice;
use crate::claim::Claim;
use crate::clear::Engines;
use crate::clock::Clock;
use crate::config::{Config, EngineChoice};
use crate::daemon::Daemon;
use crate::governor::Demand;
use crate::page::{Block, Content, Dirty, HUGE, HUGE_PAGES, MAX_ORDER, Order, PAGE, PageId, Zero};
use crate::quicklist::{self, BATCH, CLASSES, Class, Entry, Held, Lists};
use crate::state::{PageState, StateMap, Tally};
use crate::stats::{Counter, Counters};
use crate::stock::Stock;
use crate::sync::{
    AtomicU32, Meta,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use crate::trust::Trust;

/// What one CPU has of its own. All-zero bytes are a valid empty value.
#[repr(C, align(64))]
pub(crate) struct Cpu {
    pub(crate) counters: Counters,
    pub(crate) demand: Demand,
    /// Hits until the next sample (see `trust.rs`).
    pub(crate) countdown: AtomicU32,
    pub(crate) lists: [Lists; CLASSES],
}

// SAFETY: counters, demand and lists are atomics for which all-zero bytes are the empty
// value, and none of them has a destructor.
#[allow(unsafe_code)]
unsafe impl prezero_sys::memory::Plain for Cpu {}

/// One fork in the count of forks; below it count those under way.
const FORK: u32 = 1 << 8;

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
    pub(crate) clock: Clock,
    pub(crate) trust: Trust,
    pub(crate) daemon: Daemon,
    pub(crate) config: Config,
    /// What the CPU's features promise, until scrubd has measured.
    guess: Choice,
    /// What scrubd measured; a pointer and no lock, which a fork might catch half taken.
    pub(crate) measured: AtomicPtr<Choice>,
    /// Forks so far, times [`FORK`], plus how many are under way.
    forks: AtomicU32,
    /// Whether any page was ever marked foreign.
    foreign: AtomicU32,
}

impl<B> std::fmt::Debug for Zone<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Zone").field("pages", &self.memory.pages).finish_non_exhaustive()
    }
}

/// What the kernel says of a run of pages.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Residency {
    Resident,
    NotResident,
    /// It would not say, or the answer is too scattered to act on.
    Unknown,
}

/// Of 1024 pages, more runs than this are not told apart: each costs a system call.
const MOST_RUNS: usize = 64;

/// Whether a block could be made longer where it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Grown {
    /// It is longer now.
    Yes,
    /// Its neighbours are not free: it is as it was.
    No,
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
        let zone = Zone {
            memory: Memory::new(backing),
            states: StateMap::new(pages).map_err(ZoneError::Records)?,
            buddy: Buddy::new(pages).map_err(ZoneError::Records)?,
            stock: Stock::new(),
            cpus: Meta::new(thread::cpu_count()).map_err(ZoneError::Records)?,
            claim: Claim::new(),
            freed_at: Meta::new((pages / HUGE_PAGES) as usize).map_err(ZoneError::Records)?,
            clock: Clock::new(now_ns),
            trust: Trust::new(config.verify),
            daemon: Daemon::new(),
            config: config.clone(),
            guess: Choice::unmeasured(engine.map_or_else(Engines::uncalibrated, Engines::only)),
            measured: AtomicPtr::new(std::ptr::null_mut()),
            forks: AtomicU32::new(0),
            foreign: AtomicU32::new(0),
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
        let cpu = self.cpu();
        cpu.counters.bump(Counter::ZeroRequests);
        cpu.demand.note(pages);
        if let Some(first) = self.quick_zero(cpu, pages, align) {
            return Some(self.hand_out_zero(cpu, first, pages));
        }
        let first = self.slow_zero(cpu, pages, align)?;
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
        let cpu = self.cpu();
        cpu.counters.bump(Counter::PlainRequests);
        if let Some(class) = Class::of(pages) {
            let lists = &cpu.lists[class.index()];
            let dirty = |e: Entry| e.held == Held::Mixed && aligned(e.first, align);
            if let Some(entry) = lists.hot_cold.take_hottest(lists.newest(), dirty) {
                return Some(Block::new(entry.first, pages));
            }
        }
        let first = self.slow_plain(cpu, pages, align)?;
        Some(Block::new(first, pages))
    }

    /// Gives a block back. What it holds counts as unknown, whatever its type.
    #[inline]
    pub fn free<C: Content>(&self, block: Block<C>) {
        let (first, pages) = (block.first(), block.pages());
        let cpu = self.cpu();
        cpu.counters.bump(Counter::Frees);
        cpu.counters.add(Counter::FreeBytes, block.bytes() as u64);
        let tally = self.settle(first, pages);
        self.put_back(cpu, first, pages, Held::Mixed, tally);
        self.daemon.nudge(self, pages);
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
        if !self.fork_mark().is_multiple_of(FORK) {
            return self.free(block);
        }
        let cpu = self.cpu();
        cpu.counters.bump(Counter::FreesZeroed);
        cpu.counters.add(Counter::FreeBytes, block.bytes() as u64);
        self.replace_foreign(first, pages);
        self.states.each_run(first, pages, PageState::Absent, |run, n| {
            self.each_residency(run, n, |run, n, resident| {
                if resident == Residency::Resident {
                    self.states.set(run, n, PageState::Zero);
                }
            });
        });
        let tally = self.states.tally(first, pages);
        debug_assert_eq!(tally.dirty, 0, "a Block<Zero> has no dirty page");
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

    /// Shortens a block where it is and gives its tail back. A block that is not longer
    /// than `pages`, or `pages` of 0, leaves it as it is.
    pub fn tail_to(&self, block: Block<Dirty>, pages: u32) -> Block<Dirty> {
        if pages == 0 || pages >= block.pages() {
            return block;
        }
        let (first, tail) = (block.first().plus(pages), block.pages() - pages);
        let tally = self.settle(first, tail);
        self.put_to_buddy(first, tail, tally);
        self.daemon.nudge(self, tail);
        Block::new(block.first(), pages)
    }

    /// Makes a block `pages` long where it is, if the pages behind it are free.
    pub fn try_grow(&self, block: &mut Block<Dirty>, pages: u32) -> Grown {
        let (first, old) = (block.first(), block.pages());
        let end = first.0.checked_add(pages);
        if pages <= old || end.is_none_or(|end| end > self.memory.pages) {
            return Grown::No;
        }
        let (behind, more) = (first.plus(old), pages - old);
        if !self.buddy.take_run(behind, more) {
            return Grown::No;
        }
        self.stock.sub(self.states.tally(behind, more));
        *block = Block::new(first, pages);
        Grown::Yes
    }

    /// The owner changed the mapping of these pages of his block by a system call:
    /// when the block comes back they are replaced by fresh memory.
    pub fn mark_foreign(&self, first: PageId, pages: u32) {
        self.foreign.store(1, Relaxed);
        self.states.set(first, pages, PageState::Foreign);
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

    /// Nothing zero on this CPU's lists: zero from the buddy, else hot from the lists,
    /// else whatever costs least.
    #[cold]
    fn slow_zero(&self, cpu: &Cpu, pages: u32, align: Order) -> Option<PageId> {
        if let Some(class) = Class::of(pages) {
            if let Some(first) = self.search_zero(pages, align) {
                return Some(first);
            }
            let lists = &cpu.lists[class.index()];
            let fits = |e: Entry| aligned(e.first, align);
            if let Some(entry) = lists.hot_cold.take_hottest(lists.newest(), fits) {
                return Some(entry.first);
            }
        }
        let found = self.search_for_zero(pages, align);
        if found.is_none() {
            cpu.counters.bump(Counter::Refused);
        }
        found
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
        let Some(first) = found.or_else(|| self.search_any(pages, align)) else {
            cpu.counters.bump(Counter::Refused);
            return None;
        };
        let zero = self.states.tally(first, pages).zero;
        if zero > 0 {
            cpu.counters.bump(Counter::Wastes);
            cpu.counters.add(Counter::WasteBytes, zero as u64 * PAGE as u64);
        }
        Some(first)
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
            let engine = self.choice().inline(bytes(tally.dirty) as usize);
            self.states.each_run(first, pages, PageState::Dirty, |run, n| {
                self.memory.clear(engine, run, n);
                self.states.set(run, n, PageState::Zero);
            });
            cpu.counters.bump(Counter::Misses);
            cpu.counters.add(Counter::MissBytes, bytes(tally.dirty));
        } else if tally.absent == 0 {
            cpu.counters.bump(Counter::Hits);
        }
        if tally.absent > 0 {
            cpu.counters.add(Counter::AbsentBytes, bytes(tally.absent));
        }
        cpu.counters.add(Counter::HitBytes, bytes(tally.zero));
        Block::new(first, pages)
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

    /// Writes down what the pages of a block hold that comes back from its owner: dirty
    /// where it is resident, absent where he never touched it.
    #[inline]
    fn settle(&self, first: PageId, pages: u32) -> Tally {
        let dirty = Tally { dirty: pages, ..Tally::default() };
        if self.states.all(first, pages, PageState::Dirty) {
            return dirty;
        }
        if self.states.all(first, pages, PageState::Zero) {
            self.states.set(first, pages, PageState::Dirty);
            return dirty;
        }
        self.settle_slowly(first, pages)
    }

    #[cold]
    fn settle_slowly(&self, first: PageId, pages: u32) -> Tally {
        self.replace_foreign(first, pages);
        self.states.each_run(first, pages, PageState::Zero, |run, n| {
            self.states.set(run, n, PageState::Dirty);
        });
        self.states.each_run(first, pages, PageState::Absent, |run, n| self.settle_absent(run, n));
        self.states.tally(first, pages)
    }

    /// Of pages that were absent when they were handed out, which were touched? What is
    /// not resident was never touched, or was written and swapped out: it is released,
    /// which makes it absent either way.
    fn settle_absent(&self, first: PageId, pages: u32) {
        self.each_residency(first, pages, |run, n, residency| {
            let absent = residency == Residency::NotResident && self.memory.release(run, n).is_ok();
            if !absent {
                self.states.set(run, n, PageState::Dirty);
            }
        });
    }

    /// Calls `each` for the runs of owned pages that are resident and those that are not.
    fn each_residency(
        &self,
        first: PageId,
        pages: u32,
        mut each: impl FnMut(PageId, u32, Residency),
    ) {
        let mut map = [0u8; 1024];
        for at in (0..pages).step_by(map.len()) {
            let n = (pages - at).min(map.len() as u32);
            let page = first.plus(at);
            let map = &mut map[..n as usize];
            if self.memory.backing().residency(page.index() * PAGE, map).is_err() {
                each(page, n, Residency::Unknown);
                continue;
            }
            let runs = || map.chunk_by(|a, b| a & 1 == b & 1);
            if runs().nth(MOST_RUNS).is_some() {
                each(page, n, Residency::Unknown);
                continue;
            }
            let mut start = 0;
            for run in runs() {
                let resident = run[0] & 1 != 0;
                let residency = if resident { Residency::Resident } else { Residency::NotResident };
                each(page.plus(start), run.len() as u32, residency);
                start += run.len() as u32;
            }
        }
    }

    /// Puts fresh memory where the owner changed the mapping. What cannot be replaced
    /// stays marked, and is never used again.
    fn replace_foreign(&self, first: PageId, pages: u32) {
        if self.foreign.load(Relaxed) == 0 {
            return;
        }
        self.states.each_run(first, pages, PageState::Foreign, |run, n| {
            if self.memory.replace(run, n).is_ok() {
                self.states.set(run, n, PageState::Absent);
            } else {
                self.cpu().counters.bump(Counter::BackingErrors);
            }
        });
    }

    /// Puts a settled block where it will be found again: this CPU's lists, then the buddy.
    #[inline]
    pub(crate) fn put_back(&self, cpu: &Cpu, first: PageId, pages: u32, held: Held, tally: Tally) {
        let class = Class::of(pages).filter(|_| tally.absent == 0 && tally.foreign == 0);
        let Some(class) = class else { return self.put_to_buddy(first, pages, tally) };
        let lists = &cpu.lists[class.index()];
        let entry = lists.stamp(Entry::new(first, held, self.tick_of_free()));
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
            let tick = self.tick_of_free().max(1);
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
    fn tick_of_free(&self) -> u32 {
        if self.daemon.is_parked() { self.clock.turn().1 } else { self.clock.tick() }
    }

    /// What to hand to [`publish_zero`](Zone::publish_zero) for clearing that starts now.
    pub(crate) fn fork_mark(&self) -> u32 {
        self.forks.load(Acquire)
    }

    /// Marks as zero the dirty pages among `first..first+done`, which were cleared after
    /// `mark` was taken, and returns how many they were; none if a fork began since: its
    /// child may see this record and the pages as they were before.
    pub(crate) fn publish_zero(&self, first: PageId, done: u32, mark: u32) -> u32 {
        if !mark.is_multiple_of(FORK) || self.fork_mark() != mark {
            return 0;
        }
        let cleared = self.states.tally(first, done).dirty;
        self.states.each_run(first, done, PageState::Dirty, |run, n| {
            self.states.set(run, n, PageState::Zero);
        });
        cleared
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

    /// A fork is about to copy this zone. What is cleared from here on must not be
    /// called zero in the child: the copy of a page may be older than the copy of its
    /// record. Nothing stops, the publishers of zero look at this number.
    pub fn before_fork(&self) {
        self.forks.fetch_add(FORK + 1, AcqRel);
    }

    /// The fork is over, in the parent.
    pub fn after_fork_in_parent(&self) {
        self.forks.fetch_sub(1, AcqRel);
    }

    /// The fork is over, in the child: it has no scrubd, its own account, and the block
    /// that the parent's scrubd was clearing, whose content it knows nothing of.
    pub fn after_fork_in_child(&self) {
        self.forks.store(0, Release);
        for cpu in self.cpus.iter() {
            cpu.counters.reset();
        }
        self.daemon.after_fork_in_child();
        if let Some(claimed) = self.claim.inherit() {
            self.return_to_buddy(claimed.first, claimed.pages);
        }
    }
}

#[inline]
fn aligned(first: PageId, align: Order) -> bool {
    first.0 & (align.pages() - 1) == 0
}
