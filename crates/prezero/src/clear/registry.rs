//! The engines there are: those built in that this CPU supports, and those registered.

use std::sync::OnceLock;

use super::{ClearEngine, memset::Memset};

#[cfg(target_arch = "aarch64")]
use super::aarch64::{DC_ZVA, has_dc_zva};
#[cfg(target_arch = "x86_64")]
use super::x86::{
    Avx2Nt, Avx512Nt, Clzero, Demote, RepStosb, has_avx2, has_avx512, has_cldemote, has_clzero,
};

/// How many engines can be registered besides those built in.
/// Fixed: the length of a table.
pub const MAX_REGISTERED: usize = 8;

/// All [`MAX_REGISTERED`] places are taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no room for another clear engine: {MAX_REGISTERED} are registered")]
pub struct RegistryFull;

struct BuiltIn {
    engine: &'static dyn ClearEngine,
    supported: fn() -> bool,
}

fn everywhere() -> bool {
    true
}

/// In order of preference, where nothing was measured.
static BUILT_IN: &[BuiltIn] = &[
    #[cfg(target_arch = "x86_64")]
    BuiltIn { engine: &RepStosb, supported: everywhere },
    #[cfg(target_arch = "x86_64")]
    BuiltIn { engine: &Avx512Nt, supported: has_avx512 },
    #[cfg(target_arch = "x86_64")]
    BuiltIn { engine: &Avx2Nt, supported: has_avx2 },
    #[cfg(target_arch = "x86_64")]
    BuiltIn { engine: &Clzero, supported: has_clzero },
    #[cfg(target_arch = "x86_64")]
    BuiltIn { engine: &Demote, supported: has_cldemote },
    #[cfg(target_arch = "aarch64")]
    BuiltIn { engine: &DC_ZVA, supported: has_dc_zva },
    BuiltIn { engine: &Memset, supported: everywhere },
];

static REGISTERED: Registry<MAX_REGISTERED> = Registry::new();

/// Adds an engine, which calibration then considers; a name that is taken stays with the
/// engine that has it. Neither allocates nor, unless two threads want the same place at once,
/// waits.
///
/// # Safety
/// This CPU has what the engine uses: from now on zones clear with it, and ask no more.
///
/// # Errors
/// [`RegistryFull`].
pub unsafe fn register(engine: &'static dyn ClearEngine) -> Result<(), RegistryFull> {
    if BUILT_IN.iter().any(|built_in| built_in.engine.name() == engine.name()) {
        return Ok(());
    }
    REGISTERED.add(engine)
}

/// The engines that this machine supports, those built in first. Does not allocate.
pub fn engines() -> impl Iterator<Item = &'static dyn ClearEngine> {
    let built_in = BUILT_IN.iter().filter(|entry| (entry.supported)()).map(|entry| entry.engine);
    built_in.chain(REGISTERED.iter())
}

/// The engine of that name, if this machine supports it.
pub fn by_name(name: &str) -> Option<&'static dyn ClearEngine> {
    engines().find(|engine| engine.name() == name)
}

/// Places are filled from the first on and never emptied.
struct Registry<const N: usize> {
    places: [OnceLock<&'static dyn ClearEngine>; N],
}

impl<const N: usize> Registry<N> {
    const fn new() -> Registry<N> {
        Registry { places: [const { OnceLock::new() }; N] }
    }

    fn add(&self, engine: &'static dyn ClearEngine) -> Result<(), RegistryFull> {
        for place in &self.places {
            // Two threads may want one place. The loser looks at the winner's engine, and finds its
            // own name if they are the same.
            if place.get_or_init(|| engine).name() == engine.name() {
                return Ok(());
            }
        }
        Err(RegistryFull)
    }

    fn iter(&self) -> impl Iterator<Item = &'static dyn ClearEngine> {
        self.places.iter().map_while(|place| place.get().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Cache;
    use super::*;
    use std::ptr::NonNull;

    struct Fake(&'static str);

    // SAFETY: writes zeroes to exactly the range.
    unsafe impl ClearEngine for Fake {
        fn name(&self) -> &'static str {
            self.0
        }
        fn cache(&self) -> Cache {
            Cache::Bypassing
        }
        unsafe fn clear(&self, dst: NonNull<u8>, len: usize) {
            // SAFETY: the caller owns the range.
            unsafe { dst.write_bytes(0, len) };
        }
    }

    #[test]
    fn registered_engine_is_found_by_name() {
        // SAFETY: any CPU writes bytes.
        unsafe { register(&Fake("fake-driver")) }.unwrap();
        // SAFETY: as above.
        unsafe { register(&Fake("fake-driver")) }.unwrap();
        assert_eq!(by_name("fake-driver").unwrap().cache(), Cache::Bypassing);
        assert_eq!(engines().filter(|engine| engine.name() == "fake-driver").count(), 1);
    }

    #[test]
    fn built_in_name_stays_with_the_built_in() {
        // SAFETY: any CPU writes bytes.
        unsafe { register(&Fake("memset")) }.unwrap();
        assert_eq!(by_name("memset").unwrap().cache(), Cache::Cached);
    }

    #[test]
    fn unknown_name_is_none() {
        assert!(by_name("no such engine").is_none());
    }

    #[test]
    fn names_are_unique() {
        for entry in BUILT_IN {
            let same = BUILT_IN.iter().filter(|e| e.engine.name() == entry.engine.name());
            assert_eq!(same.count(), 1);
        }
    }

    #[test]
    fn full_registry_refuses_new_names_and_takes_old_ones() {
        let registry = Registry::<2>::new();
        registry.add(&Fake("a")).unwrap();
        registry.add(&Fake("b")).unwrap();
        assert_eq!(registry.add(&Fake("c")), Err(RegistryFull));
        assert_eq!(registry.add(&Fake("a")), Ok(()));
        assert_eq!(registry.iter().map(|engine| engine.name()).collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn same_name_from_many_threads_takes_one_place() {
        let registry = Registry::<8>::new();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| registry.add(&Fake("one")).unwrap());
            }
        });
        assert_eq!(registry.iter().count(), 1);
    }
}
