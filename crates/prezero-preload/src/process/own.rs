//! Rust's own allocator in this library: a static arena, then pages from the kernel.
//!
//! The little that the library's threads keep on a heap must not come from the
//! program's allocator: scrubd would get an arena of its own from glibc (64 MiB of
//! address space, which a small `RLIMIT_AS` does not have), and could hold a lock of it
//! across a `fork`. Nor must it fail: Rust ends the process then, and the program may be at a
//! limit that it could live with. So there is room for all that a scrubd allocates, in memory
//! that is there from the beginning and costs nothing until it is touched. Blocks lie in it in
//! the order of their birth, and the last is given back or grows in place.
//!
//! Nothing of this is on a path of the program's. What does not fit (the scrubd of a child of a
//! child of a child..., a machine with very many CPUs) gets a mapping of its own.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use prezero_core::PAGE;
use prezero_sys::raw::syscall;

/// Bytes. A scrubd on two CPUs takes about 70 KiB. The library as a whole must stay below the size of a huge page,
/// for a reason that `tests/library.sh` gives.
const CAPACITY: usize = 512 << 10;

#[repr(C, align(4096))]
struct Memory(UnsafeCell<[u8; CAPACITY]>);

// SAFETY: only reached through raw pointers to parts that `take` gave to one caller each.
unsafe impl Sync for Memory {}

static MEMORY: Memory = Memory(UnsafeCell::new([0; CAPACITY]));
/// Bytes from the beginning of [`MEMORY`] that were given out.
static USED: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static OWN: Own = Own;

struct Own;

/// Where a block lies in the arena, if it does.
fn offset(block: *mut u8) -> Option<usize> {
    let offset = block.addr().wrapping_sub(MEMORY.0.get().addr());
    (offset < CAPACITY).then_some(offset)
}

/// A part of the arena that is free.
fn take(layout: Layout) -> Option<*mut u8> {
    let place = |used: usize| {
        let start = used.next_multiple_of(layout.align());
        let end = start.checked_add(layout.size()).filter(|end| *end <= CAPACITY)?;
        Some((start, end))
    };
    let used = USED.fetch_update(Relaxed, Relaxed, |used| place(used).map(|(_, end)| end)).ok()?;
    let (start, _) = place(used)?;
    // SAFETY: start + size lies in the array, as `place` checked.
    Some(unsafe { MEMORY.0.get().cast::<u8>().add(start) })
}

/// Moves the arena's end from that of its last block to `to`. False if the block is not the
/// last, or there is no room.
fn resize_last(from: usize, to: usize) -> bool {
    to <= CAPACITY && USED.compare_exchange(from, to, Relaxed, Relaxed).is_ok()
}

// SAFETY: a block is a part of the arena, which `take` gives to one caller at most, or a private
// mapping of its own; until `dealloc` no other caller gets any of it. The arena and mappings are
// page-aligned, and larger alignments refused.
unsafe impl GlobalAlloc for Own {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() > PAGE {
            return ptr::null_mut();
        }
        if let Some(block) = take(layout) {
            return block;
        }
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping touches no other memory.
        answer(unsafe {
            let arguments = [0, layout.size(), prot as usize, flags as usize, usize::MAX, 0];
            syscall(libc::SYS_mmap, arguments)
        })
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match offset(block) {
            // What is not the last stays: there is little of it.
            Some(start) => {
                resize_last(start + layout.size(), start);
            }
            // SAFETY: the mapping that `alloc` made for this layout, and done with.
            None => unsafe {
                syscall(libc::SYS_munmap, [block.addr(), layout.size()]);
            },
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if let Some(start) = offset(block)
            && resize_last(start + layout.size(), start.saturating_add(size))
        {
            return block;
        }
        // SAFETY: the caller keeps the contract of `realloc`: `size` is one that the layout's alignment allows; the new
        // block does not overlap the old one, and both have the bytes that are copied.
        unsafe {
            let to = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
            if !to.is_null() {
                ptr::copy_nonoverlapping(block, to, layout.size().min(size));
                self.dealloc(block, layout);
            }
            to
        }
    }
}

/// The mapping, or null for minus an error's number.
fn answer(address: isize) -> *mut u8 {
    if address < 0 { ptr::null_mut() } else { ptr::with_exposed_provenance_mut(address as usize) }
}
