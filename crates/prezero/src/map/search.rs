//! The search: which free memory serves a request best.
//!
//! Memory costs what its pages cost the next owner: nothing if they are as wanted, a clear if they must be cleared, a
//! page fault if they are absent. The search looks at a bounded number of candidates: huge blocks that are used in part
//! come first, the lowest address first. It takes the cheapest, and the lowest address of two equals. So used memory
//! stays together, and free memory above it can go back to the kernel whole.

use std::ops::ControlFlow::{self, Break, Continue};
use std::ops::Range;

use crate::map::state::Tally;
use crate::map::walk::{LONG, windows};
use crate::map::{Map, Masks, RESIDENT, SLICES, TOGETHER, WHOLE, ZERO, bits};
use crate::units::{HUGE_ORDER, HUGE_PAGES, Order, PageId, SLICE, Span};

/// What a page in each state costs a request, in clears of one. `None`: no such page must be in the block.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Price {
    pub(crate) zero: Option<u64>,
    pub(crate) dirty: Option<u64>,
    pub(crate) absent: Option<u64>,
}

/// What a page fault costs, in clears of a page.
/// Moved by: `prezero run --stats -`.
pub(crate) const FAULT: u64 = 8;

impl Price {
    /// `ZERO`: zero pages are ready, dirty ones are cleared inline.
    pub(crate) const FOR_ZERO: Price = Price::each(Some(0), Some(1), Some(FAULT));
    /// `ZERO`, while anything resident will do.
    pub(crate) const CLEARABLE: Price = Price::each(Some(0), Some(1), None);
    /// `ONLY_ZERO`, and the first look of `ZERO`.
    pub(crate) const ALL_ZERO: Price = Price::each(Some(0), None, None);
    /// The first look of plain: dirty alone.
    pub(crate) const ALL_DIRTY: Price = Price::each(None, Some(0), None);
    /// Plain, while anything resident will do: a zero page would waste its clearing.
    pub(crate) const PLAIN_RESIDENT: Price = Price::each(Some(1), Some(0), None);
    /// Plain, whatever there is.
    pub(crate) const PLAIN_ANY: Price = Price::each(Some(1), Some(0), Some(FAULT));
    /// To move pages to: resident pages there are lost.
    pub(crate) const BENEATH: Price = Price::each(Some(2), Some(1), Some(0));

    const fn each(zero: Option<u64>, dirty: Option<u64>, absent: Option<u64>) -> Price {
        Price { zero, dirty, absent }
    }

    /// What these pages cost. `None`: they do not serve.
    pub(crate) fn of(self, tally: Tally) -> Option<u64> {
        let part = |pages: u32, each: Option<u64>| match (pages, each) {
            (0, _) => Some(0),
            (pages, Some(each)) => Some(u64::from(pages) * each),
            (_, None) => None,
        };
        let remapped = part(tally.remapped, None)?;
        let resident = part(tally.zero, self.zero)? + part(tally.dirty, self.dirty)?;
        Some(resident + part(tally.absent, self.absent)? + remapped)
    }

    /// The least that `pages` pages can cost where the map holds `zero` and `dirty` ones: a search that finds that need
    /// not look on.
    fn goal(self, pages: u32, zero: u32, dirty: u32) -> u64 {
        let mut kinds = [(self.zero, zero), (self.dirty, dirty), (self.absent, u32::MAX)];
        kinds.sort_unstable_by_key(|&(price, _)| price.unwrap_or(u64::MAX));
        let mut left = pages;
        let mut goal = 0;
        for (price, have) in kinds {
            let taken = left.min(have);
            goal += u64::from(taken) * price.unwrap_or(0);
            left -= taken;
        }
        goal
    }

    /// The slices that may be in the block.
    fn allows(self, masks: Masks) -> u32 {
        let part = |mask: u32, price: Option<u64>| if price.is_some() { mask } else { 0 };
        part(masks.zero, self.zero)
            | part(masks.dirty, self.dirty)
            | part(masks.absent(), self.absent)
    }

    /// What the summary of a huge block has in which such a block may lie.
    fn summary(self) -> u8 {
        match (self.dirty, self.absent) {
            (None, None) => ZERO,
            (_, None) => RESIDENT,
            _ => 0,
        }
    }
}

/// Candidates that one search looks at. It bounds the search beside the clear that it may spare.
/// Moved by: `bench grid --idle off`.
const CANDIDATES: u32 = 256;
/// Pages that one search looks at, all candidates together.
/// Moved by: `bench grid --idle off`.
const LOOKED_AT: u32 = 512 << 10;
/// Candidates in a run of free huge blocks begin one part in this many of their length apart, and
/// where a resident block begins. A block that was freed among absent neighbours fits exactly.
/// Moved by: `bench grid --idle off`.
const STEPS: u32 = 8;

/// A block that is searched for.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    /// Whole slices.
    pub(crate) pages: u32,
    pub(crate) align: Order,
    pub(crate) price: Price,
    /// The first huge block that small blocks keep away from while there are others.
    pub(crate) places: u32,
}

/// Free pages that would serve, at this moment.
#[derive(Clone, Copy)]
pub(crate) struct Best {
    pub(crate) span: Span,
    cost: u64,
    /// No block could cost less.
    pub(crate) is_perfect: bool,
}

