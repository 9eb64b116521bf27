//! The malloc family but for `realloc`: the zone serves a request of at least the threshold, the
//! next allocator the others.

use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};

use prezero_core::{Heap, Order, PAGE, Use};

use super::{abort, not_from_scrubd, the_programs};
use crate::compat::errno::Errno;
use crate::compat::learn::learn_of;
use crate::compat::{arena, next};
use crate::process;

/// libc's `malloc`.
///
/// # Safety
/// As in libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc(size: usize) -> *mut c_void {
    not_from_scrubd("malloc");
    // SAFETY: the caller keeps the contract of `malloc`.
    unsafe { allocate(size) }
}

/// `malloc`, of this library whatever the program calls by that name.
///
/// # Safety
/// As in libc.
#[inline(always)]
pub(super) unsafe fn allocate(size: usize) -> *mut c_void {
    if size < process::threshold() {
        // SAFETY: the caller keeps the contract of `allocate`.
        return unsafe { next::malloc(size) };
    }
    // SAFETY: the caller keeps the contract of `allocate`.
    large(size, move |heap| heap.plain(size, Order::MIN), move || unsafe { next::malloc(size) })
}

/// libc's `calloc`.
///
/// # Safety
/// As in libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    not_from_scrubd("calloc");
    // SAFETY: the caller keeps the contract of `calloc`.
    unsafe { calloc_for(count, size, Use::Unknown) }
}

/// `calloc` of this library, told what comes first.
///
/// # Safety
/// As in libc.
#[inline]
pub(super) unsafe fn calloc_for(count: usize, size: usize, first_use: Use) -> *mut c_void {
    // A product that overflows is the next allocator's to refuse.
    let bytes = count.checked_mul(size).unwrap_or(0);
    if bytes < process::threshold() {
        // SAFETY: the caller keeps the contract of `calloc_for`.
        return unsafe { next::calloc(count, size) };
    }
    let zeroed = move |heap: &Heap| heap.zeroed(bytes, first_use);
    // SAFETY: the caller keeps the contract of `calloc_for`.
    large(bytes, zeroed, move || unsafe { next::calloc(count, size) })
}

/// One of libc's names of `free`.
macro_rules! frees {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// As in libc.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(ptr: *mut c_void) {
            not_from_scrubd(stringify!($name));
            match process::owner_of(ptr) {
                // SAFETY: the caller keeps the contract of `free`.
                Some(heap) => unsafe { release(heap, ptr) },
                None if arena::contains(ptr) => {}
                // SAFETY: as above; the block is neither the zone's nor the arena's.
                None => unsafe { next::$name(ptr) },
            }
        }
    )*};
}

frees! {
    /// libc's `free`.
    free;
    /// glibc's own name of `free`, which some programs call. Its names of `malloc` and its kin stay glibc's: a
    /// tracer of allocations behind this library takes its blocks from them.
    __libc_free;
    /// `free` under an older name, which programs call that were linked with glibc before 2.26.
    cfree;
}

/// C23's `free_sized`, which newer libcs have.
///
/// # Safety
/// As in libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free_sized(ptr: *mut c_void, _size: usize) {
    // SAFETY: the caller keeps the contract of `free`, and more.
    unsafe { the_programs(free as unsafe extern "C" fn(_))(ptr) }
}

/// C23's `free_aligned_sized`, which newer libcs have.
///
/// # Safety
/// As in libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free_aligned_sized(ptr: *mut c_void, _align: usize, _size: usize) {
    // SAFETY: the caller keeps the contract of `free`, and more.
    unsafe { the_programs(free as unsafe extern "C" fn(_))(ptr) }
}

/// libc's `aligned_alloc`.
///
/// # Safety
/// As in libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aligned_alloc(align: usize, size: usize) -> *mut c_void {
    not_from_scrubd("aligned_alloc");
    // SAFETY: the caller keeps the contract of `aligned_alloc`.
    aligned(align, size, move || unsafe { next::aligned_alloc(align, size) })
}

/// libc's `memalign`.
///
/// # Safety
/// As in libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memalign(align: usize, size: usize) -> *mut c_void {
    not_from_scrubd("memalign");
    // SAFETY: the caller keeps the contract of `memalign`.
    aligned(align, size, move || unsafe { next::memalign(align, size) })
}

