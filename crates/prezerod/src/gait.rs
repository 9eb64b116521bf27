//! How fast an idle filler goes: when its next step may begin.
//!
//! Three things hold it back: that it was kept from its CPU ([`Rest`]), the rate that the operator
//! set, and, while others work on its node, a part of the node's CPU time or a lower rate ([`Calm`]). It rests before a step and not behind it, so that what is made lies
//! ready at once, and so that many small inodes keep to a rate as one large does. Told the times;
//! reads no clock.

use serde::{Deserialize, Serialize};

use crate::rest::Rest;

/// What is over so soon is no reason, ns: nobody who looks would see it.
const BRIEF_NS: u64 = 10_000_000;

/// What keeps a filler from its next step.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Hold {
    /// Others wanted its CPU.
    Cpu,
    /// The operator's rate.
    Rate,
    /// The lower rate beside others at work.
    Neighbours,
}

/// How much a filler does while others work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Calm {
    /// At most this percentage of the CPU time of the node, also while no CPU is idle.
    Cpu(u32),
    /// At most this number of bytes a second for each CPU of the node, on CPUs that are idle.
    Rate(u64),
}

/// A step that was made.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// When it began, ns.
    pub began: u64,
    /// And ended.
    pub ended: u64,
    /// The time of that with a CPU, ns.
    pub cpu_ns: u64,
    /// What it populated.
    pub bytes: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Gait {
    rest: Rest,
    /// Not before this, for it was kept from its CPU, ns.
    rested_at: u64,
    /// Nor before this, for the rate.
    rated_at: u64,
    /// Nor before this while others work.
    calm_at: u64,
    /// Others wanted its CPU during the last step.
    kept: bool,
}

impl Default for Gait {
    fn default() -> Gait {
        // Whether a CPU is idle the first step shows.
        Gait { rest: Rest::new(), rested_at: 0, rated_at: 0, calm_at: 0, kept: true }
    }
}

impl Gait {
    /// Takes note of a step, of an inode that is made at no more than `rate` bytes a second, and with
    /// `calm` while others work on the node's `cpus`.
    pub fn stepped(&mut self, step: Step, rate: Option<u64>, calm: Option<Calm>, cpus: u64) {
        let Step { began, ended, cpu_ns, bytes } = step;
        let paced = |rate: Option<u64>| match rate {
            Some(rate) => {
                let takes = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
                began.saturating_add(u64::try_from(takes).unwrap_or(u64::MAX))
            }
            None => began,
        };
        let rest = self.rest.after(ended.saturating_sub(began), cpu_ns);
        self.kept = rest > 0;
        self.rested_at = ended + rest;
        self.rated_at = paced(rate);
        self.calm_at = match calm {
            None => began,
            Some(Calm::Rate(each)) => paced(Some(each.saturating_mul(cpus))),
            Some(Calm::Cpu(percent)) => {
                let share = u128::from(percent) * u128::from(cpus.max(1));
                let takes = match share {
                    0 => u128::MAX,
                    share => u128::from(cpu_ns) * 100 / share,
                };
                let at = began.saturating_add(u64::try_from(takes).unwrap_or(u64::MAX));
                // However busy others are, it has its part.
                self.rested_at = self.rested_at.min(at.max(ended));
                at
            }
        };
    }

    /// Whether the next step has its part of the CPU time though no CPU is idle.
    pub fn is_due(&self, calm: Option<Calm>, beside: bool) -> bool {
        matches!(calm, Some(Calm::Cpu(percent)) if percent > 0) && (beside || self.kept)
    }

    /// When the next step may begin if nobody else works, ns.
    pub fn free_at(&self) -> u64 {
        self.rested_at.max(self.rated_at)
    }

    /// And if others do.
    pub fn calm_at(&self) -> u64 {
        self.calm_at.max(self.free_at())
    }

    /// What keeps it longest from its next step, `beside` others at work or not.
    pub fn hold(&self, now: u64, beside: bool) -> Option<Hold> {
        let calm_at = if beside { self.calm_at } else { 0 };
        let holds =
            [(self.rested_at, Hold::Cpu), (self.rated_at, Hold::Rate), (calm_at, Hold::Neighbours)];
        let (until, hold) = holds.into_iter().max_by_key(|(until, _)| *until)?;
        (until > now + BRIEF_NS).then_some(hold)
    }

