//! What people see.

pub mod panel;
pub(crate) mod processes;
pub(crate) mod report;
pub(crate) mod snapshot;
pub(crate) mod summary;
