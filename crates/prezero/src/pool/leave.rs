//! Address space that the zone gives up for good.
//!
//! A zone reserves as much as it may ever use, which costs nothing until address space is counted. A program that
//! sets `RLIMIT_AS` on itself finds the limit reached already. Then the zone *retreats*: free huge blocks leave it,
//! the highest first, and the kernel may map others there.
//!
//! A block that is *gone* is out of the buddy for ever, so no code of the zone touches it again. Before an address
//! counts as the zone's, [`is_gone`](Pool::is_gone) is asked. The bit is set before the kernel gets the addresses,
//! and never cleared after.

use std::ops::Range;

use prezero_sys::memory::Errno;

use crate::mem::backing::Backing;
use crate::mem::bits::Bits;
use crate::mem::states::PageState;
use crate::pool::Pool;
use crate::pool::hide::pages;
use crate::sync::{AtomicU32, Ordering::Relaxed};
use crate::units::{HUGE, HUGE_ORDER, HUGE_PAGES, PageId, Span};

/// See the module.
pub(crate) struct Gone {
    bits: Bits,
    huge: AtomicU32,
}

impl Gone {
    /// Nothing gone, of `huge` huge blocks.
    pub(crate) fn new(huge: u32) -> Result<Gone, Errno> {
        Ok(Gone { bits: Bits::new(huge)?, huge: AtomicU32::new(0) })
    }

    /// Pages that are gone.
    pub(crate) fn pages(&self) -> u32 {
        self.huge.load(Relaxed) << HUGE_ORDER
    }
}

impl<B: Backing> Pool<B> {
    /// Gives up free address space until the zone has `bytes` left, or as few as the blocks in use
    /// allow.
    pub(crate) fn retreat(&self, bytes: usize) {
        let left = (self.memory.pages - self.gone.pages()) / HUGE_PAGES;
        let excess = left.saturating_sub((bytes / HUGE) as u32);
        let free: u32 = self.buddy.runs(1).map(|run| run.len).sum();
        let mut kept = free.saturating_sub(excess);
        for run in self.buddy.runs(1) {
            let stays = kept.min(run.len);
            kept -= stays;
            if stays < run.len {
                self.give_up(run.huge + stays..run.huge + run.len);
            }
        }
    }

    /// The runs of pages that are the zone's still: the first, and how many.
    pub(crate) fn left(&self) -> impl Iterator<Item = Span> {
        self.gone.bits.gaps(0..self.memory.pages >> HUGE_ORDER).map(|huge| pages(&huge))
    }

    /// Whether a page belongs to others now.
    pub(crate) fn is_gone(&self, page: PageId) -> bool {
        self.gone.bits.has(page.huge() as u32)
    }

    /// Pages that are neither free in the buddy nor gone.
    pub(crate) fn used(&self) -> u32 {
        self.memory.pages.saturating_sub(self.buddy.free()).saturating_sub(self.gone.pages())
    }

    /// Gives up these huge blocks, if they are all free.
    fn give_up(&self, huge: Range<u32>) {
        let span = pages(&huge);
        let Some(run) = self.buddy.take_run(span) else { return };
        let tally = self.states.tally(span);
        self.gone.bits.set(huge.clone());
        if self.memory.give_up(span).is_err() {
            // Too many mappings to split one: all is as it was.
            self.gone.bits.clear(huge);
            self.buddy.put_run(run);
            return;
        }
        // Nothing puts it back.
        let span = run.into_span();
        self.stock.sub(tally);
        self.states.set(span, PageState::Foreign);
        self.gone.huge.fetch_add(huge.end - huge.start, Relaxed);
    }
}
