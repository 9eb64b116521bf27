//! The CPU time that scrubd may spend: the time it saves its program buys more.
//!
//! Every zero page that a request finds earns the clear or the fault that it spared, at [`IDLE_CPU`] times its
//! price, since scrubd spends time of an idle CPU. It earns less where plain requests take [many](earns) of the
//! zeroes. Every clear costs its time. Looks for something to clear cost time as well, beyond what requests bring
//! ([`LOOKS_ASKED_NS`], [`LOOKS_NS`]) while the program is on trial ([`TRIAL_NS`]). A program that gains nothing
//! costs these and [`SEED_NS`] once, and [`INCOME`] from then on. Old earnings are no reason to go on, so they
//! fade. Told the time; reads no clock.

/// CPU time that a program is lent, so that its second burst finds most of its zeroes. [`OPENS`] of
/// it is lent at once, the rest as the program asks for [`SEED_PAGES`].
/// Moved by: `bench waste --only once,bursty-64m`, `prezero bench short`.
const SEED_NS: f64 = 5e6;
/// Pages that the seed clears.
/// Moved by: `bench waste --only once,bursty-64m`.
pub(crate) const SEED_PAGES: u64 = 16 << 10;
/// CPU time for looks that each request for zero brings, besides what its zeroes could earn. A
/// program that asks rarely is looked at rarely.
/// Moved by: `prezero bench rounds`, counter `look_cpu_ns`.
const LOOKS_ASKED_NS: f64 = 2e5;
/// The most CPU time for looks that requests bring. Looks of a whole trial fit in it.
/// Moved by: `prezero bench rounds`, counter `look_cpu_ns`.
const LOOKS_NS: f64 = 4e7;
/// For so long looks cost a program nothing while it asks for zero. By then its zeroes have earned
/// something, or do not pay.
/// Moved by: `prezero bench rounds`, counter `asides`.
const TRIAL_NS: u64 = 700_000_000;
/// Idle CPU time that one spared unit of the program's time buys. A block whose lines lie in
/// another core's cache costs about so much more to clear.
/// Moved by: `bench waste`, counter `asides`.
const IDLE_CPU: f64 = 4.0;
/// Shares of the used zeroes that plain requests take. Between the two a spared clear earns less
/// and less, down to [`LEAST_EARNED`].
/// Moved by: `bench waste --only hostile`.
const LOST: (f64, f64) = (0.025, 0.05);
/// The least that a spared clear earns. With less scrubd leaves a program alone that loses zeroes
/// only while scrubd learns its demand.
/// Moved by: `bench waste --only hostile,mixed`.
const LEAST_EARNED: f64 = 1.5;
/// Part of a CPU that a program without gains costs. It suffices to notice within seconds that the
/// program gains now.
/// Moved by: tests of `governor`.
const INCOME: f64 = 1e-3;
/// Part of the excess over the seed that fades in each window of the governor. Gains that have
/// ended pay for less than a second of waste.
/// Moved by: tests of `governor`.
const FADE: f64 = 1.0 / 8.0;
/// The most CPU time that a purse holds. It bounds the waste that past gains pay for.
/// Moved by: `bench waste --only once,bursty-64m`.
const MOST_NS: f64 = 1e8;
/// Part of the seed with which a purse opens, at first and after it was empty.
/// Moved by: `prezero bench short`.
const OPENS: f64 = 0.25;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Purse {
    ns: f64,
    /// The part of the seed that was not given yet.
    seed_ns: f64,
    /// Looks that are free; the parts of [`LOOKS_NS`] and of [`TRIAL_NS`] that are left.
    free_ns: f64,
    looks_ns: f64,
    trial_ns: u64,
    closed: bool,
}

/// The ns that a spared ns earns, where plain requests took this share of the zeroes used.
pub(crate) fn earns(lost: f64) -> f64 {
    let (least, most) = LOST;
    let idle = ((most - lost) / (most - least)).clamp(0.0, 1.0);
    LEAST_EARNED + (IDLE_CPU - LEAST_EARNED) * idle
}

