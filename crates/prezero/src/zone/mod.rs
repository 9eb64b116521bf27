//! The zone: what it is made of.
//!
//! Memory flows through it in the order of its fields: backing, buddy with page states,
//! quicklists; [requests](crate::zone::request) in, typed blocks out. Nothing here waits.

pub(crate) mod check;
pub(crate) mod fork;
pub(crate) mod gather;
pub(crate) mod inline;
pub(crate) mod put_back;
pub(crate) mod request;
pub(crate) mod resize;
pub(crate) mod seen;
pub(crate) mod settle;
pub(crate) mod trust;

use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicU64};

use prezero_sys::hand;
use prezero_sys::memory::Errno;
use prezero_sys::thread;

use crate::block::{Block, Content, Dirty, Zero};
use crate::clear::Engines;
use crate::clear::choice::Choice;
use crate::clear::reach::Reach;
use crate::clock::Clock;
use crate::config::live::Tuning;
use crate::config::without::Mechanism;
use crate::config::{Config, EngineChoice};
use crate::count::counters::{Counter, Counters};
use crate::cpu::demand::Demand;
use crate::cpu::hand::Grip;
use crate::cpu::latest::Latest;
use crate::cpu::list::{self, CLASSES, GRANULE, Lists};
use crate::daemon::Daemon;
use crate::mem::backing::{Backing, Memory};
use crate::mem::bits::Bits;
use crate::mem::states::StateMap;
use crate::pool::buddy::Buddy;
use crate::pool::compact::Assembly;
use crate::pool::handover::Claim;
use crate::pool::hide::Hidden;
use crate::pool::huge::SparseRow;
use crate::pool::leave::Gone;
use crate::pool::stock::Stock;
use crate::sync::{AtomicU32, Meta, Ordering::Acquire, Ordering::SeqCst};
use crate::units::{HUGE, HUGE_PAGES, MAX_ORDER, PAGE, PageId};
use crate::zone::resize::CameBack;
use crate::zone::settle::Sparse;
use crate::zone::trust::Trust;

/// What one CPU has of its own. All-zero bytes are a valid empty value.
#[repr(C, align(64))]
pub(crate) struct Cpu {
    pub(crate) counters: Counters,
    pub(crate) demand: Demand,
    /// Hits until the next sample (see `trust.rs`).
    pub(crate) countdown: AtomicU32,
    pub(crate) grip: Grip,
    pub(crate) lists: [Lists; CLASSES],
    /// Blocks that came back mostly untouched of late (see `settle.rs`).
    pub(crate) sparse: Sparse,
    /// Tick of the last [`gather`](Zone::gather).
    pub(crate) gathered_at: AtomicU32,
    /// What was freed last of what no list keeps.
    pub(crate) latest: Latest,
}

// SAFETY: counters, demand, lists and what was sparse are atomics for which all-zero bytes are the empty
// value, and none of them has a destructor.
#[allow(unsafe_code)]
unsafe impl prezero_sys::meta::Plain for Cpu {}

impl Cpu {
    /// Whether anything was ever asked for or freed here. For the looks of scrubd: a machine
    /// may have hundreds of CPUs on which the program never ran.
    pub(crate) fn was_used(&self) -> bool {
        use Counter::{Frees, OnlyZeroRequests, PlainRequests, ZeroRequests};
        [ZeroRequests, OnlyZeroRequests, PlainRequests, Frees]
            .into_iter()
            .any(|counter| self.counters.get(counter) != 0)
            || self.grip.frees() != 0
    }
}

/// What a hand can hold ends here (`prezero_sys::hand`); so do all addresses that Linux
/// gives out unasked.
const MOST_ADDRESS: usize = 1 << 48;

