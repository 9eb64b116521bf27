//! Memory that several processes may map: what makes it, and what maps it.
//!
//! Inodes (`memfd`) come from rustix; here is what needs an address or a number
//! that rustix lacks: shared mappings at an alignment, `MADV_COLLAPSE`, memory policy by
//! node. Offsets and lengths are in bytes.

use std::ffi::c_int;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap};
use rustix::path::Arg;

use super::reservation::{GRAIN, Reservation};
use crate::errno::last_error;

/// Since Linux 6.1; in no crate yet.
const MADV_COLLAPSE: c_int = 25;
const MPOL_BIND: c_int = 2;
/// Nodes that a policy may name.
const MAX_NODES: usize = 1024;

/// A memfd that can be sealed and cannot be executed, as `vm.memfd_noexec` may demand.
///
/// # Errors
/// What `memfd_create` answers.
pub fn memfd(name: impl Arg + Copy, more: MemfdFlags) -> Result<OwnedFd, Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | more;
    match memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        // Linux 6.3 is the first that knows the flag.
        Err(Errno::INVAL) => memfd_create(name, flags),
        made => made,
    }
}

/// A shared, readable and writable mapping of a file, unmapped on drop.
///
/// Like [`Reservation`] it hands out its address and no slice: other processes may map the
/// same bytes.
#[derive(Debug)]
pub struct SharedMap {
    range: Reservation,
}

impl SharedMap {
    /// Maps the first `len` bytes of `file` at a multiple of `align` bytes.
    ///
    /// # Errors
    /// What [`Reservation::new`] answers for the range, and `mmap` for the file: `NOMEM` also
    /// where hugetlb pages are to be reserved and there are none.
    pub fn new(file: BorrowedFd<'_>, len: usize, align: usize) -> Result<SharedMap, Errno> {
        let range = Reservation::new(len, align)?;
        let (protection, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::FIXED);
        // SAFETY: replaces exactly the reservation's own pages, which no other code has seen; the
        // reservation unmaps whatever lies there when it is dropped.
        unsafe { mmap(range.base().as_ptr().cast(), len, protection, flags, file, 0) }?;
        Ok(SharedMap { range })
    }

    /// The first byte; a multiple of the alignment asked for.
    pub fn base(&self) -> NonNull<u8> {
        self.range.base()
    }

    /// Bytes in the mapping.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Never true: an empty mapping cannot be made.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Makes one page in each `every` bytes resident and writable, by a write that changes
    /// nothing. `every` is a multiple of 4 KiB.
    ///
    /// Touching past the end of the file, or where the kernel has no page left, kills the
    /// process (`SIGBUS`).
    pub fn touch(&self, offset: usize, len: usize, every: usize) {
        for at in (offset..offset + len).step_by(every) {
            // SAFETY: all of the range is mapped.
            unsafe { self.range.populate(at, GRAIN) };
        }
    }

    /// Asks for huge pages from now on: where `shmem_enabled` says `advise` the first fault brings one.
    ///
    /// # Errors
    /// `INVAL` from a kernel without transparent huge pages.
    pub fn advise_huge(&self) -> Result<(), Errno> {
        self.range.advise_huge(0, self.len())
    }

    /// As [`touch`](SharedMap::touch), with an answer instead of a signal where there is no page.
    ///
    /// # Errors
    /// What `MADV_POPULATE_WRITE` answers, and what is resident stays: `NOMEM`, `FAULT` past
    /// the end of the file, `INVAL` before Linux 5.14.
    pub fn enter(&self, offset: usize, len: usize, every: usize) -> Result<(), Errno> {
        let first = self.part(offset, len);
        for at in (0..len).step_by(every) {
            // SAFETY: one page inside this mapping, checked by `part`; content stays.
            unsafe { madvise(first.add(at).cast(), GRAIN, Advice::LinuxPopulateWrite) }?;
        }
        Ok(())
    }

    /// The address of `offset`, once `offset..offset+len` is known to lie in the mapping.
    fn part(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(offset <= self.len() && len <= self.len() - offset, "outside the mapping");
        // SAFETY: inside this mapping, checked above.
        unsafe { self.base().as_ptr().add(offset) }
    }

    /// Backs the range with huge pages, now, whatever the system-wide settings for them say
    /// (except `deny`). Each huge page's worth needs a page that is resident already.
    ///
    /// # Errors
    /// `INVAL`: no page of some part is resident, or the kernel is older than 6.1 or has no
    /// huge pages; `NOMEM`, `AGAIN`, `BUSY`: none could be had now.
    pub fn collapse(&self, offset: usize, len: usize) -> Result<(), Errno> {
        let first = self.part(offset, len);
        // SAFETY: inside this mapping, checked by `part`; content stays.
        let done = unsafe { libc::madvise(first.cast(), len, MADV_COLLAPSE) };
        if done == 0 { Ok(()) } else { Err(last_error()) }
    }
}

/// Private anonymous memory that other code never sees.
#[derive(Debug)]
pub struct PrivateMap {
    range: Reservation,
}

