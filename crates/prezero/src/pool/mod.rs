//! Free memory, and its content.
//!
//! The pool keeps free pages, their states and their ages, and speaks to the kernel about them. It knows no lists of
//! CPUs and no policy: [zone](crate::zone) puts those in front of it.

pub(crate) mod buddy;
#[cfg(not(loom))]
pub(crate) mod chunk;
#[cfg(not(loom))]
pub(crate) mod classify;
#[cfg(not(loom))]
pub(crate) mod find;
#[cfg(not(loom))]
pub(crate) mod headroom;
#[cfg(not(loom))]
pub(crate) mod huge;
#[cfg(not(loom))]
pub(crate) mod isolate;
#[cfg(not(loom))]
pub(crate) mod no_move;
#[cfg(not(loom))]
pub(crate) mod purge;
#[cfg(not(loom))]
pub(crate) mod put;
#[cfg(not(loom))]
pub(crate) mod resident;
#[cfg(not(loom))]
pub(crate) mod runs;
pub(crate) mod scrubbing;
#[cfg(not(loom))]
mod whole;

#[cfg(not(loom))]
pub(crate) use whole::Pool;
