//! prezero as a Rust program's allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr;

use crate::clear::Use;
use crate::count::counters::Counter;
use crate::count::snapshot::Snapshot;
use crate::heap::{Heap, Resized};
use crate::units::{Order, PAGE};

pub(crate) mod home;

use home::Preloaded;

/// A global allocator: large blocks from a zone, small ones from an inner allocator.
///
/// ```
/// #[global_allocator]
/// static ALLOCATOR: prezero::Global = prezero::Global::system();
///
/// fn main() {
///     // From 128 KiB on. Cleared by scrubd while a CPU idled, or by the kernel, or now.
///     let image = vec![0u8; 16 << 20];
///     assert!(image.iter().all(|&byte| byte == 0));
/// }
/// ```
///
/// `alloc_zeroed`, which `vec![0; n]` calls, gets zero pages. A block that grows moves to a place with room, and from
/// 2 MiB on the kernel moves its pages instead of a copy. scrubd, a `pthread` of the idle class, starts when it has
/// something to do. The process has one zone, whichever values of this type it uses; the
/// variables of `prezero run` set its knobs (`PREZERO_LIMIT`, `PREZERO_DISABLE=1`), and `prezero top` shows it.
///
/// Under `prezero run` an allocator over [`System`] stands aside: the preloaded library serves what it is asked for.
///
/// # What the program must know
/// - It may fork: handlers of `pthread_atfork` keep the zone right.
/// - A part of a block that it maps or protects otherwise by system calls of its own is made as it was before the block
///   is freed. `libprezero.so` sees such calls; this type does not.
/// - A limit of address space that it sets later counts the zone: 64 MiB, or up to twice what the program used of it at
///   once. `mlockall` makes all of that resident.
/// - A filter of system calls must allow what scrubd calls; `strace -f` shows that.
#[derive(Debug)]
pub struct Global<A = System> {
    inner: A,
    preloaded: Preloaded,
}

impl Global {
    /// Over the system's allocator.
    pub const fn system() -> Global {
        Global { inner: System, preloaded: Preloaded::Serves }
    }
}

impl<A> Global<A> {
    /// Over an allocator of the program's choice, which serves all below the threshold, and what the zone refuses.
    ///
    /// # Safety
    /// It is not, and does not ask, an allocator over the same zone, and its blocks lie where the zone has mapped
    /// nothing: what comes from the kernel does.
    pub const unsafe fn over(inner: A) -> Global<A> {
        Global { inner, preloaded: Preloaded::SeesNothing }
    }

    /// The allocator under this one.
    pub const fn inner(&self) -> &A {
        &self.inner
    }

    /// The counters and gauges of now; `None`: there is no zone yet, or none at all.
    pub fn snapshot(&self) -> Option<Snapshot> {
        home::ready().map(Heap::snapshot)
    }

    /// Bytes of zeroed memory that were ready when they were asked for, until now.
    pub fn hit_bytes(&self) -> u64 {
        self.snapshot().map_or(0, |now| now.get(Counter::HitBytes))
    }

    /// The heap, for a request of `bytes`; `None`: they are the inner allocator's. Made at the first large request.
    #[inline]
    pub fn heap_for(&self, bytes: usize) -> Option<&'static Heap> {
        if bytes < home::threshold() {
            return None;
        }
        // The first request of all comes here, too, and learns the threshold.
        home::heap_for(bytes, self.preloaded).filter(|_| bytes >= home::threshold())
    }

    /// The heap, if an address lies in what it has mapped. Its [`Heap::take`] is for the owner of the block.
    #[inline(always)]
    pub fn owner(block: *const u8) -> Option<&'static Heap> {
        home::owner(block).filter(|heap| !heap.is_unmapped(block))
    }

    /// A block of unknown content from the zone, for a request of at least the threshold.
    #[inline(never)]
    fn plain(&self, layout: Layout) -> Option<*mut u8> {
        let align = Order::new((layout.align() / PAGE).max(1).trailing_zeros())?;
        let heap = self.heap_for(layout.size())?;
        no_unwind(|| heap.plain(layout.size(), align)).map(ptr::NonNull::as_ptr)
    }

    /// A zeroed block from the zone, for a request of at least the threshold.
    #[inline(never)]
    fn zeroed(&self, layout: Layout) -> Option<*mut u8> {
        let heap =
            self.heap_for(layout.size()).filter(|_| layout.align() <= Order::SLICE.bytes())?;
        no_unwind(|| heap.zeroed(layout.size(), Use::Unknown)).map(ptr::NonNull::as_ptr)
    }
}

