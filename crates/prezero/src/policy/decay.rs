//! How long idle memory stays resident.
//!
//! Dirty memory goes soon: it costs no clear to make again. Zero pages stay for the configured decay: they were made
//! because they are in demand. Told the time; reads no clock.

/// The time for which dirty memory stays resident, ns. A program's pause between two
/// pieces of work is shorter.
/// Moved by: `bench real --only sqlite,node`.
const DIRTY_NS: u64 = 50_000_000;
/// Looks over idle memory in that time.
/// Moved by: counter `released_bytes`.
const LOOKS: u64 = 10;
/// How long idle memory may wait for a look, ns.
/// Fixed: a part of the time for which it stays.
pub(crate) const LOOK_WITHIN_NS: u64 = DIRTY_NS / 2;

/// When idle memory is looked over.
#[derive(Debug, Default)]
pub(crate) struct Decay {
    /// When it was looked over last.
    looked_at: u64,
}

/// Idle memory that a look returns to the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Idle {
    /// Dirty memory that was freed at least this long ago, ns.
    pub(crate) dirty_ns: u64,
    /// And any, ns.
    pub(crate) any_ns: u64,
}

impl Decay {
    /// What to look for now, if it is time. `most_ns`: the configured decay.
    pub(crate) fn due(&mut self, now: u64, most_ns: u64) -> Option<Idle> {
        let dirty_ns = DIRTY_NS.min(most_ns);
        if now.saturating_sub(self.looked_at) < dirty_ns / LOOKS {
            return None;
        }
        Some(Idle { dirty_ns, any_ns: most_ns })
    }

    /// A look found nothing more.
    pub(crate) fn is_done(&mut self, now: u64) {
        self.looked_at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: u64 = 10_000_000_000;

    #[test]
    fn looks_are_a_tenth_of_the_time_apart_unless_there_may_be_more() {
        let mut decay = Decay::default();
        let idle = decay.due(MOST, MOST).unwrap();
        assert_eq!(idle, Idle { dirty_ns: DIRTY_NS, any_ns: MOST });
        decay.is_done(MOST);
        assert_eq!(decay.due(MOST + DIRTY_NS / LOOKS - 1, MOST), None);
        assert!(decay.due(MOST + DIRTY_NS / LOOKS, MOST).is_some());
        assert!(decay.due(MOST + DIRTY_NS / LOOKS, MOST).is_some(), "there may be more");
    }

    #[test]
    fn a_shorter_decay_is_that_of_dirty_memory_too() {
        let idle = Decay::default().due(MOST, 1_000).unwrap();
        assert_eq!((idle.dirty_ns, idle.any_ns), (1_000, 1_000));
    }
}
