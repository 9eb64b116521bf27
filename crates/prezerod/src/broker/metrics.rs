//! What Prometheus sees of the broker.

use std::collections::BTreeMap;

use super::counters::{Gauge, write_prometheus};
use super::{Broker, Inode};
use crate::inode::Kind;
use crate::protocol::{Answer, MAX_PART};

impl<I: Inode> Broker<I> {
    /// A part of [`metrics`](Broker::metrics): whole lines, from that line on.
    pub(super) fn metrics_part(&self, now: u64, from: u64) -> Answer {
        let whole = self.metrics(now);
        let mut lines =
            whole.split_inclusive('\n').skip(usize::try_from(from).unwrap_or(usize::MAX));
        let (mut text, mut next) = (String::new(), from);
        for line in lines.by_ref() {
            if text.len() + line.len() > MAX_PART {
                return Answer::Part { next, text };
            }
            text += line;
            next += 1;
        }
        Answer::Part { next: 0, text }
    }

    /// All counters and gauges as Prometheus text.
    pub fn metrics(&self, now: u64) -> String {
        self.view.at(now);
        let mut bytes: BTreeMap<(Kind, &'static str), u64> = BTreeMap::new();
        let inodes = self.stock.iter().map(|inode| (inode.kind, "ready", inode.bytes));
        let reserved = self
            .stock
            .reserved
            .iter()
            .map(|reserved| (reserved.inode.kind, "reserved", reserved.inode.bytes));
        let jobs = self.planner.jobs.iter().map(|job| (job.kind, "making", job.bytes));
        let leases = self.ledger.leases.kinds().map(|(kind, bytes)| (kind, "leased", bytes));
        for (kind, state, size) in inodes.chain(reserved).chain(jobs).chain(leases) {
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
        let gauges = [
            Gauge {
                name: "memory_bytes",
                help: "bytes by what became of them; leased: and not yet back with the kernel",
                samples: bytes
                    .iter()
                    .map(|((kind, state), size)| {
                        let mut labels = labels(kind);
                        labels.push(("state", (*state).to_owned()));
                        (labels, *size)
                    })
                    .collect(),
            },
            Gauge {
                name: "shortage_bytes",
                help: "bytes that should lie ready and do not, by reason; prezero stock says more",
                samples: shortages
                    .iter()
                    .map(|((reason, page, node, charged), size)| {
                        let labels = vec![
                            ("page", page.clone()),
                            ("node", node.clone()),
                            ("charged", (*charged).to_owned()),
                            ("reason", (*reason).to_owned()),
                        ];
                        (labels, *size)
                    })
                    .collect(),
            },
            Gauge {
                name: "tenant_bytes",
                help: "bytes leased and not yet back with the kernel, by tenant",
                samples: self
                    .ledger
                    .leases
                    .tenants()
                    .map(|(name, size)| (vec![("tenant", name.to_owned())], size))
                    .collect(),
            },
            Gauge {
                name: "tenant_owed_bytes",
                help: "bytes of leases given back that are still in use, by each tenant that may have them",
                samples: self
                    .ledger
                    .debts
                    .tenants()
                    .into_iter()
                    .map(|(name, size)| (vec![("tenant", name.to_owned())], size))
                    .collect(),
            },
            Gauge {
                name: "pace_bytes_per_second",
                help: "bytes zeroed and populated in a second, recently",
                samples: self
                    .planner
                    .paces
                    .iter()
                    .map(|(kind, pace)| (labels(kind), *pace as u64))
                    .collect(),
            },
            Gauge {
                name: "drained",
                help: "1 while the operator drains the broker: nothing is leased",
                samples: vec![(vec![], u64::from(self.drained))],
            },
            Gauge {
                name: "waiting_requests",
                help: "requests that wait",
                samples: vec![(vec![], self.planner.waits.len() as u64)],
            },
            Gauge {
                name: "quarantined_kinds",
                help: "kinds of page of which nothing is leased after a failed audit",
                samples: vec![(vec![], self.stock.quarantined.len() as u64)],
            },
        ];
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = write_prometheus(&mut text, &self.counters, &gauges);
        text
    }
}
