//! What all processes of a lease know together, in memory that they share: which pages were used, which files in `/dev/shm`
//! are parts of the lease, and how much of it served what.
//!
//! `prezero claim` makes an empty file; the first process that comes gives it its size. Zero is a good beginning for all of it.

use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

use crate::lease::File;
use crate::raw;

/// What a request was made by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Kind {
    /// `cudaHostAlloc` and its kin.
    Alloc,
    /// `mmap(MAP_PRIVATE | MAP_ANONYMOUS)`.
    Private,
    /// `mmap(MAP_SHARED | MAP_ANONYMOUS)`.
    Shared,
    /// A file in `/dev/shm`.
    File,
}

/// Each, as the last line names it.
pub const KINDS: [&str; 4] = ["pinned allocations", "private memory", "shared memory", "/dev/shm"];

impl Kind {
    /// Whether a child of fork must not see it.
    pub fn is_private(self) -> bool {
        matches!(self, Kind::Alloc | Kind::Private)
    }
}

/// A file that is a part of the lease. `len` 0: no entry.
#[derive(Clone, Copy, Default, Debug)]
#[repr(C)]
pub struct Bound {
    pub device: u64,
    pub inode: u64,
    pub offset: usize,
    pub len: usize,
    pub unlinked: usize,
}

/// The most files that are parts of a lease at a time.
const FILES: usize = 256;

#[repr(C)]
struct Shared {
    /// Bytes that each [`Kind`] asked for and got.
    served: [AtomicU64; KINDS.len()],
    /// Bytes that did not fit.
    missed: AtomicU64,
    /// How many files were ever bound; 0: no look at `files` is needed.
    bound: AtomicU64,
    files: [Bound; FILES],
}

/// Where the pages' states begin.
const PAGES_AT: usize = size_of::<Shared>().next_multiple_of(4096);

/// A page that was handed out: its content is unknown.
const USED: u8 = 1;
/// A page that was handed out, and cleared since.
const CLEARED: u8 = 2;

/// See the module.
#[derive(Debug)]
pub struct Board {
    pub file: File,
    at: *mut u8,
    pages: usize,
}

// SAFETY: all in the mapping is atomic, or behind the lock of the file.
unsafe impl Send for Board {}
// SAFETY: the same.
unsafe impl Sync for Board {}

impl Board {
    /// Maps it.
    pub fn of(file: File, pages: usize) -> Option<Board> {
        let len = PAGES_AT + pages;
        if raw::stat(file.number())?.st_size < len as i64
            && raw::ftruncate(file.number(), len as i64) != 0
        {
            return None;
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping wherever the kernel likes.
        let at =
            unsafe { raw::mmap(null_mut(), len, protection, libc::MAP_SHARED, file.number(), 0)? };
        Some(Board { file, at: at.cast(), pages })
    }

    fn shared(&self) -> &Shared {
        // SAFETY: mapped for the life of the process, page-aligned, and large enough.
        unsafe { &*self.at.cast::<Shared>() }
    }

    fn page(&self, number: usize) -> &AtomicU8 {
        assert!(number < self.pages);
        // SAFETY: within the mapping, see above.
        unsafe { &*self.at.add(PAGES_AT + number).cast::<AtomicU8>() }
    }

    /// The first page of these that may hold something.
    pub fn first_used(&self, from: usize, to: usize) -> Option<usize> {
        (from..to).find(|&page| self.page(page).load(Relaxed) == USED)
    }

    /// Notes that these pages are handed out; or that they are cleared.
    pub fn hand_out(&self, from: usize, to: usize) {
        (from..to).for_each(|page| self.page(page).store(USED, Relaxed));
    }

    /// See above.
    pub fn cleared(&self, from: usize, to: usize) {
        (from..to).for_each(|page| self.page(page).store(CLEARED, Relaxed));
    }

    /// How many pages were ever handed out.
    pub fn handed_out(&self) -> usize {
        (0..self.pages).filter(|&page| self.page(page).load(Relaxed) != 0).count()
    }

    /// Counts a request.
    pub fn count(&self, kind: Kind, bytes: usize) {
        self.shared().served[kind as usize].fetch_add(bytes as u64, Relaxed);
    }

    /// Counts a request that did not fit.
    pub fn count_missed(&self, bytes: usize) {
        self.shared().missed.fetch_add(bytes as u64, Relaxed);
    }

    /// Bytes by kind, and those that did not fit.
    pub fn counts(&self) -> ([u64; KINDS.len()], u64) {
        let shared = self.shared();
        (std::array::from_fn(|kind| shared.served[kind].load(Relaxed)), shared.missed.load(Relaxed))
    }

    /// Whether a file may be a part of the lease: without a system call.
    pub fn has_files(&self) -> bool {
        self.shared().bound.load(Relaxed) > 0
    }

    /// Looks at all entries, or changes them, while no other process does.
    fn with_files<R>(&self, work: impl FnOnce(&mut [Bound; FILES]) -> R) -> R {
        self.file.alone(|| {
            // SAFETY: mapped; other processes stay out by the lock, other threads by the arena's.
            work(unsafe { &mut (*self.at.cast::<Shared>()).files })
        })
    }

    /// The part of the lease that this file is.
    pub fn find(&self, device: u64, inode: u64) -> Option<Bound> {
        self.with_files(|files| {
            files
                .iter()
                .find(|each| each.len > 0 && each.device == device && each.inode == inode)
                .copied()
        })
    }

    /// The file that this byte of the lease is of.
    pub fn file_at(&self, offset: usize) -> Option<Bound> {
        let of = |each: &&Bound| (each.offset..each.offset + each.len).contains(&offset);
        self.with_files(|files| files.iter().find(of).copied())
    }

    /// Adds a file; `false`: there is no room.
    pub fn bind(&self, file: Bound) -> bool {
        let done = self.with_files(|files| {
            let free = files.iter_mut().find(|each| each.len == 0);
            free.map(|free| *free = file).is_some()
        });
        self.shared().bound.fetch_add(u64::from(done), Relaxed);
        done
    }

    /// The name of a file is gone.
    pub fn unlinked(&self, device: u64, inode: u64) {
        self.with_files(|files| {
            let same = |each: &&mut Bound| each.device == device && each.inode == inode;
            files.iter_mut().filter(same).for_each(|each| each.unlinked = 1);
        });
    }

    /// This part of the lease is another thing from now on: files that were there are no part of it.
    pub fn recut(&self, offset: usize, len: usize) {
        if self.has_files() {
            self.with_files(|files| {
                for each in files.iter_mut() {
                    if each.len > 0 && each.offset < offset + len && offset < each.offset + each.len
                    {
                        *each = Bound::default();
                    }
                }
            });
        }
    }
}

/// Opens a descriptor that `prezero claim` left: inherited, or of the program that it became, whose number is `process`.
pub fn inherited(number: c_int, process: usize, inode: u64) -> Option<File> {
    let places = [format!("/proc/self/fd/{number}"), format!("/proc/{process}/fd/{number}")];
    places.iter().find_map(|place| {
        let file = File::open(place)?;
        let same = raw::stat(file.number()).is_some_and(|stat| stat.st_ino == inode);
        if !same {
            raw::close(file.number());
        }
        same.then_some(file)
    })
}
