//! The grid as data: what was measured, what it cost, and whether it is what was wanted.

use std::borrow::Borrow;
use std::collections::BTreeMap;

use anyhow::Result;
use prezero::Size;
use serde::{Deserialize, Serialize};

use super::machine::Machine;
use super::peers::{Allocator, Field, PREZERO};
use super::samples::{Spread, geometric_mean};
use super::worker::Worker;

/// What happens between the rounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// A pause.
    Idle,
    /// Nothing.
    BackToBack,
    /// Nothing, and another process keeps each CPU busy.
    Busy,
}

/// Everything measured.
#[derive(Debug, Serialize, Deserialize)]
pub struct Report {
    /// `grid`.
    pub benchmark: String,
    /// Taken on.
    pub machine: Machine,
    /// Taken with.
    #[serde(flatten)]
    pub field: Field,
    /// Samples asked for in each cell.
    pub runs: usize,
    /// The first line touched of each page.
    #[serde(default, skip_serializing_if = "is_first")]
    pub at: usize,
    /// One entry for each mode.
    pub modes: Vec<ModeReport>,
}

fn is_first(line: &usize) -> bool {
    *line == 0
}

/// One mode's grid.
#[derive(Debug, Serialize, Deserialize)]
pub struct ModeReport {
    /// Which.
    pub mode: Mode,
    /// Size by lines.
    pub cells: Vec<Cell>,
    /// One for each allocator.
    pub costs: Vec<Cost>,
}

/// One size and number of lines.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cell {
    /// Of the block.
    pub bytes: usize,
    /// Touched in each page.
    pub lines: usize,
    /// Before each sample; 0 for none.
    pub pause_ns: u64,
    /// One for each allocator, in the field's order.
    pub results: Vec<Measured>,
    /// The same rounds on scrubbed memory without an allocator, one entry for each way of
    /// scrubbing; without a pause a bare loop, which clears one block of its own again and again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ideal: Vec<Tried>,
    /// The fastest peer's malloc and free after a pause, nothing cleared or touched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<Tried>,
}

/// One allocator in one cell.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// Which.
    pub allocator: String,
    /// Rounds in each sample.
    pub rounds: usize,
    /// Of a round, in nanoseconds.
    pub ns: Spread,
    /// Minor faults for each round, uncounted ones included.
    pub faults_per_round: f64,
}

/// What was tried beside the allocators' rounds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Tried {
    /// Engine and place, or whose calls.
    pub way: String,
    /// Of a round, in nanoseconds.
    pub ns: Spread,
}

/// What an allocator used up in one mode, uncounted samples included.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub struct Cost {
    /// Which.
    pub allocator: String,
    /// CPU time in its own code, all threads.
    pub user_s: f64,
    /// CPU time in the kernel, all threads.
    pub system_s: f64,
    /// Of both, the scrubbing thread's; `None` where there is none.
    pub background_s: Option<f64>,
    /// Counters of the zone, summed over the workers; empty for others.
    pub counters: BTreeMap<String, u64>,
}

/// The counters that a report of costs shows.
const COUNTERS: [&str; 6] =
    ["scrubbed_bytes", "prefaulted_bytes", "waste_bytes", "unused_zero_bytes", "hits", "misses"];

impl Cell {
    /// Which.
    pub fn name(&self) -> String {
        format!("{} L={}", Size(self.bytes), self.lines)
    }

    /// Adds another pass over the same cell, by the same allocators and ways.
    pub fn add(&mut self, again: Cell) {
        for (result, again) in self.results.iter_mut().zip(again.results) {
            let share = again.ns.samples.len() as f64;
            let share = share / (share + result.ns.samples.len() as f64);
            result.faults_per_round += (again.faults_per_round - result.faults_per_round) * share;
            result.ns.add(again.ns);
        }
        for (tried, again) in self.ideal.iter_mut().zip(again.ideal) {
            tried.ns.add(again.ns);
        }
    }

    /// The fastest peer's time over prezero's, and that peer; `None` unless both ran.
    pub fn best(&self) -> Option<(f64, &str)> {
        self.best_beside(PREZERO)
    }

