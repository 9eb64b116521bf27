//! The file of the lease, as one process holds parts of it.
//!
//! A process opens the lease anew: an open file description of its own. A part that it uses is locked there
//! (`F_OFD_SETLK`), shared, so that all processes that map a part hold it. To cut a part is to lock it exclusively first,
//! which fails while any process holds a page of it. The kernel lets the locks go with the process, however it ends.

use std::ffi::{CStr, CString, c_int, c_short};
use std::io::Write;
use std::os::fd::BorrowedFd;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, Ordering};

use crate::raw;

/// Where descriptors of this library begin: beyond the numbers that programs choose.
const FIRST: c_int = 500;

/// An open file description of this process.
#[derive(Debug)]
pub struct File(AtomicI32);

impl File {
    /// Opens what lies at this path.
    pub fn open(path: &str) -> Option<File> {
        Some(File(AtomicI32::new(reopened(&CString::new(path).ok()?)?)))
    }

    /// Its number; -1: none.
    pub fn number(&self) -> c_int {
        self.0.load(Ordering::Relaxed)
    }

    /// For a question about it.
    pub fn borrowed(&self) -> BorrowedFd<'_> {
        // SAFETY: open for as long as this value, which names it.
        unsafe { BorrowedFd::borrow_raw(self.number()) }
    }

    /// A second description of the same file; -1: the kernel has none. Before a fork an allocator may hold its locks:
    /// nothing here allocates.
    pub fn again(&self) -> c_int {
        let mut path = [0; 32];
        if write!(&mut path[..31], "/proc/self/fd/{}", self.number()).is_err() {
            return -1;
        }
        CStr::from_bytes_until_nul(&path).ok().and_then(reopened).unwrap_or(-1)
    }

    /// Goes on with another description, and closes this one.
    pub fn become_other(&self, other: c_int) {
        let before = self.0.swap(other, Ordering::Relaxed);
        if before >= 0 {
            raw::close(before);
        }
    }

    /// Locks a part. `Err`: where the part of another process ends that is in the way.
    pub fn cut(&self, from: usize, len: usize) -> Result<(), usize> {
        if lock(self.number(), libc::F_WRLCK, from, len, Wait::No) {
            // Others that map it hold it too.
            lock(self.number(), libc::F_RDLCK, from, len, Wait::No);
            return Ok(());
        }
        Err(in_the_way(self.number(), from, len).unwrap_or(from))
    }

    /// Holds a part that another process holds.
    pub fn hold(&self, from: usize, len: usize) -> bool {
        hold(self.number(), from, len)
    }

    /// Lets a part go.
    pub fn release(&self, from: usize, len: usize) {
        lock(self.number(), libc::F_UNLCK, from, len, Wait::No);
    }

    /// Runs `work` while no other process does, by a lock on the first byte.
    pub fn alone<R>(&self, work: impl FnOnce() -> R) -> R {
        lock(self.number(), libc::F_WRLCK, 0, 1, Wait::Yes);
        let result = work();
        lock(self.number(), libc::F_UNLCK, 0, 1, Wait::No);
        result
    }
}

/// Holds a part by a description.
pub fn hold(file: c_int, from: usize, len: usize) -> bool {
    lock(file, libc::F_RDLCK, from, len, Wait::No)
}

/// Opens a path, with a high number.
fn reopened(path: &CStr) -> Option<c_int> {
    let file = raw::open(path)?;
    // SAFETY: a descriptor of this library's.
    let high = unsafe { libc::fcntl(file, libc::F_DUPFD_CLOEXEC, FIRST) };
    if high < 0 {
        return Some(file);
    }
    raw::close(file);
    Some(high)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Wait {
    Yes,
    No,
}

fn described(kind: c_int, from: usize, len: usize) -> libc::flock {
    libc::flock {
        l_type: kind as c_short,
        l_whence: libc::SEEK_SET as c_short,
        l_start: from as i64,
        l_len: len as i64,
        l_pid: 0,
    }
}

fn lock(file: c_int, kind: c_int, from: usize, len: usize, wait: Wait) -> bool {
    let mut lock = described(kind, from, len);
    let how = if wait == Wait::Yes { libc::F_OFD_SETLKW } else { libc::F_OFD_SETLK };
    // SAFETY: a lock of the kernel's form.
    while unsafe { libc::fcntl(file, how, &raw mut lock) } != 0 {
        let again = std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted;
        if !again || wait == Wait::No {
            return false;
        }
    }
    true
}

/// Where a lock ends that keeps this part from being cut.
fn in_the_way(file: c_int, from: usize, len: usize) -> Option<usize> {
    let mut lock = described(libc::F_WRLCK, from, len);
    // SAFETY: a lock of the kernel's form, and room for its answer.
    let done = unsafe { libc::fcntl(file, libc::F_OFD_GETLK, &raw mut lock) };
    let found = done == 0 && c_int::from(lock.l_type) != libc::F_UNLCK;
    found.then(|| (lock.l_start + lock.l_len) as usize)
}

/// Clears bytes of a file by a mapping of its own, in whole pages: the program's may be read only.
pub fn clear(file: &File, page: usize, from: usize, len: usize) -> bool {
    let first = from - from % page;
    let whole = (from + len).next_multiple_of(page) - first;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping wherever the kernel likes.
    let map = unsafe {
        raw::mmap(null_mut(), whole, protection, libc::MAP_SHARED, file.number(), first as i64)
    };
    let Some(map) = map else { return false };
    // SAFETY: within the mapping; the program's own view of these bytes is memory that it gave up.
    unsafe { map.byte_add(from - first).cast::<u8>().write_bytes(0, len) };
    // SAFETY: made above.
    unsafe { raw::munmap(map, whole) };
    true
}
