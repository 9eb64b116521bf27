//! Mappings, for libraries that stand in front of libc: its functions of these names are theirs there.
//!
//! The calls go by libc's `syscall`, so `errno` says what went wrong, as the program expects. Each argument is as wide as a
//! register, because what is narrower leaves the rest of it to chance, and the kernel reads all of it.

use std::ffi::{c_int, c_long, c_void};
use std::os::fd::AsFd;

/// The smallest page, which lengths of mappings are rounded up to.
const SMALL: usize = 4096;

/// A tmpfs, by the type that `statfs` tells.
pub const TMPFS: u64 = 0x0102_1994;
/// A hugetlbfs, likewise: files of a pool.
pub const HUGETLBFS: u64 = 0x9584_58f6;

/// `mmap`; `None`: `errno` says why not.
///
/// # Safety
/// As for `mmap(2)`.
pub unsafe fn mmap(
    at: *mut c_void,
    len: usize,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: i64,
) -> Option<*mut c_void> {
    let (protection, flags) = (c_long::from(protection), c_long::from(flags));
    let file = c_long::from(file);
    // SAFETY: the caller's promise for `mmap(2)`.
    let map = unsafe { libc::syscall(libc::SYS_mmap, at, len, protection, flags, file, offset) };
    (map != -1).then(|| std::ptr::with_exposed_provenance_mut(map as usize))
}

/// `munmap`.
///
/// # Safety
/// As for `munmap(2)`.
pub unsafe fn munmap(at: *mut c_void, len: usize) -> c_int {
    // SAFETY: the caller's promise for `munmap(2)`.
    unsafe { libc::syscall(libc::SYS_munmap, at, len) as c_int }
}

/// `madvise`.
///
/// # Safety
/// As for `madvise(2)`.
pub unsafe fn madvise(at: *mut c_void, len: usize, advice: c_int) -> c_int {
    // SAFETY: the caller's promise for `madvise(2)`.
    unsafe { libc::syscall(libc::SYS_madvise, at, len, c_long::from(advice)) as c_int }
}

/// Room in the address space that begins at a multiple of `page`, near the address `hint` unless that is 0; `None`:
/// `errno` says why not.
pub fn room(hint: usize, len: usize, page: usize) -> Option<*mut c_void> {
    let (len, page) = (len.checked_next_multiple_of(SMALL)?, page.max(SMALL));
    let wide = len.checked_add(page)?;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let hint = std::ptr::without_provenance_mut(hint);
    // SAFETY: a new mapping wherever the kernel likes.
    let map = unsafe { mmap(hint, wide, libc::PROT_NONE, flags, -1, 0) }?;
    let before = map.addr().next_multiple_of(page) - map.addr();
    let first = map.wrapping_byte_add(before);
    // SAFETY: both ends of the new mapping, which no other code has seen.
    unsafe {
        unmap(map, before);
        unmap(first.wrapping_byte_add(len), page - before);
    }
    Some(first)
}

/// Unmaps a part of what [`room`] has mapped; nothing of no bytes.
///
/// # Safety
/// No other code uses these addresses.
pub unsafe fn unmap(at: *mut c_void, len: usize) {
    if len > 0 {
        // SAFETY: the caller's promise that the addresses are its own.
        unsafe { munmap(at, len) };
    }
}

/// Whether a file's pages are those of a hugetlb pool.
pub fn is_of_a_pool(file: impl AsFd) -> bool {
    rustix::fs::fstatfs(file).is_ok_and(|system| u64::from(system.f_type as u32) == HUGETLBFS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_begins_at_a_page_and_has_no_more_than_was_asked_for() {
        for page in [1, SMALL, 2 << 20] {
            let (len, page) = (3 * SMALL - 1, page.max(SMALL));
            let room = room(0, len, page).unwrap();
            assert!(room.addr().is_multiple_of(page));
            let (end, flags) = (3 * SMALL, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            let both = libc::PROT_READ | libc::PROT_WRITE;
            // SAFETY: into the room of this test, and of it alone.
            unsafe {
                let map = mmap(room, end, both, flags | libc::MAP_FIXED, -1, 0).unwrap();
                map.cast::<u8>().add(end - 1).write(1);
                unmap(map, end);
                unmap(map, 0);
            }
        }
        assert!(room(0, usize::MAX, SMALL).is_none());
    }

    #[test]
    fn ordinary_memory_is_of_no_pool() {
        let file = rustix::fs::memfd_create("ordinary", rustix::fs::MemfdFlags::empty()).unwrap();
        assert!(!is_of_a_pool(file));
    }
}
