//! When the next piece of work may be expected: a program that pauses alike each time is
//! looked for once near the end of its pause, and not all through it.
//!
//! To wake costs the CPU time of a hundred small clears. What was free is clear, so the next
//! work comes after the program has asked and freed again; the shortest of its last pauses
//! says when that may be. Told the time; reads no clock.

use super::{LATE_SHARE, NAP_MAX_NS, NAP_MIN_NS};

/// Pauses that are remembered: a long one does not hide that short ones are usual.
const KEPT: usize = 4;
/// The nap is so many quarters of the shortest pause: who sleeps over the next request takes
/// two bursts for one.
const QUARTERS: u64 = 3;
/// Longest nap by this rule, ns: what a program loses that begins to pause for less.
const MOST_NS: u64 = 4_000_000;

/// See the module.
pub(super) struct Rhythm {
    pauses: [u64; KEPT],
    next: usize,
    worked: u64,
}

impl Rhythm {
    pub(super) fn new(now: u64) -> Rhythm {
        Rhythm { pauses: [0; KEPT], next: 0, worked: now }
    }

    /// Work was found at `began`, and done at `ended`, ns.
    pub(super) fn note(&mut self, began: u64, ended: u64) {
        let pause = began.saturating_sub(self.worked);
        // What follows at once is a part of the same piece.
        if pause >= NAP_MIN_NS {
            self.pauses[self.next] = pause;
            self.next = (self.next + 1) % KEPT;
        }
        self.worked = ended;
    }

    /// ns since the last work.
    pub(super) fn since(&self, now: u64) -> u64 {
        now.saturating_sub(self.worked)
    }

    fn pause(&self) -> u64 {
        self.pauses.into_iter().min().unwrap_or(0)
    }

    /// First nap when all is done, ns.
    pub(super) fn first(&self) -> u64 {
        (self.pause() / 4 * QUARTERS).clamp(NAP_MIN_NS, MOST_NS)
    }

    /// The nap after the first, ns.
    pub(super) fn second(&self) -> u64 {
        (self.pause() / LATE_SHARE).clamp(NAP_MIN_NS, NAP_MAX_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Work of 100 us after each of these pauses.
    fn after(pauses: &[u64]) -> Rhythm {
        let (mut rhythm, mut now) = (Rhythm::new(0), 0);
        for pause in pauses {
            now += pause;
            rhythm.note(now, now + MS / 10);
            now += MS / 10;
        }
        rhythm
    }

    #[test]
    fn an_unknown_program_is_looked_at_soon() {
        assert_eq!(after(&[]).first(), NAP_MIN_NS);
        assert_eq!(after(&[3 * MS; KEPT - 1]).first(), NAP_MIN_NS);
    }

    #[test]
    fn equal_pauses_are_slept_through_for_the_most_part() {
        let rhythm = after(&[3 * MS; KEPT]);
        assert_eq!((rhythm.first(), rhythm.second()), (9 * MS / 4, 3 * MS / 8));
    }

    #[test]
    fn the_shortest_pause_of_late_counts() {
        assert_eq!(after(&[3 * MS, 300 * MS, 2 * MS, 3 * MS]).first(), 3 * MS / 2);
        assert_eq!(after(&[300 * MS; KEPT]).first(), MOST_NS);
        assert_eq!(after(&[MS, 8 * MS, 8 * MS, 8 * MS, 8 * MS]).first(), MOST_NS);
    }

    #[test]
    fn the_parts_of_one_piece_are_no_pauses() {
        let mut rhythm = after(&[3 * MS; KEPT]);
        for part in 0..10 {
            rhythm.note(100 * MS + part * MS / 10, 100 * MS + (part + 1) * MS / 10);
        }
        assert!(rhythm.first() > MS);
        assert_eq!(rhythm.since(101 * MS), 0);
        assert_eq!(rhythm.since(103 * MS), 2 * MS);
    }
}
