//! Blocks that change their size: in place where that can be.
//!
//! A block that has outgrown its place once will again: it moves to where it has room, in
//! the upper half of the zone, of which the rest is address space that nobody uses. The
//! next time it grows there without a copy, and leaves nothing behind.
//!
//! What moves is copied to memory that is resident. Where it is not, a large block's pages
//! themselves are moved (`mremap`), and absent ones stay behind.

use crate::block::{Block, Dirty};
use crate::config::OnFree;
use crate::config::without::Mechanism;
use crate::count::counters::Counter;
use crate::mem::backing::Backing;
use crate::mem::states::{PageState, Tally};
use crate::sync::{AtomicU32, Ordering::Relaxed};
use crate::units::{HUGE_ORDER, HUGE_PAGES, Order, PAGE, PageId};
use crate::zone::Zone;

/// Places with room, each a part of the upper half of the zone.
const PLACES: u32 = 16;
/// How often places are halved, for more blocks that grow side by side: one without a place is
/// copied each time. Measured: 64 blocks that grow to 16 MiB by halves take 508 ms with 16 places,
/// 252 ms with 256 (433 ms under glibc, which moves pages).
const HALVINGS: u32 = 4;
/// A block of fewer pages (1 MiB) is copied in less time than it takes to fault in its
/// new place.
const COPIED: u32 = 256;
/// A place is worth having for a block of at most one part in this many of it.
const ROOM: u32 = 4;
/// From so many pages on (2 MiB) a block is not copied to where memory is absent, but the kernel moves
/// its pages: 10 us, where a copy and its faults take 700.
const MOVED: u32 = HUGE_PAGES;
/// What moved comes back cold: fresh memory lies in its place. Who gave so many such blocks back is likely to
/// take, grow and free the next, and has more of memory that stays resident: 4 blocks that grow from 4 to 16
/// MiB again and again take 4.6 ms so, and 43 under glibc, which moves them each time.
const CAME_BACK: u32 = 4;
/// From here on (32 MiB) they are moved all the same, as by glibc: to hold both copies costs more than time.
const MOVED_ALWAYS: u32 = 8192;

/// How many blocks came back in whose place fresh memory was put, [`CAME_BACK`] at most, or [`NEVER`].
pub(crate) struct CameBack(AtomicU32);

/// Nothing moves any more.
const NEVER: u32 = u32::MAX;

impl CameBack {
    pub(crate) fn new() -> CameBack {
        CameBack(AtomicU32::new(0))
    }

    /// Whether pages may change their addresses.
    pub(crate) fn may_move(&self) -> bool {
        self.0.load(Relaxed) != NEVER
    }

    fn note(&self) {
        // Never to NEVER, nor from there.
        let _ = self.0.fetch_update(Relaxed, Relaxed, |n| (n < CAME_BACK).then(|| n + 1));
    }

