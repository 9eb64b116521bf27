//! What one CPU keeps in front of the pool.

#[cfg(not(loom))]
pub(crate) mod cache;
#[cfg(not(loom))]
pub(crate) mod demand;
pub(crate) mod list;
