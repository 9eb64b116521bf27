//! `prezero bench real`: programs that nobody here wrote, under each allocator.
//!
//! Each run is a fresh process, the allocators take turns, and the medians are compared. Wall
//! time is from start to end; CPU time is that of the process and of its children that it waited
//! for; the peak resident size is that of the largest process among them. All three come
//! from the kernel. Prezero's counters are of the process that was started, not of its children.
//!
//! A few runs do not tell a difference of 1 %, which is what is asked. So glibc and prezero go on in
//! turns until it is known, or time is up; how well it is known stands beside it, and where that does not
//! let it be told on which side of the 1 % a program is, the verdict says so.
//!
//! A third is in each turn: glibc behind a library that passes each call on and does nothing else.
//! What a program loses to that it loses to any library that is preloaded, so a program that is slower
//! under prezero by more than 1 %, but by no more than 1 % beyond that one, is at the limit.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use super::grid_report::number;
use super::machine::Machine;
use super::output::Output;
use super::pairs::{self, PAIRS};
use super::peers::{Allocator, BARE, Field, GLIBC, PREZERO};
use super::progress::{self, interrupted, kept, step};
use super::real_programs::{Inputs, PROGRAMS, Program};
use super::real_run::{Run, once};
use super::real_table;
use super::samples::{Change, Judged, Spread, judge};
use super::worker::Touch;

/// Faulted in and given back before each run: what was free for two seconds may have gone to
/// the hypervisor, and the next to touch it would wait for the host.
const WARM_BYTES: usize = 512 << 20;
/// How much more than glibc's wall time prezero may take; where that is out of reach, more than that
/// of glibc behind a library that does nothing.
const SLOWER: f64 = 0.01;
/// Fewer pairs than that say nothing of their noise.
const FEW: usize = 5;
/// To how much the ratio of the two is to be known: then equals are seen to be equal.
const KNOWN: f64 = SLOWER / 2.0;
/// The largest that prezero's peak may be, of the smallest peer's.
pub const LARGEST: f64 = 1.10;
/// What a program that zeroes much gains, of glibc's wall time over prezero's.
const GAIN: f64 = 1.2;
/// And how much that is, in bytes of ZERO requests for each second under glibc: a
/// 4 KiB fault costs some 1.5 us, so at this rate a fifth of the time goes there, and with
/// less no allocator can gain as much.
const MUCH: f64 = 512.0 * 1048576.0;

