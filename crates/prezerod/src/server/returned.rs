//! Inodes that came back from the service manager's store: whether they may be leased as zero.
//!
//! Contract: none counts before all of it was verified, and what cannot be vouched for is given back: the kernel clears
//! its pages before they are used again. Verified are owner, name, size, population, seals, the pages' size, and every
//! byte. The reading is done by a thread of the idle class, and the loop goes on.
//!
//! The seals say that no client had it: an inode is sealed before it is sent. A process of the broker's own user could
//! have written it at any time, before and after, and is trusted with both.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, channel};

use prezero_sys::mapping::{HUGETLBFS, TMPFS};
use prezero_sys::thread;
use rustix::fs::{fstat, fstatfs};

use super::store::{Kept, named};
use crate::inode::audit::{self, Depth, Finding};
use crate::inode::{self, Kind};
use crate::protocol::Backing;
use crate::stock::StockInode;

/// An inode, and the cgroup that it is charged to.
pub type Returned = (StockInode<Kept>, Option<String>);

/// Those that are being read.
#[derive(Debug, Default)]
pub struct Verifying {
    waiting: Vec<Option<Returned>>,
    thread: Option<(UnixStream, Receiver<(usize, bool)>)>,
    /// How many were zero, and how many not.
    pub counts: (usize, usize),
}

impl Verifying {
    /// Begins to read all of them.
    pub fn start(all: Vec<Returned>) -> io::Result<Verifying> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let (says, verdicts) = channel();
        let files = all
            .iter()
            .map(|(inode, _)| Ok((inode.file.as_fd().try_clone_to_owned()?, inode.bytes)));
        let files: Vec<(OwnedFd, u64)> = files.collect::<io::Result<_>>()?;
        let read = move || {
            let _ = thread::become_idle_class();
            for (at, (file, bytes)) in files.into_iter().enumerate() {
                let found = audit::audit(file.as_fd(), bytes, Depth::Full, |_| 0);
                drop(file);
                let is_zero = matches!(found, Finding::Clean(read) if read == bytes);
                if says.send((at, is_zero)).is_err() || rustix::io::write(&theirs, b"x").is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("verify".into()).spawn(read)?;
        let waiting = all.into_iter().map(Some).collect();
        Ok(Verifying { waiting, thread: Some((ours, verdicts)), counts: (0, 0) })
    }

    /// To be polled: readable when there are verdicts.
    pub fn wanted(&self) -> Option<BorrowedFd<'_>> {
        self.thread.as_ref().map(|(socket, _)| socket.as_fd())
    }

    /// Those that are zero, in this round; the others are given back.
    pub fn hear(&mut self) -> Vec<Returned> {
        let Some((socket, verdicts)) = &self.thread else { return vec![] };
        let read = rustix::io::read(socket, &mut [0u8; 64]);
        let mut zero = vec![];
        for (at, is_zero) in verdicts.try_iter() {
            let returned = self.waiting.get_mut(at).and_then(Option::take);
            let count = if is_zero { &mut self.counts.0 } else { &mut self.counts.1 };
            *count += 1;
            zero.extend(returned.filter(|_| is_zero));
        }
        if matches!(read, Ok(0)) {
            // What the thread said nothing of is given back.
            (self.waiting, self.thread) = (vec![], None);
        }
        zero
    }
}

/// The inode that was stored under a name; `None`: it is no stock inode, or not what the name says.
pub fn known(name: &str, file: &OwnedFd) -> Option<(Kind, u64, Option<String>)> {
    let (kind, charged) = named(name)?;
    let (stat, system) = (fstat(file).ok()?, fstatfs(file).ok()?);
    let link = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
    let page = match (kind.backing, system.f_type as u64 & 0xffff_ffff) {
        (Backing::Thp, TMPFS) => true,
        (Backing::Hugetlb, HUGETLBFS) => system.f_bsize as u64 == kind.page.bytes(),
        _ => false,
    };
    let bytes = stat.st_size as u64;
    let is_ours = link.to_str().is_some_and(|link| link.starts_with("/memfd:prezero"))
        && stat.st_uid == rustix::process::geteuid().as_raw();
    let is_whole = bytes > 0 && bytes.is_multiple_of(kind.page.bytes());
    let is_fresh = inode::is_fresh(file.as_fd(), bytes);
    (page && is_ours && is_whole && is_fresh).then_some((kind, bytes, charged))
}
