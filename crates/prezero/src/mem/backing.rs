//! What a zone is made of: a range of memory, and how it is made resident and given back.
//!
//! A zone speaks to the kernel only through this trait, so that tests can lend it
//! memory of their own and let every call fail.
#![allow(unsafe_code)]

use std::ptr::NonNull;

use prezero_sys::memory::{Errno, Reservation, promises};
use prezero_sys::{hooks, process};

use crate::units::{PAGE, PageId, Span};

/// A contiguous range of memory with one kind of backing.
///
/// # Safety
/// What was mapped of `base()..base()+len()` stays so, readable and writable, for the life of the value but for
/// what is given up, no other code uses it, and `base()` is aligned to the largest order that the
/// zone is to align blocks to, 64 KiB at least. After `release` or `replace` the range reads as
/// zero, as it does before it is first touched. A safe method changes no byte, in this process or
/// in a child of it, whatever range it is given.
pub unsafe trait Backing: Send + Sync {
    /// Where it begins.
    fn base(&self) -> NonNull<u8>;

    /// Bytes, a whole number of huge blocks.
    fn len(&self) -> usize;

    /// Whether it has no byte.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes at the beginning that are mapped; the rest is to be [mapped](Backing::extend) before it is used.
    fn mapped(&self) -> usize {
        self.len()
    }

    /// Maps a range that was never mapped, absent. Other code may have mappings there, which stay.
    ///
    /// # Errors
    /// `EXIST` where others have any of it, `NOMEM` at a limit of address space, `NOSYS` where all is mapped.
    fn extend(&self, _offset: usize, _len: usize) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    /// Makes a range resident without changing what it holds.
    ///
    /// # Safety
    /// The range is mapped.
    unsafe fn populate(&self, offset: usize, len: usize) -> Result<(), Errno>;

    /// Gives a range back to the kernel; it reads as zero afterwards.
    ///
    /// # Safety
    /// The caller owns the pages of the range and needs nothing of what they hold.
    unsafe fn release(&self, offset: usize, len: usize) -> Result<(), Errno>;

    /// Lets the kernel take pages of a range should it lack memory, until they are written: each
    /// reads as it was, or as zero.
    ///
    /// # Safety
    /// As for [`release`](Backing::release).
    unsafe fn lazy_free(&self, _offset: usize, _len: usize) {}

    /// Puts fresh memory in place of a range, whatever was done to its mapping: in small pages
    /// until it is [made huge](Backing::make_huge).
    ///
    /// # Safety
    /// As for [`release`](Backing::release), and the caller is no scrubd: [others](Backing::is_watched) hear of it.
    unsafe fn replace(&self, offset: usize, len: usize) -> Result<(), Errno>;

    /// Leaves the addresses of a range to the kernel, which may map anything there.
    ///
    /// # Safety
    /// As for [`replace`](Backing::replace), and no code uses the range again.
    ///
    /// # Errors
    /// What the kernel says: the range is as it was.
    unsafe fn unmap(&self, _offset: usize, _len: usize) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    /// The same of absent pages, of which no [other](Backing::is_watched) need hear: scrubd's too.
    ///
    /// # Safety
    /// No code uses the range before it is [mapped again](Backing::extend).
    ///
    /// # Errors
    /// As for [`unmap`](Backing::unmap).
    unsafe fn unmap_absent(&self, _offset: usize, _len: usize) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    /// Moves pages from `from..from+len` to `to`, as many from the first on as can be moved
    /// together: how many bytes. The range that they leave must be [replaced](Backing::replace)
    /// before a request gets it. Pages keep their size.
    ///
    /// # Safety
    /// As for [`release`](Backing::release) of `to`; the caller owns both ranges, apart.
    ///
    /// # Errors
    /// Any: `from` is as it was, and `to` is as it was or absent.
    unsafe fn move_pages(&self, _from: usize, _to: usize, _len: usize) -> Result<usize, Errno> {
        Err(Errno::NOSYS)
    }

    /// Whether others watch which pages lie where, and would not hear of pages that are released or moved. To be
    /// asked when the pages are out of circulation.
    fn is_watched(&self) -> bool {
        false
    }

