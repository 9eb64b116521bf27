//! Whether a huge page costs scrubd what a clear does.
//!
//! A hypervisor that backs its guests' memory as they touch it, and takes it back when they free it, needs far
//! longer for a huge page than a clear takes. scrubd then makes no huge pages for a while. Told the time; reads no
//! clock.

/// A huge page that took longer was not only cleared: a hypervisor had to find its memory.
/// Moved by: counter `late_cpu_ns`, `bench waste --only bursty-1m,bursty-4m`.
const LATE_NS: u64 = 1_000_000;
/// For so long scrubd makes no huge pages then, and twice as long each time in a row, up to so many
/// doublings.
/// Moved by: counter `late_cpu_ns`, `bench waste --only bursty-1m,bursty-4m`.
const REST_NS: u64 = 1_000_000_000;
const REST_DOUBLINGS: u32 = 6;

/// Whether new memory costs scrubd what a clear does. Told the time; reads no clock.
#[derive(Default)]
pub(crate) struct LateBacking {
    rests_until: u64,
    in_a_row: u32,
}

impl LateBacking {
    pub(crate) fn is_over(&self, now: u64) -> bool {
        now >= self.rests_until
    }

    /// The part of the `ns` of a huge page that is no part of the price of a clear.
    pub(crate) fn beyond(ns: u64) -> u64 {
        ns.saturating_sub(LATE_NS)
    }

    /// A huge page took `ns`, of which so many were [late](Self::beyond).
    pub(crate) fn note(&mut self, now: u64, ns: u64) -> u64 {
        let late = LateBacking::beyond(ns);
        if late > 0 {
            self.rests_until = now + (REST_NS << self.in_a_row);
            self.in_a_row = (self.in_a_row + 1).min(REST_DOUBLINGS);
        } else {
            self.in_a_row = 0;
        }
        late
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_huge_page_that_comes_late_is_tried_again_after_a_while_and_a_longer_one() {
        let mut backing = LateBacking::default();
        assert_eq!(backing.note(0, 100_000), 0);
        assert!(backing.is_over(0));
        let mut now = 0;
        for rest in [1, 2, 4, 8, 16, 32, 64, 64] {
            assert_eq!(backing.note(now, 6_000_000), 5_000_000, "a millisecond is a clear's");
            assert!(!backing.is_over(now + rest * REST_NS - 1));
            now += rest * REST_NS;
            assert!(backing.is_over(now));
        }
        assert_eq!(backing.note(now, LATE_NS), 0);
        assert!(backing.is_over(now));
        backing.note(now, 6_000_000);
        assert!(backing.is_over(now + REST_NS), "what came in time ends the row");
    }
}
