//! Which sizes pay.
//!
//! A band is *open* while zeroes are made for it. An open band measures what its zeroes spare and what they cost,
//! looks included, and closes when it costs more than [`IDLE_CPU`] times what it spares. For a closed band the same
//! ratio is computed from its requests, times the part of such a ratio that its last opening came to. The band opens
//! when that pays again; the part is forgotten slowly, so a band that wastes its zeroes is tried ever more rarely.
//! A band closes nothing but itself. Told the time by windows; reads no clock.

use crate::class::{BANDS, Band, Class};
use crate::config::without::{Mechanism, Without};
use crate::policy::seen::Seen;

/// Idle CPU time that one spared unit of the program's time buys. A block whose lines lie in
/// another core's cache costs about so much more to clear.
/// Moved by: `bench waste`, counter `asides`.
const IDLE_CPU: f64 = 4.0;
/// CPU time that a band may cost before its ratio counts: scrubd has to learn when its blocks come.
/// Moved by: `bench waste --only once,bursty-64m`, `prezero bench short`.
const LENT_NS: f64 = 1e7;
/// The same where an opening before did not pay.
/// Moved by: `bench waste --only hostile`.
const LENT_AGAIN_NS: f64 = 1.25e6;
/// Pages that are made for a band before the first of its requests found one: 64 MiB.
/// Moved by: `bench waste --only once,bursty-64m`.
const UNPROVEN_PAGES: u64 = 16 << 10;
/// A closed band opens from this ratio on. A band at the border does not open and close all the time.
/// Moved by: tests of `worth`.
const OPENS: f64 = 1.25;
/// Part of a sum that fades in each window in which its band was asked for.
/// Moved by: tests of `worth`.
const FADE: f64 = 1.0 / 5.0;
/// Part of what an opening lacked that is forgiven in each such window.
/// Moved by: `bench waste --only hostile`.
const FORGIVES: f64 = 1.0 / 128.0;
/// Windows after which a disturbed machine's prices are forgotten: 26 s of requests.
/// Moved by: tests of `worth`.
const FORGETS: u32 = 256;
/// CPU time of the looks of one burst, as long as no burst showed it.
/// Moved by: `prezero bench rounds`, counter `look_cpu_ns`.
const LOOKS_NS: f64 = 4e4;
/// Part by which one burst moves that time.
/// Moved by: tests of `worth`.
const LEARNS: f64 = 1.0 / 16.0;
/// The most that lies ready of a band however few a burst takes, pages: 2 MiB, about a private cache. Of more, what is
/// used next was cleared long ago, and lies far away.
/// Moved by: `prezero bench ablate --only ready`, `prezero bench steady --only fill-512K,phases,handler`.
const BAND_READY_PAGES: u64 = 512;
/// What a request pays to clear a page, ns, as long as no clear was timed.
/// Moved by: `prezero bench short`.
const CLEAR_NS: f64 = 300.0;

/// What happened to a band, sums that fade.
#[derive(Clone, Copy, Debug)]
struct Account {
    /// A clear in line of what was asked for, and of what was found zero, ns.
    asked_ns: f64,
    spared_ns: f64,
    /// CPU time of clears and looks, ns; and all of it since the band opened.
    cost_ns: f64,
    paid_ns: f64,
    /// What it may cost before its ratio counts.
    lent_ns: f64,
    /// As `asked_ns`, and soon forgotten: the band's part of what is done for all.
    lately_ns: f64,
    /// Bursts with a request of this band.
    bursts: f64,
    /// Part of the computed ratio that was reached.
    reached: f64,
    open: bool,
    /// Whether it was asked for in this window, and in this burst.
    in_window: bool,
    in_burst: bool,
}

impl Account {
    fn pay(&mut self, ns: f64) {
        self.cost_ns += ns;
        self.paid_ns += ns;
    }
}

/// What was made zero lately: sums, since a single page may bear the cost of a whole step.
#[derive(Clone, Copy, Debug)]
struct Made {
    /// A clear in line of it, and the CPU time that it took, ns.
    worth_ns: f64,
    spent_ns: f64,
}