// SAFETY: a block is one of the inner allocator or one of the zone. Its address says which: it lies outside the zone's
// range, or where no block of the zone begins and the zone has nothing mapped (`over`).
// 1. A block of the zone is the caller's alone: the zone hands out no page twice while its block is live, and takes a
//    block back by `dealloc` and `realloc` alone, whose callers own it.
// 2. It is as long as asked for (`pages_for` rounds up), starts at a multiple of 64 KiB or of a larger alignment that
//    was asked for, and `zeroed` hands out zero pages or cleared ones.
// 3. `realloc` keeps as many bytes as both sizes have, also where pages move.
// 4. Nothing unwinds: a panic inside the zone ends the process (`no_unwind`), and so does a stray address.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Global<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() >= home::threshold()
            && let Some(block) = self.plain(layout)
        {
            return block;
        }
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { self.inner.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.size() >= home::threshold()
            && let Some(block) = self.zeroed(layout)
        {
            return block;
        }
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { self.inner.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match home::owner(block) {
            // SAFETY: the caller owns the block.
            Some(heap) => unsafe { self.release(heap, block, layout) },
            // SAFETY: the caller owns the block, which is not the zone's.
            None => unsafe { self.inner.dealloc(block, layout) },
        }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        match home::owner(block) {
            // SAFETY: the caller keeps the contract of `realloc`: the block is its own.
            Some(heap) => unsafe { self.resize(heap, block, layout, size) },
            // A small block moves in; a large one of the inner allocator stays there, which may move its pages.
            None if size >= home::threshold() && layout.size() < home::threshold() => {
                // SAFETY: the caller keeps the contract of `realloc`.
                unsafe { self.move_to_new(block, layout, size) }
            }
            // SAFETY: the caller keeps the contract of `realloc`; the block is not the zone's.
            None => unsafe { self.inner.realloc(block, layout, size) },
        }
    }
}

impl<A: GlobalAlloc> Global<A> {
    /// `realloc` of a block of the zone.
    ///
    /// # Safety
    /// As for `realloc`.
    #[inline(never)]
    unsafe fn resize(&self, heap: &Heap, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // A block that shrinks below the threshold leaves the zone only when it is well below.
        if size < home::threshold() / 2 || layout.align() > Order::SLICE.bytes() {
            // SAFETY: the caller keeps the contract of `resize`.
            return unsafe { self.move_to_new(block, layout, size) };
        }
        // SAFETY: the caller owns the block.
        let taken = match unsafe { heap.take(block) } {
            Ok(taken) => taken,
            // SAFETY: the caller owns the block, which lies where the zone has nothing.
            Err(_) if heap.is_unmapped(block) => unsafe {
                return self.inner.realloc(block, layout, size);
            },
            Err(_) => home::invalid_pointer(block.cast()),
        };
        match no_unwind(|| heap.resize(taken, size)) {
            Resized::To(place) => place.as_ptr(),
            Resized::Refused(taken) => {
                let same = no_unwind(|| heap.hand_out(taken)).as_ptr();
                // SAFETY: the caller keeps the contract of `resize`: the block is as it was.
                unsafe { self.move_to_new(same, layout, size) }
            }
        }
    }

    /// Gives a block in the zone's range back.
    ///
    /// # Safety
    /// As for `dealloc`.
    #[inline(never)]
    unsafe fn release(&self, heap: &Heap, block: *mut u8, layout: Layout) {
        // SAFETY: the caller owns the block.
        match unsafe { heap.take(block) } {
            Ok(taken) => no_unwind(|| heap.free(taken)),
            // SAFETY: the caller owns the block, which lies where the zone has nothing.
            Err(_) if heap.is_unmapped(block) => unsafe { self.inner.dealloc(block, layout) },
            Err(_) => home::invalid_pointer(block.cast()),
        }
    }

    /// `realloc` by a new block, a copy, and an end of the old one.
    ///
    /// # Safety
    /// As for `realloc`.
    unsafe fn move_to_new(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: by the contract of `move_to_new` the layout's alignment allows `size`. The new block does not overlap
        // the old one, and both have the bytes that are copied.
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

/// A panic in `call` ends the process: an allocator must not unwind.
#[inline(always)]
fn no_unwind<R>(call: impl FnOnce() -> R) -> R {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            std::process::abort();
        }
    }
    let bomb = Bomb;
    let answer = call();
    std::mem::forget(bomb);
    answer
}
