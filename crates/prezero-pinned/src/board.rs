//! What all processes of a lease know together, in memory that they share: which pages were used, which files in `/dev/shm`
//! are parts of the lease, and how much of it served what.
//!
//! `prezero claim` makes an empty file; the first process that comes gives it its size. Zero is a good beginning for all of it.

use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

use crate::lease::File;
use crate::raw;

/// What a request was made by. The first is zero: so begins memory of the kernel.
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

/// A file that is a part of the lease, or that never becomes one.
#[derive(Clone, Copy, Default, Debug)]
#[repr(C)]
pub struct Bound {
    pub device: u64,
    /// 0: no entry.
    pub inode: u64,
    pub offset: usize,
    /// 0: a program has mapped the file itself, and goes on to.
    pub len: usize,
    /// The file's, when the kernel was asked last.
    pub size: usize,
    pub unlinked: usize,
}

/// The most files that are known at a time.
pub const FILES: usize = 1024;

#[repr(C)]
struct Shared {
    /// Bytes that each [`Kind`] asked for and got.
    served: [AtomicU64; KINDS.len()],
    /// Bytes that did not fit.
    missed: AtomicU64,
    /// Bytes that a program registered, and that are not of the lease.
    registered: AtomicU64,
    /// How many files were ever bound; 0: no look at `files` is needed.
    bound: AtomicU64,
    /// 1: a file that was mapped found no entry, so none becomes a part any more.
    is_full: AtomicU64,
    /// Pages whose content is unknown.
    used: AtomicU64,
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

    fn states(&self) -> &[AtomicU8] {
        // SAFETY: within the mapping, see above.
        unsafe { std::slice::from_raw_parts(self.at.add(PAGES_AT).cast(), self.pages) }
    }

    /// The last page of these that may hold something.
    pub fn last_used(&self, from: usize, to: usize) -> Option<usize> {
        (from..to).rev().find(|&page| self.states()[page].load(Relaxed) == USED)
    }

    /// Whether that many pages may hold nothing.
    pub fn may_have_zero(&self, pages: usize) -> bool {
        pages as u64 + self.shared().used.load(Relaxed) <= self.pages as u64
    }

    /// Notes that a page is handed out.
    pub fn hand_out(&self, page: usize) {
        let before = self.states()[page].swap(USED, Relaxed);
        self.shared().used.fetch_add(u64::from(before != USED), Relaxed);
    }

    /// Notes that a page is cleared.
    pub fn cleared(&self, page: usize) {
        let before = self.states()[page].swap(CLEARED, Relaxed);
        self.shared().used.fetch_sub(u64::from(before == USED), Relaxed);
    }

    /// How many pages were ever handed out.
    pub fn handed_out(&self) -> usize {
        self.states().iter().filter(|page| page.load(Relaxed) != 0).count()
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

    /// Counts what a program registers of its own memory.
    pub fn count_registered(&self, bytes: usize) {
        self.shared().registered.fetch_add(bytes as u64, Relaxed);
    }

    /// See above.
    pub fn registered(&self) -> u64 {
        self.shared().registered.load(Relaxed)
    }

    /// Whether a file may be a part of the lease: without a system call.
    pub fn has_files(&self) -> bool {
        self.shared().bound.load(Relaxed) > 0
    }

    /// Looks at all entries, or changes them, while no other process does: the caller has the arena's lock.
    pub fn with_files<R>(&self, work: impl FnOnce(&mut [Bound; FILES]) -> R) -> R {
        self.file.alone(|| {
            // SAFETY: mapped; other processes stay out by the lock, other threads by the arena's.
            work(unsafe { &mut (*self.at.cast::<Shared>()).files })
        })
    }

    /// The file that begins at this offset of the lease.
    pub fn file_at(&self, offset: usize) -> Option<Bound> {
        let of = |each: &&Bound| each.len > 0 && each.offset == offset;
        self.with_files(|files| files.iter().find(of).copied())
    }

    /// Adds a file that is not known; `false`: it is, or there is no room.
    pub fn bind(&self, file: Bound) -> bool {
        let shared = self.shared();
        let (is_known, done) = self.with_files(|files| {
            let same = |each: &Bound| (each.device, each.inode) == (file.device, file.inode);
            if files.iter().any(same) {
                return (true, false);
            }
            let free = files.iter_mut().find(|each| each.inode == 0);
            let is_open = file.len == 0 || shared.is_full.load(Relaxed) == 0;
            (false, is_open && free.map(|free| *free = file).is_some())
        });
        shared.bound.fetch_add(u64::from(done && file.len > 0), Relaxed);
        if !is_known && !done && file.len == 0 {
            shared.is_full.store(1, Relaxed);
        }
        done
    }

    /// The name of a file is gone: an entry that keeps it as it is, is not needed any more.
    pub fn unlinked(&self, device: u64, inode: u64) {
        self.with_files(|files| {
            let same = |each: &&mut Bound| (each.device, each.inode) == (device, inode);
            for each in files.iter_mut().filter(same) {
                each.unlinked = 1;
                if each.len == 0 {
                    *each = Bound::default();
                }
            }
        });
    }

    /// This range of the lease becomes another thing: files that were there are no part of it. `Err`: where a file ends
    /// that has its name, or that is in use, and so its content here.
    pub fn recut(
        &self,
        from: usize,
        len: usize,
        is_in_use: impl Fn(&Bound) -> bool,
    ) -> Result<(), usize> {
        if !self.has_files() {
            return Ok(());
        }
        let is_there = |each: &Bound| each.offset < from + len && from < each.offset + each.len;
        self.with_files(|files| {
            for each in files.iter_mut().filter(|each| is_there(each)) {
                if each.unlinked == 0 || is_in_use(each) {
                    return Err(each.offset + each.len);
                }
                *each = Bound::default();
            }
            Ok(())
        })
    }

    /// A part of the lease that a file is, whose size the kernel has told. `cut_off` hears that it is smaller than it was, and
    /// says how much of it is the lease's from now on.
    pub fn sized(
        &self,
        stat: &libc::stat,
        cut_off: impl FnOnce(&Bound, usize) -> usize,
    ) -> Option<Bound> {
        self.with_files(|files| {
            let same = |each: &&mut Bound| (each.device, each.inode) == (stat.st_dev, stat.st_ino);
            let each = files.iter_mut().find(same).filter(|each| each.len > 0)?;
            let size = stat.st_size as usize;
            if size < each.size.min(each.len) {
                each.len = cut_off(each, size);
            }
            each.size = size;
            (each.len > 0).then_some(*each)
        })
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
