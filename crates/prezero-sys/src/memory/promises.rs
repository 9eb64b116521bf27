//! What a zone believes of the kernel, tried before it is believed.
//!
//! An emulator of user programs may take a call for a hint and answer that it succeeded: qemu-user before 7.1 does
//! nothing for `MADV_DONTNEED`. Memory that was given back is not zero then. jemalloc tries that call for this reason.
//!
//! | promise | what relies on it | where it is tried |
//! |---|---|---|
//! | `MADV_DONTNEED` leaves zeroes, and leaves its neighbours alone | a page that is recorded as absent | here |
//! | a mapping over another (`MAP_FIXED`) is zero | a page whose mapping the program changed | here |
//! | `mincore` knows the pages that were touched | a page that verification passes by | here |
//! | `mremap` brings what it moves, and leaves zeroes | blocks that move | [`moves`](super::moves) |
//! | `MADV_WIPEONFORK` wipes | no record: a child gives hidden memory back before it uses any | |
//! | `MADV_FREE` leaves a page as it was, or zero | as it was is right, too | |
//!
//! Each is tried once a process, on pages of this module's own. Nothing here allocates, locks or sets `errno`.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use super::reservation::{GRAIN, raw_mincore};

/// What was tried, and what of it holds.
static KNOWN: AtomicU8 = AtomicU8::new(0);
const TRIED: u8 = 1;
const RELEASES: u8 = 2;
const TELLS: u8 = 4;

/// Pages that are tried on. The two in the middle are given back, and the last is mapped over.
const PAGES: usize = 5;

/// Whether memory that is given back, or mapped over, reads as zero, and its neighbours as before.
pub fn releases_to_zero() -> bool {
    known() & RELEASES != 0
}

/// Whether `mincore` knows pages that were touched. One that answers with an error is asked again each time.
pub fn tells_residency() -> bool {
    known() & TELLS != 0
}

fn known() -> u8 {
    let mut known = KNOWN.load(Relaxed);
    if known == 0 {
        known = TRIED | tried();
        KNOWN.store(known, Relaxed);
    }
    known
}

fn tried() -> u8 {
    // SAFETY: no address is asked for, so no existing mapping is touched.
    let Ok(first) = (unsafe { map_at(ptr::null_mut(), PAGES) }) else { return 0 };
    // SAFETY: mapped here, and no other code has seen it.
    unsafe {
        let found = try_on(first);
        let _ = munmap(first, PAGES * GRAIN);
        found
    }
}

/// # Safety
/// `first` is the first of [`PAGES`] pages of new memory, which are the caller's.
unsafe fn try_on(first: *mut c_void) -> u8 {
    let mut found = 0;
    let mut map = [0u8; PAGES];
    // SAFETY: the caller's pages; `map` has a byte for each.
    unsafe {
        (0..PAGES).for_each(|page| byte(first, page).write_volatile(1));
        match raw_mincore(first, PAGES * GRAIN, map.as_mut_ptr()) {
            0 if map.iter().any(|byte| byte & 1 == 0) => {}
            _ => found |= TELLS,
        }
        let middle = madvise(first.byte_add(GRAIN), 2 * GRAIN, Advice::LinuxDontNeed);
        let last = map_at(first.byte_add((PAGES - 1) * GRAIN), 1);
        let holds: [u8; PAGES] = std::array::from_fn(|page| byte(first, page).read_volatile());
        // A call that answers with an error promises nothing.
        let middle = if middle.is_ok() { 0 } else { 1 };
        let last = if last.is_ok() { 0 } else { 1 };
        if holds == [1, middle, middle, 1, last] {
            found |= RELEASES;
        }
    }
    found
}

/// # Safety
/// The page lies in memory of the caller's that `first` begins.
unsafe fn byte(first: *mut c_void, page: usize) -> *mut u8 {
    // SAFETY: the caller's promise. In the middle of a page, where a beginning is easily left over.
    unsafe { first.cast::<u8>().add(page * GRAIN + GRAIN / 2) }
}

/// Maps pages: at this address, or anywhere for null.
///
/// # Safety
/// What lies there is the caller's.
unsafe fn map_at(at: *mut c_void, pages: usize) -> rustix::io::Result<*mut c_void> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    let flags = if at.is_null() { flags } else { flags | MapFlags::FIXED };
    // SAFETY: the caller's promise.
    unsafe { mmap_anonymous(at, pages * GRAIN, ProtFlags::READ | ProtFlags::WRITE, flags) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_kernel_keeps_them() {
        assert!(releases_to_zero() && tells_residency());
    }
}