impl Map {
    /// The cheapest candidate that the search sees.
    pub(crate) fn best(&self, wanted: Wanted) -> Option<Best> {
        let goal = wanted.price.goal(wanted.pages, self.sums.zero(), self.sums.dirty());
        self.search(wanted, goal)
    }

    /// Whether some free memory holds such a block, whatever it costs.
    pub(crate) fn has_room(&self, wanted: Wanted) -> bool {
        self.search(Wanted { price: Price::BENEATH, ..wanted }, u64::MAX).is_some()
    }

    fn search(&self, wanted: Wanted, goal: u64) -> Option<Best> {
        let left = CANDIDATES.min(LOOKED_AT / wanted.pages).max(1);
        let mut search = Search { map: self, wanted, goal, left, best: None };
        // How it ends does not matter: `best` has the result.
        let _ = if wanted.pages >= HUGE_PAGES || wanted.align > Order::HUGE {
            search.in_whole_runs()
        } else {
            search.in_slices()
        };
        search.best
    }
}

/// One search under way: what is searched for, and the best that it has seen.
struct Search<'a> {
    map: &'a Map,
    wanted: Wanted,
    /// The first candidate that costs no more ends the search.
    goal: u64,
    /// Candidates that may yet be looked at.
    left: u32,
    best: Option<Best>,
}

impl Search<'_> {
    /// Looks at one candidate; breaks off where no further one is to be looked at. Out of line: a copy in each of its
    /// callers would make the search half as long again.
    #[inline(never)]
    fn look(&mut self, first: PageId, tally: Tally) -> ControlFlow<()> {
        self.left = self.left.saturating_sub(1);
        if let Some(cost) = self.wanted.price.of(tally)
            && self.best.as_ref().is_none_or(|best| cost < best.cost)
        {
            let span = Span::new(first, self.wanted.pages);
            self.best = Some(Best { span, cost, is_perfect: cost <= self.goal });
            if cost <= self.goal {
                return Break(());
            }
        }
        if self.left == 0 { Break(()) } else { Continue(()) }
    }

    /// Looks into runs of free huge blocks, by address.
    fn in_whole_runs(&mut self) -> ControlFlow<()> {
        let (map, Wanted { pages, align, price, .. }) = (self.map, self.wanted);
        let length = pages.div_ceil(HUGE_PAGES);
        let aligned = (align.pages() / HUGE_PAGES).max(1);
        let step = (length / STEPS).max(1).next_multiple_of(aligned);
        let resident = |huge: u32| map.summary(huge) & RESIDENT != 0;
        map.whole_runs(length, LONG.max(2 * length)).try_for_each(|run| {
            let start = run.start.next_multiple_of(aligned);
            let end = (run.end + 1).saturating_sub(length);
            let begins = |huge: u32| resident(huge) && (huge == start || !resident(huge - 1));
            let mut look_at = |huge: u32| {
                let is_candidate = (huge - start).is_multiple_of(step) || begins(huge);
                if !(is_candidate && huge.is_multiple_of(aligned)) {
                    return Continue(());
                }
                let first = PageId(huge << HUGE_ORDER);
                self.look(first, map.tally(Span::new(first, pages)))
            };
            // Where nothing is resident there may be nothing to look at, and that is most of it.
            match price.absent {
                None => map.with(start..end, RESIDENT).try_for_each(&mut look_at),
                Some(_) => (start..end).try_for_each(&mut look_at),
            }
        })
    }

    /// Looks into huge blocks that are used in part first, then into whole ones, and at last into those used in part
    /// behind blocks that grow.
    fn in_slices(&mut self) -> ControlFlow<()> {
        let (near, all) = (0..self.wanted.places, 0..self.map.len());
        self.in_blocks(near.clone(), false)?;
        self.in_blocks(all.clone(), true)?;
        self.in_blocks(near.end..all.end, false)
    }

    fn in_blocks(&mut self, range: Range<u32>, whole: bool) -> ControlFlow<()> {
        let Wanted { pages, align, price, .. } = self.wanted;
        let (map, len) = (self.map, pages / SLICE);
        let step = (align.pages() / SLICE).clamp(1, SLICES);
        // Each `step`th slice. The compiler turns a loop of shifts into float instructions, which may signal the program.
        let aligned = u32::MAX / (u32::MAX >> (SLICES - step));
        let has = price.summary() | 1 << len.ilog2() | if whole { WHOLE } else { 0 };
        map.with(range, has).filter(|&at| whole || map.summary(at) & WHOLE == 0).try_for_each(
            |at| {
                let masks = map.masks(at as usize);
                let mut fits = windows(map.free_in(at) & price.allows(masks), len) & aligned;
                while fits != 0 {
                    let low = fits.trailing_zeros();
                    fits &= fits - 1;
                    let first = PageId((at << HUGE_ORDER) + low * SLICE);
                    self.look(first, masks.tally(bits(low, len)))?;
                }
                Continue(())
            },
        )
    }
}

// A summary tells the lengths apart that a search asks for.
const _: () = assert!(TOGETHER * 8 == u64::BITS && 1 << SLICES.ilog2() == WHOLE);
