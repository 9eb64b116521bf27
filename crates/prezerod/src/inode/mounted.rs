//! The file system of one named lease: of its size, with its one file.
//!
//! A file of a shared file system takes no seals, so a client could grow it into the room of others. A
//! file system of its own bounds it. **It is mounted nowhere until it is leased**: the broker and a filler
//! hold it by a descriptor, and it goes with them. Leased, it is mounted under the lease's name.
//!
//! Removing the file gives the lease back. The kernel counts the file until its last user is gone, and the
//! file system stays mounted and counts as full until then.
//!
//! **What does not carry the broker's marks is never changed**: neither unmounted, nor made smaller, nor removed, nor told
//! of as a lease. A file system's mark is its source in `mountinfo`, that of an empty directory its time.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use prezero_sys::mapping::{HUGETLBFS, TMPFS};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, Timespec, Timestamps, fstat, openat,
    renameat_with, statfs, utimensat,
};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, FsPickFlags, MountAttrFlags, MoveMountFlags, UnmountFlags,
    fsconfig_create, fsconfig_reconfigure, fsconfig_set_string, fsmount, fsopen, fspick,
    move_mount, unmount,
};

use crate::protocol::{Backing, Page};

/// The name of a lease's file in its file system.
pub const FILE: &str = "lease";
/// The source of a lease's file system, which `mountinfo` shows.
/// Fixed: what is mounted outlives the broker.
const SOURCE: &str = "prezero-lease";
/// Files of a lease's file system: the root and the file.
/// Fixed: what is mounted outlives the broker.
const FILES: u64 = 2;
/// When a lease's directory was changed: a time that no clock shows.
/// Fixed: what lies there outlives the broker.
const MARK: Timespec = Timespec { tv_sec: 0x7072_657a, tv_nsec: 112_101_122 };
/// A directory that has no mark yet. No lease has such a name.
/// Fixed: what lies there outlives the broker.
const UNMARKED: &str = ".prezero-place";

/// A new file system with room for one file of `bytes`, mounted nowhere.
///
/// # Errors
/// What the kernel answers; `EPERM` without the right to mount.
pub fn create(backing: Backing, page: Page, bytes: u64) -> Result<OwnedFd, Errno> {
    let pool = backing == Backing::Hugetlb;
    let context = fsopen(if pool { "hugetlbfs" } else { "tmpfs" }, FsOpenFlags::FSOPEN_CLOEXEC)?;
    if pool {
        fsconfig_set_string(&context, "pagesize", page.bytes().to_string())?;
    } else {
        // Where this is heard, a program maps whole huge pages without asking for them.
        let _ = fsconfig_set_string(&context, "huge", "always");
    }
    fsconfig_set_string(&context, "source", SOURCE)?;
    fsconfig_set_string(&context, "size", bytes.to_string())?;
    fsconfig_set_string(&context, "nr_inodes", FILES.to_string())?;
    fsconfig_set_string(&context, "mode", "0755")?;
    fsconfig_create(&context)?;
    let hardened = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, hardened)
}

/// The file of a new file system.
///
/// # Errors
/// What the kernel answers.
pub fn begin(mount: BorrowedFd<'_>, mode: Mode) -> Result<OwnedFd, Errno> {
    openat(mount, FILE, OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC, mode)
}

/// The lease's file, where the descriptor is of its file system; `None`: it is the file itself.
///
/// # Errors
/// The file is gone.
pub fn file(inode: BorrowedFd<'_>) -> Result<Option<OwnedFd>, Errno> {
    if FileType::from_raw_mode(fstat(inode)?.st_mode) != FileType::Directory {
        return Ok(None);
    }
    openat(inode, FILE, OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()).map(Some)
}

