//! The system calls themselves: libc's functions of these names are this library's here.
//!
//! Each argument is as wide as a register: the kernel reads all of it.

use std::ffi::{CStr, c_char, c_int, c_long, c_void};
use std::io::Write;

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

/// What a descriptor was opened for: `O_ACCMODE` and others. Of none at all, every flag.
pub fn flags(file: c_int) -> c_int {
    // SAFETY: a question to the kernel about a number.
    unsafe { libc::fcntl(file, libc::F_GETFL) }
}

/// `lseek`.
pub fn seek(file: c_int, to: i64, whence: c_int) -> i64 {
    // SAFETY: a question to the kernel about a number.
    unsafe { libc::syscall(libc::SYS_lseek, c_long::from(file), to, c_long::from(whence)) }
}

/// `openat`.
pub fn open_as(folder: c_int, path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int {
    let (folder, flags) = (c_long::from(folder), c_long::from(flags));
    // SAFETY: the caller's path, for the kernel to look at.
    unsafe { libc::syscall(libc::SYS_openat, folder, path, flags, mode as c_long) as c_int }
}

/// Opens a file to read and write; `None`: there is none.
pub fn open(path: &CStr) -> Option<c_int> {
    open_for(path, libc::O_RDWR)
}

fn open_for(path: &CStr, access: c_int) -> Option<c_int> {
    let file = open_as(libc::AT_FDCWD, path.as_ptr(), access | libc::O_CLOEXEC, 0);
    (file >= 0).then_some(file)
}

/// Opens the file of a descriptor anew, to read and write. Nothing here allocates.
pub fn reopened(file: c_int) -> Option<c_int> {
    let mut path = [0; 32];
    write!(&mut path[..31], "/proc/self/fd/{file}").ok()?;
    open(CStr::from_bytes_until_nul(&path).ok()?)
}

/// A mapping of this process.
#[derive(Clone, Copy, Debug)]
pub struct Mapping {
    pub from: usize,
    pub to: usize,
    pub protection: c_int,
    /// `MAP_SHARED` or `MAP_PRIVATE`.
    pub sharing: c_int,
    pub has_file: bool,
}

/// Each mapping as the kernel has it now. Nothing here allocates.
pub fn mappings(mut each: impl FnMut(Mapping)) {
    let Some(file) = open_for(c"/proc/self/maps", libc::O_RDONLY) else { return };
    let (mut text, mut line, mut len) = ([0_u8; 4096], [0; 96], 0);
    loop {
        // SAFETY: room for the answer.
        let read = unsafe {
            libc::syscall(libc::SYS_read, c_long::from(file), text.as_mut_ptr(), text.len())
        };
        let Ok(read @ 1..) = usize::try_from(read) else { break };
        for &byte in &text[..read] {
            if byte == b'\n' {
                if let Some(mapping) = mapping(&line[..len]) {
                    each(mapping);
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

/// The beginning of a line: `7f00-7f01 rw-p 0 00:01 7 `.
fn mapping(line: &[u8]) -> Option<Mapping> {
    let mut words = line.split(|&byte| byte == b' ');
    let (place, rights, inode) = (words.next()?, words.next()?, words.nth(2)?);
    let number = |text| usize::from_str_radix(str::from_utf8(text).ok()?, 16).ok();
    let middle = place.iter().position(|&byte| byte == b'-')?;
    let all = [(b'r', libc::PROT_READ), (b'w', libc::PROT_WRITE), (b'x', libc::PROT_EXEC)];
    let has = rights.iter().zip(all).filter(|(has, (right, _))| **has == *right);
    let is_shared = rights.get(3) == Some(&b's');
    Some(Mapping {
        from: number(&place[..middle])?,
        to: number(&place[middle + 1..])?,
        protection: has.map(|(_, (_, right))| right).sum(),
        sharing: if is_shared { libc::MAP_SHARED } else { libc::MAP_PRIVATE },
        has_file: inode != b"0",
    })
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

/// `fstatat` of a path in a folder; `None`: nothing is there.
pub fn stat_path(folder: c_int, path: &CStr, flags: c_int) -> Option<libc::stat> {
    let mut stat = std::mem::MaybeUninit::uninit();
    let here = c_long::from(folder);
    let flags = c_long::from(flags);
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
