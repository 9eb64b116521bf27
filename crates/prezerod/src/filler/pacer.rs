//! How fast an idle filler goes: when its next step may begin.
//!
//! Three things hold it back: that it was kept from its CPU ([`Backoff`]), the rate that the operator
//! set, and, while others work on its node, a part of the node's CPU time or a lower rate ([`BusyLimit`]). It waits before a step
//! and not behind it, so that what is made lies
//! ready at once, and so that many small inodes keep to a rate as one large does. Told the times;
//! reads no clock.

use serde::{Deserialize, Serialize};

use super::backoff::Backoff;

/// What is over so soon is no reason, ns: no report would show it.
const BRIEF_NS: u64 = 10_000_000;

/// What keeps a filler from its next step.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Throttle {
    /// Others wanted its CPU.
    Cpu,
    /// The operator's rate.
    Rate,
    /// The lower rate beside others at work.
    Neighbours,
}

/// How much a filler does while others work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum BusyLimit {
    /// At most this percentage of the CPU time of the node, also while no CPU is idle.
    Cpu(u32),
    /// At most this number of bytes a second for each CPU of the node, on CPUs that are idle.
    Rate(u64),
}

impl BusyLimit {
    /// What each of that number of fillers may do.
    pub fn shared(self, fillers: u64) -> BusyLimit {
        match self {
            BusyLimit::Cpu(0) => self,
            BusyLimit::Cpu(percent) => BusyLimit::Cpu((percent / fillers as u32).max(1)),
            BusyLimit::Rate(rate) => BusyLimit::Rate(rate / fillers),
        }
    }
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
pub struct Pacer {
    backoff: Backoff,
    /// Not before this, for it was kept from its CPU, ns.
    backoff_at: u64,
    /// Nor before this, for the rate.
    rated_at: u64,
    /// Nor before this while others work.
    busy_at: u64,
    /// Others wanted its CPU during the last step.
    kept: bool,
}

impl Default for Pacer {
    fn default() -> Pacer {
        // Whether a CPU is idle the first step shows.
        Pacer { backoff: Backoff::new(), backoff_at: 0, rated_at: 0, busy_at: 0, kept: true }
    }
}

impl Pacer {
    /// Takes note of a step, of an inode that is made at no more than `rate` bytes a second, and with
    /// `busy_limit` while others work on the node's `cpus`.
    pub fn stepped(
        &mut self,
        step: Step,
        rate: Option<u64>,
        busy_limit: Option<BusyLimit>,
        cpus: u64,
    ) {
        let Step { began, ended, cpu_ns, bytes } = step;
        let paced = |rate: Option<u64>| match rate {
            Some(rate) => {
                let takes = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
                began.saturating_add(u64::try_from(takes).unwrap_or(u64::MAX))
            }
            None => began,
        };
        let backoff = self.backoff.after(ended.saturating_sub(began), cpu_ns);
        self.kept = backoff > 0;
        self.backoff_at = ended + backoff;
        self.rated_at = paced(rate);
        self.busy_at = match busy_limit {
            None => began,
            Some(BusyLimit::Rate(each)) => paced(Some(each.saturating_mul(cpus))),
            Some(BusyLimit::Cpu(percent)) => {
                let share = u128::from(percent) * u128::from(cpus.max(1));
                let takes = match share {
                    0 => u128::MAX,
                    share => u128::from(cpu_ns) * 100 / share,
                };
                let at = began.saturating_add(u64::try_from(takes).unwrap_or(u64::MAX));
                // However busy others are, it has its part.
                self.backoff_at = self.backoff_at.min(at.max(ended));
                at
            }
        };
    }

    /// Whether the next step has its part of the CPU time though no CPU is idle.
    pub fn is_due(&self, busy_limit: Option<BusyLimit>, beside: bool) -> bool {
        matches!(busy_limit, Some(BusyLimit::Cpu(percent)) if percent > 0) && (beside || self.kept)
    }

    /// When the next step may begin if no other process works, ns.
    pub fn free_at(&self) -> u64 {
        self.backoff_at.max(self.rated_at)
    }

    /// And if others do.
    pub fn busy_at(&self) -> u64 {
        self.busy_at.max(self.free_at())
    }

    /// What keeps it longest from its next step, `beside` others at work or not.
    pub fn throttle(&self, now: u64, beside: bool) -> Option<Throttle> {
        let busy_at = if beside { self.busy_at } else { 0 };
        let throttles = [
            (self.backoff_at, Throttle::Cpu),
            (self.rated_at, Throttle::Rate),
            (busy_at, Throttle::Neighbours),
        ];
        let (until, throttle) = throttles.into_iter().max_by_key(|(until, _)| *until)?;
        (until > now + BRIEF_NS).then_some(throttle)
    }

