//! The lease that a process inherited: which process takes it, where it is mapped.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use prezero_sys::mapping::{self, is_of_a_pool, room};
use rustix::fs::{SeekFrom, fstat, seek};
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_getfd, fcntl_setfd};

use crate::said;

/// Where huge pages begin, and what a lease's size is a multiple of.
const HUGE: usize = 2 << 20;
/// The smallest page.
const SMALL: usize = 4096;

/// What `prezero claim` left for this process, or for one that started it.
#[derive(Debug)]
pub enum Inherited {
    /// A lease.
    Lease(Lease),
    /// A lease that did not come along.
    Lost(Lost),
    /// Nothing.
    Nothing,
}

/// See the module.
#[derive(Debug)]
pub struct Lease {
    file: BorrowedFd<'static>,
    bytes: usize,
    page: usize,
    /// What the kernel rounds the length of a mapping up to: pages of a pool are not cut.
    grain: usize,
    device: u64,
    inode: u64,
    /// Where it is mapped, and how long; 0: nowhere.
    at: AtomicUsize,
    len: AtomicUsize,
    /// Whether it answered a request for shared memory of this process.
    answered: AtomicBool,
    /// Whether its descriptor is closed here.
    closed: AtomicBool,
}

/// A lease whose descriptor is not open in this process.
#[derive(Debug)]
pub struct Lost {
    number: usize,
    bytes: usize,
}

impl Lost {
    /// Whether this much shared memory is what the lease was for.
    pub fn is_for(&self, len: usize) -> bool {
        is_for(self.bytes, len)
    }

    /// Says that the process asks for it, and gets the kernel's memory.
    pub fn missed(&self) {
        said::LOST.say(format_args!(
            "the lease does not reach this process, whose memory is the kernel's: descriptor {0} is \
             closed here, by the parent or since another program has the lease; in Python: \
             subprocess.run(..., pass_fds=[{0}])",
            self.number
        ));
    }
}

/// Whether shared memory of this length is what a lease of `lease` bytes was made for: more than
/// half of it, and not more than it.
fn is_for(bytes: usize, len: usize) -> bool {
    len > bytes / 2 && len <= bytes
}

/// A number that `prezero claim` left in the environment.
fn number(name: &str) -> Option<usize> {
    std::env::var(name).ok()?.parse().ok()
}

impl Inherited {
    /// Looks for it.
    pub fn look() -> Inherited {
        let (Some(number), Some(bytes)) =
            (number("PREZERO_LEASE_FD"), number("PREZERO_LEASE_BYTES"))
        else {
            return Inherited::Nothing;
        };
        Lease::of(number, bytes).map_or(Inherited::Lost(Lost { number, bytes }), Inherited::Lease)
    }
}

impl Lease {
    /// The lease that is open here by this number.
    fn of(file: usize, bytes: usize) -> Option<Lease> {
        let (file, page) = (c_int::try_from(file).ok()?, number("PREZERO_LEASE_PAGE")?);
        // SAFETY: only a number to ask the kernel about so far.
        let known = unsafe { libc::fcntl(file, libc::F_GETFD) };
        if known == -1 || !page.is_power_of_two() {
            return None;
        }
        // SAFETY: open; `prezero claim` left it open for programs with this library, and a
        // program closes no descriptor that it knows nothing of. One that closes them all
        // is noticed wherever the file is used, by its inode number.
        let file = unsafe { BorrowedFd::borrow_raw(file) };
        let stat = fstat(file).ok()?;
        let whole = stat.st_size as usize == bytes && bytes.is_multiple_of(page) && bytes > 0;
        whole.then_some(Lease {
            file,
            bytes,
            page,
            grain: if is_of_a_pool(file) { page } else { SMALL },
            device: stat.st_dev,
            inode: stat.st_ino,
            at: AtomicUsize::new(0),
            len: AtomicUsize::new(0),
            answered: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        })
    }

    /// Whether this much shared memory is what the lease was made for.
    pub fn is_for(&self, len: usize) -> bool {
        is_for(self.bytes, len)
    }

    /// Says that no process has used the lease, if this is the program that `prezero claim` became.
    pub fn end(&self) {
        let own = number("PREZERO_LEASE_PID") == usize::try_from(std::process::id()).ok();
        if own && self.is_open() && seek(self.file, SeekFrom::Current(0)) == Ok(0) {
            said::UNUSED.say(format_args!(
                "the lease of {} MiB was never used: no process that this library reaches mapped it; \
                 TRAPS in prezero-claim(1) has the reasons",
                self.bytes >> 20
            ));
        }
    }

    /// Whether that descriptor is of the lease.
    pub fn is(&self, file: c_int) -> bool {
        // SAFETY: borrowed for a question to the kernel, which knows whether it is open.
        let file = unsafe { BorrowedFd::borrow_raw(file) };
        fstat(file).is_ok_and(|stat| (stat.st_dev, stat.st_ino) == (self.device, self.inode))
    }

    /// Whether the inherited descriptor is still this lease's.
    fn is_open(&self) -> bool {
        !self.closed.load(Ordering::Relaxed) && self.is(self.file.as_raw_fd())
    }

    /// Takes the lease: true once, for one process of all that inherited it.
    fn take(&self) -> bool {
        if !self.is_open() || seek(self.file, SeekFrom::Current(1)) != Ok(1) {
            return false;
        }
        // It is this program's from now on, not that of programs which it starts.
        let flags = fcntl_getfd(self.file).unwrap_or(FdFlags::empty());
        let _ = fcntl_setfd(self.file, flags | FdFlags::CLOEXEC);
        true
    }

