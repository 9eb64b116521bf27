//! Requests: which block serves, and its way to its owner.
//!
//! A request goes through a table of [`Source`]s and takes the first block that one of them has. All of them are free
//! in the map; a hint says which of them this CPU freed last.

use crate::block::{Block, Dirty, Run, Zero, ZeroFront};
use crate::class::Class;
use crate::clear::Use;
use crate::clock::{REST_NS, Tick, Ticks};
use crate::count::counters::Counter;
use crate::count::probes;
use crate::cpu::cache::CpuCache;
use crate::cpu::hints::Hint;
use crate::map::search::Price;
use crate::map::state::PageState;
use crate::mem::backing::Backing;
use crate::policy::hot::hot_wins;
use crate::units::{Order, PAGE, Span, whole};
use crate::zone::Zone;
use crate::zone::inline::Rest;
use crate::zone::put_back::CLOCKED_PAGES;

/// The time for which a freed block counts as hot, ns: it lies in its CPU's cache, where a clear in place
/// costs less than to fetch a zero block.
/// Moved by: `bench grid --sizes 64K,256K,1M`, `bench waste --only never,hostile`, `bench pair
/// --threads 1 --ring 2,4`, `prezero bench busy`.
pub(crate) const HOT_NS: u64 = 1_000_000;

/// Where a block may come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Source {
    /// This CPU's hints: a block that is hot, where clearing it beats a zero block that is cold.
    Hot,
    /// The pool: a block that is all zero.
    Zero,
    /// This CPU's hints: the resident block that was freed last.
    Last,
    /// The pool: the resident block that serves this request best.
    Resident,
    /// The pool: any block, absent or not.
    Any,
}

use Source::*;

/// `ZERO`, in the order of what a block costs: its clear, and its lines where another cache holds them. A zero block
/// that this CPU remembers was taken before ([`Zone::zero_to`]).
const ZERO_SOURCES: &[Source] = &[Hot, Zero, Last, Resident, Any];
/// Plain: zero pages last of those that are resident, since they were made for others. A dirty block that this CPU
/// remembers was taken before.
const PLAIN_SOURCES: &[Source] = &[Resident, Any];

/// A request on its way through the table.
#[derive(Clone, Copy)]
struct Request<'a> {
    cpu: &'a CpuCache,
    pages: u32,
    /// The class of its hints, if blocks of this size have some.
    class: Option<Class>,
    align: Order,
    want: Want,
    now: Tick,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Want {
    /// Zero, for this use.
    Zero(Use),
    Plain,
}

/// A block for a request.
struct Found {
    run: Run,
    source: Source,
    /// How long ago it was freed; `None`: not lately.
    age: Option<Ticks>,
}

impl<B: Backing> Zone<B> {
    /// `ZERO`: a zeroed block of `pages` pages, rounded up to whole slices, at a multiple of `align`, cleared inline
    /// only where it is not zero already. `None` when the zone has no such block free.
    #[inline]
    pub fn zero(&self, pages: u32, align: Order) -> Option<Block<Zero>> {
        self.zero_for(pages, align, Use::Unknown)
    }

    /// As [`zero`](Zone::zero), told what its owner will do with the block first.
    #[inline]
    pub fn zero_for(&self, pages: u32, align: Order, first_use: Use) -> Option<Block<Zero>> {
        let pages = whole(pages);
        Some(self.hand_out(self.zero_to(pages, pages, align, first_use)?))
    }

    /// As [`zero_for`](Zone::zero_for), where only the first `front` pages need be zero: pages
    /// that round a request up are not cleared.
    /// `None` for a front of no page, or of more than the block has, too.
    #[inline]
    pub fn zero_front(
        &self,
        front: u32,
        pages: u32,
        align: Order,
        first_use: Use,
    ) -> Option<ZeroFront> {
        if !(1..=pages).contains(&front) {
            return None;
        }
        let run = self.zero_to(front, whole(pages), align, first_use)?;
        Some(ZeroFront::of(self.hand_out(run), front))
    }

