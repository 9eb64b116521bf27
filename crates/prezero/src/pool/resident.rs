//! How many pages of each state lie free in the buddy, about.
//!
//! Sums kept beside the buddy so that a search for zero can be skipped when there is
//! none and the governor need not walk. They trail the truth by the blocks in flight.

use crate::mem::states::Tally;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

pub(crate) struct Resident {
    zero: AtomicI64,
    dirty: AtomicI64,
}

impl Resident {
    pub(crate) fn new() -> Resident {
        Resident { zero: AtomicI64::new(0), dirty: AtomicI64::new(0) }
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
    pub(crate) fn pages(&self) -> u32 {
        self.zero().saturating_add(self.dirty())
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
