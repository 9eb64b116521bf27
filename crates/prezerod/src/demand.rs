//! How much of what should lie ready: what operators keep, what clients were told to come back
//! for, and what is learnt from requests.
//!
//! **The rule.** Each size that a party asks for has a bucket. A request adds one, and the bucket
//! drains at half the pace at which the stock is refilled: what it holds at a request had to lie
//! ready for it. As much lies ready as was enough for all but one in 200 requests of the last 75
//! minutes, or of this hour on earlier days.
//!
//! **The order.** An operator's `keep`, then what is backorders, then what is learnt. Where all that
//! exceeds the limit, tenants share what keeps leave evenly, then the users of each, then the sizes of
//! each user; what one does not need the others have. A client pays nothing for a request: backorders of a
//! tenant are bounded by what it may still hold, all that is made for it by what it may hold.
//!
//! Told the time, the minute of the day (UTC), the pace and the limits; reads no clock and no
//! file. `bench fleet` plays it for weeks.

mod bucket;
mod levels;
mod share;
pub mod start;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::persist::{each, part};
use crate::protocol::{Backing, Page};
use crate::stock::Need;
use crate::tenant::Payer;
use bucket::{Bucket, SLOTS};

/// Most sizes that are remembered. A client that asks for all sizes must not fill the memory of the broker.
const MOST_BUCKETS: usize = 128;
/// A user with as many sizes has few.
/// Moved by: tests of `demand`.
const FEW_BUCKETS: usize = 4;
/// Minutes before an hour of the day in which its usual demand is made. A host fills much memory in
/// it.
/// Moved by: counter `lease_hits`.
const LEAD: u16 = 10;
/// The time for which an inode without demand is kept, ns: a client that gave up waiting may come again.
/// Moved by: counter `waste_bytes`.
pub const SURPLUS_NS: u64 = 60_000_000_000;
/// Of a day.
/// Fixed: the calendar.
const HOURS: usize = 24;
const DAY: u16 = 60 * HOURS as u16;
const MINUTE_NS: u64 = 60_000_000_000;

/// What an operator keeps ready.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Keep {
    /// Inodes of this size, page and node (`None`: the one that the broker chooses), for this
    /// payer.
    pub need: Need,
    /// The least.
    pub keep: u64,
    /// The most.
    pub most: u64,
}

/// Whose requests they are: a user of a tenant. Parties share the room for what is learnt.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct Party {
    /// The tenant's number.
    pub tenant: u16,
    /// The user.
    pub uid: u32,
}

/// What was learnt of one request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    at_ns: u64,
    inodes: u64,
}

/// Why an inode should lie ready, the most pressing first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Rank {
    /// An operator keeps it.
    Kept,
    /// A client was told to come back for it.
    Backorder,
    /// Recent requests suggest it.
    Learnt,
}

/// What should lie ready of one size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Target {
    /// The size.
    pub need: Need,
    /// Inodes that an operator keeps,
    pub kept: u64,
    /// besides them what is backorders,
    pub backorders: u64,
    /// and besides both what is learnt.
    pub learnt: u64,
    /// Those of all of them that fit the limit, `kept` first.
    pub allotted: u64,
    /// When it was asked for last, ns.
    pub asked_at: u64,
}

impl Target {
    /// All that should lie ready.
    pub fn all(&self) -> u64 {
        self.kept.saturating_add(self.backorders).saturating_add(self.learnt)
    }

    /// Of the next inode where there are `have`; `None`: no more should be.
    pub fn next_rank(&self, have: u64) -> Option<Rank> {
        match have {
            _ if have >= self.allotted => None,
            _ if have < self.kept => Some(Rank::Kept),
            _ if have < self.kept.saturating_add(self.backorders) => Some(Rank::Backorder),
            _ => Some(Rank::Learnt),
        }
    }

    /// The number that makes way for no inode of that rank.
    pub fn stays(&self, rank: Rank) -> u64 {
        let stays = match rank {
            Rank::Kept => self.kept,
            Rank::Backorder => self.kept.saturating_add(self.backorders),
            Rank::Learnt => u64::MAX,
        };
        stays.min(self.allotted)
    }
}