    /// A block of which `front` pages are zero.
    #[inline]
    fn zero_to(&self, front: u32, pages: u32, align: Order, first_use: Use) -> Option<Run> {
        let cpu = self.cpu();
        cpu.counters.bump(Counter::ZeroRequests);
        if let Some(run) = self.hinted_zero(cpu, pages, align) {
            cpu.demand.note(pages);
            self.hand_out_zero(cpu, run.span(), front);
            return Some(run);
        }
        let found = self.search(cpu, pages, align, Want::Zero(first_use), ZERO_SOURCES)?;
        let fresh = if pages < CLOCKED_PAGES { HOT_NS } else { REST_NS };
        // A block freed a moment before is no demand: scrubd could not have cleared it in time.
        let rest = match found.age {
            Some(age) if age <= Ticks::rounded_up(fresh) => Rest::Hot,
            _ => Rest::Rested,
        };
        if rest == Rest::Rested {
            cpu.demand.note(pages);
        }
        if found.source == Zero {
            self.hand_out_zero(cpu, found.run.span(), front);
        } else {
            self.make_zero(cpu, found.run.span(), front, rest);
        }
        Some(found.run)
    }

    /// `ONLY_ZERO`: a resident zero block at once, or nothing. Never clears, never
    /// blocks, never asks the kernel for memory.
    pub fn only_zero(&self, pages: u32, align: Order) -> Option<Block<Zero>> {
        let (cpu, pages) = (self.cpu(), whole(pages));
        cpu.counters.bump(Counter::OnlyZeroRequests);
        cpu.demand.note(pages);
        let run = self
            .hinted_zero(cpu, pages, align)
            .or_else(|| self.own_pool().search_zero(pages, align))?;
        if !self.trust.is_whole() {
            // It must not be cleared here: once trust is lost nothing is served.
            let tally = self.pool.map.tally(run.span());
            self.put_to_pool(run, tally);
            return None;
        }
        self.hand_out_zero(cpu, run.span(), pages);
        Some(self.hand_out(run))
    }

    /// Plain: a block as it is. Prefers dirty and hot; takes zero last of all resident blocks.
    #[inline(always)]
    pub fn plain(&self, pages: u32, align: Order) -> Option<Block<Dirty>> {
        Some(self.hand_out(self.plain_run(pages, align)?))
    }

    /// The pages of a plain block. A run fits into registers, a block with its zone does not.
    #[inline]
    fn plain_run(&self, pages: u32, align: Order) -> Option<Run> {
        let (cpu, pages) = (self.cpu(), whole(pages));
        cpu.counters.bump(Counter::PlainRequests);
        let hinted = Class::of(pages).and_then(|class| {
            Some(self.hinted(cpu, class, Price::ALL_DIRTY, |hint| hint.first.is_aligned(align))?.0)
        });
        let run = match hinted {
            Some(run) => run,
            None => self.plain_from_afar(cpu, pages, align)?,
        };
        cpu.counters.add(Counter::PlainBytes, u64::from(pages) * PAGE as u64);
        Some(run)
    }

    /// This CPU remembers no dirty block.
    #[cold]
    fn plain_from_afar(&self, cpu: &CpuCache, pages: u32, align: Order) -> Option<Run> {
        let run = self.search(cpu, pages, align, Want::Plain, PLAIN_SOURCES)?.run;
        let tally = self.pool.map.tally(run.span());
        if tally.zero > 0 {
            cpu.counters.bump(Counter::Wastes);
            cpu.counters.add(Counter::WasteBytes, tally.zero as u64 * PAGE as u64);
        }
        if tally.absent > 0 {
            cpu.counters.add(Counter::PlainAbsentBytes, tally.absent as u64 * PAGE as u64);
            self.pool.reclaim_before_fault(run.span(), tally.absent);
        }
        Some(run)
    }

    /// A zero block that this CPU remembers.
    #[inline]
    fn hinted_zero(&self, cpu: &CpuCache, pages: u32, align: Order) -> Option<Run> {
        let class = Class::of(pages)?;
        loop {
            let hint = cpu.rows(class).take_zero(|hint| hint.first.is_aligned(align))?;
            let block = Span::new(hint.first, class.pages());
            if let Some(run) = self.own_pool().take(block, Price::ALL_ZERO) {
                return Some(run);
            }
        }
    }