    /// A client waits for what is made: others come second.
    pub fn hurry(&mut self) {
        self.calm_at = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const MIB: u64 = 1 << 20;

    /// 64 MiB in 8 ms, on a CPU all the time.
    fn step(began: u64) -> Step {
        Step { began, ended: began + 8 * MS, cpu_ns: 8 * MS, bytes: 64 * MIB }
    }

    #[test]
    fn nothing_holds_a_filler_back_that_nobody_told_to_wait() {
        let mut gait = Gait::default();
        assert_eq!((gait.free_at(), gait.calm_at()), (0, 0));
        gait.stepped(step(100 * MS), None, None, 2);
        assert_eq!((gait.free_at(), gait.calm_at()), (108 * MS, 108 * MS));
    }

    #[test]
    fn a_rate_holds_from_the_beginning_of_one_step_to_the_next() {
        let mut gait = Gait::default();
        gait.stepped(step(100 * MS), Some(640 * MIB), None, 2);
        assert_eq!((gait.free_at(), gait.calm_at()), (200 * MS, 200 * MS));
        // One that is above what can be reached is none; one of nothing is the end of filling.
        gait.stepped(step(200 * MS), Some(1 << 60), None, 2);
        assert_eq!(gait.free_at(), 208 * MS);
        gait.stepped(step(300 * MS), Some(0), None, 2);
        assert!(gait.free_at() > 64 * MIB * 1000 * MS);
    }

    #[test]
    fn beside_others_the_lower_rate_holds_until_somebody_waits() {
        let mut gait = Gait::default();
        gait.stepped(step(0), Some(640 * MIB), Some(Calm::Rate(160 * MIB)), 2);
        assert_eq!((gait.free_at(), gait.calm_at()), (100 * MS, 200 * MS));
        gait.hurry();
        assert_eq!((gait.free_at(), gait.calm_at()), (100 * MS, 100 * MS));
        gait.stepped(step(0), Some(320 * MIB), Some(Calm::Rate(320 * MIB)), 2);
        assert_eq!(gait.calm_at(), 200 * MS, "the operator's rate holds beside others, too");
    }

    #[test]
    fn what_holds_it_longest_is_said_unless_it_is_over_at_once() {
        let mut gait = Gait::default();
        let holds = |gait: &Gait, now| [false, true].map(|beside| gait.hold(now, beside));
        assert_eq!(holds(&gait, 0), [None, None]);
        gait.stepped(step(0), Some(640 * MIB), Some(Calm::Rate(160 * MIB)), 2);
        assert_eq!(holds(&gait, 8 * MS), [Some(Hold::Rate), Some(Hold::Neighbours)]);
        assert_eq!(holds(&gait, 95 * MS), [None, Some(Hold::Neighbours)]);
        let starved = |began| Step { cpu_ns: 4 * MS, ..step(began) };
        gait.stepped(starved(200 * MS), None, None, 2);
        assert_eq!(gait.hold(208 * MS, true), None, "a rest of 4 ms");
        (0..3).for_each(|nth| gait.stepped(starved((300 + 100 * nth) * MS), None, None, 2));
        assert_eq!(gait.hold(508 * MS, true), Some(Hold::Cpu));
    }

    #[test]
    fn a_part_of_the_cpu_time_is_had_however_busy_others_are() {
        let calm = Some(Calm::Cpu(5));
        let mut gait = Gait::default();
        // 8 ms of a tenth of one CPU: two CPUs, 5 % of each.
        gait.stepped(step(0), None, calm, 2);
        assert_eq!((gait.free_at(), gait.calm_at()), (8 * MS, 80 * MS));
        assert!(!gait.is_due(calm, false) && gait.is_due(calm, true));
        // Kept from its CPU again and again: it rests for no longer than its part allows.
        for nth in 1..9 {
            let began = nth * 1000 * MS;
            gait.stepped(Step { ended: began + 40 * MS, ..step(began) }, None, calm, 2);
            assert!(gait.free_at() <= began + 80 * MS && gait.is_due(calm, false), "{nth}");
        }
        assert_eq!(gait.free_at(), 8080 * MS);
        let never = Some(Calm::Cpu(0));
        gait.stepped(step(0), None, never, 2);
        assert!(gait.calm_at() > 1000 * MS && !gait.is_due(never, true));
        let rate = Some(Calm::Rate(1 << 40));
        gait.stepped(step(0), None, rate, 2);
        assert!(!gait.is_due(rate, true), "only on CPUs that are idle");
    }

    #[test]
    fn who_was_kept_from_his_cpu_rests() {
        let mut gait = Gait::default();
        gait.stepped(Step { cpu_ns: 4 * MS, ..step(0) }, None, None, 2);
        assert_eq!(gait.free_at(), 12 * MS);
    }
}