impl Purse {
    pub(crate) fn new() -> Purse {
        Purse {
            ns: OPENS * SEED_NS,
            seed_ns: (1.0 - OPENS) * SEED_NS,
            free_ns: 0.0,
            looks_ns: LOOKS_NS,
            trial_ns: TRIAL_NS,
            closed: false,
        }
    }

    /// So many pages were asked for as zero.
    pub(crate) fn asked(&mut self, pages: u64) {
        let given = (pages as f64 / SEED_PAGES as f64 * SEED_NS).min(self.seed_ns);
        self.seed_ns -= given;
        self.ns += given;
    }

    /// Pays for looks, which took `look_ns`. Meanwhile zero was `asked` for so often, a clear of as
    /// much takes `clears_ns`, and the program asked for `asked_ns`.
    pub(crate) fn looked(&mut self, look_ns: f64, asked: u64, clears_ns: f64, asked_ns: u64) {
        let given = asked as f64 * LOOKS_ASKED_NS + clears_ns * IDLE_CPU;
        let given = given.min(self.looks_ns);
        self.looks_ns -= given;
        self.free_ns += given;
        let earned = (self.ns - SEED_NS).clamp(0.0, look_ns);
        let free = if self.trial_ns > 0 { (look_ns - earned).min(self.free_ns) } else { 0.0 };
        self.trial_ns = self.trial_ns.saturating_sub(asked_ns);
        self.free_ns -= free;
        self.ns -= look_ns - free;
    }

    /// Adds the earnings and takes the cost of scrubd, during the last `elapsed_ns`.
    pub(crate) fn settle(&mut self, earned_ns: f64, spent_ns: f64, elapsed_ns: u64) {
        if self.ns < SEED_NS {
            self.ns = (self.ns + INCOME * elapsed_ns as f64).min(SEED_NS);
        }
        self.ns = (self.ns + earned_ns - spent_ns).min(MOST_NS);
        self.closed = self.ns <= if self.closed { OPENS * SEED_NS } else { 0.0 };
    }

    /// A window has passed, at the end of which plain requests take this share of the zeroes used. A program
    /// that loses zeroes keeps no more of the past than it would have [earned](earns) so.
    pub(crate) fn fade(&mut self, lost: f64) {
        let part = FADE.max(1.0 - earns(lost) / IDLE_CPU);
        self.ns -= (self.ns - SEED_NS).max(0.0) * part;
    }

