//! Blocks of a zone, known to the program by their address alone.
//!
//! `free` is given an address and nothing else, so a [`Heap`] remembers how long each
//! block is: one word for each slice of 64 KiB of the zone, out of band, that holds
//! the page count of the block that starts there, or 0.
//! A `free` sets the word to 0. So an address inside a block, a freed one or
//! a made-up one is told from a real one.
//!
//! **Accepted race.** The word is read and then written, not swapped. A locked instruction
//! waits until all that the program wrote last has left the store buffer, which costs as much as
//! all the rest of a `free`. Two threads that free one block in the same nanoseconds both succeed;
//! no program may do that, and hardly any allocator notices.
//!
//! Everything here is lock-free and allocates nothing; what happens to the pages is
//! the zone's business.

use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use prezero_sys::meta::{Meta, Zeroable};
use prezero_sys::thread;

use crate::block::{Block, Content, Dirty, Zero};
use crate::clear::Use;
use crate::config::Config;
use crate::count::snapshot::Snapshot;
use crate::inplace::{build_in, field_of};
use crate::mem::backing::{Anonymous, Backing};
use crate::pool::purge::hide::unit;
use crate::units::{HUGE, Order, PAGE, PageId, SLICE, whole};
use crate::zone::Zone;
use crate::zone::resize::Grown;

pub(crate) mod fit;
pub(crate) mod lazy;
mod live;
mod remapped;

pub use live::Live;

/// An address in the zone at which no live block starts.
#[derive(Debug)]
pub struct InvalidPointer;

/// What became of a block that should change its size.
#[derive(Debug)]
pub enum Resized {
    /// It has the new size, here or elsewhere, with its content.
    To(NonNull<u8>),
    /// The zone has no room; the block is as it was.
    Refused(Block<Dirty>),
}

/// A zone and the sizes of its live blocks.
#[derive(Debug)]
pub struct Heap {
    zone: Zone<Anonymous>,
    live: Meta<Slice>,
    base: usize,
    bytes: usize,
}

/// What is known of a slice, on a cache line of its own: the blocks of two threads lie
/// side by side, and both write here at every turn. A thousandth of the memory in use.
///
/// At the line's end, because a program writes to the beginning of its block first: a load
/// whose address has the low twelve bits of an earlier store's waits for that store.
#[derive(Debug)]
#[repr(C, align(64))]
struct Slice {
    unused: [AtomicU32; 15],
    /// Of the block that starts in it: its pages above the low byte, and in it those that were [`ADDED`]; 0: none does.
    block: AtomicU32,
}

/// Bits below the pages in a slice's word.
const PAGES_SHIFT: u32 = 8;
/// The longest block that a word can say (64 GiB).
const MOST_PAGES: u32 = u32::MAX >> PAGES_SHIFT;

/// In the word of a block: pages at its end that are not the program's, but were added to round its request up.
/// They hold anything, where the others were zero.
const ADDED: u32 = (1 << PAGES_SHIFT) - 1;

// SAFETY: an atomic, for which zero bytes are a valid value, without a destructor.
unsafe impl Zeroable for Slice {}

/// Bytes that a heap maps at first, about: room for a few blocks of some megabytes. Limits of address space, and tools
/// that watch it, count them.
/// Moved by: `/proc/PID/maps`.
const FIRST: usize = 64 << 20;

/// Why there is no heap: the address space does not hold it, or the zone said no.
#[derive(Debug, thiserror::Error)]
#[error("no heap: the address space does not hold it, or its zone was refused")]
pub struct NoHeap;

impl Heap {
    /// Reserves `config.limit` bytes of address space, at least one huge block.
    ///
    /// # Errors
    /// [`NoHeap`], when the address space does not hold them, or the zone refuses the configuration.
    pub fn new(config: &Config) -> Result<Heap, NoHeap> {
        let mut slot = MaybeUninit::uninit();
        Heap::build(&mut slot, config)?;
        // SAFETY: it was built.
        Ok(unsafe { slot.assume_init() })
    }

