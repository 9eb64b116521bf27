//! `prezero bench pair`: malloc, one byte written, free; nothing else.
//!
//! *Local*: each of several threads in a loop of its own. *Remote*: one thread allocates,
//! another frees what it is handed through a bounded ring. The allocators take turns,
//! one sample each, the order rotated. Memory is warm: each thread runs some pairs before
//! the clock does.

use std::fmt::Write;

use anyhow::{Result, bail, ensure};
use comfy_table::{CellAlignment, Table, presets::UTF8_BORDERS_ONLY};
use prezero::Size;
use serde::{Deserialize, Serialize};

use super::grid::whole_pages;
use super::grid_report::Cost;
use super::grid_table::cost_line;
use super::machine::Machine;
use super::output::Output;
use super::peers::{Allocator, Field, PREZERO};
use super::progress::{self, step};
use super::samples::Spread;
use super::scratch::Scratch;
use super::worker::{Program, Touch, Worker};

/// Samples in each cell, at least.
const MIN_RUNS: usize = 9;
/// One thread's part of a sample lasts about this long: many turns of the scheduler's
/// where threads share a CPU, and much against their start, 0.05 ms.
const SAMPLE_NS: f64 = 20e6;
/// Pairs of the first, uncounted sample, which says how many the others need.
const TRIED: u64 = 20_000;
/// prezero may take so many times the fastest peer's time.
const TARGET: f64 = 1.3;
/// Memory that is faulted in and given back before anything is measured.
const WARM_BYTES: usize = 1 << 30;
/// What the worker can start.
const MAX_THREADS: usize = 256;
/// What the worker's ring can hold.
const MAX_RING: usize = 1024;

/// The command line of `prezero bench pair`.
#[derive(clap::Args)]
#[command(after_help = "Example: prezero bench pair --threads 1,2 --json pair.json")]
pub struct Pair {
    #[command(flatten)]
    output: Output,
    /// Samples in each cell, 9 or more
    #[arg(long, value_name = "N", default_value_t = 15)]
    runs: usize,
    /// Block sizes, whole pages
    #[arg(long, value_delimiter = ',', value_name = "SIZE,...", value_parser = whole_pages,
          default_value = "64K")]
    sizes: Vec<usize>,
    /// Threads, each with a loop of its own
    #[arg(long, value_delimiter = ',', value_name = "N,...", value_parser = up_to::<MAX_THREADS>,
          default_value = "1,2,4,8")]
    threads: Vec<usize>,
    /// Blocks on their way from the thread that allocates to the one that frees, at most
    #[arg(long, value_delimiter = ',', value_name = "N,...", value_parser = up_to::<MAX_RING>,
          default_value = "4,64")]
    ring: Vec<usize>,
    /// Which peers: glibc, glibc-keep, jemalloc, mimalloc, tcmalloc [all]
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    peers: Vec<String>,
}

/// Who frees what.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "case")]
enum Case {
    /// So many threads, each what it allocated.
    Local { threads: usize },
    /// One thread what another allocated, through a ring of so many blocks.
    Remote { ring: usize },
}

/// Everything measured.
#[derive(Debug, Serialize, Deserialize)]
struct Report {
    benchmark: String,
    machine: Machine,
    #[serde(flatten)]
    field: Field,
    runs: usize,
    cells: Vec<Cell>,
    costs: Vec<Cost>,
    /// Of prezero's time over the fastest peer's, in the worst local cell.
    target: f64,
}

#[derive(Debug, Serialize, Deserialize)]
struct Cell {
    #[serde(flatten)]
    case: Case,
    bytes: usize,
    /// In the field's order.
    results: Vec<Measured>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Measured {
    allocator: String,
    /// Of each thread, in each sample.
    pairs: u64,
    /// For a pair, on each thread that runs: see [`Case::ns`].
    ns: Spread,
    /// CPU time for a pair, all threads.
    cpu_ns: Spread,
    /// Of all threads together, median.
    pairs_per_s: f64,
}

impl Case {
    /// Pairs of all threads together.
    fn total(self, pairs: u64) -> f64 {
        match self {
            Case::Local { threads } => threads as f64 * pairs as f64,
            Case::Remote { .. } => pairs as f64,
        }
    }

    /// Time for one pair when `pairs` of each thread took `wall`, in ns: what a thread of
    /// its own CPU sees. Threads beyond the CPUs wait for each other, which is not in it.
    fn ns(self, wall: f64, pairs: u64, cpus: usize) -> f64 {
        wall * self.at_once(cpus) / self.total(pairs)
    }

    /// Loops that run at once.
    fn at_once(self, cpus: usize) -> f64 {
        match self {
            Case::Local { threads } => threads.min(cpus) as f64,
            Case::Remote { .. } => 1.0,
        }
    }

    fn command(self, bytes: usize, pairs: u64) -> String {
        match self {
            Case::Local { threads } => format!("local {bytes} {threads} {pairs}"),
            Case::Remote { ring } => format!("remote {bytes} {ring} {pairs}"),
        }
    }

