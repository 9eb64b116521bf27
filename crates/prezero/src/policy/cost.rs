//! Which size classes are scrubbed: those whose hits repay the CPU time that scrubd spends on them.
//!
//! A band is *enabled* while zeroes are made for it. It has a balance: hits pay in, and clears, looks and lost zeroes
//! take out. At zero the band is disabled. It is tried again after a while, and each trial that fails doubles that
//! while; a band whose balance is full has proven itself. The balance is bounded, so what a band earned long ago pays
//! for some milliseconds only. Told the time by windows; reads no clock.

use crate::class::{BANDS, Band, Class};
use crate::config::ablation::{Ablation, Mechanism};
use crate::policy::sample::Sample;

/// Idle CPU time that one spared unit of the program's time buys. A block whose lines lie in
/// another core's cache costs about so much more to clear.
/// Moved by: `bench waste`, counter `asides`.
const IDLE_CPU: f64 = 4.0;
/// The balance of a new band, and the most that any has: CPU time, ns. scrubd has to learn when its blocks come.
/// Moved by: `bench waste --only once,bursty-64m`, `prezero bench short`.
const FULL_NS: f64 = 1e7;
/// The balance of a band that is tried again, ns.
/// Moved by: `bench waste --only hostile`.
const TRIAL_NS: f64 = 1.25e6;
/// Windows with requests of a disabled band until it is tried again: at first, and at most. That is 1 and 26 s.
/// Moved by: tests of `cost`, `bench waste --only hostile`.
const RETRY_FIRST: u32 = 10;
const RETRY_LAST: u32 = 256;
/// Pages that are made for a band before the first of its requests found one: 64 MiB.
/// Moved by: `bench waste --only once,bursty-64m`.
const UNPROVEN_PAGES: u64 = 16 << 10;
/// The most that lies ready of a band however few a burst takes, pages: 2 MiB, about a private cache. Of more, what is
/// used next was cleared long ago, and lies far away.
/// Moved by: `prezero bench ablate --only ready`, `prezero bench steady --only fill-512K,phases,handler`.
pub(crate) const BAND_READY_PAGES: u64 = 512;
/// What a request pays to clear a page, ns, as long as no clear was timed.
/// Moved by: `prezero bench short`.
const CLEAR_NS: f64 = 300.0;

/// The account of one band. All in ns of CPU time.
#[derive(Clone, Copy, Debug)]
struct Account {
    enabled: bool,
    balance: f64,
    /// Whether a request found zeroes since the band was enabled.
    proven: bool,
    /// Clears of what was asked for, soon forgotten: the band's part of what is done for all.
    recent: f64,
    /// Windows with requests until a disabled band is tried, and after the next failure.
    retry_in: u32,
    retry_after: u32,
    in_window: bool,
}

/// What was made zero lately: sums, since a single page may bear the cost of a whole step.
#[derive(Clone, Copy, Debug)]
struct ClearCost {
    /// A clear in line of it, and the CPU time that it took, ns.
    inline_ns: f64,
    spent_ns: f64,
}

impl ClearCost {
    /// What is remembered of the past, ns.
    /// Moved by: tests of `cost`.
    const MOST_NS: f64 = 2e7;

    /// As if some clears had cost what clears in line do.
    fn new() -> ClearCost {
        ClearCost { inline_ns: TRIAL_NS, spent_ns: TRIAL_NS }
    }

    fn note(&mut self, inline_ns: f64, spent_ns: f64) {
        self.inline_ns += inline_ns;
        self.spent_ns += spent_ns;
        if self.inline_ns > ClearCost::MOST_NS {
            let kept = ClearCost::MOST_NS / self.inline_ns;
            (self.inline_ns, self.spent_ns) = (self.inline_ns * kept, self.spent_ns * kept);
        }
    }

    /// What a page costs to clear ahead, for each ns that its clear in line takes.
    fn price(&self) -> f64 {
        self.spent_ns / self.inline_ns
    }
}

