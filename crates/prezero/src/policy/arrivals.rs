//! How the requests of a band come, lately: how far apart, and how many pages together. Told the time; reads no clock.

/// See the module.
#[derive(Clone, Copy, Default)]
pub(crate) struct Arrivals {
    /// When a request was seen last, and from one request to the next, ns; 0: not known.
    pub(crate) asked_at: u64,
    pub(crate) interval_ns: u64,
    /// Pages of a burst.
    pub(crate) burst: u64,
}

impl Arrivals {
    /// Part by which what was seen last moves it, as a divisor.
    /// Moved by: tests of `arrivals`.
    const LEARNS: u64 = 4;

    /// `requests` came since the last look that saw any.
    pub(crate) fn note(&mut self, now: u64, requests: u64) {
        let each = now.saturating_sub(self.asked_at) / requests;
        self.interval_ns = match (self.asked_at, self.interval_ns) {
            (0, _) => 0,
            (_, 0) => each,
            (_, ns) => Arrivals::learn(ns, each),
        };
        self.asked_at = now;
    }

    /// A burst of `pages` is over.
    pub(crate) fn end_burst(&mut self, pages: u64) {
        if pages > 0 {
            self.burst = Arrivals::learn(self.burst, pages);
        }
    }

    /// From above it arrives at `new` exactly: a burst that was seen as two is forgotten.
    fn learn(old: u64, new: u64) -> u64 {
        // Down to `new`, and not to a few pages more.
        if new < old {
            old - (old - new).div_ceil(Arrivals::LEARNS)
        } else {
            old + (new - old) / Arrivals::LEARNS
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn the_interval_is_that_of_requests_however_rarely_they_are_looked_at() {
        let mut arrivals = Arrivals::default();
        for look in 1..=40 {
            arrivals.note(look * 12 * MS, 4);
        }
        assert_eq!(arrivals.interval_ns, 3 * MS);
    }

    #[test]
    fn nothing_is_known_from_the_first_look_and_a_new_pace_is_learnt_in_some() {
        let mut arrivals = Arrivals::default();
        arrivals.note(5 * MS, 8);
        assert_eq!((arrivals.interval_ns, arrivals.asked_at), (0, 5 * MS));
        (1..=20).for_each(|n| arrivals.note((5 + n) * MS, 1));
        (1..=20).for_each(|n| arrivals.note((25 + 10 * n) * MS, 1));
        assert!((9 * MS..=10 * MS).contains(&arrivals.interval_ns), "{}", arrivals.interval_ns);
    }

    #[test]
    fn a_burst_that_was_seen_as_one_is_forgotten_in_some_and_no_burst_changes_nothing() {
        let mut arrivals = Arrivals::default();
        arrivals.end_burst(8 * 64);
        (0..8).for_each(|_| arrivals.end_burst(64));
        let learnt = arrivals.burst;
        assert!(learnt <= 2 * 64, "{learnt} pages");
        (0..16).for_each(|_| arrivals.end_burst(64));
        assert_eq!(arrivals.burst, 64, "and no page of it stays");
        arrivals.end_burst(0);
        assert_eq!(arrivals.burst, 64);
    }
}
