//! Requests: which block serves, and its way to its owner.
//!
//! A request goes through a table of [`Source`]s and takes the first block that one of them has. Each step is one
//! atomic operation on a word that names what it takes, so a thread that stops anywhere holds back only that block.

use crate::block::{Block, Dirty, Run, Zero, ZeroFront};
use crate::class::Class;
use crate::clear::Use;
use crate::clock::{REST_NS, Tick, Ticks};
use crate::config::ablation::Mechanism;
use crate::count::counters::Counter;
use crate::count::probes;
use crate::cpu::cache::CpuCache;
use crate::cpu::list::{Entry, Held};
use crate::map::state::PageState;
use crate::mem::backing::Backing;
use crate::policy::hot::hot_wins;
use crate::sync::Ordering::Relaxed;
use crate::units::{Order, PAGE, Span, whole};
use crate::zone::Zone;
use crate::zone::inline::Rest;
use crate::zone::put_back::CLOCKED_PAGES;

/// The time for which a freed block counts as hot, ns: it lies in its CPU's cache, where a clear in place
/// costs less than to fetch a zero block. Lists are gathered and drained at most this often.
/// Moved by: `bench grid --sizes 64K,256K,1M`, `bench waste --only never,hostile`, `bench pair
/// --threads 1 --ring 2,4`, `prezero bench busy`.
pub(crate) const HOT_NS: u64 = 1_000_000;

/// Where a block may come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Source {
    /// This CPU's lists: a block that is hot, where clearing it beats a zero block that is cold.
    ListedHot,
    /// This CPU's lists: whatever they hold.
    Listed,
    /// The pool: a block that is all zero.
    Zero,
    /// The lists that scrubd filled last, where the thread has moved to another CPU since.
    ZeroElsewhere,
    /// The pool: the resident block that serves this request best. This CPU's cold blocks go there first, since they
    /// may be all that splits it.
    Resident,
    /// The pool, after all CPUs' lists were emptied into it: a resident block. At most once in [`HOT_NS`] for sizes
    /// that lists keep.
    Drained,
    /// The pool: any block, absent or not.
    Any,
    /// The same, after all CPUs' lists were emptied into it, whatever the time.
    DrainedAny,
}

use Source::*;

/// `ZERO`, in the order of what a block costs: its clear, and its lines where another cache holds them. A zero block on
/// this CPU's lists was taken before ([`Zone::zero_to`]).
const ZERO_SOURCES: &[Source] =
    &[ListedHot, Zero, ZeroElsewhere, Listed, Resident, Drained, Any, DrainedAny];
/// Plain: dirty and hot first; zero pages last of those that are resident, since they were made for others.
const PLAIN_SOURCES: &[Source] = &[Resident, Listed, Drained, Any, DrainedAny];

/// A request on its way through the table.
#[derive(Clone, Copy)]
struct Request<'a> {
    cpu: &'a CpuCache,
    pages: u32,
    /// The class of its lists, if lists keep blocks of this size.
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
        if let Some(run) = self.listed_zero(cpu, pages, align) {
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
        if matches!(found.source, Zero | ZeroElsewhere) {
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
            .listed_zero(cpu, pages, align)
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
        let class = Class::of(pages);
        let listed = class.and_then(|class| {
            let fits = |e: Entry| e.held == Held::Mixed && e.first.is_aligned(align);
            Some(cpu.take_hottest(class, fits)?.run(class))
        });
        let run = match listed {
            Some(run) => run,
            None => self.plain_from_afar(cpu, pages, align)?,
        };
        cpu.counters.add(Counter::PlainBytes, u64::from(pages) * PAGE as u64);
        Some(run)
    }

    /// No dirty block on this CPU's list.
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

    /// A zero block of this CPU's lists.
    #[inline]
    fn listed_zero(&self, cpu: &CpuCache, pages: u32, align: Order) -> Option<Run> {
        let class = Class::of(pages)?;
        Some(cpu.take_zero(class, |e| e.first.is_aligned(align))?.run(class))
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
        let fits = |e: Entry| e.first.is_aligned(align);
        let listed = |class, entry: Entry| (entry.run(class), Some(entry.age(now)));
        let pooled = |run: Run| {
            let freed = self.pool.map.freed_at(run.first().huge() as u32);
            (run, freed.map(|freed| now.since(freed)))
        };
        let pool = self.own_pool();
        let (run, age) = match (source, want) {
            (ListedHot, Want::Zero(first_use)) => {
                let hot = |e: Entry| fits(e) && e.age(now) <= Ticks::rounded_up(HOT_NS);
                let class = class.filter(|_| hot_wins(&self.clearing, pages, first_use))?;
                listed(class, cpu.take_hottest(class, hot)?)
            }
            (Listed, _) => {
                let class = class?;
                let zero = || cpu.take_zero(class, fits);
                listed(class, cpu.take_hottest(class, fits).or_else(zero)?)
            }
            // Demand: its age does not matter.
            (Zero, _) => (pool.search_zero(pages, align)?, None),
            (ZeroElsewhere, _) => {
                let class = class.filter(|_| self.has(Mechanism::Ready))?;
                let filled = self.cpus.get(self.waker.filled.load(Relaxed) as usize)?;
                (filled.take_zero(class, fits)?.run(class), None)
            }
            (Resident, want) => {
                self.gather(cpu, pages);
                pooled(self.resident(pages, align, want)?)
            }
            (Drained, want) => {
                if !(self.time_to_drain(pages) && self.drain_all()) {
                    return None;
                }
                pooled(self.resident(pages, align, want)?)
            }
            (Any, want) => pooled(self.any(pages, align, want)?),
            (DrainedAny, want) => {
                if !self.drain_all() {
                    return None;
                }
                pooled(self.any(pages, align, want)?)
            }
            _ => return None,
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
