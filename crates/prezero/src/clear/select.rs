//! Which engine scrubd uses for which purpose.

use super::{Cache, ClearEngine, engines, memset::Memset};

/// The chosen engines, and how fast they are.
#[derive(Clone, Copy, Debug)]
pub struct Engines {
    /// For memory that is used soon: the lines stay in this core's caches.
    pub cached: &'static dyn ClearEngine,
    /// For memory that would only push better lines out. The cached one where there is none.
    pub bypassing: &'static dyn ClearEngine,
    /// For memory that another core uses soon, where the CPU can hand lines over.
    pub demoting: Option<&'static dyn ClearEngine>,
    /// Bytes a second of `cached`, hot; 0: not measured.
    pub cached_rate: u64,
    /// Bytes a second of `bypassing`; 0: not measured.
    pub bypassing_rate: u64,
    /// Bytes a second of `demoting`; 0: none, or not measured.
    pub demoting_rate: u64,
}

impl Engines {
    /// By CPU features alone: nothing is measured or allocated, so this works from the very
    /// first allocation on.
    pub fn uncalibrated() -> Engines {
        let first = |cache| engines().find(|engine| engine.cache() == cache);
        let cached = first(Cache::Cached).unwrap_or(&Memset);
        Engines {
            bypassing: first(Cache::Bypassing).unwrap_or(cached),
            demoting: first(Cache::Demoted),
            ..Engines::only(cached)
        }
    }

    /// This engine for everything.
    pub fn only(engine: &'static dyn ClearEngine) -> Engines {
        Engines {
            cached: engine,
            bypassing: engine,
            demoting: None,
            cached_rate: 0,
            bypassing_rate: 0,
            demoting_rate: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uncalibrated_engines_do_what_their_place_says() {
        let chosen = Engines::uncalibrated();
        assert_eq!(chosen.cached.cache(), Cache::Cached);
        let has_bypassing = engines().any(|engine| engine.cache() == Cache::Bypassing);
        assert_eq!(chosen.bypassing.cache() == Cache::Bypassing, has_bypassing);
        assert!(chosen.demoting.is_none_or(|engine| engine.cache() == Cache::Demoted));
    }

    #[test]
    fn only_uses_one_engine_for_everything() {
        let chosen = Engines::only(&Memset);
        assert_eq!((chosen.cached.name(), chosen.bypassing.name()), ("memset", "memset"));
        assert!(chosen.demoting.is_none());
    }
}
