//! The grid as data: what was measured, what it cost, and whether it is what was wanted.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use prezero::Size;
use serde::{Deserialize, Serialize};

use super::machine::Machine;
use super::peers::{Allocator, Field, PREZERO};
use super::samples::{Change, Judged, Spread, judge};
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
    /// Each peer's malloc and free after a pause, nothing cleared or touched.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<Tried>,
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
    /// The median of each pass, by processes of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passes: Vec<f64>,
    /// Minor faults for each round, uncounted ones included.
    pub faults_per_round: f64,
}

/// What was tried beside the allocators' rounds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Tried {
    /// Engine and place, or whose calls.
    pub way: String,
    /// Whether it takes more of a cache that others use as well than prezero may.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub crowds: bool,
    /// Of a round, in nanoseconds.
    pub ns: Spread,
    /// The median of each pass.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passes: Vec<f64>,
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

/// A peer that takes at most so many times what the fastest takes may turn out to be the fastest.
const CONTENDS: f64 = 1.1;
/// Of the limit, what is as good as it.
pub const NEAR_LIMIT: f64 = 0.9;
/// The counters that a report of costs shows.
const COUNTERS: [&str; 5] =
    ["scrubbed_bytes", "waste_bytes", "unused_zero_bytes", "hits", "misses"];

impl Cell {
    /// Which.
    pub fn name(&self) -> String {
        format!("{} L={}", Size(self.bytes), self.lines)
    }

    /// Adds another pass over the same cell, by the same ways and some or all of the allocators.
    pub fn add(&mut self, again: Cell) {
        for again in again.results {
            let same = |result: &&mut Measured| result.allocator == again.allocator;
            let Some(result) = self.results.iter_mut().find(same) else { continue };
            let share = again.ns.samples.len() as f64;
            let share = share / (share + result.ns.samples.len() as f64);
            result.faults_per_round += (again.faults_per_round - result.faults_per_round) * share;
            result.ns.add(again.ns);
            result.passes.extend(again.passes);
        }
        let ideal = self.ideal.iter_mut().zip(again.ideal);
        for (tried, again) in ideal.chain(self.calls.iter_mut().zip(again.calls)) {
            tried.ns.add(again.ns);
            tried.passes.extend(again.passes);
        }
    }

    /// The fastest peer's time over prezero's, and that peer; `None` unless both ran.
    pub fn best(&self) -> Option<(f64, &str)> {
        self.best_beside(PREZERO)
    }

    /// The time of the fastest of the other peers over that of `one`, and that peer; `None` unless both ran.
    pub fn best_beside(&self, one: &str) -> Option<(f64, &str)> {
        let others = self.results.iter().filter(|r| r.allocator != PREZERO && r.allocator != one);
        let best = others.min_by(|a, b| a.ns.median.total_cmp(&b.ns.median))?;
        let one = self.results.iter().find(|result| result.allocator == one)?;
        Some((best.ns.median / one.ns.median, &best.allocator))
    }

    /// By how much the best peer's time over prezero's may be off; `None` unless both had the same passes, and
    /// more than one. What differs from pass to pass is most of the noise: the memory that a process has.
    pub fn noise(&self) -> Option<f64> {
        let (ratio, peer) = self.best()?;
        let best = self.results.iter().find(|result| result.allocator == peer)?;
        self.noise_of(ratio, best.passes.clone())
    }

    /// By how much a time over prezero's may be off that took so long in each pass.
    fn noise_of(&self, ratio: f64, passes: Vec<f64>) -> Option<f64> {
        let ours = self.results.iter().find(|result| result.allocator == PREZERO)?.passes.clone();
        if ours.len() < 2 {
            return None;
        }
        let Change { change, noise } = Change::of(&Spread::of(passes)?, &Spread::of(ours)?)?;
        // It is told of the medians of all samples.
        Some(noise + (ratio - 1.0 - change).abs())
    }

