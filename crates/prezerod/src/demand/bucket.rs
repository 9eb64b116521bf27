//! One size as one party asks for it: what should lie ready for that party's next requests.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::levels::Levels;
use super::{HOURS, LEAD, Party, Sample, hour};
use crate::protocol::Want;
use crate::stock::Need;

/// One request in this number may find nothing. With fewer, the rarest crowd of requests sets the stock.
/// Moved by: `bench fleet`.
const MISSES: u64 = 200;
/// The bucket drains at this part of the pace at which the stock is refilled, as a divisor: a
/// filler steps aside for others, and makes other sizes, too.
/// Moved by: `bench fleet`.
const DRAIN: u64 = 2;
/// The bucket never holds more than was asked for in about this time, ns: a demand that no filler keeps
/// up with would fill it without end.
/// Moved by: `bench fleet`.
const BURST_NS: u64 = 30_000_000_000;
/// Fixed: parts in which [`BURST_NS`] passes.
const BURST_PARTS: usize = 6;
/// Parts in which what was learnt is forgotten.
/// Moved by: `bench fleet`.
pub(super) const SLOTS: usize = 15;
/// The time for which a lease is kept that a client was told to come back for; and how many of one size.
/// Moved by: counter `waste_bytes`.
pub(super) const BACKORDER_NS: u64 = 60_000_000_000;
const MOST_BACKORDERS: u64 = 8;

/// See the module. It is saved with ages in place of times.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Bucket {
    #[serde(flatten)]
    pub party: Party,
    #[serde(flatten)]
    pub need: Need,
    #[serde(rename = "asked_age")]
    pub asked_at: u64,
    /// What had to lie ready for the last request, bytes, and when that was.
    pub level: u64,
    #[serde(rename = "level_age")]
    pub level_at: u64,
    #[serde(skip)]
    burst: Burst,
    #[serde(rename = "slots")]
    pub window: Window,
    /// Inodes that clients were told to come back for, and until when they are expected, ns.
    pub backorders: u64,
    #[serde(rename = "backorders_left")]
    pub backorders_until: u64,
    /// What each hour of the day needed ready, bytes: halfway between what it did before and the
    /// last time.
    pub hours: [u64; HOURS],
    pub this_hour: Levels,
}

impl Bucket {
    pub fn new(party: Party, need: Need) -> Bucket {
        Bucket {
            party,
            need,
            asked_at: 0,
            level: 0,
            level_at: 0,
            burst: Burst::default(),
            window: Window::default(),
            backorders: 0,
            backorders_until: 0,
            hours: [0; HOURS],
            this_hour: Levels::default(),
        }
    }

    /// Whether a broker may have saved it. An hour that needs more than any host has would be made without end.
    pub fn is_one(&self) -> bool {
        let Want { bytes, page, .. } = self.need.want;
        let is_bounded = self.hours.iter().all(|bytes| *bytes <= i64::MAX as u64);
        bytes > 0 && bytes.is_multiple_of(page.bytes()) && is_bounded
    }

    /// A request, while stock is refilled at `pace` bytes a second (0: not known). It pays off a
    /// debt if there is one: a client that asks again and again is one client.
    pub fn asked(&mut self, now_ns: u64, pace: u64) -> Option<Sample> {
        self.asked_at = now_ns;
        if let Some(others) = self.backorders.checked_sub(1) {
            self.backorders = others;
            return None;
        }
        let size = self.need.want.bytes;
        let passed = now_ns.saturating_sub(std::mem::replace(&mut self.level_at, now_ns));
        let drained = u128::from(pace / DRAIN) * u128::from(passed) / 1_000_000_000;
        let left = u128::from(self.level).saturating_sub(drained) as u64;
        self.level = left.saturating_add(size).min(self.burst.add(now_ns, size));
        let inodes = whole(self.level, size);
        self.window.add(inodes);
        self.this_hour.add(inodes);
        Some(Sample { at_ns: now_ns, inodes })
    }

    /// That request is none: its client went before it was served.
    pub fn withdraw(&mut self, sample: Sample) {
        let size = self.need.want.bytes;
        self.level = self.level.saturating_sub(size);
        self.burst.remove(sample.at_ns, size);
        self.window.remove(sample.inodes);
        self.this_hour.remove(sample.inodes);
    }