/// Why a zone could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ZoneError {
    /// The backing is smaller than a huge block, or not a whole number of them.
    #[error("the backing has {0} bytes: a zone needs a whole number of 2 MiB blocks, one at least")]
    Size(usize),
    /// The backing does not begin at a multiple of 64 KiB, or lies where no hand can point.
    #[error("the backing begins at {0:#x}: a zone begins at a multiple of 64 KiB below 2^48")]
    Base(usize),
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
    /// The huge blocks of which that is not 0, and some of which it is.
    pub(crate) resident: Bits,
    /// The huge blocks to which something resident came back since they were last hidden.
    pub(crate) used: Bits,
    /// The CPU that last freed something into the buddy, a hint where it will be used, and the tick of that.
    pub(crate) freed_on: AtomicU32,
    pub(crate) freed_last: AtomicU32,
    /// The CPU, plus one, that last found no block of a class on its lists; 0: none did.
    pub(crate) hungry: [AtomicU32; CLASSES],
    /// Tick at which all CPUs' lists were last drained for a request.
    pub(crate) drained_at: AtomicU32,
    pub(crate) clock: Clock,
    pub(crate) trust: Trust,
    pub(crate) daemon: Daemon,
    /// The knobs as they were set at first, and those that have been turned since.
    pub(crate) config: Config,
    pub(crate) tuning: Tuning,
    /// What the CPU's features promise, until scrubd has measured.
    guess: Choice,
    /// What scrubd measured; a pointer and no lock, which a fork might catch half taken.
    pub(crate) measured: AtomicPtr<Choice>,
    /// Pages that may idle without being offered to the kernel.
    pub(crate) allowance: AtomicU32,
    /// What no child of a fork gets.
    pub(crate) hidden: Hidden,
    /// What is the zone's no more.
    pub(crate) gone: Gone,
    /// Forks so far, times [`FORK`], plus how many are under way.
    pub(crate) forks: AtomicU32,
    /// Not 0 in the child of a fork that has not looked at what it inherited.
    pub(crate) inherited: AtomicU32,
    /// Whether any page was ever marked foreign, by whomever.
    pub(crate) foreign: AtomicU32,
    /// The most pages that were out of the buddy when memory was last needed.
    pub(crate) peak: AtomicU32,
    /// Pages handed out absent, since the zone began.
    pub(crate) faulted: AtomicU64,
    /// The huge blocks in small pages (see [`Backing::small`]).
    pub(crate) in_small: Bits,
    /// Blocks that came back with a quarter touched or less, of those that might be in huge pages, and
    /// those with an eighth or less, of those beyond [`KERNELS`](crate::zone::settle) pages.
    pub(crate) sparse_row: SparseRow,
    pub(crate) thin_row: SparseRow,
    /// How far the cache reaches for what is cleared inline.
    pub(crate) reach: Reach,
    pub(crate) came_back: CameBack,
    pub(crate) assembly: Assembly,
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
        let base = backing.base().as_ptr().addr();
        if !base.is_multiple_of(GRANULE as usize * PAGE) || base + len > MOST_ADDRESS {
            return Err(ZoneError::Base(base));
        }
        let pages = (len / PAGE) as u32;
        let engine = match config.engine {
            EngineChoice::Named(name) => crate::clear::by_name(name),
            EngineChoice::Auto => None,
        };
        let in_small = Bits::new(pages / HUGE_PAGES).map_err(ZoneError::Records)?;
        in_small.set(0..(backing.small() / HUGE) as u32);
        let zone = Zone {
            memory: Memory::new(backing),
            states: StateMap::new(pages).map_err(ZoneError::Records)?,
            buddy: Buddy::new(pages).map_err(ZoneError::Records)?,
            stock: Stock::new(),
            cpus: Meta::new(thread::cpu_count()).map_err(ZoneError::Records)?,
            claim: Claim::new(),
            freed_at: Meta::new((pages / HUGE_PAGES) as usize).map_err(ZoneError::Records)?,
            resident: Bits::new(pages / HUGE_PAGES).map_err(ZoneError::Records)?,
            used: Bits::new(pages / HUGE_PAGES).map_err(ZoneError::Records)?,
            freed_on: AtomicU32::new(0),
            freed_last: AtomicU32::new(0),
            hungry: [const { AtomicU32::new(0) }; CLASSES],
            drained_at: AtomicU32::new(0),
            clock: Clock::new(now_ns),
            trust: Trust::new(),
            daemon: Daemon::new(),
            config: config.clone(),
            tuning: Tuning::new(config),
            guess: Choice::unmeasured(engine.map_or_else(Engines::uncalibrated, Engines::only))
                .without(config.without),
            measured: AtomicPtr::new(std::ptr::null_mut()),
            allowance: AtomicU32::new(u32::MAX),
            hidden: Hidden::new(pages / HUGE_PAGES).map_err(ZoneError::Records)?,
            gone: Gone::new(pages / HUGE_PAGES).map_err(ZoneError::Records)?,
            forks: AtomicU32::new(0),
            inherited: AtomicU32::new(0),
            foreign: AtomicU32::new(0),
            peak: AtomicU32::new(0),
            faulted: AtomicU64::new(0),
            in_small,
            sparse_row: SparseRow::new(),
            thin_row: SparseRow::new(),
            reach: Reach::new(),
            came_back: CameBack::new(),
            assembly: Assembly::new(pages / HUGE_PAGES).map_err(ZoneError::Records)?,
        };
        if !config.without.has(Mechanism::Hand) {
            zone.daemon.shut_hands();
        }
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
        Some(list::round_up(bytes.div_ceil(PAGE) as u32))
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

    /// The engines in use, and what each is for.
    #[allow(unsafe_code)]
    #[inline]
    pub(crate) fn choice(&self) -> &Choice {
        // SAFETY: null, or a choice that scrubd leaked for good before it stored this.
        unsafe { self.measured.load(Acquire).as_ref() }.unwrap_or(&self.guess)
    }

    /// Whether a mechanism is in use.
    #[inline]
    pub(crate) fn has(&self, mechanism: Mechanism) -> bool {
        self.config.without.has(mechanism)
    }

    /// Puts a choice in use that nobody will write again.
    pub(crate) fn use_choice(&self, choice: &'static Choice) {
        self.measured.store(std::ptr::from_ref(choice).cast_mut(), SeqCst);
    }

    /// What this CPU has of its own; a hint, the thread may be elsewhere by now.
    #[inline]
    pub(crate) fn cpu(&self) -> &Cpu {
        let cpus = &*self.cpus;
        let cpu = hand::current_cpu();
        &cpus[if cpu < cpus.len() { cpu } else { cpu % cpus.len() }]
    }
}
