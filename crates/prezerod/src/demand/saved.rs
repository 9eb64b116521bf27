//! What was learnt, as it is saved and read again.
//!
//! Contract: what comes back is what was saved, with times moved by what has passed since. Numbers out of their bounds
//! are refused bucket by bucket: a file is read that an earlier broker wrote. What no request needs after a restart is
//! left out: the burst of the last 30 seconds.

use serde::{Deserialize, Serialize};

use super::bucket::{Bucket, SLOTS, Window};
use super::levels::Levels;
use super::{Demand, HOURS, MOST_BUCKETS, Party};
use crate::protocol::{Page, Want};
use crate::state::{each, part};
use crate::stock::Need;
use crate::tenant::Payer;

/// All that was learnt. Times are ages, ns.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Saved {
    #[serde(deserialize_with = "part")]
    part_age: u64,
    #[serde(deserialize_with = "part")]
    minute: u16,
    #[serde(deserialize_with = "each")]
    buckets: Vec<SavedBucket>,
}

/// One bucket.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct SavedBucket {
    tenant: u16,
    uid: u32,
    payer: u16,
    bytes: u64,
    page: u64,
    node: Option<u16>,
    asked_age: u64,
    level: u64,
    level_age: u64,
    /// The newest first.
    slots: Vec<Vec<(u16, u32)>>,
    backorders: u64,
    backorders_left: u64,
    hours: Vec<u64>,
    this_hour: Vec<(u16, u32)>,
}

impl Demand {
    /// What is to be saved.
    pub fn saved(&self, now: u64) -> Saved {
        Saved {
            part_age: now.saturating_sub(self.part_began),
            minute: self.minute,
            buckets: self.buckets.iter().map(|bucket| saved(bucket, now)).collect(),
        }
    }

    /// What was saved `passed` ns ago comes back. `tenant` and `payer` tell today's numbers of those then; `None`: the
    /// settings know no such any more.
    pub fn restore(
        &mut self,
        now: u64,
        passed: u64,
        saved: &Saved,
        tenant: impl Fn(u16) -> Option<u16>,
        payer: impl Fn(u16) -> Option<Payer>,
    ) {
        self.part_began = now.saturating_sub(saved.part_age.saturating_add(passed));
        self.minute = saved.minute;
        let known = saved.buckets.iter().take(MOST_BUCKETS).filter_map(|one| {
            let party = Party { tenant: tenant(one.tenant)?, uid: one.uid };
            restored(one, party, payer(one.payer)?, now, passed)
        });
        self.buckets = known.collect();
    }
}

fn saved(bucket: &Bucket, now: u64) -> SavedBucket {
    let Need { want, payer } = bucket.need;
    SavedBucket {
        tenant: bucket.party.tenant,
        uid: bucket.party.uid,
        payer: payer.0,
        bytes: want.bytes,
        page: want.page.bytes(),
        node: want.node,
        asked_age: now.saturating_sub(bucket.asked_at),
        level: bucket.level,
        level_age: now.saturating_sub(bucket.level_at),
        slots: bucket.window.newest_first().map(Levels::counts).collect(),
        backorders: bucket.backorders,
        backorders_left: bucket.backorders_until.saturating_sub(now),
        hours: bucket.hours.to_vec(),
        this_hour: bucket.this_hour.counts(),
    }
}

fn restored(
    saved: &SavedBucket,
    party: Party,
    payer: Payer,
    now: u64,
    passed: u64,
) -> Option<Bucket> {
    let at = |age: u64| now.saturating_sub(age.saturating_add(passed));
    let page = Page::of(saved.page)?;
    if saved.bytes == 0 || !saved.bytes.is_multiple_of(saved.page) {
        return None;
    }
    let want = Want { bytes: saved.bytes, page, node: saved.node };
    let mut bucket = Bucket::new(party, Need { want, payer });
    let slots: Option<Vec<Levels>> =
        saved.slots.iter().take(SLOTS).map(|counts| Levels::of(counts)).collect();
    bucket.window = Window::of(slots?.into_iter());
    bucket.this_hour = Levels::of(&saved.this_hour)?;
    bucket.hours = saved.hours.as_slice().try_into().ok().filter(|hours: &[u64; HOURS]| {
        // An hour that needs more than any host has would be made without end.
        hours.iter().all(|bytes| *bytes <= i64::MAX as u64)
    })?;
    (bucket.asked_at, bucket.level_at) = (at(saved.asked_age), at(saved.level_age));
    bucket.level = saved.level;
    bucket.backorders = saved.backorders;
    bucket.backorders_until = now.saturating_add(saved.backorders_left.saturating_sub(passed));
    Some(bucket)
}
