//! What else is in the program: another libc, a sanitizer, a second thread.

use std::ffi::{CStr, c_char};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Whether the libc is another than the one that this library is built for.
pub fn is_of_another_libc() -> bool {
    // SAFETY: the name ends in NUL. What was not found is no error that the program should hear of.
    let is_glibc = unsafe {
        let found = libc::dlsym(libc::RTLD_DEFAULT, c"gnu_get_libc_version".as_ptr());
        libc::dlerror();
        !found.is_null()
    };
    cfg!(target_env = "gnu") && !is_glibc
}

/// Whether a sanitizer is in the program: it must see every block, so it serves them all.
pub fn is_sanitized() -> bool {
    let runtimes = [c"__asan_init", c"__tsan_init", c"__lsan_init", c"__msan_init"];
    // SAFETY: the names end in NUL.
    let found = |name: &CStr| unsafe { !libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()).is_null() };
    let found = runtimes.into_iter().any(found);
    // SAFETY: no terms. What was not found is no error that the program should hear of.
    unsafe { libc::dlerror() };
    found
}

/// Where libc keeps whether there is one thread only; null: not known, or not asked yet.
static SINGLE: AtomicPtr<c_char> = AtomicPtr::new(ptr::null_mut());

/// Asks libc where it keeps [that](is_single_threaded). To be called when the library is loaded.
pub fn look_for_threads() {
    // SAFETY: the name ends in NUL. What was not found is no error that the program should hear of.
    let single = unsafe {
        let single = libc::dlsym(libc::RTLD_DEFAULT, c"__libc_single_threaded".as_ptr());
        libc::dlerror();
        single
    };
    SINGLE.store(single.cast(), Ordering::Relaxed);
}

/// Whether there is one thread only; false where libc does not say (glibc before 2.32).
pub fn is_single_threaded() -> bool {
    let single = SINGLE.load(Ordering::Relaxed);
    // SAFETY: the symbol, where it exists, is a `char` that glibc sets, and libc stays loaded.
    !single.is_null() && unsafe { single.read_volatile() } != 0
}
