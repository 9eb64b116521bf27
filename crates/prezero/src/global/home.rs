//! The one heap of a program that brings prezero along, made at its first large request.
//!
//! As in `libprezero.so`, which is for programs that do not: short programs pay nothing, the state only moves forward,
//! and no thread waits for it.
//!
//! | state | a large request |
//! |---|---|
//! | untouched | reads the environment and makes the heap |
//! | starting | goes to the inner allocator (blocks are told apart by address) |
//! | ready | comes from the heap |
//! | off | goes to the inner allocator |
//!
//! The first request of all, of any size, registers the handlers of a fork: before the program registers its own, so
//! that those run with a heap that is as it should be.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

use prezero_sys::process;

use crate::config::{Config, Machine};
use crate::heap::Heap;

const UNTOUCHED: u8 = 0;
const STARTING: u8 = 1;
const READY: u8 = 2;
const OFF: u8 = 3;

/// What every call looks at, on one cache line that is not written once it is set.
#[repr(align(64))]
struct Hot {
    /// Bytes. The smallest request that is looked at more closely; 0 until the first one was.
    threshold: AtomicUsize,
    /// Bytes in the zone; 0 until there is one.
    bytes: AtomicUsize,
    /// Address of the zone's first byte; valid when `bytes` is not 0.
    base: AtomicUsize,
    state: AtomicU8,
}

static HOT: Hot = Hot {
    threshold: AtomicUsize::new(0),
    bytes: AtomicUsize::new(0),
    base: AtomicUsize::new(0),
    state: AtomicU8::new(UNTOUCHED),
};

struct Slot(UnsafeCell<MaybeUninit<Heap>>);

// SAFETY: written once, by the thread that moved the state to STARTING, before it is READY; read only after. A heap may
// be shared.
unsafe impl Sync for Slot where Heap: Sync {}

static SLOT: Slot = Slot(UnsafeCell::new(MaybeUninit::uninit()));

/// Whether `libprezero.so` in the same process makes this heap needless: it does where the inner allocator is libc's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Preloaded {
    /// It serves what the inner allocator is asked for.
    Serves,
    /// It sees nothing of that.
    SeesNothing,
}

/// Bytes below which a request goes straight to the inner allocator.
#[inline(always)]
pub(crate) fn threshold() -> usize {
    HOT.threshold.load(Ordering::Relaxed)
}

/// The heap in whose range `ptr` points.
#[inline(always)]
pub(crate) fn owner(ptr: *const u8) -> Option<&'static Heap> {
    // Acquire: pairs with the store in `start`, which comes after that of the base and of the heap.
    let bytes = HOT.bytes.load(Ordering::Acquire);
    let offset = ptr.addr().wrapping_sub(HOT.base.load(Ordering::Relaxed));
    // SAFETY: bytes is not 0, so the slot was filled before.
    (offset < bytes).then(|| unsafe { filled() })
}

/// The heap for a request of `bytes`, made now if this is the first large one.
#[inline]
pub(crate) fn heap_for(bytes: usize, preloaded: Preloaded) -> Option<&'static Heap> {
    match HOT.state.load(Ordering::Acquire) {
        // SAFETY: READY is set after the slot.
        READY => Some(unsafe { filled() }),
        UNTOUCHED => start(bytes, preloaded),
        _ => None,
    }
}

/// The heap, if it is there.
pub(crate) fn ready() -> Option<&'static Heap> {
    // SAFETY: READY is set after the slot.
    (HOT.state.load(Ordering::Acquire) == READY).then(|| unsafe { filled() })
}

/// # Safety
/// The slot is filled: the caller has seen READY, or a zone that is not empty.
unsafe fn filled() -> &'static Heap {
    // SAFETY: filled for good before either could be seen, and never written again.
    unsafe { (*SLOT.0.get()).assume_init_ref() }
}

