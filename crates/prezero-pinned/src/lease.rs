//! The lease, as one process holds parts of it: one file, or with `--each` a file for each rank, one behind the other.
//!
//! A process opens each file anew: an open file description of its own. A part that it uses is locked there
//! (`F_OFD_SETLK`), shared, so that all processes that map a part hold it. To cut a part is to lock it exclusively first,
//! which fails while any process holds a page of it. The kernel lets the locks go with the process, however it ends.

use std::ffi::{CString, c_int, c_short, c_void};
use std::os::fd::BorrowedFd;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, Ordering};

use crate::raw;

/// Where descriptors of this library begin: beyond the numbers that programs choose.
const FIRST: c_int = 500;

/// All files as one range of bytes. A part may span files; no page does.
#[derive(Debug)]
pub struct Lease {
    files: Vec<File>,
    /// Bytes of each.
    each: usize,
}

impl Lease {
    /// Of files of that many bytes.
    pub fn of(files: Vec<File>, each: usize) -> Option<Lease> {
        let fits = |file: &File| {
            raw::stat(file.number()).is_some_and(|stat| stat.st_size as usize == each)
        };
        (!files.is_empty() && each > 0 && files.iter().all(fits)).then_some(Lease { files, each })
    }

    pub fn bytes(&self) -> usize {
        self.each * self.files.len()
    }

    pub fn files(&self) -> &[File] {
        &self.files
    }

    /// Where a part is looked for: in the rank's own file, in the others, and across all.
    pub fn places(&self, rank: usize) -> impl Iterator<Item = (usize, usize)> {
        let count = self.files.len();
        let of = move |at: usize| {
            let number = (rank + at) % count;
            (number * self.each, (number + 1) * self.each)
        };
        (0..count).map(of).chain((count > 1).then_some((0, self.bytes())))
    }

    /// The pieces of a range: a file, an offset in it, and bytes.
    pub fn pieces(&self, from: usize, len: usize) -> impl Iterator<Item = (&File, usize, usize)> {
        let (mut at, end) = (from, (from + len).min(self.bytes()));
        std::iter::from_fn(move || {
            (at < end).then(|| {
                let (file, begin) = (&self.files[at / self.each], at % self.each);
                let len = (self.each - begin).min(end - at);
                at += len;
                (file, begin, len)
            })
        })
    }

    /// Locks a part. `Err`: where the part of another process ends that is in the way.
    pub fn cut(&self, from: usize, len: usize) -> Result<(), usize> {
        let mut done = 0;
        for (file, begin, piece) in self.pieces(from, len) {
            if let Err(end) = file.cut(begin, piece) {
                self.release(from, done);
                return Err(from + done - begin + end);
            }
            done += piece;
        }
        Ok(())
    }

    /// Holds a part that another process holds.
    pub fn hold(&self, from: usize, len: usize) -> bool {
        let mut pieces = self.pieces(from, len);
        pieces.all(|(file, begin, len)| hold(file.number(), begin, len))
    }

    /// Lets a part go.
    pub fn release(&self, from: usize, len: usize) {
        self.pieces(from, len).for_each(|(file, begin, len)| file.release(begin, len));
    }

    /// Maps a part at an address. `None`: some of it may be mapped.
    ///
    /// # Safety
    /// As for `mmap(2)` with `MAP_FIXED`, which `flags` have.
    pub unsafe fn map(
        &self,
        at: *mut c_void,
        len: usize,
        protection: c_int,
        flags: c_int,
        offset: usize,
    ) -> Option<*mut c_void> {
        let mut done = 0;
        for (file, begin, piece) in self.pieces(offset, len) {
            let to = at.wrapping_byte_add(done);
            // SAFETY: the caller's.
            unsafe { raw::mmap(to, piece, protection, flags, file.number(), begin as i64)? };
            done += piece;
        }
        Some(at)
    }

    /// Clears bytes by mappings of their own, in whole pages: the program's may be read only.
    pub fn clear(&self, page: usize, from: usize, len: usize) -> bool {
        let mut pieces = self.pieces(from, len);
        pieces.all(|(file, begin, len)| clear(file, page, begin, len))
    }
}

/// An open file description of this process.
#[derive(Debug)]
pub struct File {
    number: AtomicI32,
    /// The description that a child of fork goes on with; -1: no fork is on its way.
    child: AtomicI32,
}

impl File {
    /// Opens what lies at this path.
    pub fn open(path: &str) -> Option<File> {
        let number = high(raw::open(&CString::new(path).ok()?)?);
        Some(File { number: AtomicI32::new(number), child: AtomicI32::new(-1) })
    }

    /// Its number; -1: none.
    pub fn number(&self) -> c_int {
        self.number.load(Ordering::Relaxed)
    }

    /// For a question about it.
    pub fn borrowed(&self) -> BorrowedFd<'_> {
        // SAFETY: open for as long as this value, which names it.
        unsafe { BorrowedFd::borrow_raw(self.number()) }
    }

    /// Before a fork: a second description of the same file, for the child. An allocator may hold its locks:
    /// nothing here allocates.
    pub fn before_fork(&self) {
        let child = raw::reopened(self.number()).map_or(-1, high);
        self.child.store(child, Ordering::Relaxed);
    }

    /// Has the child hold a part from its beginning.
    pub fn hold_for_child(&self, from: usize, len: usize) {
        hold(self.child.load(Ordering::Relaxed), from, len);
    }

    /// After a fork, in the process that forked.
    pub fn after_fork(&self) {
        let child = self.child.swap(-1, Ordering::Relaxed);
        if child >= 0 {
            raw::close(child);
        }
    }

    /// After a fork, in the child: goes on with its own description.
    pub fn in_child(&self) {
        let own = self.child.swap(-1, Ordering::Relaxed);
        let before = self.number.swap(own, Ordering::Relaxed);
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
fn hold(file: c_int, from: usize, len: usize) -> bool {
    lock(file, libc::F_RDLCK, from, len, Wait::No)
}

/// The same descriptor with a high number.
fn high(file: c_int) -> c_int {
    // SAFETY: a descriptor of this library's.
    let high = unsafe { libc::fcntl(file, libc::F_DUPFD_CLOEXEC, FIRST) };
    if high < 0 {
        return file;
    }
    raw::close(file);
    high
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
fn clear(file: &File, page: usize, from: usize, len: usize) -> bool {
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
