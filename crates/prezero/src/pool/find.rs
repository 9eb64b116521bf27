//! How a run leaves the pool for a request, or for scrubd.

use crate::block::Run;
use crate::clock::Tick;
use crate::map::search::{Best, Price, Wanted};
use crate::map::state::PageState;
use crate::map::{RESIDENT, WHOLE};
use crate::mem::backing::Backing;
use crate::pool::Pool;
use crate::units::{HUGE_ORDER, HUGE_PAGES, Order, PageId, SLICE, Span};

/// Searches that lose their block to another thread before the request is given up.
/// Fixed: a bound of a lock-free loop, which no test reaches.
const ATTEMPTS: u32 = 8;

/// Times that one search asks scrubd for its run, or looks again because a run came or went
/// meanwhile.
/// Fixed: a bound of a lock-free loop.
const ASKED: u32 = 4;

/// What became of a run that was taken out of the map.
enum Grasp {
    /// It is the caller's.
    Held(Run),
    /// Between the look and the grasp another thread took it, used it and gave it back: not as wanted.
    Changed,
    /// The kernel did not undo what it was told of it: a child or a dump may still lack it.
    Unshowable,
}

impl<B: Backing> Pool<B> {
    /// A block of resident zero pages, or none.
    pub(crate) fn search_zero(&self, pages: u32, align: Order) -> Option<Run> {
        if self.map.sums.zero() < pages { None } else { self.search(pages, align, Price::ALL_ZERO) }
    }

    /// The resident block that is cheapest to make zero.
    pub(crate) fn search_clearable(&self, pages: u32, align: Order) -> Option<Run> {
        self.search_if_resident(pages, align, Price::CLEARABLE)
    }

    /// The block that is cheapest to make zero.
    pub(crate) fn search_for_zero(&self, pages: u32, align: Order) -> Option<Run> {
        self.search(pages, align, Price::FOR_ZERO)
    }

    /// A resident block, dirty rather than zero.
    pub(crate) fn search_resident(&self, pages: u32, align: Order) -> Option<Run> {
        self.search_if_resident(pages, align, Price::PLAIN_RESIDENT)
    }

    /// Any block, resident rather than absent.
    pub(crate) fn search_any(&self, pages: u32, align: Order) -> Option<Run> {
        self.search(pages, align, Price::PLAIN_ANY)
    }

    /// The block with the least that is resident.
    pub(crate) fn search_to_move(&self, pages: u32, align: Order) -> Option<Run> {
        self.search(pages, align, Price::BENEATH)
    }

    /// This very block, if it is free and no page of it is priceless.
    #[inline]
    pub(crate) fn take(&self, block: Span, price: Price) -> Option<Run> {
        price.of(self.map.tally(block))?;
        match self.grasp(self.map.take(block)?, price) {
            Grasp::Held(run) => Some(run),
            Grasp::Changed | Grasp::Unshowable => None,
        }
    }

    fn search_if_resident(&self, pages: u32, align: Order, price: Price) -> Option<Run> {
        if self.map.sums.resident() < pages { None } else { self.search(pages, align, price) }
    }

    /// Takes `pages` pages out of the map, the cheapest at hand. Where absent pages will do and no run is long enough,
    /// the zone reaches for one.
    fn search(&self, pages: u32, align: Order, price: Price) -> Option<Run> {
        for attempt in 0..ATTEMPTS {
            let moment = self.scrubbing.moment();
            let best = self.best(pages, align, price);
            // The run that scrubd holds may be all that keeps a large block from being
            // whole, and asking for it costs little beside the use of such a block.
            let perfect = best.as_ref().is_some_and(|best| best.is_perfect);
            let worth_it = best.is_none() || pages.max(align.pages()) >= HUGE_PAGES;
            if !perfect && worth_it && attempt < ASKED && self.scrubbing.gives_way(moment) {
                continue;
            }
            let Some(best) = best else {
                let wanted = self.wanted(pages, align, price)?;
                // Another thread may have mapped or freed some meanwhile.
                let may_be_absent = price.absent.is_some();
                if may_be_absent && (self.map.has_room(wanted) || self.map_for(pages, align)) {
                    continue;
                }
                return None;
            };
            let Some(run) = self.map.take(best.span) else { continue };
            match self.grasp(run, price) {
                Grasp::Held(run) => return Some(run),
                Grasp::Changed => {}
                Grasp::Unshowable => return None,
            }
        }
        None
    }

