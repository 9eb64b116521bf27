//! Clear engines: the ways in which bytes become zero.
//!
//! A [`ClearEngine`] clears whole pages. [`Cache`] says where the lines are afterwards, which
//! is what scrubd chooses by; [`Engines`] holds the choice, by CPU features or by measurement;
//! [`register`] adds an engine, such as a driver for a copy engine, without scrubd knowing.
//!
//! scrubd clears in pieces under a [`Guard`], so that an allocation can take a block back:
//!
//! ```text
//! scrubd: claim == expected? -> clear the piece -> progress = next        (one section)
//! taker:  claim = other      -> membarrier_rseq()  -> reads progress, owns the block
//! ```
//!
//! With a [revocable](ClearEngine::revocable) engine and an [`Rseq`] the piece is one
//! restartable sequence: after the membarrier it has either committed, and its zeroes are
//! visible to the taker, or it never writes again. So a taker need not wait for a scrubber
//! that has no CPU. Accepted: a revoked piece may have cleared any part of its range, and a
//! piece that was interrupted for another reason starts again from its first byte.
//! Without either one, a taker must wait until the piece in hand is committed.

mod calibrate;
pub(crate) mod choice;
pub(crate) mod clearing;
mod first_use;
mod memset;
mod registry;
mod select;

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(test)]
mod tests;

pub use calibrate::{SCRATCH, calibrate};
pub use first_use::Use;
pub use registry::{MAX_REGISTERED, RegistryFull, by_name, engines, register};
pub use select::Engines;

use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};

use prezero_sys::rseq::Rseq;

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
    /// In the cache that the cores share, ready for another core.
    Demoted,
}

/// What became of a piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a revoked piece has another owner"]
pub enum Piece {
    /// All zero, and `progress` says so.
    Cleared,
    /// The claim had changed: `progress` is as it was, and the memory is not ours.
    Revoked,
}

/// The terms on which a piece may be cleared.
#[derive(Debug)]
pub struct Guard<'a> {
    /// The word that an allocation changes to have the block.
    pub claim: &'a AtomicU64,
    /// What `claim` holds for as long as the block is ours.
    pub expected: u64,
    /// Where the commit goes.
    pub progress: &'a AtomicU64,
    /// The value of the commit.
    pub next: u64,
    /// This thread's area; `None` makes the piece irrevocable once it has begun.
    pub rseq: Option<&'a Rseq>,
}

impl Guard<'_> {
    /// Check, clear, commit, one after the other: for clears that cannot be revoked on the way.
    ///
    /// # Safety
    /// As for [`ClearEngine::clear`], for as long as the claim holds and, once the clear has
    /// begun, until `progress` is stored.
    unsafe fn clear_then_commit<E>(&self, engine: &E, dst: NonNull<u8>, len: usize) -> Piece
    where
        E: ClearEngine + ?Sized,
    {
        if self.claim.load(Acquire) != self.expected {
            return Piece::Revoked;
        }
        // SAFETY: the claim holds, and the caller promises that this suffices.
        unsafe { engine.clear(dst, len) };
        self.progress.store(self.next, Release);
        Piece::Cleared
    }
}

/// A way to clear pages.
///
/// # Safety
/// When `clear` returns, every byte of the range is zero for every thread that learns of it
/// by an acquire load, and nothing else was written. `clear_guarded` does the same before it
/// commits. An engine that calls itself revocable keeps what the module says of such.
/// None allocates or locks.
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

    /// Clears one piece if the guard's claim holds, and commits.
    ///
    /// # Safety
    /// As for [`clear`](Self::clear), except that the range need be the caller's own only
    /// while `claim` holds `expected`: the thread that changes it uses the memory no earlier than
    /// after `membarrier_rseq` if the engine is revocable and the guard has an `rseq` of the
    /// calling thread, and else no earlier than after the commit that may be under way.
    unsafe fn clear_guarded(&self, dst: NonNull<u8>, len: usize, guard: &Guard<'_>) -> Piece {
        // SAFETY: the same terms.
        unsafe { guard.clear_then_commit(self, dst, len) }
    }

    /// Whether [`clear_guarded`](Self::clear_guarded) is one restartable sequence, given an
    /// `rseq`.
    fn revocable(&self) -> bool {
        false
    }
}

impl fmt::Debug for dyn ClearEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
