//! How much zero stock is worth having: what was asked for lately, and no more.
//!
//! Demand is counted per order where it arises, one relaxed add on the asking CPU. The
//! governor looks at it in windows and remembers the largest window, fading. No demand
//! for zero: nothing is scrubbed. It is told the time; it reads no clock.

use crate::page::{MAX_ORDER, Order};
use crate::quicklist::Class;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const ORDERS: usize = MAX_ORDER.get() as usize + 1;

/// Length of a window, ns. Long against the pauses between requests of a busy program
/// (milliseconds), short against what a person notices.
const WINDOW_NS: u64 = 100_000_000;
/// Of its memory of a peak the governor loses one part in this many each window: a
/// single burst of 64 MiB is forgotten after about seven seconds, before it decays.
const FADE: u64 = 8;
/// Zero pages that may go to requests that did not need them, beyond as many as went to
/// those that did, before scrubbing stops, in pages (2 MiB): a start needs some credit.
const WASTE_ALLOWED: u64 = 512;
/// Most that is prefaulted ahead, in pages (64 MiB): two to eight milliseconds of faults
/// saved, and a bound on what a wrong guess makes resident.
const PREFAULT_MOST: u64 = 16 << 10;

/// Pages asked for as zero, by order, on one CPU. All-zero bytes are none.
#[repr(C, align(64))]
#[derive(Default)]
pub(crate) struct Demand {
    pages: [AtomicU64; ORDERS],
}

impl Demand {
    /// Counts a request. May lose one when two threads share the CPU, as counters may.
    #[inline]
    pub(crate) fn note(&self, pages: u32) {
        let order = Order::holding(pages).unwrap_or(MAX_ORDER);
        let cell = &self.pages[order.get() as usize];
        cell.store(cell.load(Relaxed) + pages as u64, Relaxed);
    }
}

/// A quantity that is watched in windows: the largest of late.
#[derive(Clone, Copy, Default)]
struct Peak {
    seen: u64,
    largest: u64,
}

impl Peak {
    /// What arrived since the window began, and the largest window of late.
    fn now(&self, total: u64) -> u64 {
        self.largest.max(total.saturating_sub(self.seen))
    }

    fn turn(&mut self, total: u64) {
        let arrived = total.saturating_sub(self.seen);
        let faded = self.largest - self.largest.div_ceil(FADE);
        *self = Peak { seen: total, largest: arrived.max(faded) };
    }
}

/// A quantity summed over the last minute or so.
#[derive(Clone, Copy, Default)]
struct Recent {
    seen: u64,
    sum: u64,
}

impl Recent {
    /// Each window it forgets one part in this many: half of it in 35 s, some times the
    /// decay after which waste shows.
    const FADE: u64 = 512;

    fn now(&self, total: u64) -> u64 {
        self.sum + total.saturating_sub(self.seen)
    }

    fn turn(&mut self, total: u64) {
        self.sum += total.saturating_sub(self.seen);
        self.sum -= self.sum.div_ceil(Recent::FADE);
        self.seen = total;
    }
}

/// What the governor is shown: sums over all CPUs.
#[derive(Clone, Copy, Default)]
pub(crate) struct Seen {
    /// Pages asked for as zero, by order.
    pub(crate) demand: [u64; ORDERS],
    /// Pages of those that were served absent.
    pub(crate) absent: u64,
    /// Pages scrubbed or prefaulted so far.
    pub(crate) made: u64,
    /// Zero pages given back to the kernel unused so far.
    pub(crate) unused: u64,
    /// Zero pages that went to requests for zero, and to others, so far.
    pub(crate) hit: u64,
    pub(crate) wasted: u64,
}

impl Seen {
    pub(crate) fn add_demand(&mut self, demand: &Demand) {
        for (sum, cell) in self.demand.iter_mut().zip(&demand.pages) {
            *sum += cell.load(Relaxed);
        }
    }
}

/// See the module.
#[derive(Default)]
pub(crate) struct Governor {
    window_began: u64,
    orders: [Peak; ORDERS],
    absent: Peak,
    /// Windows in a row in which memory was served absent.
    growing: u32,
    /// Of late: zero pages made, and given back unused.
    made: Recent,
    unused: Recent,
    /// Of late: zero pages that went to requests for zero, and to others.
    hit: Recent,
    wasted: Recent,
    seen: Seen,
}

impl Governor {
    /// Shows the governor what was asked until `now_ns`.
    pub(crate) fn observe(&mut self, now_ns: u64, seen: Seen) {
        self.seen = seen;
        if now_ns.saturating_sub(self.window_began) < WINDOW_NS {
            return;
        }
        self.window_began = now_ns;
        for (peak, &total) in self.orders.iter_mut().zip(&seen.demand) {
            peak.turn(total);
        }
        self.growing = if seen.absent > self.absent.seen { self.growing + 1 } else { 0 };
        self.absent.turn(seen.absent);
        self.made.turn(seen.made);
        self.unused.turn(seen.unused);
        self.hit.turn(seen.hit);
        self.wasted.turn(seen.wasted);
    }

