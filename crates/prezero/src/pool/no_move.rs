//! Pages that stay at their addresses.
//!
//! The zone gives pages back and moves them by system calls of its own. A registration cache relies on hooks of libc's
//! functions, and would have a device send what lay at an address before. So while such hooks are there, or the
//! program or its user wants it so, no page leaves its address: nothing is released or moved, and a block that grows is
//! copied. Idle memory is still offered (`MADV_FREE`): the kernel takes it when it lacks some, but for pages that a
//! device was told of, which are pinned.
//!
//! Fresh memory replaces pages whose mapping the owner changed, and address space is given up, all the same. Both happen
//! in the program's own threads, and the hooks hear of them.
//!
//! A page that no owner has cannot be registered. So a look when pages are out of circulation, just before
//! they would leave their addresses, is not too early.

use crate::config::{Config, NoMoveMode};
use crate::mem::backing::Backing;
use crate::pool::Pool;
use crate::sync::{AtomicU32, Ordering::Relaxed};

/// See the module.
pub(crate) struct NoMove {
    knob: NoMoveMode,
    /// Not 0: the program asked for it.
    asked: AtomicU32,
}

impl NoMove {
    pub(crate) fn new(config: &Config) -> NoMove {
        NoMove { knob: config.no_move, asked: AtomicU32::new(0) }
    }
}

impl<B: Backing> Pool<B> {
    /// Whether pages that are out of circulation must stay where they are.
    pub(crate) fn must_not_move(&self) -> bool {
        match self.purge.no_move.knob {
            NoMoveMode::On => true,
            NoMoveMode::Off => false,
            NoMoveMode::Auto => {
                self.purge.no_move.asked.load(Relaxed) != 0 || self.memory.backing().is_watched()
            }
        }
    }

    /// The program wants pages to stay where they are from now on.
    pub(crate) fn ask_no_move(&self) {
        self.purge.no_move.asked.store(1, Relaxed);
    }
}
