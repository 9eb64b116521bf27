//! A detached `pthread` that no handler of the program runs on.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;

use super::Unheard;

/// What [`spawn_detached`] and each [`Spawner`](super::Spawner) start.
pub type Entry = extern "C" fn(*mut c_void) -> *mut c_void;

/// Starts a detached thread with all signals blocked, so that no handler of the program's
/// signals ever runs on it. `stack` is in bytes. Goes through libc, which allocates; leaves
/// `errno` as it was, because a program that frees memory does not expect it to change.
///
/// # Safety
/// `arg` is what `entry` expects and may be used from another thread; `entry` does not
/// unwind.
///
/// # Errors
/// The error number of the `pthread` call that failed: `EAGAIN` when the process may not
/// have another thread, `EINVAL` when `stack` is too small for the thread library.
pub unsafe fn spawn_detached(stack: usize, entry: Entry, arg: *mut c_void) -> Result<(), i32> {
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    let attributes = attributes.as_mut_ptr();
    // SAFETY: init gets room for the attributes; the others get what it initialised, the last one room for the thread's
    // name. entry and arg are the caller's promise. `errno` is this thread's own.
    unsafe {
        let errno = *libc::__errno_location();
        check(libc::pthread_attr_init(attributes))?;
        let started = check(libc::pthread_attr_setstacksize(attributes, stack))
            .and_then(|()| {
                let detached = libc::PTHREAD_CREATE_DETACHED;
                check(libc::pthread_attr_setdetachstate(attributes, detached))
            })
            .and_then(|()| {
                let (mut thread, _unheard) = (MaybeUninit::uninit(), Unheard::for_a_thread());
                check(libc::pthread_create(thread.as_mut_ptr(), attributes, entry, arg))
            });
        libc::pthread_attr_destroy(attributes);
        *libc::__errno_location() = errno;
        started
    }
}

fn check(error: c_int) -> Result<(), i32> {
    if error == 0 { Ok(()) } else { Err(error) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thread::{become_idle_class, name_current};
    use rustix::thread as kernel;
    use std::sync::mpsc;

    /// What a thread found out about itself, sent to the test that started it.
    struct Seen {
        blocked: Vec<c_int>,
        policy: c_int,
        slack: u64,
        name: Vec<u8>,
    }

    extern "C" fn look(arg: *mut c_void) -> *mut c_void {
        // SAFETY: `arg` is the boxed sender that the test gave away.
        let report = unsafe { Box::from_raw(arg.cast::<mpsc::Sender<Seen>>()) };
        name_current(c"looker");
        become_idle_class().unwrap();
        let seen = Seen {
            blocked: blocked_signals(),
            // SAFETY: no preconditions; 0 is this thread.
            policy: unsafe { libc::sched_getscheduler(0) },
            slack: kernel::current_timer_slack().unwrap(),
            name: std::fs::read("/proc/thread-self/comm").unwrap(),
        };
        report.send(seen).unwrap();
        std::ptr::null_mut()
    }

    fn blocked_signals() -> Vec<c_int> {
        let mut mask = MaybeUninit::uninit();
        // SAFETY: a null set only asks; the answer is written before it is read.
        unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), mask.as_mut_ptr());
            (1..=64).filter(|&signal| libc::sigismember(mask.as_ptr(), signal) == 1).collect()
        }
    }

    #[test]
    fn spawned_thread_blocks_signals_and_runs_idle() {
        let before = blocked_signals();
        let (sender, receiver) = mpsc::channel::<Seen>();
        let arg = Box::into_raw(Box::new(sender)).cast();
        // SAFETY: `look` takes the boxed sender over and does not unwind past a failure
        // that this test would not report anyway.
        unsafe { spawn_detached(256 << 10, look, arg) }.unwrap();
        let seen = receiver.recv().unwrap();

        for signal in [
            libc::SIGRTMIN(),
            libc::SIGRTMAX(),
            libc::SIGINT,
            libc::SIGTERM,
            libc::SIGUSR1,
            libc::SIGPROF,
            libc::SIGCHLD,
        ] {
            assert!(seen.blocked.contains(&signal), "signal {signal}");
        }
        // The thread library's own: setuid in all threads, cancellation.
        assert!(!seen.blocked.contains(&32) && !seen.blocked.contains(&33));
        assert_eq!(seen.policy, libc::SCHED_IDLE);
        assert_eq!(seen.slack, 1);
        assert_eq!(seen.name, b"looker\n");
        assert_eq!(blocked_signals(), before);
    }

    #[test]
    fn spawn_with_a_tiny_stack_is_refused() {
        // SAFETY: the thread never starts, so the argument is never used.
        let refused = unsafe { spawn_detached(1, look, std::ptr::null_mut()) };
        assert_eq!(refused, Err(libc::EINVAL));
    }

    #[test]
    fn spawn_leaves_errno_alone_where_the_kernel_refuses() {
        // SAFETY: `errno` is this thread's own; no address space holds the stack, so the thread
        // never starts and the argument is never used.
        let (refused, errno) = unsafe {
            *libc::__errno_location() = 77;
            let refused = spawn_detached(1 << 50, look, std::ptr::null_mut());
            (refused, *libc::__errno_location())
        };
        assert_eq!((refused, errno), (Err(libc::EAGAIN), 77));
    }
}
