//! Per-CPU quicklists: the blocks that were freed last, one atomic word each.
//!
//! For each size class a CPU has a *hot-cold* list, in LRU order, and a *zero* list (Arcangeli, `PG_zero`, 2004). A
//! list is one cache line of slots; a slot is empty or names a free block, its content and its age. One
//! compare-and-swap on the slot takes the block. So a thread that is preempted, migrated or forked in the middle of
//! anything leaves every list usable: the CPU number is a hint about locality, never a right.
//!
//! A word names the block that it keeps, so a swap that succeeds takes exactly that block, however often the slot
//! changed meanwhile.

use crate::block::Run;
use crate::class::{Class, SLOTS};
use crate::clock::{Tick, Ticks};
use crate::sync::{
    AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed},
};
use crate::units::{PageId, Span};

/// Blocks that a full hot-cold list gives to the pool at once.
/// Fixed: half a list, so that neither a free nor a request at the border moves a batch each time.
pub(crate) const BATCH: usize = SLOTS / 2;

/// Ticks by which a block may be stamped after its reader looked at the clock.
/// Fixed: longer than a reader is preempted between its two steps, short beside the counter's range.
const LATE: u16 = 512;

/// What a quicklist knows of a block's content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Held {
    /// Every page is resident and zero.
    Zero,
    /// Look at the page states.
    Mixed,
}

/// A free block on a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub(crate) first: PageId,
    pub(crate) held: Held,
    /// Order of arrival in its list, modulo 2^16.
    stamp: u16,
    /// The low half of the tick at which it was freed.
    tick: u16,
}

impl Entry {
    pub(crate) fn new(first: PageId, held: Held, freed: Tick) -> Entry {
        Entry { first, held, stamp: 0, tick: freed.low() }
    }

    /// A run that goes onto a list.
    pub(crate) fn of(run: Run, held: Held, freed: Tick) -> Entry {
        Entry::new(run.into_span().first, held, freed)
    }

    /// The pages of a block of this class that was taken off a list, or never got onto one.
    pub(crate) fn run(self, class: Class) -> Run {
        Run::taken(Span::new(self.first, class.pages()))
    }

    /// Bits 0..31 page + 1 (so no entry is the empty word), 31 zero, 32..48 stamp, 48.. tick.
    fn pack(self) -> u64 {
        let zero = (self.held == Held::Zero) as u64;
        (self.first.0 as u64 + 1)
            | zero << 31
            | (self.stamp as u64) << 32
            | (self.tick as u64) << 48
    }

    fn unpack(word: u64) -> Option<Entry> {
        let page = word as u32 & (u32::MAX >> 1);
        Some(Entry {
            first: PageId(page.checked_sub(1)?),
            held: if word >> 31 & 1 != 0 { Held::Zero } else { Held::Mixed },
            stamp: (word >> 32) as u16,
            tick: (word >> 48) as u16,
        })
    }

    /// How long ago it was freed, modulo 2^16 ticks; no time at all if it was freed after `now` was read.
    #[inline]
    pub(crate) fn age(self, now: Tick) -> Ticks {
        let age = now.low().wrapping_sub(self.tick);
        Ticks::new(if age > u16::MAX - LATE { 0 } else { age.into() })
    }

    /// Blocks that came to its list after it, `newest` being the last (modulo 2^16).
    pub(crate) fn rank(self, newest: u16) -> u16 {
        newest.wrapping_sub(self.stamp)
    }
}

/// One list: a cache line of slots. All-zero bytes are an empty list.
#[repr(C, align(64))]
#[derive(Default)]
pub(crate) struct List {
    slots: [AtomicU64; SLOTS],
}

impl List {
    /// Puts an entry into an empty slot, or hands it back if there is none.
    #[inline]
    pub(crate) fn push(&self, entry: Entry, slots: usize) -> Result<(), Entry> {
        let word = entry.pack();
        for slot in &self.slots[..slots] {
            if slot.load(Relaxed) == 0 && slot.compare_exchange(0, word, AcqRel, Relaxed).is_ok() {
                return Ok(());
            }
        }
        Err(entry)
    }

    /// Takes any block that `fits`: the one in the lowest slot, which was filled last
    /// or nearly so.
    #[inline]
    pub(crate) fn take(&self, fits: impl Fn(Entry) -> bool) -> Option<Entry> {
        self.slots.iter().find_map(|slot| {
            let word = slot.load(Relaxed);
            let entry = Entry::unpack(word)?;
            (fits(entry) && slot.compare_exchange(word, 0, AcqRel, Relaxed).is_ok())
                .then_some(entry)
        })
    }

    /// Takes the hottest block that `fits`: the one freed last, by `newest`.
    #[inline]
    pub(crate) fn take_hottest(&self, newest: u16, fits: impl Fn(Entry) -> bool) -> Option<Entry> {
        self.take_by(|entry| fits(entry).then(|| entry.rank(newest)))
    }

    /// Takes the coldest block that `fits`: the one freed longest ago.
    pub(crate) fn take_coldest(&self, newest: u16, fits: impl Fn(Entry) -> bool) -> Option<Entry> {
        self.take_by(|entry| fits(entry).then(|| u16::MAX - entry.rank(newest)))
    }

