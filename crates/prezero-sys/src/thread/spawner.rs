//! How a thread comes to be, as a choice of the program.
//!
//! The library knows when its thread is needed and what it runs; the program knows what its libc
//! may be told of it. [`Spawner`] stands between the two. [`Pthread`] does in every program.

use std::ffi::c_void;

use super::{Entry, Life, spawn_detached};

/// Starts threads, one at a time for each [`Life`], and tells by the life when one is gone.
///
/// # What the thread may call
/// The entry of a thread calls nothing in libc that relies on a lock (`malloc`, stdio, `opendir`,
/// `dlsym`, locales), unless Rust's global allocator does. A spawner may rely on that, and then
/// demands from its own maker that the global allocator is not libc's.
///
/// # Safety
/// The caller hands the thread memory that is free for others as soon as the life is over. So an
/// implementation keeps to this:
/// 1. [`start`](Spawner::start) runs `entry(arg)` once, on a new thread with a stack of at least
///    `stack` bytes, or returns an error and runs nothing.
/// 2. No handler of the program runs on that thread.
/// 3. The life is not over between a start that succeeded and the thread's last instruction that
///    uses memory.
pub unsafe trait Spawner: Sync {
    /// Starts the thread. `life` begins now, unless an error is returned. Leaves `errno` as it was.
    ///
    /// # Safety
    /// 1. `arg` is what `entry` expects and may be used from another thread; `entry` does not
    ///    unwind.
    /// 2. `entry` calls [`arrive`](Spawner::arrive) first and [`leave`](Spawner::leave) last, both
    ///    with this `life`, and between them only what a thread may call (see the trait).
    /// 3. The calling thread has all signals blocked ([`Unheard`](super::Unheard)), and `life` is
    ///    over.
    ///
    /// # Errors
    /// The error number: `EAGAIN` when the process may not have another thread, `ENOMEM` when
    /// there is no room for a stack.
    unsafe fn start(
        &self,
        stack: usize,
        entry: Entry,
        arg: *mut c_void,
        life: &'static Life,
    ) -> Result<(), i32>;

    /// The thread's first act.
    fn arrive(&self, life: &Life);

    /// The thread's last act before it returns from its entry.
    fn leave(&self, life: &Life);
}

/// A detached thread of the C library, as [`spawn_detached`] makes it.
#[derive(Clone, Copy, Debug)]
pub struct Pthread;

// SAFETY: 1. and 2.: `spawn_detached` does so. 3.: the life begins before the thread is made; its
// end is `leave`, after which `Life` waits until the kernel has no such thread any more.
unsafe impl Spawner for Pthread {
    unsafe fn start(
        &self,
        stack: usize,
        entry: Entry,
        arg: *mut c_void,
        life: &'static Life,
    ) -> Result<(), i32> {
        life.begin();
        // SAFETY: the caller's promise.
        unsafe { spawn_detached(stack, entry, arg) }.inspect_err(|_| life.forget())
    }

    fn arrive(&self, life: &Life) {
        life.is_mine();
    }

    fn leave(&self, life: &Life) {
        life.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thread::Unheard;
    use prezero_testing::until;
    use std::sync::atomic::{AtomicBool, Ordering};

    static LIFE: Life = Life::new();
    static CAN_LEAVE: AtomicBool = AtomicBool::new(false);

    extern "C" fn linger(_: *mut c_void) -> *mut c_void {
        Pthread.arrive(&LIFE);
        while !CAN_LEAVE.load(Ordering::Acquire) {
            std::hint::spin_loop();
        }
        Pthread.leave(&LIFE);
        std::ptr::null_mut()
    }

    #[test]
    fn life_of_a_pthread_is_over_when_the_thread_is_gone() {
        {
            let _quiet = Unheard::new();
            // SAFETY: `linger` takes no argument, and both its calls are there.
            unsafe { Pthread.start(256 << 10, linger, std::ptr::null_mut(), &LIFE) }.unwrap();
        }
        assert!(!LIFE.is_over());
        CAN_LEAVE.store(true, Ordering::Release);
        until("it ends", || {
            LIFE.wait();
            LIFE.is_over()
        });
    }

    #[test]
    fn refused_start_leaves_no_life_behind() {
        static NONE: Life = Life::new();
        let _quiet = Unheard::new();
        // SAFETY: no thread starts with such a stack.
        let refused = unsafe { Pthread.start(1, linger, std::ptr::null_mut(), &NONE) };
        assert_eq!(refused, Err(libc::EINVAL));
        assert!(NONE.is_over());
    }
}
