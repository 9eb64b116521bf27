//! What one CPU keeps in front of the pool.

#[cfg(not(loom))]
pub(crate) mod cache;
#[cfg(not(loom))]
pub(crate) mod demand;
#[cfg(not(loom))]
pub(crate) mod list;
