//! Moves the lists' blocks back to the pool: by age, for a request that finds no other block, on request.

use crate::class::Class;
use crate::cpu::cache::CpuCache;
use crate::cpu::list::Entry;
use crate::mem::backing::Backing;
use crate::zone::Zone;

impl<B: Backing> Zone<B> {
    /// Moves all CPUs' listed blocks to the map: pieces that are split among them may be a
    /// whole block there. False if they held nothing.
    pub(crate) fn drain_all(&self) -> bool {
        let mut any = false;
        for cpu in self.cpus.iter() {
            for class in Class::largest_first() {
                any |= self.drain(cpu, class, |_| true);
            }
        }
        any
    }

    /// Moves what a CPU's lists hold of one class and is `old` to the map, no younger
    /// for it. False if there was nothing.
    pub(crate) fn drain(&self, cpu: &CpuCache, class: Class, old: impl Fn(Entry) -> bool) -> bool {
        let mut any = false;
        while let Some(entry) = cpu.take(class, &old) {
            self.pool.put_as_it_was(entry.run(class));
            any = true;
        }
        any
    }

    /// Moves to the pool what lay on the lists at the last such look and lies there still.
    pub(crate) fn drain_unused(&self) {
        for cpu in self.cpus.iter() {
            for class in Class::largest_first() {
                let lists = &cpu.lists(class);
                let (since, newest) = (lists.arrived_since_look(), lists.newest());
                self.drain(cpu, class, |e| u32::from(e.rank(newest)) >= since);
            }
        }
    }
}
