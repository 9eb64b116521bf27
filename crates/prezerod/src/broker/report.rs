//! What people see of the broker: one JSON object, told in parts.
//!
//! A part is begun where the one before ended, by a [`Cursor`], and nothing is kept in between:
//! a report costs its client's turns, however many leases there are. What is handed out or ends
//! between two parts is shown once, twice or not at all.

use prezero_sys::escape::{self, escape};
use serde::Serialize;

use super::shortage::{self, Shortage};
use super::{Broker, ClientId, Inode};
use crate::ledger::{Ends, Lease};
use crate::protocol::{Answer, MAX_PART};

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
    ends_with: &'static str,
}

#[derive(Serialize)]
struct Wanted {
    charged: Option<String>,
    page_bytes: u64,
    node: Option<u16>,
    bytes: u64,
    target: u64,
    ready: u64,
    shortage: Option<ShortageRow>,
}

#[derive(Serialize)]
struct ShortageRow {
    pieces: u64,
    reason: &'static str,
    why: String,
    ready_in_seconds: Option<f64>,
}

/// What is no list.
#[derive(Serialize)]
struct Sums {
    making_bytes: u64,
    waiting: usize,
    reserved: usize,
    hits: u64,
    misses: u64,
    made_bytes: u64,
    made_cpu_seconds: f64,
    waste_bytes: u64,
    audit_failures: u64,
    owed_bytes: u64,
    drained: bool,
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// Leases that are looked at for one part: most may be another user's.
const LOOKED: usize = 1024;
/// The characters of a cgroup's path that are shown: its maker chooses it.
const SHOWN: usize = 256;

/// What stands between and behind the lists.
const BEFORE_READY: &str = "],\"ready\":[";
const BEFORE_LEASED: &str = "],\"leased\":[";
const END: &str = "]}";
/// Bytes of all of them: lists may be empty.
const SEAMS: usize = BEFORE_READY.len() + BEFORE_LEASED.len() + END.len();

/// The lists of the report, in their order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum List {
    Wanted,
    Ready,
    Leased,
}

/// Where a part begins: in which list, at which row, and whether that is the list's first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Cursor {
    list: List,
    row: u64,
    first: bool,
}

impl Cursor {
    fn start(list: List) -> Cursor {
        Cursor { list, row: 0, first: true }
    }

    /// As the client repeats it; never 0.
    fn to_wire(self) -> u64 {
        let list = match self.list {
            List::Wanted => 1,
            List::Ready => 2,
            List::Leased => 3,
        };
        list << 62 | u64::from(self.first) << 61 | self.row & ((1 << 61) - 1)
    }

    /// A client may repeat what it likes: any number is a cursor, or the beginning.
    fn from_wire(number: u64) -> Option<Cursor> {
        let list = match number >> 62 {
            0 => return None,
            1 => List::Wanted,
            2 => List::Ready,
            _ => List::Leased,
        };
        Some(Cursor { list, row: number & ((1 << 61) - 1), first: number >> 61 & 1 == 1 })
    }
}

/// A part, while it is written.
struct Part {
    text: String,
    cursor: Cursor,
}

impl Part {
    /// Adds a row, and goes on at `next`; false: it is for the next part.
    fn add(&mut self, row: &impl Serialize, next: u64) -> bool {
        let json = escape::json(&serde_json::to_string(row).unwrap_or_default());
        // A comma, and all that may follow the row without another.
        let full = self.text.len() + json.len() + 1 + SEAMS > MAX_PART;
        if full && !self.text.is_empty() {
            return false;
        }
        if !full {
            if !self.cursor.first {
                self.text.push(',');
            }
            self.text += &json;
            self.cursor.first = false;
        }
        self.cursor.row = next;
        true
    }

    /// The next list begins.
    fn open(&mut self, list: List, between: &str) {
        self.text += between;
        self.cursor = Cursor::start(list);
    }

    fn answer(self, more: bool) -> Answer {
        let next = if more { self.cursor.to_wire() } else { 0 };
        Answer::Part { next, text: self.text }
    }
}