#[cold]
fn start(bytes: usize, preloaded: Preloaded) -> Option<&'static Heap> {
    if !process::has_environment() {
        return None;
    }
    register_once();
    let config = knobs(preloaded);
    let threshold = config.as_ref().map_or(usize::MAX, |config| config.threshold);
    HOT.threshold.store(threshold, Ordering::Relaxed);
    let Some(config) = config else {
        turn_off();
        return None;
    };
    if bytes < threshold {
        return None;
    }
    let first =
        HOT.state.compare_exchange(UNTOUCHED, STARTING, Ordering::Relaxed, Ordering::Relaxed);
    first.ok()?;
    let mut config = config;
    // SAFETY: this thread alone moved the state to STARTING, and no thread reads the slot before the stores below.
    let slot: &'static mut MaybeUninit<Heap> = unsafe { &mut *SLOT.0.get() };
    let Some(heap) = Heap::fitting(slot, &mut config).map(|heap| &*heap) else {
        HOT.state.store(OFF, Ordering::Relaxed);
        HOT.threshold.store(usize::MAX, Ordering::Relaxed);
        return None;
    };
    crate::scrubd::allow_scrubd(heap.zone());
    HOT.base.store(heap.base(), Ordering::Relaxed);
    HOT.bytes.store(heap.bytes(), Ordering::Release);
    HOT.state.store(READY, Ordering::Release);
    Some(heap)
}

/// The knobs; `None`: there is to be no heap.
fn knobs(preloaded: Preloaded) -> Option<Config> {
    let disabled = process::environment("PREZERO_DISABLE") == Some("1");
    if disabled
        || process::overcommits_never()
        || preloaded == Preloaded::Serves && has_libprezero()
    {
        return None;
    }
    match Config::from_env(&Machine::here(), process::environment) {
        Ok(config) => Some(config),
        Err(error) => {
            prezero_sys::tell!("prezero: {error} (running without a zone)");
            None
        }
    }
}

fn turn_off() {
    let off = HOT.state.compare_exchange(UNTOUCHED, OFF, Ordering::Relaxed, Ordering::Relaxed);
    if off.is_ok() {
        HOT.threshold.store(usize::MAX, Ordering::Relaxed);
    }
}

/// Whether `libprezero.so` is in the process, for all of it to see.
fn has_libprezero() -> bool {
    // SAFETY: the name ends in NUL. What was not found is no error that the program should hear of.
    unsafe {
        let found = libc::dlsym(libc::RTLD_DEFAULT, c"prezero_zalloc".as_ptr());
        libc::dlerror();
        !found.is_null()
    }
}

/// Registers the handlers of a fork and of the end, which do nothing until there is a heap.
fn register_once() {
    static REGISTERED: AtomicBool = AtomicBool::new(false);
    if REGISTERED.swap(true, Ordering::Relaxed) {
        return;
    }
    // SAFETY: functions that live as long as the process. A refusal for lack of memory leaves scrubd to notice a fork
    // by itself.
    unsafe {
        register_at_fork(Some(before_fork), Some(in_parent), Some(in_child));
        libc::atexit(at_exit);
    }
}

unsafe extern "C" {
    #[link_name = "pthread_atfork"]
    fn register_at_fork(
        before: Option<unsafe extern "C" fn()>,
        in_parent: Option<unsafe extern "C" fn()>,
        in_child: Option<unsafe extern "C" fn()>,
    ) -> c_int;
}

unsafe extern "C" fn before_fork() {
    if let Some(heap) = ready() {
        // SAFETY: libc calls this before it forks, and one of the two handlers below after it.
        unsafe { heap.zone().before_fork() };
    }
}

unsafe extern "C" fn in_parent() {
    if let Some(heap) = ready() {
        // SAFETY: libc called `before_fork` on this thread, and this is the parent.
        unsafe { heap.zone().after_fork_in_parent() };
    }
}

unsafe extern "C" fn in_child() {
    if let Some(heap) = ready() {
        // SAFETY: libc called `before_fork` on this thread. This is the child, and its first handler.
        unsafe { heap.zone().after_fork_in_child() };
    }
}

extern "C" fn at_exit() {
    if let Some(heap) = ready() {
        heap.zone().before_exit();
    }
}

/// Ends the process: an address of the zone was given back at which no live block starts.
#[cold]
pub(crate) fn invalid_pointer(ptr: *mut c_void) -> ! {
    prezero_sys::tell!(
        "prezero: dealloc: {ptr:p} is not the start of a live block (invalid pointer or double free)"
    );
    std::process::abort()
}
