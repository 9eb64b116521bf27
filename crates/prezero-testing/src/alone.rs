//! Tests of one process that take turns.
//!
//! A process that a test starts has all files of this process until it runs its program. A test that starts processes and
//! one for which the last close of a file counts are alone.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The turn of a test, to its end.
pub fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}