    /// The best block for a request. `None` for more pages than the zone has: the end of such a run may be no page number.
    fn best(&self, pages: u32, align: Order, price: Price) -> Option<Best> {
        self.map.best(self.wanted(pages, align, price)?)
    }

    fn wanted(&self, pages: u32, align: Order, price: Price) -> Option<Wanted> {
        let places = self.places().huge() as u32;
        let wanted = Wanted { pages, align, price, places };
        (1..=self.memory.pages).contains(&pages).then_some(wanted)
    }

    /// A run that is out of the map, or back in it.
    fn grasp(&self, run: Run, price: Price) -> Grasp {
        let grasp = match price.of(self.map.tally(run.span())) {
            None => Grasp::Changed,
            Some(_) if !self.show(run.span()) => Grasp::Unshowable,
            Some(_) => return Grasp::Held(run),
        };
        self.put_as_it_was(run);
        grasp
    }

    /// Free memory in `state` of a huge block that `fits`, told when memory of it was last freed; at least `least` pages
    /// of it, and none in the state `without`. A huge block that is free comes whole, one of the longest run first, so
    /// that pages that are cleared together can be used together.
    pub(crate) fn find_idle(
        &self,
        least: u32,
        state: PageState,
        without: Option<PageState>,
        fits: impl Fn(Option<Tick>) -> bool,
    ) -> Option<Span> {
        let all = |huge: u32| Span::new(PageId(huge << HUGE_ORDER), HUGE_PAGES);
        let whole = |huge: &u32| {
            let span = all(*huge);
            let lacks = without.is_none_or(|without| !self.map.any(span, without));
            let is_idle = lacks && self.map.is_free(span) && self.map.any(span, state);
            is_idle && fits(self.map.freed_at(*huge))
        };
        let mut best: Option<(u32, u32)> = None;
        for run in self.map.whole_runs(least.div_ceil(HUGE_PAGES), u32::MAX) {
            let len = run.end - run.start;
            if best.is_none_or(|(longest, _)| len > longest) {
                // Most of a zone was never used: a look at each huge block would take too long.
                let found = self.map.with(run, RESIDENT).find(whole);
                best = found.map(|huge| (len, huge)).or(best);
            }
        }
        if let Some((_, huge)) = best {
            return Some(all(huge));
        }
        let part = |huge: u32| {
            let run = self.map.find_free(all(huge), state).filter(|run| run.pages >= least)?;
            fits(self.map.freed_at(huge)).then_some(run)
        };
        let used = |huge: &u32| self.map.summary(*huge) & WHOLE == 0;
        self.map.with(0..self.map.len(), RESIDENT).filter(used).find_map(part)
    }

    /// Absent memory, at most `most` pages of it or one slice: where a request would get absent memory now.
    pub(crate) fn find_absent(&self, most: u64) -> Option<Span> {
        let pages = 1 << most.clamp(u64::from(SLICE), u64::from(HUGE_PAGES / 2)).ilog2();
        let best = self.best(pages, Order::MIN, Price::BENEATH)?;
        self.idle_within(best.span, PageState::Absent, most)
    }

    /// The first free memory in `state` within a span: at most `most` pages, or one slice.
    pub(crate) fn idle_within(&self, span: Span, state: PageState, most: u64) -> Option<Span> {
        let found = self.map.find_free(span, state)?;
        let most = (most.min(u64::from(HUGE_PAGES)) as u32 / SLICE * SLICE).max(SLICE);
        Some(found.front(found.pages.min(most)))
    }
}
