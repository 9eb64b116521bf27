//! What a block holds that comes back from its owner.
//!
//! A slice is dirty where the owner may have written, absent where the owner never touched it, fresh where the owner
//! changed the mapping. None counts as zero here: that takes proof.

use crate::config::ablation::Mechanism;
use crate::count::counters::Counter;
use crate::map::search::FAULT;
use crate::map::state::{PageState, Tally};
use crate::mem::backing::Backing;
use crate::pool::Pool;
use crate::sync::{AtomicU32, Ordering::Relaxed};
use crate::units::{PAGE, PageId, SLICE, Span};

/// The content of a block that came back.
#[derive(Clone, Copy)]
pub(crate) struct Classified {
    pub(crate) tally: Tally,
    /// Pages of it that were handed out zero.
    pub(crate) returned: u32,
}

/// What the kernel's answer proves about slices that are recorded as absent or zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Residency {
    /// A page of each slice at least.
    Resident,
    /// No page has content, and all read as zero.
    Absent,
    /// The kernel did not say, or it has swap: a page that was swapped out is not resident, and has content.
    Unknown,
}

/// Blocks that a CPU remembers as sparse; a power of two. The kernel is asked about such a block
/// once.
/// Moved by: `bench pair`.
const REMEMBERED: usize = 64;

/// Blocks of which the kernel was asked when they last came back, because their owner had left pages
/// untouched. A program that takes a buffer again and again and uses its beginning would pay for
/// that call each time. So a block that comes back so twice in a row counts as touched. All-zero bytes are the
/// empty value. Programs with more such blocks than are remembered have each classified exactly.
pub(crate) struct Sparse([AtomicU32; REMEMBERED]);

impl Sparse {
    /// Whether the block that starts here was the last of those that share its slot. It is now.
    fn was_last(&self, first: PageId) -> bool {
        let slot = &self.0[(first.0 / SLICE) as usize % REMEMBERED];
        let was = slot.load(Relaxed) == first.0 + 1;
        slot.store(first.0 + 1, Relaxed);
        was
    }
}

/// Pages above which a block that comes back mostly untouched goes back to the kernel. In glibc
/// such a block comes from the kernel each time, too. To clear all of it costs more than its next
/// owner's faults.
/// Moved by: `prezero bench thin`.
const KERNELS: u32 = 8192;

/// Thin blocks in a row after which the next is taken for one. A filled block ends the row.
/// Moved by: `prezero bench thin`.
const THIN_ROW: u32 = 4;
/// In a long row one block in this many is looked at. To ask the kernel about the others would take
/// longer than to return them.
/// Moved by: `prezero bench thin`.
const LOOKED_AT: u32 = 8;

/// How many large blocks came back thin in a row: what the next owner is likely to do. Increments may be
/// lost between threads.
pub(crate) struct ThinRow(AtomicU32);

impl ThinRow {
    pub(crate) fn new() -> ThinRow {
        ThinRow(AtomicU32::new(0))
    }

    pub(crate) fn note(&self, thin: bool) {
        let next = if thin { self.0.load(Relaxed).saturating_add(1) } else { 0 };
        self.0.store(next, Relaxed);
    }

    /// Whether the next block is likely to come back thin, and need not be looked at.
    pub(crate) fn may_be_assumed(&self) -> bool {
        let row = self.0.load(Relaxed);
        row >= THIN_ROW && !row.is_multiple_of(LOOKED_AT)
    }
}

impl<B: Backing> Pool<B> {
    /// The mapping of these owned pages is not as the zone's any more: fresh memory replaces their slices when the
    /// block comes back.
    pub(crate) fn mark_moved(&self, span: Span) {
        self.remapped.store(1, Relaxed);
        let span = span.slices();
        self.map.set(span, PageState::Remapped);
    }

    /// Calls `each` for the runs of pages that are marked so, in the order of their addresses.
    pub(crate) fn each_remapped(&self, mut each: impl FnMut(Span)) {
        if self.remapped.load(Relaxed) != 0 {
            for left in self.mapped_runs() {
                self.map.each_run(left, PageState::Remapped, &mut each);
            }
        }
    }

    /// Records the content of a block that comes back from its owner: a slice that its owner never touched is absent,
    /// any other is dirty.
    ///
    /// `slack`: how many of the block's pages its request may have been rounded up by, if blocks of its size have
    /// a class.
    #[inline]
    pub(crate) fn classify(&self, sparse: &Sparse, span: Span, slack: Option<u32>) -> Classified {
        let Span { first: _, pages } = span;
        let dirty =
            |returned| Classified { tally: Tally { dirty: pages, ..Tally::default() }, returned };
        if self.map.all(span, PageState::Dirty) {
            return dirty(0);
        }
        if self.map.all(span, PageState::Zero) {
            self.map.set(span, PageState::Dirty);
            return dirty(pages);
        }
        let was = self.map.tally(span);
        if was.zero + was.dirty == pages {
            self.map.set(span, PageState::Dirty);
            // The pages behind a zero front round the request up, and count with it.
            let rounded = was.dirty <= slack.unwrap_or(0);
            return dirty(if rounded { pages } else { was.zero });
        }
        self.classify_slowly(sparse, span, slack)
    }

