//! Calls that make a process or a thread: the program's task is not refused for scrubd's.
//!
//! What libc calls within itself is not seen (`forkpty`, helper threads of `aio_*`, `mq_notify`, timers): for those the
//! kernel's limits are looked at ([`Room`](prezero_core::internal)), and scrubd leaves before the last task is taken.

use std::ffi::{c_char, c_int, c_void};

use libc::{FILE, pid_t};

use crate::compat::errno::Errno;
use crate::compat::next::{self, Start};
use crate::process::shortage::{errno_of, with_task};

/// The answer of a function that answers with its error.
fn itself(answer: &c_int) -> c_int {
    *answer
}

macro_rules! with_tasks {
    ($($name:ident($($arg:ident: $type:ty),*) -> $ret:ty, $error:expr;)*) => {
        $(
            /// libc's function of this name.
            ///
            /// # Safety
            /// As in libc.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($arg: $type),*) -> $ret {
                // SAFETY: the caller keeps the contract of the function; one that failed has changed nothing.
                with_task(|| unsafe { next::$name($($arg),*) }, $error)
            }
        )*
    };
}

with_tasks! {
    fork() -> pid_t, errno_of;
    daemon(stays: c_int, speaks: c_int) -> c_int, errno_of;
    pthread_create(thread: *mut c_void, how: *const c_void, entry: Start, with: *mut c_void) -> c_int, itself;
    // It says no more than that it failed.
    thrd_create(thread: *mut c_void, entry: Start, with: *mut c_void) -> c_int,
        |answer: &c_int| if *answer == 0 { 0 } else { libc::EAGAIN };
    posix_spawn(pid: *mut pid_t, path: *const c_char, actions: *const c_void, how: *const c_void,
        arguments: *const *mut c_char, environment: *const *mut c_char) -> c_int, itself;
    posix_spawnp(pid: *mut pid_t, file: *const c_char, actions: *const c_void, how: *const c_void,
        arguments: *const *mut c_char, environment: *const *mut c_char) -> c_int, itself;
    // glibc says ENOMEM, whatever it lacked.
    popen(command: *const c_char, kind: *const c_char) -> *mut FILE,
        |answer: &*mut FILE| if answer.is_null() { libc::EAGAIN } else { 0 };
}

/// libc's function of this name. A shell that could not be started looks like one that found no command, but for `errno`.
///
/// # Safety
/// As in libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn system(command: *const c_char) -> c_int {
    const NO_COMMAND: c_int = 127 << 8;
    let before = Errno::save();
    let call = || {
        Errno::set(0);
        // SAFETY: the caller keeps the contract of `system`.
        unsafe { next::system(command) }
    };
    let failed = |answer: &c_int| matches!(*answer, -1 | NO_COMMAND);
    let error = |answer: &c_int| if failed(answer) { Errno::save().number() } else { 0 };
    let answer = with_task(call, error);
    if Errno::save().number() == 0 {
        before.restore();
    }
    answer
}
