//! The zone: its parts, and what users call.
//!
//! [Requests](crate::zone::request) take what the CPU remembers, then what the pool finds; frees go to the pool and are
//! remembered. Nothing here waits.

pub(crate) mod check;
pub(crate) mod fork;
pub(crate) mod free;
pub(crate) mod inline;
pub(crate) mod integrity;
pub(crate) mod isolate;
pub(crate) mod purge;
pub(crate) mod put_back;
pub(crate) mod request;
pub(crate) mod resize;
pub(crate) mod wake;

use std::mem::MaybeUninit;

use prezero_sys::birth;
use prezero_sys::memory::Errno;
use prezero_sys::process::private_cache;
use prezero_sys::thread;

use crate::block::{Block, Content, Dirty, Run, ZoneId};
use crate::clear::clearing::Clearing;
use crate::config::Config;
use crate::config::ablation::Mechanism;
use crate::config::knobs::Tuning;
use crate::count::counters::Counters;
use crate::cpu::cache::{CpuCache, Cpus};
use crate::inplace::{build_in, field_of};
use crate::mem::backing::Backing;
use crate::pool::Pool;
use crate::sync::AtomicU32;
use crate::units::{HUGE, MAX_ORDER, PAGE, PageId, SLICE, Span};
use crate::waker::Waker;
use crate::zone::integrity::Trust;

/// Why a zone could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ZoneError {
    /// The backing is smaller than a huge block, or not a whole number of them.
    #[error("the backing has {0} bytes: a zone needs a whole number of 2 MiB blocks, one at least")]
    Size(usize),
    /// The backing does not begin at a multiple of 64 KiB.
    #[error("the backing begins at {0:#x}: a zone begins at a multiple of 64 KiB")]
    Base(usize),
    /// No memory for map, hints and counters.
    #[error("no memory for the zone's own records: {0}")]
    Records(Errno),
}

/// One contiguous range of pages with one backing. See the crate's first page.
pub struct Zone<B> {
    /// Its number, which its blocks carry.
    pub(crate) id: ZoneId,
    pub(crate) pool: Pool<B>,
    pub(crate) cpus: Cpus,
    pub(crate) clearing: Clearing,
    pub(crate) trust: Trust,
    pub(crate) waker: Waker,
    /// The knobs as they were set at first, and those that have been turned since.
    pub(crate) config: Config,
    pub(crate) tuning: Tuning,
    /// Not 0 in the child of a fork that has not looked at what it inherited.
    pub(crate) inherited: AtomicU32,
    /// The birth of the process that the counters are of.
    pub(crate) counts_of: AtomicU32,
    /// What was counted before the latest fork that this process is the child of, and heard of.
    pub(crate) before_fork: Counters,
}

