//! Absent memory, made resident before somebody asks for it.

use crate::config::without::Mechanism;
use crate::count::counters::Counter;
use crate::mem::backing::Backing;
use crate::mem::states::PageState;
use crate::pool::chunk::Chunk;
use crate::pool::handover::Work;
use crate::sync::Ordering::Relaxed;
use crate::units::{Order, PAGE, PageId};
use crate::zone::Zone;

use super::{Host, Scrubber, charge, outcome};
use crate::policy::Step;

impl<H: Host> Scrubber<H> {
    /// Makes absent memory resident where the next request will look, so that the faults
    /// leave the critical path too: page by page, until an allocation asks for the block.
    pub(crate) fn prefault<B: Backing>(&mut self, zone: &Zone<B>, room: u64) -> Option<Step> {
        // Who touches little of what he asks for has absent blocks for ever, and wants no more.
        let grows = zone.has(Mechanism::Prefault) && !zone.pool.sparse_row.is_long();
        let lacks =
            self.governor.prefault_target().saturating_sub(u64::from(zone.pool.stock.zero()));
        // Not now where a hypervisor would have to find its memory first.
        let now = zone.pool.clock.now_ns();
        if !grows || lacks == 0 || !self.late.is_over(now) {
            return None;
        }
        let most =
            lacks.min(zone.pool.most_idle().saturating_sub(zone.pool.stock.resident()).into());
        if most == 0 {
            return None;
        }
        let (_, chunk) = self.next_chunk(zone, Order::MIN, PageState::Absent, most, |_| true)?;
        if u64::from(chunk.order.pages()) > room {
            return None;
        }
        zone.pool.handover.announce();
        if !zone.pool.borrow(&chunk) {
            zone.pool.handover.withdraw();
            return Some(Step::Nap);
        }
        let (any, ns) = self.populate(zone, &chunk, Counter::PrefaultedBytes);
        charge(&zone.daemon.counters, Counter::PrefaultCpuNs, ns, self.late.note(now, ns));
        any.then_some(Step::Nap)
    }

    /// Faults in the absent pages of a chunk that is out of circulation, and puts it back;
    /// counts the bytes. False if the kernel refused; and the CPU time, ns.
    pub(crate) fn populate<B: Backing>(
        &mut self,
        zone: &Zone<B>,
        chunk: &Chunk,
        bytes: Counter,
    ) -> (bool, u64) {
        let began = self.host.cpu_ns();
        let (first, pages) = (chunk.first, chunk.order.pages());
        let session = zone.pool.handover.begin(first, pages, Work::Fixed, zone.pool.fork_mark());
        let counters = &zone.daemon.counters;
        let backing = zone.pool.memory.backing();
        let mut populated = 0;
        zone.pool.states.each_run(first, pages, PageState::Absent, |run, n| {
            for page in (run.0..run.0 + n).map(PageId) {
                if !session.undisturbed() || backing.populate(page.index() * PAGE, PAGE).is_err() {
                    return;
                }
                zone.pool.states.set(page, 1, PageState::Zero);
                populated += 1;
            }
        });
        outcome(&session, counters);
        if session.close().is_some() {
            // What is prefaulted decays from now on, not from a free long ago.
            if populated > 0 {
                zone.pool.freed_at[first.huge()].store(zone.pool.clock.tick().max(1), Relaxed);
            }
            zone.pool.put_as_it_was(first, pages);
            session.release();
            zone.pool.offer_excess(first, pages);
        }
        if populated == 0 {
            counters.bump(Counter::BackingErrors);
        }
        counters.add(bytes, populated * PAGE as u64);
        (populated > 0, self.host.cpu_ns().saturating_sub(began))
    }
}
