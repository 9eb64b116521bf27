//! Hints: where a CPU freed blocks of a class last.
//!
//! For each size class a CPU has a *hot-cold* row, in LRU order, and a *zero* row (Arcangeli, `PG_zero`, 2004). A row is
//! one cache line of slots; a slot is empty, or says where a block was freed and when. The block itself lies free in the
//! map all the time. So a hint that is lost, old, or of another CPU costs a look, and nothing else: the CPU number is a
//! hint about locality, never a right.

use crate::class::SLOTS;
use crate::clock::{Tick, Ticks};
use crate::sync::{
    AtomicU32, AtomicU64,
    Ordering::{AcqRel, Relaxed},
};
use crate::units::PageId;

/// Ticks by which a block may be stamped after its reader looked at the clock.
/// Fixed: longer than a reader is preempted between its two steps, short beside the counter's range.
const LATE: u16 = 512;

/// A block that was freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Hint {
    pub(crate) first: PageId,
    /// Order of arrival on its CPU and in its class, modulo 2^16.
    stamp: u16,
    /// The low half of the tick at which it was freed.
    tick: u16,
}

impl Hint {
    /// Bits 0..32 page + 1 (so no hint is the empty word), 32..48 stamp, 48.. tick.
    fn pack(self) -> u64 {
        (u64::from(self.first.0) + 1) | u64::from(self.stamp) << 32 | u64::from(self.tick) << 48
    }

    fn unpack(word: u64) -> Option<Hint> {
        let first = PageId((word as u32).checked_sub(1)?);
        Some(Hint { first, stamp: (word >> 32) as u16, tick: (word >> 48) as u16 })
    }

    /// How long ago it was freed, modulo 2^16 ticks; no time at all if it was freed after `now` was read.
    #[inline]
    pub(crate) fn age(self, now: Tick) -> Ticks {
        let age = now.low().wrapping_sub(self.tick);
        Ticks::new(if age > u16::MAX - LATE { 0 } else { age.into() })
    }
}

/// One row: a cache line of slots. All-zero bytes are an empty row.
#[repr(C, align(64))]
#[derive(Default)]
pub(crate) struct Row {
    slots: [AtomicU64; SLOTS],
}

impl Row {
    /// Puts a hint in the place of the oldest of the first `slots`, or in an empty slot.
    #[inline]
    fn note(&self, hint: Hint, slots: usize) {
        let age = |slot: &&AtomicU64| {
            let old = Hint::unpack(slot.load(Relaxed));
            old.map_or(u16::MAX, |old| hint.stamp.wrapping_sub(old.stamp))
        };
        if let Some(slot) = self.slots[..slots].iter().max_by_key(age) {
            slot.store(hint.pack(), Relaxed);
        }
    }

    /// Takes the hint with the smallest key. `None`: there is none, or another thread was faster.
    #[inline]
    fn take_by(&self, key: impl Fn(Hint) -> Option<u16>) -> Option<Hint> {
        let look = |slot| {
            let word = AtomicU64::load(slot, Relaxed);
            let hint = Hint::unpack(word)?;
            Some((key(hint)?, slot, word, hint))
        };
        let (_, slot, word, hint) = self.slots.iter().filter_map(look).min_by_key(|each| each.0)?;
        slot.compare_exchange(word, 0, AcqRel, Relaxed).is_ok().then_some(hint)
    }

    /// What the row holds, as it is when looked at.
    pub(crate) fn hints(&self) -> impl Iterator<Item = Hint> {
        self.slots.iter().filter_map(|slot| Hint::unpack(slot.load(Relaxed)))
    }
}

/// The two rows of one class on one CPU. All-zero bytes are empty rows.
#[repr(C, align(64))]
#[derive(Default)]
pub(crate) struct Rows {
    pub(crate) zero: Row,
    pub(crate) hot_cold: Row,
    /// Hints that ever came here. Load and store, not one operation: two threads on one CPU may stamp two hints alike,
    /// which blurs the LRU order, no more.
    arrivals: AtomicU32,
}

