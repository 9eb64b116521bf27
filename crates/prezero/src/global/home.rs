//! The one heap of a program that brings prezero along, made at its first large request.
//!
//! The first request of all, of any size, registers the handlers of a fork: before the program registers its own, so
//! that those run with a heap that is as it should be.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};

use prezero_sys::process;

use crate::config::{Config, Machine};
use crate::heap::Heap;
use crate::heap::lazy::{LazyHeap, Made};

/// The first request of all comes here, of any size: that is when the threshold is read.
static HEAP: LazyHeap<()> = LazyHeap::new(0);

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
    HEAP.threshold()
}

/// The heap in whose range `block` points.
#[inline(always)]
pub(crate) fn owner(block: *const u8) -> Option<&'static Heap> {
    HEAP.owner(block)
}

/// The heap for a request of `bytes`, made now if this is the first large one.
#[inline]
pub(crate) fn heap_for(bytes: usize, preloaded: Preloaded) -> Option<&'static Heap> {
    ready().or_else(|| start(bytes, preloaded))
}

/// The heap, if it is there.
#[inline]
pub(crate) fn ready() -> Option<&'static Heap> {
    HEAP.get()
}

#[cold]
fn start(bytes: usize, preloaded: Preloaded) -> Option<&'static Heap> {
    if !process::has_environment() {
        return None;
    }
    register_once();
    HEAP.get_or_make(bytes, |bytes, slot| make(bytes, slot, preloaded))
}

fn make(bytes: usize, slot: &'static mut MaybeUninit<Heap>, preloaded: Preloaded) -> Made<()> {
    let Some(mut config) = knobs(preloaded) else { return Made::Nothing };
    if bytes < config.threshold {
        return Made::NotYet(config.threshold, slot);
    }
    let Some(heap) = Heap::fitting(slot, &mut config).map(|heap| &*heap) else {
        return Made::Nothing;
    };
    crate::scrubd::allow_scrubd(heap.zone());
    Made::Heap(heap, config.threshold, ())
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
