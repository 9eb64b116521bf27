//! Sets of small numbers: which slots are in the pool, and which pages of a slot were touched.
//!
//! A slot that is in the pool is a bit of one [`Bits`]. Taking the bit hands out a [`Held`], which is the right to the
//! slot's memory and record; putting it back gives that right away.

use std::ops::Range;
#[cfg(not(loom))]
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

#[cfg(loom)]
use loom::sync::atomic::AtomicU64;

/// A slot in hand. There is one for a slot at most: [`Bits::take`] makes it of the bit, and [`Bits::put`] ends it. A slot's
/// bit is [marked](Bits::mark) once, in one set, when its pool is made.
#[derive(Debug)]
pub(crate) struct Held(usize);

impl Held {
    /// The holder's right, given up as a number and taken up again.
    ///
    /// # Safety
    /// The `Held` of that slot was forgotten, and none was made of it since.
    pub(crate) unsafe fn again(slot: usize) -> Held {
        Held(slot)
    }

    /// The slot's number.
    pub(crate) fn slot(&self) -> usize {
        self.0
    }
}

/// A set of numbers below a fixed one.
#[derive(Debug)]
pub(crate) struct Bits {
    words: Box<[AtomicU64]>,
}

impl Bits {
    /// An empty set of numbers below `most`.
    pub(crate) fn new(most: usize) -> Bits {
        Bits { words: (0..most.div_ceil(64)).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Takes a slot, if it is here.
    pub(crate) fn take(&self, slot: usize) -> Option<Held> {
        let (word, bit) = (&self.words[slot / 64], 1 << (slot % 64));
        // A look first: the line stays shared where the bit is gone.
        let is_here = word.load(Ordering::Relaxed) & bit != 0;
        // Acquire: what the last holder wrote of and into the slot comes first.
        (is_here && word.fetch_and(!bit, Ordering::Acquire) & bit != 0).then_some(Held(slot))
    }

    /// Takes any slot.
    pub(crate) fn take_any(&self) -> Option<Held> {
        self.words.iter().enumerate().find_map(|(at, word)| {
            let mut left = word.load(Ordering::Relaxed);
            while left != 0 {
                let held = self.take(at * 64 + left.trailing_zeros() as usize);
                if held.is_some() {
                    return held;
                }
                left &= left - 1;
            }
            None
        })
    }

    /// Puts a slot back, for the next to take.
    pub(crate) fn put(&self, held: Held) {
        // Release: see `take`.
        let before = self.words[held.0 / 64].fetch_or(1 << (held.0 % 64), Ordering::Release);
        debug_assert_eq!(before & 1 << (held.0 % 64), 0, "slot {} was put back twice", held.0);
    }

    /// Whether a slot is here at this moment.
    pub(crate) fn has(&self, slot: usize) -> bool {
        self.words[slot / 64].load(Ordering::Relaxed) & 1 << (slot % 64) != 0
    }

    /// How many there are at this moment.
    pub(crate) fn count(&self) -> usize {
        self.words.iter().map(|word| word.load(Ordering::Relaxed).count_ones() as usize).sum()
    }

    /// Adds a number. For what one holder alone writes, as are the next two.
    pub(crate) fn mark(&self, number: usize) {
        let word = &self.words[number / 64];
        word.store(word.load(Ordering::Relaxed) | 1 << (number % 64), Ordering::Relaxed);
    }

    /// Takes a number out; whether it was there.
    pub(crate) fn unmark(&self, number: usize) -> bool {
        let (word, bit) = (&self.words[number / 64], 1 << (number % 64));
        let before = word.load(Ordering::Relaxed);
        word.store(before & !bit, Ordering::Relaxed);
        before & bit != 0
    }

    /// Takes out the numbers of `part`, whole words of 64: each from its first on, in order.
    pub(crate) fn drain(&self, part: Range<usize>, mut each: impl FnMut(usize)) {
        for (at, word) in self.words[part.start / 64..part.end / 64].iter().enumerate() {
            let mut left = word.load(Ordering::Relaxed);
            word.store(0, Ordering::Relaxed);
            while left != 0 {
                each(at * 64 + left.trailing_zeros() as usize);
                left &= left - 1;
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn what_is_drained_was_marked(
            ops in prop::collection::vec((0usize..300, prop::bool::weighted(0.8)), 0..200),
        ) {
            let (bits, mut model) = (Bits::new(300), BTreeSet::new());
            for (number, add) in ops {
                if add {
                    bits.mark(number);
                    model.insert(number);
                } else {
                    prop_assert_eq!(bits.unmark(number), model.remove(&number));
                }
            }
            prop_assert_eq!(bits.count(), model.len());
            let mut drained = Vec::new();
            bits.drain(64..192, |number| drained.push(64 + number));
            prop_assert_eq!(drained, model.range(64..192).copied().collect::<Vec<_>>());
            prop_assert_eq!(bits.count(), model.range(..64).count() + model.range(192..).count());
        }
    }

    #[test]
    fn each_slot_is_taken_once() {
        let bits = Bits::new(130);
        (0..130).for_each(|slot| bits.mark(slot));
        let taken: Vec<_> = std::iter::from_fn(|| bits.take_any()).map(|it| it.slot()).collect();
        assert_eq!(taken, (0..130).collect::<Vec<_>>());
        assert!(bits.take(129).is_none());
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    struct Slots {
        bits: Bits,
        content: Vec<UnsafeCell<u32>>,
    }

    // SAFETY: the bits hand a slot's content to one thread at a time, which is what the model checks.
    #[allow(unsafe_code)]
    unsafe impl Sync for Slots {}

    /// Loom fails where two threads have a slot at once, or one does not see what the last holder wrote.
    #[test]
    fn a_slot_has_one_holder_who_sees_what_the_last_one_wrote() {
        loom::model(|| {
            let content = (0..2).map(|_| UnsafeCell::new(0)).collect();
            let slots = Arc::new(Slots { bits: Bits::new(2), content });
            (0..2).for_each(|slot| slots.bits.mark(slot));
            let threads: Vec<_> = (0..2)
                .map(|thread| {
                    let slots = slots.clone();
                    thread::spawn(move || {
                        for _ in 0..2 {
                            let held = match thread {
                                0 => slots.bits.take(0),
                                _ => slots.bits.take_any(),
                            };
                            if let Some(held) = held {
                                // SAFETY: the slot is in hand; loom reports any other access meanwhile.
                                #[allow(unsafe_code)]
                                slots.content[held.slot()].with_mut(|n| unsafe { *n += 1 });
                                slots.bits.put(held);
                            }
                        }
                    })
                })
                .collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!(slots.bits.count(), 2, "a slot was lost, or put back twice");
        });
    }
}
