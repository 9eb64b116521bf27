//! The system calls themselves: libc's functions of these names are this library's here.
//!
//! Each argument is as wide as a register: the kernel reads all of it.

use std::ffi::{CStr, c_char, c_int, c_long, c_void};

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

/// `truncate`.
pub fn truncate(path: *const c_char, len: i64) -> c_int {
    // SAFETY: the caller's path, for the kernel to look at.
    unsafe { libc::syscall(libc::SYS_truncate, path, len) as c_int }
}

/// Whether a descriptor was opened to write.
pub fn may_write(file: c_int) -> bool {
    // SAFETY: a question to the kernel about a number.
    let flags = unsafe { libc::fcntl(file, libc::F_GETFL) };
    flags >= 0 && flags & libc::O_ACCMODE != libc::O_RDONLY
}

/// Opens a file to read and write; `None`: there is none.
pub fn open(path: &CStr) -> Option<c_int> {
    open_for(path, libc::O_RDWR)
}

fn open_for(path: &CStr, access: c_int) -> Option<c_int> {
    let (here, flags) = (c_long::from(libc::AT_FDCWD), access | libc::O_CLOEXEC);
    // SAFETY: a path that ends in NUL.
    let file =
        unsafe { libc::syscall(libc::SYS_openat, here, path.as_ptr(), c_long::from(flags), 0) };
    c_int::try_from(file).ok().filter(|&file| file >= 0)
}

/// Each mapping of this process as the kernel has it now: its addresses and its protection. Nothing here allocates.
pub fn mappings(mut each: impl FnMut(usize, usize, c_int)) {
    let Some(file) = open_for(c"/proc/self/maps", libc::O_RDONLY) else { return };
    let (mut text, mut line, mut len) = ([0_u8; 4096], [0; 64], 0);
    loop {
        // SAFETY: room for the answer.
        let read = unsafe {
            libc::syscall(libc::SYS_read, c_long::from(file), text.as_mut_ptr(), text.len())
        };
        let Ok(read @ 1..) = usize::try_from(read) else { break };
        for &byte in &text[..read] {
            if byte == b'\n' {
                if let Some((from, to, protection)) = mapping(&line[..len]) {
                    each(from, to, protection);
                }
                len = 0;
            } else if len < line.len() {
                line[len] = byte;
                len += 1;
            }
        }
    }
    close(file);
}

/// The beginning of a line: `7f00-7f01 rw-p`.
fn mapping(line: &[u8]) -> Option<(usize, usize, c_int)> {
    let mut words = line.split(|byte| b" -".contains(byte));
    let mut number = || usize::from_str_radix(str::from_utf8(words.next()?).ok()?, 16).ok();
    let (from, to) = (number()?, number()?);
    let rights = line.iter().position(|&byte| byte == b' ').and_then(|at| line.get(at + 1..at + 4))?;
    let all = [(b'r', libc::PROT_READ), (b'w', libc::PROT_WRITE), (b'x', libc::PROT_EXEC)];
    let rights = rights.iter().zip(all).filter(|(has, (right, _))| **has == *right);
    Some((from, to, rights.map(|(_, (_, right))| right).sum()))
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

/// `lstat` of a path in a folder; `None`: nothing is there.
pub fn stat_path(folder: c_int, path: &CStr) -> Option<libc::stat> {
    let mut stat = std::mem::MaybeUninit::uninit();
    let here = c_long::from(folder);
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

/// `errno`.
pub fn error() -> c_int {
    // SAFETY: this thread's own.
    unsafe { *libc::__errno_location() }
}

/// Sets `errno`, and returns what a system call returns with it.
pub fn fail(error: c_int) -> c_int {
    // SAFETY: this thread's own.
    unsafe { *libc::__errno_location() = error };
    -1
}
