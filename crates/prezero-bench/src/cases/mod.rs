//! Programs that no command line can say: each measures one thing, and returns its figures.

pub mod ablate;
pub mod disturb;
pub mod fill;
pub mod fleet;
pub mod grid;
mod ideal;
pub mod plan;
pub mod scrub;
pub mod waste;

pub use ideal::Ideal;