    /// Takes the block with the smallest key. A lost race is tried again once with what
    /// the list holds then; losing twice means that others are busy here, and the caller
    /// has other places to look.
    #[inline]
    fn take_by(&self, key: impl Fn(Entry) -> Option<u16>) -> Option<Entry> {
        for _ in 0..2 {
            let mut best: Option<(u16, &AtomicU64, u64, Entry)> = None;
            for slot in &self.slots {
                let word = slot.load(Relaxed);
                let Some(entry) = Entry::unpack(word) else { continue };
                let Some(key) = key(entry) else { continue };
                if best.is_none_or(|(least, ..)| key < least) {
                    best = Some((key, slot, word, entry));
                }
            }
            let (_, slot, word, entry) = best?;
            if slot.compare_exchange(word, 0, AcqRel, Relaxed).is_ok() {
                return Some(entry);
            }
        }
        None
    }

    /// What the list holds, as it is when looked at.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry> {
        self.slots.iter().filter_map(|slot| Entry::unpack(slot.load(Acquire)))
    }
}

/// The two lists of one class on one CPU. All-zero bytes are empty lists.
#[repr(C, align(64))]
#[derive(Default)]
pub(crate) struct Lists {
    pub(crate) zero: List,
    pub(crate) hot_cold: List,
    /// Blocks that ever came to `hot_cold`. Load and store, not one operation: two
    /// threads on one CPU may stamp two blocks alike, which blurs the LRU order, no more.
    arrivals: AtomicU32,
    /// What `arrivals` was at the last look.
    looked: AtomicU32,
}

impl Lists {
    /// Stamps an entry as the newest here.
    #[inline]
    pub(crate) fn stamp(&self, entry: Entry) -> Entry {
        let stamp = self.arrivals().wrapping_add(1);
        self.arrivals.store(stamp, Relaxed);
        Entry { stamp: stamp as u16, ..entry }
    }

    #[inline]
    pub(crate) fn arrivals(&self) -> u32 {
        self.arrivals.load(Relaxed)
    }

    /// Blocks that came since the last such look. This is one.
    pub(crate) fn arrived_since_look(&self) -> u32 {
        let arrivals = self.arrivals();
        let looked = self.looked.load(Relaxed);
        self.looked.store(arrivals, Relaxed);
        arrivals.wrapping_sub(looked)
    }

    /// The newest stamp.
    #[inline]
    pub(crate) fn newest(&self) -> u16 {
        self.arrivals() as u16
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(lists: &Lists, page: u32) -> Entry {
        lists.stamp(Entry::new(PageId(page), Held::Mixed, Tick::at(0)))
    }

    #[test]
    fn hottest_is_the_last_freed_and_coldest_the_first() {
        let lists = Lists::default();
        for page in [7, 3, 9] {
            lists.hot_cold.push(entry(&lists, page), SLOTS).unwrap();
        }

        let hottest = lists.hot_cold.take_hottest(lists.newest(), |_| true).unwrap();
        let coldest = lists.hot_cold.take_coldest(lists.newest(), |_| true).unwrap();

        assert_eq!((hottest.first, coldest.first), (PageId(9), PageId(7)));
    }

    #[test]
    fn lru_order_survives_the_wrap_of_the_stamp() {
        let lists = Lists::default();
        lists.arrivals.store(u16::MAX as u32, Relaxed);
        for page in [1, 2] {
            lists.hot_cold.push(entry(&lists, page), SLOTS).unwrap();
        }

        let hottest = lists.hot_cold.take_hottest(lists.newest(), |_| true).unwrap();

        assert_eq!(hottest.first, PageId(2));
    }

    #[test]
    fn a_full_list_hands_the_entry_back() {
        let lists = Lists::default();
        for page in 0..SLOTS as u32 {
            lists.zero.push(entry(&lists, page), SLOTS).unwrap();
        }
        let extra = entry(&lists, 99);
        assert_eq!(lists.zero.push(extra, SLOTS), Err(extra));
    }

    proptest! {
        #[test]
        fn entries_survive_packing(page in 0u32..1 << 28, zero: bool, stamp: u16, tick: u16) {
            let held = if zero { Held::Zero } else { Held::Mixed };
            let entry = Entry { first: PageId(page), held, stamp, tick };
            prop_assert_eq!(Entry::unpack(entry.pack()), Some(entry));
        }
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    /// Two threads push and take on one list: no block is lost, none is taken twice.
    #[test]
    fn no_block_is_lost_or_taken_twice() {
        loom::model(|| {
            let list = Arc::new(List::default());
            list.push(Entry::new(PageId(1), Held::Mixed, Tick::at(0)), 2).unwrap();
            let other = {
                let list = list.clone();
                thread::spawn(move || {
                    let mut got = Vec::new();
                    got.extend(list.take(|_| true).map(|e| e.first.0));
                    let pushed = Entry::new(PageId(2), Held::Mixed, Tick::at(0));
                    got.extend(list.push(pushed, 2).err().map(|e| e.first.0));
                    got
                })
            };
            let mut got: Vec<u32> =
                list.take_hottest(0, |_| true).map(|e| e.first.0).into_iter().collect();
            got.extend(other.join().unwrap());
            got.extend(list.entries().map(|e| e.first.0));
            got.sort_unstable();
            assert_eq!(got, [1, 2]);
        });
    }
}
