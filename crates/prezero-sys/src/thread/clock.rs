//! Time, in nanoseconds.

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Nanoseconds in a second.
pub(super) const NS_PER_S: u64 = 1_000_000_000;

/// Nanoseconds since some fixed moment; never steps back.
pub fn monotonic_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

/// CPU time that the calling thread has used, in nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::ThreadCPUTime))
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
