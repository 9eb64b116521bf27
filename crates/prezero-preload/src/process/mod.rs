//! The process's one heap, made at its first large request.
//!
//! Short programs pay nothing: until a request reaches the threshold there is no zone,
//! and with a zone that cannot or must not be there is a threshold that no request
//! reaches. The state only moves forward, and no thread waits for it for long:
//!
//! | state | a large request |
//! |---|---|
//! | untouched | reads the environment and makes the heap |
//! | starting | waits a moment for the heap, or goes to the next allocator (blocks are told apart by address) |
//! | ready | comes from the heap |
//! | off | goes to the next allocator |
//!
//! A child forked while another thread is starting stays in that state, without a zone.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

use prezero_core::internal::{ADDRESS_SPACE_SHARE, MIN_LIMIT, MIN_THRESHOLD};
use prezero_core::{Anonymous, Config, Heap, Zone};
use prezero_sys::memory::promises;
use prezero_sys::thread;

use crate::compat::company;
use crate::compat::errno::Errno;

pub mod bare;
pub mod confine;
pub mod env;
pub mod fork;
pub mod holes;
mod make;
mod own;
pub mod report;
pub mod root;
pub mod stay;
pub mod tree;

use bare::Bare;
use make::{Made, make};

/// Nanoseconds for which a thread waits for another that makes the heap, which takes 0.1 ms: what it
/// got elsewhere meanwhile would be faulted in once more here. Threads that begin together ask
/// together.
const START_NS: u64 = 2_000_000;

const UNTOUCHED: u8 = 0;
const STARTING: u8 = 1;
const READY: u8 = 2;
const OFF: u8 = 3;

/// The heap, and the knobs it was made with.
pub struct Process {
    /// The heap.
    pub heap: &'static Heap,
    /// The knobs.
    pub config: Config,
}

struct Slot<T>(UnsafeCell<MaybeUninit<T>>);

// SAFETY: written once, by the thread that moved the state to STARTING, before it is
// READY; read only after. What is in it may be shared.
unsafe impl<T: Sync> Sync for Slot<T> {}

impl<T> Slot<T> {
    const fn empty() -> Slot<T> {
        Slot(UnsafeCell::new(MaybeUninit::uninit()))
    }

    /// # Safety
    /// The slot is filled: the caller has seen READY, or a zone that is not empty.
    unsafe fn filled(&self) -> &T {
        // SAFETY: filled for good before either could be seen, and never written again.
        unsafe { (*self.0.get()).assume_init_ref() }
    }
}

/// What every call looks at, on one cache line that is not written once it is set.
#[repr(align(64))]
struct Hot {
    /// Bytes. The smallest request that is looked at more closely.
    threshold: AtomicUsize,
    /// Bytes in the zone; 0 until there is one.
    bytes: AtomicUsize,
    /// Address of the zone's first byte; valid when `bytes` is not 0.
    base: AtomicUsize,
    state: AtomicU8,
}

static HOT: Hot = Hot {
    threshold: AtomicUsize::new(MIN_THRESHOLD),
    bytes: AtomicUsize::new(0),
    base: AtomicUsize::new(0),
    state: AtomicU8::new(UNTOUCHED),
};
static HEAP: Slot<Heap> = Slot::empty();
static PROCESS: Slot<Process> = Slot::empty();

/// Bytes below which a request goes straight to the next allocator.
#[inline(always)]
pub fn threshold() -> usize {
    HOT.threshold.load(Ordering::Relaxed)
}

/// The heap that `ptr` points into; not where that was given up.
#[inline]
pub fn owner(ptr: *const c_void) -> Option<&'static Heap> {
    // Acquire: pairs with the store in `start`, which comes after that of the base and
    // of the heap. On x86-64 it costs nothing.
    let bytes = HOT.bytes.load(Ordering::Acquire);
    if ptr.addr().wrapping_sub(HOT.base.load(Ordering::Relaxed)) >= bytes {
        return None;
    }
    // SAFETY: bytes is not 0, so the slot was filled before.
    Some(unsafe { HEAP.filled() }).filter(|heap| !heap.is_unmapped(ptr.cast()))
}

/// The heap in whose range `ptr` points, also where that was given up: no block starts there, and
/// a caller that finds none asks [`Heap::is_unmapped`].
#[inline(always)]
pub fn owner_of(ptr: *const c_void) -> Option<&'static Heap> {
    let bytes = HOT.bytes.load(Ordering::Acquire);
    let offset = ptr.addr().wrapping_sub(HOT.base.load(Ordering::Relaxed));
    // SAFETY: as in `owner`.
    (offset < bytes).then(|| unsafe { HEAP.filled() })
}

/// The heap for a request of `bytes`, made now if this is the first.
#[inline]
pub fn heap_for(bytes: usize) -> Option<&'static Heap> {
    match HOT.state.load(Ordering::Acquire) {
        // SAFETY: READY is set after the slot.
        READY => Some(unsafe { HEAP.filled() }),
        UNTOUCHED => start(bytes),
        STARTING => await_start(),
        _ => None,
    }
}

