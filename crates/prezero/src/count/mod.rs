//! What is counted and traced.

pub(crate) mod counters;
pub mod panel;
pub(crate) mod probes;
pub(crate) mod snapshot;
