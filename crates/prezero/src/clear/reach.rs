//! How far the cache reaches for large clears in line, found by trial.
//!
//! A guest is told the size of its host's whole L3, and its share of that changes by the hour. A clear of an
//! uncached block fetches each line first and writes it back later, so large clears go past the cache. The
//! exception is a program that clears the same block again and again. After some clears through the cache the block
//! lies in it, is cleared faster, and is near when its owner writes to it. So now and then some clears go through
//! the cache, and go on so where they become faster.
//!
//! A cached clear can save its owner more time than it takes longer. So the time from a clear to its free counts,
//! too: in part of it the owner of a cached block could have written the block. An owner that writes all of the
//! block saves at most a clear. An owner that keeps the block, or works on it for long, looks the same, so only
//! clears that win nevertheless go past the cache, and no owner gets less than where all go through it.

use crate::clear::Cache;
use crate::sync::{AtomicU32, AtomicU64, Ordering::Relaxed};
use crate::units::{PAGE, PageId, Span};

/// Bands of sizes, each twice the one before. The last takes all larger sizes.
/// Fixed: covers all sizes.
const BANDS: usize = 10;
/// The smallest band, as a power of two. Smaller sizes count as it.
const FIRST: u32 = 25;
/// Clears past the cache before a trial: the first, the second, and at most. Another program may
/// have filled the cache during one trial, so the next is never far.
/// Moved by: `bench grid --idle off --sizes 64M,256M`.
const AT_FIRST: u32 = 4;
const AFTER_ONE: u32 = 64;
const AGAIN: u32 = 1024;
/// Clears through the cache without a step that end a trial, and the part of the last step's time
/// that makes a step, in tenths. A cache that has room for the block fills within some clears.
/// Moved by: `bench grid --idle off --sizes 48M,128M`.
const TRIES: u32 = 8;
const STEP_TENTHS: u64 = 9;
/// Part of the time past the cache, in tenths, that the owner of a cached block saves at most.
/// Moved by: `bench grid --idle off --sizes 48M,64M`, tests of `reach`.
const SAVED_TENTHS: u64 = 8;
/// Part of the time for which an owner held an uncached block that a cached one would save, as a
/// divisor.
/// Moved by: `bench grid --idle off --sizes 48M,64M`, tests of `reach`.
const SAVED_OF_HELD: u32 = 2;
/// Part of a worse time that is believed, as a divisor: one clear may lose its CPU.
/// Moved by: `bench grid --idle off --sizes 48M,64M`, tests of `reach`.
const DOUBT: u32 = 4;

/// See the module. Threads that come at once may lose each other's figures, and a trial, and one block may be
/// held for as long as the other: they are estimates, and both ways clear.
pub(crate) struct Reach([Band; BANDS]);

struct Band {
    /// Below [`AGAIN`] the clears until the next trial are counted, from there on its tries since the
    /// last step, at last [`THROUGH`]: the cache won it.
    turn: AtomicU32,
    /// Clears past the cache after the next trial that fails.
    rest: AtomicU32,
    /// ns for a MiB past the cache, through it, at the trial's last step, and at its best try.
    past: AtomicU32,
    through: AtomicU32,
    step: AtomicU32,
    best: AtomicU32,
    /// ns for a MiB for which its owner held it; `u32::MAX` until the first free.
    held: AtomicU32,
    /// The block cleared last, and when that was done.
    lent: AtomicU32,
    since: AtomicU64,
}

/// No block: none begins there.
/// Fixed: a value beyond all others.
const NONE: u32 = u32::MAX;

/// The turn of a size that goes through the cache.
/// Fixed: a value beyond all others.
const THROUGH: u32 = AGAIN + TRIES;

impl Reach {
    pub(crate) fn new() -> Reach {
        Reach(std::array::from_fn(|_| Band {
            turn: AtomicU32::new(AGAIN - AT_FIRST),
            rest: AtomicU32::new(AFTER_ONE),
            past: AtomicU32::new(0),
            through: AtomicU32::new(0),
            step: AtomicU32::new(0),
            best: AtomicU32::new(u32::MAX),
            held: AtomicU32::new(u32::MAX),
            lent: AtomicU32::new(NONE),
            since: AtomicU64::new(0),
        }))
    }

