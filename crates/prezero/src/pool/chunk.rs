//! A chunk: the part of a free block that scrubd takes out of circulation at a time.

use crate::block::Run;
use crate::clock::Tick;
use crate::mem::backing::Backing;
use crate::mem::states::PageState;
use crate::pool::Pool;
use crate::units::{GRANULE, Span};
use crate::units::{HUGE_ORDER, HUGE_PAGES, Order, PageId};

/// A part of a free block, at most a huge block long.
pub(crate) struct Chunk {
    block: PageId,
    from: Order,
    pub(crate) first: PageId,
    pub(crate) order: Order,
}

impl<B: Backing> Pool<B> {
    /// The first chunk with a page in `state` whose huge block has resident free pages and `fits`, told when memory
    /// of it was last freed. The longest run of huge blocks
    /// first, then the highest order, so that pages that are cleared together can be used together.
    pub(crate) fn find_chunk(
        &self,
        stop: Order,
        state: PageState,
        fits: impl Fn(Option<Tick>) -> bool,
    ) -> Option<Chunk> {
        self.find_chunk_without(stop, state, None, fits)
    }

    /// As [`find_chunk`](Pool::find_chunk), and with no page in the state `without`.
    pub(crate) fn find_chunk_without(
        &self,
        stop: Order,
        state: PageState,
        without: Option<PageState>,
        fits: impl Fn(Option<Tick>) -> bool,
    ) -> Option<Chunk> {
        let look = |first: PageId, order: Order| {
            if !fits(self.freed.at[first.huge()].get()) {
                return None;
            }
            let has = |state| self.states.find(Span::new(first, order.pages()), state).is_some();
            let found = has(state) && !without.is_some_and(has);
            found.then_some(Chunk { block: first, from: order, first, order })
        };
        let huge = |huge: u32| look(PageId(huge << HUGE_ORDER), Order::HUGE);
        let mut best: Option<(u32, Chunk)> = None;
        for run in self.buddy.runs(stop.pages().div_ceil(HUGE_PAGES)) {
            if best.as_ref().is_some_and(|(len, _)| *len >= run.len) {
                continue;
            }
            // Most of a zone was never used: a look at each huge block would take too long.
            let part = run.huge..run.huge + run.len;
            let found = self.freed.resident.runs(part).flatten().find_map(huge);
            best = found.map(|chunk| (run.len, chunk)).or(best);
        }
        let split = || {
            let orders = stop.to_huge().rev().filter(|&order| order < Order::HUGE);
            orders.flat_map(|order| self.buddy.blocks(order).map(move |block| (block, order)))
        };
        let found = best.map(|(_, chunk)| chunk);
        found.or_else(|| split().find_map(|(block, order)| look(block, order)))
    }

    /// An absent chunk of at most `most` pages, or one granule: where a request would get absent memory now.
    pub(crate) fn find_absent(&self, most: u64) -> Option<Chunk> {
        let most = most.clamp(u64::from(GRANULE), u64::from(HUGE_PAGES / 2));
        let pages = 1 << most.ilog2();
        let first = self.next_absent(pages)?;
        self.chunk_within((first, pages), PageState::Absent, most, |_| true)
    }

    /// The first chunk of a run with a page in `state`, if it is free and `fits`: of at most `most`
    /// pages, or one granule.
    pub(crate) fn chunk_within(
        &self,
        (first, pages): (PageId, u32),
        state: PageState,
        most: u64,
        fits: impl Fn(Option<Tick>) -> bool,
    ) -> Option<Chunk> {
        let found = self.states.find(Span::new(first, pages), state)?;
        let (block, from) = self.buddy.holder(found.first)?;
        let most = Order::new((most.max(u64::from(GRANULE))).ilog2())?;
        let order = Order::HUGE.min(from).min(Order::holding(pages)?).min(most);
        let first = PageId(found.first.0 & !(order.pages() - 1));
        fits(self.freed.at[first.huge()].get()).then_some(Chunk { block, from, first, order })
    }

    /// Takes a chunk out of circulation; `None` if its block is no longer free.
    pub(crate) fn borrow(&self, chunk: &Chunk) -> Option<Run> {
        let run = self.buddy.carve(chunk.block, chunk.from, chunk.first, chunk.order)?;
        self.resident.sub(self.states.tally(run.span()));
        Some(run)
    }
}
