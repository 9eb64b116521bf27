//! When scrubd keeps out of a program that leaves it no time.
//!
//! A program that takes blocks back while they are cleared, and computes all the time, has no pause for scrubd.
//! scrubd then only competes with it for memory bandwidth. A program that does the same but sleeps now and then
//! gains, and so does one that uses the zeroes made beside it. So an aborted clear counts against scrubd only if
//! since the last abort the program was busy and used little of what was made. Told the time; reads no clock.

/// Part of a CPU that a busy program used between two aborts.
/// Moved by: `bench real --only sparse`.
const BUSY: f64 = 0.85;
/// For so long scrubd clears nothing after an abort by a busy program: at first, and at most. Each
/// time is twice as long as the one before.
/// Moved by: `bench grid --idle off --sizes 64M`, `bench real --only sparse`.
const HOLD_MIN_NS: u64 = 20_000_000;
const HOLD_MAX_NS: u64 = 640_000_000;

/// Part of the zeroes made since the last abort that a program must have used, as a divisor.
/// Moved by: `bench real --only sparse`.
const USED: u64 = 2;

/// What scrubd made and the program used, since the zone began.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Account {
    /// CPU time of the program, ns.
    pub(crate) cpu_ns: u64,
    /// Bytes that were made zero, and those of them that requests for zero found.
    pub(crate) made: u64,
    pub(crate) used: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Deference {
    /// When the last abort was seen, ns, and what the account was then.
    last_ns: u64,
    last: Account,
    aborts: u64,
    until: u64,
    hold: u64,
}

impl Deference {
    pub(crate) fn new() -> Deference {
        let last = Account::default();
        Deference { last_ns: 0, last, aborts: 0, until: 0, hold: HOLD_MIN_NS }
    }

    /// Whether scrubd should clear nothing now.
    pub(crate) fn holds(&self, now_ns: u64) -> bool {
        now_ns < self.until
    }

    /// Shows how many clears were aborted so far; the `account` is asked for only if there is a
    /// new one.
    pub(crate) fn observe(&mut self, now_ns: u64, aborts: u64, account: impl FnOnce() -> Account) {
        if aborts == self.aborts {
            return;
        }
        self.aborts = aborts;
        let (last, now) = (self.last, account());
        let wall = now_ns.saturating_sub(std::mem::replace(&mut self.last_ns, now_ns));
        self.last = now;
        let busy = now.cpu_ns.saturating_sub(last.cpu_ns) as f64 >= BUSY * wall as f64;
        let (made, used) = (now.made.saturating_sub(last.made), now.used.saturating_sub(last.used));
        if busy && used < made.div_ceil(USED).max(1) {
            self.until = now_ns + self.hold;
            self.hold = (self.hold * 2).min(HOLD_MAX_NS);
        } else {
            self.hold = HOLD_MIN_NS;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Aborts every `every` ms in a program that uses `share` of a CPU.
    fn after_aborts(n: u64, every: u64, share: f64) -> (Deference, u64) {
        let mut deference = Deference::new();
        let mut now = 0;
        for abort in 1..=n {
            now = abort * every * MS;
            deference.observe(now, abort, || busy((now as f64 * share) as u64));
        }
        (deference, now)
    }

    /// So much CPU time, and nothing made.
    fn busy(cpu_ns: u64) -> Account {
        Account { cpu_ns, ..Account::default() }
    }

    #[test]
    fn a_program_that_pauses_is_served_however_often_it_aborts() {
        let (deference, now) = after_aborts(100, 3, 0.5);
        assert!(!deference.holds(now));
    }

    #[test]
    fn a_program_that_never_pauses_is_left_alone_for_longer_and_longer() {
        let (deference, now) = after_aborts(3, 700, 1.0);
        assert!(deference.holds(now + 4 * HOLD_MIN_NS - 1));
        assert!(!deference.holds(now + 4 * HOLD_MIN_NS));
    }

    #[test]
    fn a_pause_is_noticed_at_the_next_abort() {
        let (mut deference, now) = after_aborts(10, 700, 1.0);
        let later = now + 700 * MS;
        deference.observe(later, 11, || busy(now));
        deference.observe(later + 3 * MS, 12, || busy(now + MS));
        assert!(!deference.holds(later + 3 * MS));
    }

    #[test]
    fn a_busy_program_is_served_while_it_uses_half_of_what_is_made() {
        for (used, held) in [(50, false), (49, true)] {
            let mut deference = Deference::new();
            for n in 1..=10 {
                let now = n * 100 * MS;
                let account = Account { cpu_ns: now, made: n * 100, used: n * used };
                deference.observe(now, n, || account);
                assert_eq!(deference.holds(now), held, "abort {n}, {used} of 100 used");
            }
        }
    }

    #[test]
    fn without_a_new_abort_nothing_is_asked() {
        let (mut deference, now) = after_aborts(1, 1, 0.0);
        deference.observe(now + 1, 1, || unreachable!("nothing new"));
    }
}
