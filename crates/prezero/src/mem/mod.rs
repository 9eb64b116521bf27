//! What memory is: the backing, the page states, and every raw pointer.

#[cfg(not(loom))]
pub(crate) mod backing;
pub(crate) mod bits;
pub(crate) mod states;
