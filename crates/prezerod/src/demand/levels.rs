//! How many inodes had to lie ready for each request: a histogram whose largest few can be left out.

use serde::{Deserialize, Serialize};

/// Numbers up to here are told apart exactly, larger ones to an eighth.
/// Fixed: a layout.
const EXACT: usize = 16;
const STEPS: usize = 8;
/// Larger numbers count as this one.
/// Fixed: a layout.
const MOST: u64 = (1 << 16) - 1;
const BINS: usize = EXACT + (16 - EXACT.ilog2() as usize) * STEPS;

const _: () = assert!(bin(MOST) == BINS - 1 && largest(BINS - 1) == MOST);

/// See the module. Bins that are not empty are saved: which, and how many requests each has.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "Vec<(u16, u32)>", into = "Vec<(u16, u32)>")]
pub(super) struct Levels {
    counts: [u32; BINS],
    all: u32,
}

impl Levels {
    /// Of no request.
    pub const NONE: Levels = Levels { counts: [0; BINS], all: 0 };

    /// Whether no request counts.
    pub fn is_empty(&self) -> bool {
        self.all == 0
    }

    /// A request for which `inodes` had to lie ready.
    pub fn add(&mut self, inodes: u64) {
        // A window with more requests than fit learns nothing new.
        if self.all < u32::MAX {
            self.counts[bin(inodes)] += 1;
            self.all += 1;
        }
    }

    /// How many requests there were.
    pub fn requests(&self) -> u32 {
        self.all
    }

    /// Takes one back; false: there is none such.
    pub fn remove(&mut self, inodes: u64) -> bool {
        let count = &mut self.counts[bin(inodes)];
        let there = *count > 0;
        *count -= u32::from(there);
        self.all = self.all.saturating_sub(u32::from(there));
        there
    }

    /// Adds the requests of others.
    pub fn join(&mut self, others: &Levels) {
        for (own, other) in self.counts.iter_mut().zip(others.counts) {
            *own = own.saturating_add(other);
        }
        self.all = self.all.saturating_add(others.all);
    }

    /// The least number that is enough for all requests but one in `misses`.
    pub fn enough(&self, misses: u32) -> u64 {
        let mut spare = self.all / misses;
        for (bin, &count) in self.counts.iter().enumerate().rev() {
            match spare.checked_sub(count) {
                Some(left) => spare = left,
                None => return largest(bin),
            }
        }
        0
    }
}

impl From<Levels> for Vec<(u16, u32)> {
    fn from(levels: Levels) -> Vec<(u16, u32)> {
        (0..).zip(levels.counts).filter(|(_, count)| *count > 0).collect()
    }
}

impl TryFrom<Vec<(u16, u32)>> for Levels {
    type Error = &'static str;

    fn try_from(counts: Vec<(u16, u32)>) -> Result<Levels, &'static str> {
        let mut levels = Levels::NONE;
        for (bin, count) in counts {
            *levels.counts.get_mut(usize::from(bin)).ok_or("no such bin")? = count;
            levels.all = levels.all.saturating_add(count);
        }
        Ok(levels)
    }
}

const fn bin(inodes: u64) -> usize {
    if inodes < EXACT as u64 {
        return inodes as usize;
    }
    let inodes = if inodes < MOST { inodes } else { MOST };
    let octave = inodes.ilog2();
    let step = (inodes >> (octave - STEPS.ilog2())) as usize - STEPS;
    EXACT + (octave - EXACT.ilog2()) as usize * STEPS + step
}

/// The largest number of a bin.
const fn largest(bin: usize) -> u64 {
    if bin < EXACT {
        return bin as u64;
    }
    let (octave, step) = ((bin - EXACT) / STEPS, (bin - EXACT) % STEPS);
    (((STEPS + step + 1) as u64) << (octave as u32 + EXACT.ilog2() - STEPS.ilog2())) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_numbers_are_exact_and_large_ones_never_too_small_by_an_eighth_at_most() {
        for inodes in 0..=MOST {
            let told = largest(bin(inodes));
            assert!(told >= inodes && told - inodes <= inodes / STEPS as u64, "{inodes}: {told}");
            assert!(inodes >= EXACT as u64 || told == inodes, "{inodes}: {told}");
        }
        assert_eq!(largest(bin(u64::MAX)), MOST);
    }

    #[test]
    fn all_but_one_in_so_many_find_enough() {
        let mut levels = Levels::NONE;
        assert!(levels.is_empty() && levels.enough(100) == 0);
        (1..=10).for_each(|level| levels.add(level));
        assert_eq!(levels.enough(100), 10, "of few requests the largest counts");
        let mut others = Levels::NONE;
        (0..289).for_each(|_| others.add(1));
        levels.join(&others);
        assert_eq!(levels.enough(100), 8, "two of 299 may miss");
        assert_eq!(levels.enough(20), 1, "fourteen may");
    }
}
