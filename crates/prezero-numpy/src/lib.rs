//! `libprezero_numpy.so`: the data of NumPy's large arrays, from a prezero zone.
//!
//! NumPy asks a *handler* for the memory of each array's elements (NEP 49), and each array keeps the handler that it
//! was made with. This library makes such handlers: a request of at least the threshold comes from the zone of the
//! process, every other from the handler that was there before, the *inner* one. `bindings/python/prezero/numpy.py` loads
//! it and tells NumPy.
//!
//! # Contract
//! - A block belongs to the zone or to the inner handler, and its address says which. So an array may be freed by any
//!   thread and at any time, also after the handler was taken out of use.
//! - A request that the zone refuses goes to the inner handler. So does each while a handler is switched off.
//! - So does each while a profiler watches `malloc` by a hook in the tables of imported functions (memray): the profile
//!   is the one without prezero.
//! - Nothing here knows of Python: NumPy calls it with or without the interpreter's lock.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

#[cfg(target_env = "gnu")]
prezero_glibc::names!(dlsym pthread_create);

use prezero::{Global, Heap, Order, Resized, Use};

/// NumPy's `PyDataMemAllocator`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Allocator {
    ctx: *mut c_void,
    malloc: unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void,
    calloc: unsafe extern "C" fn(*mut c_void, usize, usize) -> *mut c_void,
    realloc: unsafe extern "C" fn(*mut c_void, *mut c_void, usize) -> *mut c_void,
    free: unsafe extern "C" fn(*mut c_void, *mut c_void, usize),
}

/// Bytes of a handler's name.
const NAME: usize = 127;
/// Bytes of an array from which on NumPy asks the kernel for huge pages, as its `alloc.cpp` has it.
/// Fixed: NumPy's.
const ADVISED: usize = 4 << 20;
/// The version of the structure that NumPy has had since 1.22.
const VERSION: u8 = 1;

/// NumPy's `PyDataMem_Handler`.
#[repr(C)]
#[derive(Debug)]
pub struct Handler {
    name: [c_char; NAME],
    version: u8,
    allocator: Allocator,
}

/// The zone of the process, made at the first large request. Nothing else of the process uses it, so `libprezero.so`
/// beside it makes it no less needed: Python decides.
// SAFETY: the system's allocator asks no other allocator, and its memory lies elsewhere.
static ZONE: Global = unsafe { Global::over(std::alloc::System) };

/// The context of our handlers: what they ask, whether the inner one asks for huge pages, and whether they serve.
#[derive(Debug)]
struct Front {
    inner: &'static Allocator,
    advises: bool,
    serves: AtomicBool,
}

/// A handler in front of `inner`, which is never dropped; null where `inner` is of a version that is not known.
/// `advises`: `inner` asks the kernel for huge pages for large arrays, as NumPy's own handler does.
///
/// # Safety
/// `inner` points at NumPy's structure of a handler, which lives as long as the process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prezero_numpy_handler(
    inner: *const Handler,
    advises: c_int,
) -> *const Handler {
    prezero_sys::say::panics();
    // SAFETY: the caller's promise.
    let inner = unsafe { &*inner };
    if inner.version != VERSION {
        return ptr::null();
    }
    let mut name = [0; NAME];
    for (to, from) in name.iter_mut().zip(b"prezero") {
        *to = *from as c_char;
    }
    let serves = AtomicBool::new(true);
    let front = Front { inner: &inner.allocator, advises: advises != 0, serves };
    let ctx = ptr::from_mut(Box::leak(Box::new(front))).cast();
    let allocator = Allocator { ctx, malloc, calloc, realloc, free };
    Box::leak(Box::new(Handler { name, version: VERSION, allocator }))
}

/// Whether a handler serves from now on, or its inner one.
///
/// # Safety
/// `handler` is one of [`prezero_numpy_handler`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prezero_numpy_switch(handler: *const Handler, serves: c_int) {
    // SAFETY: the caller's promise; a handler of ours has such a context.
    unsafe { front((*handler).allocator.ctx) }.serves.store(serves != 0, Relaxed);
}

