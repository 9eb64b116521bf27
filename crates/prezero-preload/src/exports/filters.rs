//! Calls that install a filter of system calls (seccomp): `prctl`, and `seccomp` by its number.

use std::ffi::{c_int, c_long, c_ulong, c_void};

use crate::compat::next;
use crate::process::confine::confined;

/// libc's `prctl`.
///
/// # Safety
/// As in libc, which declares it with any further arguments; all are passed alike.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prctl(
    option: c_int,
    a: c_ulong,
    b: c_ulong,
    c: c_ulong,
    d: c_ulong,
) -> c_int {
    // SAFETY: the caller keeps the contract of `prctl`.
    let call = || unsafe { next::prctl(option, a, b, c, d) };
    let installs = option == libc::PR_SET_SECCOMP
        && (a == c_ulong::from(libc::SECCOMP_MODE_STRICT)
            || a == c_ulong::from(libc::SECCOMP_MODE_FILTER) && b != 0);
    if installs { confined(|| call().into()) as c_int } else { call() }
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
