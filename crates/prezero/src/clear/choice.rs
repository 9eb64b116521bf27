//! Which engine clears which block: through the cache, past it, or handed over to the shared cache.
//!
//! A block that its own core cleared through the cache is the cheapest to fill. A block that another core cleared
//! is dearer, least so if that core demoted its lines to the shared cache. A block that was cleared past the cache
//! lies in memory, and its clear is the fastest. `bench grid --idle on` shows all of them, in the column `ideal
//! by`.
//!
//! So a block that fits a private cache is cleared on the CPU that will use it, if that idles, and demoted elsewhere. A set that fits a
//! share of the shared cache is cleared through it. Beyond that share memory latency is due in any case, and clears
//! go past the cache. A block that its owner waits for has a larger share than a set that scrubd clears.

use prezero_host::topology::{SET_L2S, Topology, l2_or_guess, own_set};

use crate::clear::{ClearEngine, Engines};

/// Part of a private cache that a block may fill and be worth a clear on the CPU that will use it, or in place while hot, as a divisor.
/// Moved by: `bench grid --sizes 64K,256K,1M`.
const SHARE_OF_L2: usize = 2;

/// Where a block is cleared, seen from the CPU that is likely to use it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ClearedOn {
    /// On that CPU.
    Preferred,
    /// On another, or it is not known which.
    Other,
}

/// The engines and the caches they are chosen by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice {
    pub(crate) engines: Engines,
    /// Bytes; 0: unknown.
    l2: usize,
    /// Bytes of zeroes that may lie in the shared cache, as scrubd sees it, and as a program
    /// does that is about to use them.
    share: usize,
    own_share: usize,
}

impl Choice {
    /// Before more is known of the machine than the bytes of a private cache, or not even those (0).
    pub(crate) fn unmeasured(engines: Engines, l2: usize) -> Choice {
        Choice { engines, l2, share: usize::MAX, own_share: own_set(l2) }
    }

    /// `share`: bytes of zeroes that may lie in the shared cache, if the user set it.
    pub(crate) fn measured(engines: Engines, topology: &Topology, share: Option<usize>) -> Choice {
        let (l2, own_share) = (topology.l2, topology.own_set());
        let share = share.unwrap_or(topology.set());
        Choice { engines, l2, share, own_share }
    }

    /// Whether a block of `bytes` and its clear stay in a private cache, of a likely size where it is not known.
    #[inline]
    pub(crate) fn stays_private(&self, bytes: usize) -> bool {
        bytes <= l2_or_guess(self.l2) / SHARE_OF_L2
    }

    /// Whether a block of `bytes` is worth waiting for the CPU that freed it.
    pub(crate) fn fits_private_cache(&self, bytes: usize) -> bool {
        bytes <= self.l2 / SHARE_OF_L2
    }

    /// Whether a set of `bytes` is cleared better on the CPU that will use it than elsewhere, both being idle.
    pub(crate) fn prefers_one_cpu(&self, bytes: usize) -> bool {
        bytes <= self.l2 * SET_L2S
    }

    /// For a block of `bytes` that its owner is waiting for, and will use at once.
    pub(crate) fn inline(&self, bytes: usize) -> &'static dyn ClearEngine {
        if bytes > self.own_share { self.engines.bypassing } else { self.engines.cached }
    }

    /// For what scrubd clears `on` a CPU: `bytes` that are likely to be used together, when
    /// `until_used` bytes have gone through the caches.
    pub(crate) fn scrub(
        &self,
        bytes: usize,
        until_used: usize,
        on: ClearedOn,
    ) -> &'static dyn ClearEngine {
        if until_used > self.share {
            return self.engines.bypassing;
        }
        match self.engines.demoting {
            Some(demoting) if on == ClearedOn::Other && self.fits_private_cache(bytes) => demoting,
            _ => self.engines.cached,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clear::Cache;
    use std::path::Path;

    const MIB: usize = 1 << 20;

    fn choice(share: Option<usize>) -> Choice {
        let topology =
            Topology { l2: 2 * MIB, l3: 32 * MIB, ..Topology::read(Path::new("nowhere")) };
        Choice::measured(Engines::uncalibrated(), &topology, share)
    }

    #[test]
    fn zeroes_beyond_their_share_of_the_cache_go_past_it() {
        let bypassing = Engines::uncalibrated().bypassing.cache();
        for (share, fits) in [(None, 24 * MIB), (Some(MIB), MIB)] {
            let choice = choice(share);
            let cache = |until_used| choice.scrub(MIB, until_used, ClearedOn::Preferred).cache();
            assert_eq!(cache(fits), Cache::Cached);
            assert_eq!(cache(fits + 1), bypassing);
        }
    }

    #[test]
    fn no_more_is_believed_of_the_shared_cache_than_private_ones_bear_out() {
        let topology =
            Topology { l2: 2 * MIB, l3: 480 * MIB, ..Topology::read(Path::new("nowhere")) };
        let nothing = Topology { l2: 0, l3: 0, ..topology };
        let bypassing = Engines::uncalibrated().bypassing.cache();
        for topology in [topology, nothing] {
            let choice = Choice::measured(Engines::uncalibrated(), &topology, None);
            let cache = |bytes| choice.scrub(MIB, bytes, ClearedOn::Preferred).cache();
            assert_eq!((cache(40 * MIB), cache(41 * MIB)), (Cache::Cached, bypassing));
            let own = |bytes| choice.inline(bytes).cache();
            assert_eq!((own(56 * MIB), own(57 * MIB)), (Cache::Cached, bypassing));
        }
    }

    #[test]
    fn a_small_block_is_worth_a_move_and_a_large_one_is_not() {
        let choice = choice(None);
        assert!(choice.fits_private_cache(MIB) && !choice.fits_private_cache(2 * MIB));
        assert!(choice.prefers_one_cpu(40 * MIB) && !choice.prefers_one_cpu(41 * MIB));
    }

    #[test]
    fn a_block_used_soon_on_another_cpu_is_handed_over_where_that_can_be_done() {
        let expected = Engines::uncalibrated().demoting.map_or(Cache::Cached, |e| e.cache());
        let engine = choice(None).scrub(64 << 10, 64 << 10, ClearedOn::Other);
        assert_eq!(engine.cache(), expected);
    }
}
