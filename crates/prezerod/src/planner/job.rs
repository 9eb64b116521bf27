//! One inode that is being made: what it will be, for which demand, and how far it is.

use crate::demand::Party;
use crate::filler::Priority;
use crate::filler::pacer::{BusyLimit, Throttle};
use crate::inode::Kind;
use crate::stock::Need;

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Job {
    /// The broker's number for it.
    pub serial: u64,
    /// What it will be.
    pub kind: Kind,
    /// How large.
    pub bytes: u64,
    /// For stock or for a client that waits.
    pub priority: Priority,
    /// Which of the fillers of its node and priority.
    pub lane: u8,
    /// The most bytes a second.
    pub rate: Option<u64>,
    /// How much of it while others work on the node; `None`: a client waits.
    pub busy_limit: Option<BusyLimit>,
    /// What it was asked for as.
    pub need: Need,
    /// Whose request it was begun for; `None`: the stock's.
    pub party: Option<Party>,
    /// When it was begun, ns.
    pub began: u64,
    /// How far it is.
    pub status: Status,
    /// How fast it goes, with all that holds it back.
    pub recent: Recent,
}

/// What a filler said last of its job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status {
    /// When that was, ns.
    pub heard: u64,
    /// What was left to make then, bytes.
    pub left: u64,
    /// What holds the filler back,
    pub throttle: Option<Throttle>,
    /// and to how many bytes a second.
    pub throttled_to: Option<u64>,
}

/// Bytes from which on a job's own pace is known: some steps of a filler, each of which is made at once.
/// Moved by: `tests/system/restart.py`.
const KNOWN: u64 = 256 << 20;
/// What is older than twice this time counts no more, ns: neighbours come and go.
/// Moved by: `tests/system/restart.py`.
const WINDOW_NS: u64 = 5_000_000_000;

/// A moment of a job: when, ns, and what was left to make, bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Mark {
    at: u64,
    left: u64,
}

/// The pace of a job between two moments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recent {
    from: Mark,
    /// Where the next window begins.
    next: Mark,
    last: Mark,
}

impl Recent {
    /// Of a job that begins.
    pub fn new(now: u64, bytes: u64) -> Recent {
        let begin = Mark { at: now, left: bytes };
        Recent { from: begin, next: begin, last: begin }
    }

    /// That much is left.
    pub fn heard(&mut self, now: u64, left: u64) {
        self.last = Mark { at: now, left };
        let made = self.next.left.saturating_sub(left);
        if made >= KNOWN && now.saturating_sub(self.next.at) >= WINDOW_NS {
            (self.from, self.next) = (self.next, self.last);
        }
    }

    /// Bytes a second; `None`: too little was made to know.
    pub fn pace(&self) -> Option<f64> {
        let made = self.from.left.saturating_sub(self.last.left);
        let ns = self.last.at.saturating_sub(self.from.at);
        (made >= KNOWN && ns > 0).then(|| made as f64 * 1e9 / ns as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn the_pace_is_known_from_some_steps_on_and_forgets_what_is_long_past() {
        let bytes = 64 * KNOWN;
        let mut recent = Recent::new(S, bytes);
        let mut left = bytes;
        recent.heard(2 * S, left - KNOWN + 1);
        assert_eq!(recent.pace(), None);
        // 64 steps a second, then a step each second: a word for each step.
        let step = KNOWN / 4;
        for nth in 1..=64 {
            left -= step;
            recent.heard(S + nth * S / 64, left);
        }
        assert_eq!(recent.pace(), Some(64.0 * step as f64));
        for nth in 1..=15 {
            left -= step;
            recent.heard(2 * S + nth * S, left);
        }
        assert_eq!(recent.pace(), Some(step as f64));
        // Nothing is made any more.
        for nth in 16..=25 {
            recent.heard(2 * S + nth * S, left);
        }
        assert!(recent.pace().unwrap() < step as f64);
    }
}