/// The order in which inodes are made, given how many of each target are there: by rank, then the
/// first of each size before the second of another, then what was asked for last.
pub fn in_order(targets: &[Target], have: impl Fn(&Need) -> u64) -> Vec<(Target, Rank)> {
    let with = |target: &Target| (*target, have(&target.need));
    let missing = targets
        .iter()
        .map(with)
        .filter_map(|(target, have)| Some((target, have, target.next_rank(have)?)));
    let mut missing: Vec<_> = missing.collect();
    missing.sort_by_key(|(target, have, rank)| (*rank, *have, Reverse(target.asked_at)));
    missing.into_iter().map(|(target, _, rank)| (target, rank)).collect()
}

/// All sizes that are asked for or kept. Times are saved as ages.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Demand {
    #[serde(skip)]
    keeps: Vec<Keep>,
    /// What tenants may hold, by their numbers.
    #[serde(skip)]
    quotas: BTreeMap<u16, u64>,
    #[serde(deserialize_with = "each")]
    buckets: Vec<Bucket>,
    #[serde(skip)]
    part_ns: u64,
    #[serde(rename = "part_age", deserialize_with = "part")]
    part_began: u64,
    #[serde(deserialize_with = "part")]
    minute: u16,
}

impl Demand {
    /// Nothing is known; what will be is forgotten after `forget_ns`.
    pub fn new(now_ns: u64, forget_ns: u64) -> Demand {
        let part_ns = slot(forget_ns);
        Demand { part_ns, part_began: now_ns, ..Demand::default() }
    }

    /// What operators keep ready, in place of what they did before; what was learnt stays.
    pub fn set_keeps(&mut self, forget_ns: u64, keeps: &[Keep]) {
        self.part_ns = slot(forget_ns);
        self.keeps = keeps.to_vec();
    }

    /// What tenants may hold, in place of what they might before.
    pub fn set_quotas(&mut self, quotas: BTreeMap<u16, u64>) {
        self.quotas = quotas;
    }

    /// A request of that party, while stock of its kind is refilled at `pace` bytes a second (0:
    /// not known).
    pub fn asked(&mut self, now_ns: u64, party: Party, need: &Need, pace: u64) {
        self.sample(now_ns, party, need, pace);
    }

    /// The same, and what may be [withdrawn](Demand::withdraw); `None`: it was expected.
    pub fn sample(&mut self, now_ns: u64, party: Party, need: &Need, pace: u64) -> Option<Sample> {
        self.bucket(party, need).asked(now_ns, pace)
    }

    /// That party asked for this, and went before it was served.
    pub fn withdraw(&mut self, party: Party, need: &Need, sample: Sample) {
        let own = |bucket: &&mut Bucket| bucket.party == party && bucket.need == *need;
        if let Some(bucket) = self.buckets.iter_mut().find(own) {
            bucket.withdraw(sample);
        }
    }

    /// A client of that party was told to ask for this again.
    pub fn backorder(&mut self, now_ns: u64, party: Party, need: &Need) {
        self.bucket(party, need).backorder(now_ns);
    }

    /// Backorders of a tenant are no more bytes than it may still hold: the newest stay.
    pub fn bound_backorders(&mut self, may_hold: impl Fn(u16) -> u64) {
        let mut left = BTreeMap::new();
        let mut owed: Vec<_> = self.buckets.iter_mut().filter(|one| one.backorders > 0).collect();
        owed.sort_by_key(|bucket| Reverse(bucket.backorders_until));
        for Bucket { party, need, backorders, .. } in owed {
            let left = left.entry(party.tenant).or_insert_with(|| may_hold(party.tenant));
            *backorders = (*backorders).min(*left / need.want.bytes);
            *left -= *backorders * need.want.bytes;
        }
    }

    /// Whether a client was told so and has not come yet.
    pub fn has_backorder(&self, need: &Need) -> bool {
        self.buckets.iter().any(|bucket| bucket.need == *need && bucket.backorders > 0)
    }

    /// Ends debts, parts of the window and hours that are over. It is this `minute` of the day.
    pub fn turn(&mut self, now_ns: u64, minute: u16) {
        let (before, minute) = (hour(self.minute), minute % DAY);
        self.minute = minute;
        let parts = now_ns.saturating_sub(self.part_began) / self.part_ns;
        self.part_began += parts * self.part_ns;
        for bucket in &mut self.buckets {
            bucket.expire(now_ns);
            bucket.pass(parts);
            if before != hour(minute) {
                bucket.end_hour(before);
            }
        }
        if parts > 0 {
            self.buckets.retain(|bucket| !bucket.is_forgotten());
        }
    }

