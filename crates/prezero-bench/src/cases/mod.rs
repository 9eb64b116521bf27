//! The cases: each measures one thing, and returns its figures.

pub mod ablate;
pub mod disturb;
pub mod fill;
pub mod fleet;
pub mod latency;
pub mod lease;
pub mod pinned;
pub mod plan;
pub mod real;
pub mod scrub;
pub mod seeds;
pub mod start;
pub mod waste;
