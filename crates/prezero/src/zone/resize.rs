//! Blocks that change their size: in place where that can be.
//!
//! A block that has outgrown its place once will again. It moves to a place with room, in the upper half of the
//! zone, whose rest is unused address space. The next time it grows there without a copy, and leaves nothing
//! behind.
//!
//! A block moves by a copy to memory that is resident. Where the new place is absent the pages of a large block
//! move themselves (`mremap`), and absent ones stay behind.

use crate::block::{Block, Dirty, Run};
use crate::config::OnFree;
use crate::count::counters::Counter;
use crate::map::state::{PageState, Tally};
use crate::mem::backing::Backing;
use crate::units::{HUGE_PAGES, Order, PAGE, PageId, Span, whole};
use crate::zone::Zone;

/// Whether a block could be made longer where it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Grown {
    /// It is longer now.
    Yes,
    /// Its neighbours are not free: it is as it was.
    No,
}

impl<B: Backing> Zone<B> {
    /// Shortens a block where it is to whole slices with `pages` pages, and gives its tail back. A block that is not
    /// longer, or `pages` of 0, leaves it as it is.
    ///
    /// # Panics
    /// If another zone handed the block out.
    pub fn shorten_to(&self, block: Block<Dirty>, pages: u32) -> Block<Dirty> {
        block.expect_of(self.id);
        let pages = whole(pages);
        if pages == 0 || pages >= block.pages() {
            return block;
        }
        let (kept, Some(tail)) = self.take_back(block).split(pages) else {
            unreachable!("the block is longer than what is kept of it")
        };
        let span = tail.span();
        let mut tally = self.classify(self.cpu(), span);
        if self.config.on_free == OnFree::Clear {
            tally = self.clear_freed(self.cpu(), span, tally);
        }
        self.cpu().counters.add(Counter::FreeBytes, span.bytes() as u64);
        self.put_to_pool(tail, tally);
        self.nudge(span.pages);
        self.hand_out(kept)
    }

    /// Makes a block `pages` long where it is, if the pages behind it are free.
    ///
    /// # Panics
    /// If another zone handed the block out.
    pub fn try_grow(&self, block: &mut Block<Dirty>, pages: u32) -> Grown {
        block.expect_of(self.id);
        let (first, old, pages) = (block.first(), block.pages(), whole(pages));
        let end = first.0.checked_add(pages);
        if pages <= old || end.is_none_or(|end| end > self.pool.memory.pages) {
            return Grown::No;
        }
        let run = self.pool.take_reaching(first, old, pages);
        let Some((run, tally)) = run.and_then(|run| self.pool.taken(run)) else {
            return Grown::No;
        };
        self.count_plain(run.into_span(), tally);
        *block = self.hand_out(Run::taken(Span::new(first, pages)));
        Grown::Yes
    }

    /// Makes a block `pages` long, which is more than it has, at another place: one with room
    /// behind it for more if there is any. `Err` is the block as it was, where the zone has no such
    /// place or `pages` are not more.
    ///
    /// # Panics
    /// If another zone handed the block out.
    pub fn grow_elsewhere(
        &self,
        block: Block<Dirty>,
        pages: u32,
        align: Order,
    ) -> Result<Block<Dirty>, Block<Dirty>> {
        block.expect_of(self.id);
        let (from, old, pages) = (block.first(), block.pages(), whole(pages));
        // All old pages are copied to the new place.
        if pages <= old {
            return Err(block);
        }
        let moves = from.0.is_multiple_of(HUGE_PAGES)
            && self.pool.came_back.moves(old)
            && !self.pool.must_not_move();
        let mut found = self.own_pool().place(pages, align, moves);
        if moves && found.is_none() {
            // A copy to resident memory is better: the next owner finds it resident too.
            found = self
                .own_pool()
                .search_resident(pages, align)
                .or_else(|| self.own_pool().search_to_move(pages, align));
        }
        let Some(run) = found else {
            let Some(room) = self.plain(pages, align) else { return Err(block) };
            self.pool.memory.copy(from, room.first(), old);
            self.free(block);
            return Ok(room);
        };
        self.cpu().counters.bump(Counter::PlainRequests);
        let (first, tally) = (run.first(), self.pool.map.tally(run.span()));
        if moves && tally.absent > pages / 2 {
            self.move_content(block, first, pages);
        } else {
            self.count_plain(run.span(), tally);
            self.pool.memory.copy(from, first, old);
            self.free(block);
        }
        Ok(self.hand_out(run))
    }

