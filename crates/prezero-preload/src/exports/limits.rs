//! Limits of address space that a program sets on itself.
//!
//! A zone that exists already counts with all that it reserved, so a limit below that would leave
//! nothing to other allocations. The zone retreats at once: to the share of the limit that it would have
//! taken under it from the beginning, or to what is in use. What the program finds no room for is asked for again
//! ([`space`](crate::process::space)).
//!
//! A limit that comes from outside (`prlimit` on another process) is not seen. The zone has mapped little more than the
//! program uses of it by then, or used some seconds before, and reaches no further.

use std::ffi::c_uint;

use libc::{pid_t, rlimit};

use crate::compat::errno::Errno;
use crate::process;

/// Makes a call that gives a process a limit. The kernel reads that first: a pointer that it refuses is the program's to
/// hear of.
///
/// # Safety
/// `limit` is what the call reads, or null.
pub(super) unsafe fn limited(
    (process, which, limit): (pid_t, c_uint, *const rlimit),
    call: impl FnOnce() -> isize,
) -> isize {
    let answer = call();
    // SAFETY: no terms.
    let is_own = || process == 0 || process == unsafe { libc::getpid() };
    let is_space = which == libc::RLIMIT_AS || which == libc::RLIMIT_DATA;
    if answer == 0 && is_space && !limit.is_null() && is_own() {
        // SAFETY: the kernel has read it.
        let soft = unsafe { (*limit).rlim_cur };
        if soft != libc::RLIM_INFINITY {
            let errno = Errno::save();
            process::retreat_to_share_of(soft as usize);
            process::space::begins();
            errno.restore();
        }
    }
    answer
}
