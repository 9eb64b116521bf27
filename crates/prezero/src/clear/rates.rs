//! What clears cost here, through the cache and past it, by the size of the set that is cleared.
//!
//! A clear past the cache leaves what others keep there. On some machines it takes twice as long, and then the next
//! request comes too soon. So a set that is too large for its share of the cache goes past it unless that was measured
//! to cost clearly more at this size. One clear in [`TRIES`] goes the other way, so that neither figure grows old and
//! every decision can be left as it was entered.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::clear::Cache;
use crate::units::PAGE;

/// Sizes that are told apart: powers of two, of 1 MiB at least.
/// Fixed: the length of a table; the last is of 16 GiB.
const SIZES: usize = 15;
/// Clears of which one tries the way that is not in use. It bounds what a slow way costs.
/// Moved by: `bench grid --idle on,off --sizes 32M,48M,96M`.
const TRIES: u32 = 64;
/// Clears at first of which each goes another way than the one before.
/// Fixed: two of each way.
const FIRST_TRIES: u32 = 4;
/// A clear past the cache may take one part in this many longer: it spares what others keep there.
/// Moved by: `bench disturb`, `bench grid --idle on,off --sizes 32M,48M,96M`.
const WORTH: u32 = 8;
/// The part of a new figure in what is known, as a divisor.
/// Fixed: outliers do not decide.
const WEIGHT: u32 = 8;

/// Picoseconds a page of each way, 0: not known; and clears so far.
#[derive(Default)]
struct Size {
    cached: AtomicU32,
    bypassing: AtomicU32,
    clears: AtomicU32,
}

/// See the module. Words of their own; increments may be lost between threads.
#[derive(Default)]
pub(crate) struct Rates([Size; SIZES]);

impl Rates {
    fn of(&self, bytes: usize) -> &Size {
        let mib = (bytes >> 20).max(1).ilog2() as usize;
        &self.0[mib.min(SIZES - 1)]
    }

    /// How a set of `bytes` is cleared that is larger than its share of the cache.
    pub(crate) fn way(&self, bytes: usize) -> Cache {
        let size = self.of(bytes);
        let clears = size.clears.load(Relaxed);
        size.clears.store(clears.wrapping_add(1), Relaxed);
        let (cached, bypassing) = (size.cached.load(Relaxed), size.bypassing.load(Relaxed));
        let past = cached == 0 || bypassing <= cached.saturating_add(cached / WORTH);
        let other = if clears < FIRST_TRIES {
            !clears.is_multiple_of(2)
        } else {
            clears.is_multiple_of(TRIES)
        };
        if past != other { Cache::Bypassing } else { Cache::Cached }
    }

    /// A part of a set of `bytes` was cleared: `part` bytes in `ns`.
    pub(crate) fn note(&self, way: Cache, bytes: usize, part: usize, ns: u64) {
        let size = self.of(bytes);
        let known = match way {
            Cache::Cached => &size.cached,
            Cache::Bypassing => &size.bypassing,
        };
        let pages = (part / PAGE).max(1) as u64;
        let new = (ns.saturating_mul(1000) / pages).clamp(1, u64::from(u32::MAX) / 2) as u32;
        let next = match known.load(Relaxed) {
            0 => new,
            // A clear that was preempted counts for little.
            old => old - old / WEIGHT + new.min(old.saturating_mul(2)) / WEIGHT,
        };
        known.store(next, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    /// A machine on which a page takes that many ns, through the cache and past it.
    struct Machine(u64, u64);

    /// How many of `clears` clears of a set of `bytes` went past the cache.
    fn past(rates: &Rates, machine: &Machine, bytes: usize, clears: usize) -> usize {
        let one = |_: &usize| {
            let way = rates.way(bytes);
            let ns = if way == Cache::Cached { machine.0 } else { machine.1 };
            rates.note(way, bytes, 2 * MIB, ns * (2 * MIB / PAGE) as u64);
            way == Cache::Bypassing
        };
        (0..clears).filter(one).count()
    }

    #[test]
    fn a_way_that_costs_more_is_left_and_one_that_does_not_is_kept() {
        for (machine, least, most) in
            [(Machine(50, 50), 980, 1000), (Machine(50, 54), 980, 1000), (Machine(220, 450), 0, 20)]
        {
            let rates = Rates::default();
            let past = past(&rates, &machine, 32 * MIB, 1000);
            assert!((least..=most).contains(&past), "{} ns, {} ns: {past}", machine.0, machine.1);
        }
    }

    /// No decision feeds itself: whatever was measured before, a machine that changed is seen.
    #[test]
    fn a_machine_that_changes_is_seen_from_either_side() {
        let (slow, level) = (Machine(220, 450), Machine(220, 220));
        let rates = Rates::default();
        for _ in 0..3 {
            assert!(past(&rates, &slow, 48 * MIB, 4000) < 2000);
            assert!(past(&rates, &slow, 48 * MIB, 1000) < 20);
            assert!(past(&rates, &level, 48 * MIB, 4000) > 2000);
            assert!(past(&rates, &level, 48 * MIB, 1000) > 980);
        }
    }

    #[test]
    fn sizes_are_told_apart_and_a_preempted_clear_does_not_decide() {
        let rates = Rates::default();
        past(&rates, &Machine(220, 450), 32 * MIB, 100);
        assert!(past(&rates, &Machine(220, 220), 256 * MIB, 1000) > 980);
        rates.note(Cache::Cached, 32 * MIB, 2 * MIB, u64::MAX);
        assert!(past(&rates, &Machine(220, 450), 32 * MIB, 1000) < 20);
        rates.note(Cache::Cached, usize::MAX, 0, 1);
    }
}
