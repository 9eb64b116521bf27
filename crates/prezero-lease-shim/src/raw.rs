//! The system calls themselves: libc's functions of these names are this library's here.
//!
//! Each argument is as wide as a register, because what is narrower leaves the rest of it to
//! chance in a call of `syscall`, and the kernel reads all of it.

use std::ffi::{c_int, c_long, c_void};

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
    // SAFETY: the caller's.
    let map = unsafe { libc::syscall(libc::SYS_mmap, at, len, protection, flags, file, offset) };
    (map != -1).then(|| std::ptr::with_exposed_provenance_mut(map as usize))
}

/// `munmap`.
///
/// # Safety
/// As for `munmap(2)`.
pub unsafe fn munmap(at: *mut c_void, len: usize) -> c_int {
    // SAFETY: the caller's.
    unsafe { libc::syscall(libc::SYS_munmap, at, len) as c_int }
}

/// `madvise`.
///
/// # Safety
/// As for `madvise(2)`.
pub unsafe fn madvise(at: *mut c_void, len: usize, advice: c_int) -> c_int {
    // SAFETY: the caller's.
    unsafe { libc::syscall(libc::SYS_madvise, at, len, c_long::from(advice)) as c_int }
}