/// What happened since the last look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delta {
    /// Pages asked for and found zero, by band.
    pub(crate) asked: [u64; BANDS],
    pub(crate) hit: [u64; BANDS],
    /// Zero pages that plain requests took, or the kernel.
    pub(crate) lost: u64,
    /// Pages that were made zero, CPU time of that, and of looks, ns.
    pub(crate) scrubbed: u64,
    pub(crate) spent_ns: u64,
    pub(crate) look_ns: u64,
    /// What a request pays for a page that must be cleared, ns.
    pub(crate) clear_ns: f64,
}

impl Delta {
    pub(crate) fn between(before: &Sample, now: &Sample) -> Delta {
        let bands = |now: &[u64; BANDS], before: &[u64; BANDS]| {
            std::array::from_fn(|n| now[n].saturating_sub(before[n]))
        };
        Delta {
            asked: bands(&now.demand, &before.demand),
            hit: bands(&now.hits, &before.hits),
            lost: now.lost.saturating_sub(before.lost),
            scrubbed: now.scrubbed.saturating_sub(before.scrubbed),
            spent_ns: now.spent_ns.saturating_sub(before.spent_ns),
            look_ns: now.look_ns.saturating_sub(before.look_ns),
            clear_ns: now.clear_ns,
        }
    }
}

