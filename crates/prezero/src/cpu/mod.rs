//! What one CPU remembers and counts.

#[cfg(not(loom))]
pub(crate) mod cache;
#[cfg(not(loom))]
pub(crate) mod demand;
pub(crate) mod hints;
