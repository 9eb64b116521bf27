//! Which blocks are faulted in huge pages, and which in small ones.
//!
//! A huge page takes a fraction of the time of small ones, and is resident whole for the first byte that is
//! written. So huge pages are for blocks that fill them. Small pages are for blocks whose owners turn out to touch
//! little, and for guests whose hypervisor must find the memory first.

use std::ops::Range;

use crate::mem::backing::Backing;
use crate::pool::Pool;
use crate::pool::isolate::Isolated;
use crate::units::{HUGE, HUGE_PAGES, PAGE, PageId, Span};

/// Pages of absent memory from which on a block is faulted in huge pages wherever it lies.
/// Moved by: `bench grid --idle on`.
const LARGE: u32 = 4096;
/// Huge blocks at the zone's beginning in which smaller blocks get small pages. A program that uses
/// little memory must not become twice as large.
/// Moved by: `bench real --only xz`.
const FEW: u32 = 32;
/// Pages from which on a block beyond them gets huge pages, and the part of the memory it takes
/// that it may leave unused, as a divisor. Unused memory in a huge page is resident, and no other
/// block gets it.
/// Moved by: `tests/programs/matrix.py --only redis`.
const FITS: u32 = 256;
const SLACK: u32 = 8;
impl<B: Backing> Pool<B> {
    /// `absent` pages of a block are about to be faulted in: in huge pages where that pays.
    pub(crate) fn fault_in_suitably(&self, span: Span, absent: u32) {
        let Span { first, pages } = span;
        let (large, start) = (absent >= LARGE, first.huge() as u32);
        if !large && (start < FEW || !fits(pages)) {
            return;
        }
        if !self.fresh.huge {
            let huge = whole(span);
            // Beyond the part that is small at first only large blocks: each may be a mapping of its own.
            self.make_small(if large { huge } else { huge.start..huge.end.min(self.small_end()) });
        } else if large {
            self.fault_in_whole(span);
        } else {
            self.make_huge(start..first.plus(pages - 1).huge() as u32 + 1);
        }
    }

    /// The first huge block that is not in small pages at first.
    fn small_end(&self) -> u32 {
        (self.memory.backing().small() / HUGE) as u32
    }

    /// Has the kernel fault in the whole huge blocks of a block in huge pages, if they are not
    /// yet: five times as fast as small ones.
    pub(crate) fn fault_in_whole(&self, span: Span) {
        self.make_huge(whole(span));
    }

    fn make_huge(&self, huge: Range<u32>) {
        for run in self.fresh.in_small.runs(huge) {
            self.fresh.in_small.clear(run.clone());
            let (offset, len) = (run.start as usize * HUGE, run.len() * HUGE);
            self.memory.backing().make_huge(offset, len);
        }
    }

    /// Has the kernel fault in these huge blocks in small pages, if they are not yet.
    fn make_small(&self, huge: Range<u32>) {
        if huge.clone().all(|at| self.fresh.in_small.has(at)) {
            return;
        }
        self.fresh.in_small.set(huge.clone());
        self.memory.backing().make_small(huge.start as usize * HUGE, huge.len() * HUGE);
    }

    /// A run got a fresh mapping, which is in small pages, as all are at the zone's beginning.
    pub(crate) fn note_fresh(&self, span: Span) {
        let Span { first, pages } = span;
        let (huge, end) = (whole(span), self.small_end());
        self.fresh.in_small.set(huge.start..huge.end.min(end));
        let beyond = huge.start.max(end)..huge.end;
        if !beyond.is_empty() {
            self.fresh.in_small.clear(beyond.clone());
            self.memory.backing().make_huge(beyond.start as usize * HUGE, beyond.len() * HUGE);
        }
        // A part of a huge block is as the rest of it, and one mapping with that again.
        let run_end = first.0 + pages;
        let head = first.0..run_end.min(huge.start * HUGE_PAGES);
        let tail = (huge.end * HUGE_PAGES).max(head.end)..run_end;
        for part in [head, tail] {
            if !part.is_empty() && !self.fresh.in_small.has(part.start / HUGE_PAGES) {
                self.memory.backing().make_huge(part.start as usize * PAGE, part.len() * PAGE);
            }
        }
    }

    /// The pages of a run were moved from `from` to `to`, and their kind with them.
    pub(crate) fn note_moved(&self, from: PageId, to: PageId, pages: u32) {
        let (from, to) = (whole(Span::new(from, pages)), whole(Span::new(to, pages)));
        self.fresh.in_small.clear(to.clone());
        for run in self.fresh.in_small.runs(from.clone()) {
            self.fresh
                .in_small
                .set(run.start - from.start + to.start..run.end - from.start + to.start);
        }
    }

    /// Whether a span is a huge block in small pages that would be better in one huge page.
    pub(crate) fn can_be_huge(&self, span: Span) -> bool {
        let huge = span.first.huge() as u32;
        let may = self.fresh.huge && span.pages == HUGE_PAGES && huge < self.small_end();
        may && self.fresh.in_small.has(huge) && !self.must_not_move()
    }

    /// Has the kernel back an isolated huge block by one huge page: it is absent then. False if it is as it was.
    pub(crate) fn make_huge_isolated(&self, isolated: &Isolated) -> bool {
        let huge = isolated.span.first.huge() as u32;
        self.make_huge(huge..huge + 1);
        self.make_absent(isolated.span).is_some()
    }
}

/// The huge blocks that lie wholly in a block.
fn whole(span: Span) -> Range<u32> {
    let Span { first, pages } = span;
    first.0.div_ceil(HUGE_PAGES)..(first.0 + pages) / HUGE_PAGES
}

/// Whether a block fills its memory so well that huge pages waste little.
fn fits(pages: u32) -> bool {
    let takes = match pages {
        ..HUGE_PAGES => pages.next_power_of_two(),
        _ => pages.next_multiple_of(HUGE_PAGES),
    };
    pages >= FITS && takes - pages <= takes / SLACK
}
