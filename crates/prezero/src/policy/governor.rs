//! How much zero stock is worth having, of which sizes, and what may be spent on it.
//!
//! The loop is closed twice. *How much*: requests come in bursts, and a stock as large as the largest recent
//! burst serves the next one whole; during a burst no more is made than is left of it. *At what price*: each [`Size`] has
//! a balance, and zeroes that went to plain requests are a part of the cost. Without demand for zero nothing is
//! scrubbed. The governor is told the time and what happened; it reads no clock and touches no memory.

use prezero_host::bursts::FADE;

use crate::class::{BANDS, Band, CLASSES, Class};
use crate::clock::REST_NS;
use crate::config::ablation::{Ablation, Mechanism};
use crate::policy::IDLE_NS;
use crate::policy::sample::Sample;
use crate::policy::size::{Size, TRIAL_NS, ready_blocks};

/// A window, ns: bursts fade by one step in it, and the longest burst ends with it. It is long beside a busy
/// program's pauses, and short beside what a person notices.
/// Moved by: tests of `governor`, `bench waste`.
const WINDOW_NS: u64 = 100_000_000;
/// Idle CPU time that scrubd may spend to spare the program one unit of its time. A clear of lines in another core's
/// cache costs about that factor more.
/// Moved by: `bench waste`, counter `asides`.
const IDLE_CPU: f64 = 4.0;
/// What a request pays to clear a page, ns, as long as no clear was timed.
/// Moved by: `prezero bench short`.
const CLEAR_NS: f64 = 300.0;
/// Clears ahead that are remembered, ns of clears in line.
/// Moved by: tests of `governor`.
const MADE_NS: f64 = 2e7;
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
    /// Whether anything may be cleared.
    pub(crate) may_spend: bool,
    /// Whether zeroes that pay were requested lately: looks are part of their price then.
    pub(crate) looks: bool,
    /// Whether a burst of requests goes on, as far as can be seen.
    pub(crate) in_burst: bool,
    /// When it was seen last that zero was asked for, and that blocks came back which had been handed out zero, ns.
    pub(crate) asked_at: u64,
    pub(crate) returned_at: u64,
}

/// See the module.
pub(crate) struct Governor {
    without: Ablation,
    sizes: [Size; BANDS],
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
    /// Zero pages that were lost since zero was asked for last.
    lost: u64,
    /// Clears ahead lately: what they would have cost in line, and did, ns. Sums, since a single page may bear the cost
    /// of a whole step.
    made: (f64, f64),
    seen: Sample,
    seen_at: u64,
}

