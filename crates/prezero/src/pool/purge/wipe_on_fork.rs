//! Idle memory that the child of a fork does not get.
//!
//! A child has no use for its parent's free memory. The copy of its page tables takes most of a fork, and each page
//! that the parent uses again while the child lives costs a fault and a copy. So before a fork free runs of huge
//! blocks are *wiped on fork* (`MADV_WIPEONFORK`). Memory that has idled for a while is so beforehand, by
//! [`no_dump`](crate::pool::purge::no_dump). Zero stays zero.
//!
//! One bit for each huge block says that it may be wiped. **A block that is handed out is never wiped**, or its owner's
//! child would find zeroes in it:
//! - The thread that advises a run has taken it out of the buddy, whole, sets its bits, and then puts it back.
//! - The thread that takes a part of a huge block whose bit is set has it kept on fork first, and then clears the bit. Several
//!   threads may do so at once. No thread advises the block meanwhile, since it is not whole until all parts are back.
//!
//! So a bit may be set where nothing is wiped, never the other way round. A thread that the child of a fork has
//! lost may have been anywhere in this, and the child's bits are as good as its parent's. That also holds for a
//! child that was made without libc.

use std::ops::Range;

use prezero_sys::memory::Errno;

use crate::config::ablation::Mechanism;
use crate::count::counters::Counter;
use crate::mem::backing::{Advice, Backing};
use crate::mem::bits::Bits;
use crate::mem::states::PageState;
use crate::pool::Pool;
use crate::sync::{AtomicU32, Ordering::Relaxed};
use crate::units::{HUGE, HUGE_ORDER, PageId, Span};

/// Huge blocks of the shortest run that is hidden. A fork copies a shorter one in the time that the
/// call takes.
/// Moved by: `prezero bench fork`.
pub(crate) const LEAST: u32 = 4;
/// Huge blocks that are out of circulation at once while a thread hides or offers them. The thread
/// may lose its CPU in the middle.
/// Moved by: `prezero bench fork`.
pub(crate) const AT_ONCE: u32 = 32;

/// See the module.
pub(crate) struct WipeOnFork {
    bits: Bits,
    /// Whether anything was ever hidden.
    ever: AtomicU32,
}

impl WipeOnFork {
    /// Nothing hidden, of `huge` huge blocks.
    pub(crate) fn new(huge: u32) -> Result<WipeOnFork, Errno> {
        Ok(WipeOnFork { bits: Bits::new(huge)?, ever: AtomicU32::new(0) })
    }

    fn is_used(&self) -> bool {
        self.ever.load(Relaxed) != 0
    }
}

impl<B: Backing> Pool<B> {
    /// Hides idle memory from the child of a fork that is about to begin.
    pub(crate) fn wipe_idle_on_fork(&self) {
        let everywhere = 0..self.memory.pages >> HUGE_ORDER;
        if !self.has_much() || self.purge.used.runs(everywhere).next().is_none() {
            return;
        }
        for run in self.buddy.runs(1) {
            for shown in self.purge.wiped.bits.gaps(run.huge..run.huge + run.len) {
                self.wipe_used_on_fork(shown, u32::MAX, |_| ());
            }
        }
    }

    /// Whether there is memory worth hiding.
    pub(crate) fn has_much(&self) -> bool {
        self.has(Mechanism::WipeOnFork) && self.stock.resident() >= LEAST << HUGE_ORDER
    }

    /// Hides those runs of free huge blocks to which something came since they were hidden, and does something more
    /// with them before others may take them.
    pub(crate) fn wipe_used_on_fork(&self, range: Range<u32>, at_once: u32, more: impl Fn(Span)) {
        for run in self.purge.used.runs(range) {
            let bits = &self.purge.wiped.bits;
            let joins = bits.has(run.end) || run.start > 0 && bits.has(run.start - 1);
            if run.len() >= LEAST as usize || joins {
                parts(run, at_once).for_each(|part| self.wipe_on_fork(&part, &more));
            }
        }
    }

    /// Hides these huge blocks, if they are all free.
    pub(crate) fn wipe_on_fork(&self, huge: &Range<u32>, more: impl Fn(Span)) {
        let span = pages(huge);
        if let Some(run) = self.buddy.take_run(span) {
            self.wipe_taken_on_fork(huge);
            more(span);
            self.buddy.put_run(run);
        }
    }

    /// Hides these huge blocks, which the caller took out of the buddy.
    fn wipe_taken_on_fork(&self, huge: &Range<u32>) {
        self.purge.wiped.bits.set(huge.clone());
        self.purge.wiped.ever.store(1, Relaxed);
        if self.memory.advise(pages(huge), Advice::WipeOnFork).is_err() {
            self.counters.add_exact(Counter::BackingErrors, 1);
            // A part may be: where the program mapped a file, unseen, the kernel goes no farther.
            let (offset, len) = bytes(huge);
            let shown = self.memory.backing().unadvise(offset, len, Advice::WipeOnFork);
            if !matches!(shown, Err(Errno::NOMEM | Errno::AGAIN)) {
                self.purge.wiped.bits.clear(huge.clone());
            }
        }
        self.purge.used.clear(huge.clone());
    }

    /// To be called with a run that was taken out of the buddy before it is handed out. False if it
    /// must not be: the kernel would not show it.
    #[inline]
    pub(crate) fn keep_on_fork(&self, span: Span) -> bool {
        let Span { first, pages } = span;
        let touched = first.huge() as u32..first.plus(pages - 1).huge() as u32 + 1;
        self.dump(&touched) && (!self.purge.wiped.is_used() || self.keep_wiped(touched))
    }

    fn keep_wiped(&self, touched: Range<u32>) -> bool {
        self.purge.wiped.bits.runs(touched).all(|huge| {
            let (offset, len) = bytes(&huge);
            let shown = self.memory.backing().unadvise(offset, len, Advice::WipeOnFork);
            match shown {
                Ok(()) => self.purge.wiped.bits.clear(huge),
                Err(_) => self.counters.add_exact(Counter::BackingErrors, 1),
            }
            shown.is_ok()
        })
    }

    /// In the child of a fork: hidden blocks are absent. The bits stay, and so does what the
    /// kernel does with it in a child of this one.
    pub(crate) fn forget_wiped(&self) {
        if !self.purge.wiped.is_used() {
            return;
        }
        for run in self.buddy.runs(1) {
            for huge in self.purge.wiped.bits.runs(run.huge..run.huge + run.len) {
                let span = pages(&huge);
                let Some(run) = self.buddy.take_run(span) else { continue };
                // A bit alone does not prove that it was; after this it does not matter.
                if self.memory.release(span).is_ok() {
                    self.stock.sub(self.states.tally(span));
                    self.states.set(span, PageState::Absent);
                    huge.for_each(|huge| self.freed.at[huge as usize].clear());
                }
                self.buddy.put_run(run);
            }
        }
    }
}

/// A range in parts of at most `most`.
pub(crate) fn parts(range: Range<u32>, most: u32) -> impl Iterator<Item = Range<u32>> {
    let end = range.end;
    range.step_by(most as usize).map(move |from| from..end.min(from.saturating_add(most)))
}

/// The pages of huge blocks.
pub(crate) fn pages(huge: &Range<u32>) -> Span {
    Span::new(PageId(huge.start << HUGE_ORDER), (huge.end - huge.start) << HUGE_ORDER)
}

pub(crate) fn bytes(huge: &Range<u32>) -> (usize, usize) {
    (huge.start as usize * HUGE, (huge.end - huge.start) as usize * HUGE)
}
