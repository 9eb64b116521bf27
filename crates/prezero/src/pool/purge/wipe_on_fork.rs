//! Idle memory that the child of a fork does not get.
//!
//! A child has no use for its parent's free memory. The copy of its page tables takes most of a fork, and each page
//! that the parent uses again while the child lives costs a fault and a copy. So before a fork free runs of huge
//! blocks are *wiped on fork* (`MADV_WIPEONFORK`). Memory that has idled for a while is so beforehand, by
//! [`no_dump`](crate::pool::purge::no_dump). Zero stays zero.
//!
//! One bit for each huge block says that it may be wiped. **A block that is handed out is never wiped**, or its owner's
//! child would find zeroes in it:
//! - The thread that advises a run has taken it out of the map, whole, sets its bits, and then puts it back.
//! - The thread that takes a part of a huge block whose bit is set has it kept on fork first, and then clears the bit. Several
//!   threads may do so at once. No thread advises the block meanwhile, since it is not whole until all parts are back.
//!
//! So a bit may be set where nothing is wiped, never the other way round. A thread that the child of a fork has
//! lost may have been anywhere in this, and the child's bits are as good as its parent's. That also holds for a
//! child that was made without libc.

use std::ops::Range;

use prezero_sys::memory::Errno;

use crate::config::ablation::Mechanism;
use crate::map::state::PageState;
use crate::mem::backing::{Advice, Backing};
use crate::mem::bits::Bits;
use crate::pool::Pool;
use crate::pool::purge::{LEAST, joins, pages, parts};
use crate::sync::{AtomicU32, Ordering::Relaxed};
use crate::units::{HUGE_ORDER, Span};

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
        for run in self.map.whole_runs(1, u32::MAX) {
            for shown in self.purge.wiped.bits.gaps(run) {
                self.wipe_used_on_fork(shown, u32::MAX, |_| ());
            }
        }
    }

    /// Whether there is memory worth hiding.
    pub(crate) fn has_much(&self) -> bool {
        self.has(Mechanism::WipeOnFork) && self.map.sums.resident() >= LEAST << HUGE_ORDER
    }

    /// Hides those runs of free huge blocks to which something came since they were hidden, and does something more
    /// with them before others may take them.
    pub(crate) fn wipe_used_on_fork(&self, range: Range<u32>, at_once: u32, more: impl Fn(Span)) {
        for run in self.purge.used.runs(range) {
            if run.len() >= LEAST as usize || joins(&self.purge.wiped.bits, &run) {
                parts(run, at_once).for_each(|part| self.wipe_on_fork(&part, &more));
            }
        }
    }

    /// Hides these huge blocks, if they are all free.
    pub(crate) fn wipe_on_fork(&self, huge: &Range<u32>, more: impl Fn(Span)) {
        let span = pages(huge);
        if let Some(run) = self.map.take(span) {
            self.wipe_taken_on_fork(huge);
            more(span);
            self.map.put(run);
        }
    }

    /// Hides these huge blocks, which the caller took out of the map.
    fn wipe_taken_on_fork(&self, huge: &Range<u32>) {
        self.purge.wiped.ever.store(1, Relaxed);
        self.advise_taken(huge, Advice::WipeOnFork, &self.purge.wiped.bits, huge);
        self.purge.used.clear(huge.clone());
    }

    /// To be called with a run that was taken out of the map before it is handed out. False if it
    /// must not be: the kernel would not show it.
    #[inline]
    pub(crate) fn keep_on_fork(&self, span: Span) -> bool {
        let Span { first, pages } = span;
        let touched = first.huge() as u32..first.plus(pages - 1).huge() as u32 + 1;
        self.dump(&touched) && (!self.purge.wiped.is_used() || self.keep_wiped(touched))
    }

    fn keep_wiped(&self, touched: Range<u32>) -> bool {
        let undo = |huge: &Range<u32>| self.unadvise(huge, Advice::WipeOnFork);
        self.undo_marked(&self.purge.wiped.bits, touched, undo)
    }

    /// In the child of a fork: hidden blocks are absent. The bits stay, and so does what the
    /// kernel does with it in a child of this one.
    pub(crate) fn forget_wiped(&self) {
        if !self.purge.wiped.is_used() {
            return;
        }
        for run in self.map.whole_runs(1, u32::MAX) {
            for huge in self.purge.wiped.bits.runs(run) {
                let span = pages(&huge);
                let Some(run) = self.map.take(span) else { continue };
                // A bit alone does not prove that it was; after this it does not matter.
                if self.memory.release(span).is_ok() {
                    self.map.set(span, PageState::Absent);
                }
                self.map.put(run);
            }
        }
    }
}
