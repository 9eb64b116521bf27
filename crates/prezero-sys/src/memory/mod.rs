//! Memory as the kernel gives it: what is mapped, moved, shared and given back.
//!
//! | module | holds |
//! |---|---|
//! | [`reservation`] | a reserved address range |
//! | [`hooks`] | whether others hear of what leaves its address |
//! | [`moves`] | pages of such a range that change their addresses |
//! | [`meta`] | lazily backed arrays of records |
//! | [`shared`] | shared mappings, huge pages for them, nodes |
//! | [`promises`] | what is believed of the kernel, tried first |
//! | [`panel`] | pages that a process shares with the tools of its owner |

pub mod hooks;
pub mod meta;
pub mod moves;
pub mod panel;
pub mod promises;
pub mod reservation;
pub mod shared;

pub use reservation::{Errno, GRAIN, Reservation};
