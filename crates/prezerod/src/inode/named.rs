//! Named leases: files under a name, which outlive their client and the broker.
//!
//! A tenant with `files` has directories of its own, each of a tmpfs or a hugetlbfs that the operator
//! mounts. It says how much may be leased. A lease is the one file of a file system of its own
//! ([`mounted`]), and is populated as any other.
//!
//! **The mount is the hand-over.** The kernel mounts it under the lease's name, at once or not at all. A
//! broker that ends before has handed out nothing, and one that ends after owes nothing. Removing the
//! file gives the lease back. The kernel seals no such file: its directory says which users may open it.

use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use prezero_sys::mapping::{HUGETLBFS, TMPFS};
use rustix::fs::statfs;
use rustix::io::Errno;

use super::mounted;
use crate::protocol::{Backing, Name, Page};

/// A directory, and what files in it are made of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeaseDir {
    /// The directory.
    pub dir: PathBuf,
    /// Where its pages come from.
    pub backing: Backing,
    /// Their size.
    pub page: Page,
    /// Bytes that leases leave of it; what lies ready or is being made is not subtracted.
    pub free: u64,
}

/// A lease that lies under a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// Where.
    pub dir: LeaseDir,
    /// Its size.
    pub bytes: u64,
    /// Its number.
    pub inode: u64,
}

impl LeaseDir {
    /// What the directory is.
    ///
    /// # Errors
    /// It is not of a tmpfs or hugetlbfs, in words.
    pub fn of(dir: &Path) -> Result<LeaseDir, String> {
        let name = dir.display();
        let info = dir.metadata().map_err(|error| format!("files = {name}: {error}; make it"))?;
        // Another user could put a file of its own under a lease's name, which a client would take for the lease.
        let own = rustix::process::geteuid().as_raw();
        if (info.uid() != own && info.uid() != 0) || info.mode() & 0o022 != 0 {
            let mend = "chmod it, or mount it with mode=0755";
            return Err(format!("files = {name}: others than its owner may write there; {mend}"));
        }
        let stat = statfs(dir).map_err(|error| format!("files = {name}: {error}; make it"))?;
        let (backing, page) = match stat.f_type as u64 & 0xffff_ffff {
            TMPFS => (Backing::Thp, Some(Page::Huge)),
            HUGETLBFS => (Backing::Hugetlb, Page::of(stat.f_bsize as u64)),
            _ => {
                let mend = "mount a tmpfs or a hugetlbfs there";
                return Err(format!("files = {name}: an ordinary file system; {mend}"));
            }
        };
        let page = page.ok_or_else(|| format!("files = {name}: pages of neither 2M nor 1G"))?;
        // A file system without a size of its own says that it has none.
        let free = match stat.f_blocks {
            0 | u64::MAX => u64::MAX,
            _ => {
                let leased: u64 = mounted::all(dir).iter().map(|at| mounted::size(at)).sum();
                stat.f_bavail.saturating_mul(stat.f_bsize as u64).saturating_sub(leased)
            }
        };
        Ok(LeaseDir { dir: dir.to_owned(), backing, page, free })
    }

    /// The first directory of `files` for such pages.
    ///
    /// # Errors
    /// There is none, with what is wrong with one of them.
    pub fn for_page(files: &[PathBuf], page: Page) -> Result<LeaseDir, String> {
        let mut wrong = None;
        for dir in files {
            match LeaseDir::of(dir) {
                Ok(place) if place.page == page => return Ok(place),
                Ok(_) => {}
                Err(what) => wrong = Some(what),
            }
        }
        let none = || format!("no directory for {page} pages; name one of a hugetlbfs in `files`");
        Err(wrong.unwrap_or_else(none))
    }

    /// What is wrong with these directories, each in a line, and what lies in them that is no lease.
    pub fn faults<'a>(dirs: impl Iterator<Item = &'a PathBuf>) -> (Vec<String>, Vec<String>) {
        let (mut wrong, mut foreign) = (vec![], vec![]);
        for dir in dirs {
            match LeaseDir::of(dir) {
                Err(line) => wrong.push(line),
                Ok(_) => {
                    let alike = mounted::all(dir);
                    foreign.extend(mounted::foreign(dir).iter().map(|at| {
                        // Brokers of before made no marks, and what only looks like a lease is not touched.
                        let mend = match alike.contains(at) {
                            true => format!("; if a prezerod of before made it, umount {}", at.display()),
                            false => String::new(),
                        };
                        let (dir, at) = (dir.display(), at.display());
                        format!("files = {dir}: {at} is no lease, and stays; no lease has its name{mend}")
                    }));
                }
            }
        }
        (wrong, foreign)
    }

    /// The lease's file of a name.
    pub fn path(&self, name: &Name) -> PathBuf {
        self.dir.join(name.as_str()).join(mounted::FILE)
    }

    /// Gives a lease of this place its name.
    ///
    /// # Errors
    /// `EXIST`: another has it, or something else lies there.
    pub fn attach(&self, mount: BorrowedFd<'_>, name: &Name) -> Result<(), Errno> {
        mounted::reap(&self.dir);
        mounted::attach(mount, &self.dir, name.as_str())
    }
}

/// What lies under a name in one of these directories.
pub fn find(files: &[PathBuf], name: &Name) -> Option<Found> {
    files.iter().find_map(|dir| {
        let dir = LeaseDir::of(dir).ok()?;
        let info = dir.path(name).symlink_metadata().ok().filter(std::fs::Metadata::is_file)?;
        if !mounted::is_lease(&dir.dir, &dir.dir.join(name.as_str())) {
            return None;
        }
        Some(Found { dir, bytes: info.len(), inode: info.ino() })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHM: &str = "/dev/shm";

    fn dir() -> Option<tempfile::TempDir> {
        LeaseDir::of(Path::new(SHM)).ok()?;
        tempfile::tempdir_in(SHM).ok()
    }

    #[test]
    fn a_directory_in_which_others_may_write_has_no_lease() {
        use std::os::unix::fs::PermissionsExt;
        let Some(dir) = dir() else { return };
        let set = |mode| {
            std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(mode)).unwrap()
        };
        for mode in [0o777, 0o1777, 0o770, 0o702] {
            set(mode);
            let refused = LeaseDir::of(dir.path()).unwrap_err();
            assert!(refused.contains("others than its owner may write"), "{mode:o}: {refused}");
        }
        set(0o755);
        assert!(LeaseDir::of(dir.path()).is_ok());
    }

    #[test]
    fn a_directory_that_will_not_do_is_said_with_the_mend() {
        let Some(dir) = dir() else { return };
        let missing = dir.path().join("missing");
        assert!(LeaseDir::of(&missing).unwrap_err().contains("make it"));
        assert!(LeaseDir::of(Path::new("/proc")).unwrap_err().contains("mount a tmpfs"));
        let giant = LeaseDir::for_page(&[dir.path().to_owned()], Page::Giant);
        assert!(giant.unwrap_err().contains("name one of a hugetlbfs"));
    }
}
