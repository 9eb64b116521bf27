//! How far the cache reaches for large clears that somebody waits for, found by trying.
//!
//! The L3 that a guest sees is its host's, and what others leave of it changes by the hour: on one Xeon
//! that shows 480 MiB, 64 MiB took 2.7 ms through the cache in the morning and 6.9 in the afternoon, past
//! it 2.6. A clear of what is not in the cache has each line fetched first and written back later. So large
//! clears go past it. A program that clears the same block again and again is the exception: after 4
//! to 20 times it lies in a cache that has room for it, is cleared faster than memory, and is near when its
//! owner writes to it (48 MiB, all lines: 3.7 ms instead of 7.9). Therefore now and then some go
//! through the cache, and go on so where they become faster.
//!
//! The time of the clear alone tells. What its owner saves later is not seen, and may be more than the clear
//! takes longer: 64 MiB of which he writes all lines take 5.0 ms to clear and fill through the cache once
//! they lie there (10.8 the first time) and 10.2 past it, with one line a page 2.5 (6.7) and 3.1. So past it
//! goes only what wins so whatever its owner writes: nobody gets less than where all go through.

use crate::clear::Cache;
use crate::sync::{AtomicU32, Ordering::Relaxed};

/// Sizes apart, each twice the one before; the last takes all that are larger (from 16 GiB).
const BANDS: usize = 10;
/// The smallest, as a power of two: 32 MiB. What is smaller counts as such.
const FIRST: u32 = 25;
/// Clears past the cache before others are tried, and before they are tried for the first time: two of a
/// hundred are slower by the trial, and none slower than without prezero, where all go through the cache.
const AGAIN: u32 = 1024;
const AT_FIRST: u32 = 4;
/// So many tries in a row at least, and at most, in which the cache fills.
const TRIES: u32 = 24;
const TRIES_MOST: u32 = 40;
/// From the `TRIES`th on each must take at most so many tenths of the first.
const BETTER_TENTHS: u64 = 9;
/// The cache is worth so many tenths of the time that it takes past it.
const WORTH_TENTHS: u64 = 18;
/// Of a time that is worse than the last, as a divisor, what is believed: one clear may lose its CPU.
const DOUBT: u32 = 4;

/// See the module. Threads that come at once may lose each other's figures, and a trial.
pub(crate) struct Reach([Band; BANDS]);

struct Band {
    /// Below [`AGAIN`] the clears since the last trial, from there on those of a trial, at last
    /// [`THROUGH`]: the cache won it.
    turn: AtomicU32,
    /// ns for a MiB past the cache, through it, and at the trial's first try.
    past: AtomicU32,
    through: AtomicU32,
    first: AtomicU32,
}

const THROUGH: u32 = AGAIN + TRIES_MOST;

impl Reach {
    pub(crate) fn new() -> Reach {
        Reach(std::array::from_fn(|_| Band {
            turn: AtomicU32::new(AGAIN - AT_FIRST),
            past: AtomicU32::new(0),
            through: AtomicU32::new(0),
            first: AtomicU32::new(0),
        }))
    }

    /// How to clear `bytes` this time.
    pub(crate) fn way(&self, bytes: usize) -> Cache {
        let past = self.band(bytes).turn.load(Relaxed) < AGAIN;
        if past { Cache::Bypassing } else { Cache::Cached }
    }

    /// They took so many ns that way.
    pub(crate) fn note(&self, bytes: usize, way: Cache, ns: u64) {
        let band = self.band(bytes);
        let each = (ns / (bytes as u64 >> 20).max(1)).clamp(1, u64::from(u32::MAX)) as u32;
        let turn = band.turn.load(Relaxed);
        let next = if way == Cache::Bypassing {
            believe(&band.past, each);
            turn.saturating_add(u32::from(turn < AGAIN))
        } else {
            band.went_through(turn, each)
        };
        band.turn.store(next, Relaxed);
    }

    fn band(&self, bytes: usize) -> &Band {
        &self.0[(bytes.max(1).ilog2().saturating_sub(FIRST) as usize).min(BANDS - 1)]
    }
}

