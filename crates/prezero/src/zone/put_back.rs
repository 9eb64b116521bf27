//! Where a free block goes: this CPU's lists, the pool.

use crate::block::Run;
use crate::class::Class;
use crate::count::counters::Counter;
use crate::cpu::cache::CpuCache;
use crate::cpu::list::{Entry, Held};
use crate::map::state::Tally;
use crate::mem::backing::Backing;
use crate::units::Span;
use crate::zone::Zone;

/// Pages from which on a free and a request look at the clock. The tick that scrubd turns is up to
/// a nap old, and would make a block look older than it is.
/// Moved by: `bench grid --idle off`.
pub(crate) const CLOCKED_PAGES: u32 = 128;

impl<B: Backing> Zone<B> {
    /// Puts a settled block where it will be found again: this CPU's lists, then the map.
    #[inline]
    pub(crate) fn put_back(&self, cpu: &CpuCache, run: Run, held: Held, tally: Tally) {
        let pages = run.pages();
        let class = Class::of(pages).filter(|_| tally.absent == 0 && tally.remapped == 0);
        let Some(class) = class else { return self.put_to_pool(run, tally) };
        self.file(cpu, class, Entry::of(run, held, self.tick_for(pages)));
    }

    /// Onto a CPU's lists, the pool if they are full.
    #[inline]
    pub(crate) fn file(&self, cpu: &CpuCache, class: Class, entry: Entry) {
        if let Some(entry) = cpu.put(class, entry) {
            self.overflow(cpu, class);
            if let Err(entry) = cpu.lists(class).hot_cold.push(entry, class.slots()) {
                self.put_listed(class, entry);
            }
        }
    }

    /// Moves the coldest blocks of a hot-cold list to the pool.
    #[cold]
    fn overflow(&self, cpu: &CpuCache, class: Class) {
        for entry in cpu.overflow(class) {
            cpu.counters.bump(Counter::BuddyOverflows);
            self.put_listed(class, entry);
        }
    }

    /// A block that was on a list, into the pool as if freed now.
    pub(crate) fn put_listed(&self, class: Class, entry: Entry) {
        let run = entry.run(class);
        let tally = self.pool.map.tally(run.span());
        self.put_to_pool(run, tally);
    }

    /// Frees a settled run into the pool.
    #[inline]
    pub(crate) fn put_to_pool(&self, run: Run, tally: Tally) {
        let freed = self.tick_for(run.pages());
        self.pool.put(run, tally, freed);
    }

    /// Records the content of a block that comes back, and counts its pages that were handed out
    /// zero.
    #[inline]
    pub(crate) fn classify(&self, cpu: &CpuCache, span: Span) -> Tally {
        let slack = Class::of(span.pages).map(Class::slack);
        let settled = self.pool.classify(&cpu.sparse, span, slack);
        if settled.returned > 0 {
            cpu.demand.note_return(settled.returned);
        }
        settled.tally
    }
}
