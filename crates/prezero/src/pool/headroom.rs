//! Places for blocks that grow.
//!
//! A block that has outgrown its place once will again. It moves to where it has room: in the upper half of the
//! zone, of which the rest is address space that nothing uses.

use crate::block::Run;
use crate::config::ablation::Mechanism;
use crate::map::state::Tally;
use crate::mem::backing::Backing;
use crate::pool::Pool;
use crate::sync::{AtomicU32, Ordering::Relaxed};
use crate::units::{HUGE_ORDER, HUGE_PAGES, Order, PageId, Span};

/// Places with room, each a part of the upper half of the zone.
/// Moved by: `bench real --only sqlite`.
const PLACES: u32 = 16;
/// Times that places are halved, for more blocks that grow side by side. A block without a place is
/// copied each time.
/// Moved by: `prezero bench grow`.
const HALVINGS: u32 = 4;
/// Pages from which on a block gets a place. A smaller block is copied in less time than the faults
/// of a new place take.
/// Moved by: `bench real --only sqlite`.
const COPIED: u32 = 256;
/// A place is worth having for a block of at most one part in this many of it.
/// Moved by: `bench real --only sqlite`.
const ROOM: u32 = 4;
/// Pages from which on the kernel moves a block's pages to absent memory. A copy there takes the
/// faults as well.
/// Moved by: `prezero bench grow`.
const MOVED: u32 = HUGE_PAGES;
/// Blocks that came back after a move, from which on only large blocks move. A program that frees
/// what it grew grows again, and does better on resident memory.
/// Moved by: `prezero bench grow`.
const CAME_BACK: u32 = 4;
/// Pages from which on a block moves all the same: to hold both copies costs more than time.
/// Moved by: `prezero bench grow`.
const MOVED_ALWAYS: u32 = 8192;

/// How many blocks came back in whose place fresh memory was put, [`CAME_BACK`] at most, or [`NEVER`].
pub(crate) struct CameBack(AtomicU32);

/// Nothing moves any more.
/// Fixed: a value beyond all others.
const NEVER: u32 = u32::MAX;

impl CameBack {
    pub(crate) fn new() -> CameBack {
        CameBack(AtomicU32::new(0))
    }

    /// From now on nothing moves.
    pub(crate) fn never(&self) {
        self.0.store(NEVER, Relaxed);
    }

    /// A block came back in whose place fresh memory was put.
    pub(crate) fn note(&self) {
        // The count stops at CAME_BACK, and NEVER stays.
        let _ = self.0.fetch_update(Relaxed, Relaxed, |n| (n < CAME_BACK).then(|| n + 1));
    }

    /// Whether to move a block of `pages`.
    pub(crate) fn moves(&self, pages: u32) -> bool {
        match self.0.load(Relaxed) {
            NEVER => false,
            CAME_BACK.. => pages >= MOVED_ALWAYS,
            _ => pages >= MOVED,
        }
    }
}

impl<B: Backing> Pool<B> {
    /// A place for `pages` with room behind it for more, if that number need not be a part of one, and so
    /// many pages of it.
    pub(crate) fn place(&self, pages: u32, align: Order, large: bool) -> Option<Run> {
        // The end of a longer run may be no page number.
        if !self.has(Mechanism::Headroom) || pages > self.memory.pages {
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
        let run = places.find_map(|at| self.take_reaching(at, 0, pages))?;
        self.taken(run).map(|(run, _)| run)
    }

    /// The pages from `old` on of a run, out of the map. What is not mapped yet is reached for.
    pub(crate) fn take_reaching(&self, first: PageId, old: u32, pages: u32) -> Option<Run> {
        let take = || self.map.take(Span::new(first.plus(old), pages - old));
        take().or_else(|| self.map_behind(first, old, pages).then(take)?)
    }

    /// The content of a run that came out of the map. `None`: it went back, as it cannot be shown.
    pub(crate) fn taken(&self, run: Run) -> Option<(Run, Tally)> {
        let tally = self.map.tally(run.span());
        if !self.show(run.span()) {
            self.put_as_it_was(run);
            return None;
        }
        Some((run, tally))
    }

    fn place_pages(&self) -> u32 {
        self.memory.pages / 2 / PLACES / HUGE_PAGES * HUGE_PAGES
    }

    /// Where the places begin. Small blocks keep away from there: one behind a block that grows
    /// would be in its way.
    pub(crate) fn places(&self) -> PageId {
        PageId(self.memory.pages - PLACES * self.place_pages())
    }
}
