//! What people and Prometheus see of the broker.

use std::collections::BTreeMap;

use serde::Serialize;

use super::lack::{self, Lack};
use super::{Broker, ClientId, Inode};
use crate::counters::{Gauge, write_prometheus};
use crate::inode::Kind;

#[derive(Serialize)]
struct Ready {
    page_bytes: u64,
    backing: &'static str,
    node: u16,
    bytes: u64,
    age_seconds: f64,
    cpu_seconds: f64,
    charged: Option<String>,
}

#[derive(Serialize)]
struct Leased {
    lease: u64,
    tenant: String,
    pid: i32,
    uid: u32,
    cgroup: Option<String>,
    page_bytes: u64,
    backing: &'static str,
    node: u16,
    bytes: u64,
    inode: u64,
    age_seconds: f64,
    cpu_seconds: f64,
    charged: Option<String>,
}

#[derive(Serialize)]
struct Wanted {
    charged: Option<String>,
    page_bytes: u64,
    node: Option<u16>,
    bytes: u64,
    target: u64,
    ready: u64,
    lacks: Option<Lacks>,
}

#[derive(Serialize)]
struct Lacks {
    pieces: u64,
    reason: &'static str,
    why: String,
    ready_in_seconds: Option<f64>,
}

#[derive(Serialize)]
struct StockReport {
    ready: Vec<Ready>,
    making_bytes: u64,
    waiting: usize,
    reserved: usize,
    wanted: Vec<Wanted>,
    leased: Vec<Leased>,
    hits: u64,
    misses: u64,
    made_bytes: u64,
    made_cpu_seconds: f64,
    waste_bytes: u64,
    audit_failures: u64,
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

impl<I: Inode> Broker<I> {
    /// What is there and who holds what, as JSON. A client sees the leases of its own user,
    /// root and the broker's user see all.
    pub(super) fn stock_report(&self, now: u64, client: ClientId) -> String {
        let uid = self.clients.get(&client).map_or(u32::MAX, |peer| peer.uid);
        let all = uid == 0 || uid == rustix::process::getuid().as_raw();
        let leases = self.leases.iter().filter(|lease| all || lease.peer.uid == uid);
        let charged = |payer| self.charged(payer).map(str::to_owned);
        let report = StockReport {
            ready: self
                .stock
                .iter()
                .map(|blank| Ready {
                    page_bytes: blank.kind.page.bytes(),
                    backing: blank.kind.backing.name(),
                    node: blank.kind.node,
                    bytes: blank.bytes,
                    age_seconds: seconds(now.saturating_sub(blank.made_ns)),
                    cpu_seconds: seconds(blank.cost_ns),
                    charged: charged(blank.kind.payer),
                })
                .collect(),
            making_bytes: self.jobs.iter().map(|job| job.bytes).sum(),
            waiting: self.waits.len(),
            reserved: self.held.len(),
            wanted: self.wanted(now).into_iter().map(|wanted| self.wanted_row(wanted)).collect(),
            leased: leases
                .map(|lease| Leased {
                    lease: lease.number,
                    tenant: lease.tenant.clone(),
                    pid: lease.peer.pid,
                    uid: lease.peer.uid,
                    cgroup: lease.peer.cgroup.clone(),
                    page_bytes: lease.kind.page.bytes(),
                    backing: lease.kind.backing.name(),
                    node: lease.kind.node,
                    bytes: lease.bytes,
                    inode: lease.inode,
                    age_seconds: seconds(now.saturating_sub(lease.since)),
                    cpu_seconds: seconds(lease.cost_ns),
                    charged: charged(lease.kind.payer),
                })
                .collect(),
            hits: self.counters.hits,
            misses: self.counters.misses,
            made_bytes: self.counters.made_bytes,
            made_cpu_seconds: seconds(self.counters.made_cpu_ns),
            waste_bytes: self.counters.waste_bytes,
            audit_failures: self.counters.audit_failures,
        };
        serde_json::to_string(&report).unwrap_or_default()
    }

    fn wanted_row(&self, wanted: lack::Wanted) -> Wanted {
        let pieces = wanted.lacking();
        let lack::Wanted { need, target, ready, lack } = wanted;
        Wanted {
            charged: self.charged(need.payer).map(str::to_owned),
            page_bytes: need.want.page.bytes(),
            node: need.want.node,
            bytes: need.want.bytes,
            target,
            ready,
            lacks: lack.map(|Lack { reason, why, ready_ns }| Lacks {
                pieces,
                reason,
                why,
                ready_in_seconds: ready_ns.map(seconds),
            }),
        }
    }

    /// All counters and gauges as Prometheus text.
    pub fn metrics(&self, now: u64) -> String {
        let mut bytes: BTreeMap<(Kind, &'static str), u64> = BTreeMap::new();
        let blanks = self.stock.iter().map(|blank| (blank.kind, "ready", blank.bytes));
        let held = self.held.iter().map(|held| (held.blank.kind, "reserved", held.blank.bytes));
        let jobs = self.jobs.iter().map(|job| (job.kind, "making", job.bytes));
        let leases = self.leases.iter().map(|lease| (lease.kind, "leased", lease.bytes));
        for (kind, state, size) in blanks.chain(held).chain(jobs).chain(leases) {
            *bytes.entry((kind, state)).or_default() += size;
        }
        let mut tenants: BTreeMap<&str, u64> = BTreeMap::new();
        for lease in &self.leases {
            *tenants.entry(&lease.tenant).or_default() += lease.bytes;
        }
        let mut lacking: BTreeMap<(&str, String, String, &str), u64> = BTreeMap::new();
        for wanted in &self.wanted(now) {
            let Some(lack) = &wanted.lack else { continue };
            let want = wanted.need.want;
            let node = want.node.map_or("any".to_owned(), |node| node.to_string());
            let charged = self.charged(wanted.need.payer).unwrap_or("broker");
            let key = (lack.reason, want.page.to_string(), node, charged);
            *lacking.entry(key).or_default() += wanted.lacking() * want.bytes;
        }
        let labels = |kind: &Kind| {
            vec![
                ("page", kind.page.to_string()),
                ("backing", kind.backing.name().to_owned()),
                ("node", kind.node.to_string()),
                ("charged", self.charged(kind.payer).unwrap_or("broker").to_owned()),
            ]
        };
        let gauges = [
            Gauge {
                name: "memory_bytes",
                help: "bytes by what became of them; leased: to processes that live",
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
                name: "lacking_bytes",
                help: "bytes that should lie ready and do not, by reason; prezero stock says more",
                samples: lacking
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
                help: "bytes leased to processes that live, by tenant",
                samples: tenants
                    .iter()
                    .map(|(name, size)| (vec![("tenant", (*name).to_owned())], *size))
                    .collect(),
            },
            Gauge {
                name: "pace_bytes_per_second",
                help: "bytes zeroed and populated in a second, of late",
                samples: self
                    .paces
                    .iter()
                    .map(|(kind, pace)| (labels(kind), *pace as u64))
                    .collect(),
            },
            Gauge {
                name: "waiting_requests",
                help: "requests that wait",
                samples: vec![(vec![], self.waits.len() as u64)],
            },
            Gauge {
                name: "distrusted_kinds",
                help: "kinds of page of which nothing is leased after a failed audit",
                samples: vec![(vec![], self.distrusted.len() as u64)],
            },
        ];
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = write_prometheus(&mut text, &self.counters, &gauges);
        text
    }
}