    /// Whether that is within `least` of a peer's best, as far as the noise lets one say.
    pub fn judged(&self, least: f64) -> Option<Judged> {
        let ((ratio, _), noise) = (self.best()?, self.noise().unwrap_or(0.0));
        // Slower by more than so much is beyond the bound.
        Some(judge(Change { change: least - ratio, noise }, 0.0))
    }

    /// The peers that may be the fastest in some such cell, and prezero.
    pub fn contenders(cells: &[Cell]) -> BTreeSet<String> {
        let near = |cell: &Cell| {
            let best = cell.best().map_or(f64::MAX, |(_, peer)| cell.median(peer));
            let near = |result: &&Measured| {
                result.allocator == PREZERO || result.ns.median <= CONTENDS * best
            };
            cell.results.iter().filter(near).map(|r| r.allocator.clone()).collect::<Vec<_>>()
        };
        cells.iter().flat_map(near).collect()
    }

    fn median(&self, allocator: &str) -> f64 {
        let of = self.results.iter().find(|result| result.allocator == allocator);
        of.map_or(f64::MAX, |result| result.ns.median)
    }

    /// The way of scrubbing whose rounds were the fastest, or the bare loop.
    pub fn ideal(&self) -> Option<&Tried> {
        fastest(&self.ideal)
    }

    /// The ideal's time over prezero's.
    pub fn share_of_ideal(&self) -> Option<f64> {
        Some(self.ideal()?.ns.median / self.ours()?)
    }

    /// The ideal of those that leave others their cache.
    fn sparing(&self) -> Option<&Tried> {
        fastest(self.ideal.iter().filter(|tried| !tried.crowds))
    }

    /// What no allocator can beat that spares others, in nanoseconds: the ideal that does, and after a pause a
    /// call to get the memory.
    fn limit(&self) -> Option<f64> {
        Some(self.sparing()?.ns.median + fastest(&self.calls).map_or(0.0, |call| call.ns.median))
    }

    /// The limit's time over prezero's.
    pub fn share_of_limit(&self) -> Option<f64> {
        Some(self.limit()? / self.ours()?)
    }

