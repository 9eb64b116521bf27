//! How much may lie ready where the user bounds it.

use crate::cpu::cache::CpuCache;
use crate::cpu::list::Held;
use crate::mem::backing::Backing;
use crate::zone::Zone;

impl<B: Backing> Zone<B> {
    /// Pages that may yet be made zero if there is a cap on what lies ready. The lists are
    /// walked only then.
    pub(crate) fn room(&self) -> u64 {
        match self.live.stock() {
            u64::MAX => u64::MAX,
            most => most.saturating_sub(u64::from(self.pool.stock.zero()) + self.zero_on_lists()),
        }
    }

    fn zero_on_lists(&self) -> u64 {
        let listed = self.cpus.iter().flat_map(CpuCache::blocks);
        let zero = listed.filter(|(_, entry)| entry.held == Held::Zero);
        zero.map(|(class, _)| u64::from(class.pages())).sum()
    }
}