/// The command line of `prezero bench real`.
#[derive(clap::Args)]
#[command(after_help = "Example: prezero bench real --only sqlite,node --runs 5")]
pub struct Real {
    #[command(flatten)]
    output: Output,
    /// Which programs: ndimage, sparse, pandas, node, sort, sqlite, g++, xz, ripgrep [all]
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    only: Vec<String>,
    /// Runs of each program under each allocator; the medians of 5 count
    #[arg(long, value_name = "N", default_value_t = 5)]
    runs: usize,
    /// Seconds for each program's turns of glibc, bare and prezero, until their ratio is known to 0.5 %
    #[arg(long, value_name = "S", default_value_t = 30)]
    pairs_s: u64,
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

/// Everything measured.
#[derive(Debug, Serialize, Deserialize)]
pub struct Report {
    /// `real`.
    pub benchmark: String,
    /// Taken on.
    pub machine: Machine,
    /// Taken with.
    #[serde(flatten)]
    pub field: Field,
    /// Of each program under each allocator, before those in pairs.
    pub runs: usize,
    /// For the pairs of each program.
    #[serde(default)]
    pub pairs_s: u64,
    /// What sort and ripgrep read.
    pub text_mib: u64,
    /// One for each program that is here.
    pub programs: Vec<Measured>,
    /// Programs that are not, and what to install.
    pub missing: Vec<(String, String)>,
}

/// One program.
#[derive(Debug, Serialize, Deserialize)]
pub struct Measured {
    /// Its row.
    pub program: String,
    /// What it does.
    pub about: String,
    /// In the field's order.
    pub results: Vec<Cost>,
    /// Prezero's counters of its last run; `null` if it wrote none.
    pub stats: serde_json::Value,
}

/// One program under one allocator.
#[derive(Debug, Serialize, Deserialize)]
pub struct Cost {
    /// Which.
    pub allocator: String,
    /// From start to end.
    pub wall_s: Spread,
    /// User and system, waited-for children included.
    pub cpu_s: Spread,
    /// Peak resident, of the largest process.
    pub rss_mib: Spread,
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
        let (machine, mut field) = (Machine::here(), Field::find(&self.peers)?);
        let (touch, inputs) = (Touch::unpack()?, Inputs::make(self.text_mib << 20)?);
        field.allocators.push(Allocator::bare(inputs.passes_on()));
        let (mut programs, mut missing) = (vec![], vec![]);
        let asked = |program: &&Program| {
            self.only.is_empty() || self.only.iter().any(|name| name == program.name)
        };
        let count = PROGRAMS.iter().filter(asked).count();
        progress::expect(count * (self.runs + 1) * field.allocators.len());
        for program in PROGRAMS.iter().filter(asked) {
            if interrupted() {
                break;
            }
            match program.find(self.python.as_deref()) {
                Ok(path) => programs.push(self.program(program, &path, &field, &touch, &inputs)?),
                Err(mend) => missing.push((program.name.into(), mend)),
            }
        }
        let (benchmark, runs, pairs_s) = ("real".into(), self.runs, self.pairs_s);
        let text_mib = self.text_mib;
        Ok(Report { benchmark, machine, field, runs, pairs_s, text_mib, programs, missing })
    }

    fn program(
        &self,
        program: &Program,
        path: &Path,
        field: &Field,
        touch: &Touch,
        inputs: &Inputs,
    ) -> Result<Measured> {
        let (allocators, stats) = (&field.allocators, inputs.file("stats"));
        // Left by another program; this one may end without writing any.
        let _ = std::fs::remove_file(&stats);
        let mut runs = vec![vec![]; allocators.len()];
        let once_under = |which: usize| {
            let allocator: &Allocator = &allocators[which];
            step(&format!("real: {} under {}", program.name, allocator.name))?;
            touch.warm(WARM_BYTES)?;
            let mut command = allocator.command(path, &stats)?;
            program.dress(&mut command, inputs)?;
            once(&mut command).with_context(|| format!("{} under {}", program.name, allocator.name))
        };
        // One uncounted run of all: the page cache has program and input then.
        'turns: for turn in 0..=self.runs {
            for place in 0..allocators.len() {
                let which = (turn + place) % allocators.len();
                let Some(run) = kept(once_under(which))? else { break 'turns };
                if turn > 0 {
                    runs[which].push(run);
                }
            }
        }
        let place = |name| allocators.iter().position(|allocator| allocator.name == name);
        if let [Some(glibc), Some(bare), Some(ours)] = [GLIBC, BARE, PREZERO].map(place) {
            let known = |runs: &[Vec<_>]| Ok(is_known(&runs[ours], &runs[glibc]));
            pairs::go_on(&mut runs, &[glibc, bare, ours], self.pairs_s, once_under, known)?;
        }
        let text = std::fs::read_to_string(&stats).unwrap_or_default();
        let results = allocators.iter().zip(runs).filter_map(|(each, runs)| Cost::of(each, &runs));
        Ok(Measured {
            program: program.name.into(),
            about: program.about.into(),
            results: results.collect(),
            stats: serde_json::from_str(&text).unwrap_or_default(),
        })
    }
}

/// Whether the ratio of two wall times is known well enough; runs were taken in pairs.
fn is_known(ours: &[Run], glibc: &[Run]) -> bool {
    let wall = |runs: &[Run]| Spread::of(runs.iter().map(|run| run.wall_s).collect());
    let change =
        wall(ours).zip(wall(glibc)).and_then(|(ours, glibc)| Change::of_runs(&ours, &glibc));
    ours.len() >= PAIRS && change.is_none_or(|change| change.noise <= KNOWN)
}