    /// Requests that are not forgotten yet.
    pub fn requests(&self) -> u64 {
        self.window.all.requests()
    }

    /// A client was told to ask again.
    pub fn backorder(&mut self, now_ns: u64) {
        self.backorders = (self.backorders + 1).min(MOST_BACKORDERS);
        self.backorders_until = now_ns.saturating_add(BACKORDER_NS);
    }

    /// Drops debts that are over.
    pub fn expire(&mut self, now_ns: u64) {
        if now_ns > self.backorders_until {
            self.backorders = 0;
        }
    }

    /// `parts` of the window have passed.
    pub fn pass(&mut self, parts: u64) {
        self.window.pass(parts);
    }

    /// Whether nothing is known of it any more.
    pub fn is_forgotten(&self) -> bool {
        let little = |hour: &u64| whole(*hour, self.need.want.bytes) == 0;
        self.backorders == 0
            && self.window.all.is_empty()
            && self.this_hour.is_empty()
            && self.hours.iter().all(little)
    }

    /// That hour of the day is over.
    pub fn end_hour(&mut self, hour: usize) {
        let seen = std::mem::take(&mut self.this_hour).enough(MISSES);
        let seen = seen.saturating_mul(self.need.want.bytes);
        self.hours[hour] = self.hours[hour].midpoint(seen);
    }

    /// How many inodes should lie ready at this minute of the day, without those that are backorders.
    pub fn learnt(&self, minute: u16) -> u64 {
        let soon = self.hours[hour(minute)].max(self.hours[hour(minute + LEAD)]);
        self.window.all.enough(MISSES).max(whole(soon, self.need.want.bytes))
    }
}

/// What had to lie ready for each request, by the part of the window it came in, the newest first, and of all.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(from = "VecDeque<Levels>", into = "VecDeque<Levels>")]
pub(super) struct Window {
    slots: VecDeque<Levels>,
    all: Levels,
}

impl Window {
    fn add(&mut self, inodes: u64) {
        if self.slots.is_empty() {
            self.slots.push_front(Levels::default());
        }
        self.slots[0].add(inodes);
        self.all.add(inodes);
    }

    fn remove(&mut self, inodes: u64) {
        self.all.remove(inodes);
        // Parts and hours may have passed since.
        let _ = self.slots.iter_mut().any(|slot| slot.remove(inodes));
    }

    fn pass(&mut self, parts: u64) {
        if parts == 0 || self.all.is_empty() {
            return;
        }
        for _ in 0..parts.min(SLOTS as u64) {
            self.slots.push_front(Levels::default());
        }
        *self = std::mem::take(&mut self.slots).into();
    }
}

impl From<VecDeque<Levels>> for Window {
    fn from(mut slots: VecDeque<Levels>) -> Window {
        slots.truncate(SLOTS);
        let mut all = Levels::default();
        slots.iter().for_each(|slot| all.join(slot.iter()));
        Window { slots, all }
    }
}

impl From<Window> for VecDeque<Levels> {
    fn from(window: Window) -> VecDeque<Levels> {
        window.slots
    }
}

/// The number of inodes of this size, to the nearest.
fn whole(bytes: u64, size: u64) -> u64 {
    (bytes + size / 2) / size
}

/// What was asked for in the last [`BURST_NS`], bytes.
#[derive(Clone, Copy, Default, Debug)]
struct Burst {
    parts: [u64; BURST_PARTS],
    part: u64,
}

impl Burst {
    /// What was added at that time is none.
    fn remove(&mut self, at_ns: u64, bytes: u64) {
        let part = at_ns / (BURST_NS / BURST_PARTS as u64);
        if self.part.saturating_sub(part) < BURST_PARTS as u64 {
            let own = &mut self.parts[part as usize % BURST_PARTS];
            *own = own.saturating_sub(bytes);
        }
    }

    fn add(&mut self, now_ns: u64, bytes: u64) -> u64 {
        let part = now_ns / (BURST_NS / BURST_PARTS as u64);
        for _ in 0..part.saturating_sub(self.part).min(BURST_PARTS as u64) {
            self.part += 1;
            self.parts[self.part as usize % BURST_PARTS] = 0;
        }
        self.part = part;
        let own = &mut self.parts[part as usize % BURST_PARTS];
        *own = own.saturating_add(bytes);
        self.parts.iter().fold(0, |sum, part| sum.saturating_add(*part))
    }
}