impl Rows {
    /// Remembers a block that was freed at `tick`, all zero or not, in one of the first `slots` of its row.
    #[inline]
    pub(crate) fn note(&self, first: PageId, tick: Tick, is_zero: bool, slots: usize) {
        let stamp = self.arrivals.load(Relaxed).wrapping_add(1);
        self.arrivals.store(stamp, Relaxed);
        let hint = Hint { first, stamp: stamp as u16, tick: tick.low() };
        let row = if is_zero { &self.zero } else { &self.hot_cold };
        row.note(hint, slots);
    }

    /// Takes the hint of the zero block that was freed last, if it `fits`.
    #[inline]
    pub(crate) fn take_zero(&self, fits: impl Fn(Hint) -> bool) -> Option<Hint> {
        self.zero.take_by(|hint| fits(hint).then(|| self.rank(hint)))
    }

    /// Takes the hint of the block that was freed last among those that `fits`.
    #[inline]
    pub(crate) fn take_hottest(&self, fits: impl Fn(Hint) -> bool) -> Option<Hint> {
        self.hot_cold.take_by(|hint| fits(hint).then(|| self.rank(hint)))
    }

    /// Takes the hint of the block that was freed first among those that `fits`.
    pub(crate) fn take_coldest(&self, fits: impl Fn(Hint) -> bool) -> Option<Hint> {
        self.hot_cold.take_by(|hint| fits(hint).then(|| u16::MAX - self.rank(hint)))
    }

    /// Hints that came after it, modulo 2^16.
    fn rank(&self, hint: Hint) -> u16 {
        (self.arrivals.load(Relaxed) as u16).wrapping_sub(hint.stamp)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any(_: Hint) -> bool {
        true
    }

    fn pages(hints: impl Iterator<Item = Hint>) -> Vec<u32> {
        let mut pages: Vec<u32> = hints.map(|hint| hint.first.0).collect();
        pages.sort_unstable();
        pages
    }

    #[test]
    fn rows_are_lru_from_both_ends_whatever_the_slots() {
        let rows = Rows::default();
        (1..=4).for_each(|page| rows.note(PageId(page), Tick::at(0), false, SLOTS));

        assert_eq!(rows.take_hottest(any).unwrap().first, PageId(4));
        assert_eq!(rows.take_coldest(any).unwrap().first, PageId(1));
        assert_eq!(rows.take_hottest(|hint| hint.first.0 < 3).unwrap().first, PageId(2));
        assert_eq!(pages(rows.hot_cold.hints()), [3]);
        assert_eq!(rows.take_zero(any), None, "the rows are apart");
    }

    #[test]
    fn a_full_row_forgets_its_oldest_hint() {
        let rows = Rows::default();
        (0..5).for_each(|page| rows.note(PageId(page), Tick::at(0), true, 3));
        assert_eq!(pages(rows.zero.hints()), [2, 3, 4]);
    }

    #[test]
    fn order_survives_the_wrap_of_the_stamp() {
        let rows = Rows::default();
        rows.arrivals.store(u32::from(u16::MAX) - 1, Relaxed);
        (0..4).for_each(|page| rows.note(PageId(page), Tick::at(0), false, 3));
        assert_eq!(pages(rows.hot_cold.hints()), [1, 2, 3]);
        assert_eq!(rows.take_hottest(any).unwrap().first, PageId(3));
        assert_eq!(rows.take_coldest(any).unwrap().first, PageId(1));
    }

    proptest! {
        #[test]
        fn hints_survive_packing(page in 0u32..1 << 30, stamp: u16, tick: u16) {
            let hint = Hint { first: PageId(page), stamp, tick };
            prop_assert_eq!(Hint::unpack(hint.pack()), Some(hint));
        }
    }
}