    /// The time of the fastest of the other peers over that of `one`, and that peer; `None` unless both ran.
    fn best_beside(&self, one: &str) -> Option<(f64, &str)> {
        let others = self.results.iter().filter(|r| r.allocator != PREZERO && r.allocator != one);
        let best = others.min_by(|a, b| a.ns.median.total_cmp(&b.ns.median))?;
        let one = self.results.iter().find(|result| result.allocator == one)?;
        Some((best.ns.median / one.ns.median, &best.allocator))
    }

    /// The way of scrubbing whose rounds were the fastest, or the bare loop.
    pub fn ideal(&self) -> Option<&Tried> {
        fastest(&self.ideal)
    }

    /// The ideal's time over prezero's.
    pub fn share_of_ideal(&self) -> Option<f64> {
        Some(self.ideal()?.ns.median / self.ours()?)
    }

    /// What no allocator can beat, in nanoseconds: the ideal, and after a pause a call to get the memory.
    fn limit(&self) -> Option<f64> {
        Some(self.ideal()?.ns.median + self.call.as_ref().map_or(0.0, |call| call.ns.median))
    }

    /// The limit's time over prezero's.
    pub fn share_of_limit(&self) -> Option<f64> {
        Some(self.limit()? / self.ours()?)
    }

    /// Of prezero, in nanoseconds.
    fn ours(&self) -> Option<f64> {
        let ours = self.results.iter().find(|result| result.allocator == PREZERO)?;
        Some(ours.ns.median)
    }
}

/// That with the least median.
pub fn fastest<T: Borrow<Tried>>(tried: impl IntoIterator<Item = T>) -> Option<T> {
    let median = |tried: &T| tried.borrow().ns.median;
    tried.into_iter().min_by(|a, b| median(a).total_cmp(&median(b)))
}

/// What the cells of a mode come to.
#[derive(Debug)]
pub struct Verdict<'a> {
    /// Geometric mean of the best peers' times over prezero's.
    pub mean: f64,
    /// The smallest of those ratios, and its cell.
    pub worst: (f64, &'a Cell),
    /// Cells where the ratio is below one.
    pub lost: usize,
    /// The smallest share of the ideal, and its cell.
    pub ideal: Option<(f64, &'a Cell)>,
    /// The best peers' times over the limit's: geometric mean, and the smallest of them.
    pub limit: Option<(f64, f64)>,
    /// The smallest share of the limit, and its cell.
    pub of_limit: Option<(f64, &'a Cell)>,
}

/// What a mode is to reach.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Geometric mean, at least.
    pub mean: Option<f64>,
    /// Worst cell, at least.
    pub worst: f64,
    /// Worst share of the ideal, at least.
    pub ideal: Option<f64>,
}

impl Mode {
    /// What it is to reach.
    pub fn wanted(self) -> Wanted {
        match self {
            Mode::Idle => Wanted { mean: Some(4.5), worst: 1.1, ideal: Some(0.85) },
            Mode::BackToBack | Mode::Busy => Wanted { mean: None, worst: 0.97, ideal: None },
        }
    }
}

impl ModeReport {
    /// `None` unless prezero and a peer ran.
    pub fn verdict(&self) -> Option<Verdict<'_>> {
        let ratios = self.cells.iter().filter_map(|cell| Some((cell.best()?.0, cell)));
        let shares = self.cells.iter().filter_map(|cell| Some((cell.share_of_ideal()?, cell)));
        let of_limit = self.cells.iter().filter_map(|cell| Some((cell.share_of_limit()?, cell)));
        let least = |a: &(f64, &Cell), b: &(f64, &Cell)| a.0.total_cmp(&b.0);
        Some(Verdict {
            mean: geometric_mean(ratios.clone().map(|(ratio, _)| ratio))?,
            worst: ratios.clone().min_by(least)?,
            lost: ratios.filter(|(ratio, _)| *ratio < 1.0).count(),
            ideal: shares.min_by(least),
            limit: limits(&self.cells),
            of_limit: of_limit.min_by(least),
        })
    }

    /// The peer that does best where each is held against the other peers, by its worst cell: who is
    /// level with the best loses cells by so much, to whichever of them was lucky there.
    pub fn yardstick(&self) -> Option<Yardstick<'_>> {
        let least = |a: &(f64, &Cell), b: &(f64, &Cell)| a.0.total_cmp(&b.0);
        let peers = self.cells.first()?.results.iter().map(|result| result.allocator.as_str());
        let judged = peers.filter(|&peer| peer != PREZERO).filter_map(|peer| {
            let ratios =
                self.cells.iter().filter_map(|cell| Some((cell.best_beside(peer)?.0, cell)));
            Some(Yardstick { peer, worst: ratios.min_by(least)? })
        });
        judged.max_by(|a, b| a.worst.0.total_cmp(&b.worst.0))
    }
}

