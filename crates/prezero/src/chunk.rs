//! What scrubd takes out of circulation at a time: a part of a free block.

use crate::backing::Backing;
use crate::page::{HUGE_ORDER, Order, PageId};
use crate::quicklist::GRANULE;
use crate::state::PageState;
use crate::sync::Ordering::Relaxed;
use crate::zone::Zone;

/// A part of a free block, at most a huge block long.
pub(crate) struct Chunk {
    block: PageId,
    from: Order,
    pub(crate) first: PageId,
    pub(crate) order: Order,
}

impl<B: Backing> Zone<B> {
    /// The first chunk with a page in `state` whose huge block `fits`, told when memory
    /// of it was last freed (0: it has no resident free page). Highest order first, so
    /// that what is cleared together can be used together.
    pub(crate) fn find_chunk(
        &self,
        stop: Order,
        state: PageState,
        fits: impl Fn(u32) -> bool,
    ) -> Option<Chunk> {
        self.find_chunk_without(stop, state, None, fits)
    }

    /// As [`find_chunk`](Zone::find_chunk), and with no page in the state `without`.
    pub(crate) fn find_chunk_without(
        &self,
        stop: Order,
        state: PageState,
        without: Option<PageState>,
        fits: impl Fn(u32) -> bool,
    ) -> Option<Chunk> {
        let absent_fits = fits(0);
        for from in stop.and_above().rev() {
            let order = Order::new(HUGE_ORDER.min(from.get()))?;
            for block in self.buddy.blocks(from) {
                let look = |huge: u32| {
                    if !fits(self.freed_at[huge as usize].load(Relaxed)) {
                        return None;
                    }
                    let first = PageId(huge << HUGE_ORDER).max(block);
                    let has = |state| self.states.find(first, order.pages(), state).is_some();
                    let found = has(state) && !without.is_some_and(has);
                    found.then_some(Chunk { block, from, first, order })
                };
                let huge = block.huge() as u32..block.plus(from.pages() - 1).huge() as u32 + 1;
                // Most of a zone was never used: to ask of each took 10 us.
                let found = if absent_fits {
                    { huge }.find_map(look)
                } else {
                    self.resident.runs(huge).flatten().find_map(look)
                };
                if found.is_some() {
                    return found;
                }
            }
        }
        None
    }

    /// The first chunk of a run with a page in `state`, if it is free and `fits`: of at most `most`
    /// pages, or one granule.
    pub(crate) fn chunk_within(
        &self,
        (first, pages): (PageId, u32),
        state: PageState,
        most: u64,
        fits: impl Fn(u32) -> bool,
    ) -> Option<Chunk> {
        let (found, _) = self.states.find(first, pages, state)?;
        let (block, from) = self.buddy.holder(found)?;
        let most = Order::new((most.max(u64::from(GRANULE))).ilog2())?;
        let order = Order::new(HUGE_ORDER)?.min(from).min(Order::holding(pages)?).min(most);
        let first = PageId(found.0 & !(order.pages() - 1));
        fits(self.freed_at[first.huge()].load(Relaxed)).then_some(Chunk {
            block,
            from,
            first,
            order,
        })
    }

    /// Takes a chunk out of circulation; false if its block is no longer free.
    pub(crate) fn borrow(&self, chunk: &Chunk) -> bool {
        let taken = self.buddy.carve(chunk.block, chunk.from, chunk.first, chunk.order);
        if taken {
            self.stock.sub(self.states.tally(chunk.first, chunk.order.pages()));
        }
        taken
    }
}