    /// How to clear `bytes` this time.
    pub(crate) fn way(&self, bytes: usize) -> Cache {
        let past = self.band(bytes).turn.load(Relaxed) < AGAIN;
        if past { Cache::Bypassing } else { Cache::Cached }
    }

    /// They were cleared that way from `began` to `ended`, ns, at the front of a block that begins with `first`.
    pub(crate) fn note(&self, first: PageId, bytes: usize, way: Cache, began: u64, ended: u64) {
        let band = self.band(bytes);
        let each = each_mib(bytes, ended.saturating_sub(began));
        let turn = band.turn.load(Relaxed);
        let next = if way == Cache::Bypassing {
            believe(&band.past, each);
            band.went_past(turn)
        } else {
            band.went_through(turn, each)
        };
        band.turn.store(next, Relaxed);
        band.since.store(ended, Relaxed);
        band.lent.store(first.0, Relaxed);
    }

    /// Its owner gives a block back.
    pub(crate) fn freed(&self, span: Span, now: impl FnOnce() -> u64) {
        let Span { first, pages } = span;
        let bytes = pages as usize * PAGE;
        let band = self.band(bytes);
        if band.lent.load(Relaxed) == first.0 {
            band.lent.store(NONE, Relaxed);
            let each = each_mib(bytes, now().saturating_sub(band.since.load(Relaxed)));
            believe(&band.held, each);
        }
    }

    fn band(&self, bytes: usize) -> &Band {
        &self.0[(bytes.max(1).ilog2().saturating_sub(FIRST) as usize).min(BANDS - 1)]
    }
}

impl Band {
    /// What follows a clear past the cache.
    fn went_past(&self, turn: u32) -> u32 {
        // The last trial was lost for an owner that wrote less.
        let would_win = self.is_worth(self.best.load(Relaxed), SAVED_OF_HELD);
        let next = turn.saturating_add(u32::from(turn < AGAIN));
        if would_win { next.max(AGAIN) } else { next }
    }

    /// What follows a clear through the cache.
    fn went_through(&self, turn: u32, each: u32) -> u32 {
        match turn {
            ..AGAIN => turn, // from before the last trial's end
            THROUGH.. => {
                // Another program may have filled the cache for a while only: it is tried again
                // first. The owner of a cached block held an uncached one for longer.
                let stays = self.is_worth(believe(&self.through, each), 1);
                if stays { THROUGH } else { AGAIN }
            }
            _ if self.is_worth(each, SAVED_OF_HELD) => {
                self.through.store(each, Relaxed);
                self.rest.store(AFTER_ONE, Relaxed);
                THROUGH
            }
            _ => {
                let begins = turn == AGAIN;
                let best = if begins { each } else { each.min(self.best.load(Relaxed)) };
                self.best.store(best, Relaxed);
                let step = u64::from(self.step.load(Relaxed)) * STEP_TENTHS;
                if begins || u64::from(each) * 10 <= step {
                    self.step.store(each, Relaxed);
                    return AGAIN + 1;
                }
                if turn + 1 < THROUGH { turn + 1 } else { self.failed() }
            }
        }
    }

    /// What follows a trial that failed.
    fn failed(&self) -> u32 {
        let rest = self.rest.load(Relaxed);
        self.rest.store((rest * 2).min(AGAIN), Relaxed);
        AGAIN - rest
    }

    /// Whether a clear through the cache, with what the owner saves by it, is as good as one past it.
    fn is_worth(&self, each: u32, saved_of_held: u32) -> bool {
        let past = u64::from(self.past.load(Relaxed));
        let held = u64::from(self.held.load(Relaxed) / saved_of_held);
        u64::from(each) <= past + held.min(past * SAVED_TENTHS / 10)
    }
}