/// How a peer does by the measure that prezero has to meet.
#[derive(Debug)]
pub struct Yardstick<'a> {
    /// Which.
    pub peer: &'a str,
    /// Its smallest ratio, and the cell.
    pub worst: (f64, &'a Cell),
}

fn limits(cells: &[Cell]) -> Option<(f64, f64)> {
    let ratio = |cell: &Cell| Some(cell.best()?.0 / cell.share_of_limit()?);
    let ratios = cells.iter().filter_map(ratio);
    Some((geometric_mean(ratios.clone())?, ratios.min_by(f64::total_cmp)?))
}

impl Cost {
    /// None yet.
    pub fn of(allocator: &Allocator) -> Cost {
        Cost { allocator: allocator.name.clone(), ..Cost::default() }
    }

    /// Adds what a worker used, and ends it.
    pub fn add(&mut self, mut worker: Worker) -> Result<()> {
        let (usage, background) = (worker.usage()?, worker.background_ns());
        self.user_s += usage.user_ns as f64 / 1e9;
        self.system_s += usage.system_ns as f64 / 1e9;
        if let Some(ns) = background {
            *self.background_s.get_or_insert(0.0) += ns as f64 / 1e9;
        }
        let stats = worker.finish()?;
        for (name, value) in stats.iter().flat_map(counters) {
            *self.counters.entry(name).or_default() += value;
        }
        Ok(())
    }
}

/// What a zone's statistics say that bears on cost.
pub fn counters(stats: &serde_json::Value) -> BTreeMap<String, u64> {
    let named = |name: &str| Some((name.to_string(), number(stats, name)?));
    COUNTERS.into_iter().filter_map(named).collect()
}

/// The number called `name`, however deep it lies.
pub fn number(json: &serde_json::Value, name: &str) -> Option<u64> {
    let object = json.as_object()?;
    let here = object.get(name).and_then(serde_json::Value::as_u64);
    here.or_else(|| object.values().find_map(|inner| number(inner, name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_wherever_they_lie() {
        let json = serde_json::json!({"pid": 1, "counters": {"scrubd": {"scrubbed_bytes": 7}}});
        assert_eq!(number(&json, "scrubbed_bytes"), Some(7));
        assert_eq!(number(&json, "waste_bytes"), None);
    }

    #[test]
    fn the_ideal_is_the_best_way_of_the_cell() {
        let spread = |ns| Spread::of(vec![ns]).unwrap();
        let measured = |name: &str, ns| Measured {
            allocator: name.into(),
            rounds: 1,
            ns: spread(ns),
            faults_per_round: 0.0,
        };
        let tried = |way: &str, ns| Tried { way: way.into(), ns: spread(ns) };
        let mut cell = Cell {
            bytes: 65536,
            lines: 1,
            pause_ns: 3_000_000,
            results: vec![measured("glibc", 400.0), measured(PREZERO, 200.0)],
            ideal: vec![tried("stosb away", 300.0), tried("stosb home", 160.0)],
            call: Some(tried("tcmalloc", 30.0)),
        };
        assert_eq!(cell.ideal().unwrap().way, "stosb home");
        assert_eq!(cell.share_of_ideal(), Some(0.8));
        assert_eq!(cell.share_of_limit(), Some(0.95), "which has a call in it");
        assert_eq!(cell.best(), Some((2.0, "glibc")));
        let (faults, mut again) = (1.0, cell.clone());
        again.results[1] =
            Measured { ns: spread(300.0), faults_per_round: faults, ..again.results[1].clone() };
        cell.add(again);
        assert_eq!((cell.best().unwrap().0, cell.results[1].faults_per_round), (1.6, 0.5));
        cell.ideal.clear();
        assert_eq!((cell.share_of_ideal(), cell.share_of_limit()), (None, None));
    }
}
