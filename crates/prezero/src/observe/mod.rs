//! What people see.

pub mod panel;
