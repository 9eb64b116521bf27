//! Filters of system calls (seccomp), under which a call may end the process.
//!
//! Two kinds, told apart by when they come:
//! - **Confined**: the process installed a filter itself, for what it does from then on. Whatever glibc's
//!   `malloc` never calls may be missing there. So what [`crate::memory`] offers beyond that
//!   answers `PERM` without a system call, as a filter that answers with an error would.
//! - **Filtered**: the filter was there when the program began (a container, a unit of systemd). Most allow all
//!   that is needed. [`trial`] tells, in a child that a refusal ends instead of the process.
//!
//! A filter that is installed without libc (a `syscall` instruction of the program's own) is not seen.
//!
//! **Accepted race.** A thread that looked at [`is_confined`] a moment before another thread confines all
//! of them (`SECCOMP_FILTER_FLAG_TSYNC`) still makes its call.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32};

use rustix::io::Errno;

use crate::{file, raw};

mod trial;

pub use trial::{Trial, trial};

/// Installations under way, and those that succeeded; 0: the process is not confined.
static CONFINED: AtomicU32 = AtomicU32::new(0);

/// Whether the filters that were there from the beginning let all calls through.
static TRIED: AtomicBool = AtomicBool::new(false);

/// The filters that were there from the beginning let all calls through: [`trial`] says so, in this process or in one
/// before it under the same.
pub fn was_tried() {
    TRIED.store(true, Relaxed);
}

/// Whether no filter ends the process for what [`trial`] tries, as far as is known.
pub fn allows_all() -> bool {
    !is_confined() && (TRIED.load(Relaxed) || !is_filtered())
}

/// Whether the process confined itself. The child of a fork is as its parent was.
#[inline]
pub fn is_confined() -> bool {
    CONFINED.load(Relaxed) != 0
}

/// For a call that glibc's `malloc` does not make.
///
/// # Errors
/// `PERM` where the process is confined.
#[inline]
pub fn unless_confined() -> Result<(), Errno> {
    if is_confined() { Err(Errno::PERM) } else { Ok(()) }
}

/// The process is about to confine itself.
pub fn confine() {
    CONFINED.fetch_add(1, SeqCst);
}

/// That failed: whether the process is not confined now.
pub fn is_free_again() -> bool {
    CONFINED.fetch_sub(1, SeqCst) == 1
}

/// Whether the calling thread has a filter.
pub fn is_filtered() -> bool {
    // SAFETY: reads no memory, and fails for no reason but a filter.
    let mode = unsafe { raw::syscall(libc::SYS_prctl, [libc::PR_GET_SECCOMP as usize]) };
    // A kernel without seccomp says so. Else a filter that refuses this call is one.
    mode != 0 && mode != -(libc::EINVAL as isize)
}

/// How many filters the calling thread has, if the kernel says so (since Linux 5.9). A process has those of the one
/// that it comes from, and perhaps more. Neither locks nor allocates.
pub fn filters() -> Option<u32> {
    let path = c"/proc/thread-self/status";
    filters_in(file::read(path, &mut [0u8; 4096]).ok()?)
}

fn filters_in(status: &[u8]) -> Option<u32> {
    let name = b"Seccomp_filters:";
    let line = status.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(name))?;
    std::str::from_utf8(line.trim_ascii()).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_counted_by_the_kernel() {
        let status = b"Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t13\nSpeculation:\t1\n";
        assert_eq!(filters_in(status), Some(13));
        assert_eq!(filters_in(b"Name:\tx\nSeccomp:\t2\n"), None);
        assert_eq!(filters().is_some_and(|filters| filters > 0), is_filtered());
    }

    #[test]
    fn process_is_confined_until_its_last_failed_try() {
        confine();
        confine();
        assert!(!is_free_again() && is_confined());
        assert!(is_free_again() && !is_confined());
    }
}
