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
    let file = file::open(path).ok()?;
    let found = filters_in(|part| rustix::io::read(&file, part).ok());
    file::close(file);
    found
}

/// Reads a status in parts, which `read` fills: a caller's stack may be too short for all of it.
fn filters_in(mut read: impl FnMut(&mut [u8]) -> Option<usize>) -> Option<u32> {
    let (mut text, mut have) = ([0u8; 256], 0);
    loop {
        let len = read(&mut text[have..])?;
        have += len;
        let Some(end) = text[..have].iter().position(|byte| *byte == b'\n') else {
            // A line that does not fit is another.
            if len == 0 {
                return None;
            }
            if have == text.len() {
                have = 0;
            }
            continue;
        };
        if let Some(count) = text[..end].strip_prefix(b"Seccomp_filters:") {
            return std::str::from_utf8(count.trim_ascii()).ok()?.parse().ok();
        }
        text.copy_within(end + 1..have, 0);
        have -= end + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filters_read(status: &str, most: usize) -> Option<u32> {
        let mut rest = status.as_bytes();
        filters_in(|part| {
            let len = most.min(part.len());
            std::io::Read::read(&mut rest, &mut part[..len]).ok()
        })
    }

    #[test]
    fn filters_are_counted_by_the_kernel() {
        let long = "Groups:\t".to_string() + &"1000 ".repeat(200);
        for before in ["", "Seccomp:\t2\n", &format!("{long}\nSeccomp:\t2\n")] {
            let status = format!("Name:\tx\n{before}Seccomp_filters:\t13\nSpeculation:\t1\n");
            for most in [1, 3, 100, 10_000] {
                assert_eq!(
                    filters_read(&status, most),
                    Some(13),
                    "{most} bytes at a time of {status}"
                );
            }
        }
        assert_eq!(filters_read("Name:\tx\nSeccomp:\t2\n", 50), None);
        assert_eq!(filters_read(&long, 50), None);
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
