//! What the calling thread makes of itself: its class, its name, its descriptors.

use std::ffi::CStr;
use std::num::NonZeroU64;

use rustix::io::Errno;
use rustix::thread as kernel;

use crate::raw;

/// Puts the calling thread into the idle scheduling class, and lets its sleeps end when
/// they are due: the timer slack is the shortest there is.
///
/// # Errors
/// The error number: `EPERM` when a seccomp filter or a security module forbids it.
pub fn become_idle_class() -> Result<(), i32> {
    let priority = libc::sched_param { sched_priority: 0 };
    let at = (&raw const priority).addr();
    // SAFETY: the kernel reads one sched_param; 0 is the calling thread.
    let answer =
        unsafe { raw::syscall(libc::SYS_sched_setscheduler, [0, libc::SCHED_IDLE as usize, at]) };
    if answer != 0 {
        return Err(-answer as i32);
    }
    kernel::set_current_timer_slack(NonZeroU64::new(1)).map_err(|e| e.raw_os_error())
}

/// The calling thread's number.
pub fn current_id() -> i32 {
    kernel::gettid().as_raw_nonzero().get()
}

/// Has a thread of this process run as any other, or in the idle class again. The kernel
/// lets a thread out of the idle class only where the caller may raise priorities
/// (`CAP_SYS_NICE`, `RLIMIT_NICE`); without that right nothing happens.
pub fn hurry(thread: i32, class: SchedClass) {
    let priority = libc::sched_param { sched_priority: 0 };
    let policy = match class {
        SchedClass::Normal => libc::SCHED_OTHER,
        SchedClass::Idle => libc::SCHED_IDLE,
    };
    let at = (&raw const priority).addr();
    // SAFETY: the kernel reads one sched_param; a thread that is gone is an error, no more.
    unsafe {
        raw::syscall(libc::SYS_sched_setscheduler, [thread as usize, policy as usize, at]);
    }
}

/// A scheduling class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SchedClass {
    /// What threads are born in.
    Normal,
    /// Runs on CPUs that no other task wants.
    Idle,
}

/// Names the calling thread; the kernel keeps the first 15 bytes.
pub fn name_current(name: &CStr) {
    // A thread without a name works as well.
    let _ = kernel::set_name(name);
}

/// Gives the calling thread a table of file descriptors of its own, empty: what it opens
/// from now on the program cannot close, and it keeps no file of the program's open.
///
/// # Errors
/// `NOSYS` before Linux 5.9, or what a seccomp filter answers.
pub fn own_descriptors() -> Result<(), Errno> {
    let unshare = libc::CLOSE_RANGE_UNSHARE as usize;
    // SAFETY: without CLOSE_RANGE_UNSHARE this would close the program's files; with it
    // the kernel copies the table first and closes the copies, for this thread alone.
    let done = unsafe { raw::syscall(libc::SYS_close_range, [0, u32::MAX as usize, unshare]) };
    if done == 0 { Ok(()) } else { Err(Errno::NOSYS) }
}