impl<I: Inode> Broker<I> {
    /// A part of what is there and which client holds what, as JSON. A client sees the leases of its own
    /// party, the operator sees all.
    pub(super) fn stock_part(&self, now: u64, client: ClientId, from: u64) -> Answer {
        let mut part = match Cursor::from_wire(from) {
            Some(cursor) => Part { text: String::new(), cursor },
            None => {
                let sums = serde_json::to_string(&self.sums()).unwrap_or_default();
                // The object goes on: its lists follow.
                let text = format!("{},\"wanted\":[", sums.trim_end_matches('}'));
                Part { text, cursor: Cursor::start(List::Wanted) }
            }
        };
        let at = |part: &Part| usize::try_from(part.cursor.row).unwrap_or(usize::MAX);
        if part.cursor.list == List::Wanted {
            for wanted in self.wanted(now).into_iter().skip(at(&part)) {
                let next = part.cursor.row + 1;
                if !part.add(&self.wanted_row(wanted), next) {
                    return part.answer(true);
                }
            }
            part.open(List::Ready, BEFORE_READY);
        }
        if part.cursor.list == List::Ready {
            for inode in self.stock.iter().skip(at(&part)) {
                let next = part.cursor.row + 1;
                let row = Ready {
                    page_bytes: inode.kind.page.bytes(),
                    backing: inode.kind.backing.name(),
                    node: inode.kind.node,
                    bytes: inode.bytes,
                    age_seconds: seconds(now.saturating_sub(inode.made_ns)),
                    cpu_seconds: seconds(inode.cost_ns),
                    charged: self.ledger.charged(inode.kind.payer).map(str::to_owned),
                };
                if !part.add(&row, next) {
                    return part.answer(true);
                }
            }
            part.open(List::Leased, BEFORE_LEASED);
        }
        let own = self.ledger.clients.get(&client).map(|peer| (peer.uid, peer.contained));
        let tenant = self.ledger.tenant(client).map(|tenant| tenant.name).unwrap_or_default();
        let is_own = |lease: &Lease| {
            Some((lease.peer.uid, lease.peer.contained)) == own && lease.tenant == tenant
        };
        let all = self.is_operator(client);
        for (looked, lease) in self.ledger.leases.from(part.cursor.row).enumerate() {
            if looked == LOOKED {
                return part.answer(true);
            }
            if !all && !is_own(lease) {
                part.cursor.row = lease.number + 1;
            } else if !part.add(&self.leased_row(now, lease), lease.number + 1) {
                return part.answer(true);
            }
        }
        part.text += END;
        part.answer(false)
    }

    fn sums(&self) -> Sums {
        Sums {
            making_bytes: self.planner.jobs.iter().map(|job| job.bytes).sum(),
            waiting: self.planner.waits.len(),
            reserved: self.stock.reserved.len(),
            hits: self.counters.hits,
            misses: self.counters.misses,
            made_bytes: self.counters.made_bytes,
            made_cpu_seconds: seconds(self.counters.made_cpu_ns),
            waste_bytes: self.counters.waste_bytes,
            audit_failures: self.counters.audit_failures,
            owed_bytes: self.ledger.debts.all(),
            drained: self.drained,
        }
    }

    fn leased_row(&self, now: u64, lease: &Lease) -> Leased {
        Leased {
            lease: lease.number,
            tenant: lease.tenant.clone(),
            pid: lease.peer.pid,
            uid: lease.peer.uid,
            cgroup: lease
                .peer
                .cgroups
                .first()
                .map(|path| escape(path).chars().take(SHOWN).collect()),
            page_bytes: lease.kind.page.bytes(),
            backing: lease.kind.backing.name(),
            node: lease.kind.node,
            bytes: lease.bytes,
            inode: lease.inode,
            age_seconds: seconds(now.saturating_sub(lease.since)),
            cpu_seconds: seconds(lease.cost_ns),
            charged: self.ledger.charged(lease.kind.payer).map(str::to_owned),
            ends_with: match lease.ends {
                Ends::Memory => "memory",
                Ends::Process => "process",
            },
        }
    }

    fn wanted_row(&self, wanted: shortage::Wanted) -> Wanted {
        let pieces = wanted.missing();
        let shortage::Wanted { need, target, ready, shortage } = wanted;
        Wanted {
            charged: self.ledger.charged(need.payer).map(str::to_owned),
            page_bytes: need.want.page.bytes(),
            node: need.want.node,
            bytes: need.want.bytes,
            target,
            ready,
            shortage: shortage.map(|Shortage { reason, why, ready_ns }| ShortageRow {
                pieces,
                reason,
                why,
                ready_in_seconds: ready_ns.map(seconds),
            }),
        }
    }
}
