//! Address space: what the zone maps of it, and unmaps.
//!
//! A zone numbers as many pages as it may ever use, and maps few of them at first: limits of address space and tools
//! count what is mapped. A request that finds no room has the zone map more. A program that sets `RLIMIT_AS` on
//! itself finds the limit reached already. Then the zone *shrinks*: free huge blocks are unmapped for good, the highest
//! first. Where most of what a zone has mapped is free and absent, that is unmapped too, and mapped again for a request.
//!
//! A block that is not mapped, not yet or no more, is out of the map, so no code of the zone touches it, and the
//! kernel may map others there. Before an address counts as the zone's, [`is_unmapped`](Pool::is_unmapped) is asked. The bit
//! is cleared before the kernel gets the addresses, and set when they are the zone's.

use std::ops::Range;

use prezero_sys::memory::Errno;

use crate::block::Run;
use crate::map::state::PageState;
use crate::mem::backing::Backing;
use crate::mem::bits::Bits;
use crate::pool::Pool;
use crate::pool::purge::{AT_ONCE, bytes, pages, parts};
use crate::sync::{AtomicU32, Ordering::Relaxed};
use crate::units::{HUGE, HUGE_ORDER, HUGE_PAGES, Order, PageId, Span};

/// A zone is trimmed from this multiple on of what it would keep mapped. A program that frees and asks again does not
/// pay for that.
/// Moved by: `cargo test -p prezero-preload --test shim limits`.
const SLACK: u32 = 2;

/// See the module.
pub(crate) struct Mapped {
    bits: Bits,
    huge: AtomicU32,
    /// Not 0: the zone reaches no further.
    ended: AtomicU32,
}

impl Mapped {
    /// Of `huge` huge blocks the first `mapped`.
    pub(crate) fn new(huge: u32, mapped: u32) -> Result<Mapped, Errno> {
        let bits = Bits::new(huge)?;
        bits.set(0..mapped);
        Ok(Mapped { bits, huge: AtomicU32::new(mapped), ended: AtomicU32::new(0) })
    }

    /// Pages that are mapped.
    pub(crate) fn pages(&self) -> u32 {
        self.huge.load(Relaxed) << HUGE_ORDER
    }
}

impl<B: Backing> Pool<B> {
    /// Gives up free address space until the zone has `bytes` left, or as few as the blocks in use
    /// allow.
    pub(crate) fn shrink(&self, bytes: usize) {
        self.purge.mapped.ended.store(1, Relaxed);
        self.beyond((bytes / HUGE) as u32).for_each(|huge| self.unmap(huge));
    }

    /// Unmaps free huge blocks without a page in them, if that is most of what is mapped. For scrubd.
    pub(crate) fn trim(&self) {
        let first = (self.memory.backing().mapped() / HUGE) as u32;
        let keeps = self.used().div_ceil(HUGE_PAGES).saturating_mul(2).max(first);
        let may = self.purge.mapped.ended.load(Relaxed) == 0 && !self.must_not_move();
        if may && self.mapped() > keeps.saturating_mul(SLACK) {
            self.trim_to(keeps);
        }
    }

    /// Unmaps free and absent huge blocks until that number is mapped.
    pub(crate) fn trim_to(&self, keeps: u32) {
        for huge in self.beyond(keeps) {
            parts(huge, self.purge.hidden.ceil(AT_ONCE)).for_each(|part| self.unmap_absent(part));
        }
    }

    /// Huge blocks that the zone has mapped.
    fn mapped(&self) -> u32 {
        self.purge.mapped.huge.load(Relaxed)
    }

    /// The highest free huge blocks, down to that number of mapped ones. Whole units: a part of one could not be
    /// [shown](Pool::show).
    fn beyond(&self, keeps: u32) -> impl Iterator<Item = Range<u32>> {
        let excess = self.mapped().saturating_sub(keeps);
        let free: u32 = self.map.whole_runs(1, u32::MAX).map(|run| run.end - run.start).sum();
        let mut kept = free.saturating_sub(excess);
        self.map.whole_runs(1, u32::MAX).filter_map(move |run| {
            let stays = kept.min(run.end - run.start);
            kept -= stays;
            let hidden = &self.purge.hidden;
            let rest = hidden.ceil(run.start + stays)..hidden.floor(run.end);
            (!rest.is_empty()).then_some(rest)
        })
    }

    /// Gives up all that the zone has, in use or not.
    ///
    /// # Safety
    /// Nothing of the zone is used any more.
    #[allow(unsafe_code)]
    pub(crate) unsafe fn unmap_all(&self) {
        for span in self.mapped_runs() {
            // What the kernel refuses stays mapped; there is no better answer.
            let _ = self.memory.unmap(span);
        }
    }

    /// The runs of pages that are the zone's still: the first, and how many.
    pub(crate) fn mapped_runs(&self) -> impl Iterator<Item = Span> {
        self.purge.mapped.bits.runs(0..self.memory.pages >> HUGE_ORDER).map(|huge| pages(&huge))
    }

