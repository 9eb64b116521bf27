//! Runs of one workload with all mechanisms and without some, in turns.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::left::Left;
use super::metric::{self, Figures, LEADING};
use super::run::{Ready, Stage};
use crate::figure::Sheet;
use crate::peers::Allocator;
use crate::progress::{self, Interrupted, step};

/// Pairs of a row, at least.
const LEAST: usize = 3;
/// The pairs from which on their noise is believed.
const BELIEVED: usize = 10;
/// A row ends early when its times and its CPU time are known so well.
const KNOWN: f64 = 0.005;

/// What was taken so far: with all mechanisms first, then without each of `left`.
pub struct Runs<'a> {
    left: &'a [Left],
    allocators: Vec<Allocator>,
    /// How many run at once.
    at_once: usize,
    taken: Vec<Vec<Figures>>,
    /// How the first of them ended that did not end well.
    ended: Vec<Option<String>>,
}

impl<'a> Runs<'a> {
    /// None yet.
    pub fn begin(ours: &Allocator, left: &'a [Left], at_once: usize) -> Runs<'a> {
        let without = left.iter().map(|left| left.under(ours));
        let allocators: Vec<_> = [ours.clone()].into_iter().chain(without).collect();
        let count = allocators.len();
        Runs { left, allocators, at_once, taken: vec![vec![]; count], ended: vec![None; count] }
    }

    /// Forth and back until the time is up or all is known.
    ///
    /// # Errors
    /// An interruption; or one with all mechanisms did not end well.
    pub fn take(
        &mut self,
        stage: &Stage,
        ready: &Ready<'_>,
        workload: &str,
        budget: Duration,
    ) -> Result<()> {
        for left in self.left {
            step(&format!("ablate: {workload} without {}", left.name()))?;
        }
        if matches!(ready, Ready::Real(..)) {
            // One that does not count has its program and its input in the page cache then.
            stage.run(ready, &[&self.allocators[0]])?;
        }
        let began = Instant::now();
        for turn in 0.. {
            let enough = turn >= LEAST && began.elapsed() >= budget;
            if enough || turn >= BELIEVED && self.are_known() {
                break;
            }
            self.turn(stage, ready, turn)?;
        }
        Ok(())
    }

    /// One run of each, the other way round each second time.
    fn turn(&mut self, stage: &Stage, ready: &Ready<'_>, nth: usize) -> Result<()> {
        let mut order: Vec<_> = (0..self.allocators.len()).collect();
        if nth % 2 == 1 {
            order.reverse();
        }
        order.retain(|&which| self.ended[which].is_none());
        let mut fresh = vec![];
        for some in order.chunks(self.at_once) {
            if progress::interrupted() {
                return Err(Interrupted.into());
            }
            let under: Vec<_> = some.iter().map(|&which| &self.allocators[which]).collect();
            for (&which, taken) in some.iter().zip(stage.run(ready, &under)?) {
                match taken {
                    Ok(figures) => fresh.push((which, figures)),
                    Err(error) if which > 0 => self.ended[which] = Some(format!("{error:#}")),
                    Err(error) => return Err(error),
                }
            }
        }
        fresh.into_iter().for_each(|(which, figures)| self.taken[which].push(figures));
        Ok(())
    }

    fn each(&self) -> impl Iterator<Item = (&Left, &Vec<Figures>)> {
        self.left.iter().zip(&self.taken[1..])
    }

    /// Adds what was taken.
    pub fn put(&self, sheet: &mut Sheet, workload: &str) {
        for (left, without) in self.each() {
            metric::add(sheet, [&left.name(), workload], &self.taken[0], without);
        }
        for (left, ended) in self.left.iter().zip(&self.ended[1..]) {
            let say = |how| format!("{workload} without {}: {how}", left.name());
            sheet.says.extend(ended.as_ref().map(say));
        }
    }

    fn are_known(&self) -> bool {
        self.each().all(|(_, without)| {
            LEADING.into_iter().all(|leading| {
                let change = metric::change(&self.taken[0], without, leading);
                change.is_none_or(|change| change.noise <= KNOWN)
            })
        })
    }
}
