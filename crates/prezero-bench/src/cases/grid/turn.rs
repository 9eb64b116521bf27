//! A player's turns in one cell of the grid: how long each burst is, and what of it counts.

use anyhow::Result;

use super::cell::{Passes, Timed};
use crate::worker::Burst;

/// Counted samples in one burst: few, so that the turns change often.
pub const BURST: usize = 3;
/// Without a pause, a burst opens with uncounted samples for about this long.
const OPENING_NS: f64 = 2_000_000.0;
/// And has at least this many rounds: after a rest those of a 64 MiB block take 6.5,
/// 6.3, 4.2, 2.6, 2.5 ms, until it lies in the shared cache again, under any allocator.
const OPENING_LEAST: f64 = 6.0;
/// Uncounted samples that open a burst with a pause: prezero's first rounds of 16 MiB, one line a
/// page, take 150, 90, 65, 35 us, those of the ideal, whose ways share their memory and so rest
/// less, 70 from the first on.
const OPENING_IDLE: usize = 4;

/// One allocator's part in one cell, or one way's of the ideal, or the bare loop's.
pub struct Turn {
    /// What each turn does.
    pub burst: Burst,
    /// Samples that open each burst and are not counted.
    opening: usize,
    samples: Vec<f64>,
}

impl Turn {
    /// Of samples that last at least `sample_ns`, by how long the ones of `tried` took. With a pause a
    /// sample is one round.
    pub fn new(tried: Burst, times: &[f64], sample_ns: f64) -> Turn {
        let fastest = times.iter().copied().fold(f64::MAX, f64::min) / tried.rounds as f64;
        let (rounds, opening) = match tried.idle_ns {
            0 => {
                let rounds = (sample_ns / fastest).ceil().clamp(1.0, 1e6);
                let opening = OPENING_NS.max(OPENING_LEAST * fastest) / (rounds * fastest);
                (rounds as usize, opening.ceil().min(10.0) as usize)
            }
            _ => (1, OPENING_IDLE),
        };
        let burst = Burst { rounds, samples: opening + BURST, ..tried };
        Turn { burst, opening, samples: vec![] }
    }

    /// One burst: what `run` says it took.
    pub fn take(&mut self, run: impl FnOnce(Burst) -> Result<Vec<f64>>) -> Result<()> {
        let times = run(self.burst)?;
        let counted = times[self.opening..].iter();
        self.samples.extend(counted.map(|ns| ns / self.burst.rounds as f64));
        Ok(())
    }

    /// What it took in this pass; `None` without samples.
    pub fn timed(self, who: &str) -> Option<Timed> {
        Some(Timed { who: who.into(), ns: Passes::of(self.samples)?, crowds: false })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_rounds_are_timed_many_at_a_time_and_long_ones_singly() {
        let tried = Burst { bytes: 65536, lines: 1, at: 0, samples: 2, rounds: 10, idle_ns: 0 };
        let short = Turn::new(tried, &[5000.0, 2000.0], 200_000.0);
        assert_eq!((short.burst.rounds, short.opening), (1000, 10));
        let long = Turn::new(Burst { rounds: 1, ..tried }, &[1e8, 1.1e8], 200_000.0);
        assert_eq!((long.burst.rounds, long.opening, long.burst.samples), (1, 6, 6 + BURST));
        let slices = Turn::new(Burst { rounds: 1, ..tried }, &[1e6], 24_000_000.0);
        assert_eq!((slices.burst.rounds, slices.opening), (24, 1), "which is 24 rounds");
        let paused = Turn::new(Burst { idle_ns: 3_000_000, ..tried }, &[2000.0], 200_000.0);
        assert_eq!((paused.burst.rounds, paused.opening), (1, OPENING_IDLE));
    }
}
