//! How many pages of each state lie free in the buddy, about.
//!
//! Sums kept beside the buddy so that a search for zero can be skipped when there is
//! none and the governor need not walk. They trail the truth by whatever is in flight.

use crate::cpu::list::{Class, Held};
use crate::mem::backing::Backing;
use crate::mem::states::Tally;
use crate::zone::Zone;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

pub(crate) struct Stock {
    zero: AtomicI64,
    dirty: AtomicI64,
}

impl Stock {
    pub(crate) fn new() -> Stock {
        Stock { zero: AtomicI64::new(0), dirty: AtomicI64::new(0) }
    }

    pub(crate) fn add(&self, tally: Tally) {
        change(&self.zero, tally.zero as i64);
        change(&self.dirty, tally.dirty as i64);
    }

    pub(crate) fn sub(&self, tally: Tally) {
        change(&self.zero, -(tally.zero as i64));
        change(&self.dirty, -(tally.dirty as i64));
    }

    /// Pages that are resident and zero.
    pub(crate) fn zero(&self) -> u32 {
        at_least_none(&self.zero)
    }

    /// Pages that are resident with unknown content.
    pub(crate) fn dirty(&self) -> u32 {
        at_least_none(&self.dirty)
    }

    /// Pages that are resident.
    pub(crate) fn resident(&self) -> u32 {
        self.zero().saturating_add(self.dirty())
    }
}

impl<B: Backing> Zone<B> {
    /// Pages that may yet be made zero if there is a cap on what lies ready. The lists are
    /// walked only then.
    pub(crate) fn room(&self) -> u64 {
        match self.tuning.stock() {
            u64::MAX => u64::MAX,
            most => most.saturating_sub(u64::from(self.stock.zero()) + self.listed_zero()),
        }
    }

    fn listed_zero(&self) -> u64 {
        let classes = || Class::largest_first().map(|class| (class.index(), class.pages()));
        let lists = self
            .cpus
            .iter()
            .flat_map(|cpu| classes().map(|(index, pages)| (&cpu.lists[index], u64::from(pages))));
        let zero = lists.map(|(lists, pages)| {
            let listed = lists.zero.entries().chain(lists.hot_cold.entries());
            listed.filter(|entry| entry.held == Held::Zero).count() as u64 * pages
        });
        zero.sum()
    }
}

fn change(sum: &AtomicI64, by: i64) {
    if by != 0 {
        sum.fetch_add(by, Relaxed);
    }
}

fn at_least_none(sum: &AtomicI64) -> u32 {
    sum.load(Relaxed).clamp(0, u32::MAX as i64) as u32
}
