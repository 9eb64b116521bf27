//! libc's `syscall`: calls by their number, of which some are made another way here.
//!
//! libc has no function for `seccomp`, and programs that change one thread's user go past libc's, which change all.
//! A call that changes the only thread changes the process, so scrubd ends before it, as before libc's.
//! Beside other threads it is a matter of the calling one, and scrubd stays as they do. And calls that make a child go past
//! the handlers of a fork. None comes back to libc's function of its name: a library may make that by this one.

use std::ffi::{c_int, c_long, c_void};
use std::ptr;

use prezero_core::internal::Change;

use super::forks::{clone3, is_a_copy};
use super::rights::alone;
use super::syscalls::{Words, change};
use crate::compat::{company, next};
use crate::process::fork::without_handlers;
use crate::process::report::at_exit;
use crate::process::shortage::{errno_of, with_task};

/// Makes a call that makes a child.
fn made(call: &dyn Fn() -> c_long) -> c_long {
    with_task(call, |answer| errno_of(&(*answer as c_int)))
}

/// libc's `syscall`.
///
/// # Safety
/// As in libc, which declares it with any further arguments; all are passed alike.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall(
    number: c_long,
    a: *mut c_void,
    b: *mut c_void,
    c: *mut c_void,
    d: *mut c_void,
    e: *mut c_void,
    f: *mut c_void,
) -> c_long {
    let words = [a, b, c, d, e, f].map(|word| word.addr());
    let by_words = |words: Words| {
        let [a, b, c, d, e, f] = words.map(ptr::without_provenance_mut);
        // SAFETY: the caller keeps the contract of `syscall`.
        unsafe { next::syscall(number, a, b, c, d, e, f) as isize }
    };
    let call = || by_words(words) as c_long;
    match number {
        #[cfg(target_arch = "x86_64")]
        libc::SYS_fork => made(&|| without_handlers(call)),
        libc::SYS_clone if is_a_copy(a.addr() as u64) => made(&|| without_handlers(call)),
        // SAFETY: the caller keeps the contract of `syscall`.
        libc::SYS_clone3 => made(&|| unsafe { clone3(a, b.addr(), call) }),
        libc::SYS_exit_group => {
            at_exit();
            call()
        }
        libc::SYS_setuid
        | libc::SYS_setgid
        | libc::SYS_setreuid
        | libc::SYS_setregid
        | libc::SYS_setresuid
        | libc::SYS_setresgid
        | libc::SYS_setgroups
            if company::is_single_threaded() =>
        {
            alone(Change::Rights, call)
        }
        // SAFETY: the caller keeps the contract of `syscall`.
        _ => unsafe { change(number, words, by_words) as c_long },
    }
}
