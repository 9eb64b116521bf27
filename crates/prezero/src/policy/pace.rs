//! How the requests of a band come, lately: how far apart, and how many pages together. Told the time; reads no clock.

/// See the module.
#[derive(Clone, Copy, Default)]
pub(crate) struct Pace {
    /// When a request was seen last, and from one request to the next, ns; 0: not known.
    pub(crate) asked_at: u64,
    pub(crate) interval_ns: u64,
    /// Pages of a burst.
    pub(crate) burst: u64,
}

impl Pace {
    /// Part by which what was seen last moves it, as a divisor.
    /// Moved by: tests of `pace`.
    const LEARNS: u64 = 4;

    /// Requests were seen, so many since the last look that saw any.
    pub(crate) fn note(&mut self, now: u64, requests: u64) {
        let each = now.saturating_sub(self.asked_at) / requests;
        self.interval_ns = match (self.asked_at, self.interval_ns) {
            (0, _) => 0,
            (_, 0) => each,
            (_, ns) => Pace::learn(ns, each),
        };
        self.asked_at = now;
    }

    /// A burst of so many pages is over.
    pub(crate) fn end_burst(&mut self, pages: u64) {
        if pages > 0 {
            self.burst = Pace::learn(self.burst, pages);
        }
    }

    fn learn(old: u64, new: u64) -> u64 {
        old - old / Pace::LEARNS + new / Pace::LEARNS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn the_interval_is_that_of_requests_however_rarely_they_are_looked_at() {
        let mut pace = Pace::default();
        for look in 1..=40 {
            pace.note(look * 12 * MS, 4);
        }
        assert_eq!(pace.interval_ns, 3 * MS);
    }

    #[test]
    fn nothing_is_known_from_the_first_look_and_a_new_pace_is_learnt_in_some() {
        let mut pace = Pace::default();
        pace.note(5 * MS, 8);
        assert_eq!((pace.interval_ns, pace.asked_at), (0, 5 * MS));
        (1..=20).for_each(|n| pace.note((5 + n) * MS, 1));
        (1..=20).for_each(|n| pace.note((25 + 10 * n) * MS, 1));
        assert!((9 * MS..=10 * MS).contains(&pace.interval_ns), "{}", pace.interval_ns);
    }

    #[test]
    fn a_burst_that_was_seen_as_one_is_forgotten_in_some_and_no_burst_changes_nothing() {
        let mut pace = Pace::default();
        pace.end_burst(8 * 64);
        (0..8).for_each(|_| pace.end_burst(64));
        let learnt = pace.burst;
        assert!(learnt <= 2 * 64, "{learnt} pages");
        pace.end_burst(0);
        assert_eq!(pace.burst, learnt);
    }
}
