//! How much zero stock is worth having, of which sizes, and what may be spent on it.
//!
//! The loop is closed three times. *How much*: requests come in bursts, and a stock as large as the largest recent
//! burst serves the next one whole; during a burst no more is made than is left of it. *Of what*: free pages that
//! plain requests will want stay dirty; when a plain request had to take zero pages all the same, [`Reserve`] keeps
//! so many more back. *At what price*: [`Purse`] lets scrubd spend what its zeroes save. Without demand for zero
//! nothing is scrubbed. The governor is told the time and what happened; it reads no clock and touches no memory.

use prezero_host::bursts::{Bursts, FADE};

use crate::class::{BANDS, Band, CLASSES, Class};
use crate::clock::REST_NS;
use crate::config::without::{Mechanism, Without};
use crate::policy::purse::{self, Purse};
use crate::policy::reserve::Reserve;

/// A burst of requests is over when its blocks came back and no request came for so long. A free
/// block rests as long.
/// Moved by: tests of `governor`.
const QUIET_NS: u64 = REST_NS;
/// Bursts fade by one step in so long, and the longest burst ends then. It is long beside a busy
/// program's pauses, and short beside what a person notices.
/// Moved by: tests of `governor`, `bench waste`.
const WINDOW_NS: u64 = 100_000_000;
/// After so long without a request for zero waiting earns nothing more.
/// Moved by: `bench waste --only once`.
const IDLE_NS: u64 = 1_000_000_000;
/// Pages of hits that a program is credited with at first. The first zeroes that plain requests
/// take say little.
/// Moved by: `bench waste --only hostile`, `bench real --only ndimage`.
const TRUSTED: u64 = purse::SEED_PAGES;
/// From so many requests for zero on scrubd measures the machine. The measurement then costs no
/// more than the looks that these requests bring.
/// Moved by: `prezero bench short`, counter `daemon_cpu_ns`.
const MEASURED_REQUESTS: u64 = 20;
/// From so many pages asked for as zero on, too. To find these zero spares as much as the
/// measurement costs.
/// Moved by: `prezero bench short`, counter `daemon_cpu_ns`.
const MEASURED_PAGES: u64 = 4 << 10;

/// What the governor is shown: sums over all CPUs, since the zone began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// Pages asked for as zero that a stock could have served, by band.
    pub(crate) demand: [u64; BANDS],
    /// Requests for zero, all of them.
    pub(crate) requests: u64,
    /// Pages in the program's hands now, and those that are free and resident.
    pub(crate) live: u64,
    pub(crate) free: u64,
    /// Pages given back, and those of them that had been handed out zero.
    pub(crate) freed: u64,
    pub(crate) returned: u64,
    /// Pages of ZERO requests that were served absent.
    pub(crate) absent: u64,
    /// Zero pages that went to requests for zero, and to others.
    pub(crate) hit: u64,
    pub(crate) wasted: u64,
    /// CPU time that scrubbing took, ns, and that looking for what to scrub took.
    pub(crate) spent_ns: u64,
    pub(crate) look_ns: u64,
    /// What a request pays for a page that must be cleared, ns, as measured.
    pub(crate) clear_ns: f64,
}

impl Default for Seen {
    fn default() -> Seen {
        Seen {
            demand: [0; BANDS],
            requests: 0,
            live: 0,
            free: 0,
            freed: 0,
            returned: 0,
            absent: 0,
            hit: 0,
            wasted: 0,
            spent_ns: 0,
            look_ns: 0,
            clear_ns: 0.0,
        }
    }
}

impl Seen {
    /// ns that the requests since `earlier` were spared.
    fn spared_ns(&self, earlier: &Seen) -> f64 {
        self.hit.saturating_sub(earlier.hit) as f64 * self.clear_ns
    }
}

/// A quantity of which old parts are forgotten. It remembers some times longer than waste
/// takes to show.
#[derive(Clone, Copy, Default)]
struct Recent {
    sum: u64,
}

