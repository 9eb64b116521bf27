//! What people see.

#[cfg(not(loom))]
pub mod panel;
#[cfg(not(loom))]
pub(crate) mod report;
#[cfg(not(loom))]
pub(crate) mod snapshot;
#[cfg(not(loom))]
pub(crate) mod summary;
