//! Which engine clears which block: through the cache, or past it.
//!
//! A block that its own core cleared through the cache is the cheapest to fill. A block that was cleared past the cache
//! lies in memory. So a set that fits a share of the shared cache is cleared through it. Beyond that share memory latency
//! is due in any case, and clears go past the cache, unless that [costs more](crate::clear::rates) here. A block that its
//! owner waits for has a larger share than a set that scrubd clears. `bench grid --idle on` shows both ways, in the column
//! `ideal by`.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use prezero_host::topology::{SET_L2S, Topology, l2_or_guess, own_set};

use crate::clear::rates::Rates;
use crate::clear::{Cache, ClearEngine, engines, preferred};

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

/// The engines of a zone, and the caches by which one of them is chosen. Words of their own: no reader waits for a writer.
pub(crate) struct Clearing {
    cached: &'static dyn ClearEngine,
    bypassing: &'static dyn ClearEngine,
    /// The place among [`engines`] of the one that clears everything, and one; 0: there is none.
    only: AtomicUsize,
    /// Bytes of a private cache; 0: unknown.
    l2: AtomicUsize,
    /// Bytes of zeroes that may lie in the shared cache, as scrubd sees it, and as a program does that is about to use
    /// them.
    share: AtomicUsize,
    own_share: AtomicUsize,
    rates: Rates,
}

impl Clearing {
    /// Before more is known of the machine than the bytes of a private cache, or not even those (0). `engine`: the name
    /// of the one that clears everything.
    pub(crate) fn new(engine: Option<&str>, l2: usize) -> Clearing {
        let clearing = Clearing {
            cached: preferred(Cache::Cached),
            bypassing: preferred(Cache::Bypassing),
            only: AtomicUsize::new(0),
            l2: AtomicUsize::new(l2),
            share: AtomicUsize::new(usize::MAX),
            own_share: AtomicUsize::new(own_set(l2)),
            rates: Rates::default(),
        };
        clearing.use_engine(engine);
        clearing
    }

    /// Clears everything with the engine of this name from now on; `None`: with that of each kind.
    pub(crate) fn use_engine(&self, name: Option<&str>) {
        let place = name.and_then(|name| engines().position(|engine| engine.name() == name));
        self.only.store(place.map_or(0, |place| place + 1), Relaxed);
    }

    /// What is known of the machine, and the share of the cache if the user set it.
    pub(crate) fn learn(&self, topology: &Topology, share: Option<usize>) {
        self.l2.store(topology.l2, Relaxed);
        self.share.store(share.unwrap_or(topology.set()), Relaxed);
        self.own_share.store(topology.own_set(), Relaxed);
    }

    /// The engine in use for this kind.
    #[inline]
    pub(crate) fn engine(&self, cache: Cache) -> &'static dyn ClearEngine {
        let engine = match cache {
            Cache::Cached => self.cached,
            Cache::Bypassing => self.bypassing,
        };
        match self.only.load(Relaxed) {
            0 => engine,
            place => engines().nth(place - 1).unwrap_or(engine),
        }
    }

    /// Whether a block of `bytes` and its clear stay in a private cache, of a likely size where it is not known.
    #[inline]
    pub(crate) fn stays_private(&self, bytes: usize) -> bool {
        bytes <= l2_or_guess(self.l2.load(Relaxed)) / SHARE_OF_L2
    }

    /// Whether a block of `bytes` is worth waiting for the CPU that freed it.
    pub(crate) fn fits_private_cache(&self, bytes: usize) -> bool {
        bytes <= self.l2.load(Relaxed) / SHARE_OF_L2
    }

    /// Whether a set of `bytes` is cleared better on the CPU that will use it than elsewhere, both being idle.
    pub(crate) fn prefers_one_cpu(&self, bytes: usize) -> bool {
        bytes <= self.l2.load(Relaxed) * SET_L2S
    }

    /// For a block of `bytes` that its owner is waiting for, and will use at once.
    pub(crate) fn inline(&self, bytes: usize) -> &'static dyn ClearEngine {
        self.within(bytes, &self.own_share)
    }

    /// For what scrubd clears of a set of `bytes` that is used together.
    pub(crate) fn scrub(&self, bytes: usize) -> &'static dyn ClearEngine {
        self.within(bytes, &self.share)
    }

    fn within(&self, bytes: usize, share: &AtomicUsize) -> &'static dyn ClearEngine {
        let fits = bytes <= share.load(Relaxed);
        self.engine(if fits { Cache::Cached } else { self.rates.way(bytes) })
    }

    /// What was chosen for a set of `bytes` has cleared `part` bytes of it in `ns`.
    pub(crate) fn note(&self, engine: &dyn ClearEngine, bytes: usize, part: usize, ns: u64) {
        self.rates.note(engine.cache(), bytes, part, ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const MIB: usize = 1 << 20;

    fn clearing(l2: usize, l3: usize, share: Option<usize>) -> Clearing {
        let topology = Topology { l2, l3, ..Topology::read(Path::new("nowhere")) };
        let clearing = Clearing::new(None, 0);
        clearing.learn(&topology, share);
        clearing
    }

    #[test]
    fn zeroes_beyond_their_share_of_the_cache_go_past_it() {
        let bypassing = preferred(Cache::Bypassing).cache();
        for (share, fits) in [(None, 24 * MIB), (Some(MIB), MIB)] {
            let clearing = clearing(2 * MIB, 32 * MIB, share);
            assert_eq!(clearing.scrub(fits).cache(), Cache::Cached);
            assert_eq!(clearing.scrub(fits + 1).cache(), bypassing, "where nothing is known");
        }
    }

    #[test]
    fn no_more_is_believed_of_the_shared_cache_than_private_ones_bear_out() {
        let bypassing = preferred(Cache::Bypassing).cache();
        for (l2, l3) in [(2 * MIB, 480 * MIB), (0, 0)] {
            let clearing = clearing(l2, l3, None);
            let scrub = |bytes| clearing.scrub(bytes).cache();
            assert_eq!((scrub(40 * MIB), scrub(41 * MIB)), (Cache::Cached, bypassing));
            let clearing = self::clearing(l2, l3, None);
            let inline = |bytes| clearing.inline(bytes).cache();
            assert_eq!((inline(56 * MIB), inline(57 * MIB)), (Cache::Cached, bypassing));
        }
    }

    #[test]
    fn a_small_block_is_worth_a_move_and_a_large_one_is_not() {
        let clearing = clearing(2 * MIB, 32 * MIB, None);
        assert!(clearing.fits_private_cache(MIB) && !clearing.fits_private_cache(2 * MIB));
        assert!(clearing.prefers_one_cpu(40 * MIB) && !clearing.prefers_one_cpu(41 * MIB));
    }

    #[test]
    fn an_engine_that_is_named_clears_everything_until_another_one_is() {
        let clearing = Clearing::new(Some("memset"), 0);
        let used = || [Cache::Cached, Cache::Bypassing].map(|cache| clearing.engine(cache).name());
        assert_eq!(used(), ["memset"; 2]);
        clearing.use_engine(None);
        assert_eq!(used(), [Cache::Cached, Cache::Bypassing].map(|cache| preferred(cache).name()));
        clearing.use_engine(Some("no such engine"));
        assert_eq!(used()[0], preferred(Cache::Cached).name());
    }
}
