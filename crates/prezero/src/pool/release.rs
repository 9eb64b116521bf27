//! Giving idle memory back to the kernel: by age, under pressure, on request.

use crate::config::without::Mechanism;
use crate::count::counters::{Counter, Counters};
use crate::count::probes;
use crate::cpu::list::{Class, Entry};
use crate::mem::backing::Backing;
use crate::mem::states::PageState;
use crate::pool::chunk::Chunk;
use crate::sync::Ordering::Relaxed;
use crate::units::{HUGE_PAGES, Order, PAGE, PageId};
use crate::zone::{Cpu, Zone};

/// Free memory may stay resident up to this part of the most that was in use at once, and
/// this many pages (1 MiB) above it. A program may be larger by a tenth than under whichever allocator keeps
/// it smallest, and some keep one 4 to 6 % smaller than glibc; below some MiB nobody looks.
const IDLE_SHARE: u32 = 16;
const IDLE_LEAST: u32 = 256;

/// Free pages that are memory, those first that nobody made an effort for.
pub(crate) const RESIDENT: [PageState; 2] = [PageState::Dirty, PageState::Zero];

impl<B: Backing> Zone<B> {
    /// `absent` pages of a block are about to be faulted in: gives back as many idle ones where
    /// the zone would hold more than ever was of use. To give back costs a tenth of the faults.
    #[cold]
    pub(crate) fn make_way(&self, counters: &Counters, first: PageId, pages: u32, absent: u32) {
        self.fault_in_suitably(first, pages, absent);
        self.faulted.fetch_add(u64::from(absent), Relaxed);
        let excess = self.stock.resident().saturating_sub(self.most_idle()).min(absent);
        if excess > 0 && self.has(Mechanism::MakeWay) {
            self.give_back(counters, excess, &RESIDENT, |_| true);
        }
    }

    /// Free pages that may be resident without the zone holding more than ever was of use.
    pub(crate) fn most_idle(&self) -> u32 {
        let used = self.used();
        let peak = self.peak.fetch_max(used, Relaxed).max(used);
        peak.saturating_add(peak / IDLE_SHARE + IDLE_LEAST) - used
    }

    /// Gives every idle free page back to the kernel, now; false if there was none.
    pub fn reclaim(&self) -> bool {
        self.give_back_all(&self.cpu().counters)
    }

    /// Whether the zone holds resident memory that nobody uses, at a glance.
    pub(crate) fn holds_idle_memory(&self) -> bool {
        self.holds_in_hand()
            || self.stock.resident() > 0
            || self
                .cpus
                .iter()
                .flat_map(|cpu| &cpu.lists)
                .any(|lists| lists.zero.entries().chain(lists.hot_cold.entries()).next().is_some())
    }

    /// As [`reclaim`](Zone::reclaim), counted there.
    pub(crate) fn give_back_all(&self, counters: &Counters) -> bool {
        self.take_over();
        self.drain_all();
        self.give_back(counters, u32::MAX, &RESIDENT, |_| true)
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
            self.return_to_buddy(entry.first, class.pages());
            any = true;
        }
        any
    }

    /// Gives back the resident free pages of huge blocks of which all resident pages are of these
    /// `kinds` and the last free is `old`, until they are so many. True if there were any.
    pub(crate) fn give_back(
        &self,
        counters: &Counters,
        most: u32,
        kinds: &[PageState],
        old: impl Fn(u32) -> bool,
    ) -> bool {
        if self.stock.resident() == 0 {
            return false;
        }
        let mut done = 0u32;
        let without = RESIDENT.into_iter().find(|kind| !kinds.contains(kind));
        for &kind in kinds {
            while let Some(chunk) =
                self.find_chunk_without(Order::MIN, kind, without, |at| at != 0 && old(at))
            {
                if done >= most {
                    return true;
                }
                if self.borrow(&chunk) {
                    let Some(pages) = self.release(&chunk, counters) else { return done > 0 };
                    done += pages;
                }
            }
        }
        done > 0
    }

    /// Gives one chunk that is out of circulation back to the kernel and puts it back absent: how
    /// many pages were resident. `None` if the kernel refused.
    fn release(&self, chunk: &Chunk, counters: &Counters) -> Option<u32> {
        let done = self.make_absent(chunk, counters);
        self.return_to_buddy(chunk.first, chunk.order.pages());
        done
    }

    /// Gives one chunk that is out of circulation back to the kernel: how many pages were resident.
    /// `None` if that refused.
    pub(crate) fn make_absent(&self, chunk: &Chunk, counters: &Counters) -> Option<u32> {
        let (first, pages) = (chunk.first, chunk.order.pages());
        let tally = self.states.tally(first, pages);
        let resident = tally.zero + tally.dirty;
        if self.memory.release(first, pages).is_err() {
            counters.bump(Counter::BackingErrors);
            return None;
        }
        self.states.set(first, pages, PageState::Absent);
        if pages == HUGE_PAGES {
            let huge = first.huge();
            self.freed_at[huge].store(0, Relaxed);
            self.resident.clear(huge as u32..huge as u32 + 1);
        }
        let bytes = |pages: u32| u64::from(pages) * PAGE as u64;
        counters.add(Counter::ReleasedBytes, bytes(resident));
        counters.add(Counter::UnusedZeroBytes, bytes(tally.zero));
        probes::release(first, resident);
        Some(resident)
    }
}
