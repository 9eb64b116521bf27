//! Rust's own allocator in this library: pages from the kernel, one mapping a block.
//!
//! The little that the library's threads keep on a heap must not come from the
//! program's allocator: scrubd would get an arena of its own from glibc (64 MiB of
//! address space, which a small `RLIMIT_AS` does not have), and could hold a lock of it
//! across a `fork`. None of these allocations lies on a path of the program's, so a
//! system call for each is cheap enough.

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::c_long;
use std::ptr;

use prezero_core::PAGE;

#[global_allocator]
static OWN: Own = Own;

struct Own;

// SAFETY: each block is a private mapping of its own, which no other block overlaps and
// which lives until `dealloc`; mappings are page-aligned, and larger alignments refused.
unsafe impl GlobalAlloc for Own {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() > PAGE {
            return ptr::null_mut();
        }
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let nowhere = ptr::null_mut::<u8>();
        // SAFETY: a new mapping touches nobody's memory.
        answer(unsafe {
            libc::syscall(libc::SYS_mmap, nowhere, layout.size(), prot, flags, -1, 0usize)
        })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's terms; a new mapping is zero.
        unsafe { self.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the mapping that `alloc` made for this layout, and done with.
        unsafe { libc::syscall(libc::SYS_munmap, block, layout.size()) };
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let flags = libc::MREMAP_MAYMOVE;
        // SAFETY: the mapping that `alloc` made for this layout; the old address is void.
        answer(unsafe { libc::syscall(libc::SYS_mremap, block, layout.size(), size, flags) })
    }
}

fn answer(address: c_long) -> *mut u8 {
    if address == -1 { ptr::null_mut() } else { ptr::with_exposed_provenance_mut(address as usize) }
}
