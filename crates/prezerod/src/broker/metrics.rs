//! What Prometheus sees of the broker.

use std::collections::BTreeMap;

use super::counters::{Gauge, write_prometheus};
use super::{Broker, Inode};
use crate::inode::Kind;
use crate::protocol::{Answer, MAX_PART};

impl<I: Inode> Broker<I> {
    /// A part of [`metrics`](Broker::metrics), from that line on.
    pub(super) fn metrics_part(&self, now: u64, from: u64) -> Answer {
        let whole = self.metrics(now);
        let lines = whole.split_inclusive('\n').map(str::to_owned);
        whole_lines((0..).zip(lines).skip(usize::try_from(from).unwrap_or(usize::MAX)))
    }

    /// All counters and gauges as Prometheus text.
    pub fn metrics(&self, now: u64) -> String {
        self.view.at(now);
        let mut bytes: BTreeMap<(Kind, &'static str), u64> = BTreeMap::new();
        let inodes = self.stock.iter().map(|inode| (inode.kind, "ready", inode.bytes));
        let jobs = self.planner.jobs.iter().map(|job| (job.kind, "making", job.bytes));
        let leases = self.ledger.leases.kinds().map(|(kind, bytes)| (kind, "leased", bytes));
        for (kind, state, size) in inodes.chain(jobs).chain(leases) {
            *bytes.entry((kind, state)).or_default() += size;
        }
        let mut shortages: BTreeMap<(&str, String, String, &str), u64> = BTreeMap::new();
        for wanted in &self.wanted(now) {
            let Some(shortage) = &wanted.shortage else { continue };
            let want = wanted.need.want;
            let node = want.node.map_or("any".to_owned(), |node| node.to_string());
            let charged = self.ledger.charged(wanted.need.payer).unwrap_or("broker");
            let key = (shortage.reason, want.page.to_string(), node, charged);
            *shortages.entry(key).or_default() += wanted.missing() * want.bytes;
        }
        let labels = |kind: &Kind| {
            vec![
                ("page", kind.page.to_string()),
                ("backing", kind.backing.name().to_owned()),
                ("node", kind.node.to_string()),
                ("charged", self.ledger.charged(kind.payer).unwrap_or("broker").to_owned()),
            ]
        };
        let memory = bytes.iter().map(|((kind, state), size)| {
            let mut labels = labels(kind);
            labels.push(("state", (*state).to_owned()));
            (labels, *size)
        });
        let shortage = shortages.iter().map(|((reason, page, node, charged), size)| {
            let labels = vec![
                ("page", page.clone()),
                ("node", node.clone()),
                ("charged", (*charged).to_owned()),
                ("reason", (*reason).to_owned()),
            ];
            (labels, *size)
        });
        let of_tenant = |(name, size): (&str, u64)| (vec![("tenant", name.to_owned())], size);
        let tenants = self.ledger.leases.tenants().map(of_tenant);
        let owed = self.ledger.debts.tenants().into_iter().map(of_tenant);
        let paces = self.planner.paces.iter().map(|(kind, pace)| (labels(kind), *pace as u64));
        let alone = |value: u64| vec![(vec![], value)];
        let gauges = [
            (
                "memory_bytes",
                "bytes by what became of them; leased: and not yet back with the kernel",
                memory.collect(),
            ),
            (
                "shortage_bytes",
                "bytes that should lie ready and do not, by reason; prezero stock says more",
                shortage.collect(),
            ),
            (
                "tenant_bytes",
                "bytes leased and not yet back with the kernel, by tenant",
                tenants.collect(),
            ),
            (
                "tenant_owed_bytes",
                "bytes of leases given back that are still in use, by each tenant that may have them",
                owed.collect(),
            ),
            (
                "pace_bytes_per_second",
                "bytes zeroed and populated in a second, recently",
                paces.collect(),
            ),
            (
                "drained",
                "1 while the operator drains the broker: nothing is leased",
                alone(self.drained.into()),
            ),
            ("waiting_requests", "requests that wait", alone(self.planner.waits.len() as u64)),
            (
                "quarantined_kinds",
                "kinds of page of which nothing is leased after a failed audit",
                alone(self.stock.quarantined.len() as u64),
            ),
        ];
        let gauges = gauges.map(|(name, help, samples)| Gauge { name, help, samples });
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = write_prometheus(&mut text, &self.counters, &gauges);
        text
    }
}

/// As many lines as one part has, each whole, and where the next part begins.
pub(super) fn whole_lines(lines: impl Iterator<Item = (u64, String)>) -> Answer {
    let mut text = String::new();
    for (at, line) in lines {
        if !text.is_empty() && text.len() + line.len() > MAX_PART {
            return Answer::Part { next: at, text };
        }
        text += &line;
    }
    Answer::Part { next: 0, text }
}