impl Band {
    /// What follows a clear through the cache.
    fn went_through(&self, turn: u32, each: u32) -> u32 {
        let is_worth =
            |each: u32| u64::from(each) * 10 <= u64::from(self.past.load(Relaxed)) * WORTH_TENTHS;
        match turn {
            ..AGAIN => turn, // from before the last trial's end
            THROUGH.. => {
                // The cache may have been another's only for a while: it is tried again first.
                let stays = is_worth(believe(&self.through, each));
                if stays { THROUGH } else { AGAIN }
            }
            _ if is_worth(each) => {
                self.through.store(each, Relaxed);
                THROUGH
            }
            _ => {
                let tried = turn - AGAIN;
                if tried == 0 {
                    self.first.store(each, Relaxed);
                }
                let first = u64::from(self.first.load(Relaxed));
                let better = u64::from(each) * 10 <= first * BETTER_TENTHS;
                let goes_on = tried + 1 < TRIES || better && tried + 1 < TRIES_MOST;
                if goes_on { turn + 1 } else { 0 }
            }
        }
    }
}

/// Writes down what a time has become.
fn believe(time: &AtomicU32, each: u32) -> u32 {
    let last = time.load(Relaxed);
    let worse = last != 0 && each > last;
    let now = if worse { last + (each - last) / DOUBT } else { each };
    time.store(now, Relaxed);
    now
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    /// A cache that reaches so many bytes, and fills in so many rounds.
    struct Model {
        reach: Reach,
        fits: usize,
        fills: u32,
        /// Rounds through it in a row.
        row: u32,
    }

    impl Model {
        fn new(fits: usize, fills: u32) -> Model {
            Model { reach: Reach::new(), fits, fills, row: 0 }
        }

        /// Of `n` clears of a block, how many went past the cache.
        fn past(&mut self, bytes: usize, n: u32) -> u32 {
            let mut past = 0;
            for _ in 0..n {
                let way = self.reach.way(bytes);
                let us = if way == Cache::Bypassing {
                    (self.row, past) = (0, past + 1);
                    45
                } else {
                    self.row += u32::from(bytes <= self.fits);
                    // From 110 to 35.
                    110 - 75 * self.row.min(self.fills) / self.fills
                };
                self.reach.note(bytes, way, u64::from(us * 1000) * (bytes >> 20) as u64);
            }
            past
        }
    }

    #[test]
    fn what_fits_goes_through_the_cache_once_it_lies_there() {
        for fills in [1, 7, 20] {
            let mut model = Model::new(100 * MIB, fills);
            assert_eq!(model.past(48 * MIB, 1000), AT_FIRST);
            assert_eq!(model.past(96 * MIB, 1000), AT_FIRST, "another size");
        }
    }

    #[test]
    fn what_does_not_goes_past_it_but_for_a_few() {
        let mut model = Model::new(100 * MIB, 8);
        for bytes in [200 * MIB, 1 << 36] {
            let through = 10_000 - model.past(bytes, 10_000);
            assert_eq!(through, TRIES * 10_000_u32.div_ceil(AGAIN + TRIES));
        }
    }

    #[test]
    fn a_cache_that_others_take_or_leave_is_found_out() {
        let mut model = Model::new(100 * MIB, 8);
        model.past(48 * MIB, 100);
        model.fits = 0;
        (model.row, model.fills) = (0, 8);
        assert!(model.past(48 * MIB, 100) > 70);
        model.fits = 100 * MIB;
        model.past(48 * MIB, AGAIN + TRIES);
        assert_eq!(model.past(48 * MIB, 1000), 0);
    }

    #[test]
    fn who_rests_finds_the_cache_again() {
        let mut model = Model::new(100 * MIB, 8);
        model.past(48 * MIB, 100);
        for _ in 0..100 {
            model.row = 0; // others had it
            assert_eq!(model.past(48 * MIB, 9), 0);
        }
    }

    #[test]
    fn one_clear_that_lost_its_cpu_changes_nothing() {
        let mut model = Model::new(100 * MIB, 8);
        model.past(48 * MIB, 100);
        model.reach.note(48 * MIB, Cache::Cached, 48 * 100_000);
        assert_eq!(model.past(48 * MIB, 100), 0);
    }

    #[test]
    fn a_cache_that_fills_too_slowly_is_left_alone() {
        let mut model = Model::new(100 * MIB, 400);
        assert!(model.past(48 * MIB, AGAIN) >= AGAIN - TRIES_MOST);
    }
}
