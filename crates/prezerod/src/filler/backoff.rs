//! When a filler backs off: what scrubd does, for steps of milliseconds.
//!
//! A step during which the filler was kept from its CPU shows that another process wants it.
//! Told the times; reads no clock.

/// Share of a step, besides [`SLACK_NS`], that may pass without a CPU before it counts.
const SHARE: u64 = 8;
/// Time without a CPU that tells nothing, ns: an interrupt, a tick.
const SLACK_NS: u64 = 200_000;
/// First backoff, ns; doubled each time in a row.
const MIN_NS: u64 = 4_000_000;
/// The longest backoff. The idle class counts within the filler's cgroup only, so a step takes its
/// share of a CPU that another group keeps busy.
/// Moved by: `bench fill`.
const MAX_NS: u64 = 512_000_000;

/// See the module.
#[derive(Debug)]
pub struct Backoff {
    next_ns: u64,
}

impl Backoff {
    /// Not tired.
    pub fn new() -> Backoff {
        Backoff { next_ns: MIN_NS }
    }

    /// How long to back off after a step that took `wall_ns`, of which `cpu_ns` on a CPU; ns.
    pub fn after(&mut self, wall_ns: u64, cpu_ns: u64) -> u64 {
        if wall_ns.saturating_sub(cpu_ns) <= SLACK_NS + wall_ns / SHARE {
            self.next_ns = MIN_NS;
            return 0;
        }
        let backoff = self.next_ns;
        self.next_ns = (2 * backoff).min(MAX_NS);
        backoff
    }
}

impl Default for Backoff {
    fn default() -> Backoff {
        Backoff::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_filler_on_an_idle_cpu_never_rests() {
        let mut backoff = Backoff::new();
        assert_eq!([backoff.after(4 * MS, 4 * MS), backoff.after(4 * MS, 3_600_000)], [0, 0]);
    }

    #[test]
    fn one_that_is_kept_from_its_cpu_rests_longer_and_longer_until_it_is_not() {
        let mut backoff = Backoff::new();
        let backoffs: Vec<u64> = (0..9).map(|_| backoff.after(8 * MS, 4 * MS) / MS).collect();
        assert_eq!(backoffs, [4, 8, 16, 32, 64, 128, 256, 512, 512]);
        backoff.after(4 * MS, 4 * MS);
        assert_eq!(backoff.after(8 * MS, 4 * MS), 4 * MS);
    }
}
