//! Inodes: how one is made, populated step by step, checked, cut to size and sealed.
//!
//! An inode is born here, empty, and the kernel zeroes every page of it. Its seals tell where
//! it stands, and no process can take a seal off: **with its size unsealed it never left the broker;
//! sealed, it was handed out** and is never taken for stock again, not even by a broker that crashed
//! and finds it in the service manager's store.
//!
//! Hugetlb pages are populated by `fallocate`, which clears them and needs no mapping.
//! Transparent ones by writing one zero byte into each 2 MiB and `MADV_COLLAPSE`: the kernel
//! makes one huge page of it and clears the rest, whatever the system-wide settings say. On
//! shared memory `fallocate` would allocate without clearing, and touching would give 4 KiB
//! pages, which cost the client more than no broker at all.

pub mod audit;
pub mod mounted;
pub mod named;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use prezero_sys::shared::{SharedMap, memfd};
use rustix::fs::{
    FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags, fallocate, fchmod, fcntl_add_seals,
    fcntl_get_seals, fstat, ftruncate, openat,
};
use rustix::io::{Errno, retry_on_intr};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount,
    fsopen,
};
use serde::{Deserialize, Serialize};

use crate::protocol::{Backing, Page};
use crate::tenant::Payer;

use named::LeaseDir;

/// What an inode is made of; all inodes of one kind are alike but for their size.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Kind {
    /// Page size.
    pub page: Page,
    /// Source of the pages.
    pub backing: Backing,
    /// NUMA node.
    pub node: u16,
    /// Whose cgroup is charged.
    pub payer: Payer,
}

impl Kind {
    /// The same pages, whatever cgroup is charged.
    pub fn unpaid(self) -> Kind {
        Kind { payer: Payer::BROKER, ..self }
    }
}

/// The name of leases in `/proc/PID/maps`.
const NAME: &str = "prezero";

/// The seals of a lease: its size cannot change, nor the seals.
const LEASED: SealFlags = SealFlags::GROW.union(SealFlags::SHRINK).union(SealFlags::SEAL);

/// What the kernel answers for a file of a file system, which takes no seals.
const UNSEALABLE: SealFlags = SealFlags::SEAL;

/// Instead of seals, which the kernel has for memfds only: the permissions of a file that
/// never left the broker, and of one that did. Such files are never stored with the service
/// manager, so none can come back.
const FRESH: Mode = Mode::RUSR.union(Mode::WUSR);
const HANDED_OUT: Mode =
    FRESH.union(Mode::RGRP).union(Mode::WGRP).union(Mode::ROTH).union(Mode::WOTH);

/// An inode while it is being populated.
#[derive(Debug)]
pub struct Making {
    file: OwnedFd,
    /// Its file system, where it has one of its own: that is handed on.
    mount: Option<OwnedFd>,
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
    /// What the kernel answers: `ENOMEM`, `EMFILE`, `EINVAL` for a page size it shortage.
    pub fn begin(kind: Kind, bytes: u64) -> io::Result<Making> {
        let file = match (kind.backing, kind.page) {
            (Backing::Thp, _) => memfd(NAME, MemfdFlags::empty())?,
            (Backing::Hugetlb, page) => {
                let size = match page {
                    Page::Huge => MemfdFlags::HUGE_2MB,
                    Page::Giant => MemfdFlags::HUGE_1GB,
                };
                memfd(NAME, MemfdFlags::HUGETLB | size)?
            }
            (Backing::Tmpfs, _) => tmpfs_file(bytes)?,
        };
        Making::of(file, kind, bytes)
    }

    /// The same as the file of a file system of its own, as those of a place are.
    ///
    /// # Errors
    /// The same.
    pub fn begin_in(place: &LeaseDir, kind: Kind, bytes: u64) -> io::Result<Making> {
        let mount = mounted::create(place.backing, place.page, bytes)?;
        let file = mounted::begin(mount.as_fd(), FRESH)?;
        Ok(Making { mount: Some(mount), ..Making::of(file, kind, bytes)? })
    }

    fn of(file: OwnedFd, kind: Kind, bytes: u64) -> io::Result<Making> {
        ftruncate(&file, bytes)?;
        let map = match kind.backing {
            Backing::Hugetlb => None,
            Backing::Thp | Backing::Tmpfs => {
                Some(SharedMap::new(file.as_fd(), bytes as usize, 2 << 20)?)
            }
        };
        if let Some(map) = map.as_ref().filter(|_| kind.backing == Backing::Thp) {
            // Where it is heard, a fault clears a huge page, in 0.85 of the time that it takes to
            // make one of a small page; where not, collapsing tells what is wrong.
            let _ = map.advise_huge();
        }
        Ok(Making { file, mount: None, kind, bytes, done: 0, map })
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
                // A filler that is stopped and goes on has been interrupted; what it has stays.
                None => retry_on_intr(|| {
                    fallocate(&self.file, FallocateFlags::empty(), self.done, len)
                })?,
                Some(map) if self.kind.backing == Backing::Tmpfs => {
                    map.touch(self.done as usize, len as usize, page as usize);
                }
                Some(map) => {
                    let (at, len) = (self.done as usize, len as usize);
                    retry_on_intr(|| map.enter(at, len, page as usize))?;
                    map.collapse(at, len)?;
                }
            }
        }
        self.done += len;
        Ok(self.bytes - self.done)
    }

    /// The populated inode, no longer mapped here, or its file system.
    ///
    /// # Errors
    /// Something is missing in it all the same.
    pub fn finish(self) -> io::Result<OwnedFd> {
        drop(self.map);
        if self.done < self.bytes || !is_fresh(self.file.as_fd(), self.bytes) {
            // A tmpfs takes small pages where it finds no huge one.
            return Err(Errno::NOMEM.into());
        }
        Ok(self.mount.unwrap_or(self.file))
    }
}

