//! What a broker takes over from the one before, and leaves to the next.
//!
//! Contract: leases first, from the state file and the marks in the manager's store; then stock, once it was verified.
//! What is broken costs one line, and the broker starts without it.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::SystemTime;

use prezero_sys::marks::{InodeId, Marks};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::returned::{self, Verifying};
use super::saver::{NOWHERE, Saver};
use super::store::{self, Kept, MARKS};
use super::{Server, clients};
use crate::broker::saved::{MOST_LEASES, Moment, Saved, SavedLease};
use crate::ledger::Ends;
use crate::state;
use crate::stock::StockInode;

/// Verifying takes no longer than this for each byte, ns, and for all: stock is made again by then.
/// Moved by: `crates/prezerod/tests/survives.rs`.
const VERIFY_NS_PER_BYTE: u64 = 4;
const VERIFY_NS: u64 = 1_000_000_000;

impl Server {
    /// Takes over what an earlier broker left.
    pub(super) fn take_over(&mut self, now: u64, left: Vec<(String, OwnedFd)>) {
        let (marks, stock): (Vec<_>, Vec<_>) =
            left.into_iter().partition(|(name, _)| name.starts_with(MARKS));
        for (name, file) in marks {
            self.watch.tracker.restore(Marks::from(file), self.service.store.known(name));
        }
        let path = self.state_path();
        if let Some(path) = &path {
            match state::read(path) {
                Ok(None) => {}
                Ok(Some(text)) => match serde_json::from_str(&text) {
                    Ok(saved) => self.restore(now, &saved),
                    Err(error) => {
                        prezero_sys::log!("prezerod: {}: {error}", path.display());
                        state::set_aside(path);
                    }
                },
                Err(line) => {
                    prezero_sys::log!("prezerod: {line}");
                    state::set_aside(path);
                }
            }
        }
        self.survival.saver = Saver::start(path);
        let was_drained = self.broker.is_drained();
        if was_drained && let Err(error) = self.survival.saver.mark_drained(true) {
            prezero_sys::log!("prezerod: drained, until this broker ends: {error}");
        }
        if was_drained || self.survival.saver.is_drained() {
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

    fn restore(&mut self, now: u64, saved: &Saved) {
        let watch = &mut self.watch;
        let is_restored = watch.tracker.is_restored();
        let ends = |lease: &SavedLease| {
            let inode = InodeId::new(lease.device, lease.inode);
            if watch.tracker.claim(&lease.tenant, lease.number, inode) {
                return Some(Ends::Memory);
            }
            if lease.is_watched && is_restored {
                return None;
            }
            // Without marks it ends with its process, whichever has the memory by then.
            let process = pidfd_open(Pid::from_raw(lease.pid)?, PidfdFlags::empty()).ok()?;
            let is_it = lease.began != 0 && clients::began(lease.pid) == lease.began;
            is_it.then(|| {
                watch.holders.insert(lease.pid, process);
                Ends::Process
            })
        };
        let restored = self.broker.restore(&moment(now), saved, ends);
        self.broker.set_drained(saved.was_drained());
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
            let known = returned::known(&name, &file).filter(|_| is_new);
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
        let refused = self.survival.verifying.counts.1;
        match Verifying::start(all) {
            Ok(verifying) => self.survival.verifying = verifying,
            Err(error) => prezero_sys::log!("prezerod: stored inodes cannot be read: {error}"),
        }
        self.survival.verifying.counts.1 = refused;
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
        let now = prezero_sys::thread::monotonic_ns();
        let changes = self.broker.changes();
        if self.survival.saver.is_due(now, changes) {
            let all = self.broker.ledger.leases.from(0).count();
            if all > MOST_LEASES && !std::mem::replace(&mut self.survival.told_bound, true) {
                prezero_sys::log!(
                    "prezerod: {all} leases are out: the newest beyond {MOST_LEASES} are not saved for a next broker"
                );
            }
            let text = self.state(now);
            let took = prezero_sys::thread::monotonic_ns().saturating_sub(now);
            self.survival.saver.save(now, changes, text, took);
        }
    }

    /// Saves before it returns.
    ///
    /// # Errors
    /// It is not saved, in words.
    pub(super) fn save_now(&mut self) -> Result<(), String> {
        let text = self.state(prezero_sys::thread::monotonic_ns());
        self.survival.saver.save_now(&text)
    }

    /// Saves for the last time.
    pub(super) fn save_last(&mut self) {
        let text = self.state(prezero_sys::thread::monotonic_ns());
        if let Err(error) = self.survival.saver.finish(&text)
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