impl Recent {
    /// Part of a quantity that fades in each window, as a divisor. It remembers longer than waste
    /// takes to show.
    /// Moved by: nothing measured.
    const FADE: u64 = 512;

    fn turn(&mut self) {
        self.sum -= self.sum.div_ceil(Recent::FADE);
    }
}

/// Pages asked for, all bands together.
fn total(seen: &Seen) -> u64 {
    seen.demand.iter().sum()
}

/// What scrubd is to do until the next look.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Zero pages that should lie ready.
    pub(crate) target: u64,
    /// Free pages that need not stay as they are.
    pub(crate) most: u64,
    /// Pages that the program freed so far.
    pub(crate) freed: u64,
    /// Zero blocks that a CPU's zero list of each class should hold.
    pub(crate) listed: [usize; CLASSES],
    /// The bands that are asked for and the pages of each that are ahead, the likeliest request first.
    pub(crate) likeliest: [Option<(Band, u64)>; BANDS],
    /// Pages that go through the caches before zeroes are used.
    pub(crate) traffic: u64,
    pub(crate) spending: Spending,
    pub(crate) attention: Attention,
    /// Whether a burst of requests goes on, as far as can be seen.
    pub(crate) in_burst: bool,
    /// When it was seen last that zero was asked for, and that blocks came back which had been handed out zero, ns.
    pub(crate) asked_at: u64,
    pub(crate) returned_at: u64,
}

/// Whether anything may be cleared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Spending {
    Allowed,
    Stopped,
}

/// How much a program is worth a look.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Attention {
    /// It asked for no zero lately, or nothing may be spent on it.
    None,
    /// It asked: looks are part of the price.
    Looks,
    /// Something should be made zero.
    Wanted,
    /// So much that to measure the machine pays.
    Measures,
}

/// See the module.
pub(crate) struct Governor {
    without: Without,
    window_began: u64,
    /// When the present burst began and its last request was seen, ns, and what had been
    /// given back, or served absent, before it.
    burst_began: u64,
    asked_at: u64,
    returned_at: u64,
    settled_before: u64,
    /// Pages given back before the present burst began, and between the beginnings of the
    /// last two.
    freed_before: u64,
    traffic: u64,
    bands: [Bursts; BANDS],
    /// The most pages that were in the program's hands of late, fading.
    live_peak: u64,
    reserve: Reserve,
    /// Zero pages that requests for zero got of late, and that others did.
    hit: Recent,
    wasted: Recent,
    purse: Purse,
    seen: Seen,
    seen_at: u64,
}

impl Governor {
    pub(crate) fn new(now_ns: u64, without: Without) -> Governor {
        Governor {
            without,
            window_began: now_ns,
            burst_began: now_ns,
            asked_at: now_ns,
            returned_at: now_ns,
            settled_before: 0,
            freed_before: 0,
            traffic: 0,
            bands: [Bursts::default(); BANDS],
            live_peak: 0,
            reserve: Reserve::new(),
            hit: Recent { sum: TRUSTED },
            wasted: Recent::default(),
            purse: Purse::new(),
            seen: Seen::default(),
            seen_at: now_ns,
        }
    }

    /// Shows the governor all that happened until `now_ns`, and asks for a plan.
    pub(crate) fn observe(&mut self, now_ns: u64, seen: Seen) -> Plan {
        self.note(now_ns, seen);
        self.plan()
    }

    /// What to do, as things are.
    pub(crate) fn plan(&self) -> Plan {
        let mut plan = Plan {
            target: self.target(),
            most: self.most(),
            freed: self.seen.freed,
            listed: [0; CLASSES],
            likeliest: [None; BANDS],
            traffic: self.traffic(),
            spending: if self.may_spend() { Spending::Allowed } else { Spending::Stopped },
            attention: match () {
                () if self.pays_to_measure() => Attention::Measures,
                () if self.wants() => Attention::Wanted,
                () if self.looks() => Attention::Looks,
                () => Attention::None,
            },
            in_burst: self.in_burst(),
            asked_at: self.asked_at,
            returned_at: self.returned_at,
        };
        for class in Class::largest_first() {
            plan.listed[class.index()] = self.quick_target(class);
        }
        for (place, band) in plan.likeliest.iter_mut().zip(self.likeliest()) {
            *place = Some(band);
        }
        plan
    }

