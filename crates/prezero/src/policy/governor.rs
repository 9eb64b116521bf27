//! How much zero stock is worth having, of which sizes, and what may be spent on it.
//!
//! The loop is closed twice. *How much*: requests come in bursts, and a stock as large as the largest recent
//! burst serves the next one whole; during a burst no more is made than is left of it. *At what price*: [`CostModel`] says
//! for which sizes zeroes pay, and zeroes that went to plain requests are a part of their cost. Without demand for
//! zero nothing is scrubbed. The governor is told the time and what happened; it reads no clock and touches no memory.

use prezero_host::bursts::{Bursts, FADE};

use crate::class::{BANDS, Band, CLASSES, Class};
use crate::clock::REST_NS;
use crate::config::ablation::{Ablation, Mechanism};
use crate::policy::IDLE_NS;
use crate::policy::arrivals::Arrivals;
use crate::policy::cost::{BAND_READY_PAGES, CostModel, Delta, ready_blocks};
use crate::policy::sample::Sample;

/// A window, ns: bursts fade by one step in it, and the longest burst ends with it. It is long beside a busy
/// program's pauses, and short beside what a person notices.
/// Moved by: tests of `governor`, `bench waste`.
const WINDOW_NS: u64 = 100_000_000;

/// Pages asked for, all bands together.
fn total(seen: &Sample) -> u64 {
    seen.demand.iter().sum()
}

/// The most that is made resident so that blocks lie ready, pages: 4 MiB.
/// Moved by: `bench real --only sqlite,xz`, `prezero bench steady`.
const READY_PAGES: u64 = 1024;
/// The longest time for which scrubd trusts in what lies ready.
/// Moved by: counter `scrubd_wakeups`.
const LASTS_NS: u64 = 50_000_000;
/// The same while it is not known how often a size is asked for.
/// Moved by: `prezero bench short`.
const FIRST_LASTS_NS: u64 = 5_000_000;

/// What scrubd is to do until the next look.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Zero pages that should lie ready.
    pub(crate) target: u64,
    /// Zero blocks of each class that a CPU should remember.
    pub(crate) remembered: [usize; CLASSES],
    /// Pages that are to become resident, so that blocks can lie ready.
    pub(crate) lacks: u64,
    /// How long what lies ready lasts, ns; 0: that is not known.
    pub(crate) lasts_ns: u64,
    /// The bands that are asked for and the pages of each that are ahead, the likeliest request first.
    pub(crate) likeliest: [Option<(Band, u64)>; BANDS],
    pub(crate) spending: Spending,
    pub(crate) attention: Activity,
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
pub(crate) enum Activity {
    /// It asked for no zero lately, or nothing may be spent on it.
    None,
    /// It asked: looks are part of the price.
    Looks,
    /// Something should be made zero.
    Wanted,
}

/// See the module.
pub(crate) struct Governor {
    without: Ablation,
    window_began: u64,
    /// When the present burst began, and its last request was seen, ns.
    burst_began: u64,
    asked_at: u64,
    /// When blocks came back last that had been handed out zero, ns.
    returned_at: u64,
    /// When zeroes of a size that pays were asked for last, ns.
    wanted_at: u64,
    /// Pages given back, or served absent, before the present burst.
    settled_before: u64,
    bands: [Bursts; BANDS],
    arrivals: [Arrivals; BANDS],
    /// The most pages that were in the program's hands lately, fading.
    live_peak: u64,
    /// Zero pages that were lost since zero was asked for last.
    lost: u64,
    costs: CostModel,
    seen: Sample,
    seen_at: u64,
}

impl Governor {
    pub(crate) fn new(now_ns: u64, without: Ablation) -> Governor {
        Governor {
            without,
            window_began: now_ns,
            burst_began: now_ns,
            asked_at: now_ns,
            returned_at: now_ns,
            wanted_at: now_ns,
            settled_before: 0,
            bands: [Bursts::default(); BANDS],
            arrivals: [Arrivals::default(); BANDS],
            live_peak: 0,
            lost: 0,
            costs: CostModel::new(without),
            seen: Sample::default(),
            seen_at: now_ns,
        }
    }

