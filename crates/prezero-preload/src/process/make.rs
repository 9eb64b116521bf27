//! The heap's making: what the environment and the limits of the process leave room for.

use std::fmt::Write;
use std::mem::MaybeUninit;

use prezero_core::internal::Made;
use prezero_core::{Config, ConfigError, Heap};
use prezero_sys::memory::GRAIN;

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
    if !has_spare_mappings() {
        return Made::Nothing;
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

/// Whether the process may have some mappings more (`vm.max_map_count`) than a zone and its scrubd take. The kernel does
/// not say how many there are, so a page here and there is made another mapping.
#[inline(never)]
fn has_spare_mappings() -> bool {
    use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
    /// Mappings that each page in another protection adds.
    const EACH: usize = 2;
    /// Fixed: a zone has seven.
    const SPARE: usize = 16;
    let len = (SPARE + 1) * GRAIN;
    // SAFETY: a new mapping, which no other code knows, goes as it came.
    unsafe {
        let none = std::ptr::null_mut();
        let Ok(base) = mmap_anonymous(none, len, ProtFlags::READ, MapFlags::PRIVATE) else {
            return false;
        };
        let part = |at: usize| mprotect(base.byte_add(at * GRAIN), GRAIN, MprotectFlags::empty());
        let all = (1..=SPARE).step_by(EACH).all(|at| part(at).is_ok());
        // Where no mapping is left, the first munmap of a part of one may fail, and this is of a whole one.
        let _ = munmap(base, len);
        all
    }
}

/// In a frame of its own: the first large request may come on a short stack.
#[cold]
#[inline(never)]
fn complain(error: &ConfigError) {
    let _ = writeln!(Line::to_stderr(), "prezero: {error} (running without a zone)");
}
