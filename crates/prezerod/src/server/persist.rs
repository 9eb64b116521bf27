//! What a broker takes over from the one before, and leaves to the next.
//!
//! Contract: leases first, from the state file and the marks in the manager's store; then stock, once it was verified.
//! What is broken costs one line, and the broker starts without it.
//!
//! No stored inode counts before all of it was verified, and what cannot be vouched for is given back: the kernel clears
//! its pages before they are used again. Verified are owner, name, size, population, seals, the pages' size, and every
//! byte. The reading is done by a thread of the idle class, and the loop goes on.
//!
//! The seals say that no client had it: an inode is sealed before it is sent. A process of the broker's own user could
//! have written it at any time, before and after, and is trusted with both.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Once;
use std::time::SystemTime;

use prezero_sys::mapping::{HUGETLBFS, TMPFS};
use prezero_sys::marks::{InodeId, Marks};
use prezero_sys::thread;
use rustix::fs::{fstat, fstatfs};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::store::{self, Kept, MARKS};
use super::{Server, clients};
use crate::broker::persist::{MOST_LEASES, Moment, Saved};
use crate::inode::audit::{self, Depth, Finding};
use crate::inode::{self, Kind};
use crate::ledger::{Ends, Lease};
use crate::persist::{self, NOWHERE, StateFile};
use crate::protocol::Backing;
use crate::stock::StockInode;

/// Verifying takes no longer than this for each byte, ns, and for all: stock is made again by then.
/// Moved by: `crates/prezerod/tests/survives.rs`.
const VERIFY_NS_PER_BYTE: u64 = 4;
const VERIFY_NS: u64 = 1_000_000_000;

/// What the next broker will know, and what this one gets of the one before.
#[derive(Debug, Default)]
pub(super) struct Survival {
    pub state: StateFile,
    pub verifying: Verifying,
}

/// An inode, and the cgroup that it is charged to.
type Returned = (StockInode<Kept>, Option<String>);

/// Stored inodes that are being read.
#[derive(Debug, Default)]
pub(super) struct Verifying {
    waiting: VecDeque<Returned>,
    /// A byte comes for each, in its turn: 1 for one that is zero.
    verdicts: Option<UnixStream>,
    /// How many were zero, and how many not.
    counts: (usize, usize),
}

impl Verifying {
    /// Begins to read all of them.
    fn start(&mut self, all: Vec<Returned>) -> io::Result<()> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let file =
            |(inode, _): &Returned| Ok((inode.file.as_fd().try_clone_to_owned()?, inode.bytes));
        let files: Vec<(OwnedFd, u64)> = all.iter().map(file).collect::<io::Result<_>>()?;
        let read = move || {
            let _ = thread::become_idle_class();
            for (file, bytes) in files {
                let found = audit::audit(file.as_fd(), bytes, Depth::Full, |_| 0);
                drop(file);
                let is_zero = matches!(found, Finding::Clean(read) if read == bytes);
                if rustix::io::write(&theirs, &[u8::from(is_zero)]).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("verify".into()).spawn(read)?;
        (self.waiting, self.verdicts) = (all.into(), Some(ours));
        Ok(())
    }

    /// To be polled: readable when there are verdicts.
    pub fn wanted(&self) -> Option<BorrowedFd<'_>> {
        self.verdicts.as_ref().map(AsFd::as_fd)
    }

    /// Those that are zero, in this round; the others are given back.
    fn hear(&mut self) -> Vec<Returned> {
        let Some(socket) = &self.verdicts else { return vec![] };
        let (mut verdicts, mut zero) = ([0u8; 64], vec![]);
        let read = rustix::io::read(socket, &mut verdicts);
        for verdict in &verdicts[..read.unwrap_or(0)] {
            let returned = self.waiting.pop_front();
            match verdict {
                0 => self.counts.1 += 1,
                _ => zero.extend(returned),
            }
        }
        self.counts.0 += zero.len();
        if matches!(read, Ok(0)) {
            // What the thread said nothing of is given back.
            (self.waiting, self.verdicts) = (VecDeque::new(), None);
        }
        zero
    }
}