    /// Whether a page belongs to others now.
    pub(crate) fn is_unmapped(&self, page: PageId) -> bool {
        page.0 < self.memory.pages && !self.purge.mapped.bits.has(page.huge() as u32)
    }

    /// Pages that are neither free in the map nor unmapped.
    pub(crate) fn used(&self) -> u32 {
        self.purge.mapped.pages().saturating_sub(self.map.sums.free())
    }

    /// Maps room for a block that no free memory of the zone holds. False: there is no room.
    ///
    /// As much again as the zone has, so that this is rare.
    #[cold]
    pub(crate) fn map_for(&self, pages: u32, align: Order) -> bool {
        let aligned = (align.pages() / HUGE_PAGES).max(1);
        let length = pages.div_ceil(HUGE_PAGES);
        let had = self.mapped();
        self.purge.mapped.bits.gaps(0..self.memory.pages >> HUGE_ORDER).any(|run| {
            let least = run.start.next_multiple_of(aligned) + length;
            least <= run.end
                && self.map_more(run.start, least, least.max(run.start.saturating_add(had)))
        })
    }

    /// Reaches for the address space behind a block that is to grow from `old` pages to `pages`, or for a place of so
    /// many.
    pub(crate) fn map_behind(&self, first: PageId, old: u32, pages: u32) -> bool {
        let end = |pages: u32| first.0.saturating_add(pages).div_ceil(HUGE_PAGES);
        let from = first.plus(old).0.div_ceil(HUGE_PAGES);
        if end(pages) > self.memory.pages >> HUGE_ORDER {
            return false;
        }
        // The first of these that is not mapped.
        let Some(unmapped) = self.purge.mapped.bits.gaps(from..end(pages)).next() else {
            return false;
        };
        self.map_more(unmapped.start, end(pages), end(pages.saturating_mul(2)))
    }

    /// Maps huge blocks from `start` to `most`, or to `least` if the kernel has no more, up to where others are mapped
    /// already. False: nothing was mapped.
    fn map_more(&self, start: u32, least: u32, most: u32) -> bool {
        let all = self.memory.pages >> HUGE_ORDER;
        let (start, least, most) = (
            self.purge.hidden.floor(start),
            self.purge.hidden.ceil(least).min(all),
            self.purge.hidden.ceil(most).min(all),
        );
        let Some(unmapped) =
            self.purge.mapped.bits.gaps(start..most).next().filter(|run| run.start == start)
        else {
            return false;
        };
        if self.purge.mapped.ended.load(Relaxed) != 0 {
            return false;
        }
        for end in [unmapped.end, unmapped.end.min(least)] {
            let huge = start..end;
            let (offset, len) = bytes(&huge);
            match self.memory.backing().extend(offset, len) {
                Ok(()) => {
                    self.note_fresh(pages(&huge));
                    self.hide_new(&huge);
                    self.purge.mapped.bits.set(huge.clone());
                    self.purge.mapped.huge.fetch_add(huge.len() as u32, Relaxed);
                    self.map.put(Run::taken(pages(&huge)));
                    return true;
                }
                // Another mapping, or another thread was faster.
                Err(Errno::EXIST) => {}
                Err(_) if end == least => self.purge.mapped.ended.store(1, Relaxed),
                Err(_) => {}
            }
        }
        false
    }

    /// Gives up these huge blocks, if they are all free.
    fn unmap(&self, huge: Range<u32>) {
        let span = pages(&huge);
        let Some(run) = self.map.take(span) else { return };
        self.purge.mapped.bits.clear(huge.clone());
        if self.memory.unmap(span).is_err() {
            // Too many mappings to split one: all is as it was.
            self.purge.mapped.bits.set(huge);
            self.map.put(run);
            return;
        }
        // Nothing puts it back.
        let span = run.into_span();
        self.map.set(span, PageState::Remapped);
        self.purge.mapped.huge.fetch_sub(huge.end - huge.start, Relaxed);
    }

    /// Unmaps these huge blocks, if they are all free and absent. They stay absent, so that no record changes that
    /// another thread may read as soon as it has mapped them again.
    fn unmap_absent(&self, huge: Range<u32>) {
        let span = pages(&huge);
        // Looked at before too: what is out of the map no request finds.
        if !self.map.all(span, PageState::Absent) {
            return;
        }
        let Some(run) = self.map.take(span) else { return };
        if self.map.all(span, PageState::Absent) {
            self.purge.mapped.bits.clear(huge.clone());
            self.purge.mapped.huge.fetch_sub(huge.len() as u32, Relaxed);
            if self.memory.unmap_absent(span).is_ok() {
                run.into_span();
                return;
            }
            // Too many mappings to split one.
            self.purge.mapped.huge.fetch_add(huge.len() as u32, Relaxed);
            self.purge.mapped.bits.set(huge);
        }
        self.map.put(run);
    }
}