impl PrivateMap {
    /// `len` bytes, absent, in pages as the machine gives them.
    ///
    /// # Errors
    /// What [`Reservation::new`] answers.
    pub fn new(len: usize) -> Result<PrivateMap, Errno> {
        Ok(PrivateMap { range: Reservation::new(len, GRAIN)? })
    }

    /// Makes all of it resident and writable in one call.
    ///
    /// # Errors
    /// What `MADV_POPULATE_WRITE` answers.
    pub fn populate(&self) -> Result<(), Errno> {
        let first = self.range.base().as_ptr().cast();
        // SAFETY: the whole of this mapping, which no other code sees; content stays.
        unsafe { madvise(first, self.range.len(), Advice::LinuxPopulateWrite) }
    }
}

/// Takes the calling thread's memory from one node only.
///
/// # Errors
/// `INVAL` for a node without memory, `NOSYS` from a kernel without NUMA.
pub fn bind_memory(node: usize) -> Result<(), Errno> {
    const WORD: usize = u64::BITS as usize;
    let mut mask = [0u64; MAX_NODES / WORD];
    *mask.get_mut(node / WORD).ok_or(Errno::INVAL)? |= 1 << (node % WORD);
    // SAFETY: the kernel reads MAX_NODES bits of the mask (it takes one off the count).
    let done =
        unsafe { libc::syscall(libc::SYS_set_mempolicy, MPOL_BIND, mask.as_ptr(), MAX_NODES + 1) };
    if done == 0 { Ok(()) } else { Err(last_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use std::os::fd::AsFd;

    const MIB: usize = 1 << 20;

    fn file(len: usize) -> OwnedFd {
        let file = memfd_create("shared-test", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, len as u64).unwrap();
        file
    }

    #[test]
    fn a_mapping_shows_the_file_and_lies_at_its_alignment() {
        let file = file(4 * MIB);
        let map = SharedMap::new(file.as_fd(), 4 * MIB, 2 * MIB).unwrap();
        assert_eq!(map.base().as_ptr().addr() % (2 * MIB), 0);
        assert_eq!(rustix::io::pwrite(&file, b"x", 3 * MIB as u64), Ok(1));
        // SAFETY: mapped, and written by the line above only.
        assert_eq!(unsafe { map.base().add(3 * MIB).read() }, b'x');
    }

    #[test]
    fn touched_pages_are_resident_and_still_zero() {
        let file = file(4 * MIB);
        let map = SharedMap::new(file.as_fd(), 4 * MIB, 2 * MIB).unwrap();
        map.touch(0, 4 * MIB, MIB);
        let blocks = rustix::fs::fstat(&file).unwrap().st_blocks as usize * 512;
        assert!(blocks >= 4 * 4096, "{blocks} bytes");
        let mut byte = [7u8];
        assert_eq!(rustix::io::pread(&file, &mut byte, MIB as u64), Ok(1));
        assert_eq!(byte, [0]);
    }

    #[test]
    fn collapse_makes_all_of_it_resident_where_the_kernel_can() {
        let file = file(4 * MIB);
        let map = SharedMap::new(file.as_fd(), 4 * MIB, 2 * MIB).unwrap();
        map.touch(0, 4 * MIB, 2 * MIB);
        match map.collapse(0, 4 * MIB) {
            Ok(()) => {
                assert_eq!(rustix::fs::fstat(&file).unwrap().st_blocks as usize * 512, 4 * MIB);
            }
            Err(Errno::INVAL | Errno::NOMEM | Errno::AGAIN | Errno::BUSY) => {}
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn enter_makes_what_it_names_resident_or_says_why_not() {
        let file = file(4 * MIB);
        let map = SharedMap::new(file.as_fd(), 8 * MIB, 2 * MIB).unwrap();
        assert_eq!(map.enter(0, 4 * MIB, 2 * MIB), Ok(()));
        let resident = rustix::fs::fstat(&file).unwrap().st_blocks as usize * 512;
        // More than two small pages where the kernel takes huge ones by itself.
        assert!(resident >= 2 * 4096, "{resident}");
        let past = map.enter(4 * MIB, 2 * MIB, 2 * MIB);
        assert_eq!(past, Err(Errno::FAULT));
    }

    #[test]
    #[should_panic(expected = "outside the mapping")]
    fn enter_past_the_end_panics() {
        let file = file(2 * MIB);
        let map = SharedMap::new(file.as_fd(), 2 * MIB, 2 * MIB).unwrap();
        let _ = map.enter(2 * MIB, 2 * MIB, 2 * MIB);
    }

    #[test]
    #[should_panic(expected = "outside the mapping")]
    fn collapse_past_the_end_panics() {
        let file = file(2 * MIB);
        let map = SharedMap::new(file.as_fd(), 2 * MIB, 2 * MIB).unwrap();
        let _ = map.collapse(2 * MIB, 2 * MIB);
    }

    #[test]
    fn memory_of_a_node_that_cannot_exist_is_refused() {
        assert_eq!(bind_memory(MAX_NODES), Err(Errno::INVAL));
    }
}
