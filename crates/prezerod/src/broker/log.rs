//! Which client got what, waited or was refused, and why: the last of it, for people.
//!
//! Contract: it is bounded, whatever clients do. What repeats the last answer to the same process is counted there. Where
//! it is full the user with the most entries loses its oldest: one that asks without end pushes out no other's. A client
//! sees what its own user was answered, the operator sees all.

use std::collections::{BTreeMap, VecDeque};

use prezero_sys::escape;
use serde_json::json;

use super::metrics::whole_lines;
use super::{Broker, ClientId, Inode, Refusal};
use crate::ledger::Holder;
use crate::protocol::{Answer, MAX_TEXT, Reason, Want};
use crate::tenant::Peer;

/// Entries that are kept.
/// Fixed: a bound of the broker's memory, about a KiB each.
const MOST: usize = 512;

/// The process that an answer was for. One that belongs to no tenant has the empty name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Asker {
    tenant: String,
    holder: Holder,
}

impl Asker {
    /// A process of which no more is known.
    pub fn of_user(uid: u32) -> Asker {
        Asker { tenant: String::new(), holder: Holder { uid, ..Holder::default() } }
    }
}

/// One answer, or several alike.
#[derive(Debug)]
struct Entry {
    /// The number of the last of them, from 1.
    number: u64,
    at: u64,
    times: u64,
    asker: Asker,
    want: Option<Want>,
    waited_ns: u64,
    said: Said,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Said {
    Lease(u64),
    /// Not now; the client may ask again.
    Later(Reason, String),
    Refused(Reason, String),
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// It is this time, ns.
    pub now: u64,
    number: u64,
    all: VecDeque<Entry>,
}

impl Log {
    fn add(&mut self, asker: Asker, want: Option<Want>, waited_ns: u64, said: Said) {
        self.number += 1;
        let last = self.all.iter().rposition(|entry| entry.asker == asker);
        let same = last.filter(|&at| self.all[at].said == said && self.all[at].want == want);
        let times = same.and_then(|at| self.all.remove(at)).map_or(0, |entry| entry.times);
        if self.all.len() >= MOST {
            self.evict();
        }
        let (number, at, times) = (self.number, self.now, times + 1);
        self.all.push_back(Entry { number, at, times, asker, want, waited_ns, said });
    }

    /// The tenant with the most entries, and of its users the one with the most, loses its oldest.
    fn evict(&mut self) {
        fn user(entry: &Entry) -> (&str, u32) {
            (&entry.asker.tenant, entry.asker.holder.uid)
        }
        let (mut tenants, mut users) = (BTreeMap::new(), BTreeMap::new());
        for (tenant, uid) in self.all.iter().map(user) {
            *tenants.entry(tenant).or_insert(0) += 1;
            *users.entry((tenant, uid)).or_insert(0) += 1;
        }
        let most = users.iter().max_by_key(|((tenant, _), count)| (tenants.get(tenant), **count));
        let oldest = most.and_then(|(most, _)| self.all.iter().position(|one| user(one) == *most));
        oldest.and_then(|at| self.all.remove(at));
    }
}

impl Entry {
    fn line(&self, now: u64) -> String {
        let (answer, reason, why) = match &self.said {
            Said::Lease(_) => ("lease", None, None),
            Said::Later(reason, why) => ("later", Some(reason.name()), Some(why)),
            Said::Refused(reason, why) => ("refused", Some(reason.name()), Some(why)),
        };
        let lease = if let Said::Lease(number) = self.said { Some(number) } else { None };
        let row = json!({
            "age_seconds": now.saturating_sub(self.at) as f64 / 1e9,
            "tenant": self.asker.tenant,
            "uid": self.asker.holder.uid,
            "pid": self.asker.holder.pid,
            "cgroup": self.asker.holder.cgroup,
            "bytes": self.want.map(|want| want.bytes),
            "page_bytes": self.want.map(|want| want.page.bytes()),
            "node": self.want.and_then(|want| want.node),
            "answer": answer,
            "lease": lease,
            "reason": reason,
            "why": why,
            "waited_seconds": self.waited_ns as f64 / 1e9,
            "times": self.times,
        });
        escape::json(&row.to_string()) + "\n"
    }
}

impl<I: Inode> Broker<I> {
    /// A client was answered so about memory that it wants, after this time.
    pub(super) fn log(
        &mut self,
        client: ClientId,
        want: Option<Want>,
        waited_ns: u64,
        answer: &Answer,
    ) {
        let Some(peer) = self.ledger.clients.get(&client) else { return };
        let asker = self.asker(peer);
        let said = match answer {
            Answer::Lease(granted) => Said::Lease(granted.lease),
            Answer::When { reason, text, .. } => Said::Later(*reason, cut(text)),
            Answer::No(reason, text) => {
                self.counters.of_tenant(&asker.tenant).refused += 1;
                Said::Refused(*reason, cut(text))
            }
            _ => return,
        };
        self.log.add(asker, want, waited_ns, said);
    }

    /// A request is refused, and counted.
    pub fn refuse(&mut self, client: ClientId, want: Option<Want>, refusal: Refusal) -> Answer {
        let answer = self.no(refusal);
        self.log(client, want, 0, &answer);
        answer
    }

    /// A connection is refused, and counted.
    pub(super) fn turn_away(&mut self, asker: Asker, refusal: Refusal) -> Answer {
        self.counters.turned_away += 1;
        self.log.add(asker, None, 0, Said::Refused(refusal.0, cut(&refusal.1)));
        self.no(refusal)
    }

    pub(super) fn asker(&self, peer: &Peer) -> Asker {
        let tenant = self.ledger.tenant_of(peer).map(|tenant| tenant.name).unwrap_or_default();
        Asker { tenant, holder: Holder::from(peer) }
    }

    /// A part of it, a JSON object a line: from the entry with that number on.
    pub(super) fn log_part(&self, now: u64, client: ClientId, from: u64) -> Answer {
        let own = self.ledger.clients.get(&client).map(|peer| self.asker(peer)).unwrap_or_default();
        let all = self.is_operator(client);
        let is_seen = |entry: &&Entry| {
            let Asker { tenant, holder } = &entry.asker;
            let is_user = (holder.uid, holder.contained) == (own.holder.uid, own.holder.contained);
            let is_own = *tenant == own.tenant && is_user;
            entry.number >= from && (all || is_own)
        };
        let seen = self.log.all.iter().filter(is_seen);
        whole_lines(seen.map(|entry| (entry.number, entry.line(now))))
    }
}

/// As much of a text as a client is told.
fn cut(text: &str) -> String {
    let end = (0..=MAX_TEXT.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
    text[..end.unwrap_or(0)].to_owned()
}