    /// What is to be saved. What no request needs after a restart is left out: the burst of the last 30 seconds.
    pub fn saved(&self, now_ns: u64) -> Demand {
        let mut saved = self.clone();
        saved.part_began = now_ns.saturating_sub(self.part_began);
        for bucket in &mut saved.buckets {
            bucket.asked_at = now_ns.saturating_sub(bucket.asked_at);
            bucket.level_at = now_ns.saturating_sub(bucket.level_at);
            bucket.backorders_until = bucket.backorders_until.saturating_sub(now_ns);
        }
        saved
    }

    /// What was saved `passed` ns ago comes back. `tenant` and `payer` tell today's numbers of those then; `None`: the
    /// settings know no such any more.
    pub fn restore(
        &mut self,
        now_ns: u64,
        passed: u64,
        saved: Demand,
        tenant: impl Fn(u16) -> Option<u16>,
        payer: impl Fn(Payer) -> Option<Payer>,
    ) {
        let at = |age: u64| now_ns.saturating_sub(age.saturating_add(passed));
        (self.part_began, self.minute) = (at(saved.part_began), saved.minute);
        let again = |mut bucket: Bucket| {
            bucket.party.tenant = tenant(bucket.party.tenant)?;
            bucket.need.payer = payer(bucket.need.payer)?;
            (bucket.asked_at, bucket.level_at) = (at(bucket.asked_at), at(bucket.level_at));
            let left = bucket.backorders_until.saturating_sub(passed);
            bucket.backorders_until = now_ns.saturating_add(left);
            bucket.is_one().then_some(bucket)
        };
        self.buckets = saved.buckets.into_iter().take(MOST_BUCKETS).filter_map(again).collect();
    }

    /// When a target may change by itself next, ns, where days begin at 0.
    pub fn next_turn(&self, now_ns: u64) -> u64 {
        let left = |minute: u16| u64::from(60 - minute % 60);
        let minute = now_ns / MINUTE_NS + left(self.minute).min(left(self.minute + LEAD));
        (self.part_began + self.part_ns).min(minute * MINUTE_NS)
    }

    /// What should lie ready of each size, the one asked for last first, and how much of that fits.
    /// `limit` says of which pages a size would be made, and how many bytes of such may lie ready;
    /// `None`: it cannot be made, and takes no room.
    pub fn targets(
        &self,
        limit: impl FnMut(&Need) -> Option<((Backing, Page), u64)>,
    ) -> Vec<Target> {
        share::share(&self.keeps, &self.buckets, self.minute, &self.quotas, limit)
    }

    /// Whether anything should lie ready.
    pub fn is_any(&self) -> bool {
        self.keeps.iter().any(|keep| keep.keep > 0)
            || self
                .buckets
                .iter()
                .any(|bucket| bucket.backorders > 0 || bucket.learnt(self.minute) > 0)
    }

    fn bucket(&mut self, party: Party, need: &Need) -> &mut Bucket {
        let own = |bucket: &Bucket| bucket.party == party && bucket.need == *need;
        let at = self.buckets.iter().position(own).unwrap_or_else(|| {
            if self.buckets.len() >= MOST_BUCKETS {
                self.evict();
            }
            self.buckets.push(Bucket::new(party, *need));
            self.buckets.len() - 1
        });
        &mut self.buckets[at]
    }

    /// The tenant with the most sizes loses one, and of its users the one with the most: what was asked
    /// for the fewest times, and of such the longest ago. Users with few sizes are alike: else one with
    /// two would lose to a crowd that has one each.
    fn evict(&mut self) {
        let (mut tenants, mut parties) = (BTreeMap::new(), BTreeMap::new());
        for bucket in &self.buckets {
            *tenants.entry(bucket.party.tenant).or_insert(0) += 1;
            *parties.entry(bucket.party).or_insert(0) += 1;
        }
        let sizes = |bucket: &Bucket| {
            let of_party = parties.get(&bucket.party).copied().unwrap_or(0);
            (tenants.get(&bucket.party.tenant).copied().unwrap_or(0), FEW_BUCKETS.max(of_party))
        };
        let each = self.buckets.iter().enumerate();
        let evicted = each
            .min_by_key(|(_, bucket)| (Reverse(sizes(bucket)), bucket.requests(), bucket.asked_at));
        if let Some((at, _)) = evicted {
            self.buckets.swap_remove(at);
        }
    }
}

fn hour(minute: u16) -> usize {
    usize::from(minute % DAY / 60)
}

fn slot(forget_ns: u64) -> u64 {
    (forget_ns / SLOTS as u64).max(1)
}
