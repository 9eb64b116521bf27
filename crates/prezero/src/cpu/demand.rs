//! What is asked for as zero, by size, as far as a scrubber could have served it.
//!
//! Counted where it arises, one relaxed add on the asking CPU. A request that got a block
//! which had been freed a moment before is not counted: nobody could have cleared that
//! block in time, and its owner wants it hot.

use crate::cpu::list::{CLASSES, Class};
use crate::units::{MAX_ORDER, Order};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The smallest order above the quicklists' classes.
const FIRST_ORDER: u32 = 10;
/// How many bands there are.
pub(crate) const BANDS: usize = CLASSES + (MAX_ORDER.get() - FIRST_ORDER) as usize + 1;

/// A range of sizes that are counted together: a class of the quicklists, or an order
/// above them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Band(u8);

impl Band {
    /// The band of a request.
    #[inline]
    pub(crate) fn of(pages: u32) -> Band {
        match Class::of(pages) {
            Some(class) => class.into(),
            None => {
                let order = Order::holding(pages).unwrap_or(MAX_ORDER).get().max(FIRST_ORDER);
                Band((CLASSES as u32 + order - FIRST_ORDER) as u8)
            }
        }
    }

    pub(crate) fn all() -> impl Iterator<Item = Band> {
        (0..BANDS as u8).map(Band)
    }

    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }

    /// The smallest order that holds every request of the band.
    pub(crate) fn order(self) -> Order {
        match Class::nth(self.index()) {
            Some(class) => class.order(),
            None => {
                Order::new(u32::from(self.0) - CLASSES as u32 + FIRST_ORDER).unwrap_or(MAX_ORDER)
            }
        }
    }

    /// Pages of the band's largest request.
    pub(crate) fn pages(self) -> u32 {
        Class::nth(self.index()).map_or(self.order().pages(), Class::pages)
    }
}

impl From<Class> for Band {
    #[inline]
    fn from(class: Class) -> Band {
        Band(class.index() as u8)
    }
}

/// Pages asked for on one CPU, by band. All-zero bytes are none.
#[repr(C, align(64))]
#[derive(Default)]
pub(crate) struct Demand {
    /// First: on one cache line with the bands of small blocks, of which it costs most.
    returned: AtomicU64,
    pages: [AtomicU64; BANDS],
}

impl Demand {
    /// Counts a request. May lose one when two threads share the CPU, as counters may.
    #[inline]
    pub(crate) fn note(&self, pages: u32) {
        let cell = &self.pages[Band::of(pages).index()];
        cell.store(cell.load(Relaxed) + u64::from(pages), Relaxed);
    }

    /// Counts what comes back that was handed out zero.
    #[inline]
    pub(crate) fn note_return(&self, pages: u32) {
        self.returned.store(self.returned.load(Relaxed) + u64::from(pages), Relaxed);
    }

    /// Pages that came back here.
    pub(crate) fn returned(&self) -> u64 {
        self.returned.load(Relaxed)
    }

    /// Back to none: the child of a fork has asked for nothing yet.
    pub(crate) fn reset(&self) {
        for cell in self.pages.iter().chain([&self.returned]) {
            cell.store(0, Relaxed);
        }
    }

    /// Adds this CPU's pages to sums over all CPUs.
    pub(crate) fn add_to(&self, sums: &mut [u64; BANDS]) {
        for (sum, cell) in sums.iter_mut().zip(&self.pages) {
            *sum += cell.load(Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bands_ascend_and_their_largest_request_is_their_own() {
        let mut last = 0;
        for band in Band::all() {
            assert!(band.pages() > last, "{band:?}");
            assert_eq!(Band::of(band.pages()), band);
            last = band.pages();
        }
        assert_eq!(last, MAX_ORDER.pages());
    }

    proptest! {
        #[test]
        fn a_band_holds_what_it_counts(pages in 1u32..=MAX_ORDER.pages()) {
            let pages = crate::cpu::list::round_up(pages).min(MAX_ORDER.pages());
            prop_assert!(Band::of(pages).pages() >= pages);
            prop_assert!(Band::of(pages).order().pages() >= pages);
        }

        #[test]
        fn sums_are_what_was_noted(pages in prop::collection::vec(1u32..1 << 18, 0..50)) {
            let demand = Demand::default();
            for &pages in &pages {
                demand.note(pages);
            }
            let mut sums = [0; BANDS];
            demand.add_to(&mut sums);
            prop_assert_eq!(sums.iter().sum::<u64>(), pages.iter().map(|&p| u64::from(p)).sum::<u64>());
        }
    }
}
