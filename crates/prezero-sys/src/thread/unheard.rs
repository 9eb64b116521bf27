//! Every signal blocked on the calling thread, for a moment, and floats that raise none.

use super::Floats;
use crate::raw;

/// Undone on drop. A thread that is made meanwhile inherits both.
#[derive(Debug)]
pub struct Unheard {
    before: u64,
    _floats: Floats,
    thread: std::marker::PhantomData<*mut u8>,
}

impl Unheard {
    /// Blocks them all, those of the thread library included: the raw call, because libc's leaves
    /// those out.
    pub fn new() -> Unheard {
        Unheard::to(u64::MAX)
    }

    /// For a thread that libc makes meanwhile: it hears those of the thread library (`setuid` in all threads,
    /// cancellation), which begin at 32. No handler of the program has one of them.
    pub fn for_a_thread() -> Unheard {
        Unheard::to(!((1 << (libc::SIGRTMIN() - 1)) - (1 << 31)))
    }

    fn to(mask: u64) -> Unheard {
        let (before, _floats) = (set_mask(mask), Floats::defaults());
        Unheard { before, _floats, thread: std::marker::PhantomData }
    }
}

impl Default for Unheard {
    fn default() -> Unheard {
        Unheard::new()
    }
}

impl Drop for Unheard {
    fn drop(&mut self) {
        set_mask(self.before);
    }
}

fn set_mask(mask: u64) -> u64 {
    let mut before = 0u64;
    let (new, old) = ((&raw const mask).addr(), (&raw mut before).addr());
    let set = libc::SIG_SETMASK as usize;
    // SAFETY: the kernel reads one set of 64 signals and writes one.
    unsafe { raw::syscall(libc::SYS_rt_sigprocmask, [set, new, old, size_of::<u64>()]) };
    before
}
