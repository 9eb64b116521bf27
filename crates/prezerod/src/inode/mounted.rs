//! The file system of one named lease: of its size, with its one file.
//!
//! A file of a shared file system takes no seals, so a client could grow it into the room of others. A
//! file system of its own bounds it. **It is mounted nowhere until it is leased**: the broker and a filler
//! hold it by a descriptor, and it goes with them. Leased, it is mounted under the lease's name.
//!
//! Removing the file gives the lease back. The kernel counts the file until its last user is gone, and the
//! file system stays mounted and counts as full until then.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat, statfs};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, FsPickFlags, MountAttrFlags, MoveMountFlags, UnmountFlags,
    fsconfig_create, fsconfig_reconfigure, fsconfig_set_string, fsmount, fsopen, fspick,
    move_mount, unmount,
};

use crate::protocol::{Backing, Page};

/// The name of a lease's file in its file system.
pub const FILE: &str = "lease";

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
    fsconfig_set_string(&context, "size", bytes.to_string())?;
    // The root and the file.
    fsconfig_set_string(&context, "nr_inodes", "2")?;
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

/// Gives it a place, which is an empty directory.
///
/// # Errors
/// What the kernel answers.
pub fn attach(mount: BorrowedFd<'_>, at: &Path) -> Result<(), Errno> {
    move_mount(mount, "", CWD, at, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
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

/// Those that are mounted in a directory.
pub fn all(dir: &Path) -> Vec<PathBuf> {
    let Ok(own) = fs::metadata(dir) else { return vec![] };
    let Ok(entries) = fs::read_dir(dir) else { return vec![] };
    // What `read_dir` says of a mount point is what lies below it.
    let mounted = |path: &PathBuf| {
        fs::symlink_metadata(path).is_ok_and(|info| info.is_dir() && info.dev() != own.dev())
    };
    entries.flatten().map(|entry| entry.path()).filter(mounted).collect()
}

/// Bytes that a mounted one may take; 0: it is gone.
pub fn size(at: &Path) -> u64 {
    statfs(at).map_or(0, |stat| stat.f_blocks.saturating_mul(stat.f_bsize as u64))
}

/// Whether it was given back, and all of it is free.
fn is_over(at: &Path) -> bool {
    if fs::symlink_metadata(at.join(FILE)).is_ok() {
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
        if is_over(&at) && unmount(&at, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW).is_ok() {
            let _ = fs::remove_dir(&at);
        }
    }
}

/// Removes what a broker that was killed left in a directory: the place of a lease that is not mounted yet, or no longer.
pub fn clear(dir: &Path) {
    let (Ok(own), Ok(entries)) = (fs::metadata(dir), fs::read_dir(dir)) else { return };
    for at in entries.flatten().map(|entry| entry.path()) {
        let is_bare = fs::symlink_metadata(&at).is_ok_and(|info| {
            let is_ours = info.uid() == rustix::process::geteuid().as_raw();
            info.is_dir() && info.dev() == own.dev() && is_ours
        });
        if is_bare {
            // One that has content is no lease's, and stays.
            let _ = fs::remove_dir(&at);
        }
    }
}
