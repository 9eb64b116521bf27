//! Limits of address space that a program sets on itself.
//!
//! A zone that exists already counts with all that it reserved, so a limit below that would leave
//! nothing to other allocations. The zone retreats first: to the share of the limit that it would have
//! taken under it from the beginning, or to what is in use. What the program finds no room for is asked for again
//! ([`space`](crate::process::space)).
//!
//! A limit that comes from outside (`prlimit` on another process) is not seen. The zone has mapped little more than the
//! program uses of it by then, or used some seconds before, and reaches no further.

use std::ffi::c_uint;

use libc::{pid_t, rlimit};

use crate::process;

/// To be called with a limit that a process is about to get.
///
/// # Safety
/// `limit` is null or readable.
pub(super) unsafe fn before_limit(process: pid_t, which: c_uint, limit: *const rlimit) {
    // SAFETY: no terms.
    let is_own = process == 0 || process == unsafe { libc::getpid() };
    if is_own && (which == libc::RLIMIT_AS || which == libc::RLIMIT_DATA) && !limit.is_null() {
        // SAFETY: the caller's promise.
        let soft = unsafe { (*limit).rlim_cur };
        if soft != libc::RLIM_INFINITY {
            process::retreat_to_share_of(soft as usize);
            process::space::begins();
        }
    }
}