    /// Whether anything may be spent.
    pub(crate) fn is_open(&self) -> bool {
        !self.closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Of a program that has asked for much.
    fn whole() -> Purse {
        let mut purse = Purse::new();
        purse.asked(SEED_PAGES);
        purse
    }

    /// Seconds of CPU time that a spender gets in `seconds`. It takes all that it may, a
    /// millisecond at a time, and is spared `share` of that.
    fn spent_in(mut purse: Purse, seconds: u64, share: f64) -> f64 {
        let mut spent = 0.0;
        for ms in 0..seconds * 1000 {
            let piece = if purse.is_open() { 1e6 } else { 0.0 };
            purse.settle(earns(0.0) * share * piece, piece, MS);
            if ms % 100 == 99 {
                purse.fade(0.0);
            }
            spent += piece / 1e9;
        }
        spent
    }

    #[test]
    fn a_program_that_gains_nothing_gets_the_seed_and_a_thousandth() {
        let spent = spent_in(whole(), 100, 0.0);
        let allowed = SEED_NS / 1e9 + INCOME * 100.0;
        assert!(spent <= allowed + 1e-3, "{spent} s of {allowed}");
        assert!(spent > allowed / 2.0, "it keeps trying: {spent} s of {allowed}");
    }

    #[test]
    fn a_program_that_gains_a_quarter_of_what_is_spent_is_never_stopped() {
        assert!((spent_in(whole(), 10, 0.26) - 10.0).abs() < 1e-9);
    }

    #[test]
    fn a_program_that_loses_zeroes_to_plain_requests_has_to_gain_two_thirds_of_what_is_spent() {
        assert_eq!([0.0, 0.025, 0.05, 1.0].map(earns), [4.0, 4.0, 1.5, 1.5]);
        assert!((earns(0.0375) - 2.75).abs() < 1e-9);
    }

    #[test]
    fn the_seed_is_lent_as_the_program_asks_and_once() {
        let mut purse = Purse::new();
        assert!(purse.is_open());
        for _ in 0..10 {
            purse.asked(SEED_PAGES);
        }
        assert_eq!(purse.ns, SEED_NS);
        purse.settle(0.0, SEED_NS, 0);
        purse.asked(SEED_PAGES);
        assert!(!purse.is_open());
    }

    #[test]
    fn a_program_that_asks_for_little_is_lent_little() {
        let mut purse = Purse::new();
        purse.asked(256);
        purse.settle(0.0, OPENS * SEED_NS + 1e5, 0);
        assert!(!purse.is_open());
        purse.asked(SEED_PAGES / 2);
        purse.settle(0.0, 0.0, 0);
        assert!(purse.is_open(), "it asks for much now");
    }

    /// Milliseconds until a purse is empty that was full, where nothing is earned any more and this part
    /// of a CPU is spent.
    fn lives_on(share: f64, lost: f64) -> u64 {
        let mut rich = whole();
        for _ in 0..100 {
            rich.settle(4e8, 1e7, 100 * MS);
            rich.fade(0.0);
        }
        let mut ms = 0;
        while rich.is_open() {
            rich.settle(0.0, share * MS as f64, MS);
            ms += 1;
            if ms % 100 == 0 {
                rich.fade(lost);
            }
        }
        ms
    }

    #[test]
    fn past_gains_pay_for_less_than_a_second_of_waste() {
        let ms = lives_on(1.0, 0.0);
        assert!(ms < 1000, "{ms} ms");
    }

    #[test]
    fn past_gains_are_worth_little_when_zeroes_are_lost_now() {
        let (kept, lost) = (lives_on(0.05, 0.0), lives_on(0.05, 0.05));
        assert!(lost < 500 && kept > 2 * lost, "{kept} ms, {lost} ms");
    }

    /// Milliseconds until looks end that take this part of a CPU and earn nothing. `asked` says how
    /// often zero is asked for in each, and the ns of a clear of that.
    fn looked_for(share: f64, asked: impl Fn(u64) -> (u64, f64)) -> u64 {
        let mut purse = whole();
        let mut ms = 0;
        while purse.is_open() {
            let (requests, clears_ns) = asked(ms);
            purse.looked(share * MS as f64, requests, clears_ns, MS);
            purse.settle(0.0, 0.0, MS);
            ms += 1;
        }
        ms
    }

    #[test]
    fn looks_that_earn_nothing_are_over_within_a_second() {
        for share in [0.02, 0.08, 0.4] {
            let ms = looked_for(share, |_| (2, 0.0));
            assert!((100..1000).contains(&ms), "{share} of a CPU: {ms} ms");
        }
    }

    #[test]
    fn rare_requests_are_not_looked_at_for_long_unless_for_much() {
        let every =
            |rate: u64, clears_ns| move |ms| if ms % rate == 0 { (1, clears_ns) } else { (0, 0.0) };
        for (rate, most) in [(100, 100), (20, 150)] {
            let ms = looked_for(0.06, every(rate, 0.0));
            assert!((50..most).contains(&ms), "every {rate} ms: {ms} ms");
        }
        // 20 MiB each time at 13 GB/s, which would earn six milliseconds.
        let ms = looked_for(0.06, every(100, 1.6e6));
        assert!((500..1000).contains(&ms), "{ms} ms");
    }

    #[test]
    fn a_trial_lasts_only_while_requests_come() {
        let mut purse = whole();
        for _ in 0..10_000 {
            purse.looked(0.001 * MS as f64, 1, 0.0, 0);
            purse.settle(0.0, 0.0, 0);
        }
        purse.looked(20.0 * MS as f64, 1, 0.0, MS);
        purse.settle(0.0, 0.0, MS);
        assert!(purse.is_open(), "looks before the first request leave most of the trial's");
    }

    #[test]
    fn an_empty_purse_opens_again_but_not_at_once() {
        let mut purse = whole();
        purse.settle(0.0, SEED_NS, 0);
        assert!(!purse.is_open());
        purse.settle(0.0, 0.0, 100 * MS);
        assert!(!purse.is_open());
        purse.settle(0.0, 0.0, 2000 * MS);
        assert!(purse.is_open());
    }
}
