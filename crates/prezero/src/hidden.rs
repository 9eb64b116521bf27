//! Idle memory that neither the child of a fork nor a core dump gets.
//!
//! A child has no use for what its parent's zone has free, and to copy its page tables takes
//! most of a fork: 1 GiB in small pages 2 ms, and each page costs the parent a fault and a copy
//! more when it is used again while the child lives. So before a fork free runs of huge blocks
//! are *hidden* (`MADV_WIPEONFORK`), and from core dumps too (`MADV_DONTDUMP`) once they have
//! been idle for a while. They stay so until somebody takes a part of them, who has the huge
//! blocks that he takes shown again first.
//!
//! One bit for each huge block says that it may be hidden. **What is handed out is never
//! hidden**, or its owner's child would find zeroes in it:
//! - who hides has taken the run out of the buddy, whole, sets its bits, and then puts it back;
//! - who takes a part of a huge block of which the bit is set has it shown before he hands the
//!   part out, and clears the bit then. Several may at once. Nobody hides it meanwhile, since
//!   it is not whole until all of them have given their parts back.
//!
//! So a bit may be set where nothing is hidden, never the other way round. A thread that the
//! child of a fork has lost may have been anywhere in this: the child's bits are as good as its
//! parent's. That also holds for a child that was made without libc.

use prezero_sys::memory::{Errno, Meta};

use crate::backing::{Backing, Hide};
use crate::page::{HUGE, HUGE_ORDER, PageId};
use crate::state::PageState;
use crate::stats::Counter;
use crate::sync::{
    AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed},
};
use crate::zone::Zone;

/// A shorter run (8 MiB) is copied in about the time that it takes to hide it, 5 us.
const LEAST: u32 = 4;
/// Huge blocks that are out of circulation at once while an idle thread hides them (64 MiB):
/// it may lose its CPU in the middle.
const AT_ONCE: u32 = 32;

/// See the module.
pub(crate) struct Hidden {
    bits: Meta<AtomicU64>,
    /// Whether anything was ever hidden.
    ever: AtomicU32,
}

impl Hidden {
    /// Nothing hidden, of `huge` huge blocks.
    pub(crate) fn new(huge: u32) -> Result<Hidden, Errno> {
        Ok(Hidden { bits: Meta::new(huge.div_ceil(u64::BITS) as usize)?, ever: AtomicU32::new(0) })
    }

    fn has(&self, huge: u32) -> bool {
        let word = self.bits.get((huge / u64::BITS) as usize);
        word.is_some_and(|word| word.load(Acquire) >> (huge % u64::BITS) & 1 != 0)
    }

    fn set(&self, from: u32, to: u32) {
        self.ever.store(1, Relaxed);
        each_word(from, to, |at, mask| {
            self.bits[at].fetch_or(mask, AcqRel);
        });
    }

    fn clear(&self, from: u32, to: u32) {
        each_word(from, to, |at, mask| {
            self.bits[at].fetch_and(!mask, AcqRel);
        });
    }
}

/// The words of a range of bits, with the bits of it in each.
fn each_word(from: u32, to: u32, mut each: impl FnMut(usize, u64)) {
    let mut at = from;
    while at < to {
        let end = (at / u64::BITS + 1) * u64::BITS;
        let n = end.min(to) - at;
        each((at / u64::BITS) as usize, u64::MAX >> (u64::BITS - n) << (at % u64::BITS));
        at += n;
    }
}

/// Maximal parts of `from..to` whose members all fit.
fn stretches(from: u32, to: u32, fits: impl Fn(u32) -> bool) -> impl Iterator<Item = (u32, u32)> {
    let mut at = from;
    std::iter::from_fn(move || {
        let start = (at..to).find(|&huge| fits(huge))?;
        at = (start..to).find(|&huge| !fits(huge)).unwrap_or(to);
        Some((start, at))
    })
}

impl<B: Backing> Zone<B> {
    /// Hides idle memory from the child of a fork that is about to begin.
    pub(crate) fn hide_from_child(&self) {
        self.hide_idle(Hide::FromChildren, u32::MAX, |huge| !self.hidden.has(huge));
    }

    /// Hides from core dumps too what idles.
    pub(crate) fn hide_from_dumps(&self) {
        self.hide_idle(Hide::FromChildrenAndDumps, AT_ONCE, |_| true);
    }

    fn hide_idle(&self, whom: Hide, at_once: u32, wanted: impl Fn(u32) -> bool) {
        if self.stock.resident() < LEAST << HUGE_ORDER {
            return;
        }
        let resident = |huge: u32| self.freed_at[huge as usize].load(Relaxed) != 0;
        for run in self.buddy.runs(1) {
            let wanted = |huge| resident(huge) && wanted(huge);
            for (from, to) in stretches(run.huge, run.huge + run.len, wanted) {
                let joins = self.hidden.has(to) || from > 0 && self.hidden.has(from - 1);
                if to - from < LEAST && !joins {
                    continue;
                }
                for part in (from..to).step_by(at_once as usize) {
                    self.hide(whom, part, to.min(part.saturating_add(at_once)));
                }
            }
        }
    }

    /// Hides these huge blocks, if they are all free.
    fn hide(&self, whom: Hide, from: u32, to: u32) {
        let (first, pages) = (PageId(from << HUGE_ORDER), (to - from) << HUGE_ORDER);
        if !self.buddy.take_run(first, pages) {
            return;
        }
        self.hidden.set(from, to);
        match self.memory.backing().hide(from as usize * HUGE, bytes_of(from, to), whom) {
            Ok(()) => {}
            Err(error) => {
                self.cpu().counters.bump(Counter::BackingErrors);
                if error != Errno::NOMEM {
                    self.hidden.clear(from, to); // a kernel that cannot, nor show anything
                }
            }
        }
        self.buddy.put_run(first, pages);
    }

    /// To be called with what was taken out of the buddy before it is handed out. False if it
    /// must not be: the kernel would not show it.
    #[inline]
    pub(crate) fn show(&self, first: PageId, pages: u32) -> bool {
        self.hidden.ever.load(Relaxed) == 0 || self.show_hidden(first, pages)
    }

    fn show_hidden(&self, first: PageId, pages: u32) -> bool {
        let (from, to) = (first.huge() as u32, first.plus(pages - 1).huge() as u32 + 1);
        stretches(from, to, |huge| self.hidden.has(huge)).all(|(from, to)| {
            let shown = self.memory.backing().show(from as usize * HUGE, bytes_of(from, to));
            match shown {
                Ok(()) => self.hidden.clear(from, to),
                Err(_) => self.cpu().counters.bump(Counter::BackingErrors),
            }
            shown.is_ok()
        })
    }

    /// In the child of a fork: what was hidden is absent. The bits stay, and so does what the
    /// kernel does with it in a child of this one.
    pub(crate) fn forget_hidden(&self) {
        if self.hidden.ever.load(Relaxed) == 0 {
            return;
        }
        for run in self.buddy.runs(1) {
            for (from, to) in stretches(run.huge, run.huge + run.len, |huge| self.hidden.has(huge))
            {
                let (first, pages) = (PageId(from << HUGE_ORDER), (to - from) << HUGE_ORDER);
                // A bit alone does not prove that it was; after this it does not matter.
                if self.memory.release(first, pages).is_ok() {
                    self.stock.sub(self.states.tally(first, pages));
                    self.states.set(first, pages, PageState::Absent);
                    (from..to).for_each(|huge| self.freed_at[huge as usize].store(0, Relaxed));
                }
            }
        }
    }
}

fn bytes_of(from: u32, to: u32) -> usize {
    (to - from) as usize * HUGE
}