    /// Shows the governor all that happened until `now_ns`, and asks for a plan.
    pub(crate) fn observe(&mut self, now_ns: u64, seen: Sample) -> Plan {
        self.note(now_ns, seen);
        self.plan()
    }

    /// What to do, as things are.
    pub(crate) fn plan(&self) -> Plan {
        let mut plan = Plan {
            target: self.target(),
            remembered: [0; CLASSES],
            lacks: self.lacks(),
            lasts_ns: self.lasts_ns(),
            likeliest: [None; BANDS],
            spending: if self.may_spend() { Spending::Allowed } else { Spending::Stopped },
            attention: match () {
                () if self.wants() => Activity::Wanted,
                () if self.looks() => Activity::Looks,
                () => Activity::None,
            },
            in_burst: self.in_burst(),
            asked_at: self.asked_at,
            returned_at: self.returned_at,
        };
        for class in Class::largest_first() {
            plan.remembered[class.index()] = self.remembered(class);
        }
        for (place, band) in plan.likeliest.iter_mut().zip(self.likeliest()) {
            *place = Some(band);
        }
        plan
    }

    fn note(&mut self, now_ns: u64, seen: Sample) {
        // Looks that are as rare as the requests allow see many bursts as one.
        let slept = self.lasts_ns() > 0;
        if seen.demand != self.seen.demand {
            if now_ns.saturating_sub(self.burst_began) > WINDOW_NS || self.asked() == 0 {
                self.end_burst();
                self.burst_began = now_ns;
            }
            self.asked_at = now_ns;
            self.lost = 0;
        }
        if seen.returned != self.seen.returned {
            self.returned_at = now_ns;
        }
        let passed = Delta::between(&self.seen, &seen);
        self.costs.note(&passed);
        self.lost += passed.lost;
        for band in Band::all() {
            // A large request may be smaller than its band's largest.
            let requests = passed.asked[band.index()].div_ceil(u64::from(band.pages()));
            if requests > 0 {
                self.arrivals[band.index()].note(now_ns, requests);
            }
        }
        if Band::all().any(|band| passed.asked[band.index()] > 0 && self.costs.is_enabled(band)) {
            self.wanted_at = now_ns;
        }
        self.live_peak = self.live_peak.max(seen.live);
        self.seen = seen;
        self.seen_at = now_ns;
        // A burst is over when its blocks came back and no request came for as long as a free block rests.
        let quiet = now_ns.saturating_sub(self.asked_at) > REST_NS;
        let long = now_ns.saturating_sub(self.burst_began) > WINDOW_NS;
        // A block that was absent does not tell for which request it was when it comes back.
        let settled = self.settled().saturating_sub(self.settled_before);
        if quiet && (long || settled >= self.asked()) || slept {
            self.end_burst();
        }
        self.turn_windows(now_ns);
    }

    /// Pages that the present burst asked for; 0: there is none.
    fn asked(&self) -> u64 {
        self.bands.iter().zip(&self.seen.demand).map(|(band, &asked)| band.arrived(asked)).sum()
    }

    /// Whether a burst goes on of sizes that pay.
    fn in_burst(&self) -> bool {
        Band::all().any(|band| {
            let n = band.index();
            self.costs.is_enabled(band) && self.bands[n].arrived(self.seen.demand[n]) > 0
        })
    }

    fn end_burst(&mut self) {
        let bands = self.bands.iter_mut().zip(&mut self.arrivals);
        for ((band, arrivals), &asked) in bands.zip(&self.seen.demand) {
            arrivals.end_burst(band.arrived(asked));
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
            self.costs.turn();
        }
    }

