//! The heap's making: what the environment and the limits of the process leave room for.

use std::fmt::Write;

use prezero_core::Heap;

use super::{Process, confine, env};
use crate::compat::message::Line;

/// What came of making a heap.
#[expect(clippy::large_enum_variant, reason = "no heap to box it on; one per process")]
pub(super) enum Made {
    /// It is there.
    Heap(Process),
    /// The request is below the threshold that the user set: bytes.
    NotYet(usize),
    /// There is to be none.
    Nothing,
}

/// The heap for a request of so many bytes, if there is to be one.
pub(super) fn make(bytes: usize) -> Made {
    // Before all that looks at the machine.
    if env::disabled() || !confine::may_live() || prezero_sys::process::overcommits_never() {
        return Made::Nothing;
    }
    let mut config = match env::config() {
        Ok(config) => config,
        Err(error) => {
            let _ = writeln!(Line::to_stderr(), "prezero: {error} (running without a zone)");
            return Made::Nothing;
        }
    };
    if bytes < config.threshold {
        return Made::NotYet(config.threshold);
    }
    match Heap::fitting(&mut config) {
        Some(heap) => Made::Heap(Process { heap, config }),
        None => Made::Nothing,
    }
}
