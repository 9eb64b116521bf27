//! When scrubd looks next.
//!
//! ```text
//!   work or a free      nothing to do: the interval doubles,
//!        │              up to an eighth of the time since the last event
//!        ▼                              │
//!   poll, 112 us  ──────────────────►  poll, 0.5 to 20 ms  ── quiet for 100 ms ──►  parked
//!        ▲                              │                                             │
//!        └────────── work ──────────────┴──────────────── a free ─────────────────────┘
//! ```
//!
//! Where nothing may be cleared scrubd polls 20 to 100 ms apart, for idle memory alone. [`Backoff`] comes before all of
//! it while other threads need scrubd's CPU. Told the time; reads no clock.
//!
//! [`Backoff`]: super::backoff::Backoff

use super::{
    PARK_NS, POLL_LAZY_NS, POLL_MAX_NS, POLL_MIN_NS, POLL_RESTED_NS, POLL_SHARE, Step, WokenBy,
};

/// What a look came to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    pub(crate) step: Step,
    /// Blocks given back since the beginning.
    pub(crate) frees: u64,
    /// When a request for zero was seen last, and when the return of such blocks, ns.
    pub(crate) asked_at: u64,
    pub(crate) returned_at: u64,
    /// Whether a burst of them goes on, whose end is worth waiting for.
    pub(crate) in_burst: bool,
    /// How long what lies ready lasts, ns; 0: that is not known.
    pub(crate) lasts_ns: u64,
    /// Whether anything may be cleared, for recent requests for zero. If not there is only
    /// idle memory to give back, and that has time.
    pub(crate) may_clear: bool,
}

/// See the module. All in ns.
pub(crate) struct Pacer {
    interval: u64,
    /// Of the last look.
    look: Look,
    /// When the last work ended.
    worked_at: u64,
    /// Whether something was cleared since the last poll, and whether blocks came back since the last work.
    worked: bool,
    returned: bool,
    freed_at: u64,
    quiet_since: u64,
    /// When something could be cleared last, as far as was known.
    barred_since: u64,
    /// Whether a wake-up by a free has led to work. A wake-up call costs most where a CPU must be kicked out of its
    /// sleep, and a program that frees and takes again at once pays it for nothing.
    wakes_pay: bool,
}

impl Pacer {
    pub(crate) fn new(now: u64) -> Pacer {
        Pacer {
            interval: POLL_MIN_NS,
            look: Look {
                step: Step::Nothing,
                frees: 0,
                asked_at: now,
                returned_at: now,
                in_burst: false,
                lasts_ns: 0,
                may_clear: false,
            },
            worked_at: now,
            worked: false,
            returned: false,
            freed_at: now,
            quiet_since: now,
            barred_since: now,
            wakes_pay: true,
        }
    }

    /// A look ended at `now`.
    pub(crate) fn looked(&mut self, now: u64, look: Look) {
        let freed = look.frees != self.look.frees;
        let worked = look.step != Step::Nothing;
        self.look = look;
        if freed {
            self.freed_at = now;
        }
        if look.may_clear {
            self.barred_since = now;
        }
        if freed || worked {
            self.quiet_since = now;
        }
        if look.returned_at > self.worked_at && !self.returned {
            (self.interval, self.returned) = (POLL_RESTED_NS, true);
        } else if worked {
            self.interval = POLL_MIN_NS;
        } else if !look.may_clear {
            let late = (now - self.barred_since) / POLL_SHARE;
            self.interval = late.clamp(POLL_LAZY_NS, PARK_NS);
        }
        if worked {
            self.wakes_pay = true;
            (self.worked_at, self.returned) = (now, false);
        }
        self.worked |= look.step == Step::Worked;
    }

    /// How long nothing was done and nothing freed.
    pub(crate) fn quiet(&self, now: u64) -> u64 {
        now - self.quiet_since
    }

    /// The time to the next look, and what may end it sooner; told whether it `lacks` zeroes that are wanted.
    pub(crate) fn next(&mut self, now: u64, lacks: impl FnOnce() -> bool) -> (u64, WokenBy) {
        let Look { step, in_burst, lasts_ns, asked_at, may_clear, .. } = self.look;
        let worked = std::mem::take(&mut self.worked);
        if lasts_ns > 0 && step == Step::Nothing && may_clear {
            self.interval = lasts_ns.max(POLL_MIN_NS);
            return (self.interval, WokenBy::Nothing);
        }
        if worked && now - self.freed_at < POLL_RESTED_NS && lacks() {
            self.interval = POLL_RESTED_NS;
        }
        if in_burst {
            // A late look takes the next burst for this one. A program may use its blocks for long.
            self.interval = self.interval.min(Pacer::most(now, asked_at));
        }
        let woken_by = match self.interval {
            _ if !self.wakes_pay || !may_clear => WokenBy::Nothing,
            ..=POLL_RESTED_NS => WokenBy::Nothing,
            ns if ns <= POLL_MAX_NS || in_burst => WokenBy::LargeFrees,
            _ => WokenBy::AnyFree,
        };
        (self.interval, woken_by)
    }