    fn label(self) -> String {
        match self {
            Case::Local { threads: 1 } => "1 thread".into(),
            Case::Local { threads } => format!("{threads} threads"),
            Case::Remote { ring } => format!("remote, ring of {ring}"),
        }
    }
}

impl Pair {
    /// Measures and prints.
    pub fn run(&self) -> Result<()> {
        ensure!(self.runs >= MIN_RUNS, "--runs {}: too few; give {MIN_RUNS} or more", self.runs);
        let report = self.measure()?;
        progress::end();
        self.output.put(&report, || report.render())
    }

    fn measure(&self) -> Result<Report> {
        let (machine, field) = (Machine::here(), Field::find(&self.peers)?);
        Touch::unpack()?.warm(WARM_BYTES)?;
        let (program, folder) = (Program::pair()?, Scratch::new()?);
        let mut costs: Vec<_> = field.allocators.iter().map(Cost::of).collect();
        let mut cells = vec![];
        progress::expect(self.sizes.len() * self.cases().len());
        for &bytes in &self.sizes {
            let start = |each: &Allocator| Worker::start(&program, each, folder.file(&each.name));
            let mut workers = field.allocators.iter().map(start).collect::<Result<Vec<_>>>()?;
            for case in self.cases() {
                if step(&format!("{}: {}", Size(bytes), case.label())).is_err() {
                    break;
                }
                cells.push(self.cell(&mut workers, &field, case, bytes, machine.cpus)?);
            }
            for (worker, cost) in workers.into_iter().zip(&mut costs) {
                cost.add(worker)?;
            }
        }
        let (benchmark, runs, target) = ("pair".into(), self.runs, TARGET);
        Ok(Report { benchmark, machine, field, runs, cells, costs, target })
    }

    fn cases(&self) -> Vec<Case> {
        let local = self.threads.iter().map(|&threads| Case::Local { threads });
        local.chain(self.ring.iter().map(|&ring| Case::Remote { ring })).collect()
    }

    fn cell(
        &self,
        workers: &mut [Worker],
        field: &Field,
        case: Case,
        bytes: usize,
        cpus: usize,
    ) -> Result<Cell> {
        let mut turns = vec![];
        for worker in workers.iter_mut() {
            let (wall, _) = race(worker, case, bytes, TRIED)?;
            let pairs = SAMPLE_NS / case.ns(wall, TRIED, cpus);
            turns.push((pairs.clamp(1.0, 1e9) as u64, vec![], vec![]));
        }
        for run in 0..self.runs {
            for place in 0..workers.len() {
                let next = (run + place) % workers.len();
                let (pairs, ns, cpu_ns) = &mut turns[next];
                let (wall, cpu) = race(&mut workers[next], case, bytes, *pairs)?;
                ns.push(case.ns(wall, *pairs, cpus));
                cpu_ns.push(cpu / case.total(*pairs));
            }
        }
        let results = turns.into_iter().zip(&field.allocators).filter_map(|(turn, allocator)| {
            let (pairs, ns, cpu_ns) = turn;
            let (ns, cpu_ns) = (Spread::of(ns)?, Spread::of(cpu_ns)?);
            let pairs_per_s = case.at_once(cpus) * 1e9 / ns.median;
            Some(Measured { allocator: allocator.name.clone(), pairs, ns, cpu_ns, pairs_per_s })
        });
        Ok(Cell { case, bytes, results: results.collect() })
    }
}

/// Nanoseconds that the worker needs for a sample, and of CPU time.
fn race(worker: &mut Worker, case: Case, bytes: usize, pairs: u64) -> Result<(f64, f64)> {
    match worker.ask(&case.command(bytes, pairs))?[..] {
        [wall, cpu] => Ok((wall as f64, cpu as f64)),
        ref other => bail!("the worker's answer has {} numbers", other.len()),
    }
}

fn up_to<const MOST: usize>(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=MOST).contains(number));
    number.ok_or(format!("not a number of them; give 1 to {MOST}"))
}

impl Cell {
    /// prezero's time over the fastest peer's, and that peer; `None` unless both ran.
    fn against_best(&self) -> Option<(f64, &str)> {
        let (ours, peers): (Vec<_>, Vec<_>) =
            self.results.iter().partition(|result| result.allocator == PREZERO);
        let best = peers.into_iter().min_by(|a, b| a.ns.median.total_cmp(&b.ns.median))?;
        Some((ours.first()?.ns.median / best.ns.median, &best.allocator))
    }
}