/// libc's `posix_memalign`.
///
/// # Safety
/// As in libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(out: *mut *mut c_void, align: usize, size: usize) -> c_int {
    not_from_scrubd("posix_memalign");
    // An alignment that is no multiple of a pointer's size is the next one's to refuse.
    if size >= process::threshold() && align >= size_of::<*mut c_void>() {
        let block = aligned(align, size, ptr::null_mut);
        if !block.is_null() {
            // SAFETY: the caller's promise: `out` takes an address.
            unsafe { *out = block };
            return 0;
        }
    }
    // SAFETY: the caller keeps the contract of `posix_memalign`.
    unsafe { next::posix_memalign(out, align, size) }
}

/// libc's `valloc`.
///
/// # Safety
/// As in libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn valloc(size: usize) -> *mut c_void {
    not_from_scrubd("valloc");
    // SAFETY: the caller keeps the contract of `valloc`.
    aligned(PAGE, size, move || unsafe { next::valloc(size) })
}

/// libc's `pvalloc`.
///
/// # Safety
/// As in libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvalloc(size: usize) -> *mut c_void {
    not_from_scrubd("pvalloc");
    // SAFETY: the caller keeps the contract of `pvalloc`.
    aligned(PAGE, size, move || unsafe { next::pvalloc(size) })
}

/// libc's `malloc_usable_size`; 0 for an address of the zone where no block starts.
///
/// # Safety
/// As in libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(ptr: *mut c_void) -> usize {
    not_from_scrubd("malloc_usable_size");
    match process::owner(ptr) {
        Some(heap) => heap.usable(ptr.cast()),
        // SAFETY: the arena gave it.
        None if arena::contains(ptr) => unsafe { arena::size_of(ptr) },
        // SAFETY: the caller keeps the contract of `malloc_usable_size`.
        None => unsafe { next::malloc_usable_size(ptr) },
    }
}

/// libc's `malloc_trim`: what is free goes back to the kernel, the zone's first.
///
/// # Safety
/// As in libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_trim(pad: usize) -> c_int {
    not_from_scrubd("malloc_trim");
    let any = process::give_back();
    // SAFETY: the caller keeps the contract of `malloc_trim`.
    (any | (unsafe { next::malloc_trim(pad) } != 0)).into()
}

/// A request of at least the threshold: from the zone if it can, else from the next.
#[inline(never)]
fn large(
    bytes: usize,
    from_zone: impl Fn(&Heap) -> Option<NonNull<u8>>,
    from_next: impl Fn() -> *mut c_void,
) -> *mut c_void {
    match process::heap_for(bytes).and_then(from_zone) {
        Some(block) => {
            learn_of(bytes);
            block.as_ptr().cast()
        }
        None => from_next(),
    }
}

/// A request with an alignment in bytes. One that is no power of two, or larger than
/// the zone's largest order, is the next allocator's to refuse or to serve.
fn aligned(align: usize, size: usize, from_next: impl Fn() -> *mut c_void) -> *mut c_void {
    let pages = (align / PAGE).max(1);
    match Order::new(pages.trailing_zeros()) {
        Some(order) if size >= process::threshold() && align.is_power_of_two() => {
            large(size, move |heap| heap.plain(size, order), from_next)
        }
        _ => from_next(),
    }
}

/// Frees a block of the zone.
///
/// # Safety
/// As for `free`.
#[inline(never)]
unsafe fn release(heap: &Heap, ptr: *mut c_void) {
    // No errno is put back: what the zone does goes past libc, or puts it back itself, and to
    // ask for its place is a page of code more, which is cold after a pause.
    // SAFETY: the caller keeps the contract of `release`: the block is its own.
    match unsafe { heap.take(ptr.cast()) } {
        Ok(block) => heap.free(block),
        // SAFETY: `free`'s terms, and what the zone gave up is the next allocator's.
        Err(_) if heap.is_unmapped(ptr.cast()) => unsafe { next::free(ptr) },
        Err(stray) => abort("free", ptr, stray),
    }
}

/// Frees a block of the zone that is zero.
///
/// # Safety
/// As for `free`, and every usable byte of the block is zero.
pub(super) unsafe fn release_zeroed(heap: &Heap, ptr: *mut c_void) {
    let errno = Errno::save();
    // SAFETY: the caller's promise.
    match unsafe { heap.take_zeroed(ptr.cast()) } {
        Ok(block) => heap.free_zeroed(block),
        Err(stray) => abort("prezero_free_zeroed", ptr, stray),
    }
    errno.restore();
}
