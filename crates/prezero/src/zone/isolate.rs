//! What scrubd reads of a zone and does to it: it isolates free memory, clears it, and gives memory back.

use crate::class::{BANDS, Class};
use crate::clock::{REST_NS, Tick, Ticks};
use crate::count::counters::Counter;
use crate::cpu::hints::{Hint, Rows};
use crate::map::search::Price;
use crate::map::state::PageState;
use crate::mem::backing::Backing;
use crate::policy::sample::Sample;
use crate::sync::Ordering::Relaxed;
use crate::units::{Order, PAGE, Span};
use crate::zone::Zone;

use crate::pool::isolate::Isolated;

/// The CPU that is to remember an isolated block when it comes back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Remembers {
    Nobody,
    /// The CPU with this number, as a block of this class.
    Cpu(usize, Class),
}

/// Free memory in the pool, pages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ready {
    pub(crate) zero: u64,
    pub(crate) dirty: u64,
}

impl<B: Backing> Zone<B> {
    /// The sums that policy looks at.
    pub(crate) fn seen(&self) -> Sample {
        let (mut demand, mut hits) = ([0; BANDS], [0; BANDS]);
        let (mut returned, mut absent, mut wasted) = (0, 0, 0);
        for cpu in self.cpus.iter().filter(|cpu| cpu.was_used()) {
            cpu.demand.add_to(&mut demand, &mut hits);
            returned += cpu.demand.returned();
            absent += cpu.counters.get(Counter::AbsentBytes);
            wasted += cpu.counters.get(Counter::WasteBytes);
        }
        let own = |c| self.pool.counters.get(c);
        let pages = |bytes: u64| bytes / PAGE as u64;
        Sample {
            demand,
            hits,
            free: u64::from(self.pool.map.sums.resident()),
            returned,
            absent: pages(absent),
            lost: pages(wasted + own(Counter::UnusedZeroBytes)),
            scrubbed: pages(own(Counter::ScrubbedBytes)),
            spent_ns: own(Counter::ScrubCpuNs),
            look_ns: own(Counter::LookCpuNs),
            clear_ns: self.clear_ns_per_page(),
        }
    }

    /// Free pages in the pool.
    pub(crate) fn ready(&self) -> Ready {
        let sums = &self.pool.map.sums;
        Ready { zero: u64::from(sums.zero()), dirty: u64::from(sums.dirty()) }
    }

    /// Pages that may yet be made zero, as the user bounds it. Where CPUs are `busy` no more than need not be
    /// offered to the kernel: a thread that loses its CPU in that call keeps the kernel's locks.
    pub(crate) fn room(&self, busy: bool) -> u64 {
        let most = if busy { u64::from(self.pool.allowance()) } else { u64::MAX };
        let zero = u64::from(self.pool.map.sums.zero());
        self.tuning.stock_pages().min(most).saturating_sub(zero)
    }

    /// The CPU that freed last into the pool, and how long ago; `None`: none ever did.
    pub(crate) fn freed_last(&self, now: Tick) -> (usize, Option<Ticks>) {
        let cpu = self.pool.freed.on.load(Relaxed) as usize;
        (cpu, self.pool.freed.last.get().map(|freed| now.since(freed)))
    }

    /// The rows of CPUs, by number and class, with hints of fewer zero blocks than `wanted` says and of a block that has
    /// rested; of classes of this order or above. With the zero blocks that they know.
    pub(crate) fn lacking(
        &self,
        start: Order,
        now: Tick,
        wanted: impl Fn(Class) -> usize,
    ) -> impl Iterator<Item = (usize, Class, usize)> {
        let rested = move |hint: Hint| hint.age(now) > Ticks::rounded_up(REST_NS);
        // Most rows have no such block, and to look for one costs less than to count zero ones.
        self.rows_of_few(wanted, move |rows, class| {
            class.order() >= start && rows.hot_cold.hints().any(rested)
        })
    }

    /// Whether some CPU knows fewer zero blocks than `wanted` says.
    pub(crate) fn lacks_zero_hints(&self, wanted: impl Fn(Class) -> usize) -> bool {
        self.rows_of_few(wanted, |_, _| true).next().is_some()
    }

    fn rows_of_few(
        &self,
        wanted: impl Fn(Class) -> usize,
        fits: impl Fn(&Rows, Class) -> bool,
    ) -> impl Iterator<Item = (usize, Class, usize)> {
        let used = self.cpus.iter().enumerate().filter(|(_, cpu)| cpu.was_used());
        let pairs = used.flat_map(|(number, cpu)| {
            Class::largest_first().map(move |class| (number, cpu.rows(class), class))
        });
        pairs.filter_map(move |(number, rows, class)| {
            let wanted = wanted(class);
            if wanted == 0 || !fits(rows, class) {
                return None;
            }
            let is_zero = |hint: &Hint| {
                let block = Span::new(hint.first, class.pages());
                self.pool.map.is_free(block) && self.pool.map.all(block, PageState::Zero)
            };
            let ready = rows.zero.hints().filter(is_zero).count();
            (ready < wanted).then_some((number, class, ready))
        })
    }

    /// Isolates the dirty block that a CPU freed first of those that it remembers, if it has rested for longer than
    /// `rest`.
    pub(crate) fn isolate_coldest(
        &self,
        (cpu, class): (usize, Class),
        now: Tick,
        rest: Ticks,
    ) -> Option<Isolated> {
        loop {
            let hint = self.cpus[cpu].rows(class).take_coldest(|hint| hint.age(now) > rest)?;
            let block = Span::new(hint.first, class.pages());
            let is_dirty = self.pool.map.any(block, PageState::Dirty);
            if !is_dirty || Price::CLEARABLE.of(self.pool.map.tally(block)).is_none() {
                continue;
            }
            let isolated = self.pool.isolate(block);
            if isolated.is_some() || self.pool.scrubbing.fork_is_under_way() {
                return isolated;
            }
        }
    }

    /// Puts an isolated block back: pages that were cleared.
    pub(crate) fn publish(&self, isolated: Isolated, who: Remembers) -> u32 {
        let block = isolated.span;
        let cleared = self.pool.publish(isolated, |run| self.pool.put_as_it_was(run));
        if let Remembers::Cpu(cpu, class) = who {
            let is_zero = self.pool.map.all(block, PageState::Zero);
            if is_zero {
                self.pool.counters.bump(Counter::Refiles);
            }
            self.cpus[cpu].note_free(class, block.first, self.pool.clock.tick(), is_zero);
        }
        cleared
    }
}