/// A file without a name on a tmpfs of its own, which is mounted nowhere and has room for it
/// alone. Both go with its last user.
fn tmpfs_file(bytes: u64) -> Result<OwnedFd, Errno> {
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&context, "huge", "always")?;
    fsconfig_set_string(&context, "size", bytes.to_string())?;
    fsconfig_create(&context)?;
    let hardened = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let mount = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, hardened)?;
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    openat(&mount, ".", flags, FRESH)
}

/// Whether this inode has `bytes`, all populated, and was never handed out.
pub fn is_fresh(inode: BorrowedFd<'_>, bytes: u64) -> bool {
    let Ok(inside) = mounted::file(inode) else { return false };
    let file = inside.as_ref().map_or(inode, AsFd::as_fd);
    let (Ok(stat), Ok(seals)) = (fstat(file), fcntl_get_seals(file)) else { return false };
    let unused = match seals {
        UNSEALABLE => Mode::from_raw_mode(stat.st_mode) == FRESH,
        seals => !seals.intersects(LEASED),
    };
    unused && stat.st_size as u64 == bytes && stat.st_blocks as u64 * 512 >= bytes
}

/// Cuts the inode to `bytes`: the rest goes back to the kernel.
///
/// # Errors
/// What `ftruncate` answers.
pub fn truncate(inode: BorrowedFd<'_>, bytes: u64) -> Result<(), Errno> {
    match mounted::file(inode)? {
        None => ftruncate(inode, bytes),
        Some(file) => {
            ftruncate(file, bytes)?;
            mounted::shrink(inode, bytes)
        }
    }
}

/// Seals the inode, so that it is a lease. Returns its inode number.
///
/// # Errors
/// `EPERM` when it was sealed before: it belongs to a client.
pub fn seal(inode: BorrowedFd<'_>) -> Result<u64, Errno> {
    let inside = mounted::file(inode)?;
    let file = inside.as_ref().map_or(inode, AsFd::as_fd);
    let stat = fstat(file)?;
    match fcntl_get_seals(file)? {
        UNSEALABLE if Mode::from_raw_mode(stat.st_mode) != FRESH => return Err(Errno::PERM),
        // As with a memfd, a process with the descriptor may open it again.
        UNSEALABLE => fchmod(file, HANDED_OUT)?,
        _ => fcntl_add_seals(file, LEASED)?,
    }
    Ok(stat.st_ino)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Host;
    use prezero_testing::until;

    const MIB: u64 = 1 << 20;

    /// A populated inode, or `None` where this kernel makes no transparent huge pages or this
    /// user may mount nothing.
    fn made(bytes: u64, backing: Backing) -> Option<OwnedFd> {
        let kind = Kind { page: Page::Huge, backing, node: 0, payer: Payer::BROKER };
        if !Host::new("/").thp() {
            return None;
        }
        let mut making = match Making::begin(kind, bytes) {
            Err(error) if error.raw_os_error() == Some(Errno::PERM.raw_os_error()) => return None,
            making => making.unwrap(),
        };
        // The kernel may lack a page for a moment, as `filler::retries` knows.
        while until("a huge page", || making.step(4 * MIB)) > 0 {}
        Some(making.finish().unwrap())
    }

    #[test]
    fn a_populated_inode_is_fresh_until_it_is_sealed_and_cannot_be_sealed_twice() {
        for backing in [Backing::Thp, Backing::Tmpfs] {
            let Some(file) = made(6 * MIB, backing) else { continue };
            let fresh = |mib: u64| is_fresh(file.as_fd(), mib * MIB);
            assert!(fresh(6));
            truncate(file.as_fd(), 4 * MIB).unwrap();
            assert!(fresh(4) && !fresh(6));

            assert!(seal(file.as_fd()).unwrap() > 0);

            assert!(!fresh(4));
            assert_eq!(seal(file.as_fd()), Err(Errno::PERM));
        }
    }

    #[test]
    fn nobody_changes_the_size_of_a_lease_that_can_be_sealed() {
        let Some(file) = made(4 * MIB, Backing::Thp) else { return };
        seal(file.as_fd()).unwrap();
        assert_eq!(truncate(file.as_fd(), 2 * MIB), Err(Errno::PERM));
        assert_eq!(truncate(file.as_fd(), 6 * MIB), Err(Errno::PERM));
    }

    #[test]
    fn an_inode_with_a_hole_is_not_fresh() {
        let file = memfd("hole", MemfdFlags::empty()).unwrap();
        ftruncate(&file, 2 * MIB).unwrap();
        assert!(!is_fresh(file.as_fd(), 2 * MIB));
    }

    #[test]
    fn making_that_is_not_done_gives_nothing() {
        let kind = Kind { page: Page::Huge, backing: Backing::Thp, node: 0, payer: Payer::BROKER };
        let making = Making::begin(kind, 4 * MIB).unwrap();
        assert!(making.finish().is_err());
    }
}
