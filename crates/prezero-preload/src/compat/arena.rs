//! Memory for allocations made before the next allocator is known.
//!
//! `dlsym` may allocate while it looks up `malloc`. Those few requests get
//! memory from a static arena that only grows; its blocks are recognised by their
//! address, and freeing one does nothing. Untouched it costs no memory.
//!
//! Accepted: a thread that allocates while another one resolves is served from here
//! too. When the arena is full the answer is null, as from any allocator without memory.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Bytes. The most that a `dlsym` was seen to ask for is one error buffer of a few
/// hundred; the rest is for threads that come meanwhile.
const CAPACITY: usize = 256 << 10;
/// In front of each block: its size in bytes, in the alignment that `malloc` promises.
const HEADER: usize = 16;

#[repr(C, align(4096))]
struct Memory(UnsafeCell<[u8; CAPACITY]>);

// SAFETY: only reached through raw pointers to parts that `alloc` gave to one caller each.
unsafe impl Sync for Memory {}

static MEMORY: Memory = Memory(UnsafeCell::new([0; CAPACITY]));
static USED: AtomicUsize = AtomicUsize::new(0);

/// Whether `ptr` came from [`alloc`].
#[inline(always)]
pub fn contains(ptr: *const c_void) -> bool {
    ptr.addr().wrapping_sub(MEMORY.0.get().addr()) < CAPACITY
}

/// Zeroed memory of `size` bytes at a multiple of `align` (a power of two up to a page),
/// or null.
pub fn alloc(size: usize, align: usize) -> *mut c_void {
    let align = align.max(HEADER);
    if size > CAPACITY || !align.is_power_of_two() || align > 4096 {
        return ptr::null_mut();
    }
    let place = |used: usize| {
        let start = (used + HEADER).next_multiple_of(align);
        let end = (start + size).next_multiple_of(HEADER);
        (end <= CAPACITY).then_some((start, end))
    };
    let Ok(used) = USED.fetch_update(Relaxed, Relaxed, |used| place(used).map(|(_, end)| end))
    else {
        return ptr::null_mut();
    };
    let Some((start, _)) = place(used) else { return ptr::null_mut() };
    // SAFETY: start - HEADER .. start + size lies in the array (`place` checked), and
    // `fetch_update` gave it to this caller alone; HEADER-aligned, so the word is too.
    unsafe {
        let block = MEMORY.0.get().cast::<u8>().add(start);
        block.sub(HEADER).cast::<usize>().write(size);
        block.cast()
    }
}

/// The size that a block was asked for with.
///
/// # Safety
/// `block` came from [`alloc`].
pub unsafe fn size_of(block: *const c_void) -> usize {
    // SAFETY: the caller's promise; `alloc` wrote the word in front of the block.
    unsafe { block.cast::<u8>().sub(HEADER).cast::<usize>().read() }
}
