//! The search: which free block of the buddy serves a request best.
//!
//! A block costs what its pages cost the next owner: nothing if they are as wanted, a clear if they must be
//! cleared, a page fault if they are absent. The search looks at a bounded number of candidates, the smallest order
//! and the lowest address first; of huge blocks, the first runs by address that are long enough. It takes the
//! cheapest, and the lowest address of two equals. So used memory stays together, and free memory above it can go
//! back to the kernel whole.

use std::ops::ControlFlow::{self, Continue};

use crate::block::Run;
use crate::mem::backing::Backing;
use crate::mem::states::Tally;
use crate::pool::Pool;
use crate::units::{HUGE_ORDER, HUGE_PAGES, MAX_ORDER, Order, PageId, Span};

/// What a page in each state costs a request, in clears of one. `None`: such a
/// page must not be in the block.
#[derive(Clone, Copy)]
struct Cost {
    zero: Option<u64>,
    dirty: Option<u64>,
    absent: Option<u64>,
}

/// What a page fault costs, in clears of a page.
/// Moved by: `prezero run --stats -`.
pub(crate) const FAULT: u64 = 8;

/// `ZERO`: zero pages are ready, dirty ones are cleared inline.
const FOR_ZERO: Cost = Cost::each(Some(0), Some(1), Some(FAULT));
/// `ZERO`, while anything resident will do.
const CLEARABLE: Cost = Cost::each(Some(0), Some(1), None);
/// `ONLY_ZERO`, and the first look of `ZERO`.
const ALL_ZERO: Cost = Cost::each(Some(0), None, None);
/// Plain, while anything resident will do: a zero page would waste its clearing.
const PLAIN_RESIDENT: Cost = Cost::each(Some(1), Some(0), None);
/// Plain, whatever there is.
const PLAIN_ANY: Cost = Cost::each(Some(1), Some(0), Some(FAULT));
/// To move pages to: resident pages there are lost.
const BENEATH: Cost = Cost::each(Some(2), Some(1), Some(0));

/// Candidates that one search looks at. It bounds the search beside the clear that it may spare.
/// Moved by: `bench grid --idle off`.
const CANDIDATES: u32 = 64;
/// Pages that one search looks at, all candidates together.
/// Moved by: `bench grid --idle off`.
const LOOKED_AT: u32 = 512 << 10;
/// Candidates in a run of free huge blocks begin one part in this many of their length apart, and
/// where a resident block begins. A block that was freed among absent neighbours fits exactly.
/// Moved by: `bench grid --idle off`.
const STEPS: u32 = 8;
/// Searches that lose their block to another thread before the request is given up.
/// Fixed: a bound of a lock-free loop, which no test reaches.
const ATTEMPTS: u32 = 8;

/// Times that one search asks scrubd for its run, or looks again because a run came or went
/// meanwhile.
/// Fixed: a bound of a lock-free loop.
const ASKED: u32 = 4;

impl Cost {
    const fn each(zero: Option<u64>, dirty: Option<u64>, absent: Option<u64>) -> Cost {
        Cost { zero, dirty, absent }
    }

    fn of(self, tally: Tally) -> Option<u64> {
        let part = |pages: u32, each: Option<u64>| match (pages, each) {
            (0, _) => Some(0),
            (pages, Some(each)) => Some(pages as u64 * each),
            (_, None) => None,
        };
        let remapped = part(tally.remapped, None)?;
        let resident = part(tally.zero, self.zero)? + part(tally.dirty, self.dirty)?;
        Some(resident + part(tally.absent, self.absent)? + remapped)
    }
}

impl Cost {
    /// The least that `pages` pages can cost when the buddy holds `zero` and `dirty` ones:
    /// a search that finds that need not look on.
    fn goal(self, pages: u32, zero: u32, dirty: u32) -> u64 {
        let mut kinds = [(self.zero, zero), (self.dirty, dirty), (self.absent, u32::MAX)];
        kinds.sort_unstable_by_key(|&(cost, _)| cost.unwrap_or(u64::MAX));
        let mut left = pages;
        let mut goal = 0;
        for (cost, have) in kinds {
            let taken = left.min(have);
            goal += u64::from(taken) * cost.unwrap_or(0);
            left -= taken;
        }
        goal
    }
}

/// What became of a run that was taken out of the buddy.
enum Grasp {
    /// It is the caller's.
    Held(Run),
    /// Between the look and the grasp another thread took it, used it and gave it back: not as wanted.
    Changed,
    /// The kernel did not undo what it was told of it: a child or a dump may still lack it.
    Unshowable,
}