impl Report {
    fn render(&self) -> String {
        let mut text = format!("{}\n{}", self.machine, self.field.absences());
        let _ = writeln!(
            text,
            "\nns for malloc, one byte written, free, on each thread that has a CPU; medians of {} \
             samples, interleaved; M/s: million pairs a second, all threads together;\n\
             x best: prezero's time over the fastest peer's, > where it misses the target of {}",
            self.runs, self.target
        );
        let mut table = Table::new();
        table.load_style(UTF8_BORDERS_ONLY);
        let names = self.field.allocators.iter().map(|allocator| allocator.name.as_str());
        let last = ["x best", "best peer", "M/s"];
        table.set_header(["size", ""].into_iter().chain(names).chain(last));
        for cell in &self.cells {
            let times = cell.results.iter().map(|result| format!("{:.1}", result.ns.median));
            let (ratio, peer) = match cell.against_best() {
                Some((ratio, peer)) => (self.marked(cell, ratio), peer.to_string()),
                None => ("-".into(), "-".into()),
            };
            let ours = cell.results.iter().find(|result| result.allocator == PREZERO);
            let rate = ours.map_or("-".into(), |ours| format!("{:.1}", ours.pairs_per_s / 1e6));
            let row = [Size(cell.bytes).to_string(), cell.case.label()];
            table.add_row(row.into_iter().chain(times).chain([ratio, peer, rate]));
        }
        for column in table.column_iter_mut() {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let _ = writeln!(text, "{table}");
        for cost in &self.costs {
            text += &cost_line(cost);
        }
        text + &self.verdict()
    }

    /// Only the local cells have a target.
    fn marked(&self, cell: &Cell, ratio: f64) -> String {
        let missed = matches!(cell.case, Case::Local { .. }) && ratio > self.target;
        format!("{ratio:.2}{}", if missed { ">" } else { " " })
    }

    /// One line: is every local cell within the target? Empty without prezero or a peer.
    fn verdict(&self) -> String {
        let local = self.cells.iter().filter(|cell| matches!(cell.case, Case::Local { .. }));
        let ratios = local.filter_map(|cell| Some((cell.against_best()?.0, cell)));
        let Some((ratio, cell)) = ratios.max_by(|a, b| a.0.total_cmp(&b.0)) else {
            return String::new();
        };
        let word = if ratio <= self.target { "reached" } else { "MISSED" };
        format!(
            "target {word}: at most {}x the fastest peer's time; worst {ratio:.2}x ({}, {})\n",
            self.target,
            Size(cell.bytes),
            cell.case.label()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(case: Case, peer: f64, ours: f64) -> Cell {
        let measured = |allocator: &str, ns: f64| Measured {
            allocator: allocator.into(),
            pairs: 1,
            ns: Spread::of(vec![ns]).unwrap(),
            cpu_ns: Spread::of(vec![ns]).unwrap(),
            pairs_per_s: 1e9 / ns,
        };
        let results =
            vec![measured("glibc", 30.0), measured("tcmalloc", peer), measured(PREZERO, ours)];
        Cell { case, bytes: 65536, results }
    }

    fn report(cells: Vec<Cell>) -> Report {
        let mut field = Field::find(&["glibc".into()]).unwrap();
        field.allocators.truncate(1);
        let (machine, costs) = (Machine::here(), vec![]);
        let (benchmark, runs, target) = ("pair".into(), 15, TARGET);
        Report { benchmark, machine, field, runs, cells, costs, target }
    }

    #[test]
    fn threads_that_share_a_cpu_are_not_charged_for_each_other() {
        let case = Case::Local { threads: 8 };
        // 8 threads of 1000 pairs on 2 CPUs: 4000 pairs on each, one after the other.
        assert_eq!(case.ns(40_000.0, 1000, 2), 10.0);
        assert_eq!(Case::Local { threads: 1 }.ns(10_000.0, 1000, 2), 10.0);
        assert_eq!(Case::Remote { ring: 4 }.ns(10_000.0, 1000, 2), 10.0);
    }

    #[test]
    fn the_verdict_is_that_of_the_worst_local_cell() {
        let one = || cell(Case::Local { threads: 1 }, 10.0, 12.0);
        let eight = |ours| cell(Case::Local { threads: 8 }, 10.0, ours);
        let remote = || cell(Case::Remote { ring: 64 }, 10.0, 90.0);

        let reached = report(vec![one(), eight(12.9), remote()]).verdict();
        let missed = report(vec![one(), eight(13.1), remote()]).verdict();

        assert!(reached.starts_with("target reached") && reached.contains("1.29x (64K, 8 threads"));
        assert!(missed.starts_with("target MISSED") && missed.contains("1.31x"), "{missed}");
    }

    #[test]
    fn a_cell_that_misses_is_marked() {
        let text = report(vec![cell(Case::Local { threads: 2 }, 10.0, 20.0)]).render();
        let row = text.lines().find(|line| line.contains("2 threads")).unwrap();
        assert!(row.contains("2.00>") && row.contains("tcmalloc"), "{row}");
    }

    #[test]
    fn without_a_peer_there_is_no_verdict() {
        let mut lonely = cell(Case::Local { threads: 1 }, 1.0, 1.0);
        lonely.results.retain(|result| result.allocator == PREZERO);
        assert_eq!(report(vec![lonely]).verdict(), "");
    }

    #[test]
    fn numbers_out_of_the_workers_range_are_refused() {
        assert_eq!(up_to::<8>("8"), Ok(8));
        assert!(up_to::<8>("9").unwrap_err().contains("1 to 8") && up_to::<8>("0").is_err());
    }
}
