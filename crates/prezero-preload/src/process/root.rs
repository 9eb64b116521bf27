//! The library's file, where the program changed its root.
//!
//! The dynamic linker of each program that is started there would look for what `LD_PRELOAD` names, and say in a line
//! that it is missing. So the name goes where the file is not.

use std::ffi::{CStr, CString, c_char, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use prezero_sys::birth;

use super::env;
use crate::compat::errno::Errno;

/// To be called after a change of the root. A program that starts others with an environment of its own making
/// still names the file.
pub fn has_changed() {
    // A guest in this memory has its host's environment.
    if birth::is_guest() {
        return;
    }
    let errno = Errno::save();
    if let Some(own) = own_path()
        // SAFETY: the path ends in NUL.
        && unsafe { libc::access(own.as_ptr(), libc::R_OK) } != 0
        && let Some(preloaded) = env::preloaded()
    {
        let separates = |byte: char| matches!(byte, ' ' | ':');
        let others = preloaded.split(separates).filter(|entry| entry.as_bytes() != own.to_bytes());
        let others: Vec<&str> = others.filter(|entry| !entry.is_empty()).collect();
        if let Ok(others) = CString::new(others.join(":")) {
            set(&others);
        }
    }
    errno.restore();
}

/// The path by which the dynamic linker loaded this library.
static OWN_PATH: AtomicPtr<c_char> = AtomicPtr::new(ptr::null_mut());

/// Asks the dynamic linker for the path, when the library is loaded.
pub fn remember() {
    let mut found = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: an address of this library; the struct is one of pointers, for which zero is valid.
    unsafe {
        libc::dladdr(remember as fn() as *const c_void, found.as_mut_ptr());
        OWN_PATH.store(found.assume_init().dli_fname.cast_mut(), Relaxed);
    }
}

fn own_path() -> Option<&'static CStr> {
    let path = OWN_PATH.load(Relaxed);
    // SAFETY: a string that ends in NUL, and stays as long as the library.
    (!path.is_null()).then(|| unsafe { CStr::from_ptr(path) })
}

/// Preloads these in each program that is started from now on.
fn set(libraries: &CStr) {
    let name = c"LD_PRELOAD".as_ptr();
    // SAFETY: both end in NUL. The program changes its root, and so does not read its environment on another thread that
    // relies on what is preloaded.
    unsafe {
        if libraries.is_empty() {
            libc::unsetenv(name)
        } else {
            libc::setenv(name, libraries.as_ptr(), 1)
        };
    }
}
