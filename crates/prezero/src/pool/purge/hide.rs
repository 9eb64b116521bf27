//! Idle memory that no child of a fork gets and no core dump has.
//!
//! A child has no use for its parent's free memory. The copy of its page tables takes most of a fork, and each page
//! that the parent uses again while the child lives costs a fault and a copy. A dump has a mapping in its full length,
//! most of which may never have been used. So the zone begins *hidden* (`MADV_WIPEONFORK`, `MADV_DONTDUMP`), a request
//! has its block shown, and free memory is hidden again before a fork and once it has idled for a while. Zero stays
//! zero.
//!
//! One bit for each *unit* of huge blocks says that it may be hidden. **A block that is handed out is shown**, or its
//! owner's child would find zeroes in it:
//! - The thread that hides a unit has taken all of it out of the map, sets its bit, and then puts it back.
//! - The thread that takes a part of a unit whose bit is set has it shown first, and then clears the bit. Several
//!   threads may do so at once. No thread hides the unit meanwhile, since it is not whole until all parts are back.
//!
//! So a bit may be set where nothing is hidden, never the other way round. A thread that the child of a fork has
//! lost may have been anywhere in this, and the child's bits are as good as its parent's. That also holds for a
//! child that was made without libc.
//!
//! Each unit may become a mapping of its own, of which a process has a limited number. So units are large where the
//! zone is. Where the kernel has no mapping left to split one, all of the zone is shown from then on.

use std::ops::Range;

use prezero_sys::memory::Errno;

use crate::config::ablation::Mechanism;
use crate::count::counters::Counter;
use crate::map::RESIDENT;
use crate::map::state::PageState;
use crate::map::walk::joined;
use crate::mem::backing::Backing;
use crate::mem::bits::Bits;
use crate::pool::Pool;
use crate::pool::purge::{AT_ONCE, bytes, pages, parts};
use crate::sync::{AtomicU32, Ordering::Relaxed};
use crate::units::{HUGE_ORDER, PAGE, Span};

/// Units at most, about. Every second one may be in use.
/// Moved by: `/proc/PID/maps`.
const UNITS: u32 = 8192;
/// Huge blocks of the shortest run that is hidden. A fork copies a shorter one in the time that the
/// call takes.
/// Moved by: `prezero bench fork`.
const LEAST: u32 = 4;

/// Huge blocks in a unit of a zone of `huge` huge blocks.
pub(crate) fn unit(huge: u32) -> u32 {
    (huge / UNITS).max(1)
}

/// See the module.
pub(crate) struct Hidden {
    units: Bits,
    /// Huge blocks in a unit; the last one may have fewer.
    unit: u32,
    /// Huge blocks in the zone.
    huge: u32,
    /// Not 0: nothing more is hidden.
    ended: AtomicU32,
}

impl Hidden {
    /// Nothing hidden, of `huge` huge blocks.
    pub(crate) fn new(huge: u32) -> Result<Hidden, Errno> {
        let unit = unit(huge);
        Ok(Hidden { units: Bits::new(huge.div_ceil(unit))?, unit, huge, ended: AtomicU32::new(0) })
    }

    /// The units that huge blocks lie in.
    fn touched(&self, huge: &Range<u32>) -> Range<u32> {
        if self.unit == 1 {
            return huge.clone();
        }
        huge.start / self.unit..huge.end.div_ceil(self.unit)
    }

    /// The units that lie wholly in huge blocks.
    fn whole(&self, huge: &Range<u32>) -> Range<u32> {
        let start = huge.start.div_ceil(self.unit);
        let end = if huge.end == self.huge { self.ceil(huge.end) } else { huge.end } / self.unit;
        start..end.max(start)
    }

    /// The huge block where the unit of one begins: the zone has units whole.
    pub(crate) fn floor(&self, huge: u32) -> u32 {
        huge / self.unit * self.unit
    }

    /// The huge block where a unit ends that has a block before this one.
    pub(crate) fn ceil(&self, huge: u32) -> u32 {
        huge.next_multiple_of(self.unit)
    }

    /// Whether a bit beside a range is set: to hide the range too adds no mapping.
    fn joins(&self, units: &Range<u32>) -> bool {
        self.units.has(units.end) || units.start > 0 && self.units.has(units.start - 1)
    }
}

impl<B: Backing> Pool<B> {
    /// Hides huge blocks that no request has had anything of yet.
    pub(crate) fn hide_new(&self, huge: &Range<u32>) {
        let hidden = &self.purge.hidden;
        if self.has(Mechanism::Hide) && hidden.ended.load(Relaxed) == 0 {
            let units = hidden.touched(huge);
            self.hide_taken(&units);
            // Nothing else is mapped there, so the kernel would refuse each time.
            if !hidden.units.has_any(units) {
                hidden.ended.store(1, Relaxed);
            }
        }
    }

    /// Hides idle memory from the child of a fork that is about to begin, if that is worth it.
    pub(crate) fn hide_before_fork(&self) {
        if self.map.sums.resident() >= LEAST << HUGE_ORDER {
            let is_resident =
                |huge: &Range<u32>| self.map.with(huge.clone(), RESIDENT).next().is_some();
            self.hide_free(u32::MAX, is_resident, |_| ());
        }
    }

    /// Hides memory that has idled for a while, and offers it to the kernel.
    pub(crate) fn hide_idle(&self) {
        self.hide_free(AT_ONCE, |_| true, |span| self.memory.lazy_free(span));
    }