/// Free pages that would serve, at this moment.
struct Candidate {
    cost: u64,
    first: PageId,
    /// The free block that they lie in, where they lie in one.
    within: Option<(PageId, Order)>,
}

impl<B: Backing> Pool<B> {
    /// A block of resident zero pages, or none.
    pub(crate) fn search_zero(&self, pages: u32, align: Order) -> Option<Run> {
        if self.resident.zero() < pages { None } else { self.search(pages, align, ALL_ZERO) }
    }

    /// The resident block that is cheapest to make zero.
    pub(crate) fn search_clearable(&self, pages: u32, align: Order) -> Option<Run> {
        if self.resident.pages() < pages { None } else { self.search(pages, align, CLEARABLE) }
    }

    /// The block that is cheapest to make zero.
    pub(crate) fn search_for_zero(&self, pages: u32, align: Order) -> Option<Run> {
        self.search(pages, align, FOR_ZERO)
    }

    /// Where the run begins that `search_for_zero` would take now.
    pub(crate) fn next_for_zero(&self, pages: u32) -> Option<PageId> {
        self.best(pages, Order::MIN, FOR_ZERO, 0).map(|best| best.first)
    }

    /// Where a run of absent memory begins that a small request would get.
    pub(crate) fn next_absent(&self, pages: u32) -> Option<PageId> {
        self.best(pages, Order::MIN, BENEATH, 0).map(|best| best.first)
    }

    /// A resident block, dirty rather than zero.
    pub(crate) fn search_resident(&self, pages: u32, align: Order) -> Option<Run> {
        if self.resident.pages() < pages { None } else { self.search(pages, align, PLAIN_RESIDENT) }
    }

    /// Any block, resident rather than absent.
    pub(crate) fn search_any(&self, pages: u32, align: Order) -> Option<Run> {
        self.search(pages, align, PLAIN_ANY)
    }

    /// The block with the least that is resident.
    pub(crate) fn search_to_move(&self, pages: u32, align: Order) -> Option<Run> {
        self.search(pages, align, BENEATH)
    }

    /// Takes `pages` pages out of the buddy, the cheapest at hand. Where absent pages will do and no run is long enough,
    /// the zone reaches for one.
    fn search(&self, pages: u32, align: Order, cost: Cost) -> Option<Run> {
        // The end of a longer run may be no page number.
        if !(1..=self.memory.pages).contains(&pages) {
            return None;
        }
        let order = Order::holding(pages).unwrap_or(MAX_ORDER).max(align);
        for attempt in 0..ATTEMPTS {
            let moment = self.scrubbing.moment();
            let goal = cost.goal(pages, self.resident.zero(), self.resident.dirty());
            let best = self.best(pages, align, cost, goal);
            // The run that scrubd holds may be all that keeps a large block from being
            // whole, and asking for it costs little beside the use of such a block.
            let perfect = best.as_ref().is_some_and(|best| best.cost <= goal);
            let worth_it = best.is_none() || order.get() >= HUGE_ORDER;
            if !perfect && worth_it && attempt < ASKED && self.scrubbing.gives_way(moment) {
                continue;
            }
            let Some(best) = best else {
                if cost.absent.is_some()
                    && !self.has_room(pages, align)
                    && self.map_for(pages, align)
                {
                    continue;
                }
                return None;
            };
            let Some(run) = self.take(&best, pages, order) else { continue };
            match self.grasp(run, cost) {
                Grasp::Held(run) => return Some(run),
                Grasp::Changed => {}
                Grasp::Unshowable => return None,
            }
        }
        None
    }

    /// Whether some free memory holds such a block, whatever it costs.
    fn has_room(&self, pages: u32, align: Order) -> bool {
        self.best(pages, align, BENEATH, u64::MAX).is_some()
    }

    /// Takes the pages of a candidate out of the buddy. `None`: another thread was faster.
    fn take(&self, best: &Candidate, pages: u32, order: Order) -> Option<Run> {
        let taken = match best.within {
            Some((block, from)) => self.buddy.carve(block, from, best.first, order),
            None => self.buddy.take_run(Span::new(best.first, pages)),
        };
        let (run, rest) = taken?.split(pages);
        if let Some(rest) = rest {
            self.buddy.put_run(rest);
        }
        Some(run)
    }

