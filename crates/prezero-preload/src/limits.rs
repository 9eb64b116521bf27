//! Limits of address space that a program sets on itself.
//!
//! A zone that exists already counts with all that it reserved, so a limit below that would leave
//! nothing to anybody. The zone retreats first: to the share of the limit that it would have
//! taken under it from the beginning, or to what is in use.
//!
//! A limit that comes from outside (`prlimit` on another process) is not seen.

use std::ffi::{c_int, c_uint};

use libc::{pid_t, rlimit};

use crate::{next, process};

/// To be called with a limit that the calling process is about to set.
///
/// # Safety
/// `limit` is null or readable.
unsafe fn before(which: c_uint, limit: *const rlimit) {
    if (which == libc::RLIMIT_AS || which == libc::RLIMIT_DATA) && !limit.is_null() {
        // SAFETY: the caller's promise.
        let soft = unsafe { (*limit).rlim_cur };
        if soft != libc::RLIM_INFINITY {
            process::retreat_to_share_of(soft as usize);
        }
    }
}

/// libc's `setrlimit`.
///
/// # Safety
/// As in libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setrlimit(which: c_uint, limit: *const rlimit) -> c_int {
    // SAFETY: the caller's terms.
    unsafe {
        before(which, limit);
        next::setrlimit(which, limit)
    }
}

/// libc's `setrlimit64`, which is the same where `rlim_t` has 64 bits.
///
/// # Safety
/// As in libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setrlimit64(which: c_uint, limit: *const rlimit) -> c_int {
    // SAFETY: the caller's terms.
    unsafe {
        before(which, limit);
        next::setrlimit64(which, limit)
    }
}

/// libc's `prlimit`.
///
/// # Safety
/// As in libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prlimit(
    process: pid_t,
    which: c_uint,
    new: *const rlimit,
    old: *mut rlimit,
) -> c_int {
    // SAFETY: the caller's terms.
    unsafe {
        if is_own(process) {
            before(which, new);
        }
        next::prlimit(process, which, new, old)
    }
}

/// libc's `prlimit64`.
///
/// # Safety
/// As in libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prlimit64(
    process: pid_t,
    which: c_uint,
    new: *const rlimit,
    old: *mut rlimit,
) -> c_int {
    // SAFETY: the caller's terms.
    unsafe {
        if is_own(process) {
            before(which, new);
        }
        next::prlimit64(process, which, new, old)
    }
}

fn is_own(process: pid_t) -> bool {
    // SAFETY: no terms.
    process == 0 || process == unsafe { libc::getpid() }
}
