//! Free memory, and its content.
//!
//! The pool has the free map, and speaks to the kernel about what lies in it. It knows no hints of
//! CPUs and no policy: [zone](crate::zone) puts those in front of it.

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
pub(crate) mod scrubbing;
#[cfg(not(loom))]
mod whole;

#[cfg(not(loom))]
pub(crate) use whole::Pool;
