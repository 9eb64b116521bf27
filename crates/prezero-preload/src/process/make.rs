//! The heap's making: what the environment and the limits of the process leave room for.

use std::fmt::Write;
use std::mem::MaybeUninit;

use prezero_core::{ConfigError, Heap};

use super::{Process, confine, env};
use crate::compat::message::Line;

/// What came of making a heap.
pub(super) enum Made {
    /// It is there.
    Heap(Process),
    /// The request is below the threshold that the user set: bytes.
    NotYet(usize),
    /// There is to be none.
    Nothing,
}

/// The heap for a request of `bytes`, if there is to be one, in the slot where it stays.
#[inline(never)]
pub(super) fn make(bytes: usize, slot: &'static mut MaybeUninit<Heap>) -> Made {
    // Before all that looks at the machine.
    if env::disabled() || !confine::may_live() || prezero_sys::process::overcommits_never() {
        return Made::Nothing;
    }
    let mut config = match env::config() {
        Ok(config) => config,
        Err(error) => {
            complain(&error);
            return Made::Nothing;
        }
    };
    if bytes < config.threshold {
        return Made::NotYet(config.threshold);
    }
    match Heap::fitting(slot, &mut config) {
        Some(heap) => Made::Heap(Process { heap, config }),
        None => Made::Nothing,
    }
}

/// In a frame of its own: the first large request may come on a short stack.
#[cold]
#[inline(never)]
fn complain(error: &ConfigError) {
    let _ = writeln!(Line::to_stderr(), "prezero: {error} (running without a zone)");
}
