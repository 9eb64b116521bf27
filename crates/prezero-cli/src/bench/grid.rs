//! `prezero bench grid`: allocate zeroed, touch L lines of each page, free.
//!
//! Each size has one long-lived worker for each allocator. For each cell they take turns:
//! a burst of a few samples each, the order rotated, until every one has as many as
//! asked for. What drifts (frequency, neighbours on the host) so falls on all alike. Each burst
//! opens with samples that are not counted, because its worker has just sat through
//! everybody else's turn, longer than any pause that the cell is about: state that a long
//! rest leaves (scrubbed stock, purged pages) is used up first.

use std::str::FromStr;

use anyhow::{Result, ensure};
use prezero::Size;
use serde::{Deserialize, Serialize};

use super::machine::Machine;
use super::peers::{Allocator, Field};
use super::samples::Spread;
use super::scratch::Scratch;
use super::worker::{Burst, Touch, Worker};
use super::{grid_table, progress};

/// Samples in each cell, at least.
const MIN_RUNS: usize = 15;
/// Counted samples in one burst: few, so that the turns change often.
const BURST: usize = 3;
/// Uncounted samples of each allocator before a cell's first burst.
const WARM_UP: usize = 4;
/// A sample without a pause lasts at least this long: the clock costs 0.02 us a reading.
const SAMPLE_NS: f64 = 200_000.0;
/// Without a pause, what opens a burst uncounted lasts about this long.
const OPENING_NS: f64 = 2_000_000.0;
/// And has at least this many samples: after a rest the rounds of a 64 MiB block take 6.5,
/// 6.3, 4.2, 2.6, 2.5 ms, until it lies in the shared cache again, whoever allocates it.
const OPENING_LEAST: f64 = 6.0;
/// The pause of idle mode, at least.
const PAUSE_NS: u64 = 3_000_000;
/// In idle mode the pause lets a scrubber of this rate clear the block: bytes per ns.
const SCRUB_RATE: u64 = 8;
/// Memory that is faulted in and given back before anything is measured, at least.
const WARM_BYTES: usize = 1 << 30;

/// The command line of `prezero bench grid`.
#[derive(clap::Args)]
pub struct Grid {
    /// Print everything as JSON instead of a table
    #[arg(long)]
    json: bool,
    /// Only 64K, 1M and 16M with 1 and 64 lines (unless --sizes, --lines say otherwise)
    #[arg(long)]
    quick: bool,
    /// Samples in each cell, 15 or more
    #[arg(long, value_name = "N", default_value_t = MIN_RUNS)]
    runs: usize,
    /// Block sizes, whole pages
    #[arg(long, value_delimiter = ',', value_name = "SIZE,...", value_parser = whole_pages)]
    sizes: Vec<usize>,
    /// Cache lines touched in each page, 1 to 64
    #[arg(long, value_delimiter = ',', value_name = "L,...", value_parser = lines_of_a_page)]
    lines: Vec<usize>,
    /// Between rounds: a pause (on), none (off), none and every CPU busy, or all three
    #[arg(long, value_enum, default_value = "all")]
    idle: Idle,
    /// Which peers: glibc, glibc-keep, jemalloc, mimalloc, tcmalloc [all]
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    peers: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Idle {
    On,
    Off,
    Busy,
    All,
}

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
    /// One entry for each mode.
    pub modes: Vec<ModeReport>,
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
#[derive(Debug, Serialize, Deserialize)]
pub struct Cell {
    /// Of the block.
    pub bytes: usize,
    /// Touched in each page.
    pub lines: usize,
    /// Before each sample; 0 for none.
    pub pause_ns: u64,
    /// One for each allocator, in the field's order.
    pub results: Vec<Measured>,
}

/// One allocator in one cell.
#[derive(Debug, Serialize, Deserialize)]
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
    pub counters: std::collections::BTreeMap<String, u64>,
}

/// The counters that a report of costs shows.
const COUNTERS: [&str; 6] =
    ["scrubbed_bytes", "prefaulted_bytes", "waste_bytes", "unused_zero_bytes", "hits", "misses"];

impl Grid {
    /// Measures and prints.
    pub fn run(&self) -> Result<()> {
        ensure!(self.runs >= MIN_RUNS, "--runs {}: too few; give {MIN_RUNS} or more", self.runs);
        let report = self.measure()?;
        progress("");
        if self.json {
            println!("{}", serde_json::to_string_pretty(&report)?);
        } else {
            print!("{}", grid_table::render(&report));
        }
        Ok(())
    }

