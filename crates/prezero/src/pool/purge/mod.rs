//! Purge: how idle memory goes back to the kernel, and what the kernel is told of it before.
//!
//! | file | call | what becomes of the pages |
//! |---|---|---|
//! | `age` | `MADV_DONTNEED` | absent: idle for their time, under pressure, or before others are faulted in |
//! | `lazy_free` | `MADV_FREE` | the kernel takes them when it lacks some: below the limit of a cgroup |
//! | `no_dump` | `MADV_DONTDUMP` | left out of core dumps |
//! | `wipe_on_fork` | `MADV_WIPEONFORK` | a child reads zeroes, and no page table is copied for them |
//! | `unmap` | `munmap` | address space that is the zone's no more |

pub(crate) mod age;
pub(crate) mod lazy_free;
pub(crate) mod no_dump;
pub(crate) mod unmap;
pub(crate) mod wipe_on_fork;

use std::ops::Range;

use prezero_sys::memory::Errno;

use crate::count::counters::Counter;
use crate::mem::backing::{Advice, Backing};
use crate::mem::bits::Bits;
use crate::pool::Pool;
use crate::units::{HUGE, HUGE_ORDER, PageId, Span};

/// Huge blocks of the shortest run that is advised. A fork copies a shorter one in the time that the
/// call takes.
/// Moved by: `prezero bench fork`.
const LEAST: u32 = 4;
/// Huge blocks that are out of circulation at once while a thread advises or offers them. The thread
/// may lose its CPU in the middle.
/// Moved by: `prezero bench fork`.
const AT_ONCE: u32 = 32;

impl<B: Backing> Pool<B> {
    /// Advises huge blocks that the caller took out of the map, and sets their `marks` before. Where the kernel
    /// refuses, both are undone.
    fn advise_taken(&self, huge: &Range<u32>, advice: Advice, bits: &Bits, marks: &Range<u32>) {
        bits.set(marks.clone());
        if self.memory.advise(pages(huge), advice).is_err() {
            self.counters.add_exact(Counter::BackingErrors, 1);
            // A part may be advised: where the program mapped a file, unseen, the kernel goes no farther.
            let undone = self.unadvise(huge, advice);
            if !matches!(undone, Err(Errno::NOMEM | Errno::AGAIN)) {
                bits.clear(marks.clone());
            }
        }
    }

    fn unadvise(&self, huge: &Range<u32>, advice: Advice) -> Result<(), Errno> {
        let (offset, len) = bytes(huge);
        self.memory.backing().unadvise(offset, len, advice)
    }

    /// Clears those `marks` that are set, each run of them after `undo` of it. False if the kernel refused one.
    fn undo_marked(
        &self,
        bits: &Bits,
        marks: Range<u32>,
        undo: impl Fn(&Range<u32>) -> Result<(), Errno>,
    ) -> bool {
        bits.runs(marks).all(|run| {
            let undone = undo(&run);
            match undone {
                Ok(()) => bits.clear(run),
                Err(_) => self.counters.add_exact(Counter::BackingErrors, 1),
            }
            undone.is_ok()
        })
    }
}

/// Whether a bit beside a range is set: to set the range too adds no mapping.
fn joins(bits: &Bits, range: &Range<u32>) -> bool {
    bits.has(range.end) || range.start > 0 && bits.has(range.start - 1)
}

/// A range in parts of at most `most`.
fn parts(range: Range<u32>, most: u32) -> impl Iterator<Item = Range<u32>> {
    let end = range.end;
    range.step_by(most as usize).map(move |from| from..end.min(from.saturating_add(most)))
}

/// The pages of huge blocks.
pub(crate) fn pages(huge: &Range<u32>) -> Span {
    Span::new(PageId(huge.start << HUGE_ORDER), (huge.end - huge.start) << HUGE_ORDER)
}

fn bytes(huge: &Range<u32>) -> (usize, usize) {
    (huge.start as usize * HUGE, (huge.end - huge.start) as usize * HUGE)
}