/// Whether a handler serves.
///
/// # Safety
/// `handler` is one of [`prezero_numpy_handler`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prezero_numpy_serves(handler: *const Handler) -> c_int {
    // SAFETY: the caller's promise; a handler of ours has such a context.
    unsafe { front((*handler).allocator.ctx) }.serves.load(Relaxed).into()
}

/// `malloc`, as the dynamic linker wrote it into this library's table: a hook in such tables writes its own over it.
static MALLOC: AtomicUsize = AtomicUsize::new(0);

#[inline(always)]
fn malloc_in_table() -> usize {
    libc::malloc as *const () as usize
}

/// Runs when the library is loaded: a profiler hooks it after that.
#[used]
#[unsafe(link_section = ".init_array")]
static LOAD: extern "C" fn() = {
    extern "C" fn load() {
        MALLOC.store(malloc_in_table(), Relaxed);
    }
    load
};

/// Whether an array's elements lie in the zone.
#[unsafe(no_mangle)]
pub extern "C" fn prezero_numpy_owns(block: *const c_void) -> c_int {
    Global::<std::alloc::System>::owner(block.cast()).is_some().into()
}

/// Writes the statistics as one JSON object and a NUL, cut to fit; returns the length of the whole text, as `snprintf`
/// does. 0: there is no zone yet.
///
/// # Safety
/// `buffer` takes `size` bytes, or `size` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prezero_numpy_stats_json(buffer: *mut c_char, size: usize) -> c_int {
    let Some(snapshot) = ZONE.snapshot() else { return 0 };
    let mut text = String::new();
    if prezero_report::write_json(&snapshot, &Default::default(), &mut text).is_err() {
        return 0;
    }
    if size > 0 {
        let kept = text.len().min(size - 1);
        // SAFETY: the caller's promise; the text is longer than what is kept of it.
        unsafe {
            ptr::copy_nonoverlapping(text.as_ptr().cast(), buffer, kept);
            buffer.add(kept).write(0);
        }
    }
    text.len() as c_int
}

/// The heap for a request of `bytes`; `None`: it is the inner handler's.
#[inline]
fn heap_for(front: &Front, bytes: usize) -> Option<&'static Heap> {
    let heap = ZONE.heap_for(bytes)?;
    (front.serves.load(Relaxed) && malloc_in_table() == MALLOC.load(Relaxed)).then_some(heap)
}

/// The context of a handler.
///
/// # Safety
/// `ctx` is that of a handler of [`prezero_numpy_handler`].
#[inline(always)]
unsafe fn front(ctx: *mut c_void) -> &'static Front {
    // SAFETY: the caller's promise; it lives as long as the process.
    unsafe { &*ctx.cast::<Front>() }
}

/// An array's block, in huge pages where the inner handler would have asked for them.
///
/// # Safety
/// `ctx` is that of a handler of [`prezero_numpy_handler`].
#[inline(always)]
unsafe fn advised(ctx: *mut c_void, heap: &Heap, block: NonNull<u8>, bytes: usize) -> *mut c_void {
    // SAFETY: the caller's promise.
    if bytes >= ADVISED && unsafe { front(ctx) }.advises {
        let start = block.addr().get();
        heap.make_huge(&(start..start + bytes));
    }
    block.as_ptr().cast()
}

/// The inner allocator.
///
/// # Safety
/// `ctx` is that of a handler of [`prezero_numpy_handler`].
#[inline(always)]
unsafe fn inner(ctx: *mut c_void) -> &'static Allocator {
    // SAFETY: the caller's promise.
    unsafe { front(ctx) }.inner
}

