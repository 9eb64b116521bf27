//! What a server hears about its lease on standard error, each line once a process.

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
    pub fn say(&self, what: std::fmt::Arguments<'_>) {
        if !self.0.swap(true, Ordering::Relaxed) {
            prezero_sys::tell!("prezero: claim: {what}");
        }
    }
}

pub static LOST: Once = Once::new();
pub static FULL: Once = Once::new();
pub static FORK: Once = Once::new();
pub static NO_SHM: Once = Once::new();
pub static REGISTER: Once = Once::new();
pub static ELSEWHERE: Once = Once::new();
