//! One band of sizes: how its requests come, and whether zeroes pay for it.
//!
//! A band is *on* while zeroes are made for it. It has a balance of CPU time: hits pay in, and clears, looks and lost
//! zeroes take out. Below zero the band is off. It is tried again after a while, and each trial that fails doubles that
//! while; a band whose balance is full has proven itself. The balance is bounded, so what a band earned long ago pays
//! for some milliseconds only. Told the time; reads no clock.

use prezero_host::bursts::Bursts;

use crate::class::{Band, Class};

/// The balance of a new band, and the most that any has: CPU time, ns. scrubd has to learn when its blocks come.
/// Moved by: `bench waste --only once,bursty-64m`, `prezero bench short`.
pub(crate) const FULL_NS: f64 = 1e7;
/// The balance of a band that is tried again, ns.
/// Moved by: `bench waste --only hostile`.
pub(crate) const TRIAL_NS: f64 = 1.25e6;
/// Windows with requests of a band that is off until it is tried again: at first, and at most. That is 1 and 26 s.
/// Moved by: tests of `governor`, `bench waste --only hostile`.
pub(crate) const RETRY_FIRST: u32 = 10;
pub(crate) const RETRY_LAST: u32 = 256;
/// Pages that are made for a band before the first of its requests found one: 64 MiB.
/// Moved by: `bench waste --only once,bursty-64m`.
const UNPROVEN_PAGES: u64 = 16 << 10;
/// The most that lies ready of a band however few a burst takes, pages: 2 MiB, about a private cache. Of more, what is
/// used next was cleared long ago, and lies far away.
/// Moved by: `prezero bench ablate --only ready`, `prezero bench steady --only fill-512K,phases,handler`.
const READY_PAGES: u64 = 512;
/// Part by which what was seen last moves what is remembered, as a divisor.
/// Moved by: tests of `size`.
const LEARNS: u64 = 4;

/// Blocks of a band that lie ready, however few a burst takes. scrubd then sleeps for half the time in which they are used.
pub(crate) fn ready_blocks(band: Band) -> u64 {
    let slots = band.class().map_or(1, Class::slots) as u64;
    (READY_PAGES / u64::from(band.pages())).clamp(1, slots)
}

/// See the module. Times in ns.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    band: Band,
    pub(crate) bursts: Bursts,
    /// When a request was seen last, and from one request to the next; 0: not known.
    asked_at: u64,
    pub(crate) interval_ns: u64,
    /// Pages of a burst.
    burst: u64,
    balance: f64,
    /// Whether a request found zeroes since the band was last turned on.
    proven: bool,
    /// Clears of what was asked for, soon forgotten: the band's part of what is done for all.
    pub(crate) recent: f64,
    /// Windows with requests until it is tried; 0: it is on. And after the next failure.
    off: u32,
    retry: u32,
    in_window: bool,
}

impl Size {
    pub(crate) fn new(band: Band) -> Size {
        Size {
            band,
            bursts: Bursts::default(),
            asked_at: 0,
            interval_ns: 0,
            burst: 0,
            balance: FULL_NS,
            proven: false,
            recent: 0.0,
            off: 0,
            retry: RETRY_FIRST,
            in_window: false,
        }
    }

    /// Whether zeroes are made for it.
    pub(crate) fn is_on(&self) -> bool {
        self.off == 0
    }

    /// Whether a request came in the last `ns`.
    pub(crate) fn asked_within(&self, now: u64, ns: u64) -> bool {
        self.asked_at > 0 && now.saturating_sub(self.asked_at) < ns
    }

    /// `pages` were asked for since the last look that saw any, each of which takes `clear_ns` to clear.
    pub(crate) fn asked(&mut self, now: u64, pages: u64, clear_ns: f64) {
        if pages == 0 {
            return;
        }
        // A large request may be smaller than its band's largest.
        let each = now.saturating_sub(self.asked_at) / pages.div_ceil(u64::from(self.band.pages()));
        self.interval_ns = match (self.asked_at, self.interval_ns) {
            (0, _) => 0,
            (_, 0) => each,
            (_, ns) => learnt(ns, each),
        };
        self.asked_at = now;
        self.recent += pages as f64 * clear_ns;
        self.in_window = true;
    }

