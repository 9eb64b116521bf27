//! What the CPUs' lists keep, back into the pool: by age, for a request that finds nothing else, on request.

use crate::cpu::list::{Class, Entry};
use crate::mem::backing::Backing;
use crate::pool::release::RESIDENT;
use crate::zone::{Cpu, Zone};

impl<B: Backing> Zone<B> {
    /// Gives every idle free page back to the kernel, now; false if there was none.
    pub fn reclaim(&self) -> bool {
        self.give_back_all()
    }

    /// Whether the zone holds resident memory that nobody uses, at a glance.
    pub(crate) fn holds_idle_memory(&self) -> bool {
        self.holds_in_hand()
            || self.pool.stock.resident() > 0
            || self
                .cpus
                .iter()
                .flat_map(|cpu| &cpu.lists)
                .any(|lists| lists.zero.entries().chain(lists.hot_cold.entries()).next().is_some())
    }

    /// As [`reclaim`](Pool::reclaim), counted there.
    pub(crate) fn give_back_all(&self) -> bool {
        self.drain_all();
        self.pool.give_back(u32::MAX, &RESIDENT, |_| true)
    }

    /// Moves what all CPUs' lists hold to the buddy: what is split among them may be a
    /// whole block there. False if they held nothing.
    pub(crate) fn drain_all(&self) -> bool {
        self.put_down_all(&self.cpus, Class::largest_first(), 0);
        let mut any = false;
        for cpu in self.cpus.iter() {
            for class in Class::largest_first() {
                any |= self.drain(cpu, class, |_| true);
            }
        }
        any
    }

    /// Moves what a CPU's lists hold of one class and is `old` to the buddy, no younger
    /// for it. False if there was nothing.
    pub(crate) fn drain(&self, cpu: &Cpu, class: Class, old: impl Fn(Entry) -> bool) -> bool {
        let lists = &cpu.lists[class.index()];
        let mut any = false;
        while let Some(entry) = lists.zero.take(&old).or_else(|| lists.hot_cold.take(&old)) {
            self.pool.put_as_it_was(entry.first, class.pages());
            any = true;
        }
        any
    }
}
