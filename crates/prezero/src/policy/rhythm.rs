//! When a program's blocks may be expected back, so that scrubd sleeps through its pauses and its work.
//!
//! A wake-up costs the CPU time of many small clears, and there is nothing to clear before blocks come back. Where
//! they come back regularly scrubd sleeps until just after the next time. A scrubd that finds blocks at once may be
//! late, so it comes earlier, and earlier again, until it comes too early: then it knows the interval. Where the
//! program is not regular the shortest of the last intervals says when the next may end. Told the time; reads no
//! clock.

use super::{LATE_SHARE, NAP_LAZY_NS, NAP_MAX_NS, NAP_MIN_NS};

/// Intervals that are remembered, so that one long interval does not hide that short ones are
/// usual.
/// Moved by: tests of `naps`, `prezero bench rounds`.
const KEPT: usize = 4;
/// A rhythm is regular if its longest interval exceeds its shortest by at most one part in this
/// many.
/// Moved by: tests of `naps`, `prezero bench rounds`.
const ALIKE: u64 = 4;
/// Quarters of the shortest interval after which scrubd looks where the rhythm is not regular. A
/// scrubd that sleeps longer takes two bursts for one.
/// Moved by: tests of `naps`, `prezero bench rounds`.
const QUARTERS: u64 = 3;
/// Where the rhythm is regular scrubd looks this part of an interval later than a return that it
/// was awake for, as a divisor.
/// Moved by: tests of `naps`, `prezero bench rounds`.
const LATER: u64 = 16;
/// After a block that was there before scrubd, scrubd looks this part of an interval earlier, as a
/// divisor. The part doubles each time, up to the last.
/// Moved by: tests of `naps`, `prezero bench rounds`.
const EARLIER: u64 = 64;
const EARLIEST: u64 = 4;
/// The longest nap by rhythm: where the program is regular, and elsewhere. The latter bounds what a
/// change of pace loses.
/// Moved by: tests of `naps`, counter `daemon_wakeups`.
const MOST_REGULAR_NS: u64 = NAP_LAZY_NS;
const MOST_NS: u64 = 4_000_000;

/// See the module. All in ns.
pub(crate) struct Rhythm {
    /// Between the first looks after work that saw blocks come back.
    intervals: [u64; KEPT],
    next: usize,
    /// The last of those looks, the last that came after one for nothing, and how many came since.
    back: u64,
    awake: u64,
    since: u64,
    /// When the last work ended, and whether nothing came back since.
    worked: u64,
    waits: bool,
    /// From one time to the next, and by what part of it scrubd comes earlier.
    interval: u64,
    earlier: u64,
    /// When to look next after work, and when that nap ended, or will.
    target: u64,
    due: u64,
}

impl Rhythm {
    pub(crate) fn new(now: u64) -> Rhythm {
        Rhythm {
            intervals: [0; KEPT],
            next: 0,
            back: now,
            awake: now,
            since: 0,
            worked: now,
            waits: true,
            interval: 0,
            earlier: EARLIER,
            target: now,
            due: now,
        }
    }

    /// A look at `at` was the last that saw blocks come back. True for the first since the last work.
    pub(crate) fn came_back(&mut self, at: u64) -> bool {
        if at <= self.worked || !self.waits {
            return false;
        }
        self.waits = false;
        self.intervals[self.next] = at - self.back;
        self.next = (self.next + 1) % KEPT;
        self.back = at;
        self.since += 1;
        if at < self.due + NAP_MIN_NS {
            // What it slept over tells no interval; the ones that were seen are no shorter than it is.
            let longest = self.intervals.into_iter().max().unwrap_or(0);
            self.interval = self.interval.min(longest);
            self.target = at + self.interval - self.interval / self.earlier;
            if self.earlier == EARLIEST {
                self.interval -= self.interval / EARLIEST; // they come more often than they did
            }
            self.earlier = (self.earlier / 2).max(EARLIEST);
        } else {
            self.interval = (at - self.awake) / self.since;
            self.earlier = EARLIER;
            self.target = at + self.interval + self.interval / LATER;
            (self.awake, self.since) = (at, 0);
        }
        if !self.is_regular() {
            self.target = at + self.shortest() / 4 * QUARTERS;
        }
        true
    }

    /// Work was done at `ended`.
    pub(crate) fn worked(&mut self, ended: u64) {
        (self.worked, self.waits) = (ended, true);
    }

    /// Since the last work.
    pub(crate) fn since(&self, now: u64) -> u64 {
        now.saturating_sub(self.worked)
    }

