//! Free runs of whole huge blocks, lowest address first, whatever their order.
//!
//! A buddy block is as long as its address is aligned, so the buddy alone would give a
//! request of 20 MiB a block of 32 and leave 12 that the next one cannot use: a program
//! that fills blocks of many sizes then occupies, and drags through its caches, twice what
//! it needs (measured: 206 MiB for 95 live ones). Neighbours that are not buddies are as
//! good as one block; first fit by address keeps what is in use together.

use crate::buddy::Buddy;
use crate::page::{HUGE_ORDER, MAX_ORDER, Order};

/// Huge blocks that are looked at together.
const REGION: u32 = 64;

/// Neighbouring huge blocks, all free when they were looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    /// Number of the first.
    pub(crate) huge: u32,
    pub(crate) len: u32,
}

impl Buddy {
    /// The runs of at least `least` huge blocks.
    pub(crate) fn runs(&self, least: u32) -> impl Iterator<Item = Run> {
        let regions = self.regions();
        let mut region = 0;
        let mut mask = if regions > 0 { self.free_huge(0) } else { 0 };
        let mut open = Run { huge: 0, len: 0 };
        std::iter::from_fn(move || {
            while region < regions {
                let base = region * REGION;
                if mask == 0 {
                    region += 1;
                    mask = if region < regions { self.free_huge(region) } else { 0 };
                    continue;
                }
                let from = mask.trailing_zeros();
                let len = (mask >> from).trailing_ones();
                mask = if from + len < REGION { mask & (u64::MAX << (from + len)) } else { 0 };
                // A run goes on where one ended with the region before.
                let run = Run { huge: base + from, len };
                let done = if open.huge + open.len == run.huge {
                    open.len += run.len;
                    None
                } else {
                    Some(std::mem::replace(&mut open, run))
                };
                if let Some(run) = done.filter(|run| run.len >= least) {
                    return Some(run);
                }
            }
            let last = std::mem::replace(&mut open, Run { huge: 0, len: 0 });
            (last.len > 0 && last.len >= least).then_some(last)
        })
    }

    /// Which of the huge blocks of a region are free, one bit each.
    fn free_huge(&self, region: u32) -> u64 {
        let mut free = 0;
        for order in HUGE_ORDER..=MAX_ORDER.get() {
            let Some(order) = Order::new(order).filter(|&order| self.count(order) > 0) else {
                continue;
            };
            let shift = order.get() - HUGE_ORDER;
            let per_region = REGION >> shift;
            if per_region == 0 {
                if self.bits(order, (region * REGION) >> shift, 1) != 0 {
                    return u64::MAX;
                }
                continue;
            }
            let mut bits = self.bits(order, region * per_region, per_region);
            let each = if shift == 6 { u64::MAX } else { (1 << (1 << shift)) - 1 };
            while bits != 0 {
                free |= each << (bits.trailing_zeros() << shift);
                bits &= bits - 1;
            }
        }
        free
    }

    fn regions(&self) -> u32 {
        let orders = (HUGE_ORDER..=MAX_ORDER.get()).filter_map(Order::new);
        orders.map(|order| self.end(order).div_ceil(REGION << HUGE_ORDER)).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::{HUGE_PAGES, PageId};
    use proptest::prelude::*;

    const HUGES: u32 = 5 * REGION + 7;

    proptest! {
        #[test]
        fn runs_are_those_of_a_plain_vector(
            taken in prop::collection::vec((0..HUGES, 1..40u32), 0..40),
            least in 1..20u32,
        ) {
            let buddy = Buddy::new(HUGES * HUGE_PAGES).unwrap();
            buddy.put_run(PageId(0), HUGES * HUGE_PAGES);
            let mut free = vec![true; HUGES as usize];
            for (huge, len) in taken {
                let len = len.min(HUGES - huge);
                let range = huge as usize..(huge + len) as usize;
                if buddy.take_run(PageId(huge << HUGE_ORDER), len << HUGE_ORDER) {
                    free[range].fill(false);
                }
            }

            let mut expected = Vec::new();
            let mut at = 0;
            for run in free.chunk_by(|a, b| a == b) {
                if run[0] && run.len() as u32 >= least {
                    expected.push(Run { huge: at, len: run.len() as u32 });
                }
                at += run.len() as u32;
            }
            prop_assert_eq!(buddy.runs(least).collect::<Vec<_>>(), expected);
        }

        #[test]
        fn a_huge_block_with_a_page_missing_is_no_part_of_a_run(page in 0..8 * HUGE_PAGES) {
            let buddy = Buddy::new(8 * HUGE_PAGES).unwrap();
            buddy.put_run(PageId(0), 8 * HUGE_PAGES);
            prop_assert!(buddy.take_run(PageId(page), 1));
            let broken = page >> HUGE_ORDER;
            prop_assert!(buddy.runs(1).all(|r| broken < r.huge || broken >= r.huge + r.len));
            prop_assert_eq!(buddy.runs(1).map(|r| r.len).sum::<u32>(), 7);
        }
    }
}