    /// A client waits for what is made: others come second.
    pub fn promote(&mut self) {
        self.busy_at = 0;
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
        let mut pacer = Pacer::default();
        assert_eq!((pacer.free_at(), pacer.busy_at()), (0, 0));
        pacer.stepped(step(100 * MS), None, None, 2);
        assert_eq!((pacer.free_at(), pacer.busy_at()), (108 * MS, 108 * MS));
    }

    #[test]
    fn a_rate_holds_from_the_beginning_of_one_step_to_the_next() {
        let mut pacer = Pacer::default();
        pacer.stepped(step(100 * MS), Some(640 * MIB), None, 2);
        assert_eq!((pacer.free_at(), pacer.busy_at()), (200 * MS, 200 * MS));
        // One that is above what can be reached is none; one of nothing is the end of filling.
        pacer.stepped(step(200 * MS), Some(1 << 60), None, 2);
        assert_eq!(pacer.free_at(), 208 * MS);
        pacer.stepped(step(300 * MS), Some(0), None, 2);
        assert!(pacer.free_at() > 64 * MIB * 1000 * MS);
    }

    #[test]
    fn beside_others_the_lower_rate_holds_until_somebody_waits() {
        let mut pacer = Pacer::default();
        pacer.stepped(step(0), Some(640 * MIB), Some(BusyLimit::Rate(160 * MIB)), 2);
        assert_eq!((pacer.free_at(), pacer.busy_at()), (100 * MS, 200 * MS));
        pacer.promote();
        assert_eq!((pacer.free_at(), pacer.busy_at()), (100 * MS, 100 * MS));
        pacer.stepped(step(0), Some(320 * MIB), Some(BusyLimit::Rate(320 * MIB)), 2);
        assert_eq!(pacer.busy_at(), 200 * MS, "the operator's rate holds beside others, too");
    }

    #[test]
    fn what_holds_it_longest_is_said_unless_it_is_over_at_once() {
        let mut pacer = Pacer::default();
        let throttles =
            |pacer: &Pacer, now| [false, true].map(|beside| pacer.throttle(now, beside));
        assert_eq!(throttles(&pacer, 0), [None, None]);
        pacer.stepped(step(0), Some(640 * MIB), Some(BusyLimit::Rate(160 * MIB)), 2);
        assert_eq!(throttles(&pacer, 8 * MS), [Some(Throttle::Rate), Some(Throttle::Neighbours)]);
        assert_eq!(throttles(&pacer, 95 * MS), [None, Some(Throttle::Neighbours)]);
        let starved = |began| Step { cpu_ns: 4 * MS, ..step(began) };
        pacer.stepped(starved(200 * MS), None, None, 2);
        assert_eq!(pacer.throttle(208 * MS, true), None, "a backoff of 4 ms");
        (0..3).for_each(|nth| pacer.stepped(starved((300 + 100 * nth) * MS), None, None, 2));
        assert_eq!(pacer.throttle(508 * MS, true), Some(Throttle::Cpu));
    }

    #[test]
    fn a_part_of_the_cpu_time_is_had_however_busy_others_are() {
        let busy_limit = Some(BusyLimit::Cpu(5));
        let mut pacer = Pacer::default();
        // 8 ms of a tenth of one CPU: two CPUs, 5 % of each.
        pacer.stepped(step(0), None, busy_limit, 2);
        assert_eq!((pacer.free_at(), pacer.busy_at()), (8 * MS, 80 * MS));
        assert!(!pacer.is_due(busy_limit, false) && pacer.is_due(busy_limit, true));
        // Kept from its CPU again and again: it backs off for no longer than its part allows.
        for nth in 1..9 {
            let began = nth * 1000 * MS;
            pacer.stepped(Step { ended: began + 40 * MS, ..step(began) }, None, busy_limit, 2);
            assert!(pacer.free_at() <= began + 80 * MS && pacer.is_due(busy_limit, false), "{nth}");
        }
        assert_eq!(pacer.free_at(), 8080 * MS);
        let never = Some(BusyLimit::Cpu(0));
        pacer.stepped(step(0), None, never, 2);
        assert!(pacer.busy_at() > 1000 * MS && !pacer.is_due(never, true));
        let rate = Some(BusyLimit::Rate(1 << 40));
        pacer.stepped(step(0), None, rate, 2);
        assert!(!pacer.is_due(rate, true), "only on CPUs that are idle");
    }

    #[test]
    fn who_was_kept_from_his_cpu_rests() {
        let mut pacer = Pacer::default();
        pacer.stepped(Step { cpu_ns: 4 * MS, ..step(0) }, None, None, 2);
        assert_eq!(pacer.free_at(), 12 * MS);
    }
}