    fn measure(&self) -> Result<Report> {
        let (machine, field) = (Machine::here(), Field::find(&self.peers)?);
        let touch = Touch::unpack()?;
        let sizes = self.sizes();
        touch.warm(sizes.iter().max().map_or(0, |largest| 4 * largest).max(WARM_BYTES))?;
        let mut modes = vec![];
        for mode in self.modes() {
            let _busy = if mode == Mode::Busy { Some(touch.occupy_all_cpus()?) } else { None };
            let mut costs: Vec<_> = field.allocators.iter().map(Cost::of).collect();
            let mut cells = vec![];
            for &bytes in &sizes {
                cells.extend(self.size(&touch, &field, mode, bytes, &mut costs)?);
            }
            modes.push(ModeReport { mode, cells, costs });
        }
        Ok(Report { benchmark: "grid".into(), machine, field, runs: self.runs, modes })
    }

    /// All cells of one size.
    fn size(
        &self,
        touch: &Touch,
        field: &Field,
        mode: Mode,
        bytes: usize,
        costs: &mut [Cost],
    ) -> Result<Vec<Cell>> {
        let folder = Scratch::new()?;
        let start =
            |allocator: &Allocator| Worker::start(touch, allocator, folder.file(&allocator.name));
        let mut workers = field.allocators.iter().map(start).collect::<Result<Vec<_>>>()?;
        let mut cells = vec![];
        for lines in self.lines() {
            progress(&format!("{mode:?}: {} x {lines}", Size(bytes)));
            cells.push(self.cell(&mut workers, field, mode, bytes, lines)?);
        }
        for (worker, cost) in workers.into_iter().zip(costs) {
            cost.add(worker)?;
        }
        Ok(cells)
    }

    fn cell(
        &self,
        workers: &mut [Worker],
        field: &Field,
        mode: Mode,
        bytes: usize,
        lines: usize,
    ) -> Result<Cell> {
        let pause_ns = match mode {
            Mode::Idle => PAUSE_NS.max(bytes as u64 / SCRUB_RATE),
            Mode::BackToBack | Mode::Busy => 0,
        };
        let single = Burst { bytes, lines, samples: WARM_UP, rounds: 1, idle_ns: pause_ns };
        let mut turns = vec![];
        for worker in workers.iter_mut() {
            worker.check(bytes)?;
            turns.push(Turn::new(single, &worker.run(single)?));
        }
        for (worker, turn) in workers.iter_mut().zip(&mut turns) {
            // Again with the rounds of the real thing: the first pass was short and cold.
            if turn.burst.rounds > 1 {
                *turn = Turn::new(turn.burst, &worker.run(turn.burst)?);
            }
            turn.faults = worker.usage()?.minor_faults;
        }
        for burst in 0..self.runs.div_ceil(BURST) {
            for place in 0..workers.len() {
                let next = (burst + place) % workers.len();
                turns[next].take(&mut workers[next])?;
            }
        }
        let mut results = vec![];
        for ((worker, turn), allocator) in workers.iter_mut().zip(turns).zip(&field.allocators) {
            results.extend(turn.finish(worker.usage()?.minor_faults, allocator));
        }
        Ok(Cell { bytes, lines, pause_ns, results })
    }

    fn sizes(&self) -> Vec<usize> {
        let shifts: &[u32] = if self.quick { &[16, 20, 24] } else { &[16, 18, 20, 22, 24, 26, 28] };
        given_or(&self.sizes, || shifts.iter().map(|shift| 1 << shift).collect())
    }

    fn lines(&self) -> Vec<usize> {
        given_or(&self.lines, || if self.quick { vec![1, 64] } else { vec![1, 4, 16, 64] })
    }

    fn modes(&self) -> Vec<Mode> {
        match self.idle {
            Idle::On => vec![Mode::Idle],
            Idle::Off => vec![Mode::BackToBack],
            Idle::Busy => vec![Mode::Busy],
            Idle::All => vec![Mode::Idle, Mode::BackToBack, Mode::Busy],
        }
    }
}

fn given_or(given: &[usize], default: impl Fn() -> Vec<usize>) -> Vec<usize> {
    if given.is_empty() { default() } else { given.to_vec() }
}

fn whole_pages(text: &str) -> Result<usize, String> {
    match Size::from_str(text)?.0 {
        bytes if bytes > 0 && bytes % prezero::PAGE == 0 => Ok(bytes),
        _ => Err("not whole pages; give a multiple of 4K".into()),
    }
}

