//! The pool as a whole: its parts.

use std::mem::MaybeUninit;

use prezero_sys::memory::Errno;

use crate::block::Run;
use crate::clock::{Clock, LastTick};
use crate::config::Config;
use crate::config::ablation::{Ablation, Mechanism};
use crate::count::counters::Counters;
use crate::inplace::build_in;
use crate::map::Map;
use crate::mem::backing::{Backing, Memory};
use crate::mem::bits::Bits;
use crate::pool::classify::ThinRow;
use crate::pool::headroom::CameBack;
use crate::pool::no_move::NoMove;
use crate::pool::purge::hide::Hidden;
use crate::pool::purge::pages as pages_of;
use crate::pool::purge::unmap::Mapped;
use crate::pool::scrubbing::Scrubbing;
use crate::sync::AtomicU32;
use crate::units::{HUGE, HUGE_PAGES};

/// The CPU that last freed something, a hint where it will be used, and when that was.
#[derive(Default)]
pub(crate) struct Freed {
    pub(crate) on: AtomicU32,
    pub(crate) last: LastTick,
}

/// What the kernel was told of idle memory, and how much may idle (`pool/purge`).
pub(crate) struct Purge {
    /// Blocks that no child of a fork gets and no core dump has.
    pub(crate) hidden: Hidden,
    /// Address space that the zone has mapped.
    pub(crate) mapped: Mapped,
    /// Pages that may idle without being offered to the kernel.
    pub(crate) allowance: AtomicU32,
    /// The most pages that were in use when memory was needed.
    pub(crate) peak: AtomicU32,
    pub(crate) no_move: NoMove,
}

/// How memory comes from the kernel.
pub(crate) struct Fresh {
    /// The huge blocks in small pages (see [`Backing::small`]), and whether fresh memory may come in huge ones.
    pub(crate) in_small: Bits,
    pub(crate) huge: bool,
    /// Of blocks beyond [`KERNELS`](crate::pool::classify) pages.
    pub(crate) thin_row: ThinRow,
}

/// See the module above.
pub(crate) struct Pool<B> {
    pub(crate) memory: Memory<B>,
    pub(crate) map: Map,
    pub(crate) scrubbing: Scrubbing,
    pub(crate) clock: Clock,
    /// Counts of this pool, to which any CPU adds rarely, and of scrubd.
    pub(crate) counters: Counters,
    pub(crate) freed: Freed,
    pub(crate) purge: Purge,
    pub(crate) fresh: Fresh,
    /// Whether any page was ever marked remapped.
    pub(crate) remapped: AtomicU32,
    pub(crate) came_back: CameBack,
    pub(crate) without: Ablation,
}

impl<B: Backing> Pool<B> {
    /// All of `backing`, free and absent, in a slot where it stays.
    ///
    /// # Errors
    /// What the kernel says when the pool's own records find no memory.
    #[inline(never)]
    pub(crate) fn build<'a>(
        slot: &'a mut MaybeUninit<Pool<B>>,
        backing: B,
        config: &Config,
        now_ns: fn() -> u64,
    ) -> Result<&'a mut Pool<B>, Errno> {
        let memory = Memory::new(backing);
        let huge = memory.pages / HUGE_PAGES;
        let blocks = |bytes: usize| ((bytes / HUGE) as u32).min(huge);
        let mapped = blocks(memory.backing().mapped());
        let in_small = Bits::new(huge)?;
        in_small.set(0..blocks(memory.backing().small()));
        let purge = Purge {
            hidden: Hidden::new(huge)?,
            mapped: Mapped::new(huge, mapped)?,
            allowance: AtomicU32::new(u32::MAX),
            peak: AtomicU32::new(0),
            no_move: NoMove::new(config),
        };
        debug_assert_eq!(purge.hidden.ceil(mapped).min(huge), mapped, "whole units are mapped");
        let map = Map::new(huge)?;
        let pool = build_in!(
            slot,
            Pool {
                memory: memory,
                map: map,
                scrubbing: Scrubbing::new(),
                clock: Clock::new(now_ns),
                counters: Counters::new(),
                freed: Freed::default(),
                purge: purge,
                fresh: Fresh { in_small, huge: config.huge, thin_row: ThinRow::new() },
                remapped: AtomicU32::new(0),
                came_back: CameBack::new(),
                without: config.without,
            }
        );
        pool.hide_new(&(0..mapped));
        pool.map.put(Run::taken(pages_of(&(0..mapped))));
        Ok(pool)
    }

    /// Whether a mechanism is in use.
    pub(crate) fn has(&self, mechanism: Mechanism) -> bool {
        self.without.has(mechanism)
    }
}
