//! What is leased and learned, as it survives the end of the broker.
//!
//! Contract: leases and debts come back only on the same boot of the host, and only where the caller vouches that the
//! lease is still out. Demand comes back always, moved by the time that has passed, and so does a drain. A tenant or a charge that
//! the settings do not know any more takes what it had with it. **Each part is read by itself**: one that cannot be read
//! takes nothing else with it. Each part is bounded, and leases are bounded by tenant.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::expect::SavedExpected;
use super::{Broker, Inode, LARGEST};
use crate::demand::saved as demand;
use crate::inode::Kind;
use crate::ledger::{Ends, Lease, debts};
use crate::protocol::Page;
use crate::state::{each, in_place, part};
use crate::tenant::{Charge, Payer, Peer};

/// Most leases that are saved, the oldest of each tenant first, and most bytes of a cgroup's path.
/// Fixed: bounds of the state file.
pub const MOST_LEASES: usize = 8192;
const MOST_PATH: usize = 128;
/// Largest number of a lease.
/// Fixed: no broker comes so far, and a report's cursor has room for it.
const MOST_NUMBER: u64 = 1 << 60;

/// The moment of saving.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Moment {
    /// The boot of the host, as the kernel names it.
    pub boot: String,
    /// By the clock of that boot, ns.
    pub monotonic_ns: u64,
    /// Since 1970, ns.
    pub wall_ns: u64,
}

impl Moment {
    /// The time from that moment to this one, ns; and whether it is the same boot.
    fn to(&self, now: &Moment) -> (u64, bool) {
        let same = self.boot == now.boot && !self.boot.is_empty();
        match same {
            true => (now.monotonic_ns.saturating_sub(self.monotonic_ns), true),
            false => (now.wall_ns.saturating_sub(self.wall_ns), false),
        }
    }
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Saved {
    #[serde(deserialize_with = "part")]
    moment: Moment,
    #[serde(deserialize_with = "part")]
    numbers: u64,
    /// By their numbers.
    #[serde(deserialize_with = "in_place")]
    tenants: Vec<Option<String>>,
    #[serde(deserialize_with = "in_place")]
    charges: Vec<Option<(Option<String>, Vec<PathBuf>)>>,
    #[serde(deserialize_with = "part")]
    demand: demand::Saved,
    #[serde(deserialize_with = "each")]
    leases: Vec<SavedLease>,
    #[serde(deserialize_with = "each")]
    debts: debts::Saved,
    /// For an earlier broker, which knows no file for it.
    #[serde(deserialize_with = "part")]
    drained: bool,
    /// The drain has a file of its own.
    #[serde(deserialize_with = "part")]
    drained_apart: bool,
    #[serde(deserialize_with = "each")]
    expected: Vec<SavedExpected>,
}

impl Saved {
    /// Whether an earlier broker, which had no file for it, was drained.
    pub fn was_drained(&self) -> bool {
        self.drained && !self.drained_apart
    }
}

/// A lease that was out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SavedLease {
    /// The broker's number.
    pub number: u64,
    /// The process that got it.
    pub pid: i32,
    /// When that began, in ticks of the kernel; 0: not known.
    pub began: u64,
    #[serde(default)]
    contained: bool,
    uid: u32,
    gid: u32,
    cgroup: Option<String>,
    /// Whose quota counts it.
    pub tenant: String,
    /// Whether its memory was watched, rather than its process.
    pub is_watched: bool,
    page: u64,
    backing: u32,
    node: u16,
    payer: u16,
    bytes: u64,
    /// Its inode's number,
    pub inode: u64,
    /// and device, if its memory was watched.
    pub device: u64,
    since: u64,
    cost_ns: u64,
}

/// What came back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Restored {
    /// Leases that are still out.
    pub leases: usize,
    /// Leases that ended with the time between.
    pub ended: usize,
}

impl<I: Inode> Broker<I> {
    /// What is to be saved at that moment.
    pub fn saved(&self, moment: Moment) -> Saved {
        let ledger = &self.ledger;
        Saved {
            numbers: self.numbers,
            tenants: ledger.names.iter().cloned().map(Some).collect(),
            charges: ledger
                .charges
                .iter()
                .map(|charge| Some((charge.cgroup.clone(), charge.files.clone())))
                .collect(),
            demand: self.planner.demand.saved(moment.monotonic_ns),
            leases: self.saved_leases(),
            debts: ledger.debts.saved(),
            drained: self.drained,
            drained_apart: true,
            expected: self.saved_expected(moment.monotonic_ns),
            moment,
        }
    }

    /// The oldest leases of each tenant: one with many leaves room for the others.
    fn saved_leases(&self) -> Vec<SavedLease> {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        let numbered = self.ledger.leases.from(0).map(|lease| {
            let count = counts.entry(&lease.tenant).or_default();
            *count += 1;
            (*count, lease)
        });
        let mut all: Vec<_> = numbered.collect();
        all.sort_by_key(|(count, _)| *count);
        all.into_iter().take(MOST_LEASES).map(|(_, lease)| saved(lease)).collect()
    }

