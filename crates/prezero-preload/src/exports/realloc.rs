//! `realloc` and `reallocarray`: which allocator grows a block, and when a block changes its allocator.
//!
//! A block of the zone stays there until it is well below the threshold; one that is small and grows to
//! the threshold moves in; one that is already large elsewhere stays there.

use std::ffi::c_void;
use std::ptr;

use prezero_core::{Heap, Order, Resized};

use super::family::allocate;
use super::{abort, not_from_scrubd, the_programs};
use crate::compat::errno::Errno;
use crate::compat::learn::learn_of;
use crate::compat::{arena, next};
use crate::process;

/// libc's `realloc`.
///
/// # Safety
/// As in libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(ptr: *mut c_void, size: usize) -> *mut c_void {
    not_from_scrubd("realloc");
    if size < process::threshold() && process::owner_of(ptr).is_none() && !arena::contains(ptr) {
        // SAFETY: the caller keeps the contract of `realloc`.
        return unsafe { next::realloc(ptr, size) };
    }
    // SAFETY: the caller keeps the contract of `realloc`.
    unsafe { realloc_large_or_ours(ptr, size) }
}

/// glibc's own name of `realloc`: see `__libc_free`.
///
/// # Safety
/// As for `realloc`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __libc_realloc(ptr: *mut c_void, size: usize) -> *mut c_void {
    if process::owner_of(ptr).is_none() && !arena::contains(ptr) {
        // SAFETY: the caller keeps the contract of `__libc_realloc`.
        return unsafe { next::__libc_realloc(ptr, size) };
    }
    // SAFETY: the caller keeps the contract of `__libc_realloc`.
    unsafe { realloc_large_or_ours(ptr, size) }
}

/// libc's `reallocarray`.
///
/// # Safety
/// As in libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reallocarray(ptr: *mut c_void, count: usize, size: usize) -> *mut c_void {
    match count.checked_mul(size) {
        // SAFETY: the caller keeps the contract of `reallocarray`.
        Some(bytes) => unsafe {
            the_programs(realloc as unsafe extern "C" fn(_, _) -> _)(ptr, bytes)
        },
        None => {
            Errno::set(libc::ENOMEM);
            ptr::null_mut()
        }
    }
}

/// `realloc` to a size of at least the threshold, or of a block that the next allocator has not
/// heard of. Not inlined, so that all others save no register.
///
/// # Safety
/// As for `realloc`.
#[inline(never)]
unsafe fn realloc_large_or_ours(ptr: *mut c_void, size: usize) -> *mut c_void {
    if let Some(heap) = process::owner(ptr) {
        // SAFETY: the caller keeps the contract of `realloc_large_or_ours`.
        return unsafe { realloc_from_zone(heap, ptr, size) };
    }
    if arena::contains(ptr) {
        // SAFETY: by the contract of `realloc_large_or_ours`; the arena wrote the size, and a block of it stays.
        return unsafe {
            let to = allocate(size);
            if !to.is_null() {
                let bytes = arena::size_of(ptr).min(size);
                ptr::copy_nonoverlapping::<u8>(ptr.cast(), to.cast(), bytes);
            }
            to
        };
    }
    if size < process::threshold() {
        // What the zone gave up is the next allocator's.
        // SAFETY: the caller keeps the contract of `realloc_large_or_ours`.
        return unsafe { next::realloc(ptr, size) };
    }
    if ptr.is_null() {
        // SAFETY: the caller keeps the contract of `realloc_large_or_ours`.
        return unsafe { allocate(size) };
    }
    // SAFETY: the caller keeps the contract of `realloc_large_or_ours`.
    unsafe { realloc_into_zone(ptr, size) }
}

/// `realloc` of a block of the zone.
///
/// # Safety
/// As for `realloc`.
unsafe fn realloc_from_zone(heap: &Heap, ptr: *mut c_void, size: usize) -> *mut c_void {
    let usable = heap.usable(ptr.cast());
    // SAFETY: the caller keeps the contract of `realloc_from_zone`: the block is its own.
    let block = unsafe { heap.take(ptr.cast()) };
    let block = block.unwrap_or_else(|stray| abort("realloc", ptr, stray));
    let errno = Errno::save();
    if size == 0 {
        heap.free(block);
        errno.restore();
        return ptr::null_mut();
    }
    // A block that shrinks below the threshold leaves the zone only when it is well
    // below: one that swings around the threshold is not copied every time.
    let small = size < process::threshold() / 2;
    let block = if small {
        block
    } else {
        match heap.resize(block, size) {
            Resized::To(place) => {
                learn_of(size);
                errno.restore();
                return place.as_ptr().cast();
            }
            Resized::Refused(block) => block,
        }
    };
    // SAFETY: the next allocator's block is new and has `size` bytes; the zone's block is
    // taken and has `bytes()`; they cannot overlap.
    let to = unsafe {
        let to = next::malloc(size);
        if !to.is_null() {
            let from = heap.address(&block);
            ptr::copy_nonoverlapping(from.as_ptr(), to.cast(), block.bytes().min(size));
        }
        to
    };
    if !to.is_null() {
        heap.free(block);
        errno.restore();
        to
    } else if size <= usable {
        // It fits where it is.
        errno.restore();
        heap.hand_out_to(block, usable).as_ptr().cast()
    } else {
        // The block stays the program's, and `errno` says what the next one said.
        heap.hand_out_to(block, usable);
        ptr::null_mut()
    }
}

/// `realloc` of a block of the next allocator to a size of at least the threshold.
///
/// A block that is already large there stays there: glibc grows those with `mremap`,
/// which moves page-table entries, and against that copying them into the zone is
/// slow however ready the zone's memory is. A small block gets copied anyway, and at
/// most a threshold's worth. Where there is a zone, one allocator has all of the family ([`whole`](crate::compat::whole)):
/// its `malloc_usable_size` knows the block.
///
/// # Safety
/// As for `realloc`; `ptr` is a block of the next allocator.
unsafe fn realloc_into_zone(ptr: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: by the contract of `realloc_into_zone`; the zone's block is new and longer than the old one.
    unsafe {
        let old = next::malloc_usable_size(ptr);
        let to = match process::heap_for(size) {
            Some(heap) if old < process::threshold() => heap.plain(size, Order::MIN),
            _ => None,
        };
        let Some(to) = to else { return next::realloc(ptr, size) };
        learn_of(size);
        ptr::copy_nonoverlapping::<u8>(ptr.cast(), to.as_ptr(), old.min(size));
        next::free(ptr);
        to.as_ptr().cast()
    }
}
