//! Demand: requests for zero, by size, as far as a scrubber could have served them.
//!
//! Counted where it arises, by one relaxed store on the asking CPU. A request that got a block freed a moment
//! before is not counted: no scrubber could have cleared that block in time, and its owner wants it hot.

use crate::class::{BANDS, Band};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Pages asked for on one CPU, by band. All-zero bytes are the empty value.
#[repr(C, align(64))]
#[derive(Default)]
pub(crate) struct Demand {
    /// First: on one cache line with the bands of small blocks, of which it costs most.
    returned: AtomicU64,
    bands: [Cell; BANDS],
}

/// Pages of one band: asked for, and found zero. On one cache line.
#[derive(Default)]
struct Cell {
    asked: AtomicU64,
    hit: AtomicU64,
}

impl Demand {
    /// Counts a request. May lose one when two threads share the CPU, as counters may.
    #[inline]
    pub(crate) fn note(&self, pages: u32) {
        let cell = &self.bands[Band::of(pages).index()].asked;
        cell.store(cell.load(Relaxed) + u64::from(pages), Relaxed);
    }

    /// Counts pages of a block of `pages` that a request found zero.
    #[inline]
    pub(crate) fn note_hit(&self, pages: u32, zero: u32) {
        let cell = &self.bands[Band::of(pages).index()].hit;
        cell.store(cell.load(Relaxed) + u64::from(zero), Relaxed);
    }

    /// Counts pages that come back and were handed out zero.
    #[inline]
    pub(crate) fn note_return(&self, pages: u32) {
        self.returned.store(self.returned.load(Relaxed) + u64::from(pages), Relaxed);
    }

    /// Pages that came back here.
    pub(crate) fn returned(&self) -> u64 {
        self.returned.load(Relaxed)
    }

    /// Back to none: the child of a fork has asked for nothing yet. What is none is not written: no page becomes resident.
    pub(crate) fn reset(&self) {
        let bands = self.bands.iter().flat_map(|cell| [&cell.asked, &cell.hit]);
        let some = bands.chain([&self.returned]).filter(|cell| cell.load(Relaxed) != 0);
        some.for_each(|cell| cell.store(0, Relaxed));
    }

    /// Adds this CPU's pages, asked for and found zero, to sums over all CPUs.
    pub(crate) fn add_to(&self, asked: &mut [u64; BANDS], hits: &mut [u64; BANDS]) {
        for ((asked, hit), cell) in asked.iter_mut().zip(hits).zip(&self.bands) {
            *asked += cell.asked.load(Relaxed);
            *hit += cell.hit.load(Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn sums_are_what_was_noted(pages in prop::collection::vec(1u32..1 << 18, 0..50)) {
            let demand = Demand::default();
            for &pages in &pages {
                demand.note(pages);
            }
            let (mut sums, mut hits) = ([0; BANDS], [0; BANDS]);
            demand.add_to(&mut sums, &mut hits);
            prop_assert_eq!(sums.iter().sum::<u64>(), pages.iter().map(|&p| u64::from(p)).sum::<u64>());
        }
    }
}
