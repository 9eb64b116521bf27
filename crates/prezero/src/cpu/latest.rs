//! The block that a CPU freed last of those that no list keeps, handed out next while it is hot.
//!
//! Beyond the lists a request takes the lowest block that will do, zero rather than dirty. A program that
//! frees large blocks and asks for them again at once then loses by what scrubd does for it: while it works on one
//! block another has rested, is cleared on another CPU, and is zero and far away the next time, whereas the one just
//! freed lies in this CPU's cache. On a CPU with 1 MiB of L2 and 32 MiB of L3, microseconds to allocate,
//! write 16 lines of each page and free, with as much again free: 4 MiB 58 from what is hot, 74 with scrubd in
//! between, 8 MiB 121 and 168, 16 MiB 373 and 558 (`bench/busy.sh`). So such a request takes what was freed a
//! moment before, where hot beats zero (`clear/choice.rs`), and makes no demand: nobody could have cleared that.
//!
//! **Accepted race.** The word is a hint that anybody may overwrite; what it names is taken out of the
//! buddy as any other run is, or not.

use crate::sync::{AtomicU64, Ordering::Relaxed};
use crate::units::{PageId, Span};

/// First page and length of a block; 0: none. All-zero bytes are none.
#[derive(Debug)]
pub(crate) struct Latest(AtomicU64);

impl Latest {
    /// What was freed last.
    pub(crate) fn note(&self, span: Span) {
        let Span { first, pages } = span;
        self.0.store(u64::from(first.0) << 32 | u64::from(pages), Relaxed);
    }

    /// First page and length; 0: none.
    pub(crate) fn block(&self) -> (PageId, u32) {
        let word = self.0.load(Relaxed);
        (PageId((word >> 32) as u32), word as u32)
    }
}