impl Made {
    /// What is remembered of the past, ns.
    /// Moved by: tests of `worth`.
    const MOST_NS: f64 = 2e7;

    /// As if some clears had cost what they are worth.
    fn new() -> Made {
        Made { worth_ns: LENT_AGAIN_NS, spent_ns: LENT_AGAIN_NS }
    }

    fn note(&mut self, worth_ns: f64, spent_ns: f64) {
        self.worth_ns += worth_ns;
        self.spent_ns += spent_ns;
        if self.worth_ns > Made::MOST_NS {
            let kept = Made::MOST_NS / self.worth_ns;
            (self.worth_ns, self.spent_ns) = (self.worth_ns * kept, self.spent_ns * kept);
        }
    }

    /// What a page costs to clear ahead, for each ns that its clear in line takes.
    fn dearer(&self) -> f64 {
        self.spent_ns / self.worth_ns
    }
}

/// What happened since the last look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passed {
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

impl Passed {
    pub(crate) fn between(before: &Seen, now: &Seen) -> Passed {
        let bands = |now: &[u64; BANDS], before: &[u64; BANDS]| {
            std::array::from_fn(|n| now[n].saturating_sub(before[n]))
        };
        Passed {
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

/// Requests that one look of scrubd serves, where blocks lie ready ahead.
pub(crate) fn blocks_a_look(band: Band) -> u64 {
    (ready_blocks(band) / 2).max(1)
}

/// Blocks of a band that lie ready, however few a burst takes. scrubd then sleeps until half of them were used.
pub(crate) fn ready_blocks(band: Band) -> u64 {
    let slots = band.class().map_or(1, Class::slots) as u64;
    (BAND_READY_PAGES / u64::from(band.pages())).clamp(1, slots)
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Worth {
    without: Without,
    accounts: [Account; BANDS],
    /// CPU time of the looks of one burst, and of those since the last burst ended, ns.
    burst_ns: f64,
    looks_ns: f64,
    made: Made,
    /// Windows in which only closed bands were asked for, since an open one was.
    untold: u32,
}

impl Worth {
    pub(crate) fn new(without: Without) -> Worth {
        let account = Account {
            asked_ns: 0.0,
            spared_ns: 0.0,
            cost_ns: 0.0,
            paid_ns: 0.0,
            lent_ns: LENT_NS,
            lately_ns: 0.0,
            bursts: 0.0,
            reached: 1.0,
            open: !without.has(Mechanism::Worth),
            in_window: false,
            in_burst: false,
        };
        Worth {
            without,
            accounts: [account; BANDS],
            burst_ns: LOOKS_NS,
            looks_ns: 0.0,
            made: Made::new(),
            untold: 0,
        }
    }

    /// Whether zeroes are made for this band.
    pub(crate) fn is_open(&self, band: Band) -> bool {
        self.accounts[band.index()].open
    }

    /// The most pages of a band that are worth making ahead: of one whose zeroes were never used so few that they cost
    /// no more than it is lent.
    pub(crate) fn most(&self, band: Band) -> u64 {
        let proven =
            self.accounts[band.index()].spared_ns > 0.0 || !self.without.has(Mechanism::Worth);
        if proven { u64::MAX } else { UNPROVEN_PAGES }
    }

    /// Whether they are for any.
    pub(crate) fn any_open(&self) -> bool {
        self.open().next().is_some()
    }

    /// Books what happened, and opens and closes bands.
    pub(crate) fn note(&mut self, passed: &Passed) {
        let clear_ns = if passed.clear_ns > 0.0 { passed.clear_ns } else { CLEAR_NS };
        // Hits of closed bands: of zeroes that were made for others.
        let mut shared_ns = 0.0;
        for (n, account) in self.accounts.iter_mut().enumerate() {
            let asked_ns = passed.asked[n] as f64 * clear_ns;
            account.asked_ns += asked_ns;
            account.lately_ns += asked_ns;
            if passed.asked[n] > 0 {
                account.bursts += f64::from(u8::from(!account.in_burst));
                (account.in_window, account.in_burst) = (true, true);
            }
            // A zero page is paid for when it is used or lost: a stock waits for its burst.
            let spared_ns = passed.hit[n] as f64 * clear_ns;
            if account.open {
                account.spared_ns += spared_ns;
                account.pay(spared_ns * self.made.dearer());
            } else {
                shared_ns += spared_ns;
            }
        }
        self.made.note(passed.scrubbed as f64 * clear_ns, passed.spent_ns as f64);
        let lately_ns = self.open().map(|account| account.lately_ns).sum::<f64>();
        if lately_ns > 0.0 {
            let lost_ns = passed.lost as f64 * clear_ns * self.made.dearer();
            let cost_ns = lost_ns + shared_ns * self.made.dearer() + passed.look_ns as f64;
            for account in self.accounts.iter_mut().filter(|account| account.open) {
                let part = account.lately_ns / lately_ns;
                account.spared_ns += part * shared_ns;
                account.pay(part * cost_ns);
            }
            self.looks_ns += passed.look_ns as f64;
        }
        if self.without.has(Mechanism::Worth) {
            self.judge();
        }
    }

    /// A burst is over.
    pub(crate) fn end_burst(&mut self) {
        let shown = self.open().any(|account| account.in_burst);
        if shown {
            self.burst_ns += (self.looks_ns - self.burst_ns) * LEARNS;
        }
        self.looks_ns = 0.0;
        self.accounts.iter_mut().for_each(|account| account.in_burst = false);
    }

    /// A window has passed.
    pub(crate) fn turn(&mut self) {
        let asked = |open| self.accounts.iter().any(|a| a.open == open && a.in_window);
        if asked(true) {
            self.untold = 0;
        } else if asked(false) {
            self.untold += 1;
        }
        if self.untold >= FORGETS {
            (self.made, self.burst_ns, self.untold) = (Made::new(), LOOKS_NS, 0);
        }
        for account in &mut self.accounts {
            account.lately_ns /= 2.0;
            if !account.in_window {
                continue;
            }
            account.in_window = false;
            for sum in [
                &mut account.asked_ns,
                &mut account.spared_ns,
                &mut account.cost_ns,
                &mut account.bursts,
            ] {
                *sum -= *sum * FADE;
            }
            if !account.open {
                account.reached += (1.0 - account.reached) * FORGIVES;
            }
        }
    }

    fn open(&self) -> impl Iterator<Item = &Account> {
        self.accounts.iter().filter(|account| account.open)
    }

    /// Opens and closes bands.
    fn judge(&mut self) {
        let others = self.open().map(|account| account.lately_ns).sum::<f64>();
        let (burst_ns, dearer) = (self.burst_ns, self.made.dearer());
        for (band, account) in Band::all().zip(&mut self.accounts) {
            if account.asked_ns == 0.0 {
                continue;
            }
            // Its part of the looks of its bursts, for each ns asked.
            let shared = if account.open { others } else { others + account.lately_ns };
            let part = if shared > 0.0 { account.lately_ns / shared } else { 1.0 };
            let looks =
                part * account.bursts * burst_ns / blocks_a_look(band) as f64 / account.asked_ns;
            let computed = IDLE_CPU / (dearer + looks);
            if account.open {
                let gained = IDLE_CPU * account.spared_ns;
                if account.cost_ns > gained && account.paid_ns > account.lent_ns {
                    account.open = false;
                    account.lent_ns = LENT_AGAIN_NS;
                    account.reached = (gained / account.cost_ns / computed).min(1.0);
                }
            } else if computed * account.reached >= OPENS {
                account.open = true;
                (account.spared_ns, account.cost_ns, account.paid_ns) = (0.0, 0.0, 0.0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// To clear a page, ns.
    const CLEAR_NS: f64 = 300.0;

    fn nothing() -> Passed {
        let none = [0; BANDS];
        Passed {
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
        worth: Worth,
        /// CPU time of the looks of a burst, and for each ns of a clear in line that of a clear ahead.
        looks_ns: u64,
        dearer: f64,
        /// CPU time that all bands cost so far.
        cost_ns: u64,
    }

    impl World {
        fn new(looks_ns: u64) -> World {
            World { worth: Worth::new(Without::default()), looks_ns, dearer: 1.0, cost_ns: 0 }
        }

        /// Windows in which each burst asks for so many pages at once, and finds this share of what is made for
        /// open bands.
        fn windows(&mut self, count: u32, asks: &[u32], found: f64) {
            for burst in 0..count * 10 {
                let mut passed = nothing();
                for &pages in asks {
                    let band = Band::of(pages);
                    passed.asked[band.index()] += u64::from(pages);
                    if self.worth.is_open(band) {
                        passed.hit[band.index()] += (f64::from(pages) * found) as u64;
                        passed.scrubbed += u64::from(pages);
                        passed.lost += (f64::from(pages) * (1.0 - found)) as u64;
                        passed.look_ns = self.looks_ns;
                    }
                }
                passed.spent_ns = (passed.scrubbed as f64 * CLEAR_NS * self.dearer) as u64;
                self.cost_ns += passed.spent_ns + passed.look_ns;
                self.worth.note(&passed);
                self.worth.end_burst();
                if burst % 10 == 9 {
                    self.worth.turn();
                }
            }
        }

        fn opens(&self, pages: u32) -> bool {
            self.worth.is_open(Band::of(pages))
        }
    }

    const SMALL: u32 = 16;
    const LARGE: u32 = 2048;

    #[test]
    fn a_size_that_pays_is_open_from_its_first_request_on_and_a_small_one_never() {
        let mut world = World::new(LOOKS_NS as u64);
        world.windows(1, &[LARGE], 1.0);
        assert!(world.opens(LARGE));
        world.windows(100, &[LARGE], 1.0);
        assert!(world.opens(LARGE));
        world.windows(100, &[SMALL], 1.0);
        assert!(!world.opens(SMALL), "a wake-up costs twelve times what it spares");
    }

    #[test]
    fn small_blocks_ride_along_in_bursts_of_large_ones_and_close_without_them() {
        let mut world = World::new(LOOKS_NS as u64);
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
        assert!(world.cost_ns as f64 <= 2.0 * LENT_NS, "{} ns", world.cost_ns);
        let before = world.cost_ns;
        world.windows(1000, &[LARGE], 0.0);
        let share = (world.cost_ns - before) as f64 / 100e9;
        assert!(share <= 2e-3, "{share} of a CPU");
        world.windows(300, &[LARGE], 1.0);
        assert!(world.opens(LARGE), "its zeroes are used now");
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
        let odd = Passed { scrubbed: 1, spent_ns: 2_000_000, ..nothing() };
        world.worth.note(&odd);
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
            assert!(share <= 2e-3, "{dearer} {looks_ns}: tried again at {share} of a CPU");
        }
    }

    #[test]
    fn what_closes_a_size_for_a_time_does_not_close_it_for_good() {
        let dear_clears = |world: &mut World| world.dearer = 50.0;
        let dear_looks = |world: &mut World| world.looks_ns = 100_000_000;
        for disturb in [dear_clears, dear_looks] as [fn(&mut World); 2] {
            let mut world = World::new(LOOKS_NS as u64);
            disturb(&mut world);
            world.windows(100, &[LARGE], 1.0);
            assert!(!world.opens(LARGE));
            (world.dearer, world.looks_ns) = (1.0, LOOKS_NS as u64);
            world.windows(FORGETS + 1, &[LARGE], 1.0);
            assert!(world.opens(LARGE));
            world.windows(100, &[LARGE], 1.0);
            assert!(world.opens(LARGE), "and stays so");
        }
    }
}
