//! prezerod's rule of stock on many hosts in made-up time. For `prezero bench`, and for tests of the rule.
//!
//! Layers: told, fleet, plan, hosts
#![deny(unsafe_code)]
#![warn(missing_debug_implementations)]

pub mod fleet;
pub mod hosts;
pub mod plan;
pub mod told;

pub use fleet::*;
