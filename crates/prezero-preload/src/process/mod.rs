//! The process's one heap, made at its first large request.
//!
//! [`LazyHeap`] has the states and their order. Here is what this library adds: why there is no zone, and what the
//! process does once it has one.

use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use prezero_core::internal::{ADDRESS_SPACE_SHARE, LazyHeap, MIN_LIMIT, MIN_THRESHOLD};
use prezero_core::{Anonymous, Config, Heap, Zone};
use prezero_sys::birth;
use prezero_sys::memory::{promises, reservation::has_small_pages};

use crate::compat::errno::Errno;
use crate::compat::next::{Next, resolve};
use crate::compat::{company, whole};

pub mod bare;
pub mod confine;
pub mod env;
pub mod fork;
pub mod holes;
mod make;
pub mod no_move;
mod own;
pub mod report;
pub mod root;
pub mod shortage;
pub mod space;
pub mod tree;

use bare::Bare;
use make::make;

/// Bytes that the child of a fork asks for before it has a zone of its own.
/// Moved by: `cargo test -p prezero-preload --test shim fork`.
const EARLY: usize = 64 << 20;

static HEAP: LazyHeap<Config> = LazyHeap::new(MIN_THRESHOLD);

/// Bytes below which a request goes straight to the next allocator.
#[inline(always)]
pub fn threshold() -> usize {
    HEAP.threshold()
}

/// The heap that `ptr` points into; not where that was given up.
#[inline]
pub fn owner(ptr: *const c_void) -> Option<&'static Heap> {
    owner_of(ptr).filter(|heap| !heap.is_unmapped(ptr.cast()))
}

/// The heap in whose range `ptr` points, also where that was given up: no block starts there, and
/// a caller that finds none asks [`Heap::is_unmapped`].
#[inline(always)]
pub fn owner_of(ptr: *const c_void) -> Option<&'static Heap> {
    HEAP.owner(ptr.cast())
}

/// The heap for a request of `bytes`, made now if this is the first.
#[inline]
pub fn heap_for(bytes: usize) -> Option<&'static Heap> {
    HEAP.get().or_else(|| start(bytes))
}

/// The heap, if it is there.
#[inline]
pub fn ready() -> Option<&'static Heap> {
    HEAP.ready().map(|(heap, _)| heap)
}

/// The heap, but not in a guest in this memory, the child of a vfork or such a clone: for it the heap is its host's.
pub fn ready_and_own() -> Option<&'static Heap> {
    ready().filter(|_| !birth::is_guest())
}

/// The knobs that the heap was made with, if it is there.
pub fn config() -> Option<&'static Config> {
    HEAP.ready().map(|(_, config)| config)
}

/// Whether there is a zone, or may be one.
pub fn may_have_zone() -> bool {
    !HEAP.is_off() && (HEAP.get().is_some() || !env::disabled())
}

/// From now on requests go to the next allocator. Blocks of the zone come back to it.
pub fn serve_no_more() {
    HEAP.set_threshold(usize::MAX);
}

/// The zone keeps what it would have reserved under a limit of `limit` bytes.
pub fn retreat_to_share_of(limit: usize) {
    // A guest sets its own limits.
    if let Some(heap) = ready_and_own() {
        let share = limit / ADDRESS_SPACE_SHARE;
        // SAFETY: every export that is given an address asks `Heap::is_unmapped` first.
        unsafe { heap.zone().shrink(if share < MIN_LIMIT { 0 } else { share }) };
    }
}

/// What the zone has free goes back to the kernel, zero or not; false if there was nothing.
pub fn give_back() -> bool {
    // What a guest does not need, its host may.
    ready_and_own().is_some_and(|heap| {
        let errno = Errno::save();
        let any = heap.zone().reclaim();
        errno.restore();
        any
    })
}

/// Why there can be no zone, if so: a sanitizer or valgrind must see every block, another object has functions of the
/// malloc family, a filter of system calls ends the process that makes one, or libc or pages are not those that this library knows.
pub fn stands_aside() -> Option<&'static str> {
    if company::is_of_another_libc() {
        Some("its C library is not glibc")
    } else if company::is_sanitized() || env::is_valgrind() {
        Some("a sanitizer or valgrind serves it")
    } else if !has_small_pages() {
        Some("this kernel's pages are larger than 4 KiB")
    } else if !whole::is_whole() {
        Some("an allocator or tracker of its own has functions of malloc's family")
    } else if confine::is_forbidden() {
        Some("a filter of system calls (seccomp) would end it")
    } else {
        None
    }
}

/// Why no zone was made, if so, though [these](stands_aside) are not the reason.
pub fn why_not_made() -> Option<&'static str> {
    let kept = !promises::releases_to_zero();
    kept.then_some("memory that it gives back to the kernel keeps its content (an emulator?)")
}

/// From now on there is no zone, unless there is one already.
pub fn never() {
    HEAP.turn_off();
}

#[cold]
fn start(bytes: usize) -> Option<&'static Heap> {
    let is_early = || resolve() == Next::NotYet || is_early_in_a_child(bytes);
    if !prezero_sys::process::has_environment() || is_early() {
        return None;
    }
    let errno = Errno::save();
    let mut made = false;
    let heap = HEAP.get_or_make(bytes, |bytes, slot| {
        made = true;
        make(bytes, slot)
    });
    if made {
        begin(heap);
    }
    errno.restore();
    heap
}

/// Whether a request of `bytes` comes too early for a zone: in the child of a fork that had none. Most such children end
/// soon, and a zone costs as much as a few of their requests.
fn is_early_in_a_child(bytes: usize) -> bool {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    birth::is_copied() && ASKED.fetch_add(bytes, Relaxed).saturating_add(bytes) < EARLY
}

/// What this process does after it made a heap, or found that there is none.
#[inline(never)]
fn begin(heap: Option<&'static Heap>) {
    if prezero_sys::sandbox::is_confined() {
        HEAP.set_threshold(usize::MAX);
    }
    let Some(heap) = heap else { return };
    // After the state: `mallopt` looks for the heap when it has written what it was told.
    if no_move::is_asked() {
        heap.zone().no_move();
    }
    register();
}

/// In a frame of its own: the first large request may come on a short stack.
#[inline(never)]
fn register() {
    fork::register();
    report::register();
    tree::join();
    if prezero_sys::process::address_space() != usize::MAX {
        space::begins();
    }
}

/// Lets the zone start its scrubd: a thread that libc does not know of, where there can be one and
/// the user wants it; elsewhere a `pthread`. In a frame of its own, as above.
#[inline(never)]
fn allow_scrubd(zone: &'static Zone<Anonymous>) {
    static BARE: Bare = Bare::new();
    // For a block that was asked for before the library was loaded whole.
    bare::look();
    // SAFETY: Rust's allocator here is `own`, which never asks libc; the one zone has one scrubd
    // at a time.
    if env::wants_bare_thread() && unsafe { BARE.prepare() } {
        prezero_core::internal::allow_scrubd_by(zone, &BARE);
    } else {
        prezero_core::allow_scrubd(zone);
    }
}
