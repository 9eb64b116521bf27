//! The thread that makes free memory zero.

#[cfg(not(loom))]
pub(crate) mod desk;
#[cfg(not(loom))]
pub(crate) mod host;
#[cfg(not(loom))]
pub(crate) mod scrub;
#[cfg(not(loom))]
pub(crate) mod thread;