    fn note(&mut self, now_ns: u64, seen: Seen) {
        let mut between_ns = 0;
        if seen.demand != self.seen.demand {
            let silence = now_ns.saturating_sub(self.asked_at);
            between_ns = if silence < WINDOW_NS { silence } else { 0 };
            if now_ns.saturating_sub(self.burst_began) > WINDOW_NS || self.asked() == 0 {
                self.end_burst();
                self.burst_began = now_ns;
                self.traffic = self.seen.freed.saturating_sub(self.freed_before);
                self.freed_before = self.seen.freed;
            }
            self.asked_at = now_ns;
        }
        if seen.returned != self.seen.returned {
            self.returned_at = now_ns;
        }
        let wasted = seen.wasted.saturating_sub(self.seen.wasted);
        self.hit.sum += seen.hit.saturating_sub(self.seen.hit);
        self.wasted.sum += wasted;
        let asked = total(&seen).saturating_sub(total(&self.seen));
        let kept = self.expected();
        let wanting = now_ns.saturating_sub(self.asked_at) < IDLE_NS;
        let look_ns = seen.look_ns.saturating_sub(self.seen.look_ns);
        let requests = seen.requests.saturating_sub(self.seen.requests);
        let clears_ns = asked as f64 * seen.clear_ns;
        self.purse.asked(asked);
        self.purse.looked(look_ns as f64, requests, clears_ns, between_ns);
        self.purse.settle(
            purse::earns(self.lost()) * seen.spared_ns(&self.seen),
            seen.spent_ns.saturating_sub(self.seen.spent_ns) as f64,
            if wanting { now_ns.saturating_sub(self.seen_at) } else { 0 },
        );
        self.live_peak = self.live_peak.max(seen.live);
        self.seen = seen;
        self.seen_at = now_ns;
        if wasted > 0 {
            self.reserve.was_short(wasted, kept);
        } else {
            self.reserve.was_enough(asked);
        }
        let quiet = now_ns.saturating_sub(self.asked_at) > QUIET_NS;
        let long = now_ns.saturating_sub(self.burst_began) > WINDOW_NS;
        // A block that was absent does not tell for which request it was when it comes back.
        let settled = self.settled().saturating_sub(self.settled_before);
        if quiet && (long || settled >= self.asked()) {
            self.end_burst();
        }
        self.turn_windows(now_ns);
    }

    /// Share of the zeroes used of late that plain requests took.
    fn lost(&self) -> f64 {
        if !self.without.has(Mechanism::Lost) {
            return 0.0;
        }
        self.wasted.sum as f64 / (self.wasted.sum + self.hit.sum).max(1) as f64
    }

    /// Pages that the present burst asked for; 0: there is none.
    fn asked(&self) -> u64 {
        self.bands.iter().zip(&self.seen.demand).map(|(band, &asked)| band.arrived(asked)).sum()
    }

    /// Whether a burst goes on.
    fn in_burst(&self) -> bool {
        self.asked() > 0
    }

    fn end_burst(&mut self) {
        if self.asked() > 0 {
            self.reserve.turn();
        }
        for (band, &asked) in self.bands.iter_mut().zip(&self.seen.demand) {
            band.end(asked);
        }
        self.settled_before = self.settled();
    }

    fn settled(&self) -> u64 {
        self.seen.returned + self.seen.absent
    }

    /// Ends the windows that have passed; a sleeper's many are as good as the few hundred
    /// after which nothing is left.
    fn turn_windows(&mut self, now_ns: u64) {
        let passed = now_ns.saturating_sub(self.window_began) / WINDOW_NS;
        if passed == 0 {
            return;
        }
        self.window_began += passed * WINDOW_NS;
        for _ in 0..passed.min(16 * FADE) {
            self.bands.iter_mut().for_each(Bursts::fade);
            self.live_peak -= self.live_peak.div_ceil(FADE);
            self.hit.turn();
            self.wasted.turn();
            self.purse.fade(self.lost());
        }
    }

