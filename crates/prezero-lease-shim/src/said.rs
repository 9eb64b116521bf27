//! What goes wrong with a lease, said once on standard error.

use std::sync::atomic::{AtomicBool, Ordering};

/// Something that is said at most once by a process.
#[derive(Debug)]
pub struct Once(AtomicBool);

impl Once {
    /// Not said yet.
    pub const fn new() -> Once {
        Once(AtomicBool::new(false))
    }

    /// Says it, if it was not said before. Where standard error leads nowhere nothing happens.
    pub fn say(&self, what: &str) {
        if !self.0.swap(true, Ordering::Relaxed) {
            prezero_sys::tell!("prezero: claim: {what}");
        }
    }
}

pub static PRIVATE: Once = Once::new();
pub static DONTNEED: Once = Once::new();
pub static TOO_LARGE: Once = Once::new();
pub static LOST: Once = Once::new();
pub static GIVEN_BACK: Once = Once::new();
pub static SYSTEM_V: Once = Once::new();
pub static UNUSED: Once = Once::new();
