//! A size that hands know, as one word: what an owner remembers of his block, so that giving it
//! back takes one look at that word.
//!
//! | bits | |
//! |---|---|
//! | 8 and up | pages |
//! | 7, 6 | one of the two is set: whether the time is asked when the block comes back |
//! | 5 | the block was handed out as zero, and is counted when it comes back |
//! | 0 to 4 | the class |

use crate::cpu::list::{CLASSES, Class, HOLDING};
use crate::units::GRANULE;
use crate::units::PAGE;

/// Hands of a CPU, one for each class, and room to a power of two: an index that is cut to
/// size needs no check.
pub(crate) const HANDS: usize = 32;
const _: () = assert!(CLASSES <= HANDS);

/// From this many pages on (512 KiB) the time is asked when a block comes and goes: 25 ns,
/// against 8 us to clear it. The tick that scrubd turns is up to a nap old, and a block that
/// looks older than it is would be taken for one that nobody will ask for soon.
pub(crate) const CLOCKED_PAGES: u32 = 128;

/// See the module; never 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HandSize(u32);

const PAGES_SHIFT: u32 = 8;
/// One of the two is set.
const CLOCKED: u32 = 1 << 6;
const UNCLOCKED: u32 = 1 << 7;
/// In the word of a block that was handed out as zero, and must be counted when it comes back.
const LENT: u32 = 1 << 5;
const _: () = assert!(HANDS as u32 <= LENT);
const _: () = assert!(LENT < CLOCKED && CLOCKED < UNCLOCKED);

/// The size that holds a number of granules, less one.
const SIZES: [HandSize; HOLDING.len()] = {
    let mut table = [HandSize(0); HOLDING.len()];
    let mut at = 0;
    while at < table.len() {
        table[at] = HandSize::of(HOLDING[at]);
        at += 1;
    }
    table
};

impl HandSize {
    pub(crate) const fn of(class: Class) -> HandSize {
        HandSize::new(class.pages(), class.index() as u32)
    }

    const fn new(pages: u32, which: u32) -> HandSize {
        let clocked = if pages >= CLOCKED_PAGES { CLOCKED } else { UNCLOCKED };
        HandSize(pages << PAGES_SHIFT | clocked | which)
    }

    /// A word has this bit or the one above it.
    pub const LOWEST_BIT: u32 = CLOCKED;

    /// Whether a word of which the low byte may say something else is one of ours.
    #[inline(always)]
    pub fn is_word(word: u32) -> bool {
        word & (CLOCKED | UNCLOCKED) != 0
    }

    /// The largest, in bytes.
    pub const MOST: usize = SIZES.len() * GRANULE as usize * PAGE;

    /// The smallest that holds `bytes`.
    pub fn holding(bytes: usize) -> Option<HandSize> {
        let granules_less_one = bytes.wrapping_sub(1) / (GRANULE as usize * PAGE);
        SIZES.get(granules_less_one).copied()
    }

    /// As [`holding`](HandSize::holding).
    ///
    /// # Safety
    /// `bytes` is 1 to [`MOST`](HandSize::MOST).
    #[allow(unsafe_code)]
    #[inline(always)]
    pub unsafe fn holding_unchecked(bytes: usize) -> HandSize {
        let granules_less_one = bytes.wrapping_sub(1) / (GRANULE as usize * PAGE);
        // SAFETY: the caller's promise.
        unsafe { *SIZES.get_unchecked(granules_less_one) }
    }

    /// The word, to be remembered.
    #[inline(always)]
    pub fn word(self) -> u32 {
        self.0
    }

    /// What was remembered, if it is one that the hand takes and that is all: no time to be asked, and
    /// nothing to be counted.
    #[inline(always)]
    pub fn remembered_plainly(word: u32) -> Option<HandSize> {
        (word & UNCLOCKED != 0).then_some(HandSize(word))
    }

    /// What was remembered, and whether it was [lent](crate::Zone::lend); `None` for a word of which the low byte is
    /// below [`LOWEST_BIT`](Self::LOWEST_BIT).
    #[inline]
    pub fn remembered(word: u32) -> Option<(HandSize, bool)> {
        let size = HandSize::new(word >> PAGES_SHIFT, word % HANDS as u32);
        HandSize::is_word(word).then_some((size, word & LENT != 0))
    }

    /// The word of a block of this size that was [lent](crate::Zone::lend): never one that is [remembered
    /// plainly](Self::remembered_plainly), which costs that no instruction more.
    #[inline(always)]
    pub fn lent_word(self) -> u32 {
        self.0 & !UNCLOCKED | CLOCKED | LENT
    }

    pub(crate) fn pages(self) -> u32 {
        self.0 >> PAGES_SHIFT
    }

    #[inline(always)]
    pub(crate) fn is_clocked(self) -> bool {
        self.0 & UNCLOCKED == 0
    }

    #[inline(always)]
    pub(crate) fn which(self) -> usize {
        self.0 as usize % HANDS
    }
}
