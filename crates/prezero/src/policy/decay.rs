//! How long idle memory stays resident.
//!
//! Only its next use shows whether idle memory is wanted back. So it goes soon at first. It stays twice as long each
//! time that half of what went was faulted in again, up to the configured decay. Zero pages stay that long from the
//! start: they were made because they are in demand. Told the time; reads no clock.

use crate::config::ablation::{Ablation, Mechanism};

/// The time for which dirty memory without a known next use stays resident, ns. A program's pause between two
/// pieces of work is shorter.
/// Moved by: `bench real --only sqlite,node`.
const FIRST_NS: u64 = 50_000_000;
/// Looks over idle memory in that time.
/// Moved by: counter `released_bytes`.
const LOOKS: u64 = 10;

/// See the module.
#[derive(Debug)]
pub(crate) struct Decay {
    without: Ablation,
    /// How long dirty memory stays, and when it was looked over last.
    stays_ns: u64,
    looked_at: u64,
    /// Pages that went early since `count_began`, and pages faulted in before that.
    gone: u64,
    count_began: u64,
    faulted: u64,
    /// When the lists were looked over last.
    listed_at: u64,
}

/// Idle memory that a look returns to the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Idle {
    /// Dirty memory that was freed at least this long ago, ns.
    pub(crate) dirty_ns: u64,
    /// And any, ns.
    pub(crate) any_ns: u64,
    /// Whether what lay on the lists through the last such time goes to the pool first.
    pub(crate) lists: bool,
}

impl Decay {
    pub(crate) fn new(without: Ablation) -> Decay {
        Decay {
            without,
            stays_ns: FIRST_NS,
            looked_at: 0,
            gone: 0,
            count_began: 0,
            faulted: 0,
            listed_at: 0,
        }
    }

    /// How long idle memory may wait for a look, ns.
    pub(crate) fn watch_ns(&self) -> u64 {
        self.stays_ns / 2
    }

    /// What to look for now, if it is time. `most_ns`: the configured decay; `faulted`: pages handed out absent since
    /// the zone began.
    pub(crate) fn due(&mut self, now: u64, most_ns: u64, faulted: u64) -> Option<Idle> {
        self.learn(now, most_ns, faulted);
        if now.saturating_sub(self.looked_at) < self.stays_ns.min(most_ns) / LOOKS {
            return None;
        }
        let lists = now.saturating_sub(self.listed_at) >= most_ns;
        if lists {
            self.listed_at = now;
        }
        Some(Idle { dirty_ns: self.stays_ns.min(most_ns), any_ns: most_ns, lists })
    }

    /// A look gave back `pages`, and there may be more.
    pub(crate) fn gave(&mut self, now: u64, idle: Idle, pages: u64, more: More) {
        if idle.dirty_ns < idle.any_ns {
            self.gone += pages;
        }
        if more == More::No {
            self.looked_at = now;
        }
    }

    /// Was what went early wanted back? It is forgotten by the time that it would have gone in any case.
    fn learn(&mut self, now: u64, most_ns: u64, faulted: u64) {
        let back = self.without.has(Mechanism::Learn)
            && self.gone > 0
            && 2 * (faulted - self.faulted) >= self.gone;
        if back {
            self.stays_ns = self.stays_ns.saturating_mul(2);
        }
        if back || self.gone == 0 || now.saturating_sub(self.count_began) > most_ns {
            (self.gone, self.count_began, self.faulted) = (0, now, faulted);
        }
    }
}

/// Whether a look left something for the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum More {
    Maybe,
    No,
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: u64 = 10_000_000_000;

    /// The time that dirty memory stays after each round in which `gone` pages went and `back` came back.
    fn stays(rounds: u64, gone: u64, back: u64) -> u64 {
        let mut decay = Decay::new(Ablation::default());
        let (mut now, mut faulted) = (MOST, 0);
        let mut last = 0;
        for _ in 0..rounds {
            let idle = decay.due(now, MOST, faulted).expect("a long time has passed");
            decay.gave(now, idle, gone, More::No);
            last = idle.dirty_ns;
            faulted += back;
            now += MOST / 2;
        }
        last
    }

    #[test]
    fn memory_that_comes_back_stays_twice_as_long_each_time_up_to_the_decay() {
        assert_eq!(stays(1, 100, 50), FIRST_NS);
        assert_eq!(stays(3, 100, 50), 4 * FIRST_NS);
        assert_eq!(stays(60, 100, 50), MOST);
    }

    #[test]
    fn memory_that_nothing_uses_again_goes_as_soon_as_at_first() {
        for (gone, back) in [(100, 49), (3, 1), (1, 0)] {
            assert_eq!(stays(20, gone, back), FIRST_NS, "{gone} {back}");
        }
    }

    #[test]
    fn looks_are_a_tenth_of_that_time_apart() {
        let mut decay = Decay::new(Ablation::default());
        let idle = decay.due(MOST, MOST, 0).unwrap();
        assert!(idle.lists);
        decay.gave(MOST, idle, 0, More::No);
        assert_eq!(decay.due(MOST + FIRST_NS / LOOKS - 1, MOST, 0), None);
        let next = decay.due(MOST + FIRST_NS / LOOKS, MOST, 0).unwrap();
        assert!(!next.lists, "the lists were looked over a moment ago");
        decay.gave(MOST + FIRST_NS / LOOKS, next, 8, More::Maybe);
        assert!(decay.due(MOST + FIRST_NS / LOOKS, MOST, 0).is_some(), "there may be more");
    }
}