    /// Bytes at the beginning that are faulted in small pages, whole huge blocks.
    fn small(&self) -> usize {
        0
    }

    /// Has huge blocks faulted in whole from now on: `len` bytes of them from `offset`.
    fn make_huge(&self, _offset: usize, _len: usize) {}

    /// Has huge blocks faulted in small pages from now on: `len` bytes of them from `offset`.
    fn make_small(&self, _offset: usize, _len: usize) {}

    /// Keeps a range of whole huge blocks away from children, which read it as zero, and from core
    /// dumps, until it is [shown](Backing::show) to them.
    ///
    /// # Safety
    /// As for [`release`](Backing::release), in each child.
    ///
    /// # Errors
    /// What the kernel says: a part may be hidden.
    unsafe fn hide(&self, _offset: usize, _len: usize) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    /// Undoes [`hide`](Backing::hide), also of what is not hidden.
    ///
    /// # Errors
    /// `NOMEM`, `AGAIN`: a part may still be hidden. Any other: a kernel that hides nothing.
    fn show(&self, _offset: usize, _len: usize) -> Result<(), Errno> {
        Ok(())
    }

    /// Marks in `resident`, a byte for each page, whether the page is resident.
    fn residency(&self, offset: usize, resident: &mut [u8]) -> Result<(), Errno>;

    /// Whether a page that is not resident may have content all the same.
    fn may_swap(&self) -> bool {
        true
    }
}

/// Bytes at the beginning of a range that are faulted in small pages at first. Each of their huge
/// blocks may become a mapping of its own, of which a process has a limited number.
/// Moved by: `/proc/PID/maps`.
const SMALL: usize = 16 << 30;

/// A reserved range of private anonymous memory, in huge pages where the kernel allows.
#[derive(Debug)]
pub struct Anonymous {
    reservation: Reservation,
}

impl Anonymous {
    /// Alignment of the range: that of the largest block, 1 GiB.
    const ALIGN: usize = crate::units::MAX_ORDER.bytes();

    /// Reserves address space for `len` bytes; no memory is used until it is touched.
    ///
    /// # Errors
    /// What `mmap` says: `ENOMEM` under a small `RLIMIT_AS`, above all. `ENOSYS` from a kernel whose memory is not
    /// zero after it was [given back](prezero_sys::memory::promises).
    pub fn reserve(len: usize) -> Result<Anonymous, Errno> {
        Anonymous::growing(len, len)
    }

    /// As [`reserve`](Anonymous::reserve), of which the zone maps `mapped` bytes at first, and more as it needs them.
    ///
    /// # Errors
    /// As for [`reserve`](Anonymous::reserve).
    pub(crate) fn growing(len: usize, mapped: usize) -> Result<Anonymous, Errno> {
        if !promises::releases_to_zero() {
            return Err(Errno::NOSYS);
        }
        hooks::look_up();
        let align = Self::ALIGN.min(len.next_power_of_two());
        let anonymous = Anonymous { reservation: Reservation::growing(len, align, mapped)? };
        anonymous.advise_beyond_small(0, anonymous.mapped());
        Ok(anonymous)
    }

    /// Asks for huge pages in the part of a new range that is not in small pages at first.
    fn advise_beyond_small(&self, offset: usize, len: usize) {
        let (first, end) = (offset.max(SMALL), offset + len);
        if first < end {
            // A kernel without huge pages refuses this; small pages work as well, slower.
            let _ = self.reservation.advise_huge(first, end - first);
        }
    }
}

// SAFETY: the reservation is ours until it is dropped, mapped readable and writable, and
// private anonymous memory reads as zero when it is new, released or replaced.
unsafe impl Backing for Anonymous {
    fn base(&self) -> NonNull<u8> {
        self.reservation.base()
    }

    fn len(&self) -> usize {
        self.reservation.len()
    }

    fn mapped(&self) -> usize {
        self.reservation.mapped()
    }

    fn extend(&self, offset: usize, len: usize) -> Result<(), Errno> {
        self.reservation.extend(offset, len)?;
        self.advise_beyond_small(offset, len);
        Ok(())
    }

