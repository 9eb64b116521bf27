//! Hot or zero: whether a request gets a block that was freed a moment ago, cleared in place, or one that scrubd made
//! zero before.
//!
//! A hot block and its clear stay in the private cache, where the owner finds the lines. A zero block lies where scrubd
//! left it. So the hot one wins while half of a private cache holds it, unless the owner will touch little of it. A zero
//! block that the CPU remembers comes before both (`zone/request.rs`).

use crate::clear::Use;
use crate::clear::clearing::Clearing;
use crate::units::PAGE;

/// Whether a hot block of `pages` beats a zero one that is cold.
#[inline]
pub(crate) fn hot_wins(clearing: &Clearing, pages: u32, first_use: Use) -> bool {
    first_use != Use::Sparse && clearing.stays_private(pages as usize * PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hot_block_wins_while_half_a_private_cache_holds_it_and_little_is_not_touched() {
        for (l2, most_kib) in [(2 << 20, 1024), (512 << 10, 256)] {
            let clearing = Clearing::new(None, l2);
            let wins = |kib: usize, first_use| {
                hot_wins(&clearing, (kib << 10).div_ceil(PAGE) as u32, first_use)
            };
            assert!(wins(64, Use::Unknown) && wins(most_kib, Use::Unknown));
            assert!(!wins(most_kib + 4, Use::Unknown));
            assert!(!wins(64, Use::Sparse));
        }
    }
}
