//! Large blocks, assembled from free huge blocks that lie apart.
//!
//! A program whose large arrays replace each other leaves free memory in pieces. The next request then finds enough
//! memory, but not in a row, and would have to fault in the rest. The kernel moves a huge block to another address in
//! less time than a fault takes, even where it must tell other CPUs, and the program does not grow.
//!
//! Where a row is resident nothing moves: a clear there leaves the pages that the next request finds. A move would
//! leave absent ones.
//!
//! Huge blocks move to absent ones, and stay a part of the zone. The mapping of a moved block differs from its
//! neighbours' by its origin alone. Each huge block that ever took one may be a mapping of its own, of which a
//! process has a limited number.
//!
//! A move takes the lock of the address space, and so does a fork while it copies. So a block that the child's
//! records call absent has moved in the child as well. Where the child's records still name the old place, the
//! child reads zeroes there, and the new place is lost to it.

use prezero_sys::memory::Errno;

use crate::block::Run;
use crate::config::ablation::Mechanism;
use crate::count::counters::Counter;
use crate::mem::backing::Backing;
use crate::mem::bits::Bits;
use crate::mem::states::PageState;
use crate::pool::Pool;
use crate::pool::find::Movable;
use crate::sync::{AtomicU32, Ordering::Relaxed};
use crate::units::{HUGE_ORDER, HUGE_PAGES, Order, PAGE, PageId, Span};

/// Pages from which on a block is assembled. A shorter one lies in one huge block or two.
/// Moved by: `bench real --only sparse,ndimage,pandas`, counter `assembled_bytes`.
const LEAST: u32 = 2 * HUGE_PAGES;
/// Huge blocks that may ever take moved pages. Each may be a mapping of its own, of which a process
/// has a limited number.
/// Moved by: counter `assembled_bytes`.
const MOST: u32 = 4096;
/// A huge block that takes longer to move might as well be faulted in. The kernel tells each CPU that
/// runs a thread of the process.
/// Moved by: counter `assembled_bytes`.
const SLOW_NS: u64 = 50_000;
/// Requests in a row with slow moves that end moving. One of them may have lost its CPU.
/// Moved by: counter `assembled_bytes`.
const ROW: u32 = 4;
/// Looks without a move after such a row. The next one tries again, since the CPUs may be free by
/// then.
/// Moved by: counter `assembled_bytes`.
const REST: u32 = 64;
/// Above every row: the kernel refused.
/// Fixed: a value beyond all others.
const NEVER: u32 = u32::MAX;

/// See the module.
pub(crate) struct Compaction {
    /// The huge blocks whose mapping may differ from their neighbours', and how many they are.
    seams: Bits,
    count: AtomicU32,
    /// Requests in a row for which moving was slow, and from [`ROW`] on looks since; or [`NEVER`].
    slow: AtomicU32,
}

impl Compaction {
    /// Nothing moved yet, of `huge` huge blocks.
    pub(crate) fn new(huge: u32) -> Result<Compaction, Errno> {
        let [count, slow] = [(); 2].map(|()| AtomicU32::new(0));
        Ok(Compaction { seams: Bits::new(huge)?, count, slow })
    }

    /// `pages` took `ns` to move.
    fn took(&self, pages: u32, ns: u64) {
        if pages == 0 {
            return;
        }
        let slow = ns > u64::from(pages / HUGE_PAGES) * SLOW_NS;
        let next = |row: u32| (row < ROW).then_some(if slow { row + 1 } else { 0 });
        let _ = self.slow.fetch_update(Relaxed, Relaxed, next);
    }

    /// Whether moves are worth a try, for one more look.
    pub(crate) fn may_try(&self) -> bool {
        let next = |row: u32| match row {
            ..ROW | NEVER => None,
            _ if row < ROW + REST - 1 => Some(row + 1),
            _ => Some(ROW - 1),
        };
        let seen = self.slow.fetch_update(Relaxed, Relaxed, next).unwrap_or_else(|row| row);
        seen < ROW
    }

    /// Huge blocks that ever took something.
    #[cfg(test)]
    pub(crate) fn count(&self) -> u32 {
        self.count.load(Relaxed)
    }
}

impl<B: Backing> Pool<B> {
    /// A block for a `ZERO` request, to which resident blocks were brought.
    pub(crate) fn compact_zero(&self, pages: u32, align: Order) -> Option<Run> {
        let movable = self.movable(pages)?;
        let run = self.search_to_fill_zero(pages, align, movable)?;
        self.fill(run.span(), &[PageState::Zero, PageState::Dirty]);
        Some(run)
    }

    /// The same for a plain request. Zero blocks stay where they are: they were made for other requests.
    pub(crate) fn compact_plain(&self, pages: u32, align: Order) -> Option<Run> {
        let movable = self.movable(pages).filter(|movable| movable.dirty > 0)?;
        let movable = Movable { zero: 0, ..movable };
        let run = self.search_to_fill_plain(pages, align, movable)?;
        self.fill(run.span(), &[PageState::Dirty]);
        Some(run)
    }