/// Gives it a place in a directory, under a name that nothing has.
///
/// # Errors
/// What the kernel answers; `EXIST`: something lies there.
pub fn attach(mount: BorrowedFd<'_>, dir: &Path, name: &str) -> Result<(), Errno> {
    let (at, unmarked) = (dir.join(name), dir.join(UNMARKED));
    remove(&at);
    match rustix::fs::mkdir(&unmarked, 0o755.into()) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error),
    }
    let times = Timestamps { last_access: MARK, last_modification: MARK };
    utimensat(CWD, &unmarked, &times, AtFlags::SYMLINK_NOFOLLOW)?;
    renameat_with(CWD, &unmarked, CWD, &at, RenameFlags::NOREPLACE)?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    move_mount(mount, "", CWD, &at, flags).inspect_err(|_| remove(&at))
}

/// Removes an empty directory that was made for a lease.
fn remove(at: &Path) {
    if is_place(at) {
        let _ = fs::remove_dir(at);
    }
}

fn is_place(at: &Path) -> bool {
    fs::symlink_metadata(at).is_ok_and(|info| {
        info.is_dir() && (info.mtime(), info.mtime_nsec()) == (MARK.tv_sec, MARK.tv_nsec)
    })
}

/// Makes its room smaller. Pools' file systems keep what they were made with.
///
/// # Errors
/// More is used.
pub fn shrink(mount: BorrowedFd<'_>, bytes: u64) -> Result<(), Errno> {
    let flags = FsPickFlags::FSPICK_EMPTY_PATH | FsPickFlags::FSPICK_CLOEXEC;
    let context = fspick(mount, "", flags)?;
    fsconfig_set_string(&context, "size", bytes.to_string())?;
    fsconfig_reconfigure(&context)
}

/// Those that are mounted in a directory, by what they look like: for their room, and not to be changed.
pub fn all(dir: &Path) -> Vec<PathBuf> {
    entries(dir).filter(|at| device(dir, at).is_some()).collect()
}

/// What lies in a directory and carries no mark: no lease has such a name.
pub fn foreign(dir: &Path) -> Vec<PathBuf> {
    entries(dir).filter(|at| !is_lease(dir, at) && !is_place(at)).collect()
}

fn entries(dir: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// The device that is mounted at an entry of a directory, if it may be a lease's.
fn device(dir: &Path, at: &Path) -> Option<u64> {
    // What `read_dir` says of a mount point is what lies below it.
    let (own, info) = (fs::metadata(dir).ok()?, fs::symlink_metadata(at).ok()?);
    let stat = statfs(at).ok().filter(|_| info.is_dir() && info.dev() != own.dev())?;
    let kind = stat.f_type as u64 & 0xffff_ffff;
    (stat.f_files == FILES && [TMPFS, HUGETLBFS].contains(&kind)).then_some(info.dev())
}

/// Whether a lease is mounted at an entry of a directory.
pub fn is_lease(dir: &Path, at: &Path) -> bool {
    device(dir, at).is_some_and(|device| marked().contains(&device))
}

/// Devices of file systems with the mark.
fn marked() -> BTreeSet<u64> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let device = |line: &str| {
        let (place, kind) = line.split_once(" - ")?;
        kind.split(' ').nth(1).filter(|source| *source == SOURCE)?;
        let (major, minor) = place.split(' ').nth(2)?.split_once(':')?;
        Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
    };
    table.lines().filter_map(device).collect()
}

/// Bytes that a mounted one may take; 0: it is gone.
pub fn size(at: &Path) -> u64 {
    statfs(at).map_or(0, |stat| stat.f_blocks.saturating_mul(stat.f_bsize as u64))
}

/// Whether it was given back, and all of it is free.
fn is_over(dir: &Path, at: &Path) -> bool {
    if fs::symlink_metadata(at.join(FILE)).is_ok() || !is_lease(dir, at) {
        return false;
    }
    let Ok(stat) = statfs(at) else { return false };
    if stat.f_files.saturating_sub(stat.f_ffree) <= 1 {
        return true;
    }
    // A process has it open. Without room it can fill nothing.
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(root) = openat(CWD, at, flags, Mode::empty()) else { return false };
    shrink(root.as_fd(), 4096).is_ok() && size(at) <= 4096
}

/// Unmounts what was given back in a directory.
pub fn reap(dir: &Path) {
    for at in all(dir) {
        if is_over(dir, &at) && unmount(&at, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW).is_ok()
        {
            remove(&at);
        }
    }
}