impl Governor {
    pub(crate) fn new(now_ns: u64, without: Ablation) -> Governor {
        Governor {
            without,
            sizes: Band::all_of(Size::new),
            window_began: now_ns,
            burst_began: now_ns,
            asked_at: now_ns,
            returned_at: now_ns,
            wanted_at: now_ns,
            settled_before: 0,
            lost: 0,
            made: (TRIAL_NS, TRIAL_NS),
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
        let ahead: [u64; BANDS] = Band::all_of(|band| self.ahead(band));
        let wanted = ahead.iter().sum();
        // Zero pages that plain requests consumed are not replaced until the next zeroed request.
        let target = u64::saturating_sub(wanted, self.lost).min(self.seen.free);
        let mut plan = Plan {
            target,
            remembered: [0; CLASSES],
            lacks: self.lacks(),
            lasts_ns: self.lasts_ns(),
            may_spend: self.may_spend(),
            looks: self.looks(),
            in_burst: self
                .sizes()
                .any(|(size, asked)| size.is_on() && size.bursts.arrived(asked) > 0),
            asked_at: self.asked_at,
            returned_at: self.returned_at,
        };
        for class in Class::largest_first() {
            let band: Band = class.into();
            let remembered = &mut plan.remembered[class.index()];
            *remembered = blocks_of(class, ahead[band.index()], target, wanted);
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
        if self.without.has(Mechanism::Suppress) {
            self.lost += seen.lost.saturating_sub(self.seen.lost);
        }
        self.book(now_ns, &seen);
        (self.seen, self.seen_at) = (seen, now_ns);
        // A burst is over when its blocks came back and no request came for as long as a free block rests.
        let quiet = now_ns.saturating_sub(self.asked_at) > REST_NS;
        let long = now_ns.saturating_sub(self.burst_began) > WINDOW_NS;
        // A block that was absent does not tell for which request it was when it comes back.
        let settled = self.settled().saturating_sub(self.settled_before);
        if quiet && (long || settled >= self.asked()) || slept {
            self.end_burst();
        }
        // A sleeper's many windows are as good as the few hundred after which nothing is left.
        let passed = now_ns.saturating_sub(self.window_began) / WINDOW_NS;
        self.window_began += passed * WINDOW_NS;
        (0..passed.min(16 * FADE)).for_each(|_| self.turn());
    }

    /// Books what was asked for, found, lost and spent since the last look.
    fn book(&mut self, now_ns: u64, seen: &Sample) {
        let clear_ns = if seen.clear_ns > 0.0 { seen.clear_ns } else { CLEAR_NS };
        let since = |now: u64, before: u64| now.saturating_sub(before) as f64;
        self.made.0 += since(seen.scrubbed, self.seen.scrubbed) * clear_ns;
        self.made.1 += since(seen.spent_ns, self.seen.spent_ns);
        let kept = (MADE_NS / self.made.0).min(1.0);
        self.made = (self.made.0 * kept, self.made.1 * kept);
        // What a page costs to clear ahead, for each ns that its clear in line takes.
        let price = self.made.1 / self.made.0;
        for (n, size) in self.sizes.iter_mut().enumerate() {
            size.asked(now_ns, seen.demand[n].saturating_sub(self.seen.demand[n]), clear_ns);
            // A page is paid for when it is used or lost: a stock waits for its burst.
            let hits = seen.hits[n].saturating_sub(self.seen.hits[n]);
            size.earns(hits, clear_ns * (IDLE_CPU - price));
        }
        let shared = since(seen.lost, self.seen.lost) * clear_ns * price
            + since(seen.look_ns, self.seen.look_ns);
        let may_end = self.without.has(Mechanism::CostModel);
        let on = || self.sizes.iter().filter(|size| size.is_on());
        let recent: f64 = on().map(|size| size.recent).sum();
        for (n, size) in self.sizes.iter_mut().enumerate().filter(|(_, size)| size.is_on()) {
            let part = if recent > 0.0 { size.recent / recent } else { 0.0 };
            size.pays(shared * part, may_end);
            if size.is_on() && seen.demand[n] > self.seen.demand[n] {
                self.wanted_at = now_ns;
            }
        }
    }

    /// A window has passed.
    fn turn(&mut self) {
        let mut tried = false;
        self.sizes.iter_mut().for_each(|size| tried |= size.turn());
        if tried {
            // The price was measured on a machine that may have been disturbed.
            self.made = (TRIAL_NS, TRIAL_NS);
        }
    }

    /// Each band, with the pages of it that were asked for since the beginning.
    fn sizes(&self) -> impl Iterator<Item = (&Size, u64)> {
        self.sizes.iter().zip(self.seen.demand)
    }

    /// Pages that the present burst asked for; 0: there is none.
    fn asked(&self) -> u64 {
        self.sizes().map(|(size, asked)| size.bursts.arrived(asked)).sum()
    }

    fn end_burst(&mut self) {
        self.sizes.iter_mut().zip(self.seen.demand).for_each(|(size, asked)| size.end_burst(asked));
        self.settled_before = self.settled();
    }

    fn settled(&self) -> u64 {
        self.seen.returned + self.seen.absent
    }

    /// Pages of a band that the rest of the present burst will ask for, or the next burst, if zeroes of it pay.
    fn ahead(&self, band: Band) -> u64 {
        let (n, is_bounded) = (band.index(), self.without.has(Mechanism::CostModel));
        self.sizes[n].ahead(self.seen.demand[n], self.ready(band), is_bounded)
    }

    /// Pages that lie ready of a band: the interval of its requests says when to look.
    fn ready(&self, band: Band) -> u64 {
        let has = self.without.has(Mechanism::Ready);
        if has { self.sizes[band.index()].ready(self.seen_at, IDLE_NS) } else { 0 }
    }

    /// Pages that all such bands want beyond those that are free and resident.
    fn lacks(&self) -> u64 {
        let ready: u64 = Band::all().map(|band| self.ready(band)).sum();
        ready.min(READY_PAGES).saturating_sub(self.seen.free)
    }

    /// How long half of what lies ready lasts. 0: some band that is asked for does not lie ready.
    fn lasts_ns(&self) -> u64 {
        let lately = |band: &Band| {
            let size = &self.sizes[band.index()];
            size.is_on() && size.asked_within(self.seen_at, WINDOW_NS)
        };
        let lasts = |band: Band| match self.sizes[band.index()].interval_ns {
            _ if self.ready(band) == 0 => 0,
            0 => FIRST_LASTS_NS,
            interval => ready_blocks(band) * interval / 2,
        };
        Band::all().filter(lately).map(lasts).min().map_or(0, |least| least.min(LASTS_NS))
    }

    /// Whether zeroes pay of any size that was asked for lately, or none was. If not scrubd clears nothing.
    fn may_spend(&self) -> bool {
        let asked = || self.sizes.iter().filter(|size| size.recent >= 1.0);
        asked().any(Size::is_on) || asked().next().is_none()
    }

    fn looks(&self) -> bool {
        let lately = self.seen_at.saturating_sub(self.wanted_at) < IDLE_NS;
        lately && self.seen.demand.iter().sum::<u64>() > 0 && self.may_spend()
    }
}

/// Zero blocks of a class that a CPU should remember, of which `ahead` pages are ahead.
fn blocks_of(class: Class, ahead: u64, target: u64, wanted: u64) -> usize {
    let (share, one) = (u128::from(ahead) * u128::from(target), u64::from(class.pages()));
    let pages = share.div_ceil(u128::from(wanted.max(1))) as u64;
    // A target that was cut is not rounded up again.
    let blocks = if target < wanted { pages / one } else { pages.div_ceil(one) };
    blocks.min(class.slots() as u64) as usize
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::policy::size::{FULL_NS, RETRY_FIRST, RETRY_LAST};

    /// CPU time of the looks of a burst.
    const LOOKS_NS: u64 = 40_000;

    /// A program in time of its own: bursts of some pages of each band, ten in a window.
    struct World {
        model: Governor,
        /// All that happened so far.
        seen: Sample,
        /// Of a burst; and for each ns of a clear in line that of a clear ahead.
        looks_ns: u64,
        dearer: f64,
        /// CPU time that all bands cost so far.
        cost_ns: u64,
    }

    impl World {
        fn new(looks_ns: u64) -> World {
            let model = Governor::new(0, Ablation::default());
            let seen = Sample { clear_ns: CLEAR_NS, ..Sample::default() };
            World { model, seen, looks_ns, dearer: 1.0, cost_ns: 0 }
        }

        /// Windows in which each burst asks for these pages at once, and finds this share of what is made for
        /// open bands.
        fn windows(&mut self, count: u32, asks: &[u32], found: f64) {
            for burst in 0..count * 10 {
                let mut passed = 0;
                let mut looks_ns = 0;
                for &pages in asks {
                    let band = Band::of(pages);
                    self.seen.demand[band.index()] += u64::from(pages);
                    if self.opens(pages) {
                        self.seen.hits[band.index()] += (f64::from(pages) * found) as u64;
                        passed += u64::from(pages);
                        self.seen.lost += (f64::from(pages) * (1.0 - found)) as u64;
                        looks_ns = self.looks_ns;
                    }
                }
                let spent_ns = (passed as f64 * CLEAR_NS * self.dearer) as u64;
                self.seen.scrubbed += passed;
                self.seen.spent_ns += spent_ns;
                self.seen.look_ns += looks_ns;
                self.cost_ns += spent_ns + looks_ns;
                self.books();
                if burst % 10 == 9 {
                    self.model.turn();
                }
            }
        }

        fn books(&mut self) {
            self.model.book(1, &self.seen);
            self.model.seen = self.seen;
        }

        fn opens(&self, pages: u32) -> bool {
            self.model.sizes[Band::of(pages).index()].is_on()
        }
    }

    const SMALL: u32 = 16;
    const LARGE: u32 = 2048;

    #[test]
    fn a_size_that_pays_is_enabled_from_its_first_request_on_and_a_small_one_never() {
        let mut world = World::new(LOOKS_NS);
        world.windows(1, &[LARGE], 1.0);
        assert!(world.opens(LARGE));
        world.windows(100, &[LARGE], 1.0);
        assert!(world.opens(LARGE));
        world.windows(100, &[SMALL], 1.0);
        assert!(!world.opens(SMALL), "a wake-up costs twice what it spares");
    }

    #[test]
    fn small_blocks_ride_along_in_bursts_of_large_ones_and_close_without_them() {
        let mut world = World::new(LOOKS_NS);
        world.windows(10, &[SMALL, LARGE], 1.0);
        assert!(world.opens(SMALL) && world.opens(LARGE));
        world.windows(50, &[SMALL], 1.0);
        assert!(!world.opens(SMALL) && world.opens(LARGE), "nothing but itself");
        world.windows(1, &[LARGE], 1.0);
        assert!(world.opens(LARGE));
    }

    #[test]
    fn a_size_that_wastes_its_zeroes_closes_soon_and_is_tried_ever_more_rarely() {
        let mut world = World::new(0);
        world.windows(5, &[LARGE], 0.0);
        assert!(!world.opens(LARGE));
        assert!(world.cost_ns as f64 <= 2.0 * FULL_NS, "{} ns", world.cost_ns);
        let before = world.cost_ns;
        world.windows(1000, &[LARGE], 0.0);
        let share = (world.cost_ns - before) as f64 / 100e9;
        assert!(share <= 2e-3, "{share} of a CPU");
        world.windows(300, &[LARGE], 1.0);
        assert!(world.opens(LARGE), "its zeroes are used now");
    }

    #[test]
    fn nothing_is_spent_where_all_that_was_asked_for_lately_is_disabled() {
        let mut world = World::new(LOOKS_NS);
        assert!(world.model.may_spend());
        world.windows(100, &[SMALL], 1.0);
        assert!(!world.opens(SMALL) && !world.model.may_spend());
        world.windows(1, &[LARGE], 1.0);
        assert!(world.model.may_spend());
    }

    #[test]
    fn a_disabled_size_that_finds_what_was_made_for_others_is_tried_again_all_the_same() {
        let mut world = World::new(0);
        world.windows(5, &[LARGE], 0.0);
        assert!(!world.opens(LARGE));
        let n = Band::of(LARGE).index();
        for _ in 0..2 * RETRY_FIRST {
            world.seen.demand[n] += 1 << 20;
            world.seen.hits[n] += 1 << 20;
            world.books();
            world.model.turn();
        }
        assert!(world.opens(LARGE));
    }

    #[test]
    fn a_size_that_gains_a_quarter_of_what_it_costs_stays_open() {
        for (found, open) in [(0.27, true), (0.2, false)] {
            let mut world = World::new(0);
            world.windows(20, &[LARGE], found);
            assert_eq!(world.opens(LARGE), open, "{found}");
        }
    }

    #[test]
    fn a_page_that_bears_the_cost_of_a_step_closes_nothing() {
        let mut world = World::new(0);
        world.windows(1, &[LARGE], 1.0);
        world.seen.scrubbed += 1;
        world.seen.spent_ns += 2_000_000;
        world.books();
        world.windows(20, &[LARGE], 1.0);
        assert!(world.opens(LARGE));
    }

    #[test]
    fn dear_clears_and_looks_close_what_cheap_ones_open() {
        for (dearer, looks_ns) in [(5.0, 0), (50.0, 0), (1.0, 4_000_000), (3.0, 2_000_000)] {
            let mut world = World::new(looks_ns);
            world.dearer = dearer;
            world.windows(20, &[LARGE], 1.0);
            assert!(!world.opens(LARGE), "{dearer} {looks_ns}");
            let before = world.cost_ns;
            world.windows(1000, &[LARGE], 1.0);
            let share = (world.cost_ns - before) as f64 / 100e9;
            assert!(share <= 4e-3, "{dearer} {looks_ns}: tried again at {share} of a CPU");
        }
    }

    #[test]
    fn what_closes_a_size_for_a_time_does_not_close_it_for_good() {
        let dear_clears = |world: &mut World| world.dearer = 50.0;
        let dear_looks = |world: &mut World| world.looks_ns = 100_000_000;
        for disturb in [dear_clears, dear_looks] as [fn(&mut World); 2] {
            let mut world = World::new(LOOKS_NS);
            disturb(&mut world);
            world.windows(100, &[LARGE], 1.0);
            assert!(!world.opens(LARGE));
            (world.dearer, world.looks_ns) = (1.0, LOOKS_NS);
            world.windows(RETRY_LAST + 1, &[LARGE], 1.0);
            assert!(world.opens(LARGE));
            world.windows(100, &[LARGE], 1.0);
            assert!(world.opens(LARGE), "and stays so");
        }
    }
}
