//! How the tests of all crates wait, take turns and make programs.
//!
//! Layers: alone, script, until

pub mod alone;
pub mod script;
pub mod until;

pub use alone::alone;
pub use until::{PATIENCE, until};
