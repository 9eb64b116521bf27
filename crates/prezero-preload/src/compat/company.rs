//! What else is in the program: another libc, a sanitizer, a second thread.
//!
//! Looked for once, with the [next functions](super::next): the dynamic linker locks, and a request must not.

use std::ffi::{CStr, c_char, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::Relaxed};

/// An address in glibc; null where that is not the libc.
static GLIBC: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static IS_SANITIZED: AtomicBool = AtomicBool::new(false);
/// Where libc keeps whether there is one thread only; null: not known, or not asked yet.
static SINGLE: AtomicPtr<c_char> = AtomicPtr::new(ptr::null_mut());

/// Looks.
pub(super) fn look() {
    let find = |name| look_up(libc::RTLD_DEFAULT, name);
    let runtimes = [c"__asan_init", c"__tsan_init", c"__lsan_init", c"__msan_init"];
    IS_SANITIZED.store(runtimes.into_iter().any(|name| !find(name).is_null()), Relaxed);
    SINGLE.store(find(c"__libc_single_threaded").cast(), Relaxed);
    GLIBC.store(find(c"gnu_get_libc_version"), Relaxed);
    // What is below this crate.
    prezero_sys::hooks::look_up();
    prezero_sys::cpu::look_up();
}

/// An address in glibc; null where that is not the libc.
pub fn glibc() -> *mut c_void {
    GLIBC.load(Relaxed)
}

/// What the dynamic linker knows under a name that may not be there. glibc's tells of that in memory of the program's
/// `malloc`, and gives it back at the next question: a tracker of allocations that asks for the next `free` in its own
/// comes there again, without end. So the tables are read of what is loaded. `ThreadSanitizer` stands in front of the
/// function that lists what is loaded, and is asked before it knows libc's: beside it the linker is asked.
pub(super) fn look_up(handle: *mut c_void, name: &CStr) -> *mut c_void {
    #[cfg(target_env = "gnu")]
    if !has_thread_sanitizer() {
        // SAFETY: the name ends in NUL.
        return unsafe { prezero_glibc::names::find(handle, name.as_ptr()) };
    }
    // SAFETY: as above. What was not found is no error that the program should hear of.
    unsafe {
        let found = libc::dlsym(handle, name.as_ptr());
        libc::dlerror();
        found
    }
}

/// Whether the dynamic linker found `ThreadSanitizer` when it loaded this library.
#[cfg(target_env = "gnu")]
fn has_thread_sanitizer() -> bool {
    let start: usize;
    // SAFETY: one load, of the word that the linker filled in; 0 for a weak name that nothing defines.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        std::arch::asm!(
            ".weak __tsan_init",
            "mov {}, qword ptr [rip + __tsan_init@GOTPCREL]",
            out(reg) start,
            options(pure, readonly, nostack, preserves_flags),
        );
        #[cfg(target_arch = "aarch64")]
        std::arch::asm!(
            ".weak __tsan_init",
            "adrp {0}, :got:__tsan_init",
            "ldr {0}, [{0}, :got_lo12:__tsan_init]",
            out(reg) start,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    start != 0
}

/// Whether the libc is another than the one that this library is built for.
pub fn is_of_another_libc() -> bool {
    cfg!(target_env = "gnu") && glibc().is_null()
}

/// Whether a sanitizer is in the program: it must see every block, so it serves them all.
pub fn is_sanitized() -> bool {
    IS_SANITIZED.load(Relaxed)
}

/// Whether there is one thread only; false where libc does not say (glibc before 2.32).
pub fn is_single_threaded() -> bool {
    let single = SINGLE.load(Relaxed);
    // SAFETY: the symbol, where it exists, is a `char` that glibc sets, and libc stays loaded.
    !single.is_null() && unsafe { single.read_volatile() } != 0
}
