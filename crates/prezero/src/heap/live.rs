//! What the heap has handed out, and what it holds free.

use std::sync::atomic::Ordering::Relaxed;

use super::{Heap, PAGES_SHIFT};
use crate::units::{PAGE, SLICE};

/// Blocks in the program's hands. Read while they change: the sums are of no one moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Live {
    /// How many.
    pub blocks: usize,
    /// Bytes in them.
    pub bytes: usize,
}

impl Heap {
    /// Walks the records of the memory that is in use or was so lately: a millisecond for some GiB.
    pub fn live(&self) -> Live {
        let mut live = Live::default();
        self.zone.each_in_use(|first, pages| {
            let slices = |page: usize| page / SLICE as usize;
            let end = slices(first.index() + pages as usize).min(self.live.len());
            for slice in &self.live[slices(first.index())..end] {
                let pages = (slice.block.load(Relaxed) >> PAGES_SHIFT) as usize;
                live.blocks += usize::from(pages > 0);
                live.bytes += pages * PAGE;
            }
        });
        live
    }

    /// Bytes that are free and resident.
    pub fn idle(&self) -> usize {
        let gauges = self.snapshot().gauges;
        (gauges.resident_zero_bytes + gauges.resident_dirty_bytes) as usize
    }
}
