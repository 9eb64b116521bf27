//! What a slice of memory holds, and how many pages of each kind a span has.

use std::ops::Add;

use crate::units::SLICE;

/// The content and residency of a slice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum PageState {
    /// Not resident as far as we know: the kernel zero-fills it on first touch.
    Absent = 0,
    /// Resident in part at least, content unknown.
    Dirty = 1,
    /// Its owner changed the mapping by a system call: replaced on free, never recycled.
    Remapped = 2,
    /// Resident, zero bytes.
    Zero = 3,
}

/// Pages of a range by state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Pages not resident.
    pub absent: u32,
    /// Pages resident and zero.
    pub zero: u32,
    /// Pages resident with unknown content.
    pub dirty: u32,
    /// Pages to be replaced.
    pub remapped: u32,
}

impl Tally {
    /// The same without the last `pages` of a slice that is in this state.
    pub(crate) fn less(mut self, pages: u32, state: PageState) -> Tally {
        debug_assert!(pages < SLICE);
        match state {
            PageState::Absent => self.absent -= pages,
            PageState::Zero => self.zero -= pages,
            PageState::Dirty => self.dirty -= pages,
            PageState::Remapped => self.remapped -= pages,
        }
        self
    }
}

impl Add for Tally {
    type Output = Tally;

    fn add(self, other: Tally) -> Tally {
        Tally {
            absent: self.absent + other.absent,
            zero: self.zero + other.zero,
            dirty: self.dirty + other.dirty,
            remapped: self.remapped + other.remapped,
        }
    }
}