impl Cost {
    fn of(allocator: &Allocator, runs: &[Run]) -> Option<Cost> {
        let spread = |value: fn(&Run) -> f64| Spread::of(runs.iter().map(value).collect());
        Some(Cost {
            allocator: allocator.name.clone(),
            wall_s: spread(|run| run.wall_s)?,
            cpu_s: spread(|run| run.cpu_s)?,
            rss_mib: spread(|run| run.rss_mib)?,
        })
    }
}

/// Prezero against what is asked of it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Verdict {
    /// Whether its wall time is above glibc's by more than it may.
    pub speed: Judged,
    /// And above that of glibc behind a library that does nothing; `None` if that did not run.
    pub limit: Option<Judged>,
    /// Its peak over the smallest peer's is not above the limit.
    pub small_enough: bool,
    /// Whether a program that zeroes much gains as much as asked; `None` if this one does not.
    pub gains: Option<Judged>,
}

impl Verdict {
    /// Of a program that is slower than glibc by more than it may: whether that is so against glibc
    /// behind a library that does nothing, too.
    pub fn beyond_limit(&self) -> Option<Judged> {
        self.limit.filter(|_| self.speed == Judged::Beyond)
    }
}

impl Measured {
    /// The results of one allocator.
    pub fn of(&self, allocator: &str) -> Option<&Cost> {
        self.results.iter().find(|cost| cost.allocator == allocator)
    }

    fn peers(&self) -> impl Iterator<Item = &Cost> {
        self.results.iter().filter(|cost| ![PREZERO, BARE].contains(&cost.allocator.as_str()))
    }

    /// The peer with the least of something.
    pub fn best(&self, value: fn(&Cost) -> f64) -> Option<&Cost> {
        self.peers().min_by(|a, b| value(a).total_cmp(&value(b)))
    }

    /// The fastest peer whose peak is at most `times` the smallest peer's, if that is faster
    /// than glibc: how many times, and its peak over the smallest.
    pub fn fastest_within(&self, times: f64) -> Option<(&Cost, f64, f64)> {
        let glibc = self.of(GLIBC)?.wall_s.median;
        let least = self.best(|cost| cost.rss_mib.median)?.rss_mib.median;
        let fits =
            |cost: &&Cost| cost.rss_mib.median <= times * least && cost.wall_s.median < glibc;
        let fitting = self.peers().filter(fits);
        let best = fitting.min_by(|a, b| a.wall_s.median.total_cmp(&b.wall_s.median))?;
        Some((best, glibc / best.wall_s.median, best.rss_mib.median / least))
    }

    /// How much more of something one allocator takes than another.
    pub fn change(&self, of: &str, over: &str, value: fn(&Cost) -> &Spread) -> Option<Change> {
        Change::of_runs(value(self.of(of)?), value(self.of(over)?))
    }

    /// A counter of prezero's; 0 if there is none.
    pub fn counter(&self, name: &str) -> u64 {
        number(&self.stats, name).unwrap_or(0)
    }

    /// Bytes of ZERO requests.
    pub fn zeroed(&self) -> u64 {
        ["hit_bytes", "miss_bytes", "served_absent_bytes"]
            .map(|name| self.counter(name))
            .iter()
            .sum()
    }

