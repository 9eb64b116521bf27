//! What a block holds that comes back from its owner.
//!
//! A page is dirty where the owner may have written, absent where the owner never touched it, fresh where the owner
//! changed the mapping. None counts as zero here: that takes proof.

use crate::config::ablation::Mechanism;
use crate::count::counters::Counter;
use crate::mem::backing::Backing;
use crate::mem::states::{PageState, Tally};
use crate::pool::Pool;
use crate::pool::find::FAULT;
use crate::sync::{AtomicU32, Ordering::Relaxed};
use crate::units::{GRANULE, PAGE, PageId, Span};

/// The content of a block that came back.
#[derive(Clone, Copy)]
pub(crate) struct Classified {
    pub(crate) tally: Tally,
    /// Pages of it that were handed out zero.
    pub(crate) returned: u32,
}

/// What the kernel's answer proves about a run of pages that are recorded as absent or zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Residency {
    Resident,
    /// The pages have no content, and read as zero.
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
        let slot = &self.0[(first.0 / GRANULE) as usize % REMEMBERED];
        let was = slot.load(Relaxed) == first.0 + 1;
        slot.store(first.0 + 1, Relaxed);
        was
    }
}

/// Runs of resident pages among 1024 that are told apart when a block comes back: each that is absent costs a system
/// call.
/// Moved by: `prezero bench thin`.
const MOST_RUNS: usize = 64;
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
    /// The mapping of these owned pages is not as the zone's any more: fresh memory replaces them when the block
    /// comes back.
    pub(crate) fn mark_moved(&self, span: Span) {
        self.remapped.store(1, Relaxed);
        self.states.set(span, PageState::Remapped);
    }

    /// Calls `each` for the runs of pages that are marked so, in the order of their addresses.
    pub(crate) fn each_remapped(&self, mut each: impl FnMut(Span)) {
        if self.remapped.load(Relaxed) != 0 {
            for left in self.mapped_runs() {
                self.states.each_run(left, PageState::Remapped, &mut each);
            }
        }
    }

    /// Records the content of a block that comes back from its owner: a resident page is dirty, a
    /// page that its owner never touched is absent.
    ///
    /// `slack`: how many of the block's pages its request may have been rounded up by, if lists keep blocks of its
    /// size.
    #[inline]
    pub(crate) fn classify(&self, sparse: &Sparse, span: Span, slack: Option<u32>) -> Classified {
        let Span { first: _, pages } = span;
        let dirty =
            |returned| Classified { tally: Tally { dirty: pages, ..Tally::default() }, returned };
        if self.states.all(span, PageState::Dirty) {
            return dirty(0);
        }
        if self.states.all(span, PageState::Zero) {
            self.states.set(span, PageState::Dirty);
            return dirty(pages);
        }
        let was = self.states.tally(span);
        if was.zero + was.dirty == pages {
            self.states.set(span, PageState::Dirty);
            // The pages behind a zero front round the request up, and count with it.
            let rounded = was.dirty <= slack.unwrap_or(0);
            return dirty(if rounded { pages } else { was.zero });
        }
        self.classify_slowly(sparse, span, slack)
    }

    #[cold]
    fn classify_slowly(&self, sparse: &Sparse, span: Span, slack: Option<u32>) -> Classified {
        let Span { first, pages } = span;
        let was = self.states.tally(span);
        let is_kernels = pages > KERNELS;
        if is_kernels && was.absent == pages && self.goes_back_unseen(span) {
            return Classified { tally: was, returned: 0 };
        }
        self.states.each_run(span, PageState::Zero, |run| {
            self.states.set(run, PageState::Dirty);
        });
        // No owner touches the pages that round the request up. To ask for them at every turn, and
        // to keep the block from the lists, would cost more than to clear them once.
        let added = was.absent <= slack.unwrap_or(0);
        // An owner that asked for zero may count on untouched pages to cost nothing the next time.
        let is_plain = was.zero == 0 && was.dirty > 0 && slack.is_some();
        let counts = added || is_plain && self.has(Mechanism::Untouched) && sparse.was_last(first);
        let mut touched = 0;
        self.states.each_run(span, PageState::Absent, |run| {
            if counts {
                self.states.set(run, PageState::Dirty);
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
        Classified { tally: self.states.tally(span), returned: was.zero }
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

    /// Records which pages of a span were touched that was handed out absent. A page that is not
    /// resident was never touched, or was written and swapped out. It is released, and absent
    /// either way. Returns how many are resident.
    fn classify_absent(&self, span: Span, is_kernels: bool) -> u32 {
        let settle = |part: Span, map: Option<&[u8]>| {
            let Some(map) = map.filter(|map| runs(map).nth(MOST_RUNS).is_none()) else {
                return self.states.set(part, PageState::Dirty);
            };
            each_run_of(part, map, |run, resident| {
                if resident || self.memory.release(run).is_err() {
                    self.states.set(run, PageState::Dirty);
                }
            });
        };
        // Thin, adjacent runs go in one call, and count as resident should that fail.
        let (mut touched, mut thin) = (0, (span.first, 0, 0));
        let may_thin = is_kernels && self.has(Mechanism::Thin) && !self.must_not_move();
        let release = |(from, n, resident): (PageId, u32, u32)| {
            if n > 0 && self.memory.release(Span::new(from, n)).is_err() {
                self.states.set(Span::new(from, n), PageState::Dirty);
            } else {
                self.counters.add_exact(Counter::ReleasedBytes, u64::from(resident) * PAGE as u64);
            }
        };
        self.each_map(span, |part, map| {
            let n = part.pages;
            let resident = map.map_or(n, |map| map.iter().map(|byte| u32::from(byte & 1)).sum());
            touched += resident;
            if may_thin && is_thin(resident, n) {
                thin = (thin.0, thin.1 + n, thin.2 + resident);
                return;
            }
            release(std::mem::replace(&mut thin, (PageId(part.end()), 0, 0)));
            settle(part, map);
        });
        release(thin);
        touched
    }

    /// Calls `each` for the runs of owned pages that have content, and those that may or may not.
    pub(crate) fn each_residency(&self, span: Span, mut each: impl FnMut(Span, Residency)) {
        let elsewhere =
            if self.memory.backing().may_swap() { Residency::Unknown } else { Residency::Absent };
        self.each_map(span, |part, map| match map {
            None => each(part, Residency::Unknown),
            Some(map) => each_run_of(part, map, |run, resident| {
                each(run, if resident { Residency::Resident } else { elsewhere });
            }),
        });
    }

    /// Calls `each` for 1024 owned pages at a time, with a byte for each: whether it is resident, if
    /// the kernel says so.
    fn each_map(&self, span: Span, mut each: impl FnMut(Span, Option<&[u8]>)) {
        let Span { first, pages } = span;
        let mut map = [0u8; 1024];
        for at in (0..pages).step_by(map.len()) {
            let n = (pages - at).min(map.len() as u32);
            let (page, map) = (first.plus(at), &mut map[..n as usize]);
            let known = self.memory.backing().residency(page.index() * PAGE, map).is_ok();
            each(Span::new(page, n), known.then_some(map));
        }
    }

    /// Puts fresh memory where the owner changed the mapping. Pages that cannot be replaced
    /// stay marked, and are never used again. Whether there was anything to replace.
    pub(crate) fn replace_remapped(&self, span: Span) -> bool {
        let mut any = false;
        if self.remapped.load(Relaxed) == 0 {
            return any;
        }
        self.states.each_run(span, PageState::Remapped, |run| {
            any = true;
            if self.memory.replace(run).is_ok() {
                self.states.set(run, PageState::Absent);
                self.note_fresh(run);
            } else {
                self.counters.add_exact(Counter::BackingErrors, 1);
            }
        });
        any
    }
}

/// The runs in what the kernel said of some pages.
fn runs(map: &[u8]) -> impl Iterator<Item = &[u8]> {
    map.chunk_by(|a, b| a & 1 == b & 1)
}

/// Calls `each` for the runs of pages of which the kernel said this, and whether they are resident.
fn each_run_of(part: Span, map: &[u8], mut each: impl FnMut(Span, bool)) {
    let mut start = 0;
    for run in runs(map) {
        each(Span::new(part.first.plus(start), run.len() as u32), run[0] & 1 != 0);
        start += run.len() as u32;
    }
}

/// Whether so little of `pages` was touched that faults cost less than to clear them all.
fn is_thin(touched: u32, pages: u32) -> bool {
    u64::from(touched) * FAULT <= u64::from(pages)
}
