//! A word that a thread waits for.

use std::sync::atomic::AtomicU32;

use rustix::io::Errno;
use rustix::thread::futex;
use rustix::time::Timespec;

use super::clock::NS_PER_S;

/// How a [`futex_wait`] ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waited {
    /// Another thread woke this one, or the kernel did for no reason: look at the word again.
    Woken,
    /// The time is over.
    TimedOut,
    /// The word did not hold what was expected; nothing was waited for.
    Changed,
}

/// Sleeps until `word` is woken, at most for `timeout_ns` nanoseconds (`None`: without end),
/// if it holds `expected`. Private to the process.
pub fn futex_wait(word: &AtomicU32, expected: u32, timeout_ns: Option<u64>) -> Waited {
    let timeout = timeout_ns.map(|ns| Timespec {
        // u64::MAX nanoseconds are 585 years: no second count overflows.
        tv_sec: (ns / NS_PER_S) as i64,
        tv_nsec: (ns % NS_PER_S) as _,
    });
    match futex::wait(word, futex::Flags::PRIVATE, expected, timeout.as_ref()) {
        Err(Errno::TIMEDOUT) => Waited::TimedOut,
        Err(Errno::AGAIN) => Waited::Changed,
        // INTR is a spurious wake; nothing else is possible for a valid word.
        Ok(()) | Err(_) => Waited::Woken,
    }
}

/// Wakes one sleeper on `word`, if there is one.
pub fn futex_wake_one(word: &AtomicU32) {
    // It cannot fail for a valid word.
    let _ = futex::wake(word, futex::Flags::PRIVATE, 1);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thread::monotonic_ns;

    #[test]
    fn wait_for_another_value_returns_at_once() {
        assert_eq!(futex_wait(&AtomicU32::new(1), 0, None), Waited::Changed);
    }

    #[test]
    fn wait_ends_with_its_timeout() {
        let start = monotonic_ns();
        assert_eq!(futex_wait(&AtomicU32::new(0), 0, Some(100_000)), Waited::TimedOut);
        assert!(monotonic_ns() - start >= 100_000);
    }

    #[test]
    fn wake_ends_a_wait() {
        let word = AtomicU32::new(0);
        let long = Some(60 * NS_PER_S);
        let waited = std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| futex_wait(&word, 0, long));
            // The word never changes: only a wake that finds the sleeper ends it.
            while !sleeper.is_finished() {
                futex_wake_one(&word);
            }
            sleeper.join().unwrap()
        });
        assert_eq!(waited, Waited::Woken);
    }
}
