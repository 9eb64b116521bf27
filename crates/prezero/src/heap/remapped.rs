//! What the program does to the zone's pages by system calls, and what the heap makes of it.

use std::ops::Range;
use std::ptr;

use super::Heap;
use crate::units::PAGE;

impl Heap {
    /// From now on what grows is copied.
    pub fn never_move(&self) {
        self.zone.never_move();
    }

    /// Whether an address in the zone's range was given up, and is others'.
    pub fn is_unmapped(&self, ptr: *const u8) -> bool {
        self.zone.page_of(ptr).is_some_and(|page| self.zone.is_unmapped(page))
    }

    /// The whole pages of the zone that `len` bytes from address `at` on touch. What was given up
    /// is no part of it: a range lies in one or the other.
    pub fn part(&self, at: usize, len: usize) -> Option<Range<usize>> {
        let start = at.max(self.base) / PAGE * PAGE;
        let end = at.saturating_add(len).min(self.base + self.bytes).next_multiple_of(PAGE);
        (start < end && !self.is_unmapped(ptr::without_provenance(start))).then_some(start..end)
    }

    /// Notes that the program changes a [`part`](Self::part) by a system call.
    ///
    /// # Safety
    /// The part lies in blocks that the program owns.
    pub unsafe fn mark_remapped(&self, part: &Range<usize>) {
        if let Some(first) = self.zone.page_of(ptr::without_provenance(part.start)) {
            // SAFETY: the caller's promise.
            unsafe { self.zone.mark_remapped(first, (part.len() / PAGE) as u32) };
        }
    }

    /// Calls `each` for the ranges of addresses that are [marked so](Self::mark_remapped).
    pub fn each_remapped(&self, mut each: impl FnMut(Range<usize>)) {
        self.zone.each_remapped(|first, pages| {
            let start = self.base + first.index() * PAGE;
            each(start..start + pages as usize * PAGE);
        });
    }

    /// Has the whole huge blocks of a [`part`](Self::part) faulted in as such.
    pub fn make_huge(&self, part: &Range<usize>) {
        if let Some(first) = self.zone.page_of(ptr::without_provenance(part.start)) {
            self.zone.fault_in_whole(first, (part.len() / PAGE) as u32);
        }
    }
}