fn lines_of_a_page(text: &str) -> Result<usize, String> {
    let lines = text.parse().ok().filter(|lines| (1..=64).contains(lines));
    lines.ok_or("not a number of lines; give 1 to 64".into())
}

/// One allocator's part in one cell.
struct Turn {
    burst: Burst,
    /// Samples that open each burst and are not counted.
    opening: usize,
    samples: Vec<f64>,
    taken: usize,
    /// Its process's, before the first burst.
    faults: u64,
}

impl Turn {
    /// How long a sample must be, by how long the ones of `tried` took. With a pause a
    /// sample is one round, and one opens the burst.
    fn new(tried: Burst, times: &[f64]) -> Turn {
        let fastest = times.iter().copied().fold(f64::MAX, f64::min) / tried.rounds as f64;
        let (rounds, opening) = match tried.idle_ns {
            0 => {
                let rounds = (SAMPLE_NS / fastest).ceil().clamp(1.0, 1e6);
                (
                    rounds as usize,
                    (OPENING_NS / (rounds * fastest)).ceil().clamp(OPENING_LEAST, 10.0) as usize,
                )
            }
            _ => (1, 1),
        };
        let burst = Burst { rounds, samples: opening + BURST, ..tried };
        Turn { burst, opening, samples: vec![], taken: 0, faults: 0 }
    }

    fn take(&mut self, worker: &mut Worker) -> Result<()> {
        let times = worker.run(self.burst)?;
        self.taken += times.len() * self.burst.rounds;
        let counted = times[self.opening..].iter();
        self.samples.extend(counted.map(|ns| ns / self.burst.rounds as f64));
        Ok(())
    }

    fn finish(self, faults: u64, allocator: &Allocator) -> Option<Measured> {
        let faults_per_round = (faults - self.faults) as f64 / self.taken as f64;
        let ns = Spread::of(self.samples)?;
        let (allocator, rounds) = (allocator.name.clone(), self.burst.rounds);
        Some(Measured { allocator, rounds, ns, faults_per_round })
    }
}

impl Cost {
    fn of(allocator: &Allocator) -> Cost {
        Cost { allocator: allocator.name.clone(), ..Cost::default() }
    }

    /// Adds what a worker used, and ends it.
    fn add(&mut self, mut worker: Worker) -> Result<()> {
        let (usage, background) = (worker.usage()?, worker.background_ns());
        self.user_s += usage.user_ns as f64 / 1e9;
        self.system_s += usage.system_ns as f64 / 1e9;
        if let Some(ns) = background {
            *self.background_s.get_or_insert(0.0) += ns as f64 / 1e9;
        }
        let stats = worker.finish()?;
        for name in COUNTERS {
            if let Some(value) = stats.as_ref().and_then(|stats| number(stats, name)) {
                *self.counters.entry(name.into()).or_default() += value;
            }
        }
        Ok(())
    }
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
    fn short_rounds_are_timed_many_at_a_time_and_long_ones_singly() {
        let tried = Burst { bytes: 65536, lines: 1, samples: 2, rounds: 10, idle_ns: 0 };
        let short = Turn::new(tried, &[5000.0, 2000.0]);
        assert_eq!((short.burst.rounds, short.opening), (1000, 10));
        let long = Turn::new(Burst { rounds: 1, ..tried }, &[1e8, 1.1e8]);
        assert_eq!((long.burst.rounds, long.opening, long.burst.samples), (1, 6, 6 + BURST));
        let paused = Turn::new(Burst { idle_ns: 3_000_000, ..tried }, &[2000.0]);
        assert_eq!((paused.burst.rounds, paused.opening), (1, 1));
    }

    #[test]
    fn counters_are_found_wherever_they_lie() {
        let json = serde_json::json!({"pid": 1, "counters": {"scrubd": {"scrubbed_bytes": 7}}});
        assert_eq!(number(&json, "scrubbed_bytes"), Some(7));
        assert_eq!(number(&json, "waste_bytes"), None);
    }

    #[test]
    fn sizes_and_lines_out_of_range_are_refused() {
        assert_eq!(whole_pages("64K"), Ok(65536));
        assert!(whole_pages("0").is_err() && whole_pages("4097").is_err());
        assert!(lines_of_a_page("0").is_err() && lines_of_a_page("65").is_err());
    }
}
