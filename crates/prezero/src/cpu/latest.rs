//! The block that a CPU freed last of those that no list keeps, handed out next while it is hot.
//!
//! Beyond the lists the pool returns the lowest zero block. For a program that frees large blocks and asks for them
//! again at once this is the wrong block. While the program works on one block scrubd clears the other on another
//! CPU, past the cache, and the program trades a block in its own cache for a zero block in memory. So such a
//! request takes the block freed last, where hot beats zero (`clear/choice.rs`). The request is no demand: scrubd
//! could not have served it in time.
//!
//! Moved by: `prezero bench busy`.
//!
//! **Accepted race.** The word is a hint that any thread may overwrite; the block that it names is taken out of the
//! buddy as any other run, or not.

use crate::sync::{AtomicU64, Ordering::Relaxed};
use crate::units::{PageId, Span};

/// First page and length of a block; 0: none. All-zero bytes are none.
#[derive(Debug)]
pub(crate) struct Latest(AtomicU64);

impl Latest {
    /// Notes the block freed last.
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
