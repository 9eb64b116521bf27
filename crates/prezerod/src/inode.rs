//! Inodes: how one is made, populated step by step, checked, cut to size and sealed.
//!
//! An inode is born here, empty, and the kernel zeroes every page of it. Its seals tell where
//! it stands, and nobody can take a seal off: **unsealed, it never left the broker; sealed,
//! it was handed out** and is never taken for stock again, not even by a broker that crashed
//! and finds it in the service manager's store.
//!
//! Hugetlb pages are populated by `fallocate`, which clears them and needs no mapping.
//! Transparent ones by writing one zero byte into each 2 MiB and `MADV_COLLAPSE`: the kernel
//! makes one huge page of it and clears the rest, whatever the system-wide settings say. On
//! shared memory `fallocate` would allocate without clearing, and touching would give 4 KiB
//! pages, which cost the client more than no broker at all.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use prezero_sys::shared::SharedMap;
use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals, fstat,
    ftruncate, memfd_create,
};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::protocol::{Backing, Page};

/// What an inode is made of; all inodes of one kind are alike but for their size.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "(u64, u32, u16)", into = "(u64, u32, u16)")]
pub struct Kind {
    /// Page size.
    pub page: Page,
    /// Source of the pages.
    pub backing: Backing,
    /// NUMA node.
    pub node: u16,
}

impl From<Kind> for (u64, u32, u16) {
    fn from(kind: Kind) -> Self {
        (kind.page.bytes(), kind.backing as u32, kind.node)
    }
}

impl From<(u64, u32, u16)> for Kind {
    /// What is unknown becomes transparent 2 MiB pages: only the broker's own processes
    /// speak so to each other.
    fn from((page, backing, node): (u64, u32, u16)) -> Kind {
        Kind {
            page: Page::of(page).unwrap_or(Page::Huge),
            backing: Backing::from_wire(backing).unwrap_or(Backing::Thp),
            node,
        }
    }
}

/// The seals of a lease: nobody can change its size, nor the seals.
const LEASED: SealFlags = SealFlags::GROW.union(SealFlags::SHRINK).union(SealFlags::SEAL);

/// An inode while it is being populated.
#[derive(Debug)]
pub struct Making {
    file: OwnedFd,
    kind: Kind,
    bytes: u64,
    done: u64,
    /// Where `MADV_COLLAPSE` needs an address.
    map: Option<SharedMap>,
}

impl Making {
    /// An empty inode of `bytes`, a multiple of the kind's page.
    ///
    /// # Errors
    /// What the kernel answers: `ENOMEM`, `EMFILE`, `EINVAL` for a page size it lacks.
    pub fn begin(kind: Kind, bytes: u64) -> io::Result<Making> {
        let mut flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        if kind.backing == Backing::Hugetlb {
            flags |= match kind.page {
                Page::Huge => MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB,
                Page::Giant => MemfdFlags::HUGETLB | MemfdFlags::HUGE_1GB,
            };
        }
        let file = memfd_create("prezero", flags)?;
        ftruncate(&file, bytes)?;
        let map = match kind.backing {
            Backing::Hugetlb => None,
            Backing::Thp => Some(SharedMap::new(file.as_fd(), bytes as usize, 2 << 20)?),
        };
        Ok(Making { file, kind, bytes, done: 0, map })
    }

    /// Populates up to `most` more bytes, at least one page. Returns what is left.
    ///
    /// # Errors
    /// `ENOSPC`: the hugetlb pool is empty; `ENOMEM` and others: no huge page could be had.
    pub fn step(&mut self, most: u64) -> io::Result<u64> {
        let page = self.kind.page.bytes();
        let len = (most / page * page).max(page).min(self.bytes - self.done);
        if len > 0 {
            match &self.map {
                None => fallocate(&self.file, FallocateFlags::empty(), self.done, len)?,
                Some(map) => {
                    for at in (self.done..self.done + len).step_by(page as usize) {
                        rustix::io::pwrite(&self.file, &[0], at)?;
                    }
                    map.collapse(self.done as usize, len as usize)?;
                }
            }
        }
        self.done += len;
        Ok(self.bytes - self.done)
    }

    /// The populated inode, no longer mapped here.
    ///
    /// # Errors
    /// Something is missing in it all the same.
    pub fn finish(self) -> io::Result<OwnedFd> {
        drop(self.map);
        if self.done < self.bytes || !is_fresh(self.file.as_fd(), self.bytes) {
            return Err(io::Error::other("the kernel populated less than it said"));
        }
        Ok(self.file)
    }
}

/// Whether this inode has `bytes`, all populated, and was never handed out.
pub fn is_fresh(file: BorrowedFd<'_>, bytes: u64) -> bool {
    let unsealed = fcntl_get_seals(file).is_ok_and(|seals| seals.is_empty());
    let whole = fstat(file)
        .is_ok_and(|stat| stat.st_size as u64 == bytes && stat.st_blocks as u64 * 512 >= bytes);
    unsealed && whole
}

/// Cuts the inode to `bytes`: the rest goes back to the kernel.
///
/// # Errors
/// What `ftruncate` answers.
pub fn trim(file: BorrowedFd<'_>, bytes: u64) -> Result<(), Errno> {
    ftruncate(file, bytes)
}

/// Seals the inode, so that it is a lease. Returns its inode number.
///
/// # Errors
/// `EPERM` when it was sealed before: it belongs to somebody.
pub fn seal(file: BorrowedFd<'_>) -> Result<u64, Errno> {
    fcntl_add_seals(file, LEASED)?;
    Ok(fstat(file)?.st_ino)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Host;

    const MIB: u64 = 1 << 20;

    /// A populated inode, or `None` where this kernel makes no transparent huge pages.
    fn made(bytes: u64) -> Option<OwnedFd> {
        let kind = Kind { page: Page::Huge, backing: Backing::Thp, node: 0 };
        Host::new("/").thp().then(|| {
            let mut making = Making::begin(kind, bytes).unwrap();
            while making.step(4 * MIB).unwrap() > 0 {}
            making.finish().unwrap()
        })
    }

    #[test]
    fn a_populated_inode_is_fresh_until_it_is_sealed_and_cannot_be_sealed_twice() {
        let Some(file) = made(6 * MIB) else { return };
        assert!(is_fresh(file.as_fd(), 6 * MIB));
        trim(file.as_fd(), 4 * MIB).unwrap();
        assert!(is_fresh(file.as_fd(), 4 * MIB) && !is_fresh(file.as_fd(), 6 * MIB));

        assert!(seal(file.as_fd()).unwrap() > 0);

        assert!(!is_fresh(file.as_fd(), 4 * MIB));
        assert_eq!(seal(file.as_fd()), Err(Errno::PERM));
        assert_eq!(trim(file.as_fd(), 2 * MIB), Err(Errno::PERM));
        assert_eq!(trim(file.as_fd(), 6 * MIB), Err(Errno::PERM));
    }

    #[test]
    fn an_inode_with_a_hole_is_not_fresh() {
        let file = memfd_create("hole", MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&file, 2 * MIB).unwrap();
        assert!(!is_fresh(file.as_fd(), 2 * MIB));
    }

    #[test]
    fn making_that_is_not_done_gives_nothing() {
        let kind = Kind { page: Page::Huge, backing: Backing::Thp, node: 0 };
        let making = Making::begin(kind, 4 * MIB).unwrap();
        assert!(making.finish().is_err());
    }
}