    /// As [`new`](Self::new), in a slot where the heap stays.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn build<'a>(
        slot: &'a mut MaybeUninit<Heap>,
        config: &Config,
    ) -> Result<&'a mut Heap, NoHeap> {
        let unit = unit((config.limit / HUGE) as u32) as usize * HUGE;
        let first = FIRST.next_multiple_of(unit);
        let backing = Anonymous::growing(config.limit, first).map_err(|_| NoHeap)?;
        let base = backing.base().as_ptr().addr();
        let live: Meta<Slice> =
            Meta::new(config.limit / Order::SLICE.bytes()).map_err(|_| NoHeap)?;
        Zone::build(field_of!(slot, zone), backing, config, thread::monotonic_ns)
            .map_err(|_| NoHeap)?;
        let bytes = config.limit;
        Ok(build_in!(slot, Heap { live: live, base: base, bytes: bytes, } and built { zone }))
    }

    /// Address of the zone's first byte.
    pub fn base(&self) -> usize {
        self.base
    }

    /// Bytes in the zone.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// At least `bytes` of memory with unknown content, at a multiple of `align`.
    pub fn plain(&self, bytes: usize, align: Order) -> Option<NonNull<u8>> {
        // The zone aligns within itself; a small one need not start at a multiple of
        // the largest alignment.
        if !self.base.is_multiple_of(align.bytes()) {
            return None;
        }
        let pages = Zone::<Anonymous>::pages_for(bytes)?;
        Some(self.hand_out(self.zone.plain(pages, align.max(Order::SLICE))?))
    }

    /// At least `bytes` of zeroed memory.
    pub fn zeroed(&self, bytes: usize, first_use: Use) -> Option<NonNull<u8>> {
        let pages = Zone::<Anonymous>::pages_for(bytes)?;
        let front = (bytes.div_ceil(PAGE) as u32).max(pages.saturating_sub(ADDED));
        let block = self.zone.zero_front(front, pages, Order::SLICE, first_use)?;
        let bytes = block.zero_pages() as usize * PAGE;
        Some(self.hand_out_to(block.into_dirty(), bytes))
    }

    /// At least `bytes` of memory that is zero already: at once, or not at all.
    pub fn zeroed_already(&self, bytes: usize) -> Option<NonNull<u8>> {
        let pages = Zone::<Anonymous>::pages_for(bytes)?;
        Some(self.hand_out(self.zone.only_zero(pages, Order::SLICE)?))
    }

    /// Bytes of the block at `ptr` that are the program's; 0 for a stray address.
    pub fn usable(&self, ptr: *const u8) -> usize {
        let word = self.word(ptr).map_or(0, |word| word.load(Ordering::Relaxed));
        usable_pages(word) as usize * PAGE
    }

    /// Takes the block at `ptr` back from the program.
    ///
    /// # Errors
    /// [`InvalidPointer`], when no live block starts there.
    ///
    /// # Safety
    /// The caller owns the block, if one starts there: no other thread uses it or takes it.
    pub unsafe fn take(&self, ptr: *const u8) -> Result<Block<Dirty>, InvalidPointer> {
        let (first, word) = self.unlist(ptr)?;
        // SAFETY: the word said that a block of this heap, of that many pages, starts
        // here, and `unlist` set it to 0 for this caller.
        Ok(unsafe { self.zone.adopt(first, word >> PAGES_SHIFT) })
    }

    /// As [`take`](Self::take), for a block whose owner says that it is all zero. What was
    /// added to it is not: whole slices of that go back to the zone here, and the rest is cleared.
    ///
    /// # Errors
    /// As for [`take`](Self::take).
    ///
    /// # Safety
    /// As for [`take`](Self::take), and every [usable](Self::usable) byte of the block is zero.
    pub unsafe fn take_zeroed(&self, ptr: *const u8) -> Result<Block<Zero>, InvalidPointer> {
        let (first, word) = self.unlist(ptr)?;
        // SAFETY: as in `take`.
        let block = unsafe { self.zone.adopt(first, word >> PAGES_SHIFT) };
        let usable = usable_pages(word);
        let block = self.zone.shorten_to(block, usable);
        let added = block.pages().saturating_sub(usable) as usize * PAGE;
        // SAFETY: the block is this call's, and what was added to it lies at its end. The caller vouches for the rest.
        unsafe {
            self.zone.address(&block).add(block.bytes() - added).write_bytes(0, added);
            Ok(block.assume_zero())
        }
    }

    /// Gives a block to the program.
    ///
    /// # Panics
    /// Where the block has 64 GiB or more.
    pub fn hand_out<C: Content>(&self, block: Block<C>) -> NonNull<u8> {
        let bytes = block.bytes();
        self.hand_out_to(block, bytes)
    }

    /// Gives a block to the program, which gets to know of `bytes` of it: of one page at least, and of all but
    /// the last 255 pages.
    ///
    /// # Panics
    /// As [`hand_out`](Self::hand_out).
    pub fn hand_out_to<C: Content>(&self, block: Block<C>, bytes: usize) -> NonNull<u8> {
        let block = block.into_dirty();
        let known = bytes.div_ceil(PAGE).max(1);
        let added = (block.pages() as usize).saturating_sub(known).min(ADDED as usize) as u32;
        assert!(block.pages() <= MOST_PAGES, "a block of a heap is shorter than 64 GiB");
        // Before the store, behind which the zone would look again whether the block is its own.
        let address = self.zone.address(&block);
        // Relaxed: a thread that frees the block got its address through the
        // program's own synchronisation, which orders this store too.
        self.live[block.first().index() / SLICE as usize]
            .block
            .store(block.pages() << PAGES_SHIFT | added, Ordering::Relaxed);
        address
    }

    /// Gives a block back to the zone.
    pub fn free(&self, block: Block<Dirty>) {
        self.zone.free(block);
    }

    /// Gives a block back to the zone, which keeps it as zero.
    pub fn free_zeroed(&self, block: Block<Zero>) {
        self.zone.free_zeroed(block);
    }

    /// The block's first byte.
    pub fn address(&self, block: &Block<Dirty>) -> NonNull<u8> {
        self.zone.address(block)
    }

    /// Makes room for `bytes` in a block: in place where the zone can, elsewhere where
    /// it cannot. Growth gets what was asked for and no more: what a program adds to
    /// amortise its own growth is its own choice.
    pub fn resize(&self, mut block: Block<Dirty>, bytes: usize) -> Resized {
        // A block that is here already may become longer than one that is asked for.
        let larger =
            || u32::try_from(bytes.div_ceil(PAGE)).ok().filter(|&pages| whole(pages) <= MOST_PAGES);
        let Some(pages) = Zone::<Anonymous>::pages_for(bytes).or_else(larger) else {
            return Resized::Refused(block);
        };
        if pages < block.pages() {
            block = self.zone.shorten_to(block, pages);
        } else if pages > block.pages()
            && matches!(self.zone.try_grow(&mut block, pages), Grown::No)
        {
            block = match self.zone.grow_elsewhere(block, pages, Order::SLICE) {
                Ok(grown) => grown,
                Err(block) => return Resized::Refused(block),
            };
        }
        Resized::To(self.hand_out(block))
    }

    /// The counters and gauges of now.
    pub fn snapshot(&self) -> Snapshot {
        self.zone.snapshot()
    }

    /// The zone: what must be done before and after `fork`, and blocks that the heap does not know.
    pub fn zone(&self) -> &Zone<Anonymous> {
        &self.zone
    }

    /// Sets the word of the block at `ptr` to 0: what it was, if the block was live.
    fn unlist(&self, ptr: *const u8) -> Result<(PageId, u32), InvalidPointer> {
        let page = self.zone.page_of(ptr).ok_or(InvalidPointer)?;
        let word = self.word(ptr).ok_or(InvalidPointer)?;
        match word.load(Ordering::Relaxed) {
            0 => Err(InvalidPointer),
            live => {
                word.store(0, Ordering::Relaxed);
                Ok((page, live))
            }
        }
    }

    /// The word of the slice that starts at `ptr`, if one does.
    fn word(&self, ptr: *const u8) -> Option<&AtomicU32> {
        let offset = ptr.addr().wrapping_sub(self.base);
        let whole = offset.is_multiple_of(Order::SLICE.bytes());
        Some(&self.live.get(offset / Order::SLICE.bytes()).filter(|_| whole)?.block)
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        // SAFETY: the zone goes with the heap, and a zone with a scrubd is never dropped.
        unsafe { self.zone.unmap_all() };
    }
}

/// Pages that the program knows of, by the word of their block.
fn usable_pages(word: u32) -> u32 {
    (word >> PAGES_SHIFT) - (word & ADDED)
}
