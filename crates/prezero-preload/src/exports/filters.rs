//! Calls that install a filter of system calls (seccomp), or have the kernel send a signal for each (syscall user dispatch).

use std::ffi::{c_int, c_uint};

use crate::process::confine::confined;

/// Options of `prctl`, and ways of dispatch: all but those made in a range, or those made there. Off is 0.
pub(super) const PR_SET_VMA: c_int = 0x5356_4d41;
const PR_SET_SYSCALL_USER_DISPATCH: c_int = 59;
const OUTSIDE: usize = 1;
const INSIDE: usize = 2;

/// Makes a `prctl` that may install such a filter.
pub(super) fn confined_by(
    option: c_int,
    [a, b, c]: [usize; 3],
    call: impl FnOnce() -> isize,
) -> isize {
    let here = (confined_by as fn(_, _, fn() -> _) -> _ as usize).wrapping_sub(b) < c;
    let installs = match option {
        libc::PR_SET_SECCOMP => {
            a == libc::SECCOMP_MODE_STRICT as usize
                || a == libc::SECCOMP_MODE_FILTER as usize && b != 0
        }
        // The library lies in the range as a whole, or not at all.
        PR_SET_SYSCALL_USER_DISPATCH => a == OUTSIDE && !here || a == INSIDE && here,
        _ => false,
    };
    if installs { confined(call) } else { call() }
}

/// Makes a `seccomp`. Without a program for the filter it only asks what the kernel knows.
pub(super) fn confined_by_call(
    operation: usize,
    program: usize,
    call: impl FnOnce() -> isize,
) -> isize {
    let installs = match operation as c_uint {
        libc::SECCOMP_SET_MODE_STRICT => true,
        libc::SECCOMP_SET_MODE_FILTER => program != 0,
        _ => false,
    };
    if installs { confined(call) } else { call() }
}