/// The inode that was stored under a name; `None`: it is no stock inode, or not what the name says.
fn known(name: &str, file: &OwnedFd) -> Option<(Kind, u64, Option<String>)> {
    let (kind, charged) = store::named(name)?;
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

impl Server {
    /// Takes over what an earlier broker left.
    pub(super) fn take_over(&mut self, now: u64, left: Vec<(String, OwnedFd)>) {
        let (marks, stock): (Vec<_>, Vec<_>) =
            left.into_iter().partition(|(name, _)| name.starts_with(MARKS));
        for (name, file) in marks {
            self.watch.tracker.restore(Marks::from(file), self.service.store.known(name));
        }
        let path = self.state_path();
        match path.as_deref().map_or(Ok(None), persist::read) {
            Ok(None) => {}
            Ok(Some(saved)) => self.restore(now, saved),
            Err(line) => {
                prezero_sys::log!("prezerod: {line}");
                path.iter().for_each(|path| persist::set_aside(path));
            }
        }
        self.survival.state = StateFile::at(path);
        let was_drained = self.broker.is_drained();
        if was_drained && let Err(error) = self.survival.state.mark_drained(true) {
            prezero_sys::log!("prezerod: drained, until this broker ends: {error}");
        }
        if was_drained || self.survival.state.is_drained() {
            self.broker.set_drained(true);
            prezero_sys::log!(
                "prezerod: drained before this start, and still: prezero stock --undrain ends it"
            );
        }
        self.verify(now, stock);
    }

    /// In the directory that the service manager gives, or beside the socket; `None`: nowhere.
    fn state_path(&self) -> Option<PathBuf> {
        let dir = std::env::var_os("STATE_DIRECTORY").filter(|dir| !dir.is_empty());
        let given = dir.map(|dir| PathBuf::from(dir).join("state"));
        given.or_else(|| self.clients.listener.path().map(|path| path.with_extension("state")))
    }

    fn restore(&mut self, now: u64, saved: Saved) {
        let watch = &mut self.watch;
        let is_restored = watch.tracker.is_restored();
        let ends = |lease: &Lease| {
            let inode = InodeId::new(lease.device, lease.inode);
            if watch.tracker.claim(&lease.tenant, lease.number, inode) {
                return Some(Ends::Memory);
            }
            if lease.ends == Ends::Memory && is_restored {
                return None;
            }
            // Without marks it ends with its process, whichever has the memory by then.
            let process = pidfd_open(Pid::from_raw(lease.holder.pid)?, PidfdFlags::empty()).ok()?;
            let is_it =
                lease.holder.began != 0 && clients::began(lease.holder.pid) == lease.holder.began;
            is_it.then(|| {
                watch.holders.insert(lease.holder.pid, process);
                Ends::Process
            })
        };
        self.broker.set_drained(saved.was_drained());
        let restored = self.broker.restore(&moment(now), saved, ends);
        self.watch.tracker.claimed();
        if restored.leases > 0 {
            prezero_sys::log!(
                "prezerod: {} leases of an earlier broker are still out",
                restored.leases
            );
        }
    }

    /// Has stock of an earlier broker read, before it counts.
    fn verify(&mut self, now: u64, stored: Vec<(String, OwnedFd)>) {
        if stored.is_empty() {
            return;
        }
        let (mut all, mut forgotten, mut bytes) = (vec![], vec![], 0);
        let mut seen = BTreeSet::new();
        for (name, file) in stored {
            // One that came twice is one.
            let is_new = InodeId::of(file.as_fd()).is_ok_and(|inode| seen.insert(inode));
            if store::named(&name).is_none() {
                prezero_sys::log!(
                    "prezerod: the manager stores {name:?}, which this version does not know: it stays there"
                );
                continue;
            }
            let known = known(&name, &file).filter(|_| is_new);
            let Some((kind, size, charged)) = known else {
                forgotten.push(name);
                self.survival.verifying.counts.1 += 1;
                continue;
            };
            let file = Kept::stored(file, self.service.store.known(name));
            bytes += size;
            all.push((StockInode { file, kind, bytes: size, made_ns: now, cost_ns: 0 }, charged));
        }
        if !forgotten.is_empty() {
            self.service.forget(forgotten.iter().map(String::as_str));
        }
        if let Err(error) = self.survival.verifying.start(all) {
            prezero_sys::log!("prezerod: stored inodes cannot be read: {error}");
        }
        self.broker.verifies(now + VERIFY_NS + bytes * VERIFY_NS_PER_BYTE);
    }

    /// What was verified becomes stock.
    pub(super) fn hear_verified(&mut self) {
        let zero = self.survival.verifying.hear();
        for (inode, charged) in zero {
            if !self.broker.adopt(inode, charged.as_deref()) {
                let counts = &mut self.survival.verifying.counts;
                (counts.0, counts.1) = (counts.0 - 1, counts.1 + 1);
            }
        }
        self.needs_tick = true;
        if self.survival.verifying.wanted().is_none() {
            self.broker.verified();
            let (kept, refused) = self.survival.verifying.counts;
            let all = kept + refused;
            prezero_sys::log!("prezerod: {kept} of {all} stored inodes are zero and kept");
        }
    }

    /// Saves what has changed.
    pub(super) fn save(&mut self) {
        let now = thread::monotonic_ns();
        let changes = self.broker.changes();
        if self.survival.state.is_due(now, changes) {
            let all = self.broker.ledger().leases.from(0).count();
            static SAID: Once = Once::new();
            if all > MOST_LEASES {
                SAID.call_once(|| {
                    prezero_sys::log!(
                        "prezerod: {all} leases are out: the newest beyond {MOST_LEASES} are not saved for a next broker"
                    );
                });
            }
            let text = self.state(now);
            let took = thread::monotonic_ns().saturating_sub(now);
            self.survival.state.save(now, changes, text, took);
        }
    }

    /// Saves before it returns.
    ///
    /// # Errors
    /// It is not saved, in words.
    pub(super) fn save_now(&mut self) -> Result<(), String> {
        let text = self.state(thread::monotonic_ns());
        self.survival.state.save_now(&text)
    }

    /// Saves for the last time.
    pub(super) fn save_last(&mut self) {
        let text = self.state(thread::monotonic_ns());
        if let Err(error) = self.survival.state.save_now(&text)
            && error != NOWHERE
        {
            prezero_sys::log!(
                "prezerod: {error}; the next broker forgets what is leased and learnt"
            );
        }
    }

    fn state(&self, now: u64) -> String {
        serde_json::to_string(&self.broker.saved(moment(now))).unwrap_or_default()
    }
}

fn moment(now: u64) -> Moment {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Moment {
        boot: boot.trim().to_owned(),
        monotonic_ns: now,
        wall_ns: u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX),
    }
}