    /// The block that this CPU freed last of those that `fits` and are free still, at no price above `price`.
    #[inline]
    fn hinted(
        &self,
        cpu: &CpuCache,
        class: Class,
        price: Price,
        fits: impl Fn(Hint) -> bool,
    ) -> Option<(Run, Hint)> {
        loop {
            let hint = cpu.rows(class).take_hottest(&fits)?;
            let block = Span::new(hint.first, class.pages());
            if let Some(run) = self.own_pool().take(block, price) {
                return Some((run, hint));
            }
        }
    }

    /// The first block that one of the `sources` has.
    #[cold]
    fn search(
        &self,
        cpu: &CpuCache,
        pages: u32,
        align: Order,
        want: Want,
        sources: &[Source],
    ) -> Option<Found> {
        let (class, now) = (Class::of(pages), self.tick_for(pages));
        let request = Request { cpu, pages, class, align, want, now };
        // No source need know of a request that no block of this zone serves.
        let sources = if (1..=self.pages()).contains(&pages) { sources } else { &[] };
        let found = sources.iter().find_map(|&source| self.from(source, &request));
        if found.is_none() {
            cpu.counters.bump(Counter::Refused);
        }
        found
    }

    /// A block from one source, if it has one.
    fn from(&self, source: Source, request: &Request<'_>) -> Option<Found> {
        let Request { cpu, pages, align, class, want, now } = *request;
        let hinted = |class, fits: &dyn Fn(Hint) -> bool| {
            let fits = |hint: Hint| hint.first.is_aligned(align) && fits(hint);
            let (run, hint) = self.hinted(cpu, class, Price::CLEARABLE, fits)?;
            Some((run, Some(hint.age(now))))
        };
        let pooled = |run: Run| {
            let freed = self.pool.map.freed_at(run.first().huge() as u32);
            (run, freed.map(|freed| now.since(freed)))
        };
        let (run, age) = match (source, want) {
            (Hot, Want::Zero(first_use)) => {
                let class = class.filter(|_| hot_wins(&self.clearing, pages, first_use))?;
                hinted(class, &|hint| hint.age(now) <= Ticks::rounded_up(HOT_NS))?
            }
            (Last, _) => hinted(class?, &|_| true)?,
            // Demand: its age does not matter.
            (Zero, _) => (self.own_pool().search_zero(pages, align)?, None),
            (Resident, want) => pooled(self.resident(pages, align, want)?),
            (Any, want) => pooled(self.any(pages, align, want)?),
            (Hot, Want::Plain) => return None,
        };
        Some(Found { run, source, age })
    }

    /// The resident block of the pool that serves best.
    fn resident(&self, pages: u32, align: Order, want: Want) -> Option<Run> {
        match want {
            Want::Zero(_) => self.own_pool().search_clearable(pages, align),
            Want::Plain => self.own_pool().search_resident(pages, align),
        }
    }

    /// The block of the pool that serves best.
    fn any(&self, pages: u32, align: Order, want: Want) -> Option<Run> {
        match want {
            Want::Zero(_) => self.own_pool().search_for_zero(pages, align),
            Want::Plain => self.own_pool().search_any(pages, align),
        }
    }

    /// The tick for a block of this size: of small ones as scrubd last turned it, which may
    /// be a nap ago; for large ones the time is asked. While scrubd sleeps for long the clock stands, and a block
    /// must look neither as old as the sleep is long, nor hot for all of it.
    #[inline]
    pub(crate) fn tick_for(&self, pages: u32) -> Tick {
        if pages >= CLOCKED_PAGES || self.waker.clock_stands() {
            self.pool.clock.turn().tick
        } else {
            self.pool.clock.tick()
        }
    }

    /// A block whose pages are all resident and zero, if the sample agrees; else its front is
    /// cleared.
    #[inline]
    fn hand_out_zero(&self, cpu: &CpuCache, block: Span, front: u32) {
        debug_assert!(self.pool.map.all(block, PageState::Zero), "a hit is all zero");
        if !self.trust.holds(self, cpu, block) {
            return self.make_zero(cpu, block, front, Rest::Rested);
        }
        cpu.demand.note_hit(block.pages, block.pages);
        cpu.counters.bump(Counter::Hits);
        cpu.counters.add(Counter::HitBytes, front as u64 * PAGE as u64);
        probes::hit(block.front(front));
    }
}