/// Blocks of a band that lie ready, however few a burst takes. scrubd then sleeps for half the time in which they are used.
pub(crate) fn ready_blocks(band: Band) -> u64 {
    let slots = band.class().map_or(1, Class::slots) as u64;
    (BAND_READY_PAGES / u64::from(band.pages())).clamp(1, slots)
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct CostModel {
    without: Ablation,
    accounts: [Account; BANDS],
    clears: ClearCost,
}

impl CostModel {
    pub(crate) fn new(without: Ablation) -> CostModel {
        let account = Account {
            enabled: true,
            balance: FULL_NS,
            proven: false,
            recent: 0.0,
            retry_in: 0,
            retry_after: RETRY_FIRST,
            in_window: false,
        };
        CostModel { without, accounts: [account; BANDS], clears: ClearCost::new() }
    }

    /// Whether zeroes are made for this band.
    pub(crate) fn is_enabled(&self, band: Band) -> bool {
        self.accounts[band.index()].enabled
    }

    /// The most pages of a band that are made ahead: few of one whose zeroes were not used yet.
    pub(crate) fn most(&self, band: Band) -> u64 {
        let proven = self.accounts[band.index()].proven || !self.without.has(Mechanism::CostModel);
        if proven { u64::MAX } else { UNPROVEN_PAGES }
    }

    /// Whether zeroes are made for any band that was asked for lately, or none was.
    pub(crate) fn any_enabled(&self) -> bool {
        let asked = || self.accounts.iter().filter(|account| account.recent >= 1.0);
        asked().any(|account| account.enabled) || asked().next().is_none()
    }

    /// Books what happened, and disables the bands that cost more than they spare.
    pub(crate) fn note(&mut self, passed: &Delta) {
        let clear_ns = if passed.clear_ns > 0.0 { passed.clear_ns } else { CLEAR_NS };
        self.clears.note(passed.scrubbed as f64 * clear_ns, passed.spent_ns as f64);
        let price = self.clears.price();
        for (n, account) in self.accounts.iter_mut().enumerate() {
            account.recent += passed.asked[n] as f64 * clear_ns;
            account.in_window |= passed.asked[n] > 0;
            // A disabled band that finds zeroes finds what was made for others.
            if account.enabled {
                account.proven |= passed.hit[n] > 0;
                // A page is paid for when it is used or lost: a stock waits for its burst.
                account.balance += passed.hit[n] as f64 * clear_ns * (IDLE_CPU - price);
            }
        }
        let shared = passed.lost as f64 * clear_ns * price + passed.look_ns as f64;
        let enabled = || self.accounts.iter().filter(|account| account.enabled);
        let recent: f64 = enabled().map(|account| account.recent).sum();
        for account in self.accounts.iter_mut().filter(|account| account.enabled) {
            if recent > 0.0 {
                account.balance -= shared * account.recent / recent;
            }
            account.balance = account.balance.min(FULL_NS);
            if account.balance < 0.0 && self.without.has(Mechanism::CostModel) {
                (account.enabled, account.proven) = (false, false);
                account.retry_in = account.retry_after;
                account.retry_after = (2 * account.retry_after).min(RETRY_LAST);
            }
        }
    }

    /// A window has passed.
    pub(crate) fn turn(&mut self) {
        let mut trial = false;
        for account in &mut self.accounts {
            account.recent /= 2.0;
            if !std::mem::take(&mut account.in_window) {
                continue;
            }
            if !account.enabled {
                account.retry_in -= 1;
                if account.retry_in == 0 {
                    (account.enabled, account.balance, trial) = (true, TRIAL_NS, true);
                }
            } else if account.balance >= FULL_NS {
                account.retry_after = RETRY_FIRST;
            }
        }
        if trial {
            // The price was measured on a machine that may have been disturbed.
            self.clears = ClearCost::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CPU time of the looks of a burst.
    const LOOKS_NS: u64 = 40_000;

    fn nothing() -> Delta {
        let none = [0; BANDS];
        Delta {
            asked: none,
            hit: none,
            lost: 0,
            scrubbed: 0,
            spent_ns: 0,
            look_ns: 0,
            clear_ns: CLEAR_NS,
        }
    }

    /// A program in time of its own: bursts of some pages of each band, ten in a window.
    struct World {
        model: CostModel,
        /// Of a burst; and for each ns of a clear in line that of a clear ahead.
        looks_ns: u64,
        dearer: f64,
        /// CPU time that all bands cost so far.
        cost_ns: u64,
    }

    impl World {
        fn new(looks_ns: u64) -> World {
            World { model: CostModel::new(Ablation::default()), looks_ns, dearer: 1.0, cost_ns: 0 }
        }

        /// Windows in which each burst asks for these pages at once, and finds this share of what is made for
        /// open bands.
        fn windows(&mut self, count: u32, asks: &[u32], found: f64) {
            for burst in 0..count * 10 {
                let mut passed = nothing();
                for &pages in asks {
                    let band = Band::of(pages);
                    passed.asked[band.index()] += u64::from(pages);
                    if self.model.is_enabled(band) {
                        passed.hit[band.index()] += (f64::from(pages) * found) as u64;
                        passed.scrubbed += u64::from(pages);
                        passed.lost += (f64::from(pages) * (1.0 - found)) as u64;
                        passed.look_ns = self.looks_ns;
                    }
                }
                passed.spent_ns = (passed.scrubbed as f64 * CLEAR_NS * self.dearer) as u64;
                self.cost_ns += passed.spent_ns + passed.look_ns;
                self.model.note(&passed);
                if burst % 10 == 9 {
                    self.model.turn();
                }
            }
        }

        fn opens(&self, pages: u32) -> bool {
            self.model.is_enabled(Band::of(pages))
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
        assert!(world.model.any_enabled());
        world.windows(100, &[SMALL], 1.0);
        assert!(!world.opens(SMALL) && !world.model.any_enabled());
        world.windows(1, &[LARGE], 1.0);
        assert!(world.model.any_enabled());
    }

    #[test]
    fn a_disabled_size_that_finds_what_was_made_for_others_is_tried_again_all_the_same() {
        let mut world = World::new(0);
        world.windows(5, &[LARGE], 0.0);
        assert!(!world.opens(LARGE));
        let mut found = nothing();
        let n = Band::of(LARGE).index();
        (found.asked[n], found.hit[n]) = (1 << 20, 1 << 20);
        for _ in 0..2 * RETRY_FIRST {
            world.model.note(&found);
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
        let odd = Delta { scrubbed: 1, spent_ns: 2_000_000, ..nothing() };
        world.model.note(&odd);
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
