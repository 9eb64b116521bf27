//! How far the cache reaches for what scrubd clears before anybody asks, found by trying.
//!
//! Nobody waits for these clears. What counts is how long an owner holds a block that he got zero, from there to
//! its free: on a Xeon whose 480 MiB others left room in, 64 MiB of which he wrote 4 lines a page took 0.8 ms where
//! they had been cleared through the cache, and 1.35 past it. It takes scrubd twice the time, 20 to 50 rounds
//! until the block lies there, and room that others may want. So both ways are tried, and a block goes through
//! the cache while that saves its owner a tenth of his time; who works on it for long is
//! not served so, nor who comes back before scrubd is done, nor a set of many smaller blocks.

use super::{BANDS, FIRST, NONE, believe, each_mib};
use crate::clear::Cache;
use crate::page::{PAGE, PageId};
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

/// Blocks of a trial through the cache, which fills meanwhile, and past it, which empties it.
const THROUGH: u32 = 32;
const PAST: u32 = 4;
/// Blocks until the first trial past it, and until an owner who holds a block for longer than he did has another.
const SETTLED: u32 = 128;
/// Blocks until the other way is tried again, after it lost for the first time; twice as many after each that follows, up
/// to the last.
const REST: u32 = 256;
const REST_MOST: u32 = 2048;
/// What an owner's time is at most, in tenths of that past the cache, to go through it.
const WINS_TENTHS: u64 = 9;
/// More than one of so many blocks is asked for before scrubd is done with it: then it clears them the faster way. And
/// how many of those in a row show that.
const FINISHED: u32 = 4;
const UNFINISHED: u32 = 8;

/// See the module. scrubd asks; threads that come at once may lose each other's figures, and one block may be held for as
/// long as the other: they are estimates, and both ways clear.
pub(crate) struct SetReach([Band; BANDS]);

struct Band {
    /// Whether blocks go through the cache now, whether that is a trial, and for how many more.
    through: AtomicBool,
    tries: AtomicBool,
    left: AtomicU32,
    /// Of the last comparison, how many until the next.
    rest: AtomicU32,
    /// For how long an owner holds a block, ns for a MiB, by the way it was cleared; 0: nobody knows.
    held: [AtomicU32; 2],
    /// Blocks that were not finished in time, each [`FINISHED`], less those that were.
    late: AtomicU32,
    /// The block that was handed out last, and when.
    lent: AtomicU32,
    since: AtomicU64,
}

impl SetReach {
    pub(crate) fn new() -> SetReach {
        SetReach(std::array::from_fn(|_| Band {
            through: AtomicBool::new(true),
            tries: AtomicBool::new(true),
            left: AtomicU32::new(SETTLED),
            rest: AtomicU32::new(REST),
            held: [AtomicU32::new(0), AtomicU32::new(0)],
            late: AtomicU32::new(0),
            lent: AtomicU32::new(NONE),
            since: AtomicU64::new(0),
        }))
    }

    /// How to clear what belongs to a set of `bytes` now.
    pub(crate) fn way(&self, bytes: usize) -> Cache {
        if self.band(bytes).through.load(Relaxed) { Cache::Cached } else { Cache::Bypassing }
    }

    /// An owner gets a block that was zero.
    pub(crate) fn lent(&self, first: PageId, pages: u32, now: u64) {
        let band = self.band(pages as usize * PAGE);
        band.since.store(now, Relaxed);
        band.lent.store(first.0, Relaxed);
    }

    /// And gives it back.
    pub(crate) fn freed(&self, first: PageId, pages: u32, now: impl FnOnce() -> u64) {
        let bytes = pages as usize * PAGE;
        let band = self.band(bytes);
        if band.lent.load(Relaxed) == first.0 {
            band.lent.store(NONE, Relaxed);
            band.took(each_mib(bytes, now().saturating_sub(band.since.load(Relaxed))));
        }
    }

    /// An owner gets a block of which a part only was zero: he came before scrubd was done.
    pub(crate) fn unfinished(&self, pages: u32) {
        let band = self.band(pages as usize * PAGE);
        let late = band.late.load(Relaxed) + FINISHED;
        band.late.store(late, Relaxed);
        if band.through.load(Relaxed) && late > UNFINISHED * FINISHED {
            band.lost();
        }
    }

    fn band(&self, bytes: usize) -> &Band {
        &self.0[(bytes.max(1).ilog2().saturating_sub(FIRST) as usize).min(BANDS - 1)]
    }
}

