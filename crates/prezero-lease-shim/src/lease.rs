//! The lease that a process inherited: which process takes it, where it is mapped.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::raw;
use rustix::fs::{SeekFrom, fstat, fstatfs, seek};
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_getfd, fcntl_setfd};

/// Where huge pages begin, and what a lease's size is a multiple of.
const HUGE: usize = 2 << 20;
/// The smallest page.
const SMALL: usize = 4096;

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
}

/// Says something once.
pub fn warn(said: &'static OnceLock<()>, what: &str) {
    said.get_or_init(|| prezero_sys::tell!("prezero: claim: {what}"));
}

static TOO_LARGE: OnceLock<()> = OnceLock::new();

impl Lease {
    /// What `prezero claim` left open for this process, or for one that started it.
    pub fn inherited() -> Option<Lease> {
        let number = |name: &str| std::env::var(name).ok()?.parse::<usize>().ok();
        let file = c_int::try_from(number("PREZERO_LEASE_FD")?).ok()?;
        let (bytes, page) = (number("PREZERO_LEASE_BYTES")?, number("PREZERO_LEASE_PAGE")?);
        // SAFETY: only a number to ask the kernel about so far.
        let known = unsafe { libc::fcntl(file, libc::F_GETFD) };
        if file < 0 || known == -1 || !page.is_power_of_two() {
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
        })
    }

    /// Whether that descriptor is of the lease.
    pub fn is(&self, file: c_int) -> bool {
        // SAFETY: borrowed for a question to the kernel, which knows whether it is open.
        let file = unsafe { BorrowedFd::borrow_raw(file) };
        fstat(file).is_ok_and(|stat| (stat.st_dev, stat.st_ino) == (self.device, self.inode))
    }

    /// Takes the lease: true once, for one process of all that inherited it.
    fn take(&self) -> bool {
        if !self.is(self.file.as_raw_fd()) || seek(self.file, SeekFrom::Current(1)) != Ok(1) {
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
        if len <= self.bytes / 2 || flags & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE) != 0 {
            return None;
        }
        if len > self.bytes {
            warn(
                &TOO_LARGE,
                &format!(
                    "{len} bytes of shared memory asked for, the lease has {}; lease more: \
                     prezero claim {}M",
                    self.bytes,
                    len.div_ceil(HUGE) * 2
                ),
            );
            return None;
        }
        let whole = len.next_multiple_of(self.page);
        let room = room(hint, whole, self.page)?;
        if !self.take() {
            unmap(room, whole);
            return None;
        }
        let flags = libc::MAP_SHARED | flags & libc::MAP_POPULATE;
        self.map_into(room, len, protection, flags, self.file.as_raw_fd(), 0)
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
        let map = unsafe { raw::mmap(room, used, protection, flags, file, offset) };
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
    /// no hole was punched.
    pub fn is_whole_up_to(&self, file: c_int, end: i64) -> bool {
        let whole =
            || fstat(self.file).is_ok_and(|stat| stat.st_blocks as usize * 512 >= self.bytes);
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
        let room = room(std::ptr::null_mut(), whole, self.page)?;
        self.map_into(room, len, protection, flags, file, offset)
    }

    /// The lease is mapped there. Of several mappings the first is looked after.
    pub fn mapped(&self, at: *mut c_void, len: usize) {
        let first = self.at.compare_exchange(0, at.addr(), Ordering::Relaxed, Ordering::Relaxed);
        if first.is_ok() {
            self.len.store(len.next_multiple_of(self.grain), Ordering::Relaxed);
        }
    }

    /// Whether the lease is mapped there.
    pub fn holds(&self, at: *mut c_void) -> bool {
        let first = self.at.load(Ordering::Relaxed);
        first != 0 && (first..first + self.len.load(Ordering::Relaxed)).contains(&at.addr())
    }

    /// How much must be unmapped for a program that unmaps this much there.
    pub fn unmapped(&self, at: *mut c_void, len: usize) -> usize {
        let (first, all) = (self.at.load(Ordering::Relaxed), self.len.load(Ordering::Relaxed));
        if first == 0 || at.addr() != first || len.next_multiple_of(self.grain) != all {
            return len;
        }
        self.at.store(0, Ordering::Relaxed);
        all
    }
}

/// Whether its pages are those of a hugetlb pool.
fn is_of_a_pool(file: BorrowedFd<'_>) -> bool {
    /// From the kernel's `magic.h`.
    const HUGETLBFS: u64 = 0x9584_58f6;
    fstatfs(file).is_ok_and(|system| u64::from(system.f_type as u32) == HUGETLBFS)
}

/// Room in the address space that begins at a multiple of the page.
fn room(hint: *mut c_void, len: usize, page: usize) -> Option<*mut c_void> {
    let wide = len.checked_add(page)?;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping wherever the kernel likes.
    let map = unsafe { raw::mmap(hint, wide, libc::PROT_NONE, flags, -1, 0) }?;
    let before = map.addr().next_multiple_of(page) - map.addr();
    let first = map.wrapping_byte_add(before);
    unmap(map, before);
    unmap(first.wrapping_byte_add(len), page - before);
    Some(first)
}

/// Unmaps a part of what `room` has mapped, which no other code has seen.
fn unmap(at: *mut c_void, len: usize) {
    if len > 0 {
        // SAFETY: see above.
        unsafe { raw::munmap(at, len) };
    }
}
