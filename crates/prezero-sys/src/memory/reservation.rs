//! A range of address space: reserved once, backed page by page, given back in pieces.
//!
//! A [`Reservation`] is private anonymous memory that costs nothing until it is
//! touched (`MAP_NORESERVE`). One that [grows](Reservation::growing) has its addresses from the beginning and
//! maps them piece by piece, since limits and tools count what is mapped.
//!
//! Nothing here allocates, locks or sets `errno`. Offsets and lengths are in bytes and
//! must be multiples of [`GRAIN`] inside the range: anything else is a bug of the
//! caller, and panics.

use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU8, Ordering};

pub use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use super::{hooks, promises};
use crate::raw;
use crate::sandbox::unless_confined;

/// Writes back the byte that is there, in one operation, so that no other thread's write to the
/// page is lost.
///
/// # Safety
/// `byte` is mapped and writable.
#[inline(always)]
unsafe fn write_nothing(byte: *mut u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller's promise. In assembly because a compiler may turn an atomic
    // operation that changes nothing into a read, which would map the shared zero page.
    unsafe {
        std::arch::asm!("lock or byte ptr [{}], 0", in(reg) byte, options(nostack));
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        // SAFETY: the caller's promise. A byte that is not 0 is resident already.
        let byte = unsafe { AtomicU8::from_ptr(byte) };
        let _ = byte.compare_exchange(0, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// `mincore`; 0 or the error number.
///
/// # Safety
/// `pages` has a byte for each page of the range.
pub(super) unsafe fn raw_mincore(first: *mut c_void, len: usize, pages: *mut u8) -> i32 {
    // SAFETY: the caller's promise.
    let done = unsafe { raw::syscall(libc::SYS_mincore, [first.addr(), len, pages.addr()]) };
    -done as i32
}

/// Every offset and length is a multiple of this, the smallest page there is: 4 KiB.
pub const GRAIN: usize = 4096;

/// Whether the kernel's pages are grains. On arm64 a kernel may have pages of 16 or 64 KiB, which calls of this crate
/// would give back or count in parts: there is no reservation then.
pub fn has_small_pages() -> bool {
    // SAFETY: no terms.
    unsafe { libc::getauxval(libc::AT_PAGESZ) as usize <= GRAIN }
}

/// A range of private anonymous memory, readable and writable, unmapped on drop unless a part
/// was given up.
///
/// It hands out its address and not a slice: the owner of the reservation decides which code
/// touches which part.
#[derive(Debug)]
pub struct Reservation {
    pub(crate) base: NonNull<u8>,
    len: usize,
    /// Bytes that are mapped from the beginning.
    mapped: usize,
    /// 0: a part was [given up](Self::unmap), or [mapped later](Self::extend). Its owner gives up what is left then.
    whole: AtomicU8,
}

/// How far from other mappings a range lies that grows, in bytes. The kernel puts new mappings below old ones, so
/// what is mapped later stays out of the way until it has filled this much.
const APART: usize = 4 << 40;

// SAFETY: it is an address range and owns no thread-bound state; every method is a
// system call that the kernel serialises.
unsafe impl Send for Reservation {}
// SAFETY: as above; the methods that change content are unsafe and name their terms.
unsafe impl Sync for Reservation {}

impl Reservation {
    /// Reserves `len` bytes at a multiple of `align` bytes.
    ///
    /// # Errors
    /// `INVAL` for a length that is zero or no multiple of [`GRAIN`], and for an
    /// alignment that is less than that or no power of two; `NOSYS` where [pages are larger](has_small_pages); otherwise
    /// what `mmap` answers, which is `NOMEM` when the address space or `RLIMIT_AS` is exhausted.
    pub fn new(len: usize, align: usize) -> Result<Reservation, Errno> {
        if len == 0 || !len.is_multiple_of(GRAIN) || align < GRAIN || !align.is_power_of_two() {
            return Err(Errno::INVAL);
        }
        has_small_pages().then_some(()).ok_or(Errno::NOSYS)?;
        // Recent kernels align large mappings by themselves, and then `RLIMIT_AS` need
        // not cover the slack that aligning by hand asks for.
        let exact = map(len)?;
        if exact.addr().get() % align == 0 {
            return Ok(Reservation { base: exact, len, mapped: len, whole: AtomicU8::new(1) });
        }
        // SAFETY: mapped above, and no other code has seen it.
        unsafe { unmap(exact, len) };

        let slack = len.checked_add(align - GRAIN).ok_or(Errno::NOMEM)?;
        let first = map(slack)?;
        let head = first.addr().get().next_multiple_of(align) - first.addr().get();
        // SAFETY: head <= align - GRAIN, so head + len lies within the mapping.
        let base = unsafe { first.add(head) };
        // SAFETY: the parts before and after base..base+len; no other code has seen either.
        unsafe {
            unmap(first, head);
            unmap(base.add(len), slack - head - len);
        }
        Ok(Reservation { base, len, mapped: len, whole: AtomicU8::new(1) })
    }

    /// As [`new`](Self::new), of which only the first bytes are `mapped`, apart from other mappings. Where it finds no
    /// room apart, it is mapped whole: [`mapped`](Self::mapped) says so.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn growing(len: usize, align: usize, mapped: usize) -> Result<Reservation, Errno> {
        let near = Reservation::new(len, align)?;
        let mapped = mapped.next_multiple_of(GRAIN);
        let base = near.base.addr().get();
        if mapped >= len {
            return Ok(near);
        }
        for at in [base.checked_sub(APART), base.checked_add(APART)].into_iter().flatten() {
            let Ok(base) = map_free(at / align * align, len) else { continue };
            // SAFETY: mapped here, and no other code has seen it.
            unsafe { unmap(base.add(mapped), len - mapped) };
            return Ok(Reservation { base, len, mapped, whole: AtomicU8::new(1) });
        }
        Ok(near)
    }

    /// Maps a range that is not mapped, as the rest is.
    ///
    /// # Errors
    /// `EXIST` where others have any of it, `NOMEM` at a limit of address space.
    pub fn extend(&self, offset: usize, len: usize) -> Result<(), Errno> {
        unless_confined()?;
        self.whole.store(0, Ordering::Relaxed);
        map_free(self.at(offset, len).addr(), len).map(drop)
    }

    /// The first byte; a multiple of the alignment asked for.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Bytes in the range.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Bytes that are mapped from the beginning.
    pub fn mapped(&self) -> usize {
        self.mapped
    }

    /// Never true: an empty range cannot be reserved.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Makes every page of the range resident and writable by a write that changes
    /// nothing: absent pages become zero pages, others keep their content, also while
    /// other threads use them.
    ///
    /// Not `MADV_POPULATE_WRITE`: that holds the lock of the whole address space, and a
    /// thread of the idle class that is kept from its CPU in the middle of it keeps every
    /// `mmap` of the process waiting, for seconds where CPUs are busy. A fault by touching takes
    /// the lock of this mapping alone (since Linux 6.4).
    ///
    /// Where there is no memory left the kernel kills a process that touches some: this is
    /// for memory that would be touched soon in any case.
    ///
    /// # Safety
    /// The range is mapped: it was not [given up](Self::unmap), nor is it yet to be [mapped](Self::extend).
    pub unsafe fn populate(&self, offset: usize, len: usize) {
        let first: *mut u8 = self.at(offset, len).cast();
        for page in (0..len).step_by(GRAIN) {
            // SAFETY: inside this reservation (checked by `at`), and the caller says that it is mapped.
            unsafe { write_nothing(first.add(page)) };
        }
    }

    /// Asks for huge pages in the range from now on.
    ///
    /// # Errors
    /// `INVAL` from a kernel without transparent huge pages.
    pub fn advise_huge(&self, offset: usize, len: usize) -> Result<(), Errno> {
        unless_confined()?;
        // SAFETY: inside this mapping (checked by `at`), and content stays.
        unsafe { madvise(self.at(offset, len), len, Advice::LinuxHugepage) }
    }

    /// Asks for small pages in the range from now on; those that are there stay as they are.
    ///
    /// # Errors
    /// `INVAL` from a kernel without transparent huge pages; `NOMEM` for one mapping too many.
    pub fn advise_small(&self, offset: usize, len: usize) -> Result<(), Errno> {
        unless_confined()?;
        // SAFETY: inside this mapping (checked by `at`), and content stays.
        unsafe { madvise(self.at(offset, len), len, Advice::LinuxNoHugepage) }
    }

    /// Gives the pages of the range back to the kernel; each reads as zero afterwards.
    ///
    /// # Safety
    /// The range is the caller's alone: no other code reads or writes it during the call,
    /// or relies on what it held.
    ///
    /// # Errors
    /// `INVAL` when part of it is locked in memory (`mlock`): nothing is known of the
    /// content then.
    pub unsafe fn release(&self, offset: usize, len: usize) -> Result<(), Errno> {
        // SAFETY: inside this mapping (checked by `at`); the caller owns the content.
        unsafe { madvise(self.at(offset, len), len, Advice::LinuxDontNeed) }
    }

    /// Lets the kernel take the pages of the range, should it lack memory, one by one and until
    /// they are written: each reads as it was, or as zero.
    ///
    /// # Safety
    /// As for [`release`](Self::release).
    ///
    /// # Errors
    /// `INVAL` when part of it is locked in memory.
    pub unsafe fn lazy_free(&self, offset: usize, len: usize) -> Result<(), Errno> {
        unless_confined()?;
        // SAFETY: inside this mapping (checked by `at`); the caller owns the content.
        unsafe { madvise(self.at(offset, len), len, Advice::LinuxFree) }
    }

    /// Puts a fresh mapping over the range: absent pages, readable and writable, with no
    /// protection, lock, policy or advice left of what was there. Others [hear](super::hooks) of it.
    ///
    /// # Safety
    /// As for [`release`](Self::release), and the caller is a thread that libc knows of.
    ///
    /// # Errors
    /// What `mmap` answers, `NOMEM` when the process has too many mappings; the old
    /// mapping may be gone then. `PERM` where the process is confined: holes in it may be others' by then, because
    /// none is closed there.
    pub unsafe fn replace(&self, offset: usize, len: usize) -> Result<(), Errno> {
        unless_confined()?;
        let first = self.at(offset, len);
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: the caller's promise.
        unsafe { hooks::tell(first, len) };
        // SAFETY: replaces only pages of this mapping (checked by `at`), and the
        // caller vouches that no other code uses them.
        unsafe { mmap_anonymous(first, len, ProtFlags::READ | ProtFlags::WRITE, flags) }?;
        Ok(())
    }

    /// Unmaps the range: the kernel may give its addresses to any other mapping. Others [hear](super::hooks) of it.
    ///
    /// # Safety
    /// As for [`replace`](Self::replace), and no part of it is passed to another method but [`extend`](Self::extend).
    ///
    /// # Errors
    /// `NOMEM` when the process has too many mappings to split one; nothing is unmapped then.
    pub unsafe fn unmap(&self, offset: usize, len: usize) -> Result<(), Errno> {
        // SAFETY: inside this mapping (checked by `at`); the caller vouches for the rest.
        unsafe {
            hooks::tell(self.at(offset, len), len);
            self.unmap_absent(offset, len)
        }
    }

    /// The same of pages of which no hook need hear, since nothing was registered that lies there.
    ///
    /// # Safety
    /// As for [`unmap`](Self::unmap), on any thread.
    ///
    /// # Errors
    /// As for [`unmap`](Self::unmap).
    pub unsafe fn unmap_absent(&self, offset: usize, len: usize) -> Result<(), Errno> {
        // First, so that a drop of the reservation does not unmap what others have there.
        self.whole.store(0, Ordering::Relaxed);
        // SAFETY: inside this mapping (checked by `at`); the caller vouches for the rest.
        unsafe { munmap(self.at(offset, len), len) }
    }

    /// A child of a fork finds zeroes in the range, and no page of it is copied for that. It
    /// finds the same advice, so its own children do too. Core dumps leave the range out.
    ///
    /// # Errors
    /// `AGAIN` when the process has too many mappings to split one (`NOMEM` before Linux 5.17),
    /// `INVAL` from a file that was mapped there on: what lies before it is done.
    ///
    /// # Safety
    /// No child reads what lies in the range now.
    pub unsafe fn hide(&self, offset: usize, len: usize) -> Result<(), Errno> {
        self.no_dump(offset, len)?;
        // SAFETY: inside this mapping (checked by `at`). Its content stays here, and no child counts on it.
        unsafe { madvise(self.at(offset, len), len, Advice::LinuxWipeOnFork) }
    }

    /// Core dumps leave the range out.
    ///
    /// # Errors
    /// As for [`hide`](Self::hide).
    pub fn no_dump(&self, offset: usize, len: usize) -> Result<(), Errno> {
        unless_confined()?;
        // SAFETY: as above.
        unsafe { madvise(self.at(offset, len), len, Advice::LinuxDontDump) }
    }

    /// Undoes [`hide`](Self::hide). Where the kernel refuses one call the other is made all the same.
    ///
    /// # Errors
    /// As for [`hide`](Self::hide), and `INVAL` from a kernel that hides nothing from children: `NOMEM` or `AGAIN` where
    /// either call said so.
    pub fn show(&self, offset: usize, len: usize) -> Result<(), Errno> {
        unless_confined()?;
        let told = [Advice::LinuxDoDump, Advice::LinuxKeepOnFork].map(|advice| {
            // SAFETY: as above.
            unsafe { madvise(self.at(offset, len), len, advice) }
        });
        let lacking = |told: &Result<(), Errno>| matches!(told, Err(Errno::NOMEM | Errno::AGAIN));
        told.into_iter().find(lacking).unwrap_or(told[0].and(told[1]))
    }

    /// Says of each page from `offset` whether it is resident, in the lowest bit of its
    /// byte of `pages`. A page of the shared zero page counts as resident, one that was swapped out does not.
    ///
    /// # Errors
    /// What a seccomp filter answers; the kernel itself refuses nothing that `at` lets by. `NOSYS` from one that
    /// does not know what was touched.
    pub fn residency(&self, offset: usize, pages: &mut [u8]) -> Result<(), Errno> {
        unless_confined()?;
        if !promises::tells_residency() {
            return Err(Errno::NOSYS);
        }
        let len = pages.len() * GRAIN;
        let first = self.at(offset, len);
        // SAFETY: the kernel writes one byte a page, and `pages` has that many.
        match unsafe { raw_mincore(first, len, pages.as_mut_ptr()) } {
            0 => Ok(()),
            error => Err(Errno::from_raw_os_error(error)),
        }
    }

    /// The address of `offset`, once `offset..offset+len` is known to lie in the range.
    pub(crate) fn at(&self, offset: usize, len: usize) -> *mut c_void {
        assert!(offset.is_multiple_of(GRAIN) && len.is_multiple_of(GRAIN), "not whole pages");
        assert!(offset <= self.len && len <= self.len - offset, "outside the reservation");
        // SAFETY: offset <= self.len, checked above.
        unsafe { self.base.add(offset) }.as_ptr().cast()
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.whole.load(Ordering::Relaxed) != 0 {
            // SAFETY: mapped by `new`; no address is used beyond the reservation's life.
            unsafe { unmap(self.base, self.mapped) };
        }
    }
}

fn map(len: usize) -> Result<NonNull<u8>, Errno> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: no address is asked for, so no existing mapping is touched.
    let address =
        unsafe { mmap_anonymous(ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags) }?;
    NonNull::new(address.cast()).ok_or(Errno::NOMEM)
}

/// Maps a range at this address, if no byte of it is mapped.
fn map_free(at: usize, len: usize) -> Result<NonNull<u8>, Errno> {
    let wanted = ptr::without_provenance_mut::<c_void>(at);
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
    // SAFETY: the kernel puts nothing over what is mapped.
    let got = unsafe { mmap_anonymous(wanted, len, ProtFlags::READ | ProtFlags::WRITE, flags) }?;
    let base = NonNull::new(got.cast()).ok_or(Errno::NOMEM)?;
    if got != wanted {
        // An emulator that does not know the flag.
        // SAFETY: mapped here, and no other code has seen it.
        unsafe { unmap(base, len) };
        return Err(Errno::EXIST);
    }
    Ok(base)
}

/// # Safety
/// The range is mapped, the caller's own, and not used any more.
unsafe fn unmap(first: NonNull<u8>, len: usize) {
    if len > 0 {
        // SAFETY: the caller's promise. A failure (too many mappings to split one) leaks
        // address space that no code uses; there is no better answer.
        let _ = unsafe { munmap(first.as_ptr().cast(), len) };
    }
}

#[cfg(test)]
pub(crate) mod tests;