impl Band {
    /// A block was held for so long.
    fn took(&self, each: u32) {
        let (through, tries) = (self.through.load(Relaxed), self.tries.load(Relaxed));
        let now = believe(&self.held[usize::from(through)], each);
        self.late.store(self.late.load(Relaxed).saturating_sub(1), Relaxed);
        let left = self.left.load(Relaxed).saturating_sub(1);
        let [past, cached] =
            [&self.held[0], &self.held[1]].map(|held| u64::from(held.load(Relaxed)));
        let may_tell = left.is_multiple_of(SETTLED);
        // Then others took the cache, or the owner does more with a block than he did.
        let is_worse = through && !tries && may_tell && u64::from(now) > past;
        if left > 0 && !is_worse {
            self.left.store(left, Relaxed);
        } else if tries && past > 0 && cached > 0 {
            let wins = cached * 10 <= past * WINS_TENTHS;
            let rest = self.rest.load(Relaxed);
            self.rest
                .store(if wins == through { REST } else { (rest * 2).min(REST_MOST) }, Relaxed);
            self.goes_on(wins, false, rest);
        } else {
            self.held[usize::from(!through)].store(0, Relaxed);
            self.goes_on(!through, true, if through { PAST } else { THROUGH });
        }
    }

    /// The cache did not keep what it promised.
    fn lost(&self) {
        let rest = self.rest.load(Relaxed);
        self.rest.store((rest * 2).min(REST_MOST), Relaxed);
        self.late.store(0, Relaxed);
        self.goes_on(false, false, rest);
    }

    fn goes_on(&self, through: bool, tries: bool, left: u32) {
        self.through.store(through, Relaxed);
        self.tries.store(tries, Relaxed);
        self.left.store(left, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGES: u32 = (64 << 20 >> 12) as u32;
    const BYTES: usize = PAGES as usize * PAGE;

    /// An owner who gets a block of 64 MiB zero, again and again.
    struct Owner {
        sets: SetReach,
        /// us for which he holds one that was cleared past the cache, and one that lies there after so many
        /// rounds through it.
        past: u64,
        cached: u64,
        fills: u64,
        /// Rounds through it in a row.
        row: u64,
        now: u64,
    }

    impl Owner {
        fn new(past: u64, cached: u64) -> Owner {
            Owner { sets: SetReach::new(), past, cached, fills: 20, row: 0, now: 0 }
        }

        /// Of `n` blocks, how many were cleared through the cache.
        fn through(&mut self, n: u32) -> u32 {
            let mut through = 0;
            for _ in 0..n {
                self.row = match self.sets.way(BYTES) {
                    Cache::Cached => (self.row + 1).min(self.fills),
                    _ => 0,
                };
                through += u32::from(self.row > 0);
                let held = self.past - (self.past - self.cached) * self.row / self.fills;
                self.sets.lent(PageId(7), PAGES, self.now);
                self.now += held * 1000;
                self.sets.freed(PageId(7), PAGES, || self.now);
            }
            through
        }
    }

    #[test]
    fn who_saves_a_tenth_of_his_time_finds_his_zeroes_in_the_cache() {
        let mut owner = Owner::new(5000, 4000);
        assert_eq!(owner.through(SETTLED), SETTLED);
        assert_eq!(owner.through(10_000), 10_000 - 7 * PAST, "but for trials, ever rarer");
    }

    #[test]
    fn who_saves_less_does_not_but_for_trials() {
        for mut owner in [Owner::new(5000, 4600), Owner::new(100_000, 99_000)] {
            assert_eq!(owner.through(SETTLED), SETTLED);
            assert_eq!(owner.through(10_000), 7 * THROUGH);
        }
    }

    #[test]
    fn a_cache_that_others_take_or_leave_is_found_out() {
        let mut owner = Owner::new(5000, 4000);
        owner.through(SETTLED + PAST);
        owner.cached = 5000;
        assert!(owner.through(1000) <= 2 * SETTLED + THROUGH);
        owner.cached = 4000;
        owner.through(2 * REST_MOST);
        assert!(owner.through(1000) >= 1000 - PAST);
    }

    #[test]
    fn an_owner_who_begins_to_work_longer_is_compared_anew() {
        let mut owner = Owner::new(1300, 800);
        owner.through(SETTLED + PAST);
        (owner.past, owner.cached) = (5000, 4000);
        assert!(owner.through(1000) >= 1000 - 4 * PAST);
    }

    #[test]
    fn who_comes_before_scrubd_is_done_has_it_clear_the_faster_way() {
        let mut owner = Owner::new(5000, 4000);
        owner.through(10);
        (0..=UNFINISHED).for_each(|_| owner.sets.unfinished(PAGES));
        assert_eq!(owner.through(REST - 1), 0);

        let mut now_and_then = Owner::new(5000, 4000);
        for _ in 0..SETTLED / 8 {
            now_and_then.sets.unfinished(PAGES);
            assert_eq!(now_and_then.through(7), 7);
        }
    }

    #[test]
    fn only_what_was_zero_counts_when_it_comes_back() {
        let sets = SetReach::new();
        for _ in 0..10 * SETTLED {
            sets.freed(PageId(7), PAGES, || unreachable!("nobody got it from here"));
        }
        assert_eq!(sets.way(BYTES), Cache::Cached);
    }
}