/// # Safety
/// NumPy calls it, with the context of its handler.
unsafe extern "C" fn malloc(ctx: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: the caller keeps the contract of `malloc`.
    if let Some(heap) = heap_for(unsafe { front(ctx) }, size)
        && let Some(block) = heap.plain(size, Order::MIN)
    {
        // SAFETY: NumPy's context of a handler of ours.
        return unsafe { advised(ctx, heap, block, size) };
    }
    // SAFETY: the caller keeps the contract of `malloc`.
    unsafe {
        let inner = inner(ctx);
        (inner.malloc)(inner.ctx, size)
    }
}

/// # Safety
/// As for [`malloc`].
unsafe extern "C" fn calloc(ctx: *mut c_void, count: usize, size: usize) -> *mut c_void {
    // A product that overflows is the inner one's to refuse.
    let bytes = count.checked_mul(size).unwrap_or(0);
    // SAFETY: the caller keeps the contract of `calloc`.
    if let Some(heap) = heap_for(unsafe { front(ctx) }, bytes)
        && let Some(block) = heap.zeroed(bytes, Use::Unknown)
    {
        // SAFETY: NumPy's context of a handler of ours.
        return unsafe { advised(ctx, heap, block, bytes) };
    }
    // SAFETY: the caller keeps the contract of `calloc`.
    unsafe {
        let inner = inner(ctx);
        (inner.calloc)(inner.ctx, count, size)
    }
}

/// # Safety
/// As for [`malloc`]; `block` is one of this handler's. The size that NumPy gives is not relied on.
unsafe extern "C" fn free(ctx: *mut c_void, block: *mut c_void, size: usize) {
    match Global::<std::alloc::System>::owner(block.cast()) {
        // SAFETY: the caller keeps the contract of `free`: the block is its own.
        Some(heap) => unsafe { release(heap, block) },
        // SAFETY: the caller keeps the contract of `free`; the block is not the zone's.
        None => unsafe {
            let inner = inner(ctx);
            (inner.free)(inner.ctx, block, size);
        },
    }
}

/// # Safety
/// As for [`free`].
unsafe extern "C" fn realloc(ctx: *mut c_void, block: *mut c_void, size: usize) -> *mut c_void {
    let Some(heap) = Global::<std::alloc::System>::owner(block.cast()) else {
        // SAFETY: by the contract of `realloc`; the block is not the zone's. Its length is not known here, so it stays.
        return unsafe {
            let inner = inner(ctx);
            (inner.realloc)(inner.ctx, block, size)
        };
    };
    let usable = heap.usable(block.cast());
    // SAFETY: the caller keeps the contract of `realloc`: the block is its own.
    let Ok(taken) = (unsafe { heap.take(block.cast()) }) else { stray(block) };
    // A block that became small leaves the zone.
    let taken = match ZONE.heap_for(size.saturating_mul(2)) {
        Some(_) => match heap.resize(taken, size) {
            Resized::To(place) => return place.as_ptr().cast(),
            Resized::Refused(taken) => taken,
        },
        None => taken,
    };
    // SAFETY: the inner block is new, and has `size` bytes; the zone's is taken, and has `usable` ones.
    unsafe {
        let inner = inner(ctx);
        let to = (inner.malloc)(inner.ctx, size);
        if to.is_null() {
            // The block is as it was.
            heap.hand_out_to(taken, usable);
            return ptr::null_mut();
        }
        let from = heap.address(&taken).as_ptr();
        ptr::copy_nonoverlapping::<u8>(from, to.cast(), usable.min(size));
        heap.free(taken);
        to
    }
}

/// # Safety
/// The block is the caller's own.
#[inline(never)]
unsafe fn release(heap: &Heap, block: *mut c_void) {
    // SAFETY: the caller's promise.
    match unsafe { heap.take(block.cast()) } {
        Ok(taken) => heap.free(taken),
        Err(_) => stray(block),
    }
}

/// Ends the process: NumPy gave an address back at which no live block starts.
#[cold]
fn stray(block: *mut c_void) -> ! {
    prezero_sys::tell!("prezero: {block:p} is not the start of a live array (double free)");
    std::process::abort()
}
