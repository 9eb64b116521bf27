//! Where a free block goes: to the pool, with a hint for this CPU.

use crate::block::Run;
use crate::class::Class;
use crate::cpu::cache::CpuCache;
use crate::map::state::Tally;
use crate::mem::backing::Backing;
use crate::units::Span;
use crate::zone::Zone;

/// Pages from which on a free and a request look at the clock. The tick that scrubd turns is up to
/// a nap old, and would make a block look older than it is.
/// Moved by: `bench grid --idle off`.
pub(crate) const CLOCKED_PAGES: u32 = 128;

impl<B: Backing> Zone<B> {
    /// Frees a settled block, which this CPU remembers if it is resident.
    #[inline]
    pub(crate) fn put_back(&self, cpu: &CpuCache, run: Run, tally: Tally) {
        let (span, freed) = (run.span(), self.tick_for(run.pages()));
        self.pool.put(run, tally, freed);
        if let Some(class) = Class::of(span.pages)
            && tally.zero + tally.dirty == span.pages
        {
            cpu.note_free(class, span.first, freed, tally.dirty == 0);
        }
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
