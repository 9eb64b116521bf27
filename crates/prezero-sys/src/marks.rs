//! Inodes that are known and not held: whether their memory is still there.
//!
//! A mark of fanotify that is *evictable* keeps no inode alive. It goes when the inode goes, and what
//! is left shows in `/proc/self/fdinfo`. So a process that keeps neither descriptor nor mapping of a
//! memfd can tell whether any other process does. The marks ask for an event that a memfd never has.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::fs::{fstat, major, minor};
use rustix::io::Errno;

use crate::errno::last_error;

/// Since Linux 5.19.
const EVICTABLE: libc::c_uint = 0x200;

/// An inode, as the kernel tells it apart: device and number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct InodeId {
    device: u64,
    number: u64,
}

impl InodeId {
    /// Of an open file.
    ///
    /// # Errors
    /// What `fstat` answers.
    pub fn of(file: BorrowedFd<'_>) -> Result<InodeId, Errno> {
        let stat = fstat(file)?;
        // As the kernel keeps it, not as `stat` tells it.
        let device = u64::from(major(stat.st_dev)) << 20 | u64::from(minor(stat.st_dev));
        Ok(InodeId { device, number: stat.st_ino })
    }

    /// The one of this device, as [`device`](InodeId::device) tells it, with this number.
    pub fn new(device: u64, number: u64) -> InodeId {
        InodeId { device, number }
    }

    /// The device, as the kernel keeps it.
    pub fn device(&self) -> u64 {
        self.device
    }
}

/// A group of marks.
#[derive(Debug)]
pub struct Marks {
    group: OwnedFd,
}

/// A group that another process made, or this one before it began anew: with its marks.
impl From<OwnedFd> for Marks {
    fn from(group: OwnedFd) -> Marks {
        Marks { group }
    }
}

impl AsFd for Marks {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.group.as_fd()
    }
}

impl Marks {
    /// No marks yet. Needs no privilege since Linux 5.13.
    ///
    /// # Errors
    /// `PERM` or `NOSYS` where the kernel is older or has no fanotify, `MFILE` for too many groups.
    pub fn new() -> Result<Marks, Errno> {
        let flags =
            libc::FAN_CLASS_NOTIF | libc::FAN_CLOEXEC | libc::FAN_NONBLOCK | libc::FAN_REPORT_FID;
        // SAFETY: two numbers go in, a new descriptor or an error comes out.
        let group = unsafe { libc::fanotify_init(flags, libc::O_RDONLY as libc::c_uint) };
        if group < 0 {
            return Err(last_error());
        }
        // SAFETY: the kernel has just made this descriptor for this call.
        Ok(Marks { group: unsafe { OwnedFd::from_raw_fd(group) } })
    }

    /// Marks the inode of an open file.
    ///
    /// # Errors
    /// `INVAL` before Linux 5.19, `NOSPC` for too many marks of this user.
    pub fn add(&self, file: BorrowedFd<'_>) -> Result<InodeId, Errno> {
        let inode = InodeId::of(file)?;
        let flags = libc::FAN_MARK_ADD | EVICTABLE;
        // SAFETY: without a path the file of the descriptor is meant; nothing is read or written.
        let done = unsafe {
            libc::fanotify_mark(
                self.group.as_raw_fd(),
                flags,
                libc::FAN_DELETE_SELF,
                file.as_raw_fd(),
                std::ptr::null(),
            )
        };
        if done == 0 { Ok(inode) } else { Err(last_error()) }
    }

    /// The marked inodes whose memory is still there.
    ///
    /// # Errors
    /// What opening or reading `/proc/self/fdinfo` answers.
    pub fn living(&self) -> std::io::Result<Vec<InodeId>> {
        let text = fs::read_to_string(format!("/proc/self/fdinfo/{}", self.group.as_raw_fd()))?;
        Ok(text.lines().filter_map(marked).collect())
    }
}

/// The inode of a line such as `fanotify ino:3ffb5 sdev:1 mflags:200 mask:400 ...`.
fn marked(line: &str) -> Option<InodeId> {
    let rest = line.strip_prefix("fanotify ino:")?;
    let (number, rest) = rest.split_once(" sdev:")?;
    let device = rest.split(' ').next()?;
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    Some(InodeId { device: hex(device)?, number: hex(number)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::{SharedMap, memfd};
    use prezero_testing::alone;
    use rustix::fs::{MemfdFlags, ftruncate};

    const BYTES: u64 = 2 << 20;

    /// Marks, or `None` where the kernel has no such marks.
    fn marks() -> Option<Marks> {
        let marks = Marks::new().ok()?;
        let probe = memfd("probe", MemfdFlags::empty()).unwrap();
        marks.add(probe.as_fd()).is_ok().then_some(marks)
    }

    #[test]
    fn an_inode_is_there_until_its_last_descriptor_and_mapping_are_gone() {
        let _alone = alone();
        let Some(marks) = marks() else { return };
        let file = memfd("lease", MemfdFlags::empty()).unwrap();
        ftruncate(&file, BYTES).unwrap();
        let inode = marks.add(file.as_fd()).unwrap();
        let other = file.try_clone().unwrap();
        let map = SharedMap::new(file.as_fd(), BYTES as usize, 4096).unwrap();
        let there = || marks.living().unwrap().contains(&inode);
        assert!(there());
        drop(file);
        assert!(there(), "a second descriptor");
        drop(other);
        assert!(there(), "a mapping");
        drop(map);
        assert!(!there());
    }

    #[test]
    fn a_mark_keeps_nothing_alive_and_an_inode_twice_marked_is_there_once() {
        let _alone = alone();
        let Some(marks) = marks() else { return };
        let files: Vec<_> =
            (0..100).map(|_| memfd("lease", MemfdFlags::empty()).unwrap()).collect();
        for file in files.iter().chain(&files) {
            marks.add(file.as_fd()).unwrap();
        }
        assert_eq!(marks.living().unwrap().len(), files.len());
        drop(files);
        assert!(marks.living().unwrap().is_empty());
    }

    #[test]
    fn lines_of_other_things_are_no_marks() {
        let line = "fanotify ino:3ffb5 sdev:1 mflags:200 mask:400 ignored_mask:0 fhandle-bytes:c";
        assert_eq!(marked(line), Some(InodeId { device: 1, number: 0x3f_fb5 }));
        for other in ["pos:\t0", "ino:\t1038", "fanotify flags:205 event-flags:0", "fanotify ino:x"]
        {
            assert_eq!(marked(other), None, "{other}");
        }
    }
}
