//! A bit for each huge block, changed and searched a word at a time.

use std::ops::Range;

use prezero_sys::memory::Errno;

use crate::sync::{
    AtomicU64, Meta,
    Ordering::{AcqRel, Acquire},
};

pub(crate) struct Bits(Meta<AtomicU64>);

impl Bits {
    /// `n` bits, all clear.
    pub(crate) fn new(n: u32) -> Result<Bits, Errno> {
        Ok(Bits(Meta::new(n.div_ceil(u64::BITS) as usize)?))
    }

    /// Whether a bit is set; false for one that there is not.
    pub(crate) fn has(&self, at: u32) -> bool {
        at < self.len() && self.word(at / u64::BITS) >> (at % u64::BITS) & 1 != 0
    }

    /// Whether any bit of a range is set.
    #[inline]
    pub(crate) fn has_any(&self, range: Range<u32>) -> bool {
        spans(range).any(|(at, mask)| self.word(at) & mask != 0)
    }

    /// Sets a range.
    pub(crate) fn set(&self, range: Range<u32>) {
        for (at, mask) in spans(range) {
            // Most are set already, and a load takes the cache line from no other CPU.
            if self.word(at) & mask != mask {
                self.0[at as usize].fetch_or(mask, AcqRel);
            }
        }
    }

    /// Clears a range.
    pub(crate) fn clear(&self, range: Range<u32>) {
        for (at, mask) in spans(range) {
            self.0[at as usize].fetch_and(!mask, AcqRel);
        }
    }

    /// The maximal runs of set bits in a range, as they are when looked at.
    pub(crate) fn runs(&self, range: Range<u32>) -> impl Iterator<Item = Range<u32>> {
        self.runs_turned(range, 0)
    }

    /// The maximal runs of bits that are not set, likewise.
    pub(crate) fn gaps(&self, range: Range<u32>) -> impl Iterator<Item = Range<u32>> {
        self.runs_turned(range, u64::MAX)
    }

    fn runs_turned(&self, range: Range<u32>, turn: u64) -> impl Iterator<Item = Range<u32>> {
        let (mut at, end) = (range.start, range.end);
        std::iter::from_fn(move || {
            let start = self.seek(at, end, turn)?;
            at = self.seek(start, end, !turn).unwrap_or(end);
            Some(start..at)
        })
    }

    /// The first set bit at or after `at`, of the map with every word turned by `turn`.
    fn seek(&self, mut at: u32, end: u32, turn: u64) -> Option<u32> {
        while at < end {
            let word = (self.word(at / u64::BITS) ^ turn) >> (at % u64::BITS);
            if word != 0 {
                let found = at + word.trailing_zeros();
                return (found < end).then_some(found);
            }
            at = (at / u64::BITS + 1) * u64::BITS;
        }
        None
    }

    fn word(&self, at: u32) -> u64 {
        self.0[at as usize].load(Acquire)
    }

    fn len(&self) -> u32 {
        self.0.len() as u32 * u64::BITS
    }
}

/// The words of a range, each with the mask of its bits that belong to it.
pub(crate) fn spans(range: Range<u32>) -> impl Iterator<Item = (u32, u64)> {
    let (start, end) = (range.start, range.end.max(range.start));
    let last = if start < end { end.div_ceil(u64::BITS) } else { 0 };
    (start / u64::BITS..last).map(move |at| {
        let low = start.saturating_sub(at * u64::BITS);
        let high = (end - at * u64::BITS).min(u64::BITS);
        (at, u64::MAX << low & u64::MAX >> (u64::BITS - high))
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const N: u32 = 200;

    proptest! {
        #[test]
        fn bits_are_those_of_a_plain_vector(
            changes in prop::collection::vec((0..N, 0..N, any::<bool>()), 0..30),
            (from, to) in (0..N, 0..N),
        ) {
            let bits = Bits::new(N).unwrap();
            let mut model = vec![false; N as usize];
            for (from, len, to) in changes {
                let range = from..(from + len).min(N);
                model[range.start as usize..range.end as usize].fill(to);
                if to { bits.set(range) } else { bits.clear(range) }
            }
            prop_assert!((0..N).all(|at| bits.has(at) == model[at as usize]));
            prop_assert_eq!(bits.has_any(from..to), (from..to).any(|at| model[at as usize]));
            let found: Vec<u32> = bits.runs(from..to).flatten().collect();
            let expected: Vec<u32> = (from..to).filter(|&at| model[at as usize]).collect();
            prop_assert_eq!(found, expected);
            let found: Vec<u32> = bits.gaps(from..to).flatten().collect();
            let expected: Vec<u32> = (from..to).filter(|&at| !model[at as usize]).collect();
            prop_assert_eq!(found, expected);
            let gaps = bits.runs(from..to).zip(bits.runs(from..to).skip(1));
            prop_assert!(gaps.into_iter().all(|(one, next)| one.end < next.start), "maximal");
        }
    }
}