    unsafe fn populate(&self, offset: usize, len: usize) -> Result<(), Errno> {
        // SAFETY: the caller's promise.
        unsafe { self.reservation.populate(offset, len) };
        Ok(())
    }

    unsafe fn release(&self, offset: usize, len: usize) -> Result<(), Errno> {
        // SAFETY: the caller owns the range.
        unsafe { self.reservation.release(offset, len) }
    }

    unsafe fn lazy_free(&self, offset: usize, len: usize) {
        // A kernel that does not want it leaves it as it is.
        // SAFETY: the caller owns the range.
        let _ = unsafe { self.reservation.lazy_free(offset, len) };
    }

    unsafe fn replace(&self, offset: usize, len: usize) -> Result<(), Errno> {
        // SAFETY: the caller owns the range.
        unsafe { self.reservation.replace(offset, len) }
    }

    unsafe fn unmap(&self, offset: usize, len: usize) -> Result<(), Errno> {
        // SAFETY: the caller owns the range and is done with it.
        unsafe { self.reservation.unmap(offset, len) }
    }

    unsafe fn unmap_absent(&self, offset: usize, len: usize) -> Result<(), Errno> {
        // SAFETY: the caller owns the range and is done with it.
        unsafe { self.reservation.unmap_absent(offset, len) }
    }

    unsafe fn move_pages(&self, from: usize, to: usize, len: usize) -> Result<usize, Errno> {
        // SAFETY: the caller's promise.
        unsafe { self.reservation.move_pages(from, to, len) }
    }

    fn is_watched(&self) -> bool {
        hooks::are_there()
    }

    fn small(&self) -> usize {
        SMALL.min(self.len())
    }

    fn make_huge(&self, offset: usize, len: usize) {
        let _ = self.reservation.advise_huge(offset, len);
    }

    fn make_small(&self, offset: usize, len: usize) {
        let _ = self.reservation.advise_small(offset, len);
    }

    unsafe fn hide(&self, offset: usize, len: usize) -> Result<(), Errno> {
        // SAFETY: the caller's promise: as for a release in each child.
        unsafe { self.reservation.hide(offset, len) }
    }

    fn show(&self, offset: usize, len: usize) -> Result<(), Errno> {
        self.reservation.show(offset, len)
    }

    fn residency(&self, offset: usize, resident: &mut [u8]) -> Result<(), Errno> {
        self.reservation.residency(offset, resident)
    }

    fn may_swap(&self) -> bool {
        process::has_swap()
    }
}

/// Memory as a zone hands it out: the only place where page indices become pointers.
pub(crate) struct Memory<B> {
    backing: B,
    base: usize,
    pub(crate) pages: u32,
}

impl<B: Backing> Memory<B> {
    pub(crate) fn new(backing: B) -> Memory<B> {
        let (base, pages) = (backing.base().as_ptr() as usize, (backing.len() / PAGE) as u32);
        Memory { backing, base, pages }
    }

    /// The backing, for calls that change no content.
    pub(crate) fn backing(&self) -> &B {
        &self.backing
    }

    /// Bytes from the base to `ptr`, if it lies inside.
    #[inline]
    pub(crate) fn offset_of(&self, ptr: *const u8) -> Option<usize> {
        let offset = (ptr as usize).wrapping_sub(self.base);
        (offset < self.pages as usize * PAGE).then_some(offset)
    }

    /// The address of a page of the zone.
    #[inline]
    pub(crate) fn address(&self, page: PageId) -> NonNull<u8> {
        debug_assert!(page.0 < self.pages);
        // SAFETY: the offset lies within the mapped range that begins at `base()`.
        unsafe { self.backing.base().add(page.index() * PAGE) }
    }

    /// Whether a free or owned run of pages holds only zero bytes.
    pub(crate) fn is_zero(&self, span: Span) -> bool {
        let Span { first, pages } = span;
        let words = pages as usize * PAGE / size_of::<u64>();
        // SAFETY: the range is mapped, aligned, and the caller owns it, so no other thread writes.
        let slice = unsafe {
            std::slice::from_raw_parts(self.address(first).as_ptr().cast::<u64>(), words)
        };
        slice.chunks(64).all(|chunk| chunk.iter().fold(0, |or, word| or | word) == 0)
    }