    /// Whether to move a block of so many pages.
    fn moves(&self, pages: u32) -> bool {
        match self.0.load(Relaxed) {
            NEVER => false,
            CAME_BACK.. => pages >= MOVED_ALWAYS,
            _ => pages >= MOVED,
        }
    }
}

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
        let Some(tally) = self.taken(behind, more) else { return Grown::No };
        self.count_plain(behind, more, tally);
        *block = Block::new(first, pages);
        Grown::Yes
    }

    /// Makes a block `pages` long, which is more than it has, at another place: one with room
    /// behind it for more if there is any. What cannot be is `Err`, the block as it was.
    pub fn grow_elsewhere(
        &self,
        block: Block<Dirty>,
        pages: u32,
        align: Order,
    ) -> Result<Block<Dirty>, Block<Dirty>> {
        debug_assert!(pages > block.pages());
        let (from, old) = (block.first(), block.pages());
        let moves = from.0.is_multiple_of(HUGE_PAGES) && self.came_back.moves(old);
        let mut found = self.place(pages, align, moves);
        if moves && found.is_none() {
            // What is resident is better copied to: the next owner finds it so too.
            found = self
                .search_resident(pages, align)
                .or_else(|| self.drain_for(pages).then(|| self.search_resident(pages, align))?)
                .or_else(|| self.search_to_move(pages, align));
        }
        let Some(first) = found else {
            let Some(room) = self.plain(pages, align) else { return Err(block) };
            self.memory.copy(from, room.first(), old);
            self.free(block);
            return Ok(room);
        };
        self.cpu().counters.bump(Counter::PlainRequests);
        let tally = self.states.tally(first, pages);
        if moves && tally.absent > pages / 2 {
            self.move_content(block, first, pages);
        } else {
            self.count_plain(first, pages, tally);
            self.memory.copy(from, first, old);
            self.free(block);
        }
        Ok(Block::new(first, pages))
    }

    /// A place for `pages` with room behind it for more, if so many need not be a part of one, and so
    /// many pages of it.
    fn place(&self, pages: u32, align: Order, large: bool) -> Option<PageId> {
        if !self.has(Mechanism::Places) {
            return None;
        }
        let (place, beyond) = (self.place_pages(), self.places().0);
        let places = |halvings: u32| {
            let place = (place >> halvings) / HUGE_PAGES * HUGE_PAGES;
            let fits = (COPIED..=place / ROOM).contains(&pages) || large && halvings == 0;
            let fits = fits && align.get() <= HUGE_ORDER;
            let all = (0..PLACES << halvings).filter(move |n| halvings == 0 || n % 2 == 1);
            all.filter(move |_| fits).map(move |n| PageId(beyond + n * place))
        };
        let mut places = (0..=HALVINGS).flat_map(places);
        let first = places.find(|&at| self.buddy.take_run(at, pages))?;
        self.taken(first, pages).map(|_| first)
    }

    /// What a run holds that came out of the buddy, and leaves the stock; or it goes back, as it
    /// cannot be shown.
    fn taken(&self, first: PageId, pages: u32) -> Option<Tally> {
        let tally = self.states.tally(first, pages);
        self.stock.sub(tally);
        if !self.show(first, pages) {
            self.return_to_buddy(first, pages);
            return None;
        }
        Some(tally)
    }

    fn place_pages(&self) -> u32 {
        self.pages() / 2 / PLACES / HUGE_PAGES * HUGE_PAGES
    }

    /// Where the places begin. Small blocks keep away from there: one behind a block that grows
    /// would be in its way.
    pub(crate) fn places(&self) -> PageId {
        PageId(self.pages() - PLACES * self.place_pages())
    }

    /// Brings what a block holds to a longer one that nobody has yet, and gives back what it
    /// leaves: absent pages, but where they had to be copied.
    fn move_content(&self, block: Block<Dirty>, to: PageId, pages: u32) {
        let (from, old) = (block.first(), block.pages());
        let (rest, left) = (to.plus(old), pages - old);
        let (lost, added) = (self.states.tally(to, old), self.states.tally(rest, left));
        // Before they move: the mapping may be one that a child does not get, and must find sealed.
        self.mark_moved(to, old);
        let moved = self.memory.carry(from, to, old);
        if moved < old {
            self.states.set(to.plus(moved), old - moved, PageState::Dirty);
            self.free(Block::<Dirty>::new(from.plus(moved), old - moved));
        }
        if moved > 0 {
            self.leave(from, to, moved, lost);
        }
        // At last: until then the block is counted twice.
        let copied = Tally { absent: lost.absent.min(old - moved), ..Tally::default() };
        self.count_plain(to.plus(moved), old - moved, copied);
        self.count_plain(rest, left, added);
    }

    /// What lay at `from` has moved to `to`, where of the place's pages so many were `lost`.
    fn leave(&self, from: PageId, to: PageId, moved: u32, lost: Tally) {
        let cpu = self.cpu();
        cpu.counters.add(Counter::MovedBytes, u64::from(moved) * PAGE as u64);
        cpu.counters.add(Counter::ReleasedBytes, u64::from(lost.zero + lost.dirty) * PAGE as u64);
        cpu.counters.add(Counter::UnusedZeroBytes, u64::from(lost.zero) * PAGE as u64);
        cpu.demand.note_return(self.states.tally(from, moved).zero);
        // Where they are now the mapping begins at another place than the zone's does. Where they
        // were lies what the move left of it: of a file that the program mapped there, all.
        self.note_moved(from, to, moved);
        self.mark_moved(from, moved);
        self.replace_foreign(from, moved);
        self.put_to_buddy(from, moved, self.states.tally(from, moved));
    }

    /// From now on pages keep their addresses: the attributes that the program gave to all of its
    /// mappings do not move as their pages do.
    pub fn never_move(&self) {
        self.came_back.0.store(NEVER, Relaxed);
    }

    /// A block came back in whose place fresh memory was put.
    pub(crate) fn note_replaced(&self) {
        self.came_back.note();
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
