//! Leases that are out, and their sums: nothing here is counted by looking at all of them.
//!
//! A lease is over when its memory is gone, or, where that cannot be seen, when the process ends
//! that got it. The broker holds nothing of a lease: it is told of both.

use std::collections::{BTreeMap, BTreeSet};

use prezero_sys::escape::escape;
use serde::{Deserialize, Serialize};

use crate::inode::Kind;
use crate::tenant::Peer;

/// Most bytes of a cgroup's path that are kept of a lease: its maker chooses it.
/// Fixed: a bound of the broker's memory and of the state file.
const MOST_PATH: usize = 256;

/// A lease that was handed out, as it survives the broker, too.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lease {
    /// The broker's number.
    pub number: u64,
    /// The process that got it.
    #[serde(flatten)]
    pub holder: Holder,
    /// Whose quota counts it.
    pub tenant: String,
    /// What ends it.
    #[serde(rename = "is_watched")]
    pub ends: Ends,
    /// What it is made of.
    #[serde(flatten)]
    pub kind: Kind,
    /// Its size.
    pub bytes: u64,
    /// Its inode's number,
    pub inode: u64,
    /// and device, once its memory is watched.
    pub device: u64,
    /// When it was granted, ns.
    pub since: u64,
    /// CPU time that making it took, ns.
    pub cost_ns: u64,
}

/// A process that a lease or an answer was for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Its number.
    pub pid: i32,
    /// When it began, in ticks of the kernel; 0: not known.
    pub began: u64,
    /// It lives in a container.
    #[serde(default)]
    pub contained: bool,
    /// Its user,
    pub uid: u32,
    /// its group,
    pub gid: u32,
    /// and the first of its cgroups, for people: of a bounded number of bytes as JSON has it.
    pub cgroup: Option<String>,
}

impl From<&Peer> for Holder {
    fn from(peer: &Peer) -> Holder {
        let mut bytes = 0;
        let fits = |c: &char| {
            bytes += c.len_utf8() + usize::from(matches!(c, '"' | '\\'));
            bytes <= MOST_PATH
        };
        let cgroup = peer.cgroups.first();
        let cgroup = cgroup.map(|path| escape(path).chars().take_while(fits).collect());
        let Peer { pid, began, contained, uid, gid, .. } = *peer;
        Holder { pid, began, contained, uid, gid, cgroup }
    }
}

/// What ends a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(from = "bool", into = "bool")]
pub enum Ends {
    /// The process that got it, whichever process has the memory by then.
    Process,
    /// Its memory, whichever process had it.
    Memory,
}

impl From<bool> for Ends {
    fn from(is_watched: bool) -> Ends {
        if is_watched { Ends::Memory } else { Ends::Process }
    }
}

