//! How long scrubd naps between two looks, and whether a free may end the nap.
//!
//! After work the [rhythm](super::rhythm) decides. A block that was freed a moment ago has to rest before it is
//! cleared; scrubd stays for it if it is wanted. At all other times a nap is a little longer each time that there
//! was nothing to do. Told the time; reads no clock.

use super::rhythm::Rhythm;
use super::{
    DOZE_NS, LATE_SHARE, NAP_BARRED_NS, NAP_LAZY_NS, NAP_MAX_NS, NAP_MIN_NS, NAP_RESTED_NS, Step,
    WokenBy,
};
use crate::config::without::{Mechanism, Without};

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
pub(crate) struct Naps {
    rhythm: Rhythm,
    without: Without,
    nap: u64,
    /// Of the last look.
    look: Look,
    /// Whether the nap after work is still to come, or a second part of it, and whether this is it.
    worked: bool,
    early: bool,
    in_rhythm: bool,
    freed_at: u64,
    quiet_since: u64,
    /// When something could be cleared last, as far as was known.
    barred_since: u64,
    /// Whether a wake-up by a free has led to work. A wake-up call is dear where a CPU must be
    /// kicked out of its sleep, and a program that frees and takes again at once pays it for
    /// nothing.
    wakes_pay: bool,
}

impl Naps {
    pub(crate) fn new(now: u64, without: Without) -> Naps {
        let step = Step::Nothing;
        Naps {
            rhythm: Rhythm::new(now),
            without,
            nap: NAP_MIN_NS,
            look: Look {
                step,
                frees: 0,
                asked_at: now,
                returned_at: now,
                in_burst: false,
                lasts_ns: 0,
                may_clear: false,
            },
            worked: false,
            early: false,
            in_rhythm: false,
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
        if self.rhythm.came_back(look.returned_at) {
            (self.nap, self.early) = (NAP_RESTED_NS, false);
        } else if worked {
            self.nap = NAP_MIN_NS;
        } else if !look.may_clear {
            let late = (now - self.barred_since) / LATE_SHARE;
            self.nap = late.clamp(NAP_LAZY_NS, NAP_BARRED_NS);
        }
        if worked {
            self.wakes_pay = true;
            self.rhythm.worked(now);
        }
        self.worked |= look.step == Step::Worked;
    }

    /// How long nothing was done and nothing freed.
    pub(crate) fn quiet(&self, now: u64) -> u64 {
        now - self.quiet_since
    }

    /// The nap from `now` on, and what may end it; told whether it `lacks` zeroes that are wanted.
    pub(crate) fn next(&mut self, now: u64, lacks: impl FnOnce() -> bool) -> (u64, WokenBy) {
        let Look { step, in_burst, lasts_ns, .. } = self.look;
        if lasts_ns > 0 && step == Step::Nothing && self.look.may_clear {
            (self.worked, self.in_rhythm) = (false, false);
            self.nap = lasts_ns.max(NAP_MIN_NS);
            return (self.nap, WokenBy::Nothing);
        }
        let rests = self.worked && now - self.freed_at < NAP_RESTED_NS && lacks();
        let done = self.worked && !in_burst && !rests;
        self.in_rhythm =
            self.without.has(Mechanism::Rhythm) && step == Step::Nothing && (done || self.early);
        if self.in_rhythm {
            self.worked = false;
            self.nap = self.rhythm.first(now);
        } else if rests {
            self.nap = NAP_RESTED_NS;
        } else if in_burst {
            // A late look takes the next burst for this one. A program may use its blocks for long.
            let late = now.saturating_sub(self.look.asked_at) / LATE_SHARE;
            self.nap = self.nap.min(late.max(NAP_MAX_NS));
        }
        // A long nap must not make scrubd late for a program that begins again.
        let state = match self.nap {
            _ if !self.wakes_pay || !self.look.may_clear || self.nap < DOZE_NS => WokenBy::Nothing,
            nap if nap <= NAP_MAX_NS || self.in_rhythm || in_burst => WokenBy::LargeFrees,
            _ => WokenBy::AnyFree,
        };
        (self.nap, state)
    }

    /// That nap ended: by itself, or because something was freed.
    pub(crate) fn woke(&mut self, now: u64, by_free: bool) {
        self.early = false;
        if self.in_rhythm {
            self.rhythm.woke(now);
            self.early = !by_free && self.rhythm.is_early(now);
        }
        if by_free {
            (self.wakes_pay, self.nap) = (false, NAP_MIN_NS);
            return;
        }
        let twice = self.nap * 2;
        self.nap = match self.rhythm.since(now) / LATE_SHARE {
            late if late <= NAP_MAX_NS => self.rhythm.next(self.nap, now),
            // A free ends this nap.
            _ if self.wakes_pay => twice.min(NAP_LAZY_NS),
            late => twice.min(late).min(NAP_LAZY_NS),
        };
    }

    /// It was parked.
    pub(crate) fn begin_again(&mut self) {
        self.nap = NAP_MIN_NS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::REST_NS;

    const US: u64 = 1_000;
    const MS: u64 = 1_000_000;
    /// A freed block has rested after so long, ns: a little more than the ticks say at best.
    const RESTED: u64 = 150 * US;
    const WORK: u64 = 50 * US;

    /// Rounds of a program: each begins so long after the one before, holds its blocks for so long, and
    /// frees them one after the other.
    #[derive(Clone, Copy)]
    struct Rounds {
        count: u64,
        period: u64,
        hold: u64,
    }

    /// What came of them: naps, and requests that found nothing zero.
    #[derive(Default, Debug)]
    struct Outcome {
        naps: u64,
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
            let (mut naps, mut outcome, mut now) =
                (Naps::new(0, Without::default()), Outcome::default(), 0);
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
                naps.looked(now, look);
                if step == Step::Worked {
                    continue;
                }
                let (nap, state) = naps.next(now, || zero < self.blocks);
                let free = events.clone().find(|event| !event.1).map_or(u64::MAX, |event| event.0);
                let by_free = state == WokenBy::AnyFree && free < now + nap;
                now = if by_free { free } else { now + nap } + self.latency;
                naps.woke(now, by_free);
                outcome.naps += 1;
            }
            outcome
        }
    }

