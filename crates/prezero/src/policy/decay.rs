//! How long idle memory stays resident.
//!
//! Whether anybody comes back for it shows only when he does: what idles goes soon at
//! first, and stays twice as long each time that half of what went was faulted in again,
//! up to the configured decay. What was made zero was made because it is in demand, and
//! stays that long from the start.

use crate::clock::age;
use crate::config::without::Mechanism;
use crate::cpu::list::{CLASSES, Class};
use crate::mem::backing::Backing;
use crate::pool::release::RESIDENT;
use crate::sync::Ordering::Relaxed;
use crate::units::HUGE_PAGES;
use crate::zone::Zone;

/// How long memory stays that nobody is known to come back for, ns: longer than a program's
/// pause between two pieces of work. To come back too late costs what it costs everybody
/// who gives memory back at once.
const FIRST_NS: u64 = 50_000_000;
/// How often idle memory is looked over, as a part of that time.
const LOOKS: u64 = 10;
/// Pages given back in one look (16 MiB): at most half a millisecond.
const MOST: u32 = 8 * HUGE_PAGES;

pub(crate) struct Decay {
    /// How long what is dirty stays, ns, and when it was last looked over.
    ns: u64,
    looked: u64,
    /// Pages that went early since `since`, and pages faulted in before that.
    gone: u64,
    since: u64,
    faulted: u64,
    /// When the lists were last looked over, ns, and how many blocks had come to each.
    listed: u64,
    arrivals: Box<[u32]>,
}

impl Decay {
    pub(crate) fn new(cpus: usize) -> Decay {
        Decay {
            ns: FIRST_NS,
            looked: 0,
            gone: 0,
            since: 0,
            faulted: 0,
            listed: 0,
            arrivals: vec![0; cpus * CLASSES].into_boxed_slice(),
        }
    }

    /// How long idle memory may wait to be looked over, ns.
    pub(crate) fn watch_ns(&self) -> u64 {
        self.ns / 2
    }

    /// Whether it is time to [`look`](Self::look).
    pub(crate) fn is_due<B: Backing>(&self, zone: &Zone<B>, now: u64) -> bool {
        now.saturating_sub(self.looked) >= self.ns.min(zone.tuning.decay_ns()) / LOOKS
    }

    /// Gives back some of what has been idle for its time. True if there may be more.
    pub(crate) fn look<B: Backing>(&mut self, zone: &Zone<B>, now: u64, tick: u32) -> bool {
        let most = zone.tuning.decay_ns();
        let early = self.ns.min(most);
        if now.saturating_sub(self.listed) >= most {
            self.listed = now;
            self.drain_unused(zone);
        }
        let resident = zone.pool.stock.resident();
        let more = [(&RESIDENT[..1], early), (&RESIDENT, most)].into_iter().any(|(kinds, ns)| {
            let old = |at| age(tick, at) >= u32::try_from(ns >> 16).unwrap_or(u32::MAX);
            zone.pool.give_back(MOST, kinds, old)
        });
        if early < most {
            self.gone += u64::from(resident.saturating_sub(zone.pool.stock.resident()));
        }
        if !more {
            self.looked = now;
        }
        more
    }

    /// Was what went early wanted back? What is not, by the time that it would have gone in
    /// any case, is forgotten.
    pub(crate) fn learn<B: Backing>(&mut self, zone: &Zone<B>, now: u64) {
        let (faulted, most) = (zone.pool.faulted.load(Relaxed), zone.tuning.decay_ns());
        let back =
            zone.has(Mechanism::Learn) && self.gone > 0 && faulted - self.faulted >= self.gone / 2;
        if back {
            self.ns = self.ns.saturating_mul(2);
        }
        if back || self.gone == 0 || now.saturating_sub(self.since) > most {
            (self.gone, self.since, self.faulted) = (0, now, faulted);
        }
    }

    /// Takes off the lists what was there at the last look and is there still.
    fn drain_unused<B: Backing>(&mut self, zone: &Zone<B>) {
        let mut last = self.arrivals.iter_mut();
        for cpu in zone.cpus.iter() {
            for (class, last) in Class::largest_first().zip(&mut last) {
                let lists = &cpu.lists[class.index()];
                let since = lists.arrivals().wrapping_sub(*last);
                let newest = lists.newest();
                zone.drain(cpu, class, |e| u32::from(e.rank(newest)) >= since);
                *last = lists.arrivals();
            }
        }
        // What is in hand grows old on the lists, until the next look.
        zone.put_down_all(&zone.cpus, Class::largest_first(), 0);
    }
}