/// ns for a MiB.
fn each_mib(bytes: usize, ns: u64) -> u32 {
    (ns / (bytes as u64 >> 20).max(1)).clamp(1, u64::from(u32::MAX) - 1) as u32
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
        /// us for a MiB through the cache: of a block that lies there, and of one that does not.
        /// `held`: of a block that does not, and that its owner held. Past the cache it is 45.
        through: [u32; 2],
        held: u32,
        /// Rounds through it in a row.
        row: u32,
        now: u64,
    }

    impl Model {
        fn new(fits: usize, fills: u32) -> Model {
            let (through, held) = ([35, 110], 10);
            Model { reach: Reach::new(), fits, fills, through, held, row: 0, now: 0 }
        }

        /// Of `n` clears of a block, how many went past the cache.
        fn past(&mut self, bytes: usize, n: u32) -> u32 {
            let mut past = 0;
            for _ in 0..n {
                let way = self.reach.way(bytes);
                let row = self.row.min(self.fills);
                let us = if way == Cache::Bypassing {
                    (self.row, past) = (0, past + 1);
                    45
                } else {
                    self.row += u32::from(bytes <= self.fits);
                    self.through[1] - (self.through[1] - self.through[0]) * row / self.fills
                };
                let held = self.held - self.held / 2 * row / self.fills;
                let of_block = |us: u32| u64::from(us * 1000) * (bytes >> 20) as u64;
                let (began, ended) = (self.now, self.now + of_block(us));
                self.reach.note(PageId(7), bytes, way, began, ended);
                self.now = ended + of_block(held);
                self.reach.freed(Span::new(PageId(7), (bytes / PAGE) as u32), || self.now);
            }
            past
        }
    }

    #[test]
    fn a_block_that_fits_goes_through_the_cache_once_it_lies_there() {
        for fills in [1, 7, 20] {
            let mut model = Model::new(100 * MIB, fills);
            assert_eq!(model.past(48 * MIB, 1000), AT_FIRST);
            assert_eq!(model.past(96 * MIB, 1000), AT_FIRST, "another size");
        }
    }

    #[test]
    fn a_block_that_does_not_fit_goes_past_the_cache_but_for_a_few_times() {
        let mut model = Model::new(100 * MIB, 8);
        for bytes in [200 * MIB, 1 << 36] {
            let (mut trials, mut next, mut rest) = (0, AT_FIRST, AFTER_ONE);
            while next < 10_000 {
                (trials, next, rest) = (trials + 1, next + TRIES + rest, (rest * 2).min(AGAIN));
            }
            assert_eq!(10_000 - model.past(bytes, 10_000), TRIES * trials);
            assert!(TRIES * trials < 150, "not two of a hundred");
        }
    }

    #[test]
    fn a_cache_that_others_take_or_leave_is_found_out() {
        let mut model = Model::new(100 * MIB, 8);
        model.past(48 * MIB, 100);
        model.fits = 0;
        (model.row, model.fills) = (0, 8);
        assert!(model.past(48 * MIB, 70) > 58);
        model.fits = 100 * MIB;
        assert!(model.past(48 * MIB, 1000) <= AFTER_ONE, "taken for a moment");
        model.fits = 0;
        (model.row, model.fills) = (0, 8);
        model.past(48 * MIB, 10_000);
        model.fits = 100 * MIB;
        model.past(48 * MIB, AGAIN + TRIES);
        assert_eq!(model.past(48 * MIB, 1000), 0, "taken for long");
    }

    /// A cache that others use too: a clear through it takes 1.5 times as long.
    #[test]
    fn a_slower_clear_is_worth_what_its_owner_saves() {
        let mut model = Model::new(100 * MIB, 8);
        model.through = [68, 110];
        (model.held, model.row) = (5, 0);
        assert!(model.past(48 * MIB, 500) > 440, "few lines");
        (model.held, model.row) = (100, 0);
        assert!(model.past(48 * MIB, 100) < 8, "all of them, found soon");
        assert_eq!(model.past(48 * MIB, 500), 0);
        model.held = 5;
        assert!(model.past(48 * MIB, 500) > 440, "few again");
    }

    #[test]
    fn a_program_that_keeps_its_blocks_counts_as_one_that_writes_all_of_them() {
        let reach = Reach::new();
        for n in 0..100 {
            let (way, bytes) = (reach.way(48 * MIB), 48 * MIB);
            let us = if way == Cache::Bypassing { 45 } else { 70 };
            reach.note(PageId(n), bytes, way, 0, us * 1000 * 48);
            assert_eq!(way == Cache::Bypassing, n < AT_FIRST);
        }
    }

    #[test]
    fn a_program_that_rests_finds_the_cache_again() {
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
        model.reach.note(PageId(7), 48 * MIB, Cache::Cached, 0, 48 * 100_000);
        assert_eq!(model.past(48 * MIB, 100), 0);
    }

    #[test]
    fn a_cache_that_fills_too_slowly_is_left_alone() {
        let mut model = Model::new(100 * MIB, 400);
        assert!(model.past(48 * MIB, AGAIN) >= AGAIN - 5 * TRIES);
    }
}