    /// Clears a run of pages that the caller owns.
    pub(crate) fn clear(&self, engine: &dyn crate::clear::ClearEngine, span: Span) {
        let Span { first, pages } = span;
        // SAFETY: the run lies in the mapped range, is page aligned and is the caller's.
        unsafe { engine.clear(self.address(first), pages as usize * PAGE) }
    }

    /// Makes pages resident that the caller owns.
    pub(crate) fn populate(&self, span: Span) -> Result<(), Errno> {
        // SAFETY: pages that were free are mapped.
        unsafe { self.backing.populate(span.first.index() * PAGE, span.bytes()) }
    }

    /// Gives back a run of pages that the caller owns.
    pub(crate) fn release(&self, span: Span) -> Result<(), Errno> {
        let Span { first, pages } = span;
        // SAFETY: the caller owns the run and is done with what it holds.
        unsafe { self.backing.release(first.index() * PAGE, pages as usize * PAGE) }
    }

    /// Lets the kernel take a run of free pages that the caller owns. Zero pages stay zero.
    pub(crate) fn lazy_free(&self, span: Span) {
        let Span { first, pages } = span;
        // SAFETY: the caller owns the run, and nothing relies on what a dirty page holds.
        unsafe { self.backing.lazy_free(first.index() * PAGE, pages as usize * PAGE) }
    }

    /// Keeps a run of whole free huge blocks that the caller owns away from children and dumps.
    pub(crate) fn hide(&self, span: Span) -> Result<(), Errno> {
        let Span { first, pages } = span;
        // SAFETY: the caller owns the run, and a child makes free pages absent that it finds hidden.
        unsafe { self.backing.hide(first.index() * PAGE, pages as usize * PAGE) }
    }

    /// Leaves the addresses of a run of pages to the kernel: it must not be put back.
    pub(crate) fn unmap(&self, span: Span) -> Result<(), Errno> {
        let Span { first, pages } = span;
        // SAFETY: the caller owns the run, is done with it and never puts it back.
        unsafe { self.backing.unmap(first.index() * PAGE, pages as usize * PAGE) }
    }

    /// The same of a run of absent pages. What is [mapped](Backing::extend) there later is absent too.
    pub(crate) fn unmap_absent(&self, span: Span) -> Result<(), Errno> {
        let Span { first, pages } = span;
        // SAFETY: the caller owns the run, in which nothing is, and does not put it back.
        unsafe { self.backing.unmap_absent(first.index() * PAGE, pages as usize * PAGE) }
    }

    /// Brings what a run of pages holds to the beginning of another, both the caller's and apart.
    /// That number of pages was moved, and must be [replaced](Self::replace) where they were; the rest was
    /// copied.
    pub(crate) fn carry(&self, from: PageId, to: PageId, pages: u32) -> u32 {
        let mut moved = 0;
        while moved < pages {
            let [source, goal] = [from, to].map(|first| first.plus(moved).index() * PAGE);
            let len = (pages - moved) as usize * PAGE;
            // SAFETY: the caller owns both runs, and what is at the goal is about to be overwritten.
            match unsafe { self.backing.move_pages(source, goal, len) } {
                Ok(bytes) => moved += (bytes / PAGE) as u32,
                Err(_) => break,
            }
        }
        if moved < pages {
            self.copy(from.plus(moved), to.plus(moved), pages - moved);
        }
        moved
    }

    /// Copies what a run of pages holds to another, both the caller's and apart.
    pub(crate) fn copy(&self, from: PageId, to: PageId, pages: u32) {
        let [from, to] = [from, to].map(|first| self.address(first));
        // SAFETY: two runs in the mapped range that are the caller's and do not overlap. A page
        // that the program made unreadable faults, as it does under any `realloc`.
        unsafe { from.copy_to_nonoverlapping(to, pages as usize * PAGE) };
    }

    /// Puts fresh memory in place of a run of pages that the caller owns.
    pub(crate) fn replace(&self, span: Span) -> Result<(), Errno> {
        let Span { first, pages } = span;
        // SAFETY: the caller owns the run and is done with what it holds.
        unsafe { self.backing.replace(first.index() * PAGE, pages as usize * PAGE) }
    }
}