impl From<Ends> for bool {
    fn from(ends: Ends) -> bool {
        ends == Ends::Memory
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Leases {
    all: BTreeMap<u64, Lease>,
    /// Of those that end with their process, by that process.
    processes: BTreeMap<i32, BTreeSet<u64>>,
    tenants: BTreeMap<String, u64>,
    kinds: BTreeMap<Kind, u64>,
    /// Leases that came and went.
    changes: u64,
}

impl Leases {
    /// One more, which ends with its process until it is known better.
    pub fn insert(&mut self, lease: Lease) {
        self.remove(lease.number);
        self.changes += 1;
        *self.tenants.entry(lease.tenant.clone()).or_default() += lease.bytes;
        *self.kinds.entry(lease.kind).or_default() += lease.bytes;
        if lease.ends == Ends::Process {
            self.processes.entry(lease.holder.pid).or_default().insert(lease.number);
        }
        self.all.insert(lease.number, lease);
    }

    /// It ends with its memory, whose inode is of this device.
    pub fn ends_with_memory(&mut self, number: u64, device: u64) {
        if let Some(mut lease) = self.remove(number) {
            (lease.ends, lease.device) = (Ends::Memory, device);
            self.insert(lease);
        }
    }

    /// One is over.
    pub fn remove(&mut self, number: u64) -> Option<Lease> {
        let lease = self.all.remove(&number)?;
        self.changes += 1;
        subtract(&mut self.tenants, &lease.tenant, lease.bytes);
        subtract(&mut self.kinds, &lease.kind, lease.bytes);
        if let Some(of_process) = self.processes.get_mut(&lease.holder.pid) {
            of_process.remove(&number);
            if of_process.is_empty() {
                self.processes.remove(&lease.holder.pid);
            }
        }
        Some(lease)
    }

    /// A process is gone, and with it what ends so.
    pub fn exited(&mut self, pid: i32) -> Vec<Lease> {
        let numbers = self.processes.remove(&pid).unwrap_or_default();
        numbers.into_iter().filter_map(|number| self.remove(number)).collect()
    }

    /// Another number than before, if leases came or went.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// That one.
    pub fn get(&self, number: u64) -> Option<&Lease> {
        self.all.get(&number)
    }

    /// Those with this number and above, in their order.
    pub fn from(&self, number: u64) -> impl Iterator<Item = &Lease> {
        self.all.range(number..).map(|(_, lease)| lease)
    }

    /// Bytes that a tenant has.
    pub fn of_tenant(&self, name: &str) -> u64 {
        self.tenants.get(name).copied().unwrap_or(0)
    }

    /// Bytes by tenant.
    pub fn tenants(&self) -> impl Iterator<Item = (&str, u64)> {
        self.tenants.iter().map(|(name, bytes)| (name.as_str(), *bytes))
    }

    /// Bytes by kind.
    pub fn kinds(&self) -> impl Iterator<Item = (Kind, u64)> {
        self.kinds.iter().map(|(kind, bytes)| (*kind, *bytes))
    }
}

fn subtract<K: Ord + ?Sized, O: Ord + std::borrow::Borrow<K>>(
    sums: &mut BTreeMap<O, u64>,
    of: &K,
    bytes: u64,
) {
    if let Some(sum) = sums.get_mut(of) {
        *sum -= bytes;
        if *sum == 0 {
            sums.remove(of);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Backing, Page};
    use crate::tenant::Payer;

    fn lease(number: u64, pid: i32, tenant: &str) -> Lease {
        let kind = Kind { page: Page::Huge, backing: Backing::Thp, node: 0, payer: Payer::BROKER };
        let (bytes, inode, since, cost_ns) = (number << 21, number, 0, 0);
        let tenant = tenant.to_owned();
        let (device, ends) = (0, Ends::Process);
        let holder = Holder { pid, uid: 7, gid: 7, ..Holder::default() };
        Lease { number, holder, tenant, ends, kind, bytes, inode, device, since, cost_ns }
    }

    #[test]
    fn sums_are_those_of_what_is_out_in_any_order_of_ends() {
        let mut leases = Leases::default();
        for number in 1..=64 {
            let tenant = if number % 3 == 0 { "a" } else { "b" };
            leases.insert(lease(number, (number % 5) as i32, tenant));
            if number % 2 == 0 {
                leases.ends_with_memory(number, 1);
            }
        }
        let sum = |leases: &Leases, tenant: &str| -> u64 {
            leases.from(0).filter(|lease| lease.tenant == tenant).map(|lease| lease.bytes).sum()
        };
        let agree = |leases: &Leases| {
            for tenant in ["a", "b"] {
                assert_eq!(leases.of_tenant(tenant), sum(leases, tenant));
            }
            let kinds: u64 = leases.kinds().map(|(_, bytes)| bytes).sum();
            assert_eq!(kinds, sum(leases, "a") + sum(leases, "b"));
        };
        agree(&leases);
        assert!(leases.exited(1).iter().all(|lease| lease.holder.pid == 1));
        agree(&leases);
        assert!(leases.from(0).all(|lease| lease.holder.pid != 1 || lease.number % 2 == 0));
        for number in (1..=64).rev() {
            leases.remove(number);
            agree(&leases);
            assert!(leases.remove(number).is_none());
        }
        assert!(leases.tenants.is_empty() && leases.kinds.is_empty());
        assert!(leases.processes.is_empty());
    }
}