    #[cold]
    fn classify_slowly(&self, sparse: &Sparse, span: Span, slack: Option<u32>) -> Classified {
        let Span { first, pages } = span;
        let was = self.map.tally(span);
        let is_kernels = pages > KERNELS;
        if is_kernels && was.absent == pages && self.goes_back_unseen(span) {
            return Classified { tally: was, returned: 0 };
        }
        self.map.each_run(span, PageState::Zero, |run| {
            self.map.set(run, PageState::Dirty);
        });
        // No owner touches the pages that round the request up. To ask for them at every turn, and
        // to keep the block from the CPU's hints, would cost more than to clear them once.
        let added = was.absent <= slack.unwrap_or(0);
        // An owner that asked for zero may count on untouched pages to cost nothing the next time.
        let is_plain = was.zero == 0 && was.dirty > 0 && slack.is_some();
        let counts = added || is_plain && self.has(Mechanism::Untouched) && sparse.was_last(first);
        let mut touched = 0;
        self.map.each_run(span, PageState::Absent, |run| {
            if counts {
                self.map.set(run, PageState::Dirty);
            } else {
                touched += self.classify_absent(run, is_kernels);
            }
        });
        if is_kernels && was.absent > 0 {
            self.fresh.thin_row.note(is_thin(touched, was.absent));
        }
        // Last: pages that are absent by this were not left untouched by their owner.
        if self.replace_remapped(span) {
            self.came_back.note();
        }
        Classified { tally: self.map.tally(span), returned: was.zero }
    }

    /// Gives a large block back to the kernel that was absent when it was handed out, where those
    /// before it came back all but untouched. To ask how much is resident takes longer, so that is
    /// done now and then. A program that begins to fill such blocks has until then what it would
    /// have without us.
    fn goes_back_unseen(&self, span: Span) -> bool {
        let gone = self.has(Mechanism::Thin)
            && self.fresh.thin_row.may_be_assumed()
            && !self.must_not_move()
            && self.memory.release(span).is_ok();
        if gone {
            self.fresh.thin_row.note(true);
        }
        gone
    }

    /// Records which slices of a span were touched that was handed out absent, and returns how many of its pages are
    /// resident. A page that is not resident was never touched, or was written and swapped out. It is released, and
    /// absent either way. So is, of a large block, a part of which little was touched.
    fn classify_absent(&self, span: Span, is_kernels: bool) -> u32 {
        let may_thin = is_kernels && self.has(Mechanism::Thin) && !self.must_not_move();
        let (mut touched, mut gone) = (0, (Span::new(span.first, 0), 0));
        let release = |(span, resident): (Span, u32)| {
            if span.pages > 0 && self.memory.release(span).is_err() {
                self.map.set(span, PageState::Dirty);
            } else {
                self.counters.add_exact(Counter::ReleasedBytes, u64::from(resident) * PAGE as u64);
            }
        };
        self.each_part(span, |part, map| {
            let resident = |n| map.map_or(SLICE, |map| resident_in(map, n));
            let in_part = (0..part.pages / SLICE).map(resident).sum();
            touched += in_part;
            let is_gone = may_thin && is_thin(in_part, part.pages);
            for n in 0..part.pages / SLICE {
                let (slice, pages) = (Span::new(part.first.plus(n * SLICE), SLICE), resident(n));
                if is_gone || pages == 0 {
                    // Neighbours go in one call.
                    gone = (Span::new(gone.0.first, gone.0.pages + SLICE), gone.1 + pages);
                    continue;
                }
                self.map.set(slice, PageState::Dirty);
                release(std::mem::replace(&mut gone, (Span::new(PageId(slice.end()), 0), 0)));
            }
        });
        release(gone);
        touched
    }

    /// Calls `each` for the owned slices that have content, and those that may or may not.
    pub(crate) fn each_residency(&self, span: Span, mut each: impl FnMut(Span, Residency)) {
        let may_swap = self.memory.backing().may_swap();
        self.each_part(span, |part, map| {
            for n in 0..part.pages / SLICE {
                let residency = match map.map(|map| resident_in(map, n)) {
                    Some(1..) => Residency::Resident,
                    Some(0) if !may_swap => Residency::Absent,
                    _ => Residency::Unknown,
                };
                each(Span::new(part.first.plus(n * SLICE), SLICE), residency);
            }
        });
    }

    /// Calls `each` for 1024 owned pages at a time, with a byte for each: whether it is resident, if
    /// the kernel says so.
    fn each_part(&self, span: Span, mut each: impl FnMut(Span, Option<&[u8]>)) {
        let mut map = [0u8; 1024];
        for at in (0..span.pages).step_by(map.len()) {
            let pages = (span.pages - at).min(map.len() as u32);
            let (first, map) = (span.first.plus(at), &mut map[..pages as usize]);
            let known = self.memory.backing().residency(first.index() * PAGE, map).is_ok();
            each(Span::new(first, pages), known.then_some(map));
        }
    }

    /// Puts fresh memory where the owner changed the mapping. Pages that cannot be replaced
    /// stay marked, and are never used again. Whether there was anything to replace.
    pub(crate) fn replace_remapped(&self, span: Span) -> bool {
        let mut any = false;
        if self.remapped.load(Relaxed) == 0 {
            return any;
        }
        self.map.each_run(span, PageState::Remapped, |run| {
            any = true;
            if self.memory.replace(run).is_ok() {
                self.map.set(run, PageState::Absent);
                self.note_fresh(run);
            } else {
                self.counters.add_exact(Counter::BackingErrors, 1);
            }
        });
        any
    }
}

/// Pages of a slice that are resident, by what the kernel said of the pages of its part.
fn resident_in(map: &[u8], slice: u32) -> u32 {
    let pages = map.iter().skip((slice * SLICE) as usize).take(SLICE as usize);
    pages.map(|byte| u32::from(byte & 1)).sum()
}

/// Whether so little of `pages` was touched that faults cost less than to clear them all.
fn is_thin(touched: u32, pages: u32) -> bool {
    u64::from(touched) * FAULT <= u64::from(pages)
}