/// The heap, once the thread that makes it is done. A thread that takes long was stopped, is
/// this very thread below a signal handler, or did not come along through a fork: no call waits again.
#[cold]
fn await_start() -> Option<&'static Heap> {
    static IN_VAIN: AtomicBool = AtomicBool::new(false);
    let until = thread::monotonic_ns() + START_NS;
    while HOT.state.load(Ordering::Acquire) == STARTING && !IN_VAIN.load(Ordering::Relaxed) {
        if thread::monotonic_ns() > until {
            IN_VAIN.store(true, Ordering::Relaxed);
        }
        std::thread::yield_now();
    }
    ready().map(|process| process.heap)
}

/// The heap and its knobs, if they are there.
pub fn ready() -> Option<&'static Process> {
    // SAFETY: READY is set after the slot.
    (HOT.state.load(Ordering::SeqCst) == READY).then(|| unsafe { PROCESS.filled() })
}

/// The same, but not in the child of a vfork, for which they are its parent's.
pub fn ready_and_own() -> Option<&'static Process> {
    ready().filter(|_| !prezero_sys::thread::vfork::is_under_way())
}

/// Whether there is a zone, or may be one.
pub fn may_have_zone() -> bool {
    match HOT.state.load(Ordering::Acquire) {
        OFF => false,
        READY => true,
        _ => !env::disabled(),
    }
}

/// From now on requests go to the next allocator. Blocks of the zone come back to it.
pub fn serve_no_more() {
    HOT.threshold.store(usize::MAX, Ordering::Relaxed);
}

/// The zone keeps what it would have reserved under a limit of `limit` bytes.
pub fn retreat_to_share_of(limit: usize) {
    // The child of a vfork sets its own limits.
    if let Some(process) = ready_and_own() {
        let share = limit / ADDRESS_SPACE_SHARE;
        // SAFETY: every export that is given an address asks `Heap::is_unmapped` first.
        unsafe { process.heap.zone().shrink(if share < MIN_LIMIT { 0 } else { share }) };
    }
}

/// What the zone has free goes back to the kernel, zero or not; false if there was nothing.
pub fn give_back() -> bool {
    // What the child of a vfork does not need, its parent may.
    ready_and_own().is_some_and(|process| {
        let errno = Errno::save();
        let any = process.heap.zone().reclaim();
        errno.restore();
        any
    })
}

/// Why there can be no zone, if so: a sanitizer or valgrind must see every block, a filter of system calls ends the
/// process that makes one, or the libc is not the one that this library knows.
pub fn stands_aside() -> Option<&'static str> {
    if company::is_of_another_libc() {
        Some("its C library is not glibc")
    } else if company::is_sanitized() || env::is_valgrind() {
        Some("a sanitizer or valgrind serves it")
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
    let off = HOT.state.compare_exchange(UNTOUCHED, OFF, Ordering::Relaxed, Ordering::Relaxed);
    if off.is_ok() {
        HOT.threshold.store(usize::MAX, Ordering::Relaxed);
    }
}

#[cold]
fn start(bytes: usize) -> Option<&'static Heap> {
    if !prezero_sys::process::has_environment() {
        return None;
    }
    let first =
        HOT.state.compare_exchange(UNTOUCHED, STARTING, Ordering::Relaxed, Ordering::Relaxed);
    if first.is_err() {
        return await_start();
    }
    let errno = Errno::save();
    // SAFETY: this thread alone moved the state to STARTING, and no thread reads the slots before the stores below.
    let (heap, process) = unsafe { (&mut *HEAP.0.get(), &mut *PROCESS.0.get()) };
    let (state, threshold) = match make(bytes, heap) {
        Made::Heap(made) => {
            let process = process.write(made);
            allow_scrubd(process.heap.zone());
            HOT.base.store(process.heap.base(), Ordering::Relaxed);
            HOT.bytes.store(process.heap.bytes(), Ordering::Release);
            (READY, process.config.threshold)
        }
        Made::NotYet(threshold) => (UNTOUCHED, threshold),
        Made::Nothing => (OFF, usize::MAX),
    };
    HOT.threshold.store(threshold, Ordering::Relaxed);
    // Before the look at what `mallopt` was told, which looks for the heap when it has written that.
    HOT.state.store(state, Ordering::SeqCst);
    if prezero_sys::sandbox::is_confined() {
        HOT.threshold.store(usize::MAX, Ordering::Relaxed);
    }
    let heap = ready().map(|process| process.heap);
    if let Some(heap) = heap.filter(|_| stay::is_asked()) {
        heap.zone().stay();
    }
    if heap.is_some() {
        register();
    }
    errno.restore();
    heap
}

/// In a frame of its own: the first large request may come on a short stack.
#[inline(never)]
fn register() {
    fork::register();
    report::register();
    tree::join();
}

/// Lets the zone start its scrubd: a thread that libc does not know of, where there can be one and
/// the user wants it; elsewhere a `pthread`.
fn allow_scrubd(zone: &'static Zone<Anonymous>) {
    static BARE: Bare = Bare::new();
    // SAFETY: Rust's allocator here is `own`, which never asks libc; the one zone has one scrubd
    // at a time.
    if env::wants_bare_thread() && unsafe { BARE.prepare() } {
        prezero_core::internal::allow_scrubd_by(zone, &BARE);
    } else {
        prezero_core::allow_scrubd(zone);
    }
}