/// Removes what a broker that was killed left in a directory: the place of a lease that is not mounted yet, or no longer.
pub fn clear(dir: &Path) {
    let _ = fs::remove_dir(dir.join(UNMARKED));
    entries(dir).for_each(|at| remove(&at));
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::mount::{MountFlags, mount};

    struct Mounted(PathBuf);

    impl Drop for Mounted {
        fn drop(&mut self) {
            let _ = unmount(&self.0, UnmountFlags::DETACH);
        }
    }

    fn mounted(at: PathBuf, kind: &str, options: &str) -> Option<Mounted> {
        fs::create_dir_all(&at).unwrap();
        let options = std::ffi::CString::new(options).unwrap();
        let done =
            mount(kind, &at, kind, MountFlags::NOSUID | MountFlags::NODEV, options.as_c_str());
        match done {
            Ok(()) => Some(Mounted(at)),
            Err(error) => {
                prezero_sys::tell!("skipped: mounting a {kind}: {error}");
                None
            }
        }
    }

    #[test]
    fn what_carries_no_mark_is_left_alone_and_what_does_is_cleaned_up() {
        let dir = tempfile::tempdir().unwrap();
        let Some(_own) = mounted(dir.path().into(), "tmpfs", "mode=0755") else { return };
        let at = |name: &str| dir.path().join(name);
        let foreign_mounts: Vec<Mounted> = [
            ("empty", "tmpfs", "mode=0755"),
            ("alike", "tmpfs", "mode=0755,nr_inodes=2,size=4M"),
            ("proc", "proc", ""),
            ("sys", "sysfs", ""),
        ]
        .into_iter()
        .filter_map(|(name, kind, options)| mounted(at(name), kind, options))
        .collect();
        let size = |name: &str| size(&at(name));
        let before = size("alike");
        fs::create_dir(at("bare")).unwrap();
        let lease = |name: &str| {
            let mount = create(Backing::Thp, Page::Huge, 4 << 20).unwrap();
            let file = begin(mount.as_fd(), Mode::RUSR).unwrap();
            attach(mount.as_fd(), dir.path(), name).map(|()| file)
        };
        lease("over").unwrap();
        fs::remove_file(at("over/lease")).unwrap();
        let open = lease("open").unwrap();
        fs::remove_file(at("open/lease")).unwrap();
        lease("lives").unwrap();
        lease("place").unwrap();
        unmount(at("place"), UnmountFlags::DETACH).unwrap();
        fs::create_dir(at(UNMARKED)).unwrap();

        for name in ["empty", "alike", "proc", "bare", "lives"] {
            assert_eq!(lease(name).unwrap_err(), Errno::EXIST, "{name}");
        }
        reap(dir.path());
        clear(dir.path());

        let mut left: Vec<_> = entries(dir.path()).collect();
        left.sort();
        let names = ["alike", "bare", "empty", "lives", "proc", "sys"];
        assert_eq!(left, names.map(at));
        assert_eq!(size("alike"), before, "it is made no smaller");
        assert_eq!(all(&at("proc")).len() + all(&at("sys")).len(), 0);
        let mut strangers = foreign(dir.path());
        strangers.sort();
        assert_eq!(strangers, ["alike", "bare", "empty", "proc", "sys"].map(at));
        let (_, lines) = super::super::named::LeaseDir::faults([dir.path().into()].iter());
        let told: Vec<_> = lines.iter().filter(|line| line.contains("umount")).collect();
        assert!(lines.len() == 5 && told.len() == 1, "{lines:?}");
        assert!(told[0].ends_with(&format!("umount {}", at("alike").display())), "{}", told[0]);
        for one in &foreign_mounts {
            assert!(
                unmount(&one.0, UnmountFlags::NOFOLLOW).is_ok(),
                "{} was unmounted",
                one.0.display()
            );
        }
        drop(open);
        let _ = unmount(at("lives"), UnmountFlags::DETACH);
    }
}
