//! Clear engines: the ways in which bytes become zero.
//!
//! A [`ClearEngine`] clears whole pages. [`Cache`] says where the lines are afterwards. CPU features say which engine of
//! each kind a zone uses, [`engine_named`] and `--engine` choose one for everything, and [`register`] adds a driver, such
//! as that of a copy engine, without scrubd knowing.

pub(crate) mod clearing;
mod first_use;
mod memset;
mod rates;

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(test)]
mod tests;

pub use first_use::Use;

use std::fmt;
use std::ptr::NonNull;
use std::sync::OnceLock;

use memset::Memset;

/// The registry's own name of an engine that runs on this CPU: what
/// [`Machine::engine`](crate::Machine::engine) asks.
pub fn engine_named(name: &str) -> Option<&'static str> {
    by_name(name).map(|engine| engine.name())
}

/// Where the cleared lines are when an engine is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cache {
    /// In the clearing core's own caches, as far as they fit.
    Cached,
    /// In memory; the caches hold what they held before.
    Bypassing,
}

/// A way to clear pages.
///
/// # Safety
/// When `clear` returns, every byte of the range is zero for every thread that learns of it
/// by an acquire load, and nothing else was written. It neither allocates nor locks.
pub unsafe trait ClearEngine: Sync {
    /// What `--engine` calls it.
    fn name(&self) -> &'static str;

    /// Where the lines are afterwards.
    fn cache(&self) -> Cache;

    /// Clears `len` bytes from `dst`.
    ///
    /// # Safety
    /// The range is mapped, writable and the caller's own; both `dst` and `len` are multiples
    /// of 4096 bytes, and `len` is not zero. The CPU has what the engine uses, which holds for
    /// all that [`engines`] yields.
    unsafe fn clear(&self, dst: NonNull<u8>, len: usize);
}

impl fmt::Debug for dyn ClearEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An engine, and whether this CPU has what it uses.
struct BuiltIn(&'static dyn ClearEngine, fn() -> bool);

/// Of each kind the first that this CPU supports is used.
static BUILT_IN: &[BuiltIn] = &[
    #[cfg(target_arch = "x86_64")]
    BuiltIn(&x86::RepStosb, || true),
    #[cfg(target_arch = "x86_64")]
    BuiltIn(&x86::Avx512Nt, || is_x86_feature_detected!("avx512f")),
    #[cfg(target_arch = "x86_64")]
    BuiltIn(&x86::Avx2Nt, || is_x86_feature_detected!("avx2")),
    #[cfg(target_arch = "aarch64")]
    BuiltIn(&aarch64::DC_ZVA, aarch64::has_dc_zva),
    BuiltIn(&Memset, || true),
];

static REGISTERED: OnceLock<&'static dyn ClearEngine> = OnceLock::new();

/// Another engine is registered already.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a clear engine is registered already")]
pub struct RegistryFull;

/// Adds an engine, once in a process. Zones that are made from then on use it for the clears of its kind. Does not
/// allocate.
///
/// # Safety
/// This CPU has what the engine uses: zones clear with it, and ask no more.
///
/// # Errors
/// [`RegistryFull`], unless this engine is the one that is registered, by its name.
pub unsafe fn register(engine: &'static dyn ClearEngine) -> Result<(), RegistryFull> {
    let registered = REGISTERED.get_or_init(|| engine).name() == engine.name();
    if registered { Ok(()) } else { Err(RegistryFull) }
}

/// The engines that this machine supports, in the order in which they are preferred. Does not allocate.
pub fn engines() -> impl Iterator<Item = &'static dyn ClearEngine> {
    let built_in = BUILT_IN.iter().filter(|entry| (entry.1)()).map(|entry| entry.0);
    REGISTERED.get().copied().into_iter().chain(built_in)
}

/// The engine of that name, if this machine supports it.
pub fn by_name(name: &str) -> Option<&'static dyn ClearEngine> {
    engines().find(|engine| engine.name() == name)
}

/// The engine that a zone uses for clears of this kind. Where no engine passes the cache, one that does not.
pub fn preferred(cache: Cache) -> &'static dyn ClearEngine {
    let of = |kind| engines().find(|engine| engine.cache() == kind);
    of(cache).or_else(|| of(Cache::Cached)).unwrap_or(&Memset)
}
