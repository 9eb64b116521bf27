//! The ends of a process that run no exit handler, or not this library's.

use std::ffi::c_int;

use crate::compat::next;
use crate::process::report::at_exit;

/// libc's `_exit`.
///
/// # Safety
/// As in libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _exit(status: c_int) -> ! {
    at_exit();
    // SAFETY: the caller keeps the contract of `_exit`.
    unsafe { next::_exit(status) }
}

/// libc's `_Exit`.
///
/// # Safety
/// As in libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _Exit(status: c_int) -> ! {
    at_exit();
    // SAFETY: the caller keeps the contract of `_Exit`.
    unsafe { next::_Exit(status) }
}

/// libc's `quick_exit`.
///
/// # Safety
/// As in libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quick_exit(status: c_int) -> ! {
    at_exit();
    // SAFETY: the caller keeps the contract of `quick_exit`.
    unsafe { next::quick_exit(status) }
}
