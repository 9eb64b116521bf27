//! The system calls themselves: libc's functions of these names are this library's here.
//!
//! Each argument is as wide as a register: the kernel reads all of it.

use std::ffi::{CStr, c_int, c_long, c_void};

use prezero_sys::mapping::TMPFS;
pub use prezero_sys::mapping::{madvise, mmap, munmap};

/// `mremap`; `None`: `errno` says why not.
///
/// # Safety
/// As for `mremap(2)`.
pub unsafe fn mremap(
    at: *mut c_void,
    len: usize,
    new: usize,
    flags: c_int,
    to: *mut c_void,
) -> Option<*mut c_void> {
    // SAFETY: the caller's.
    let map = unsafe { libc::syscall(libc::SYS_mremap, at, len, new, c_long::from(flags), to) };
    (map != -1).then(|| std::ptr::with_exposed_provenance_mut(map as usize))
}

/// `ftruncate`.
pub fn ftruncate(file: c_int, len: i64) -> c_int {
    // SAFETY: a question to the kernel about a number.
    unsafe { libc::syscall(libc::SYS_ftruncate, c_long::from(file), len) as c_int }
}

/// Opens a file to read and write; `None`: there is none.
pub fn open(path: &CStr) -> Option<c_int> {
    let (here, flags) = (c_long::from(libc::AT_FDCWD), libc::O_RDWR | libc::O_CLOEXEC);
    // SAFETY: a path that ends in NUL.
    let file =
        unsafe { libc::syscall(libc::SYS_openat, here, path.as_ptr(), c_long::from(flags), 0) };
    c_int::try_from(file).ok().filter(|&file| file >= 0)
}

/// Closes a descriptor of this library's.
pub fn close(file: c_int) {
    // SAFETY: a descriptor that nothing else uses.
    unsafe { libc::syscall(libc::SYS_close, c_long::from(file)) };
}

/// `fstat`; `None`: not a descriptor.
pub fn stat(file: c_int) -> Option<libc::stat> {
    let mut stat = std::mem::MaybeUninit::uninit();
    // SAFETY: room for the answer, which has the kernel's form on both machines.
    let done = unsafe { libc::syscall(libc::SYS_fstat, c_long::from(file), stat.as_mut_ptr()) };
    // SAFETY: the kernel filled it.
    (done == 0).then(|| unsafe { stat.assume_init() })
}

/// `lstat`; `None`: nothing is there.
pub fn stat_path(path: &CStr) -> Option<libc::stat> {
    let mut stat = std::mem::MaybeUninit::uninit();
    let here = c_long::from(libc::AT_FDCWD);
    let flags = c_long::from(libc::AT_SYMLINK_NOFOLLOW);
    // SAFETY: a path that ends in NUL, and room for the answer.
    let done = unsafe {
        libc::syscall(libc::SYS_newfstatat, here, path.as_ptr(), stat.as_mut_ptr(), flags)
    };
    // SAFETY: the kernel filled it.
    (done == 0).then(|| unsafe { stat.assume_init() })
}

/// Whether a path lies on a tmpfs.
pub fn is_tmpfs(path: &CStr) -> bool {
    let mut system = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: a path that ends in NUL, and room for the answer.
    let done = unsafe { libc::syscall(libc::SYS_statfs, path.as_ptr(), system.as_mut_ptr()) };
    // SAFETY: the kernel filled it.
    done == 0 && unsafe { system.assume_init() }.f_type as u64 == TMPFS
}

/// Sets `errno`, and returns what a system call returns with it.
pub fn fail(error: c_int) -> c_int {
    // SAFETY: this thread's own.
    unsafe { *libc::__errno_location() = error };
    -1
}