    /// Hides the runs of free units that `fit`, `at_once` huge blocks of them, and does something more with each before
    /// others may take it.
    fn hide_free(&self, at_once: u32, fits: impl Fn(&Range<u32>) -> bool, more: impl Fn(Span)) {
        let hidden = &self.purge.hidden;
        if hidden.ended.load(Relaxed) != 0 || !self.has(Mechanism::Hide) {
            return;
        }
        for run in self.map.whole_runs(1, u32::MAX) {
            for shown in hidden.units.gaps(hidden.whole(&run)) {
                let huge = self.huge_blocks(&shown);
                if (huge.len() < LEAST as usize && !hidden.joins(&shown)) || !fits(&huge) {
                    continue;
                }
                for units in parts(shown, (at_once / hidden.unit).max(1)) {
                    let span = pages(&self.huge_blocks(&units));
                    if let Some(run) = self.map.take(span) {
                        self.hide_taken(&units);
                        more(span);
                        self.map.put(run);
                    }
                }
            }
        }
    }

    /// Hides units that the caller took out of the map. Where the kernel refuses they are shown.
    fn hide_taken(&self, units: &Range<u32>) {
        let (bits, huge) = (&self.purge.hidden.units, self.huge_blocks(units));
        bits.set(units.clone());
        if self.memory.hide(pages(&huge)).is_err() {
            self.counters.add_exact(Counter::BackingErrors, 1);
            // A part may be hidden: where the program mapped a file, unseen, the kernel goes no farther.
            if !matches!(self.show_huge(&huge), Err(Errno::NOMEM | Errno::AGAIN)) {
                bits.clear(units.clone());
            }
        }
    }

    /// To be called with a run that was taken out of the map before it is handed out. False if it
    /// must not be: the kernel would not show it.
    #[inline]
    pub(crate) fn show(&self, span: Span) -> bool {
        let Span { first, pages } = span;
        let touched = first.huge() as u32..first.plus(pages - 1).huge() as u32 + 1;
        let units = self.purge.hidden.touched(&touched);
        !self.purge.hidden.units.has_any(units.clone()) || self.show_units(units)
    }

    #[cold]
    fn show_units(&self, units: Range<u32>) -> bool {
        let hidden = &self.purge.hidden;
        hidden.units.runs(units).all(|units| {
            let huge = self.huge_blocks(&units);
            let shown = self.show_huge(&huge).or_else(|_| {
                // One mapping need not be split. Bits stay set, since other threads may be at work on theirs.
                hidden.ended.store(1, Relaxed);
                self.counters.add_exact(Counter::BackingErrors, 1);
                self.mapped_runs().for_each(|span| {
                    let _ = self.memory.backing().show(span.first.index() * PAGE, span.bytes());
                });
                self.show_huge(&huge)
            });
            shown.inspect(|()| hidden.units.clear(units)).is_ok()
        })
    }

    fn show_huge(&self, huge: &Range<u32>) -> Result<(), Errno> {
        let (offset, len) = bytes(huge);
        self.memory.backing().show(offset, len)
    }

    /// In the child of a fork: hidden blocks are absent. The bits stay, and so does what the
    /// kernel does with it in a child of this one.
    pub(crate) fn forget_hidden(&self) {
        let hidden = &self.purge.hidden;
        for run in self.map.whole_runs(1, u32::MAX) {
            for units in hidden.units.runs(hidden.whole(&run)) {
                let resident = self.map.with(self.huge_blocks(&units), RESIDENT);
                for span in joined(resident.map(|huge| pages(&(huge..huge + 1)))) {
                    let Some(run) = self.map.take(span) else { continue };
                    // A bit alone does not prove that it was; after this it does not matter. Where pages must stay it
                    // may be resident or not, and hold anything.
                    let gone = !self.must_not_move() && self.memory.release(span).is_ok();
                    self.map.set(span, if gone { PageState::Absent } else { PageState::Dirty });
                    self.map.put(run);
                }
            }
        }
    }

    /// The runs of pages in which anything is in use, or was so since it was last hidden.
    pub(crate) fn in_use(&self) -> impl Iterator<Item = Span> {
        let units = self.purge.hidden.touched(&(0..self.purge.hidden.huge));
        self.purge.hidden.units.gaps(units).map(|units| pages(&self.huge_blocks(&units)))
    }

    fn huge_blocks(&self, units: &Range<u32>) -> Range<u32> {
        let Hidden { unit, huge: end, .. } = self.purge.hidden;
        units.start * unit..(units.end * unit).min(end)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    impl Hidden {
        /// As in a larger zone: all that lies before `mapped` is hidden, in units of `unit` huge blocks.
        pub(crate) fn in_units(unit: u32, huge: u32, mapped: u32) -> Hidden {
            let units = Bits::new(huge.div_ceil(unit)).unwrap();
            units.set(0..mapped.div_ceil(unit));
            Hidden { units, unit, huge, ended: AtomicU32::new(0) }
        }
    }

    #[test]
    fn a_unit_is_touched_by_a_part_of_it_and_hidden_whole() {
        let hidden = Hidden::new(4 * UNITS + 1).unwrap();
        assert_eq!(hidden.unit, 4);
        assert_eq!((hidden.touched(&(3..5)), hidden.whole(&(3..5))), (0..2, 1..1));
        assert_eq!((hidden.touched(&(4..9)), hidden.whole(&(4..9))), (1..3, 1..2));
        assert_eq!(hidden.touched(&(0..4 * UNITS + 1)), 0..UNITS + 1);
        assert_eq!(Hidden::new(UNITS).unwrap().touched(&(3..5)), 3..5);
        // The last unit is whole with as many as the zone has.
        let hidden = Hidden::in_units(3, 5, 5);
        assert_eq!((hidden.whole(&(3..5)), hidden.whole(&(1..5))), (1..2, 1..2));
        assert_eq!((hidden.whole(&(4..5)), hidden.whole(&(0..4))), (2..2, 0..1));
    }
}
