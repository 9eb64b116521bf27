//! How many free pages there are of each state, about.
//!
//! A search for zero is skipped where there is none, and the governor need not walk. The sums trail the map by the
//! blocks in flight.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use crate::map::state::Tally;

pub(crate) struct Sums {
    absent: AtomicI64,
    zero: AtomicI64,
    dirty: AtomicI64,
}

impl Sums {
    pub(super) fn new() -> Sums {
        Sums { absent: AtomicI64::new(0), zero: AtomicI64::new(0), dirty: AtomicI64::new(0) }
    }

    pub(super) fn add(&self, tally: Tally) {
        self.change(tally, 1);
    }

    pub(super) fn sub(&self, tally: Tally) {
        self.change(tally, -1);
    }

    fn change(&self, tally: Tally, sign: i64) {
        for (sum, by) in
            [(&self.absent, tally.absent), (&self.zero, tally.zero), (&self.dirty, tally.dirty)]
        {
            if by != 0 {
                sum.fetch_add(sign * i64::from(by), Relaxed);
            }
        }
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

    /// All free pages.
    pub(crate) fn free(&self) -> u32 {
        self.resident().saturating_add(at_least_none(&self.absent))
    }
}

fn at_least_none(sum: &AtomicI64) -> u32 {
    sum.load(Relaxed).clamp(0, u32::MAX.into()) as u32
}
