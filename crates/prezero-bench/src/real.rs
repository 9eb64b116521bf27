//! `prezero bench real`: programs that nobody here wrote, under each allocator.
//!
//! Each run is a fresh process, the allocators take turns, and the medians are compared. Wall
//! time is from start to end; CPU time is that of the process and of its children that it waited
//! for; the peak resident size is that of the largest process among them. All three come
//! from the kernel. Prezero's counters are of the process that was started, not of its children.
//!
//! A few runs do not tell a difference of 1 %, which is what is asked. So glibc and prezero go on in
//! turns until it is known, or time is up; how well it is known stands beside it, and where that does not
//! let it be told on which side of the 1 % a program is, the verdict says so. A later run may go on from the
//! file of an earlier one, and their turns count together.
//!
//! A third is in each turn: glibc behind a library that passes each call on and does nothing else.
//! What a program loses to that it loses to any library that is preloaded, so a program that is slower
//! under prezero by more than 1 %, but by no more than 1 % beyond that one, is at the limit.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use super::output::Output;
use super::pairs::{self, PAIRS};
use super::peers::{Allocator, BARE, Field, GLIBC, NOWHERE, PREZERO};
use super::progress::{self, interrupted, kept, step};
use super::real_programs::{Inputs, PROGRAMS, Program};
use super::real_report::{Measured, Report, SLOWER};
use super::real_run::{Run, once};
use super::real_table;
use super::samples::{Change, Spread};
use super::worker::Touch;

/// Faulted in and given back before each run: what was free for two seconds may have gone to
/// the hypervisor, and the next to touch it would wait for the host.
const WARM_BYTES: usize = 512 << 20;
/// To how much the ratio of the two is to be known: then equals are seen to be equal.
const KNOWN: f64 = SLOWER / 2.0;
/// The command line of `prezero bench real`.
#[derive(clap::Args)]
#[command(after_help = "Example: prezero bench real --only sqlite --onto old.json --json new.json")]
pub struct Real {
    #[command(flatten)]
    output: Output,
    /// Which programs: ndimage, sparse, pandas, node, sort, sqlite, g++, xz, ripgrep [all]
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    only: Vec<String>,
    /// Runs of each program under each allocator; the medians of 5 count
    #[arg(long, value_name = "N", default_value_t = 5)]
    runs: usize,
    /// Seconds for turns of glibc, bare and prezero, until their ratio is known to 0.5 %
    #[arg(long, value_name = "S", default_value_t = 30)]
    pairs_s: u64,
    /// Add to the runs in what --json wrote of this build
    #[arg(long, value_name = "FILE")]
    onto: Option<PathBuf>,
    /// The text that sort and ripgrep read, in MiB; 1024 is the full size
    #[arg(long, value_name = "MIB", default_value_t = 96)]
    text_mib: u64,
    /// A Python that has numpy, scipy and pandas [the first found that has]
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
    /// Which peers: glibc, glibc-keep, jemalloc, mimalloc, tcmalloc [all]
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    peers: Vec<String>,
}

impl Real {
    /// Measures and prints.
    pub fn run(&self) -> Result<()> {
        let known = |name: &String| PROGRAMS.iter().any(|program| program.name == name);
        if let Some(unknown) = self.only.iter().find(|name| !known(name)) {
            let names: Vec<_> = PROGRAMS.iter().map(|program| program.name).collect();
            bail!("--only {unknown}: no such program; give some of {}", names.join(","));
        }
        ensure!(self.runs > 0, "--runs 0: nothing to measure; give 5 or more");
        ensure!(
            (1..=1 << 16).contains(&self.text_mib),
            "--text-mib {}: give 1 to 65536",
            self.text_mib
        );
        let report = self.measure()?;
        progress::end();
        self.output.put(&report, || real_table::render(&report))
    }