    /// The wait ended: by itself, or because something was freed.
    pub(crate) fn woke(&mut self, now: u64, by_free: bool) {
        if by_free {
            (self.wakes_pay, self.interval) = (false, POLL_MIN_NS);
            return;
        }
        self.interval = (self.interval * 2).min(Pacer::most(now, self.worked_at));
    }

    /// It was parked.
    pub(crate) fn begin_again(&mut self) {
        self.interval = POLL_MIN_NS;
    }

    /// The longest interval at `now`, after an event.
    fn most(now: u64, event: u64) -> u64 {
        (now.saturating_sub(event) / POLL_SHARE).clamp(POLL_MAX_NS, POLL_LAZY_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::REST_NS;

    const US: u64 = 1_000;
    const MS: u64 = 1_000_000;
    /// The time after which a freed block has rested, ns: a little more than the ticks say at best.
    const RESTED: u64 = 150 * US;
    const WORK: u64 = 50 * US;

    /// Rounds of a program: each begins `period` after the one before, holds its blocks for `hold`, and
    /// frees them one after the other.
    #[derive(Clone, Copy)]
    struct Rounds {
        count: u64,
        period: u64,
        hold: u64,
    }

    /// What came of them: looks, and requests that found nothing zero.
    #[derive(Default, Debug)]
    struct Outcome {
        looks: u64,
        misses: u64,
    }

    /// A program with `blocks` blocks, `gap` ns between two frees, beside a scrubd that wakes `latency`
    /// ns late.
    struct Model {
        blocks: usize,
        gap: u64,
        latency: u64,
    }

    impl Model {
        /// When blocks are asked for (true) and freed. Pauses are up to a thirtieth longer.
        fn events(&self, rounds: &[Rounds]) -> Vec<(u64, bool)> {
            let (mut events, mut at) = (vec![], MS);
            for part in rounds {
                for n in 0..part.count {
                    for block in 0..self.blocks as u64 {
                        events.push((at, true));
                        events.push((at + part.hold + block * self.gap, false));
                    }
                    at += part.period + part.period * (n * 7 % 10) / 300;
                }
            }
            events.sort_unstable();
            events
        }

        fn play(&self, rounds: &[Rounds]) -> Outcome {
            let events = self.events(rounds);
            let mut events = events.iter().peekable();
            let (mut pacer, mut outcome, mut now) = (Pacer::new(0), Outcome::default(), 0);
            let (mut zero, mut dirty, mut frees) = (self.blocks, Vec::new(), 0);
            let (mut out, mut burst, mut asked_at, mut returned_at) = (0, false, 0, 0);
            while events.peek().is_some() {
                while let Some((at, asks)) = events.next_if(|event| event.0 <= now) {
                    if !asks {
                        dirty.push(*at);
                        (out, frees, returned_at) = (out - 1, frees + 1, now);
                        continue;
                    }
                    (out, burst, asked_at) = (out + 1, true, now);
                    if zero > 0 {
                        zero -= 1;
                    } else {
                        outcome.misses += 1;
                        dirty.pop();
                    }
                }
                burst &= out > 0 || now - asked_at <= REST_NS;
                let rested = dirty.iter().position(|&at| now - at > RESTED);
                let step = match rested {
                    Some(n) => {
                        dirty.remove(n);
                        zero += 1;
                        now += WORK;
                        Step::Worked
                    }
                    None => Step::Nothing,
                };
                let in_burst = burst;
                let look =
                    Look { step, frees, asked_at, returned_at, in_burst, ..look(step, 0, 0) };
                pacer.looked(now, look);
                if step == Step::Worked {
                    continue;
                }
                let (ns, state) = pacer.next(now, || zero < self.blocks);
                let free = events.clone().find(|event| !event.1).map_or(u64::MAX, |event| event.0);
                let by_free = state == WokenBy::AnyFree && free < now + ns;
                now = if by_free { free } else { now + ns } + self.latency;
                pacer.woke(now, by_free);
                outcome.looks += 1;
            }
            outcome
        }
    }

    const ONE: Model = Model { blocks: 1, gap: 0, latency: 20 * US };

    fn alike(count: u64, period: u64, hold: u64) -> Rounds {
        Rounds { count, period, hold }
    }

    #[test]
    fn rounds_take_few_looks_however_long_the_block_is_held() {
        for (period, hold, most) in [
            (MS, 100 * US, 4),
            (3 * MS, 3 * US, 7),
            (3 * MS, MS, 7),
            (3 * MS, 2 * MS, 7),
            (5 * MS, 4 * MS, 11),
            (16 * MS, 100 * US, 23),
            (16 * MS, 8 * MS, 29),
        ] {
            let outcome = ONE.play(&[alike(1000, period, hold)]);
            let told = format!("{outcome:?} for rounds of {period} ns, {hold} held");
            assert!(outcome.looks <= most * 1000 && outcome.misses <= 20, "{told}");
        }
    }

    #[test]
    fn a_late_wake_up_makes_the_next_one_no_later() {
        for latency in [100, 120, 150, 300, 600] {
            let outcome = Model { latency: latency * US, ..ONE }.play(&[alike(600, 16 * MS, MS)]);
            assert!(outcome.misses <= 20, "{outcome:?} of 600 when woken {latency} us late");
        }
    }

    #[test]
    fn a_free_after_the_first_work_is_not_slept_over() {
        for (blocks, gap) in [(2, 120 * US), (2, 800 * US), (4, 400 * US)] {
            let outcome = Model { blocks, gap, ..ONE }.play(&[alike(300, 8 * MS, MS)]);
            assert!(outcome.misses <= 6, "{outcome:?}: {blocks} blocks, {gap} ns apart");
        }
    }

    #[test]
    fn looks_soon_follow_a_program_that_begins_to_pause_for_less() {
        for (slow, fast, most) in [(16, 3, 2), (20, 5, 2), (3, 1, 10), (16, 1, 15)] {
            let part = [alike(20, slow * MS, 100 * US), alike(60, fast * MS, 100 * US)];
            let outcome = ONE.play(&part.repeat(10));
            assert!(outcome.misses <= most * 8, "{outcome:?} of 800: {slow} ms, then {fast}");
        }
    }

    #[test]
    fn a_long_stop_leaves_nothing_of_the_old_pace() {
        let part = [alike(100, MS, 100 * US), alike(1, 1000 * MS, 100 * US)];
        let outcome = ONE.play(&part.repeat(8));
        assert!(outcome.misses <= 80, "{outcome:?} of 808");
    }

    /// Outside of any burst, where zeroes are wanted.
    fn look(step: Step, frees: u64, returned_at: u64) -> Look {
        Look {
            step,
            frees,
            asked_at: 0,
            returned_at,
            in_burst: false,
            lasts_ns: 0,
            may_clear: true,
        }
    }

    /// A look that finds nothing to do, and the wait after it; the state of that.
    fn idle(pacer: &mut Pacer, now: &mut u64, frees: u64, by_free: bool) -> WokenBy {
        pacer.looked(*now, look(Step::Nothing, frees, 0));
        let (ns, state) = pacer.next(*now, || false);
        *now += ns;
        pacer.woke(*now, by_free);
        state
    }

    #[test]
    fn a_free_that_wakes_it_for_nothing_does_so_once() {
        let (mut pacer, mut now) = (Pacer::new(0), 0);
        let ends_by_free =
            (0..20).any(|_| idle(&mut pacer, &mut now, 1, false) == WokenBy::AnyFree);
        assert!(ends_by_free, "long intervals end so");
        idle(&mut pacer, &mut now, 1, true);
        for _ in 0..20 {
            assert_eq!(idle(&mut pacer, &mut now, 2, false), WokenBy::Nothing);
        }
        pacer.looked(now, look(Step::Worked, 3, 0));
        assert!((0..20).any(|_| idle(&mut pacer, &mut now, 3, false) == WokenBy::AnyFree));
    }

    #[test]
    fn a_program_that_uses_its_block_for_long_is_looked_at_less_and_less_often() {
        let (mut pacer, mut now, mut looks) = (Pacer::new(0), 0, 0);
        while now < 100 * MS {
            pacer.looked(now, Look { in_burst: true, ..look(Step::Nothing, 0, 0) });
            let (ns, state) = pacer.next(now, || false);
            assert!(ns <= POLL_MAX_NS.max(now / POLL_SHARE), "{ns} ns at {now}");
            assert!(
                [WokenBy::Nothing, WokenBy::LargeFrees].contains(&state),
                "no free has to wake it"
            );
            now += ns;
            pacer.woke(now, false);
            looks += 1;
        }
        assert!(looks <= 40, "{looks} looks in 100 ms");
    }

    #[test]
    fn where_nothing_may_be_cleared_it_looks_rarely_and_no_free_has_to_wake_it() {
        let unwanted = |step, frees| Look { may_clear: false, ..look(step, frees, 0) };
        let (mut pacer, mut now, mut looks) = (Pacer::new(0), 0, 0);
        for (step, frees) in [(Step::Nothing, 1), (Step::Nothing, 2), (Step::Nap, 2)] {
            pacer.looked(now, unwanted(step, frees));
            let gives_back = step != Step::Nothing;
            let ns = if gives_back { POLL_MIN_NS } else { POLL_LAZY_NS };
            assert_eq!(pacer.next(now, || false), (ns, WokenBy::Nothing), "{step:?}");
            now += ns;
            pacer.woke(now, false);
        }
        while now < 2000 * MS {
            pacer.looked(now, unwanted(Step::Nothing, 2));
            let (ns, state) = pacer.next(now, || false);
            assert_eq!(
                (ns, state),
                ((now / POLL_SHARE).clamp(POLL_LAZY_NS, PARK_NS), WokenBy::Nothing)
            );
            now += ns;
            pacer.woke(now, false);
            looks += 1;
        }
        assert!(looks < 40, "{looks} looks in two seconds");
        // The next request is seen, and intervals are short again.
        pacer.looked(now, look(Step::Worked, 3, 0));
        assert!(pacer.next(now, || true).0 <= POLL_RESTED_NS);
    }
}
