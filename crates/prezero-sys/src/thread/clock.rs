//! Time, in nanoseconds.

use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::raw;

/// Nanoseconds in a second.
pub(super) const NS_PER_S: u64 = 1_000_000_000;

/// Nanoseconds since some fixed moment; never steps back.
pub fn monotonic_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

/// CPU time that the calling thread has used, in nanoseconds; 0 where a filter of system calls answers with an error. No
/// vDSO has this clock.
pub fn thread_cpu_ns() -> u64 {
    let mut time = [0i64; 2];
    let to = (&raw mut time).addr();
    // SAFETY: the kernel writes seconds and nanoseconds, a word each.
    unsafe { raw::syscall(libc::SYS_clock_gettime, [libc::CLOCK_THREAD_CPUTIME_ID as usize, to]) };
    time[0] as u64 * NS_PER_S + time[1] as u64
}

fn nanoseconds(time: Timespec) -> u64 {
    time.tv_sec as u64 * NS_PER_S + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_advance() {
        let (wall, cpu) = (monotonic_ns(), thread_cpu_ns());
        while thread_cpu_ns() == cpu {}
        assert!(monotonic_ns() > wall);
    }
}