    /// `None` unless prezero and glibc ran.
    pub fn verdict(&self) -> Option<Verdict> {
        let (ours, glibc) = (self.of(PREZERO)?, self.of(GLIBC)?);
        let smallest = self.best(|cost| cost.rss_mib.median)?;
        let pairs = ours.wall_s.samples.len();
        let against = |other, bound| {
            let change = self.change(PREZERO, other, |cost| &cost.wall_s).filter(|_| pairs >= FEW);
            change.map_or(Judged::Unclear, |change| judge(change, bound))
        };
        let much = self.zeroed() as f64 >= MUCH * glibc.wall_s.median;
        Some(Verdict {
            speed: against(GLIBC, SLOWER),
            limit: self.of(BARE).map(|_| against(BARE, SLOWER)),
            small_enough: ours.rss_mib.median <= LARGEST * smallest.rss_mib.median,
            gains: much.then(|| against(GLIBC, 1.0 / GAIN - 1.0)),
        })
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Wall seconds and peak MiB of allocators, and bytes of ZERO requests that were hits.
    pub fn measured(results: &[(&str, f64, f64)], hit_bytes: u64) -> Measured {
        let one = |value| Spread::of(vec![value; FEW]).unwrap();
        let cost = |&(name, wall, rss): &(&str, f64, f64)| Cost {
            allocator: name.into(),
            wall_s: one(wall),
            cpu_s: one(1.5 * wall),
            rss_mib: one(rss),
        };
        Measured {
            program: "sort".into(),
            about: "sorts".into(),
            results: results.iter().map(cost).collect(),
            stats: serde_json::json!({"hit_bytes": hit_bytes}),
        }
    }

    #[test]
    fn speed_is_against_glibc_and_size_against_the_smallest_peer() {
        let peers = [(GLIBC, 1.0, 100.0), ("jemalloc", 0.5, 120.0)];
        let with = |wall, rss| {
            let all: Vec<_> = peers.into_iter().chain([(PREZERO, wall, rss)]).collect();
            measured(&all, 0).verdict().unwrap()
        };
        assert_eq!(
            with(1.009, 110.0),
            Verdict { speed: Judged::Within, limit: None, small_enough: true, gains: None }
        );
        assert_eq!(with(1.02, 110.0).speed, Judged::Beyond);
        assert!(!with(1.0, 111.0).small_enough);
    }

    #[test]
    fn a_library_that_does_nothing_is_no_peer_but_a_limit() {
        let with = |bare| {
            let all = [(GLIBC, 1.0, 100.0), (PREZERO, 1.05, 105.0), (BARE, bare, 90.0)];
            measured(&all, 0).verdict().unwrap()
        };
        assert!(with(1.045).small_enough, "the smallest peer is glibc");
        assert_eq!((with(1.045).speed, with(1.045).limit), (Judged::Beyond, Some(Judged::Within)));
        assert_eq!(with(1.0).limit, Some(Judged::Beyond));
    }

    #[test]
    fn noise_hides_on_which_side_of_the_limit_a_program_is() {
        let mut noisy = measured(&[(GLIBC, 1.0, 1.0), (PREZERO, 1.0, 1.0)], 0);
        let mut speed = |walls: &[f64]| {
            noisy.results[0].wall_s = Spread::of(vec![1.0; walls.len()]).unwrap();
            noisy.results[1].wall_s = Spread::of(walls.to_vec()).unwrap();
            noisy.verdict().unwrap().speed
        };
        assert_eq!(speed(&[0.9, 0.95, 1.0, 1.05, 1.1]), Judged::Unclear);
        assert_eq!(speed(&[1.0; FEW]), Judged::Within);
        assert_eq!(speed(&[1.0; FEW - 1]), Judged::Unclear, "too few");
    }

    #[test]
    fn only_a_program_that_zeroes_much_has_to_gain() {
        let run = |wall, hits| measured(&[(GLIBC, 2.0, 1.0), (PREZERO, wall, 1.0)], hits);
        assert_eq!(run(1.9, 2 << 30).verdict().unwrap().gains, Some(Judged::Beyond));
        assert_eq!(run(1.6, 2 << 30).verdict().unwrap().gains, Some(Judged::Within));
        assert_eq!(run(1.9, 1 << 20).verdict().unwrap().gains, None);
        assert_eq!(measured(&[(PREZERO, 1.0, 1.0)], 0).verdict(), None);
    }

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
