//! Sizes: the classes that CPUs remember blocks by, and the bands in which demand is counted.

use crate::units::{MAX_ORDER, Order, PAGE, SLICE};

/// Slots of a row of hints: one cache line of words.
pub(crate) const SLOTS: usize = 8;
/// The largest block that has a class: 2 MiB.
const MAX_PAGES: u32 = 512;
/// Bytes that one row may remember: about a private cache. A block beyond it has no locality to keep.
/// Moved by: `bench waste --only never`.
const LIST_BYTES: usize = 4 << 20;

/// A size that CPUs remember blocks by: slices of 64 KiB in four steps to the doubling, up to 2 MiB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Class(u8);

/// How many classes there are.
pub(crate) const CLASSES: usize = CLASS_PAGES.len();

const CLASS_PAGES: [u32; 16] =
    [16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512];

/// Class of each number of slices, or `NONE`.
const BY_SLICES: [u8; (MAX_PAGES / SLICE) as usize + 1] = {
    let mut table = [NONE; (MAX_PAGES / SLICE) as usize + 1];
    let mut class = 0;
    while class < CLASS_PAGES.len() {
        table[(CLASS_PAGES[class] / SLICE) as usize] = class as u8;
        class += 1;
    }
    table
};
const NONE: u8 = u8::MAX;

impl Class {
    /// The class of blocks of exactly `pages` pages.
    #[inline]
    pub(crate) fn of(pages: u32) -> Option<Class> {
        let is_whole = pages.is_multiple_of(SLICE) && pages <= MAX_PAGES;
        let class = if is_whole { BY_SLICES[(pages / SLICE) as usize] } else { NONE };
        (class != NONE).then_some(Class(class))
    }

    /// All classes, largest first.
    pub(crate) fn largest_first() -> impl Iterator<Item = Class> + Clone {
        (0..CLASSES as u8).rev().map(Class)
    }

    /// The class with this index, if there is one.
    pub(crate) fn nth(index: usize) -> Option<Class> {
        (index < CLASSES).then_some(Class(index as u8))
    }

    #[inline(always)]
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }

    #[inline(always)]
    pub(crate) const fn pages(self) -> u32 {
        CLASS_PAGES[self.0 as usize]
    }

    /// Pages of a block of this class that [`round_up`] may have added, at most.
    pub(crate) fn slack(self) -> u32 {
        let smaller = self.index().checked_sub(1).map_or(0, |class| CLASS_PAGES[class]);
        self.pages() - smaller - 1
    }

    /// Slots in use for this class.
    pub(crate) fn slots(self) -> usize {
        (LIST_BYTES / (self.pages() as usize * PAGE)).clamp(1, SLOTS)
    }

    /// The smallest order that holds a block of this class.
    pub(crate) fn order(self) -> Order {
        Order::holding(self.pages()).unwrap_or(crate::units::MAX_ORDER)
    }
}

/// Rounds a page count up to that of a class, or beyond them to whole
/// slices. Four steps to the doubling: at most a fifth of a large block is slack.
pub(crate) fn round_up(pages: u32) -> u32 {
    let slices = pages.div_ceil(SLICE);
    let step = if slices <= 4 || pages > MAX_PAGES { 1 } else { 1 << ((slices - 1).ilog2() - 2) };
    slices.next_multiple_of(step) * SLICE
}

/// The smallest order above the classes.
const FIRST_ORDER: u32 = 10;
/// How many bands there are.
pub(crate) const BANDS: usize = CLASSES + (MAX_ORDER.get() - FIRST_ORDER) as usize + 1;

/// A range of sizes that are counted together: a class, or an order
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

    /// What `of` says of each.
    pub(crate) fn all_of<T>(of: impl Fn(Band) -> T) -> [T; BANDS] {
        std::array::from_fn(|n| of(Band(n as u8)))
    }

    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }

    /// The smallest order that holds every request of the band.
    pub(crate) fn order(self) -> Order {
        match self.class() {
            Some(class) => class.order(),
            None => {
                Order::new(u32::from(self.0) - CLASSES as u32 + FIRST_ORDER).unwrap_or(MAX_ORDER)
            }
        }
    }

    /// The class of its blocks, if they have one.
    pub(crate) fn class(self) -> Option<Class> {
        Class::nth(self.index())
    }

    /// Pages of the band's largest request.
    pub(crate) fn pages(self) -> u32 {
        self.class().map_or(self.order().pages(), Class::pages)
    }
}

impl From<Class> for Band {
    #[inline]
    fn from(class: Class) -> Band {
        Band(class.index() as u8)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_class_is_the_class_of_its_own_pages() {
        for class in Class::largest_first() {
            assert_eq!(Class::of(class.pages()), Some(class));
            assert!(class.slots() >= 1);
        }
    }

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
            let pages = round_up(pages).min(MAX_ORDER.pages());
            prop_assert!(Band::of(pages).pages() >= pages);
            prop_assert!(Band::of(pages).order().pages() >= pages);
        }

        #[test]
        fn rounding_covers_the_request_with_bounded_slack(pages in 1u32..1 << 18) {
            let rounded = round_up(pages);
            prop_assert!(rounded >= pages);
            prop_assert!(Class::of(rounded).is_some() || rounded > MAX_PAGES);
            if pages > 4 * SLICE {
                prop_assert!(rounded - pages <= pages / 4 + SLICE);
            }
        }
    }
}
