//! The heap's making: what the environment and the limits of the process leave room for.

use std::fmt::Write;
use std::mem::MaybeUninit;

use prezero_core::internal::Made;
use prezero_core::{Config, ConfigError, Heap};

use super::{allow_scrubd, confine, env, holes, stands_aside};
use crate::compat::message::Line;

/// The heap for a request of `bytes`, if there is to be one, in the slot where it stays.
#[inline(never)]
pub(super) fn make(bytes: usize, slot: &'static mut MaybeUninit<Heap>) -> Made<Config> {
    // Before all that looks at the machine.
    if !may_be() {
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
        return Made::NotYet(config.threshold, slot);
    }
    let Some(heap) = Heap::fitting(slot, &mut config).map(|heap| &*heap) else {
        return Made::Nothing;
    };
    holes::fill_front(heap);
    allow_scrubd(heap.zone());
    Made::Heap(heap, config.threshold, config)
}

/// Whether there may be a heap. In a frame of its own, as below.
#[inline(never)]
fn may_be() -> bool {
    let wanted = stands_aside().is_none() && !env::disabled();
    wanted && confine::may_live() && !prezero_sys::process::overcommits_never()
}

/// In a frame of its own: the first large request may come on a short stack.
#[cold]
#[inline(never)]
fn complain(error: &ConfigError) {
    let _ = writeln!(Line::to_stderr(), "prezero: {error} (running without a zone)");
}