    fn shortest(&self) -> u64 {
        self.intervals.into_iter().min().unwrap_or(0)
    }

    fn is_regular(&self) -> bool {
        let (shortest, longest) = (self.shortest(), self.intervals.into_iter().max());
        longest.is_some_and(|longest| longest <= shortest + shortest / ALIKE)
    }

    /// First nap when all is done, from `now` on. A long one is in two parts: a program that begins
    /// to pause for less is found before the second.
    pub(crate) fn first(&mut self, now: u64) -> u64 {
        let is_second = self.is_regular() && self.since(now) >= MOST_NS;
        let most = if is_second { MOST_REGULAR_NS } else { MOST_NS };
        let nap = self.target.saturating_sub(now).clamp(NAP_MIN_NS, most);
        self.due = now + nap;
        nap
    }

    /// That nap ended at `now`, which is later, since a wake-up takes time.
    pub(crate) fn woke(&mut self, now: u64) {
        self.due = now;
    }

    /// Whether the second part is still to come.
    pub(crate) fn is_early(&self, now: u64) -> bool {
        self.waits && self.is_regular() && now + NAP_MIN_NS < self.target
    }

    /// The nap after one of `nap` that found nothing: twice that, but while blocks are due
    /// they are found late by one part in [`LATE_SHARE`] of the pause at most.
    pub(crate) fn next(&self, nap: u64, now: u64) -> u64 {
        let since = self.since(now);
        let due = since <= 2 * self.shortest();
        (nap * 2)
            .min(if due { since / LATE_SHARE } else { NAP_MAX_NS })
            .clamp(NAP_MIN_NS, NAP_MAX_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const WORK_NS: u64 = MS / 20;

    /// Blocks that come back at the end of each of these pauses, and work for them.
    fn after(pauses: &[u64]) -> Rhythm {
        let (mut rhythm, mut now) = (Rhythm::new(0), 0);
        for pause in pauses {
            now += pause;
            assert!(rhythm.came_back(now));
            now += WORK_NS;
            rhythm.worked(now);
            rhythm.first(now);
        }
        rhythm
    }

    /// The first nap, right after the work.
    fn first(rhythm: &mut Rhythm) -> u64 {
        rhythm.first(rhythm.worked)
    }

    #[test]
    fn an_unknown_program_is_looked_at_soon() {
        assert_eq!(first(&mut after(&[])), NAP_MIN_NS);
        assert_eq!(first(&mut after(&[3 * MS; KEPT - 1])), NAP_MIN_NS);
    }

    #[test]
    fn uneven_pauses_are_slept_through_to_three_quarters_of_the_shortest() {
        let mut rhythm = after(&[3 * MS, 3 * MS, 3 * MS, 4 * MS, 3 * MS]);
        let shortest = 3 * MS + WORK_NS;
        assert_eq!(first(&mut rhythm), shortest / 4 * 3 - WORK_NS);
        let nap = first(&mut rhythm);
        assert_eq!(rhythm.next(nap, rhythm.worked + nap), nap / LATE_SHARE);
    }

    #[test]
    fn the_shortest_pause_of_late_counts() {
        let shortest = 2 * MS + WORK_NS;
        let mut rhythm = after(&[3 * MS, 300 * MS, 2 * MS, 3 * MS]);
        assert_eq!(first(&mut rhythm), shortest / 4 * 3 - WORK_NS);
        let mut slow = after(&[300 * MS; KEPT]);
        assert_eq!(first(&mut slow), MOST_NS);
        let (first_part, ended) = (slow.worked + MOST_NS, slow.worked);
        assert!(slow.is_early(first_part), "there is a second");
        assert_eq!((slow.first(first_part), slow.worked), (MOST_REGULAR_NS, ended));
        assert_eq!(first(&mut after(&[300 * MS, 200 * MS, 300 * MS, 300 * MS])), MOST_NS);
    }

    #[test]
    fn only_the_first_blocks_after_work_end_a_pause() {
        let mut rhythm = after(&[3 * MS; KEPT]);
        assert!(!rhythm.came_back(rhythm.worked), "they were seen before the work");
        let at = rhythm.worked + 3 * MS;
        assert!(rhythm.came_back(at) && !rhythm.came_back(at + MS / 10));
        for part in 2..10 {
            rhythm.worked(at + part * MS / 10);
        }
        assert!(first(&mut rhythm) > MS);
        assert_eq!((rhythm.since(at + MS), rhythm.since(at)), (MS / 10, 0));
    }
}
