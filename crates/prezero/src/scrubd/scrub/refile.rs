//! Small blocks, from the hot-cold lists to the zero lists.

use crate::clear::ClearEngine;
use crate::clear::choice::Place;
use crate::clock::{REST_NS, ticks};
use crate::count::counters::Counter;
use crate::cpu::list::{Class, Entry, Held};
use crate::mem::backing::Backing;
use crate::mem::states::PageState;
use crate::units::{Order, PAGE};
use crate::zone::Zone;

use super::{Host, Scrubber};
use crate::policy::Step;

/// How long a block waits for the CPU on which it was freed to be idle, ns.
const AWAY_NS: u64 = 20_000_000;

impl<H: Host> Scrubber<H> {
    /// Arcangeli's idle task: from a CPU's hot-cold list to its zero list, on that CPU if
    /// it is idle, so that the zeroes lie in its own cache.
    pub(crate) fn refile<B: Backing>(
        &mut self,
        zone: &Zone<B>,
        stop: Order,
        tick: u32,
        room: u64,
    ) -> Option<Step> {
        for (cpu, lists) in zone.cpus.iter().enumerate().filter(|(_, cpu)| cpu.was_used()) {
            let fits = |class: &Class| class.order() >= stop && u64::from(class.pages()) <= room;
            for class in Class::largest_first().filter(fits) {
                let wanted = self.governor.quick_target(class);
                let lists = &lists.lists(class);
                let rested = |e: Entry| u32::from(e.age(tick)) > ticks(REST_NS);
                if !lists.hot_cold.entries().any(rested) || lists.zero.entries().count() >= wanted {
                    continue;
                }
                let bytes = class.pages() as usize * PAGE;
                let home = zone.choice().belongs_home(bytes);
                let place = if home { self.host.go_home(cpu) } else { Place::Elsewhere };
                // A block whose CPU is busy waits for it a while before it is cleared far
                // from it: filled at once, it would cost more than its inline clear.
                let rest = if home && place == Place::Elsewhere { AWAY_NS } else { REST_NS };
                let fits = |e: Entry| u32::from(e.age(tick)) > ticks(rest);
                let Some(entry) = lists.hot_cold.take_coldest(lists.newest(), fits) else {
                    continue;
                };
                let stock = zone.pool.stock.zero() as usize * PAGE + bytes;
                let engine = zone.choice().scrub(bytes, self.until_used(stock), place);
                return Some(self.refile_one(zone, cpu, class, entry, engine));
            }
        }
        None
    }

    /// Whether the zero list of some CPU is shorter than it should be.
    pub(crate) fn lacks_listed<B: Backing>(&self, zone: &Zone<B>) -> bool {
        zone.cpus.iter().filter(|cpu| cpu.was_used()).any(|cpu| {
            Class::largest_first().any(|class| {
                let wanted = self.governor.quick_target(class);
                wanted > 0 && cpu.lists(class).zero.entries().count() < wanted
            })
        })
    }

    fn refile_one<B: Backing>(
        &mut self,
        zone: &Zone<B>,
        cpu: usize,
        class: Class,
        entry: Entry,
        engine: &dyn ClearEngine,
    ) -> Step {
        let (first, pages) = (entry.first, class.pages());
        self.clear(zone, first, pages, engine, |zone| {
            let held = if zone.pool.states.all(first, pages, PageState::Zero) {
                zone.daemon.counters.bump(Counter::Refiles);
                Held::Zero
            } else {
                Held::Mixed
            };
            zone.put_back(
                &zone.cpus[cpu],
                first,
                pages,
                held,
                zone.pool.states.tally(first, pages),
            );
        })
    }
}
