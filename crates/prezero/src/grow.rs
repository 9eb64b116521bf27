//! Blocks that change their size: in place where that can be.
//!
//! A block that has outgrown its place once will again: it moves to where it has room, in
//! the upper half of the zone, of which the rest is address space that nobody uses. The
//! next time it grows there without a copy, and leaves nothing behind.

use crate::backing::Backing;
use crate::config::OnFree;
use crate::page::{Block, Dirty, HUGE_ORDER, HUGE_PAGES, Order, PAGE, PageId};
use crate::state::Tally;
use crate::stats::Counter;
use crate::zone::Zone;

/// Places with room, each a part of the upper half of the zone.
const PLACES: u32 = 16;
/// How often places are halved, for more blocks that grow side by side: one without a place is
/// copied each time. Measured: 64 blocks that grow to 16 MiB by halves take 508 ms with 16 places,
/// 252 ms with 256 (433 ms under glibc, which moves pages).
const HALVINGS: u32 = 4;
/// A block of fewer pages (1 MiB) is copied in less time than it takes to fault in its
/// new place.
const MOVES: u32 = 256;
/// A place is worth having for a block of at most one part in this many of it.
const ROOM: u32 = 4;

/// Whether a block could be made longer where it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Grown {
    /// It is longer now.
    Yes,
    /// Its neighbours are not free: it is as it was.
    No,
}

impl<B: Backing> Zone<B> {
    /// Shortens a block where it is and gives its tail back. A block that is not longer
    /// than `pages`, or `pages` of 0, leaves it as it is.
    pub fn tail_to(&self, block: Block<Dirty>, pages: u32) -> Block<Dirty> {
        if pages == 0 || pages >= block.pages() {
            return block;
        }
        let (first, tail) = (block.first().plus(pages), block.pages() - pages);
        let mut tally = self.settle(self.cpu(), first, tail);
        if self.config.on_free == OnFree::Clear {
            tally = self.clear_freed(self.cpu(), first, tail, tally);
        }
        self.cpu().counters.add(Counter::FreeBytes, u64::from(tail) * PAGE as u64);
        self.put_to_buddy(first, tail, tally);
        self.daemon.nudge(self, tail);
        Block::new(block.first(), pages)
    }

    /// Makes a block `pages` long where it is, if the pages behind it are free.
    pub fn try_grow(&self, block: &mut Block<Dirty>, pages: u32) -> Grown {
        let (first, old) = (block.first(), block.pages());
        let end = first.0.checked_add(pages);
        if pages <= old || end.is_none_or(|end| end > self.memory.pages) {
            return Grown::No;
        }
        let (behind, more) = (first.plus(old), pages - old);
        if !self.buddy.take_run(behind, more) {
            return Grown::No;
        }
        let tally = self.states.tally(behind, more);
        self.stock.sub(tally);
        if !self.show(behind, more) {
            self.return_to_buddy(behind, more);
            return Grown::No;
        }
        self.count_plain(behind, more, tally);
        *block = Block::new(first, pages);
        Grown::Yes
    }

    /// A block for the content of one that grows to `pages` and cannot where it is: with
    /// room behind it for more, or as [`plain`](Zone::plain) finds it.
    pub fn plain_to_grow(&self, pages: u32, align: Order) -> Option<Block<Dirty>> {
        let place = self.pages() / 2 / PLACES / HUGE_PAGES * HUGE_PAGES;
        let beyond = self.pages() - PLACES * place;
        let places = |halvings: u32| {
            let place = (place >> halvings) / HUGE_PAGES * HUGE_PAGES;
            let roomy = (MOVES..=place / ROOM).contains(&pages) && align.get() <= HUGE_ORDER;
            let all = (0..PLACES << halvings).filter(move |n| halvings == 0 || n % 2 == 1);
            all.filter(move |_| roomy).map(move |n| PageId(beyond + n * place))
        };
        let mut places = (0..=HALVINGS).flat_map(places);
        let Some(first) = places.find(|&at| self.buddy.take_run(at, pages)) else {
            return self.plain(pages, align);
        };
        let tally = self.states.tally(first, pages);
        self.stock.sub(tally);
        if !self.show(first, pages) {
            self.return_to_buddy(first, pages);
            return None;
        }
        self.cpu().counters.bump(Counter::PlainRequests);
        self.count_plain(first, pages, tally);
        Some(Block::new(first, pages))
    }

    /// Counts pages that a plain request got.
    fn count_plain(&self, first: PageId, pages: u32, tally: Tally) {
        let counters = &self.cpu().counters;
        counters.add(Counter::PlainBytes, u64::from(pages) * PAGE as u64);
        counters.add(Counter::WasteBytes, u64::from(tally.zero) * PAGE as u64);
        if tally.absent > 0 {
            self.make_way(counters, first, pages, tally.absent);
        }
    }
}