    /// Requests found `pages` zero, each of which is worth `ns`. What a band that is off finds was made for others.
    pub(crate) fn earns(&mut self, pages: u64, ns: f64) {
        if self.is_on() {
            self.proven |= pages > 0;
            self.balance += pages as f64 * ns;
        }
    }

    /// Takes `ns` out. `may_end`: at less than zero the band is off.
    pub(crate) fn pays(&mut self, ns: f64, may_end: bool) {
        self.balance = (self.balance - ns).min(FULL_NS);
        if self.balance < 0.0 && may_end {
            (self.off, self.proven) = (self.retry, false);
            self.retry = (2 * self.retry).min(RETRY_LAST);
        }
    }

    /// The present burst is over, given what was asked for since the beginning.
    pub(crate) fn end_burst(&mut self, total: u64) {
        let arrived = self.bursts.arrived(total);
        if arrived > 0 {
            self.burst = learnt(self.burst, arrived);
        }
        self.bursts.end(total);
    }

    /// A window has passed: whether the band is tried again from now on.
    pub(crate) fn turn(&mut self) -> bool {
        self.bursts.fade();
        self.recent /= 2.0;
        if !std::mem::take(&mut self.in_window) {
            return false;
        }
        match self.off {
            0 if self.balance >= FULL_NS => self.retry = RETRY_FIRST,
            0 => {}
            1 => {
                (self.off, self.balance) = (0, TRIAL_NS);
                return true;
            }
            _ => self.off -= 1,
        }
        false
    }

    /// Pages that lie ready of it. 0: scrubd follows each burst, which takes it several looks.
    pub(crate) fn ready(&self, now: u64, idle_ns: u64) -> u64 {
        let all = ready_blocks(self.band) * u64::from(self.band.pages());
        let fits = all <= READY_PAGES && self.burst <= all;
        if fits && self.is_on() && self.asked_within(now, idle_ns) { all } else { 0 }
    }

    /// Pages that the rest of the present burst will ask for, or the next burst, and `ready` of them at least. Few of a
    /// band whose zeroes were not used yet.
    pub(crate) fn ahead(&self, total: u64, ready: u64, is_bounded: bool) -> u64 {
        if !self.is_on() {
            return 0;
        }
        let burst = self.bursts.largest(total) - self.bursts.arrived(total);
        burst.max(ready).min(if self.proven || !is_bounded { u64::MAX } else { UNPROVEN_PAGES })
    }
}

/// What is remembered once `new` was seen. From above it arrives at `new` exactly: a burst that was seen as two is
/// forgotten.
fn learnt(old: u64, new: u64) -> u64 {
    if new < old { old - (old - new).div_ceil(LEARNS) } else { old + (new - old) / LEARNS }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn small() -> Size {
        Size::new(Band::of(16))
    }

    fn asked(size: &mut Size, now: u64, requests: u64) {
        size.asked(now, requests * u64::from(size.band.pages()), 0.0);
    }

    #[test]
    fn the_interval_is_that_of_requests_however_rarely_they_are_looked_at() {
        let mut size = small();
        (1..=40).for_each(|look| asked(&mut size, look * 12 * MS, 4));
        assert_eq!(size.interval_ns, 3 * MS);
    }

    #[test]
    fn nothing_is_known_from_the_first_look_and_a_new_pace_is_learnt_in_some() {
        let mut size = small();
        asked(&mut size, 5 * MS, 8);
        assert_eq!((size.interval_ns, size.asked_at), (0, 5 * MS));
        (1..=20).for_each(|n| asked(&mut size, (5 + n) * MS, 1));
        (1..=20).for_each(|n| asked(&mut size, (25 + 10 * n) * MS, 1));
        assert!((9 * MS..=10 * MS).contains(&size.interval_ns), "{}", size.interval_ns);
    }

    #[test]
    fn a_burst_that_was_seen_as_one_is_forgotten_in_some_and_no_burst_changes_nothing() {
        let (mut size, mut total) = (small(), 0);
        let mut burst = |size: &mut Size, pages: u64| {
            total += pages;
            size.end_burst(total);
        };
        burst(&mut size, 8 * 64);
        (0..8).for_each(|_| burst(&mut size, 64));
        assert!(size.burst <= 2 * 64, "{} pages", size.burst);
        (0..16).for_each(|_| burst(&mut size, 64));
        assert_eq!(size.burst, 64, "and no page of it stays");
        burst(&mut size, 0);
        assert_eq!(size.burst, 64);
    }
}
