//! Purge: how idle memory goes back to the kernel, and what the kernel is told of it before.
//!
//! | file | call | what becomes of the pages |
//! |---|---|---|
//! | `age` | `MADV_DONTNEED` | absent: idle for their time, under pressure, or before others are faulted in |
//! | `lazy_free` | `MADV_FREE` | the kernel takes them when it lacks some: below the limit of a cgroup |
//! | `hide` | `MADV_WIPEONFORK`, `MADV_DONTDUMP` | a child reads zeroes, no page table is copied for them, and no core dump has them |
//! | `unmap` | `munmap` | address space that is the zone's no more |

pub(crate) mod age;
pub(crate) mod hide;
pub(crate) mod lazy_free;
pub(crate) mod unmap;

use std::ops::Range;

use crate::units::{HUGE, HUGE_ORDER, PageId, Span};

/// Huge blocks that are out of circulation at once while a thread hides or offers them. The thread
/// may lose its CPU in the middle.
/// Moved by: `prezero bench fork`.
const AT_ONCE: u32 = 32;

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
