//! How much may lie ready where the user bounds it.

use crate::cpu::list::{Class, Held};
use crate::mem::backing::Backing;
use crate::zone::Zone;

impl<B: Backing> Zone<B> {
    /// Pages that may yet be made zero if there is a cap on what lies ready. The lists are
    /// walked only then.
    pub(crate) fn room(&self) -> u64 {
        match self.tuning.stock() {
            u64::MAX => u64::MAX,
            most => most.saturating_sub(u64::from(self.pool.stock.zero()) + self.listed_zero()),
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