    const ONE: Model = Model { blocks: 1, gap: 0, latency: 20 * US };

    fn alike(count: u64, period: u64, hold: u64) -> Rounds {
        Rounds { count, period, hold }
    }

    #[test]
    fn alike_rounds_take_few_naps_however_long_the_block_is_held() {
        for (period, hold, most) in [
            (MS, 100 * US, 3),
            (3 * MS, 3 * US, 3),
            (3 * MS, MS, 3),
            (3 * MS, 2 * MS, 3),
            (5 * MS, 4 * MS, 4),
            (16 * MS, 100 * US, 6),
            (16 * MS, 8 * MS, 6),
        ] {
            let outcome = ONE.play(&[alike(1000, period, hold)]);
            let told = format!("{outcome:?} for rounds of {period} ns, {hold} held");
            assert!(outcome.naps <= most * 1000 + 100 && outcome.misses <= 20, "{told}");
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
    fn naps_soon_follow_a_program_that_begins_to_pause_for_less() {
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

    #[test]
    fn a_block_that_comes_back_amid_a_long_nap_is_not_slept_over() {
        let (mut naps, mut now, mut frees, mut returned_at) =
            (Naps::new(0, Without::default()), 0, 0, 0);
        for round in 1..=8 {
            while now < round * 16 * MS {
                naps.looked(now, look(Step::Nothing, frees, returned_at));
                let (nap, state) = naps.next(now, || false);
                let by_free = state == WokenBy::AnyFree && now + nap > round * 16 * MS;
                now = if by_free { round * 16 * MS } else { now + nap };
                naps.woke(now, by_free);
            }
            (frees, returned_at) = (frees + 1, now);
            naps.looked(now, look(Step::Nothing, frees, returned_at));
            now += naps.next(now, || true).0;
            naps.woke(now, false);
            naps.looked(now, look(Step::Worked, frees, returned_at));
        }
        naps.looked(now, look(Step::Nothing, frees, returned_at));
        let (first, _) = naps.next(now, || false);
        assert!(first > 3 * MS, "{first} ns, of sixteen milliseconds");
        now += first;
        naps.woke(now, false);
        assert!(naps.early, "there is a second part");
        naps.looked(now, look(Step::Nothing, frees + 1, now));
        assert_eq!(naps.next(now, || true).0, NAP_RESTED_NS);
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

    /// A look that finds nothing to do, and the nap after it; the state of that.
    fn idle(naps: &mut Naps, now: &mut u64, frees: u64, by_free: bool) -> WokenBy {
        naps.looked(*now, look(Step::Nothing, frees, 0));
        let (nap, state) = naps.next(*now, || false);
        *now += nap;
        naps.woke(*now, by_free);
        state
    }

    #[test]
    fn a_free_that_wakes_it_for_nothing_does_so_once() {
        let (mut naps, mut now) = (Naps::new(0, Without::default()), 0);
        let ends_by_free = (0..20).any(|_| idle(&mut naps, &mut now, 1, false) == WokenBy::AnyFree);
        assert!(ends_by_free, "long naps are such");
        idle(&mut naps, &mut now, 1, true);
        for _ in 0..20 {
            assert_eq!(idle(&mut naps, &mut now, 2, false), WokenBy::Nothing);
        }
        naps.looked(now, look(Step::Worked, 3, 0));
        assert!((0..20).any(|_| idle(&mut naps, &mut now, 3, false) == WokenBy::AnyFree));
    }

    #[test]
    fn a_program_that_uses_its_block_for_long_is_looked_at_less_and_less_often() {
        let (mut naps, mut now, mut looks) = (Naps::new(0, Without::default()), 0, 0);
        while now < 100 * MS {
            naps.looked(now, Look { in_burst: true, ..look(Step::Nothing, 0, 0) });
            let (nap, state) = naps.next(now, || false);
            assert!(nap <= NAP_MAX_NS.max(now / LATE_SHARE), "{nap} ns at {now}");
            assert!(
                [WokenBy::Nothing, WokenBy::LargeFrees].contains(&state),
                "no free has to wake it"
            );
            now += nap;
            naps.woke(now, false);
            looks += 1;
        }
        assert!(looks <= 40, "{looks} looks in 100 ms");
    }

    #[test]
    fn where_nothing_may_be_cleared_it_looks_rarely_and_no_free_has_to_wake_it() {
        let unwanted = |step, frees| Look { may_clear: false, ..look(step, frees, 0) };
        let (mut naps, mut now, mut looks) = (Naps::new(0, Without::default()), 0, 0);
        for (step, frees) in [(Step::Nothing, 1), (Step::Nothing, 2), (Step::Nap, 2)] {
            naps.looked(now, unwanted(step, frees));
            let gives_back = step != Step::Nothing;
            let nap = if gives_back { NAP_MIN_NS } else { NAP_LAZY_NS };
            assert_eq!(naps.next(now, || false), (nap, WokenBy::Nothing), "{step:?}");
            now += nap;
            naps.woke(now, false);
        }
        while now < 2000 * MS {
            naps.looked(now, unwanted(Step::Nothing, 2));
            let (nap, state) = naps.next(now, || false);
            assert_eq!(
                (nap, state),
                ((now / LATE_SHARE).clamp(NAP_LAZY_NS, NAP_BARRED_NS), WokenBy::Nothing)
            );
            now += nap;
            naps.woke(now, false);
            looks += 1;
        }
        assert!(looks < 40, "{looks} looks in two seconds");
        // The next request is seen, and naps are short again.
        naps.looked(now, look(Step::Worked, 3, 0));
        assert!(naps.next(now, || true).0 <= NAP_RESTED_NS);
    }
}
