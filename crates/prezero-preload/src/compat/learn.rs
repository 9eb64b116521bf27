//! Large blocks that glibc learns of, although the zone serves them.

use std::sync::atomic::{AtomicUsize, Ordering};

use prezero_core::{HUGE, PAGE};

use super::errno::Errno;
use super::{next, whole};

/// Bytes of the largest block that glibc learns from. With what glibc adds to it this is its
/// `DEFAULT_MMAP_THRESHOLD_MAX` (malloc/malloc.c).
/// Moved by: `prezero bench small`.
const LEARNS_MOST: usize = (32 << 20) - PAGE;
/// Bytes of the first block that glibc is shown. Small blocks that come and go by less are not
/// worth a second call.
/// Moved by: `prezero bench small`.
const LEARNS_LEAST: usize = HUGE;
/// glibc is shown one part in this many more than the program asked for, so that sizes that grow
/// step by step are shown a few times.
/// Moved by: `prezero bench small`.
const LEARNS_AHEAD: usize = 8;
/// The largest block that the next allocator was shown, bytes.
static LEARNT: AtomicUsize = AtomicUsize::new(0);

/// The zone serves a block of `bytes`, of which the next allocator gets to know.
///
/// glibc keeps twice the largest block that it mapped and got back for itself at the top of its heap,
/// and gives the memory beyond that to the kernel, at each `free`. A glibc that never sees a large
/// block keeps 128 KiB, and small blocks that come and go by the megabyte are faulted in each time.
/// So the first request of a size asks glibc for such a block too, and gives it back untouched.
/// Not the program's `free`: that of a mapped block takes no lock in glibc. Another allocator learns nothing.
/// Moved by: the benchmark of small blocks that come and go together.
#[inline(always)]
pub fn learn_of(bytes: usize) {
    if bytes > LEARNT.load(Ordering::Relaxed) && bytes <= LEARNS_MOST {
        show(bytes);
    }
}

#[cold]
fn show(bytes: usize) {
    let bytes = (bytes + bytes / LEARNS_AHEAD).clamp(LEARNS_LEAST, LEARNS_MOST);
    if LEARNT.fetch_max(bytes, Ordering::Relaxed) < bytes && whole::is_glibcs() {
        let errno = Errno::save();
        // SAFETY: no terms, and what it gives back is what it was given, or null.
        unsafe { next::free(next::malloc(bytes)) };
        errno.restore();
    }
}