    fn measure(&self) -> Result<Report> {
        let mut report = Report::begin(&self.peers, self.text_mib)?;
        if let Some(file) = &self.onto {
            report.go_on_from(file)?;
        }
        let (touch, inputs) = (Touch::unpack()?, Inputs::make(self.text_mib << 20)?);
        report.field.allocators.push(Allocator::bare(inputs.passes_on()));
        let asked = |program: &&Program| {
            self.only.is_empty() || self.only.iter().any(|name| name == program.name)
        };
        let count = PROGRAMS.iter().filter(asked).count();
        progress::expect(count * (self.runs + 1) * report.field.allocators.len());
        for program in PROGRAMS.iter().filter(asked) {
            if interrupted() {
                break;
            }
            match program.find(self.python.as_deref()) {
                Ok(path) => {
                    let earlier = report.take(program.name);
                    let measured =
                        self.program(program, &path, &report.field, earlier, &touch, &inputs)?;
                    report.put(measured);
                }
                Err(mend) => report.miss(program.name, mend),
            }
        }
        report.runs += self.runs;
        report.pairs_s += self.pairs_s;
        Ok(report)
    }

    fn program(
        &self,
        program: &Program,
        path: &Path,
        field: &Field,
        earlier: Option<Measured>,
        touch: &Touch,
        inputs: &Inputs,
    ) -> Result<Measured> {
        let (allocators, stats) = (&field.allocators, inputs.file("stats"));
        let nowhere = Path::new(NOWHERE);
        // Left by another program; this one may end without writing any.
        let _ = std::fs::remove_file(&stats);
        let mut runs: Vec<_> = allocators
            .iter()
            .map(|each| earlier.as_ref().map_or(vec![], |earlier| earlier.runs_under(&each.name)))
            .collect();
        let once_under = |which: usize, stats: &Path| {
            let allocator: &Allocator = &allocators[which];
            step(&format!("real: {} under {}", program.name, allocator.name))?;
            touch.warm(WARM_BYTES)?;
            let mut command = allocator.command(path, stats)?;
            program.dress(&mut command, inputs)?;
            once(&mut command).with_context(|| format!("{} under {}", program.name, allocator.name))
        };
        // One uncounted run of all: the page cache has program and input then, and ours tells its counters,
        // which nobody's program does who did not ask for them (0.3 ms for each process).
        'turns: for turn in 0..=self.runs {
            let mut fresh = vec![];
            let stats = if turn == 0 { &stats } else { nowhere };
            for place in 0..allocators.len() {
                let which = (turn + place) % allocators.len();
                let Some(run) = kept(once_under(which, stats))? else { break 'turns };
                fresh.push((which, run));
            }
            if turn > 0 {
                fresh.into_iter().for_each(|(which, run)| runs[which].push(run));
            }
        }
        let place = |name| allocators.iter().position(|allocator| allocator.name == name);
        if let [Some(glibc), Some(bare), Some(ours)] = [GLIBC, BARE, PREZERO].map(place) {
            let known = |runs: &[Vec<_>]| Ok(is_known(&runs[ours], &runs[glibc]));
            let once = |which| once_under(which, nowhere);
            pairs::go_on(&mut runs, &[glibc, bare, ours], self.pairs_s, once, known)?;
        }
        let text = std::fs::read_to_string(&stats).unwrap_or_default();
        let stats = serde_json::from_str(&text).unwrap_or_default();
        let names = allocators.iter().map(|each| each.name.as_str());
        Ok(Measured::of_runs(program, names.zip(runs), stats))
    }
}

/// Whether the ratio of two wall times is known well enough; runs were taken in pairs.
fn is_known(ours: &[Run], glibc: &[Run]) -> bool {
    let wall = |runs: &[Run]| Spread::of(runs.iter().map(|run| run.wall_s).collect());
    let change =
        wall(ours).zip(wall(glibc)).and_then(|(ours, glibc)| Change::of_runs(&ours, &glibc));
    ours.len() >= PAIRS && change.is_none_or(|change| change.noise <= KNOWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_known_by_enough_pairs_that_agree() {
        let runs = |walls: &[f64]| -> Vec<Run> {
            walls.iter().map(|&wall_s| Run { wall_s, cpu_s: 0.0, rss_mib: 0.0 }).collect()
        };
        let drifting: Vec<f64> = (0..PAIRS).map(|n| 1.0 + n as f64).collect();
        let half = |walls: &[f64]| runs(&walls.iter().map(|wall| wall / 2.0).collect::<Vec<_>>());
        assert!(is_known(&runs(&drifting), &half(&drifting)));
        assert!(!is_known(&runs(&drifting[1..]), &half(&drifting[1..])), "too few");
        let turned: Vec<f64> = drifting.iter().rev().copied().collect();
        assert!(!is_known(&runs(&drifting), &half(&turned)), "they disagree");
    }
}
