//! `prezero bench pair`: malloc, one byte written, free; nothing else.
//!
//! *Local*: each of several threads in a loop of its own. *Remote*: one thread allocates,
//! another frees what it is handed through a bounded ring. The allocators take turns,
//! one sample each, the order rotated. Memory is warm: each thread runs some pairs before
//! the clock does.

use anyhow::{Result, bail, ensure};
use prezero::Size;

use crate::cost::{self, Cost};
use crate::figure::{Across, Case, Figure, Report, Sheet};
use crate::parse::{up_to, whole_pages};
use crate::peers::{Allocator, Field};
use crate::progress::{self, step};
use crate::scratch::Scratch;
use crate::turns::in_turns;
use crate::worker::{Program, Touch, Worker};

/// Samples in each cell, at least.
const MIN_RUNS: usize = 9;
/// One thread's part of a sample lasts about this long: many turns of the scheduler's
/// where threads share a CPU, and much against their start, 0.05 ms.
const SAMPLE_NS: f64 = 20e6;
/// Pairs of the first, uncounted sample, which says how many the others need.
const TRIED: u64 = 20_000;
/// Of the fastest peer, where each thread frees what it allocated.
const WANTED: f64 = 1.0 / 1.3;
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

/// Which thread frees which block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum How {
    /// So many threads, each what it allocated.
    Local { threads: usize },
    /// One thread what another allocated, through a ring of so many blocks.
    Remote { ring: usize },
}

impl How {
    /// Pairs of all threads together.
    fn total(self, pairs: u64) -> f64 {
        match self {
            How::Local { threads } => threads as f64 * pairs as f64,
            How::Remote { .. } => pairs as f64,
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
            How::Local { threads } => threads.min(cpus) as f64,
            How::Remote { .. } => 1.0,
        }
    }

    fn command(self, bytes: usize, pairs: u64) -> String {
        match self {
            How::Local { threads } => format!("local {bytes} {threads} {pairs}"),
            How::Remote { ring } => format!("remote {bytes} {ring} {pairs}"),
        }
    }

    fn label(self) -> String {
        match self {
            How::Local { threads: 1 } => "1 thread".into(),
            How::Local { threads } => format!("{threads} threads"),
            How::Remote { ring } => format!("remote, ring of {ring}"),
        }
    }
}

impl Case for Pair {
    fn measure(&self) -> Result<Report> {
        ensure!(self.runs >= MIN_RUNS, "--runs {}: too few; give {MIN_RUNS} or more", self.runs);
        let mut report = Report::here("pair", Field::find(&self.peers)?);
        Touch::unpack()?.warm(WARM_BYTES)?;
        let (program, folder) = (Program::pair()?, Scratch::new()?);
        let allocators = &report.field.allocators;
        let mut costs: Vec<_> = allocators.iter().map(Cost::of).collect();
        let [mut local, mut remote] = ["each thread frees its own", "another thread frees"].map(|title| {
            Sheet::new(&format!("malloc and free of a block: {title}"), &["size", "how"], Across::Who)
                .note("wall: on each thread that has a CPU; CPU: all threads together; warm, interleaved")
        });
        progress::expect(self.sizes.len() * self.ways().len());
        for &bytes in &self.sizes {
            let start = |each: &Allocator| Worker::start(&program, each, folder.file(&each.name));
            let mut workers = allocators.iter().map(start).collect::<Result<Vec<_>>>()?;
            for how in self.ways() {
                if step(&format!("{}: {}", Size(bytes), how.label())).is_err() {
                    break;
                }
                let figures =
                    self.cell(&mut workers, allocators, how, bytes, report.machine.cpus)?;
                match how {
                    How::Local { .. } => local.extend(figures),
                    How::Remote { .. } => remote.extend(figures),
                }
            }
            for (worker, cost) in workers.into_iter().zip(&mut costs) {
                cost.add(worker)?;
            }
        }
        local.compare_with_best("wall", Some(WANTED));
        remote.compare_with_best("wall", None);
        report.sheets = vec![local, remote, cost::sheet("Costs of pairs", &costs)];
        report.sheets.retain(|sheet| !sheet.figures.is_empty());
        Ok(report)
    }
}

impl Pair {
    fn ways(&self) -> Vec<How> {
        let local = self.threads.iter().map(|&threads| How::Local { threads });
        local.chain(self.ring.iter().map(|&ring| How::Remote { ring })).collect()
    }

    fn cell(
        &self,
        workers: &mut [Worker],
        allocators: &[Allocator],
        how: How,
        bytes: usize,
        cpus: usize,
    ) -> Result<Vec<Figure>> {
        let mut turns = vec![];
        for worker in workers.iter_mut() {
            let (wall, _) = race(worker, how, bytes, TRIED)?;
            let pairs = SAMPLE_NS / how.ns(wall, TRIED, cpus);
            turns.push((pairs.clamp(1.0, 1e9) as u64, vec![], vec![]));
        }
        for (_, next) in in_turns(self.runs, workers.len()) {
            let (pairs, wall_ns, cpu_ns) = &mut turns[next];
            let (wall, cpu) = race(&mut workers[next], how, bytes, *pairs)?;
            wall_ns.push(how.ns(wall, *pairs, cpus));
            cpu_ns.push(cpu / how.total(*pairs));
        }
        let figures = turns.into_iter().zip(allocators).flat_map(|((_, wall, cpu), allocator)| {
            let figure = |name, samples| {
                let figure = Figure::of_samples(&allocator.name, name, "ns", samples)?;
                Some(figure.case(&[&Size(bytes).to_string(), &how.label()]))
            };
            [figure("wall", wall), figure("CPU", cpu)].into_iter().flatten()
        });
        Ok(figures.collect())
    }
}

/// Nanoseconds that the worker needs for a sample, and of CPU time.
fn race(worker: &mut Worker, how: How, bytes: usize, pairs: u64) -> Result<(f64, f64)> {
    match worker.ask(&how.command(bytes, pairs))?[..] {
        [wall, cpu] => Ok((wall as f64, cpu as f64)),
        ref other => bail!("the worker's answer has {} numbers", other.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_share_a_cpu_are_not_charged_for_each_other() {
        let how = How::Local { threads: 8 };
        // 8 threads of 1000 pairs on 2 CPUs: 4000 pairs on each, one after the other.
        assert_eq!(how.ns(40_000.0, 1000, 2), 10.0);
        assert_eq!(How::Local { threads: 1 }.ns(10_000.0, 1000, 2), 10.0);
        assert_eq!(How::Remote { ring: 4 }.ns(10_000.0, 1000, 2), 10.0);
    }
}
