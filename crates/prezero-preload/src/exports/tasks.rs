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
    // `thrd_error`: it lacked something that is no memory.
    thrd_create(thread: *mut c_void, entry: Start, with: *mut c_void) -> c_int,
        |answer: &c_int| if *answer == 2 { libc::EAGAIN } else { 0 };
    posix_spawn(pid: *mut pid_t, path: *const c_char, actions: *const c_void, how: *const c_void,
        arguments: *const *mut c_char, environment: *const *mut c_char) -> c_int, itself;
    posix_spawnp(pid: *mut pid_t, file: *const c_char, actions: *const c_void, how: *const c_void,
        arguments: *const *mut c_char, environment: *const *mut c_char) -> c_int, itself;
    // glibc may say ENOMEM, whatever it lacked.
    popen(command: *const c_char, kind: *const c_char) -> *mut FILE, |answer: &*mut FILE| {
        let lacks = || matches!(Errno::save().number(), libc::EAGAIN | libc::ENOMEM);
        if answer.is_null() && lacks() { libc::EAGAIN } else { 0 }
    };
}

/// libc's function of this name. A shell that could not be started looks like one that found no command, but for `errno`,
/// which a handler of the program's may set too. So the call is made again only where no child was waited for: no child's
/// page faults were added.
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
    let faults = childrens_faults();
    let failed =
        |answer: &c_int| matches!(*answer, -1 | NO_COMMAND) && childrens_faults() == faults;
    let error = |answer: &c_int| if failed(answer) { Errno::save().number() } else { 0 };
    let answer = with_task(call, error);
    if Errno::save().number() == 0 {
        before.restore();
    }
    answer
}

/// Page faults of the children that were waited for.
fn childrens_faults() -> libc::c_long {
    // SAFETY: a struct of integers, for which zero is valid, that the call fills.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        usage.ru_minflt
    }
}
