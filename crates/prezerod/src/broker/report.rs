//! What people see of the broker: one JSON object, told in parts.
//!
//! A part is begun where the one before ended, by a [`Cursor`], and nothing is kept in between:
//! a report costs its client's turns, however many leases there are. What is handed out or ends
//! between two parts is shown once, twice or not at all.

use prezero_sys::escape;
use serde_json::{Value, json};

use super::shortage::Wanted;
use super::{Broker, ClientId, Inode};
use crate::inode::Kind;
use crate::ledger::{Ends, Lease};
use crate::protocol::{Answer, MAX_PART};
use crate::stock::StockInode;

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// Leases that are looked at for one part: most may be another user's.
const LOOKED: usize = 1024;
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
    fn add(&mut self, row: &Value, next: u64) -> bool {
        let json = escape::json(&row.to_string());
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
                // The object goes on: its lists follow.
                let text =
                    format!("{},\"wanted\":[", self.sums().to_string().trim_end_matches('}'));
                Part { text, cursor: Cursor::start(List::Wanted) }
            }
        };
        let at = |part: &Part| usize::try_from(part.cursor.row).unwrap_or(usize::MAX);
        if part.cursor.list == List::Wanted {
            for wanted in self.wanted(now).into_iter().skip(at(&part)) {
                let next = part.cursor.row + 1;
                if !part.add(&self.wanted_row(&wanted), next) {
                    return part.answer(true);
                }
            }
            part.open(List::Ready, BEFORE_READY);
        }
        if part.cursor.list == List::Ready {
            for inode in self.stock.iter().skip(at(&part)) {
                let next = part.cursor.row + 1;
                let row = self.ready_row(now, inode);
                if !part.add(&row, next) {
                    return part.answer(true);
                }
            }
            part.open(List::Leased, BEFORE_LEASED);
        }
        let own = self.ledger.clients.get(&client).map(|peer| (peer.uid, peer.contained));
        let tenant = self.ledger.tenant(client).map(|tenant| tenant.name).unwrap_or_default();
        let is_own = |lease: &Lease| {
            Some((lease.holder.uid, lease.holder.contained)) == own && lease.tenant == tenant
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

    /// What is no list.
    fn sums(&self) -> Value {
        json!({
            "making_bytes": self.planner.jobs.iter().map(|job| job.bytes).sum::<u64>(),
            "waiting": self.planner.waits.len(),
            "hits": self.counters.hits,
            "misses": self.counters.misses,
            "made_bytes": self.counters.made_bytes,
            "made_cpu_seconds": seconds(self.counters.made_cpu_ns),
            "waste_bytes": self.counters.waste_bytes,
            "audit_failures": self.counters.audit_failures,
            "owed_bytes": self.ledger.debts.all(),
            "drained": self.drained,
        })
    }

    /// A piece of memory, ready or leased, since that time.
    fn piece(&self, now: u64, kind: &Kind, bytes: u64, since: u64, cost_ns: u64) -> Value {
        json!({
            "page_bytes": kind.page.bytes(),
            "backing": kind.backing.name(),
            "node": kind.node,
            "bytes": bytes,
            "age_seconds": seconds(now.saturating_sub(since)),
            "cpu_seconds": seconds(cost_ns),
            "charged": self.ledger.charged(kind.payer),
        })
    }

    fn ready_row(&self, now: u64, inode: &StockInode<I>) -> Value {
        self.piece(now, &inode.kind, inode.bytes, inode.made_ns, inode.cost_ns)
    }

    fn leased_row(&self, now: u64, lease: &Lease) -> Value {
        let mut row = self.piece(now, &lease.kind, lease.bytes, lease.since, lease.cost_ns);
        row["lease"] = lease.number.into();
        row["tenant"] = lease.tenant.as_str().into();
        row["pid"] = lease.holder.pid.into();
        row["uid"] = lease.holder.uid.into();
        row["cgroup"] = lease.holder.cgroup.as_deref().into();
        row["inode"] = lease.inode.into();
        row["ends_with"] = if lease.ends == Ends::Memory { "memory" } else { "process" }.into();
        row
    }

    fn wanted_row(&self, wanted: &Wanted) -> Value {
        let want = wanted.need.want;
        let shortage = wanted.shortage.as_ref().map(|shortage| {
            json!({
                "pieces": wanted.missing(),
                "reason": shortage.reason,
                "why": shortage.why,
                "ready_in_seconds": shortage.ready_ns.map(seconds),
            })
        });
        json!({
            "charged": self.ledger.charged(wanted.need.payer),
            "page_bytes": want.page.bytes(),
            "node": want.node,
            "bytes": want.bytes,
            "target": wanted.target,
            "ready": wanted.ready,
            "shortage": shortage,
        })
    }
}