    /// Whether that is as good as the limit, as far as the noise lets one say.
    pub fn judged_by_limit(&self) -> Option<Judged> {
        let (share, ideal) = (self.share_of_limit()?, self.sparing()?);
        let calls = fastest(&self.calls).map_or(&[][..], |calls| &calls.passes);
        let with_call = |(n, ideal): (usize, &f64)| ideal + calls.get(n).unwrap_or(&0.0);
        let limit = ideal.passes.iter().enumerate().map(with_call).collect();
        let noise = self.noise_of(share, limit).unwrap_or(0.0);
        Some(judge(Change { change: NEAR_LIMIT - share, noise }, 0.0))
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
            passes: vec![ns],
            faults_per_round: 0.0,
        };
        let tried = |way: &str, ns| Tried {
            way: way.into(),
            crowds: false,
            ns: spread(ns),
            passes: vec![ns],
        };
        let mut cell = Cell {
            bytes: 65536,
            lines: 1,
            pause_ns: 3_000_000,
            results: vec![measured("glibc", 400.0), measured(PREZERO, 200.0)],
            ideal: vec![tried("stosb away", 300.0), tried("stosb home", 160.0)],
            calls: vec![tried("glibc", 50.0), tried("tcmalloc", 30.0)],
        };
        assert_eq!(cell.ideal().unwrap().way, "stosb home");
        assert_eq!(cell.share_of_ideal(), Some(0.8));
        assert_eq!(cell.share_of_limit(), Some(0.95), "which has a call in it");
        cell.ideal.push(Tried { crowds: true, ..tried("plain home", 120.0) });
        assert_eq!(cell.share_of_ideal(), Some(0.6), "whatever it does to others");
        assert_eq!(cell.share_of_limit(), Some(0.95), "which spares them");
        assert_eq!(cell.best(), Some((2.0, "glibc")));
        let (faults, mut again) = (1.0, cell.clone());
        again.results[1] =
            Measured { ns: spread(300.0), faults_per_round: faults, ..again.results[1].clone() };
        cell.add(again);
        assert_eq!((cell.best().unwrap().0, cell.results[1].faults_per_round), (1.6, 0.5));
        cell.ideal.clear();
        assert_eq!((cell.share_of_ideal(), cell.share_of_limit()), (None, None));
    }

    /// A cell in which allocators took so long in each pass.
    fn passes(results: &[(&str, &[f64])]) -> Cell {
        let measured = |&(name, passes): &(&str, &[f64])| Measured {
            allocator: name.into(),
            rounds: 1,
            ns: Spread::of(passes.to_vec()).unwrap(),
            passes: passes.to_vec(),
            faults_per_round: 0.0,
        };
        let results = results.iter().map(measured).collect();
        Cell { bytes: 65536, lines: 1, pause_ns: 0, results, ideal: vec![], calls: vec![] }
    }

    #[test]
    fn a_cell_is_as_good_as_the_limit_where_its_passes_say_so() {
        let mut cell = passes(&[("glibc", &[400.0; 3]), (PREZERO, &[100.0; 3])]);
        let tried = |passes: [f64; 3]| Tried {
            way: "stosb home".into(),
            crowds: false,
            ns: Spread::of(passes.to_vec()).unwrap(),
            passes: passes.to_vec(),
        };
        assert_eq!(cell.judged_by_limit(), None, "there is none");
        cell.ideal = vec![tried([85.0; 3])];
        assert_eq!(cell.judged_by_limit(), Some(Judged::Beyond));
        cell.calls = vec![tried([10.0; 3])];
        assert_eq!(cell.judged_by_limit(), Some(Judged::Within), "a call belongs to it");
        cell.ideal = vec![tried([70.0, 85.0, 95.0])];
        assert_eq!(cell.judged_by_limit(), Some(Judged::Unclear));
    }

    #[test]
    fn what_differs_from_pass_to_pass_is_noise_and_what_drifts_in_all_is_none() {
        let drifts = passes(&[("glibc", &[95.0, 190.0, 285.0]), (PREZERO, &[100.0, 200.0, 300.0])]);
        assert!(drifts.noise().unwrap() < 1e-9);
        assert_eq!(drifts.judged(0.97), Some(Judged::Beyond));
        assert_eq!(drifts.judged(0.9), Some(Judged::Within));
        let noisy = passes(&[("glibc", &[95.0, 95.0, 120.0]), (PREZERO, &[100.0, 100.0, 100.0])]);
        assert!((noisy.noise().unwrap() - 0.25).abs() < 1e-9);
        assert_eq!(noisy.judged(0.97), Some(Judged::Unclear));
        assert_eq!(passes(&[("glibc", &[1.0]), (PREZERO, &[1.0])]).noise(), None, "one pass");
    }

    #[test]
    fn who_may_be_the_fastest_goes_on_and_is_added_to() {
        let mut cells = [
            passes(&[("a", &[100.0]), ("b", &[109.0]), ("c", &[200.0]), (PREZERO, &[500.0])]),
            passes(&[("a", &[100.0]), ("b", &[300.0]), ("c", &[120.0]), (PREZERO, &[50.0])]),
        ];
        let contenders = Cell::contenders(&cells);
        assert_eq!(contenders.iter().map(String::as_str).collect::<Vec<_>>(), ["a", "b", PREZERO]);
        cells[0].add(passes(&[("b", &[111.0]), (PREZERO, &[400.0])]));
        let passes_of = |nth: usize| cells[0].results[nth].passes.clone();
        assert_eq!((passes_of(0), passes_of(1)), (vec![100.0], vec![109.0, 111.0]));
        assert_eq!(passes_of(3), [500.0, 400.0]);
    }
}
