//! Writes that raise no signal in the program.
//!
//! A reader that is gone raises `SIGPIPE`, a limit of file size `SIGXFSZ`, a terminal of another job `SIGTTOU`. A line of
//! ours is not worth that: the program may end of it, or its handler would run. So these three are blocked around the
//! write, and what the write left pending is taken away. Where one of them waits already, ours could not be told from it:
//! nothing is written.

use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::io::Errno;

use crate::raw::syscall;
use crate::sandbox;

/// Signals that a write may raise, as the kernel writes a set.
const RAISED: u64 = bit(libc::SIGPIPE) | bit(libc::SIGXFSZ) | bit(libc::SIGTTOU);

const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// Writes what the file takes at once; returns how much that is. Waits where the file does.
///
/// Under a filter of system calls that was not tried the write is a plain one.
///
/// # Errors
/// What the kernel answers; `BUSY` where one of these signals waits already.
pub fn write(file: BorrowedFd<'_>, bytes: &[u8]) -> Result<usize, Errno> {
    if !sandbox::allows_all() {
        return rustix::io::write(file, bytes);
    }
    let before = mask(libc::SIG_BLOCK, RAISED);
    let answer = if pending() & RAISED == 0 {
        // SAFETY: the slice is readable for its length.
        let answer = unsafe {
            let (at, len) = (bytes.as_ptr().addr(), bytes.len());
            syscall(libc::SYS_write, [file.as_raw_fd() as usize, at, len])
        };
        if answer.cast_unsigned() != bytes.len() {
            take_away();
        }
        answer
    } else {
        -(libc::EBUSY as isize)
    };
    mask(libc::SIG_SETMASK, before);
    usize::try_from(answer).map_err(|_| Errno::from_raw_os_error(-answer as i32))
}

fn mask(how: i32, set: u64) -> u64 {
    let mut before = 0u64;
    let (set, old) = ((&raw const set).addr(), (&raw mut before).addr());
    // SAFETY: the kernel reads one set of 64 signals and writes one.
    unsafe { syscall(libc::SYS_rt_sigprocmask, [how as usize, set, old, size_of::<u64>()]) };
    before
}

/// Signals that are blocked and wait, for this thread or for the process.
fn pending() -> u64 {
    let mut set = 0u64;
    // SAFETY: the kernel writes one set of 64 signals.
    unsafe { syscall(libc::SYS_rt_sigpending, [(&raw mut set).addr(), size_of::<u64>()]) };
    set
}

/// Takes what the write has just left pending. The kernel gives a thread its own signals first, and a write sends to the
/// thread that writes.
fn take_away() {
    let now = [0i64; 2];
    for signal in [libc::SIGPIPE, libc::SIGXFSZ] {
        let set = pending() & bit(signal);
        if set != 0 {
            let set = (&raw const set).addr();
            // SAFETY: the kernel reads one set of 64 signals and a moment.
            unsafe {
                syscall(libc::SYS_rt_sigtimedwait, [set, 0, now.as_ptr().addr(), size_of::<u64>()])
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    /// Fails the test by its end where a signal arrives.
    fn with_defaults(test: impl FnOnce()) {
        let both = [libc::SIGPIPE, libc::SIGXFSZ];
        // SAFETY: what happens at these signals is this process's own.
        let before = both.map(|signal| unsafe { libc::signal(signal, libc::SIG_DFL) });
        test();
        for (signal, before) in both.into_iter().zip(before) {
            // SAFETY: as above.
            unsafe { libc::signal(signal, before) };
        }
    }

    // One test: dispositions are the process's.
    #[test]
    fn no_reader_raises_nothing_and_what_waited_still_waits() {
        let (reader, writer) = std::io::pipe().unwrap();
        assert_eq!(write(writer.as_fd(), b"heard"), Ok(5));
        drop(reader);
        with_defaults(|| {
            let own = mask(libc::SIG_BLOCK, 0);
            assert_eq!(write(writer.as_fd(), b"lost"), Err(Errno::PIPE));
            assert_eq!((mask(libc::SIG_BLOCK, 0), pending() & RAISED), (own, 0));

            // One of the program's own, blocked and waiting.
            mask(libc::SIG_BLOCK, bit(libc::SIGPIPE));
            // SAFETY: the signal is blocked.
            unsafe { libc::raise(libc::SIGPIPE) };
            assert_eq!(write(writer.as_fd(), b"lost"), Err(Errno::BUSY));
            assert_eq!(pending() & RAISED, bit(libc::SIGPIPE));
            take_away();
            mask(libc::SIG_SETMASK, own);
        });
    }
}