    /// Whether what is made zero goes to those who ask for it, by and large.
    fn worthwhile(&self) -> bool {
        self.wasted.now(self.seen.wasted) <= self.hit.now(self.seen.hit) + WASTE_ALLOWED
    }

    /// Zero blocks that a CPU's zero list of this class should hold.
    pub(crate) fn quick_target(&self, class: Class) -> usize {
        if !self.worthwhile() {
            return 0;
        }
        let order = class.order().get() as usize;
        let pages = self.orders[order].now(self.seen.demand[order]);
        pages.div_ceil(class.pages() as u64).min(class.slots() as u64) as usize
    }

    /// Zero pages that the buddy should hold: what the largest window of late asked for.
    pub(crate) fn buddy_target(&self) -> u64 {
        if !self.worthwhile() {
            return 0;
        }
        self.orders.iter().zip(&self.seen.demand).map(|(peak, &total)| peak.now(total)).sum()
    }

    /// Zero pages that should lie ready where only absent ones do. None before memory
    /// was served absent in two windows running, nor while of the zero pages made of late
    /// more than a quarter went back to the kernel unused.
    pub(crate) fn prefault_target(&self) -> u64 {
        if self.growing < 2 || self.unused.sum > self.made.sum / 4 {
            return 0;
        }
        self.absent.now(self.seen.absent).min(PREFAULT_MOST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDER: usize = 13;
    const BURST: u64 = 8192;

    fn demand(pages: u64) -> Seen {
        let mut seen = Seen::default();
        seen.demand[ORDER] = pages;
        seen
    }

    fn window(n: u64) -> u64 {
        n * WINDOW_NS
    }

    #[test]
    fn nothing_asked_nothing_wanted() {
        let mut governor = Governor::default();
        governor.observe(window(1), Seen::default());
        assert_eq!(governor.buddy_target(), 0);
        assert_eq!(governor.prefault_target(), 0);
    }

    #[test]
    fn demand_counts_before_its_window_ends() {
        let mut governor = Governor::default();
        governor.observe(1, demand(BURST));
        assert_eq!(governor.buddy_target(), BURST);
    }

    #[test]
    fn the_largest_window_is_remembered_and_fades() {
        let mut governor = Governor::default();
        governor.observe(window(1), demand(BURST));
        governor.observe(window(2), demand(BURST + 10));
        let soon = governor.buddy_target();
        assert!(soon > BURST / 2 && soon < BURST, "{soon}");

        for n in 3..100 {
            governor.observe(window(n), demand(BURST + 10));
        }

        assert_eq!(governor.buddy_target(), 0);
    }

    #[test]
    fn prefault_follows_growth_and_stops_when_it_is_wasted() {
        let mut governor = Governor::default();
        let grown = |n: u64| Seen { absent: n * 512, ..Seen::default() };
        governor.observe(window(1), grown(1));
        assert_eq!(governor.prefault_target(), 0, "once is no trend");
        governor.observe(window(2), grown(2));
        assert_eq!(governor.prefault_target(), 512);

        governor.observe(window(3), Seen { made: 1024, unused: 1024, ..grown(3) });
        assert_eq!(governor.prefault_target(), 0, "all of it was wasted");

        governor.observe(window(4), Seen { made: 1 << 20, unused: 1024, ..grown(4) });
        assert_eq!(governor.prefault_target(), 512, "waste is forgiven when it is outdone");
    }

    #[test]
    fn zeroes_that_others_take_are_no_longer_made_until_that_is_past() {
        let mut governor = Governor::default();
        let wasted = |n: u64| Seen { wasted: n, ..demand(n) };
        governor.observe(1, wasted(WASTE_ALLOWED));
        assert_eq!(governor.buddy_target(), WASTE_ALLOWED, "a start needs some credit");

        governor.observe(window(1), wasted(4 * WASTE_ALLOWED));
        assert_eq!(governor.buddy_target(), 0);
        assert_eq!(governor.quick_target(Class::of(16).unwrap()), 0);

        let hit = Seen { hit: 4 * WASTE_ALLOWED, ..wasted(4 * WASTE_ALLOWED) };
        governor.observe(window(1) + 1, hit);
        assert!(governor.buddy_target() > 0, "as much was used");
    }

    #[test]
    fn a_quicklist_wants_no_more_than_it_holds() {
        let mut governor = Governor::default();
        let mut seen = Seen::default();
        seen.demand[4] = 1 << 20;
        governor.observe(1, seen);
        let class = Class::of(16).unwrap();
        assert_eq!(governor.quick_target(class), class.slots());
    }
}
