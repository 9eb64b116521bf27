//! The block that a CPU freed last of those that no list keeps, handed out next while it is hot.
//!
//! Beyond the lists a request takes the lowest block that will do, zero rather than dirty. A program that
//! frees large blocks and asks for them again at once then loses by what scrubd does for it: while it works on one
//! block another has rested, is cleared on another CPU, and is zero and far away the next time, whereas the one just
//! freed lies in this CPU's cache. On a CPU with 1 MiB of L2 and 32 MiB of L3, microseconds to allocate,
//! write 16 lines of each page and free, with as much again free: 4 MiB 58 from what is hot, 74 with scrubd in
//! between, 8 MiB 121 and 168, 16 MiB 373 and 558 (`bench/busy.sh`). So such a request takes what was freed a
//! moment before, where hot beats zero (`choice.rs`), and makes no demand: nobody could have cleared that.
//!
//! **Accepted race.** The word is a hint that anybody may overwrite; what it names is taken out of the
//! buddy as any other run is, or not.

use crate::clear::Use;
use crate::clock::{REST_NS, age, ticks};
use crate::config::without::Mechanism;
use crate::mem::backing::Backing;
use crate::sync::{AtomicU64, Ordering::Relaxed};
use crate::units::{Order, PageId};
use crate::zone::{Cpu, Zone};

/// First page and length of a block; 0: none. All-zero bytes are none.
#[derive(Debug)]
pub(crate) struct Latest(AtomicU64);

impl Latest {
    /// What was freed last.
    pub(crate) fn note(&self, first: PageId, pages: u32) {
        self.0.store(u64::from(first.0) << 32 | u64::from(pages), Relaxed);
    }

    fn block(&self) -> (PageId, u32) {
        let word = self.0.load(Relaxed);
        (PageId((word >> 32) as u32), word as u32)
    }
}

impl<B: Backing> Zone<B> {
    /// The front of what this CPU freed last, if all of it is free and resident still, it was freed less
    /// than a rest before `now`, in ticks, and beats a zero block.
    pub(crate) fn take_latest(
        &self,
        cpu: &Cpu,
        pages: u32,
        align: Order,
        first_use: Use,
        now: u32,
    ) -> Option<PageId> {
        if !self.has(Mechanism::Latest) {
            return None;
        }
        let (first, freed) = cpu.latest.block();
        let fits = pages <= freed && first.is_aligned(align);
        if !fits || !self.choice().latest_wins(pages, first_use, &self.reach) {
            return None;
        }
        let at = self.pool.freed_at[first.huge()].load(Relaxed);
        if at == 0 || age(now, at) > ticks(REST_NS) {
            return None;
        }
        self.take_over();
        self.pool.buddy.take_run(first, pages).then(|| self.pool.grasp_resident(first, pages))?
    }
}
