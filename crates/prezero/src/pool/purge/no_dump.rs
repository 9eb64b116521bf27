//! What a core dump has of the zone: the memory that is in use, and what was so a moment before.
//!
//! The zone is one mapping, most of which was never used. A dump has a mapping in its full length, so the zone begins
//! *left out* (`MADV_DONTDUMP`). A request has its block dumped. Free memory that has idled for a while is left out
//! again, hidden from children, and offered to the kernel (`MADV_FREE`), which takes it when a limit is reached.
//!
//! One bit for each *unit* of huge blocks says that it may be left out. **A block that is handed out is dumped.** The
//! rules are those of [`wipe_on_fork`](crate::pool::purge::wipe_on_fork): a thread that leaves a unit out has taken all of it out of the map,
//! and a thread that holds a part of a unit has it dumped first.
//!
//! Each unit may become a mapping of its own, of which a process has a limited number. So units are large where the
//! zone is. Where the kernel has no mapping left to split one, all of the zone is dumped from then on.

use std::ops::Range;

use prezero_sys::memory::Errno;

use crate::config::ablation::Mechanism;
use crate::mem::backing::{Advice, Backing};
use crate::mem::bits::Bits;
use crate::pool::Pool;
use crate::pool::purge::{AT_ONCE, LEAST, joins, pages, parts};
use crate::sync::{AtomicU32, Ordering::Relaxed};
use crate::units::{HUGE_ORDER, Span};

/// Units at most, about. Every second one may be in use.
/// Moved by: `/proc/PID/maps`.
const UNITS: u32 = 8192;

/// Huge blocks in a unit of a zone of `huge` huge blocks.
pub(crate) fn unit(huge: u32) -> u32 {
    (huge / UNITS).max(1)
}

/// See the module.
pub(crate) struct NoDump {
    units: Bits,
    /// Huge blocks in a unit.
    unit: u32,
    /// Not 0: nothing more is left out.
    ended: AtomicU32,
}

impl NoDump {
    /// Nothing left out, of `huge` huge blocks.
    pub(crate) fn new(huge: u32) -> Result<NoDump, Errno> {
        let unit = unit(huge);
        Ok(NoDump { units: Bits::new(huge.div_ceil(unit))?, unit, ended: AtomicU32::new(0) })
    }

    /// The units that huge blocks lie in.
    fn touched(&self, huge: &Range<u32>) -> Range<u32> {
        if self.unit == 1 {
            return huge.clone();
        }
        huge.start / self.unit..huge.end.div_ceil(self.unit)
    }

    /// The huge block where the unit of one begins: the zone has units whole.
    pub(crate) fn floor(&self, huge: u32) -> u32 {
        huge / self.unit * self.unit
    }

    /// The huge block where a unit ends that has a block before this one.
    pub(crate) fn ceil(&self, huge: u32) -> u32 {
        huge.next_multiple_of(self.unit)
    }

    /// The units that lie wholly in huge blocks.
    fn whole(&self, huge: Range<u32>) -> Range<u32> {
        let start = huge.start.div_ceil(self.unit);
        start..(huge.end / self.unit).max(start)
    }
}

impl<B: Backing> Pool<B> {
    /// Leaves huge blocks out that no request has had anything of yet.
    pub(crate) fn no_dump_new(&self, huge: &Range<u32>) {
        if self.has(Mechanism::WipeOnFork) {
            self.no_dump_taken(&self.purge.no_dump.touched(huge));
        }
    }

    /// Leaves idle memory out, hides it from children, and offers it to the kernel.
    pub(crate) fn advise_idle(&self) {
        if !self.has(Mechanism::WipeOnFork) {
            return;
        }
        let (ended, has_much) = (self.purge.no_dump.ended.load(Relaxed) != 0, self.has_much());
        for run in self.map.whole_runs(1, u32::MAX) {
            let huge = run;
            if !ended {
                self.no_dump_free(huge.clone());
            }
            // And what came to memory that was left out before.
            if has_much {
                self.wipe_used_on_fork(huge, AT_ONCE, |span| self.memory.lazy_free(span));
            }
        }
    }

    /// The same of the whole units in a run of free huge blocks.
    fn no_dump_free(&self, huge: Range<u32>) {
        let (out, unit) = (&self.purge.no_dump.units, self.purge.no_dump.unit);
        for dumped in out.gaps(self.purge.no_dump.whole(huge)) {
            if dumped.len() as u32 * unit >= LEAST || joins(out, &dumped) {
                for units in parts(dumped, (AT_ONCE / unit).max(1)) {
                    self.wipe_on_fork(&self.huge_blocks(&units), |span| {
                        self.no_dump_taken(&units);
                        self.memory.lazy_free(span);
                    });
                }
            }
        }
    }

    /// Leaves these units out, of which nothing is in use.
    fn no_dump_taken(&self, units: &Range<u32>) {
        let huge = self.huge_blocks(units);
        self.advise_taken(&huge, Advice::NoDump, &self.purge.no_dump.units, units);
    }

    /// To be called before a part of these huge blocks is handed out. False if it must not be: the kernel would leave
    /// it out.
    #[inline]
    pub(crate) fn dump(&self, huge: &Range<u32>) -> bool {
        let units = self.purge.no_dump.touched(huge);
        !self.purge.no_dump.units.has_any(units.clone()) || self.dump_units(units)
    }

    #[cold]
    fn dump_units(&self, units: Range<u32>) -> bool {
        self.undo_marked(&self.purge.no_dump.units, units, |units| {
            let huge = self.huge_blocks(units);
            self.unadvise(&huge, Advice::NoDump).or_else(|_| {
                // One mapping need not be split. Bits stay set, since other threads may be at work on theirs.
                self.purge.no_dump.ended.store(1, Relaxed);
                let all = self.memory.backing().len();
                let _ = self.memory.backing().unadvise(0, all, Advice::NoDump);
                self.unadvise(&huge, Advice::NoDump)
            })
        })
    }

    /// The runs of pages in which anything is in use, or was so since it was last left out.
    pub(crate) fn in_use(&self) -> impl Iterator<Item = Span> {
        let units = self.purge.no_dump.touched(&(0..self.memory.pages >> HUGE_ORDER));
        self.purge.no_dump.units.gaps(units).map(|units| pages(&self.huge_blocks(&units)))
    }

    fn huge_blocks(&self, units: &Range<u32>) -> Range<u32> {
        let (unit, end) = (self.purge.no_dump.unit, self.memory.pages >> HUGE_ORDER);
        units.start * unit..(units.end * unit).min(end)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_unit_is_touched_by_a_part_of_it_and_left_out_whole() {
        let out = NoDump::new(4 * UNITS + 1).unwrap();
        assert_eq!(out.unit, 4);
        assert_eq!((out.touched(&(3..5)), out.whole(3..5)), (0..2, 1..1));
        assert_eq!((out.touched(&(4..9)), out.whole(4..9)), (1..3, 1..2));
        assert_eq!(out.touched(&(0..4 * UNITS + 1)), 0..UNITS + 1);
        assert_eq!(NoDump::new(UNITS).unwrap().touched(&(3..5)), 3..5);
    }
}
