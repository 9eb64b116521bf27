//! What is free, and what it holds.

pub(crate) mod buddy;
#[cfg(not(loom))]
pub(crate) mod chunk;
#[cfg(not(loom))]
pub(crate) mod compact;
#[cfg(not(loom))]
pub(crate) mod find;
pub(crate) mod handover;
#[cfg(not(loom))]
pub(crate) mod hide;
#[cfg(not(loom))]
pub(crate) mod huge;
#[cfg(not(loom))]
pub(crate) mod leave;
#[cfg(not(loom))]
pub(crate) mod offer;
#[cfg(not(loom))]
pub(crate) mod release;
#[cfg(not(loom))]
pub(crate) mod runs;
#[cfg(not(loom))]
pub(crate) mod stock;
