//! What happens to a block that its owner gives back.

use crate::block::{Block, Content, Run, Zero};
use crate::config::OnFree;
use crate::count::counters::Counter;
use crate::map::state::PageState;
use crate::mem::backing::Backing;
use crate::pool::classify::Residency;
use crate::units::Span;
use crate::zone::Zone;

impl<B: Backing> Zone<B> {
    /// Gives a block back. Its content counts as unknown, whatever its type.
    ///
    /// # Panics
    /// If another zone handed the block out.
    #[inline(always)]
    pub fn free<C: Content>(&self, block: Block<C>) {
        self.free_run(self.take_back(block));
    }

    /// Frees the pages of a block. A run fits into registers, a block with its zone does not.
    #[inline]
    pub(crate) fn free_run(&self, run: Run) {
        let (span, cpu) = (run.span(), self.cpu());
        let mut tally = self.classify(cpu, span);
        if self.config.on_free == OnFree::Clear {
            tally = self.clear_freed(cpu, span, tally);
        }
        cpu.counters.bump(Counter::Frees);
        cpu.counters.add(Counter::FreeBytes, span.bytes() as u64);
        self.put_back(cpu, run, tally);
        self.nudge(span.pages);
    }

    /// Gives a block back that is zero still, and stays so: its owner never had a pointer to write
    /// through, or [vouches](Block::assume_zero) that it cleared the block. Debug builds check it, and
    /// later requests sample it like every zero page.
    ///
    /// # Panics
    /// If another zone handed the block out.
    pub fn free_zeroed(&self, block: Block<Zero>) {
        block.expect_of(self.id);
        let span = Span::new(block.first(), block.pages());
        if cfg!(debug_assertions) {
            assert!(self.pool.memory.is_zero(span), "free_zeroed: the block is not zero");
        }
        // The child of a fork under way may see this page as it was before its owner
        // cleared it, and this map as it is after: then it must not be called zero.
        if self.pool.scrubbing.fork_is_under_way() {
            return self.free(block);
        }
        let (run, cpu) = (self.take_back(block), self.cpu());
        cpu.counters.bump(Counter::FreesZeroed);
        cpu.counters.add(Counter::FreeBytes, span.bytes() as u64);
        cpu.demand.note_return(span.pages);
        self.pool.replace_remapped(span);
        self.pool.map.each_run(span, PageState::Absent, |run| {
            self.pool.each_residency(run, |run, residency| match residency {
                Residency::Resident => self.pool.map.set(run, PageState::Zero),
                // Zero either way, as the owner vouches, and not paid for.
                Residency::Absent | Residency::Unknown => {}
            });
        });
        self.pool.map.each_run(span, PageState::Dirty, |run| {
            self.pool.map.set(run, PageState::Zero); // the owner cleared it before this call
        });
        let tally = self.pool.map.tally(span);
        self.put_back(cpu, run, tally);
        self.nudge(span.pages);
    }
}