    /// Pages of a band that the rest of the present burst will ask for, or the next burst, if zeroes of it pay.
    fn ahead(&self, band: Band) -> u64 {
        if !self.costs.is_enabled(band) {
            return 0;
        }
        let (bursts, asked) = (&self.bands[band.index()], self.seen.demand[band.index()]);
        let burst = bursts.largest(asked) - bursts.arrived(asked);
        burst.max(self.ready(band)).min(self.costs.most(band))
    }

    /// Whether the blocks of a band lie ready, and the interval of its requests says when to look. Otherwise scrubd
    /// follows each burst, which takes it several looks.
    fn is_ready(&self, band: Band) -> bool {
        let (n, one) = (band.index(), u64::from(band.pages()));
        let blocks = ready_blocks(band);
        let asked_at = self.arrivals[n].asked_at;
        one <= BAND_READY_PAGES
            && (asked_at > 0 && self.seen_at.saturating_sub(asked_at) < IDLE_NS)
            && self.without.has(Mechanism::Ready)
            && self.costs.is_enabled(band)
            && self.arrivals[n].burst <= blocks * one
    }

    /// Pages that lie ready of such a band.
    fn ready(&self, band: Band) -> u64 {
        if self.is_ready(band) { ready_blocks(band) * u64::from(band.pages()) } else { 0 }
    }

    /// Pages that all such bands want beyond those that are free and resident.
    fn lacks(&self) -> u64 {
        let ready: u64 = Band::all().map(|band| self.ready(band)).sum();
        ready.min(READY_PAGES).saturating_sub(self.seen.free)
    }

    /// How long half of what lies ready lasts. 0: some band that is asked for does not lie ready.
    fn lasts_ns(&self) -> u64 {
        let mut lasts = LASTS_NS;
        let lately = |band: &Band| {
            let at = self.arrivals[band.index()].asked_at;
            self.costs.is_enabled(*band) && at > 0 && self.seen_at.saturating_sub(at) < WINDOW_NS
        };
        let mut any = false;
        for band in Band::all().filter(lately) {
            if !self.is_ready(band) {
                return 0;
            }
            lasts = lasts.min(match self.arrivals[band.index()].interval_ns {
                0 => FIRST_LASTS_NS,
                interval => ready_blocks(band) * interval / 2,
            });
            any = true;
        }
        if any { lasts } else { 0 }
    }

    /// Whether zeroes of any size pay; if not scrubd clears nothing.
    fn may_spend(&self) -> bool {
        self.costs.any_enabled()
    }

    /// Whether zeroes of an enabled band were requested lately. scrubd's looks are part of the
    /// price then.
    fn looks(&self) -> bool {
        let of_late = self.seen_at.saturating_sub(self.wanted_at) < IDLE_NS;
        of_late && total(&self.seen) > 0 && self.may_spend()
    }

    /// Whether recent requests for zero leave anything to make zero, wherever it lies.
    fn wants(&self) -> bool {
        self.looks() && self.target() > 0
    }

    /// Zero blocks of this class that a CPU should remember.
    fn remembered(&self, class: Class) -> usize {
        let ahead = u128::from(self.ahead(class.into()));
        if ahead == 0 {
            return 0; // most classes, at each look
        }
        let (wanted, useful) = (self.wanted(), self.target());
        let pages = (ahead * u128::from(useful)).div_ceil(u128::from(wanted.max(1))) as u64;
        let one = u64::from(class.pages());
        // A target that was cut is not rounded up again.
        let blocks = if useful < wanted { pages / one } else { pages.div_ceil(one) };
        blocks.min(class.slots() as u64) as usize
    }

    /// Zero pages that should lie ready: the requests ahead, as far as free pages go. Zero pages that plain requests
    /// consumed are not replaced until the next zeroed request.
    fn target(&self) -> u64 {
        let lost = if self.without.has(Mechanism::Suppress) { self.lost } else { 0 };
        self.wanted().saturating_sub(lost).min(self.seen.free)
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
