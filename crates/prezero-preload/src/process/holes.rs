//! Addresses of the zone whose pages the program took away, sealed by inaccessible memory.
//!
//! The kernel could give a hole to any other mapping, and the zone would take it for its own.

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use prezero_core::{Heap, PAGE};
use prezero_sys::sandbox;

use crate::compat::errno::Errno;
use crate::compat::next;

/// Puts inaccessible memory in place of pages that are the program's.
///
/// # Safety
/// The pages are not used any more.
pub unsafe fn seal(part: &Range<usize>) -> c_int {
    // SAFETY: the caller gives the pages up; what is there is replaced in one step.
    let sealed = unsafe { map(part, libc::PROT_NONE, libc::MAP_FIXED) };
    if sealed == libc::MAP_FAILED { -1 } else { 0 }
}

/// Maps memory at a range.
///
/// # Safety
/// As for `mmap` with the flag that says how to take `at`.
unsafe fn map(at: &Range<usize>, access: c_int, fixed: c_int) -> *mut c_void {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | fixed;
    let (start, len) = (ptr::without_provenance_mut(at.start), at.len());
    // SAFETY: the caller keeps the contract of `map`.
    unsafe { next::mmap(start, len, access, flags, -1, 0) }
}

/// Maps memory at a range where nothing is; whether it could.
fn fill(at: &Range<usize>, access: c_int) -> bool {
    // SAFETY: replaces nothing; a kernel before 4.17 may put it elsewhere, where no other code knows it.
    unsafe {
        let filled = map(at, access, libc::MAP_FIXED_NOREPLACE);
        let there = filled.addr() == at.start;
        if !there && filled != libc::MAP_FAILED {
            next::munmap(filled, at.len());
        }
        there
    }
}

/// Makes what lies in front of the zone's first block readable. A program's own tracker of allocations looks there for its
/// mark, and finds its next allocator's in other blocks. In a frame of its own: the first large request may come on a short stack.
#[inline(never)]
pub fn fill_front(heap: &Heap) {
    if let Some(zone) = heap.part(0, usize::MAX) {
        fill(&(zone.start - PAGE..zone.start), libc::PROT_READ);
    }
}

/// Whether the program ever kept pages of the zone from its children.
static HAS_UNFORKED: AtomicBool = AtomicBool::new(false);

/// The program keeps pages of the zone from its children from now on.
pub fn note_unforked() {
    HAS_UNFORKED.store(true, Ordering::Relaxed);
}

/// In the child of a fork, before it maps anything: seals what the parent kept from it.
pub fn seal_unforked(heap: &Heap) {
    if HAS_UNFORKED.load(Ordering::Relaxed) {
        let errno = Errno::save();
        heap.each_remapped(seal_holes);
        errno.restore();
    }
}

/// Seals the pages of a range that are not mapped.
pub fn seal_holes(range: Range<usize>) {
    // A confined process replaces no page of the zone, so it takes no hole for its own.
    if sandbox::is_confined() {
        return;
    }
    let at = ptr::without_provenance_mut::<c_void>(range.start);
    // SAFETY: of memory without a file it says whether all of it is mapped, and does nothing.
    if unsafe { libc::msync(at, range.len(), libc::MS_ASYNC) } == 0 {
        return;
    }
    if fill(&range, libc::PROT_NONE) {
        return;
    }
    let half = range.len() / 2 / PAGE * PAGE;
    if half > 0 {
        seal_holes(range.start..range.start + half);
        seal_holes(range.start + half..range.end);
    }
}
