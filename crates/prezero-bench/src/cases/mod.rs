//! Programs that no command line can say: each measures one thing, and returns its figures.

pub mod ablate;
pub mod disturb;
mod fleet;
pub mod grid;
mod ideal;
pub mod scrub;

pub use ideal::Ideal;