    /// Pages of a band that the rest of the present burst will ask for, or the next burst.
    fn ahead(&self, band: Band) -> u64 {
        let (bursts, asked) = (&self.bands[band.index()], self.seen.demand[band.index()]);
        bursts.largest(asked) - bursts.arrived(asked)
    }

    /// Pages that go through the caches before zeroes are used: those that the program frees, and
    /// so uses, from one burst to the next. Each counts once, and their sum ends at the program's
    /// pages and the zero ones.
    fn traffic(&self) -> u64 {
        self.traffic.min(self.live_peak + self.target())
    }

    /// Whether scrubd has something to spend; if not it clears nothing.
    fn may_spend(&self) -> bool {
        self.purse.is_open()
    }

    /// Whether zero was requested of late, and CPU time may be spent on that. scrubd's looks are
    /// part of the price then.
    fn looks(&self) -> bool {
        let of_late = self.seen_at.saturating_sub(self.asked_at) < IDLE_NS;
        of_late && total(&self.seen) > 0 && self.may_spend()
    }

    /// Whether the requests for zero of late leave anything to make zero, wherever it lies.
    fn wants(&self) -> bool {
        self.looks() && self.target() > 0
    }

    /// Whether so much of it is asked for that to know the machine well pays.
    fn pays_to_measure(&self) -> bool {
        let seen = &self.seen;
        self.wants() && (seen.requests >= MEASURED_REQUESTS || total(seen) >= MEASURED_PAGES)
    }

    /// Zero blocks that a CPU's zero list of this class should hold.
    fn quick_target(&self, class: Class) -> usize {
        let ahead = u128::from(self.ahead(class.into()));
        if ahead == 0 {
            return 0; // nearly all of them, at each look
        }
        let (wanted, useful) = (self.wanted(), self.target());
        let pages = (ahead * u128::from(useful)).div_ceil(u128::from(wanted.max(1))) as u64;
        let one = u64::from(class.pages());
        // A target that was cut is not rounded up again.
        let blocks = if useful < wanted { pages / one } else { pages.div_ceil(one) };
        blocks.min(class.slots() as u64) as usize
    }

    /// Zero pages that should lie ready: the requests ahead, within the pages that need not stay as
    /// they are.
    fn target(&self) -> u64 {
        self.wanted().min(self.most())
    }

    /// Free pages that need not stay as they are.
    fn most(&self) -> u64 {
        let reserve = if self.without.has(Mechanism::Reserve) { self.reserve.pages } else { 0 };
        let expected = if self.without.has(Mechanism::Expected) { self.expected() } else { 0 };
        let kept = reserve.max(expected);
        self.seen.free.saturating_sub(kept)
    }

    /// Free pages that the program will take as they are, if it takes as much as of late.
    fn expected(&self) -> u64 {
        self.live_peak.saturating_sub(self.seen.live).saturating_sub(self.wanted())
    }

    fn wanted(&self) -> u64 {
        Band::all().map(|band| self.ahead(band)).sum()
    }

    /// The bands that are asked for, the one with the most requests first: where idle time
    /// is short, its next block is the likeliest to be missed. With the pages ahead.
    fn likeliest(&self) -> impl Iterator<Item = (Band, u64)> {
        let mut ranked = [(0, 0, None); BANDS];
        for (rank, band) in ranked.iter_mut().zip(Band::all()) {
            let (bursts, asked) = (&self.bands[band.index()], self.seen.demand[band.index()]);
            *rank = (
                bursts.lately(asked).div_ceil(u64::from(band.pages())),
                self.ahead(band),
                Some(band),
            );
        }
        ranked.sort_unstable_by_key(|&(requests, ..)| std::cmp::Reverse(requests));
        ranked.into_iter().filter_map(|(_, ahead, band)| Some((band?, ahead)).filter(|b| b.1 > 0))
    }
}