    /// Takes it as a file; `None`: it is taken.
    pub fn take_as_file(&self) -> Option<c_int> {
        if !self.take() {
            return None;
        }
        fcntl_dupfd_cloexec(self.file, 3).ok().map(IntoRawFd::into_raw_fd)
    }

    /// Takes it as shared memory, if this much is what it was leased for.
    pub fn take_as_memory(
        &self,
        hint: *mut c_void,
        len: usize,
        protection: c_int,
        flags: c_int,
    ) -> Option<*mut c_void> {
        if flags & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE) != 0 {
            return None;
        }
        if len > self.bytes {
            said::TOO_LARGE.say(format_args!(
                "{len} bytes of shared memory asked for, the lease has {}; lease more: \
                 prezero claim {}M",
                self.bytes,
                len.div_ceil(HUGE) * 2
            ));
        }
        if !self.is_for(len) {
            return None;
        }
        if self.closed.load(Ordering::Relaxed) {
            said::GIVEN_BACK.say(
                "the lease was unmapped, and is given back; the shared memory asked for now is the \
                 kernel's",
            );
            return None;
        }
        let whole = len.next_multiple_of(self.page);
        let room = room(hint.addr(), whole, self.page)?;
        if !self.take() {
            unmap(room, whole);
            return None;
        }
        let flags = libc::MAP_SHARED | flags & libc::MAP_POPULATE;
        let map = self.map_into(room, len, protection, flags, self.file.as_raw_fd(), 0);
        self.answered.store(map.is_some(), Ordering::Relaxed);
        map
    }

    /// Maps it at the beginning of `room`, which has whole pages for it; what is left goes.
    fn map_into(
        &self,
        room: *mut c_void,
        len: usize,
        protection: c_int,
        flags: c_int,
        file: c_int,
        offset: i64,
    ) -> Option<*mut c_void> {
        let (whole, used) = (len.next_multiple_of(self.page), len.next_multiple_of(self.grain));
        let flags = flags | libc::MAP_FIXED;
        // SAFETY: replaces a part of what `room` made, which no other code has seen.
        let map = unsafe { mapping::mmap(room, used, protection, flags, file, offset) };
        match map {
            Some(map) => {
                unmap(room.wrapping_byte_add(used), whole - used);
                self.mapped(map, used);
            }
            None => unmap(room, whole),
        }
        map
    }

    /// Whether this is a descriptor of the lease, which has that much, and all of it resident:
    /// no hole was punched. Ordinary memory in the lease's place comes page by page, as the heap that
    /// it stands for would.
    pub fn is_whole_up_to(&self, file: c_int, end: i64) -> bool {
        let resident =
            || fstat(self.file).is_ok_and(|stat| stat.st_blocks as usize * 512 >= self.bytes);
        let whole = || self.page < HUGE || resident();
        usize::try_from(end).is_ok_and(|end| end <= self.bytes) && self.is(file) && whole()
    }

    /// Maps it where one of its pages may begin: elsewhere each of 4 KiB would take a fault.
    /// `None`: the kernel may try as it was asked.
    pub fn map_at_a_page(
        &self,
        len: usize,
        protection: c_int,
        flags: c_int,
        file: c_int,
        offset: i64,
    ) -> Option<*mut c_void> {
        let fixed = libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE;
        if flags & fixed != 0 || len < self.page || !(offset as usize).is_multiple_of(self.page) {
            return None;
        }
        let whole = len.checked_next_multiple_of(self.page)?;
        let room = room(0, whole, self.page)?;
        self.map_into(room, len, protection, flags, file, offset)
    }

    /// The lease is mapped there. Of several mappings the first is looked after.
    pub fn mapped(&self, at: *mut c_void, len: usize) {
        let first = self.at.compare_exchange(0, at.addr(), Ordering::Relaxed, Ordering::Relaxed);
        if first.is_ok() {
            self.len.store(len.next_multiple_of(self.grain), Ordering::Relaxed);
            // No other process may take it for zero from now on.
            if self.is_open() {
                let _ = seek(self.file, SeekFrom::Current(1));
            }
        }
    }

    /// Whether the lease is mapped there.
    pub fn holds(&self, at: *mut c_void) -> bool {
        let first = self.at.load(Ordering::Relaxed);
        first != 0 && (first..first + self.len.load(Ordering::Relaxed)).contains(&at.addr())
    }

    /// How much must be unmapped for a program that unmaps all of the lease there; `None`: it does not.
    pub fn unmapped(&self, at: *mut c_void, len: usize) -> Option<usize> {
        let (first, all) = (self.at.load(Ordering::Relaxed), self.len.load(Ordering::Relaxed));
        if first == 0 || at.addr() != first || len.next_multiple_of(self.grain) != all {
            return None;
        }
        self.at.store(0, Ordering::Relaxed);
        Some(all)
    }

    /// Lets go of a lease that answered this process, after it was unmapped. The kernel frees the
    /// memory with the last mapping and descriptor, of children too.
    pub fn give_back(&self) {
        if self.answered.load(Ordering::Relaxed)
            && self.is_open()
            && !self.closed.swap(true, Ordering::Relaxed)
        {
            // SAFETY: the descriptor is the lease's, and nothing here uses it from now on: `closed`.
            unsafe { libc::close(self.file.as_raw_fd()) };
        }
    }
}

/// Unmaps what `room` has mapped, which no other code has seen.
fn unmap(at: *mut c_void, len: usize) {
    // SAFETY: see above.
    unsafe { mapping::unmap(at, len) };
}