    /// Pages that can be moved for a block of `pages`, about as many of each kind as it needs.
    fn movable(&self, pages: u32) -> Option<Movable> {
        let any = pages >= LEAST && self.resident.pages() >= HUGE_PAGES && self.assembles();
        if !any || !self.compaction.may_try() {
            return None;
        }
        let [zero, dirty] = [PageState::Zero, PageState::Dirty].map(|kind| {
            let mut sum = 0;
            let enough = |&(_, huge): &(PageId, u32)| {
                sum += huge * HUGE_PAGES;
                sum >= pages
            };
            let _ = self.movable_runs(kind).find(enough);
            sum
        });
        Some(Movable { zero, dirty }).filter(|_| zero + dirty > 0)
    }

    fn assembles(&self) -> bool {
        self.has(Mechanism::Compact)
            && self.compaction.slow.load(Relaxed) != NEVER
            && self.compaction.count.load(Relaxed) < MOST
            && self.came_back.may_move()
            && !self.must_not_move()
    }

    /// The runs of free huge blocks that are wholly resident and zero, or not zero, lowest address
    /// first: the first page, and how many huge blocks.
    fn movable_runs(&self, kind: PageState) -> impl Iterator<Item = (PageId, u32)> {
        let fits = move |huge: u32| {
            let tally = self.states.tally(Span::new(PageId(huge << HUGE_ORDER), HUGE_PAGES));
            let resident = tally.zero + tally.dirty == HUGE_PAGES;
            resident && (tally.dirty == 0) == (kind == PageState::Zero)
        };
        let free = self.buddy.runs(1).map(|run| run.huge..run.huge + run.len);
        free.flat_map(|free| self.freed.resident.runs(free)).flat_map(move |mut rest| {
            std::iter::from_fn(move || {
                let first = rest.find(|&huge| fits(huge))?;
                let end = (first + 1..rest.end).find(|&huge| !fits(huge)).unwrap_or(rest.end);
                rest.start = end;
                Some((PageId(first << HUGE_ORDER), end - first))
            })
        })
    }

    /// Brings resident blocks to the absent huge blocks of a block that the caller owns, of
    /// one kind after the other, while there is any.
    fn fill(&self, span: Span, kinds: &[PageState]) {
        let Span { first, pages } = span;
        let is_absent =
            |at: u32| self.states.all(Span::new(PageId(at), HUGE_PAGES), PageState::Absent);
        let end = (first.0 + pages) & !(HUGE_PAGES - 1);
        let mut at = first.0.next_multiple_of(HUGE_PAGES);
        let (mut moved, began) = (0, self.clock.now_ns());
        'all: for (from, huge) in kinds.iter().flat_map(|&kind| self.movable_runs(kind)) {
            let (mut from, mut left) = (from, huge * HUGE_PAGES);
            while left > 0 {
                while at < end && !is_absent(at) {
                    at += HUGE_PAGES;
                }
                let most = left.min(end.saturating_sub(at));
                let gap = (0..most).step_by(HUGE_PAGES as usize).find(|n| !is_absent(at + n));
                let n = gap.unwrap_or(most);
                if n == 0 || !self.assembles() {
                    break 'all;
                }
                // A block that another thread took first is not tried again, nor one that the kernel left.
                let done = self.bring(from, PageId(at), n);
                (at, moved) = ((at + done).next_multiple_of(HUGE_PAGES), moved + done);
                (from, left) = (from.plus(n), left - n);
            }
        }
        self.counters.add_exact(Counter::AssembledBytes, u64::from(moved) * PAGE as u64);
        self.compaction.took(moved, self.clock.now_ns().saturating_sub(began));
    }

    /// Moves resident pages of the buddy to an absent run of the caller's: how many, whole huge blocks
    /// from the first on.
    fn bring(&self, from: PageId, to: PageId, pages: u32) -> u32 {
        let Some(run) = self.buddy.take_run(Span::new(from, pages)) else { return 0 };
        // Between the look and the grasp another thread may have used it.
        let tally = self.states.tally(run.span());
        let is_resident = tally.absent + tally.remapped == 0;
        let may = is_resident && !self.must_not_move() && self.keep_on_fork(run.span());
        self.resident.sub(tally);
        let mut moved = 0;
        while may && moved < pages {
            let Some(n) = self.move_some(from.plus(moved), to.plus(moved), pages - moved) else {
                break;
            };
            moved += n;
        }
        self.put_as_it_was(run);
        let (seams, count) = (&self.compaction.seams, &self.compaction.count);
        let huge = to.huge() as u32..to.plus(moved).huge() as u32;
        let new: usize = seams.gaps(huge.clone()).map(|run| run.len()).sum();
        seams.set(huge);
        count.fetch_add(new as u32, Relaxed);
        moved
    }

    /// Moves pages from the first on that the kernel moves together, and updates their records.
    fn move_some(&self, from: PageId, to: PageId, pages: u32) -> Option<u32> {
        let Ok(n) = self.memory.move_free(from, to, pages) else {
            self.compaction.slow.store(NEVER, Relaxed);
            return None;
        };
        let huge = |first: PageId| first.huge() as u32..first.plus(n).huge() as u32;
        let zero = self.states.all(Span::new(from, n), PageState::Zero);
        self.states.set(Span::new(to, n), if zero { PageState::Zero } else { PageState::Dirty });
        self.note_moved(from, to, n);
        self.states.set(Span::new(from, n), PageState::Absent);
        huge(from).for_each(|huge| self.freed.at[huge as usize].clear());
        self.freed.resident.clear(huge(from));
        Some(n)
    }
}