impl<B> std::fmt::Debug for Zone<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Zone").field("pages", &self.pool.memory.pages).finish_non_exhaustive()
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
    pub(crate) fn with_clock(
        backing: B,
        config: &Config,
        now_ns: fn() -> u64,
    ) -> Result<Zone<B>, ZoneError> {
        let mut slot = MaybeUninit::uninit();
        Zone::build(&mut slot, backing, config, now_ns)?;
        // SAFETY: it was built.
        #[allow(unsafe_code)]
        Ok(unsafe { slot.assume_init() })
    }

    /// As [`with_clock`](Zone::with_clock), in a slot where the zone stays.
    ///
    /// # Errors
    /// As for [`Zone::new`].
    pub(crate) fn build<'a>(
        slot: &'a mut MaybeUninit<Zone<B>>,
        backing: B,
        config: &Config,
        now_ns: fn() -> u64,
    ) -> Result<&'a mut Zone<B>, ZoneError> {
        let len = backing.len();
        if len < HUGE || !len.is_multiple_of(HUGE) || len > crate::config::MAX_LIMIT {
            return Err(ZoneError::Size(len));
        }
        let base = backing.base().as_ptr().addr();
        if !base.is_multiple_of(SLICE as usize * PAGE) {
            return Err(ZoneError::Base(base));
        }
        let cpus = Cpus::new().map_err(ZoneError::Records)?;
        Pool::build(field_of!(slot, pool), backing, config, now_ns).map_err(ZoneError::Records)?;
        field_of!(slot, before_fork).write(Counters::new());
        Ok(build_in!(
            slot,
            Zone {
                id: ZoneId::next(),
                cpus: cpus,
                clearing: Clearing::new(config.engine.name(), private_cache()),
                trust: Trust::new(),
                waker: Waker::new(),
                config: *config,
                tuning: Tuning::new(config),
                inherited: AtomicU32::new(0),
                counts_of: AtomicU32::new(birth::current()),
            } and built { pool, before_fork }
        ))
    }

    /// The page count to ask for when `bytes` are needed: rounded up to a size that CPUs
    /// remember. `None` for nothing and for more than the largest order holds.
    #[inline]
    pub fn pages_for(bytes: usize) -> Option<u32> {
        if bytes == 0 || bytes > MAX_ORDER.bytes() {
            return None;
        }
        Some(crate::class::round_up(bytes.div_ceil(PAGE) as u32))
    }

    /// Where a block of this zone lies: a pointer to read a [`Block<Zero>`](Block) by, to read and write a
    /// [`Block<Dirty>`](Block) by. It serves until the block goes back, grows elsewhere, or the zone is dropped.
    ///
    /// A block that counts as zero is therefore zero: its owner turns it [dirty](Block::into_dirty) before it gets a
    /// pointer to write through. So [`free_zeroed`](Zone::free_zeroed) needs no promise of its caller.
    ///
    /// # Panics
    /// If another zone handed the block out.
    #[inline]
    pub fn address<C: Content>(&self, block: &Block<C>) -> C::Pointer {
        block.expect_of(self.id);
        C::pointer(self.pool.memory.address(block.first()))
    }

    /// Where this zone's blocks are born; the caller vouches for `C`.
    #[inline]
    pub(crate) fn hand_out<C: Content>(&self, run: Run) -> Block<C> {
        Block::of(self.id, run)
    }

    /// Where they end. Panics for a block of another zone.
    #[inline]
    pub(crate) fn take_back<C: Content>(&self, block: Block<C>) -> Run {
        block.into_run(self.id)
    }

    /// The page that `ptr` points into, if it points into the zone.
    #[inline]
    pub fn page_of(&self, ptr: *const u8) -> Option<PageId> {
        self.pool.memory.offset_of(ptr).map(|offset| PageId((offset / PAGE) as u32))
    }

    /// The pool, once it is this process's own.
    #[inline]
    pub(crate) fn own_pool(&self) -> &Pool<B> {
        self.take_over();
        &self.pool
    }

    /// The owner of these pages of a block changes their mapping by a system call: when the block
    /// comes back fresh memory replaces them.
    ///
    /// # Safety
    /// The pages are part of blocks that are out: a free page that is marked would be handed out
    /// as it is, even as zero.
    #[allow(unsafe_code)]
    pub unsafe fn mark_remapped(&self, first: PageId, pages: u32) {
        self.pool.mark_moved(Span::new(first, pages));
    }

    /// Calls `each` for the runs of pages that are marked so, in the order of their addresses.
    pub fn each_remapped(&self, mut each: impl FnMut(PageId, u32)) {
        self.pool.each_remapped(|span| each(span.first, span.pages));
    }

    /// Calls `each` for the runs of pages in which blocks may be out: each that is lies in one of them.
    pub fn each_in_use(&self, mut each: impl FnMut(PageId, u32)) {
        self.pool.in_use().for_each(|span| each(span.first, span.pages));
    }

    /// Gives up free address space until the zone has `bytes` left, or as few as the blocks in use
    /// allow. Blocks that are out stay as they are.
    ///
    /// # Safety
    /// Other mappings may lie in the zone's range afterwards. Code that asks the zone about an address calls
    /// [`is_unmapped`](Zone::is_unmapped) first, from now on.
    #[allow(unsafe_code)]
    pub unsafe fn shrink(&self, bytes: usize) {
        self.take_over();
        self.pool.shrink(bytes);
    }

    /// Gives up all that the zone has mapped.
    ///
    /// # Safety
    /// Nothing of the zone is used any more but its drop.
    #[allow(unsafe_code)]
    pub(crate) unsafe fn unmap_all(&self) {
        // SAFETY: the caller's promise.
        unsafe { self.pool.unmap_all() }
    }

    /// Whether a page belongs to others now.
    pub fn is_unmapped(&self, page: PageId) -> bool {
        self.pool.is_unmapped(page)
    }

    /// Has the kernel fault in the whole huge blocks of a block in huge pages, if they are not
    /// yet: five times as fast as small ones. No byte changes, whichever pages these are.
    pub fn fault_in_whole(&self, first: PageId, pages: u32) {
        let pages = pages.min(self.pages().saturating_sub(first.0));
        self.pool.fault_in_whole(Span::new(first, pages));
    }

    /// Pages in the zone.
    pub fn pages(&self) -> u32 {
        self.pool.memory.pages
    }

    /// Rebuilds a block from what its owner remembered of it.
    ///
    /// # Safety
    /// A block of exactly these pages was handed out by this zone, has not been given
    /// back, and no other `Block` value stands for any of its pages.
    #[allow(unsafe_code)]
    #[inline]
    pub unsafe fn adopt(&self, first: PageId, pages: u32) -> Block<Dirty> {
        self.hand_out(Run::taken(Span::new(first, pages)))
    }

    /// Whether a mechanism is in use.
    #[inline]
    pub(crate) fn has(&self, mechanism: Mechanism) -> bool {
        self.config.without.has(mechanism)
    }

    /// The cache of this thread's CPU.
    #[inline]
    pub(crate) fn cpu(&self) -> &CpuCache {
        self.cpus.here()
    }
}
