//! prezerod's rule of stock on many hosts in made-up time. For `prezero bench`, and for tests of the rule.
//!
//! Layers: fleet
#![deny(unsafe_code)]
#![warn(missing_debug_implementations)]

mod fleet;

pub use fleet::*;
