//! How many inodes had to lie ready for each request: a histogram whose largest few can be left out.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Numbers below twice this are told apart exactly, larger ones to one part in this many.
/// Fixed: a bound of the broker's memory.
const STEPS: u64 = 8;
/// Larger numbers count as this one.
/// Fixed: a bound of the broker's memory.
const MOST: u64 = (1 << 16) - 1;

/// See the module: how many requests needed which number.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(from = "Vec<(u64, u32)>", into = "Vec<(u64, u32)>")]
pub(super) struct Levels(BTreeMap<u64, u32>);

impl Levels {
    /// Whether no request counts.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A request for which `inodes` had to lie ready.
    pub fn add(&mut self, inodes: u64) {
        self.join([(inodes, 1)]);
    }

    /// How many requests there were.
    pub fn requests(&self) -> u64 {
        self.0.values().copied().map(u64::from).sum()
    }

    /// Takes one back; false: there is none such.
    pub fn remove(&mut self, inodes: u64) -> bool {
        let Some(count) = self.0.get_mut(&told(inodes)) else { return false };
        *count -= 1;
        self.0.retain(|_, count| *count > 0);
        true
    }

    /// Adds requests of others.
    pub fn join(&mut self, others: impl IntoIterator<Item = (u64, u32)>) {
        for (inodes, requests) in others.into_iter().filter(|(_, requests)| *requests > 0) {
            let count = self.0.entry(told(inodes)).or_default();
            *count = count.saturating_add(requests);
        }
    }

    /// Each number, with how many requests needed it.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u32)> {
        self.0.iter().map(|(inodes, requests)| (*inodes, *requests))
    }

    /// The least number that is enough for all requests but one in `misses`.
    pub fn enough(&self, misses: u64) -> u64 {
        let mut spare = self.requests() / misses;
        let mut largest_first = self.0.iter().rev();
        let enough = largest_first.find(|(_, requests)| {
            let left = spare.checked_sub(u64::from(**requests));
            spare = left.unwrap_or(0);
            left.is_none()
        });
        enough.map_or(0, |(inodes, _)| *inodes)
    }
}

impl From<Levels> for Vec<(u64, u32)> {
    fn from(levels: Levels) -> Vec<(u64, u32)> {
        levels.0.into_iter().collect()
    }
}

impl From<Vec<(u64, u32)>> for Levels {
    fn from(counts: Vec<(u64, u32)>) -> Levels {
        let mut levels = Levels::default();
        levels.join(counts);
        levels
    }
}

/// The number as it is told: never too small.
fn told(inodes: u64) -> u64 {
    let step = 1 << inodes.max(1).ilog2().saturating_sub(STEPS.ilog2());
    (inodes | (step - 1)).min(MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_numbers_are_exact_and_large_ones_never_too_small_by_an_eighth_at_most() {
        for inodes in 0..=MOST {
            let told = told(inodes);
            assert!(told >= inodes && told - inodes <= inodes / STEPS, "{inodes}: {told}");
            assert!(inodes >= 2 * STEPS || told == inodes, "{inodes}: {told}");
        }
        assert_eq!(told(u64::MAX), MOST);
    }

    #[test]
    fn all_but_one_in_so_many_find_enough() {
        let mut levels = Levels::default();
        assert!(levels.is_empty() && levels.enough(100) == 0);
        (1..=10).for_each(|level| levels.add(level));
        assert_eq!(levels.enough(100), 10, "of few requests the largest counts");
        let mut others = Levels::default();
        (0..289).for_each(|_| others.add(1));
        levels.join(others.iter());
        assert_eq!(levels.enough(100), 8, "two of 299 may miss");
        assert_eq!(levels.enough(20), 1, "fourteen may");
        assert!(others.remove(1) && !others.remove(2), "only what was added is taken back");
        assert_eq!(others.requests(), 288);
        levels.remove(10);
        assert_eq!(levels.enough(1000), 9, "one of which there is none any more is forgotten");
    }
}
