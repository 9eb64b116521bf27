//! What this process was given and Rust's start changes: the disposition of `SIGPIPE`, and standard descriptors that
//! are closed. A program that the command becomes, or starts, has them as they were.
//!
//! Rust's start ignores `SIGPIPE`, opens `/dev/null` where one of the descriptors 0 to 2 is closed, and sets `SIGPIPE` to
//! its default in each program that it starts. So [`note`] runs before it. It notes the disposition, and opens
//! `/dev/null` itself, such that the kernel closes it at `exec`.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

static IGNORES_SIGPIPE: AtomicBool = AtomicBool::new(false);

/// Runs before `main`: an entry of `.init_array` in each program that becomes another.
pub extern "C" fn note() {
    // SAFETY: the structure is the kernel's to fill; zero is a valid one.
    let ignores = unsafe {
        let mut given: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGPIPE, std::ptr::null(), &raw mut given) == 0
            && given.sa_sigaction == libc::SIG_IGN
    };
    IGNORES_SIGPIPE.store(ignores, Relaxed);
    for standard in 0..=2 {
        // SAFETY: a question about a descriptor, a path that ends in NUL. The lowest that is closed is the one that an open takes.
        unsafe {
            if libc::fcntl(standard, libc::F_GETFD) == -1 {
                libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
            }
        }
    }
}

/// The program gets what this process was given.
pub fn hand_on(command: &mut Command) -> &mut Command {
    let disposition = if IGNORES_SIGPIPE.load(Relaxed) { libc::SIG_IGN } else { libc::SIG_DFL };
    let set = move || {
        // SAFETY: no handler; a call that is allowed after a fork.
        unsafe { libc::signal(libc::SIGPIPE, disposition) };
        Ok(())
    };
    // SAFETY: the closure makes one system call and allocates nothing.
    unsafe { command.pre_exec(set) }
}
