//! What a block holds that comes back from its owner.
//!
//! Dirty where he may have written, absent where he never touched it, fresh where he
//! changed the mapping. Nothing is zero here: that takes proof.

use crate::backing::Backing;
use crate::page::{PAGE, PageId};
use crate::quicklist::{Class, GRANULE};
use crate::state::{PageState, Tally};
use crate::stats::Counter;
use crate::sync::{AtomicU32, Ordering::Relaxed};
use crate::zone::{Cpu, Zone};

/// What the kernel says of a run of pages.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Residency {
    Resident,
    NotResident,
    /// The answer is too scattered to act on; it would not say, and all of it may be.
    Unknown {
        resident: u32,
    },
}

/// Blocks that are remembered as sparse, a CPU; a power of two.
const REMEMBERED: usize = 64;

/// Blocks of which the kernel was asked when they last came back, because their owner had left pages
/// untouched. Who takes a buffer again and again and uses its beginning would pay for that
/// each time, 2.8 us where malloc and free take 4 ns; so a block that comes back so twice in a row
/// counts as touched. All-zero bytes are none. Programs with more such blocks than are remembered keep an exact account.
pub(crate) struct Sparse([AtomicU32; REMEMBERED]);

impl Sparse {
    /// Whether the block that starts here was the last of those that share its slot. It is now.
    fn was_last(&self, first: PageId) -> bool {
        let slot = &self.0[(first.0 / GRANULE) as usize % REMEMBERED];
        let was = slot.load(Relaxed) == first.0 + 1;
        slot.store(first.0 + 1, Relaxed);
        was
    }
}

/// Of 1024 pages, more runs than this are not told apart: each costs a system call.
const MOST_RUNS: usize = 64;

impl<B: Backing> Zone<B> {
    /// The owner of these pages of a block changed their mapping by a system call: when the block
    /// comes back fresh memory replaces them.
    pub fn mark_foreign(&self, first: PageId, pages: u32) {
        self.shut.store(1, Relaxed);
        self.mark_moved(first, pages);
    }

    /// As [`mark_foreign`](Self::mark_foreign), for pages whose mapping is not as the zone's because
    /// the zone moved them.
    pub(crate) fn mark_moved(&self, first: PageId, pages: u32) {
        self.foreign.store(1, Relaxed);
        self.states.set(first, pages, PageState::Foreign);
    }

    /// Calls `each` for the runs of pages that are marked so, in the order of their addresses.
    pub fn each_foreign(&self, mut each: impl FnMut(PageId, u32)) {
        if self.foreign.load(Relaxed) != 0 {
            for (first, pages) in self.left() {
                self.states.each_run(first, pages, PageState::Foreign, &mut each);
            }
        }
    }

    /// Writes down what the pages of a block hold that comes back from its owner: dirty
    /// where it is resident, absent where he never touched it.
    #[inline]
    pub(crate) fn settle(&self, cpu: &Cpu, first: PageId, pages: u32) -> Tally {
        let dirty = Tally { dirty: pages, ..Tally::default() };
        if self.states.all(first, pages, PageState::Dirty) {
            return dirty;
        }
        if self.states.all(first, pages, PageState::Zero) {
            self.states.set(first, pages, PageState::Dirty);
            cpu.demand.note_return(pages);
            return dirty;
        }
        let was = self.states.tally(first, pages);
        if was.zero + was.dirty == pages {
            self.states.set(first, pages, PageState::Dirty);
            // Behind a zero front lies what the request was rounded up by, and counted with.
            let rounded = was.dirty <= slack(pages);
            cpu.demand.note_return(if rounded { pages } else { was.zero });
            return dirty;
        }
        self.settle_slowly(cpu, first, pages)
    }

    #[cold]
    fn settle_slowly(&self, cpu: &Cpu, first: PageId, pages: u32) -> Tally {
        let was = self.states.tally(first, pages);
        cpu.demand.note_return(was.zero);
        self.states.each_run(first, pages, PageState::Zero, |run, n| {
            self.states.set(run, n, PageState::Dirty);
        });
        // What was added to the request is nobody's to touch. To ask for it at every turn, and
        // to keep the block from the lists, would cost more than to clear it once.
        let added = was.absent <= slack(pages);
        // Who asked for zero may count on what he leaves untouched to cost nothing the next time.
        let is_plain = was.zero == 0 && was.dirty > 0 && Class::of(pages).is_some();
        let counts = added || is_plain && cpu.sparse.was_last(first);
        let mut touched = 0;
        self.states.each_run(first, pages, PageState::Absent, |run, n| {
            if counts {
                self.states.set(run, n, PageState::Dirty);
            } else {
                touched += self.settle_absent(run, n);
            }
        });
        if !counts {
            self.note_touched(first, was.absent, touched);
        }
        // Last: what is absent for that was not left untouched by its owner.
        if self.replace_foreign(first, pages) {
            self.note_replaced();
        }
        self.states.tally(first, pages)
    }

    /// Of pages that were absent when they were handed out, which were touched? What is
    /// not resident was never touched, or was written and swapped out: it is released,
    /// which makes it absent either way. Says how many are resident.
    fn settle_absent(&self, first: PageId, pages: u32) -> u32 {
        let mut touched = 0;
        self.each_residency(first, pages, |run, n, residency| {
            touched += match residency {
                Residency::NotResident => 0,
                Residency::Resident => n,
                Residency::Unknown { resident } => resident,
            };
            let absent = residency == Residency::NotResident && self.memory.release(run, n).is_ok();
            if !absent {
                self.states.set(run, n, PageState::Dirty);
            }
        });
        touched
    }

    /// Calls `each` for the runs of owned pages that are resident and those that are not.
    pub(crate) fn each_residency(
        &self,
        first: PageId,
        pages: u32,
        mut each: impl FnMut(PageId, u32, Residency),
    ) {
        let mut map = [0u8; 1024];
        for at in (0..pages).step_by(map.len()) {
            let n = (pages - at).min(map.len() as u32);
            let page = first.plus(at);
            let map = &mut map[..n as usize];
            if self.memory.backing().residency(page.index() * PAGE, map).is_err() {
                each(page, n, Residency::Unknown { resident: n });
                continue;
            }
            let runs = || map.chunk_by(|a, b| a & 1 == b & 1);
            if runs().nth(MOST_RUNS).is_some() {
                let resident = map.iter().map(|byte| u32::from(byte & 1)).sum();
                each(page, n, Residency::Unknown { resident });
                continue;
            }
            let mut start = 0;
            for run in runs() {
                let resident = run[0] & 1 != 0;
                let residency = if resident { Residency::Resident } else { Residency::NotResident };
                each(page.plus(start), run.len() as u32, residency);
                start += run.len() as u32;
            }
        }
    }

    /// Puts fresh memory where the owner changed the mapping. What cannot be replaced
    /// stays marked, and is never used again. Whether there was anything to replace.
    pub(crate) fn replace_foreign(&self, first: PageId, pages: u32) -> bool {
        let mut any = false;
        if self.foreign.load(Relaxed) == 0 {
            return any;
        }
        self.states.each_run(first, pages, PageState::Foreign, |run, n| {
            any = true;
            if self.memory.replace(run, n).is_ok() {
                self.states.set(run, n, PageState::Absent);
                self.note_fresh(run, n);
            } else {
                self.cpu().counters.bump(Counter::BackingErrors);
            }
        });
        any
    }
}

/// How many of a block's pages its request may have been rounded up by.
fn slack(pages: u32) -> u32 {
    Class::of(pages).map_or(0, Class::slack)
}
