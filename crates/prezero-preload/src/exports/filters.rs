//! Calls that install a filter of system calls (seccomp), or have the kernel send a signal for each (syscall user dispatch).

use std::ffi::{c_int, c_long, c_void};

use crate::compat::next;
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
    call: impl FnOnce() -> c_long,
) -> c_long {
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

/// The system call of this name. Without a program for the filter it only asks what the kernel knows.
///
/// # Safety
/// As in the kernel.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[cold]
pub unsafe fn seccomp(operation: *mut c_void, flags: *mut c_void, program: *mut c_void) -> c_long {
    let none = std::ptr::null_mut();
    // SAFETY: the caller keeps the contract of `seccomp`.
    let call =
        || unsafe { next::syscall(libc::SYS_seccomp, operation, flags, program, none, none, none) };
    let installs = match u32::try_from(operation.addr()) {
        Ok(libc::SECCOMP_SET_MODE_STRICT) => true,
        Ok(libc::SECCOMP_SET_MODE_FILTER) => !program.is_null(),
        _ => false,
    };
    if installs { confined(call) } else { call() }
}