    /// Whether something has changed that is saved, since this was another number.
    pub fn changes(&self) -> u64 {
        let counters = &self.counters;
        let asked = counters.hits + counters.misses + self.expected.changes;
        self.ledger.leases.changes() + asked + self.ledger.debts.all()
    }

    /// Takes in what was saved. `ends` says what ends a lease that is still out; `None`: it has ended.
    pub fn restore(
        &mut self,
        now: &Moment,
        saved: &Saved,
        mut ends: impl FnMut(&SavedLease) -> Option<Ends>,
    ) -> Restored {
        let (passed, same_boot) = saved.moment.to(now);
        let charges = &self.ledger.charges;
        let payers: Vec<Option<Payer>> = saved
            .charges
            .iter()
            .map(|charge| {
                let (cgroup, files) = charge.as_ref()?;
                let charge = Charge { cgroup: cgroup.clone(), files: files.clone() };
                let at = charges.iter().position(|known| *known == charge)?;
                u16::try_from(at).ok().map(Payer)
            })
            .collect();
        let payer = |number: u16| payers.get(usize::from(number)).copied().flatten();
        self.restore_expected(now.monotonic_ns, passed, &saved.expected, payer);
        let ledger = &self.ledger;
        let tenant = |number: u16| {
            let name = saved.tenants.get(usize::from(number))?.as_ref()?;
            let at = ledger.names.iter().position(|known| known == name)?;
            u16::try_from(at).ok()
        };
        self.planner.demand.restore(now.monotonic_ns, passed, &saved.demand, tenant, payer);
        let mut restored = Restored::default();
        if !same_boot {
            return restored;
        }
        let numbers = saved.leases.iter().map(|lease| lease.number).chain([saved.numbers]);
        let most = numbers.filter(|number| *number <= MOST_NUMBER).max();
        self.numbers = self.numbers.max(most.unwrap_or(0));
        let known = |lease: &&SavedLease| lease.is_one() && ledger.names.contains(&lease.tenant);
        let leases: Vec<(Lease, bool)> = saved
            .leases
            .iter()
            .filter(known)
            .filter_map(|saved| {
                let ends = ends(saved);
                let payer = payer(saved.payer).unwrap_or_default();
                Some((saved.again(payer, ends.unwrap_or(Ends::Memory))?, ends.is_some()))
            })
            .collect();
        self.ledger.debts.restore(&saved.debts);
        for (lease, is_out) in leases {
            if is_out {
                restored.leases += 1;
                self.ledger.leases.insert(lease);
            } else {
                // It ended while there was no broker: what it left in use shows at the next count.
                restored.ended += 1;
                self.ledger.gave_back(now.monotonic_ns, &lease);
            }
        }
        restored
    }
}

fn saved(lease: &Lease) -> SavedLease {
    let Lease { peer, kind, .. } = lease;
    SavedLease {
        number: lease.number,
        pid: peer.pid,
        began: peer.began,
        contained: peer.contained,
        uid: peer.uid,
        gid: peer.gid,
        cgroup: peer.cgroups.first().map(|path| shown(path)),
        tenant: lease.tenant.clone(),
        is_watched: lease.ends == Ends::Memory,
        page: kind.page.bytes(),
        backing: kind.backing as u32,
        node: kind.node,
        payer: kind.payer.0,
        bytes: lease.bytes,
        inode: lease.inode,
        device: lease.device,
        since: lease.since,
        cost_ns: lease.cost_ns,
    }
}

/// A path for people, of a bounded number of bytes as JSON has it.
fn shown(path: &str) -> String {
    let plain = path.chars().map(|c| match c {
        '"' | '\\' => '?',
        c if c.is_control() => '?',
        c => c,
    });
    let mut bytes = 0;
    let fits = |c: &char| {
        bytes += c.len_utf8();
        bytes <= MOST_PATH
    };
    plain.take_while(fits).collect()
}

impl SavedLease {
    /// Whether a broker may have written it.
    fn is_one(&self) -> bool {
        let bounded = self.number <= MOST_NUMBER && self.bytes <= LARGEST;
        bounded && self.pid > 0 && self.bytes.is_multiple_of(self.page.max(1))
    }

    fn again(&self, payer: Payer, ends: Ends) -> Option<Lease> {
        let page = Page::of(self.page)?;
        let kind = Kind::from((page.bytes(), self.backing, self.node, payer.0));
        Some(Lease {
            number: self.number,
            peer: Peer {
                pid: self.pid,
                uid: self.uid,
                gid: self.gid,
                groups: vec![],
                cgroups: self.cgroup.iter().cloned().collect(),
                began: self.began,
                contained: self.contained,
            },
            tenant: self.tenant.clone(),
            kind,
            bytes: self.bytes,
            inode: self.inode,
            device: self.device,
            since: self.since,
            cost_ns: self.cost_ns,
            ends,
        })
    }
}
