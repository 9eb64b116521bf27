//! How fast an idle filler goes: when its next step may begin.
//!
//! Three things hold it back: that it was kept from its CPU ([`Rest`]), the rate that the operator
//! set, and, while others work on its node, a lower one, that they do not feel in the caches and
//! the memory they share. It rests before a step and not behind it, so that what is made lies
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

/// A step that was made.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// When it began, ns.
    pub began: u64,
    /// And ended.
    pub ended: u64,
    /// For so long of that it had a CPU, ns.
    pub cpu_ns: u64,
    /// What it populated.
    pub bytes: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Gait {
    rest: Rest,
    /// Not before this, for it was kept from its CPU, ns.
    rested_at: u64,
    /// Nor before this, for the rate.
    rated_at: u64,
    /// Nor before this while others work.
    calm_at: u64,
}

impl Gait {
    /// Takes note of a step, of an inode that is made at no more than `rate` bytes a second, and at
    /// no more than `calm` while others work.
    pub fn stepped(&mut self, step: Step, rate: Option<u64>, calm: Option<u64>) {
        let Step { began, ended, cpu_ns, bytes } = step;
        let paced = |rate: Option<u64>| match rate {
            Some(rate) => {
                let takes = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
                began.saturating_add(u64::try_from(takes).unwrap_or(u64::MAX))
            }
            None => began,
        };
        self.rested_at = ended + self.rest.after(ended.saturating_sub(began), cpu_ns);
        self.rated_at = paced(rate);
        self.calm_at = paced(calm);
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

    /// Somebody waits for what is made: others come second.
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
        gait.stepped(step(100 * MS), None, None);
        assert_eq!((gait.free_at(), gait.calm_at()), (108 * MS, 108 * MS));
    }

    #[test]
    fn a_rate_holds_from_the_beginning_of_one_step_to_the_next() {
        let mut gait = Gait::default();
        gait.stepped(step(100 * MS), Some(640 * MIB), None);
        assert_eq!((gait.free_at(), gait.calm_at()), (200 * MS, 200 * MS));
        // One that is above what can be reached is none; one of nothing is the end of filling.
        gait.stepped(step(200 * MS), Some(1 << 60), None);
        assert_eq!(gait.free_at(), 208 * MS);
        gait.stepped(step(300 * MS), Some(0), None);
        assert!(gait.free_at() > 64 * MIB * 1000 * MS);
    }

    #[test]
    fn beside_others_the_lower_rate_holds_until_somebody_waits() {
        let mut gait = Gait::default();
        gait.stepped(step(0), Some(640 * MIB), Some(320 * MIB));
        assert_eq!((gait.free_at(), gait.calm_at()), (100 * MS, 200 * MS));
        gait.hurry();
        assert_eq!((gait.free_at(), gait.calm_at()), (100 * MS, 100 * MS));
        gait.stepped(step(0), Some(320 * MIB), Some(640 * MIB));
        assert_eq!(gait.calm_at(), 200 * MS, "the operator's rate holds beside others, too");
    }

    #[test]
    fn what_holds_it_longest_is_said_unless_it_is_over_at_once() {
        let mut gait = Gait::default();
        let holds = |gait: &Gait, now| [false, true].map(|beside| gait.hold(now, beside));
        assert_eq!(holds(&gait, 0), [None, None]);
        gait.stepped(step(0), Some(640 * MIB), Some(320 * MIB));
        assert_eq!(holds(&gait, 8 * MS), [Some(Hold::Rate), Some(Hold::Neighbours)]);
        assert_eq!(holds(&gait, 95 * MS), [None, Some(Hold::Neighbours)]);
        let starved = |began| Step { cpu_ns: 4 * MS, ..step(began) };
        gait.stepped(starved(200 * MS), None, None);
        assert_eq!(gait.hold(208 * MS, true), None, "a rest of 4 ms");
        (0..3).for_each(|nth| gait.stepped(starved((300 + 100 * nth) * MS), None, None));
        assert_eq!(gait.hold(508 * MS, true), Some(Hold::Cpu));
    }

    #[test]
    fn who_was_kept_from_his_cpu_rests() {
        let mut gait = Gait::default();
        gait.stepped(Step { cpu_ns: 4 * MS, ..step(0) }, None, None);
        assert_eq!(gait.free_at(), 12 * MS);
    }
}