    /// Brings a block's content to a longer block without an owner, and gives back what it
    /// leaves: absent pages, but where they had to be copied.
    fn move_content(&self, block: Block<Dirty>, to: PageId, pages: u32) {
        let (from, old) = (block.first(), block.pages());
        let (rest, left) = (to.plus(old), pages - old);
        let (lost, added) =
            (self.pool.map.tally(Span::new(to, old)), self.pool.map.tally(Span::new(rest, left)));
        // Before they move: the mapping may be one that a child does not get, and must be marked remapped.
        self.pool.mark_moved(Span::new(to, old));
        // A slice of which a part was moved is replaced whole, where it was and once it comes back.
        let moved = whole(self.pool.memory.carry(from, to, old));
        if moved < old {
            self.pool.map.set(Span::new(to.plus(moved), old - moved), PageState::Dirty);
            self.free_run(Run::taken(Span::new(from.plus(moved), old - moved)));
        }
        if moved > 0 {
            self.leave(from, to, moved, lost);
        }
        // At last: until then the block is counted twice.
        let copied = Tally { absent: lost.absent.min(old - moved), ..Tally::default() };
        self.count_plain(Span::new(to.plus(moved), old - moved), copied);
        self.count_plain(Span::new(rest, left), added);
    }

    /// What lay at `from` has moved to `to`, where `lost` of the place's pages were resident.
    fn leave(&self, from: PageId, to: PageId, moved: u32, lost: Tally) {
        let cpu = self.cpu();
        cpu.counters.add(Counter::MovedBytes, u64::from(moved) * PAGE as u64);
        cpu.counters.add(Counter::ReleasedBytes, u64::from(lost.zero + lost.dirty) * PAGE as u64);
        cpu.counters.add(Counter::UnusedZeroBytes, u64::from(lost.zero) * PAGE as u64);
        cpu.demand.note_return(self.pool.map.tally(Span::new(from, moved)).zero);
        // Where they are now the mapping begins at another place than the zone's does. Where they
        // were lies what the move left of it: of a file that the program mapped there, all.
        self.pool.note_moved(from, to, moved);
        self.pool.mark_moved(Span::new(from, moved));
        self.pool.replace_remapped(Span::new(from, moved));
        let left = Run::taken(Span::new(from, moved));
        let tally = self.pool.map.tally(left.span());
        self.put_to_pool(left, tally);
    }

    /// From now on pages keep their addresses: the attributes that the program gave to all of its
    /// mappings do not move as their pages do.
    pub fn never_move(&self) {
        self.pool.came_back.never();
    }

    /// From now on pages keep their addresses: free ones are not given back, and no page moves. A user who wants it
    /// otherwise is heeded.
    pub fn no_move(&self) {
        self.pool.ask_no_move();
    }

    /// Counts pages that a plain request got.
    fn count_plain(&self, span: Span, tally: Tally) {
        let Span { pages, .. } = span;
        let counters = &self.cpu().counters;
        counters.add(Counter::PlainBytes, u64::from(pages) * PAGE as u64);
        counters.add(Counter::WasteBytes, u64::from(tally.zero) * PAGE as u64);
        if tally.absent > 0 {
            counters.add(Counter::PlainAbsentBytes, u64::from(tally.absent) * PAGE as u64);
            self.pool.reclaim_before_fault(span, tally.absent);
        }
    }
}
