//! What memory is: the backing, and every raw pointer.

#[cfg(not(loom))]
pub(crate) mod backing;
pub(crate) mod bits;