    /// A run that is out of the buddy leaves the sums of free pages, or goes back.
    fn grasp(&self, run: Run, cost: Cost) -> Grasp {
        let tally = self.states.tally(run.span());
        self.resident.sub(tally);
        let grasp = match cost.of(tally) {
            None => Grasp::Changed,
            Some(_) if !self.keep_on_fork(run.span()) => Grasp::Unshowable,
            Some(_) => return Grasp::Held(run),
        };
        self.put_as_it_was(run);
        grasp
    }

    /// The cheapest of the first [`CANDIDATES`], or the first that costs no more than `goal`.
    fn best(&self, pages: u32, align: Order, cost: Cost, goal: u64) -> Option<Candidate> {
        let left = CANDIDATES.min(LOOKED_AT / pages).max(1);
        let mut search = Search { pool: self, pages, cost, goal, left, best: None };
        // How it ends does not matter: `best` has the result.
        let _ = if pages >= HUGE_PAGES || align > Order::HUGE {
            search.in_huge_runs(align)
        } else {
            search.in_blocks(Order::holding(pages)?.max(align))
        };
        search.best
    }
}

/// One search under way: what is searched for, and the best that it has seen.
struct Search<'a, B> {
    pool: &'a Pool<B>,
    pages: u32,
    cost: Cost,
    /// The first candidate that costs no more ends the search.
    goal: u64,
    /// Candidates that may yet be looked at.
    left: u32,
    best: Option<Candidate>,
}

impl<B: Backing> Search<'_, B> {
    /// Looks at one candidate; breaks off where no further one is to be looked at. Out of line: a copy in each of its
    /// callers would make the search half as long again.
    #[inline(never)]
    fn look(&mut self, first: PageId, within: Option<(PageId, Order)>) -> ControlFlow<()> {
        if self.left == 0 {
            return ControlFlow::Break(());
        }
        self.left -= 1;
        let tally = self.pool.states.tally(Span::new(first, self.pages));
        let Some(cost) = self.cost.of(tally) else {
            return ControlFlow::Continue(());
        };
        if self.best.as_ref().is_none_or(|best| cost < best.cost) {
            self.best = Some(Candidate { cost, first, within });
        }
        if cost <= self.goal { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Looks into runs of free huge blocks, by address.
    fn in_huge_runs(&mut self, align: Order) -> ControlFlow<()> {
        let Pool { buddy, freed, .. } = self.pool;
        let length = self.pages.div_ceil(HUGE_PAGES);
        let aligned = (align.pages() / HUGE_PAGES).max(1);
        let step = (length / STEPS).max(1).next_multiple_of(aligned);
        buddy.runs(length).try_for_each(|run| {
            let start = run.huge.next_multiple_of(aligned);
            let end = (run.huge + run.len + 1).saturating_sub(length);
            let only_resident = self.cost.absent.is_none();
            let mut look_at = |huge: u32| {
                let fits = huge.is_multiple_of(aligned);
                if fits { self.look(PageId(huge << HUGE_ORDER), None) } else { Continue(()) }
            };
            let on_grid = |huge: &u32| (huge - start).is_multiple_of(step);
            if only_resident {
                // Where nothing is resident there is nothing to look at, and that is most of it.
                return freed.resident.runs(start..end).try_for_each(|run| {
                    look_at(run.start)?;
                    (run.start + 1..run.end).filter(on_grid).try_for_each(&mut look_at)
                });
            }
            let resident = |huge: u32| freed.resident.has(huge);
            let begins = |huge: &u32| resident(*huge) && (*huge == start || !resident(huge - 1));
            (start..end).filter(|huge| on_grid(huge) || begins(huge)).try_for_each(look_at)
        })
    }

    /// Looks into split blocks first, then into the lowest huge blocks, and at last into the split blocks behind blocks
    /// that grow.
    fn in_blocks(&mut self, order: Order) -> ControlFlow<()> {
        let (buddy, places) = (&self.pool.buddy, self.pool.places());
        let mut look_in = |(block, length, within): (PageId, u32, _)| {
            (0..length / order.pages())
                .try_for_each(|n| self.look(block.plus(n * order.pages()), within))
        };
        let split = |near: bool| {
            let orders =
                order.to_huge().filter(move |&from| from < Order::HUGE && buddy.count(from) > 0);
            orders.flat_map(move |from| {
                let blocks = buddy.blocks(from).filter(move |&at| (at < places) == near);
                blocks.map(move |block| (block, from.pages(), Some((block, from))))
            })
        };
        split(true).try_for_each(&mut look_in)?;
        buddy.runs(1).try_for_each(|run| {
            look_in((PageId(run.huge << HUGE_ORDER), run.len << HUGE_ORDER, None))
        })?;
        split(false).try_for_each(&mut look_in)
    }
}
