//! Free runs of whole huge blocks, lowest address first.
//!
//! Powers of two would round a large request up to twice its size, and leave the rest to no other request. A
//! program with blocks of many sizes would occupy, and drag through its caches, twice what it needs. First fit by
//! address keeps used memory together.

use crate::pool::buddy::Buddy;

/// Huge blocks that are looked at together.
/// Fixed: the bits of a word.
const REGION: u32 = u64::BITS;
/// Huge blocks after which a run is told, although it may go on.
/// Fixed: two words, so that a region with one free neighbour is told once.
const LONG: u32 = 2 * REGION;

/// Neighbouring huge blocks, all free when they were looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct HugeRun {
    /// Number of the first.
    pub(crate) huge: u32,
    pub(crate) len: u32,
}

impl Buddy {
    /// The runs of at least `least` huge blocks. A long one comes in parts, so that a caller
    /// that needs its beginning alone need not wait for its end; they overlap by what it
    /// takes for every `least` neighbours to lie in one part.
    pub(crate) fn runs(&self, least: u32) -> impl Iterator<Item = HugeRun> {
        self.runs_in_parts(least, LONG)
    }

    /// All runs, each as long as it is.
    pub(crate) fn whole_runs(&self) -> impl Iterator<Item = HugeRun> {
        self.runs_in_parts(1, u32::MAX)
    }

    fn runs_in_parts(&self, least: u32, long: u32) -> impl Iterator<Item = HugeRun> {
        let regions = self.huge_words();
        let mut region = 0;
        let mut mask = if regions > 0 { self.free_huge(0) } else { 0 };
        let mut open = HugeRun { huge: 0, len: 0 };
        std::iter::from_fn(move || {
            loop {
                if open.len >= least.max(long) {
                    let part = open;
                    open = HugeRun { huge: part.huge + part.len - (least - 1), len: least - 1 };
                    return Some(part);
                }
                while mask == 0 && region < regions {
                    region += 1;
                    mask = if region < regions { self.free_huge(region) } else { 0 };
                }
                if mask == 0 {
                    let last = std::mem::replace(&mut open, HugeRun { huge: 0, len: 0 });
                    return Some(last).filter(|run| run.len >= least);
                }
                let from = mask.trailing_zeros();
                let len = (mask >> from).trailing_ones();
                mask = if from + len < REGION { mask & (u64::MAX << (from + len)) } else { 0 };
                // A run goes on where one ended with the region before.
                let run = HugeRun { huge: region * REGION + from, len };
                if open.huge + open.len == run.huge {
                    open.len += run.len;
                } else {
                    let done = std::mem::replace(&mut open, run);
                    if done.len >= least {
                        return Some(done);
                    }
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{HUGE_ORDER, HUGE_PAGES, PageId, Span};
    use proptest::prelude::*;

    const HUGES: u32 = 5 * REGION + 7;

    proptest! {
        #[test]
        fn runs_are_those_of_a_plain_vector(
            taken in prop::collection::vec((0..HUGES, 1..40u32), 0..40),
            least in 1..200u32,
        ) {
            let buddy = Buddy::new(HUGES * HUGE_PAGES).unwrap();
            buddy.put_run(crate::block::Run::taken(Span::new(PageId(0), HUGES * HUGE_PAGES)));
            let mut free = vec![true; HUGES as usize];
            for (huge, len) in taken {
                let len = len.min(HUGES - huge);
                let range = huge as usize..(huge + len) as usize;
                if buddy.take_run(Span::new(PageId(huge << HUGE_ORDER), len << HUGE_ORDER)).is_some() {
                    free[range].fill(false);
                }
            }

            let fits = |at: &u32| free[*at as usize..(*at + least) as usize].iter().all(|&f| f);
            let expected: Vec<u32> = (0..=HUGES - least).filter(fits).collect();
            let places = |run: HugeRun| run.huge..run.huge + run.len + 1 - least;
            prop_assert_eq!(buddy.runs(least).flat_map(places).collect::<Vec<_>>(), expected);
        }

        #[test]
        fn a_huge_block_with_a_page_missing_is_no_part_of_a_run(page in 0..8 * HUGE_PAGES) {
            let buddy = Buddy::new(8 * HUGE_PAGES).unwrap();
            buddy.put_run(crate::block::Run::taken(Span::new(PageId(0), 8 * HUGE_PAGES)));
            prop_assert!(buddy.take_run(Span::new(PageId(page), 1)).is_some());
            let broken = page >> HUGE_ORDER;
            prop_assert!(buddy.runs(1).all(|r| broken < r.huge || broken >= r.huge + r.len));
            prop_assert_eq!(buddy.runs(1).map(|r| r.len).sum::<u32>(), 7);
        }
    }
}
