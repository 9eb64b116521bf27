//! What is leased and learned, as it survives the end of the broker.
//!
//! Contract: leases and debts come back only on the same boot of the host, and only where the caller vouches that the
//! lease is still out. Demand comes back always, moved by the time that has passed, and so does a drain. A tenant or a charge that
//! the settings do not know any more takes what it had with it. **Each part is read by itself**: one that cannot be read
//! takes nothing else with it. Each part is bounded, and leases are bounded by tenant.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::expect::Expected;
use super::{Broker, Inode, LARGEST};
use crate::demand::Demand;
use crate::ledger::{Ends, Lease, debts};
use crate::persist::{each, in_place, part};
use crate::tenant::{Charge, Payer};

/// Most leases that are saved, the oldest of each tenant first.
/// Fixed: a bound of the state file.
pub const MOST_LEASES: usize = 8192;
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
#[derive(Debug, Default, Serialize, Deserialize)]
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
    demand: Demand,
    #[serde(deserialize_with = "each")]
    leases: Vec<Lease>,
    #[serde(deserialize_with = "each")]
    debts: debts::Saved,
    /// For an earlier broker, which knows no file for it.
    #[serde(deserialize_with = "part")]
    drained: bool,
    /// The drain has a file of its own.
    #[serde(deserialize_with = "part")]
    drained_apart: bool,
    #[serde(deserialize_with = "each")]
    expected: Vec<Expected>,
}

impl Saved {
    /// Whether an earlier broker, which had no file for it, was drained.
    pub fn was_drained(&self) -> bool {
        self.drained && !self.drained_apart
    }
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
        let (ledger, now) = (&self.ledger, moment.monotonic_ns);
        let charge = |charge: &Charge| Some((charge.cgroup.clone(), charge.files.clone()));
        Saved {
            numbers: self.numbers,
            tenants: ledger.names.iter().cloned().map(Some).collect(),
            charges: ledger.charges.iter().map(charge).collect(),
            demand: self.planner.demand.saved(now),
            leases: self.saved_leases(),
            debts: ledger.debts.saved(),
            drained: self.drained,
            drained_apart: true,
            expected: self.expected.saved(now),
            moment,
        }
    }

    /// The oldest leases of each tenant: one with many leaves room for the others.
    fn saved_leases(&self) -> Vec<Lease> {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        let numbered = self.ledger.leases.from(0).map(|lease| {
            let count = counts.entry(&lease.tenant).or_default();
            *count += 1;
            (*count, lease)
        });
        let mut all: Vec<_> = numbered.collect();
        all.sort_by_key(|(count, _)| *count);
        all.into_iter().take(MOST_LEASES).map(|(_, lease)| lease.clone()).collect()
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
        saved: Saved,
        mut ends: impl FnMut(&Lease) -> Option<Ends>,
    ) -> Restored {
        let (passed, same_boot) = saved.moment.to(now);
        let now = now.monotonic_ns;
        let ledger = &mut self.ledger;
        let charge = |charge: Option<(Option<String>, Vec<PathBuf>)>| {
            let charge = charge.map(|(cgroup, files)| Charge { cgroup, files })?;
            let at = ledger.charges.iter().position(|known| *known == charge)?;
            u16::try_from(at).ok().map(Payer)
        };
        let payers: Vec<Option<Payer>> = saved.charges.into_iter().map(charge).collect();
        let payer = |number: Payer| payers.get(usize::from(number.0)).copied().flatten();
        let tenant = |number: u16| ledger.number(saved.tenants.get(usize::from(number))?.as_ref()?);
        self.planner.demand.restore(now, passed, saved.demand, tenant, payer);
        let mut restored = Restored::default();
        if same_boot {
            let numbers = saved.leases.iter().map(|lease| lease.number).chain([saved.numbers]);
            let most = numbers.filter(|number| *number <= MOST_NUMBER).max();
            self.numbers = self.numbers.max(most.unwrap_or(0));
            ledger.debts.restore(&saved.debts);
            let mut ended = vec![];
            for mut lease in saved.leases {
                // One that no broker can have written, or of a tenant that is no more.
                if !is_one(&lease) || !ledger.names.contains(&lease.tenant) {
                    continue;
                }
                let found = ends(&lease);
                lease.kind.payer = payer(lease.kind.payer).unwrap_or_default();
                lease.ends = found.unwrap_or(Ends::Memory);
                match found {
                    Some(_) => ledger.leases.insert(lease),
                    None => ended.push(lease),
                }
            }
            restored = Restored { leases: ledger.leases.from(0).count(), ended: ended.len() };
            // They ended while there was no broker: what they left in use shows at the next count.
            ended.iter().for_each(|lease| ledger.gave_back(now, lease));
        }
        self.restore_expected(now, passed, saved.expected, payer);
        restored
    }
}

/// Whether a broker may have written it.
fn is_one(lease: &Lease) -> bool {
    let bounded = lease.number <= MOST_NUMBER && lease.bytes <= LARGEST;
    bounded && lease.holder.pid > 0 && lease.bytes.is_multiple_of(lease.kind.page.bytes())
}
