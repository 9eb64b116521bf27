//! The zone as a whole, against models and faults.

mod demand;
mod fake;
mod model;
mod scenarios;
mod threads;
mod world;
