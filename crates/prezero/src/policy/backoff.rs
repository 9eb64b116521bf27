//! How long scrubd backs off while others need its CPU, and whether every CPU has another thread.
//!
//! A scrubd that lost its CPU in a step, or that was woken late, shares the CPU with another thread. In a *crowd*
//! every CPU has another thread. There each waking of scrubd replaces a thread, and the next thread on that CPU may
//! wait behind the replaced one. So each backoff is longer than the last while a crowd lasts. Told the time; reads no clock.

use super::{BACKOFF_MAX_NS, BACKOFF_MIN_NS, DISTURBED_NS, LATE_NS, WATCH_NS};

/// See the module.
pub(crate) struct Backoff {
    /// The next one, ns.
    ns: u64,
    /// Whether the last step was kept from the CPU.
    kept: bool,
    /// Whether that was so, or the last sleep ended late.
    late: bool,
    crowded: bool,
}

impl Backoff {
    pub(crate) fn new() -> Backoff {
        Backoff { ns: BACKOFF_MIN_NS, kept: false, late: false, crowded: false }
    }

    /// Whether other threads are on the CPUs, as far as the last sleep and the step before it tell.
    pub(crate) fn is_late(&self) -> bool {
        self.late
    }

    /// Whether every CPU had another thread after it.
    pub(crate) fn is_crowded(&self) -> bool {
        self.crowded
    }

    /// A sleep that should have ended after `asked` ns, if at any time, has taken `slept`. `would_clear`: whether
    /// there is anything to clear; `crowd` looks whether every CPU has another thread.
    pub(crate) fn slept(
        &mut self,
        asked: Option<u64>,
        slept: u64,
        would_clear: impl FnOnce() -> bool,
        crowd: impl FnOnce() -> bool,
    ) {
        let late = asked.is_some_and(|ns| slept > ns + LATE_NS);
        // Looked for until it is gone: that a sleep ended in time tells nothing of it.
        self.crowded = (self.crowded || late && would_clear()) && crowd();
        self.late = late || std::mem::take(&mut self.kept);
    }

    /// A step has taken `wall` ns, `cpu` of them on a CPU: the rest that is due now, ns.
    pub(crate) fn after(&mut self, wall: u64, cpu: u64) -> Option<u64> {
        self.kept = wall.saturating_sub(cpu) > DISTURBED_NS;
        if !self.kept && !self.crowded {
            return None;
        }
        let most = if self.crowded { WATCH_NS } else { BACKOFF_MAX_NS };
        let ns = self.ns.min(most);
        self.ns = (ns * 2).min(most);
        Some(ns)
    }

    /// A step has cleared something, and kept its CPU.
    pub(crate) fn worked(&mut self) {
        self.ns = BACKOFF_MIN_NS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// scrubd beside threads that have all CPUs until `until`: each of its sleeps ends `late` ns
    /// late until then. Returns how often it woke meanwhile, and when it was sure that they were
    /// gone.
    fn beside_a_crowd(until: u64, late: u64) -> (u64, u64) {
        let (mut backoff, mut now, mut wakings) = (Backoff::new(), 0, 0);
        let mut nap = MS / 8;
        loop {
            let slept = nap + if now < until { late } else { 0 };
            now += slept;
            backoff.slept(Some(nap), slept, || true, || now < until);
            if now >= until && !backoff.is_late() && !backoff.is_crowded() {
                return (wakings, now);
            }
            wakings += u64::from(now < until);
            nap = backoff.after(0, 0).unwrap_or(MS / 8);
        }
    }

    #[test]
    fn in_a_crowd_it_wakes_a_few_times_a_second() {
        for (seconds, most) in [(1, 9), (4, 21), (60, 245)] {
            for late in [2 * MS, 50 * MS] {
                let (wakings, _) = beside_a_crowd(seconds * 1000 * MS, late);
                assert!((1..=most).contains(&wakings), "{wakings} in {seconds} s, {late} ns late");
            }
        }
    }

    #[test]
    fn the_end_of_a_crowd_is_seen_after_as_long_as_it_lasted_or_a_quarter_of_a_second() {
        for ms in [1, 5, 20, 100, 700, 5_000, 60_000] {
            let until = ms * MS;
            let (_, seen) = beside_a_crowd(until, 2 * MS);
            let most = (until + 2 * BACKOFF_MIN_NS).min(WATCH_NS) + 2 * LATE_NS;
            assert!(seen - until <= most, "{} ns after {ms} ms", seen - until);
        }
    }

    #[test]
    fn a_crowd_is_not_looked_for_where_sleeps_end_in_time_or_nothing_is_to_be_cleared() {
        let mut backoff = Backoff::new();
        backoff.slept(Some(MS), MS + LATE_NS, || true, || unreachable!("it was in time"));
        backoff.slept(None, 1000 * MS, || true, || unreachable!("it had to end at no time"));
        backoff.slept(Some(MS), 9 * MS, || false, || unreachable!("nothing to clear"));
        assert!(backoff.is_late() && !backoff.is_crowded());
        assert_eq!(backoff.after(MS, MS), None, "to be late is no reason to rest");
    }

    #[test]
    fn a_crowd_lasts_until_a_look_finds_it_gone() {
        let mut backoff = Backoff::new();
        backoff.slept(Some(MS), 9 * MS, || true, || true);
        assert_eq!(backoff.after(0, 0), Some(BACKOFF_MIN_NS));
        backoff.slept(Some(MS), MS, || false, || true);
        assert!(backoff.is_crowded() && !backoff.is_late());
        assert_eq!(backoff.after(0, 0), Some(2 * BACKOFF_MIN_NS));
        backoff.slept(Some(MS), MS, || true, || false);
        assert!(!backoff.is_crowded());
        assert_eq!(backoff.after(0, 0), None);
    }

    #[test]
    fn a_scrubd_kept_from_its_cpu_backs_off_longer_each_time_until_it_has_worked() {
        let mut backoff = Backoff::new();
        let kept = |backoff: &mut Backoff| backoff.after(DISTURBED_NS + 2, 1);
        for n in 0..5 {
            assert_eq!(kept(&mut backoff), Some(BACKOFF_MIN_NS << n));
        }
        for _ in 0..3 {
            assert_eq!(kept(&mut backoff), Some(BACKOFF_MAX_NS));
        }
        backoff.slept(Some(MS), MS, || true, || unreachable!("it was in time"));
        assert!(backoff.is_late(), "it was late before");
        assert_eq!(backoff.after(DISTURBED_NS, 0), None);
        backoff.slept(Some(MS), MS, || true, || unreachable!("it was in time"));
        assert!(!backoff.is_late());
        backoff.worked();
        assert_eq!(kept(&mut backoff), Some(BACKOFF_MIN_NS));
    }
}
