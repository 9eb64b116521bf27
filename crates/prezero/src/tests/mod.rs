//! The zone as a whole, against models and faults.

mod fake;
mod model;
mod threads;
mod world;
