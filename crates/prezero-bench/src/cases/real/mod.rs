//! `prezero bench real`: programs of other projects, under each allocator.
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

pub mod programs;

use std::hash::{DefaultHasher, Hasher};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use programs::{Inputs, PROGRAMS, Program};

use crate::cost::number;
use crate::figure::{Across, Against, Case, Figure, Report, Sheet};
use crate::parse::chosen;
use crate::peers::{Allocator, BARE, Field, GLIBC, NOWHERE, PREZERO};
use crate::process::{Run, once};
use crate::progress::{self, interrupted, kept, step};
use crate::turns::{self, PAIRS, in_turns};
use crate::worker::warm;
use prezero_host::samples::{Change, Judged};

/// Faulted in and given back before each run: memory that was free for two seconds may have gone to
/// the hypervisor, and the next touch of it would wait for the host.
const WARM_BYTES: usize = 512 << 20;
/// How much more than glibc's wall time prezero may take; where that is out of reach, more than that
/// of glibc behind a library that does nothing.
const SLOWER: f64 = 0.01;
/// To how much the ratio of the two is to be known: then equals are seen to be equal.
const KNOWN: f64 = SLOWER / 2.0;
/// Fewer pairs than that say nothing of their noise.
const FEW: usize = 5;
/// The largest that prezero's peak may be, of the smallest peer's.
const LARGEST: f64 = 1.10;
/// What a program that zeroes much gains, of glibc's wall time over prezero's.
const GAIN: f64 = 1.2;
/// And how much that is, in bytes of ZERO requests for each second under glibc: a
/// 4 KiB fault costs some 1.5 us, so at this rate a fifth of the time goes there, and with
/// less no allocator can gain as much.
const MUCH: f64 = 512.0 * 1048576.0;
/// The figures of a run.
const WALL: &str = "wall";
const CPU: &str = "CPU";
const PEAK: &str = "peak";
/// The command line of `prezero bench real`.
#[derive(clap::Args)]
#[command(after_help = "Example: prezero bench real --only sqlite --json real.json")]
pub struct Real {
    /// Which programs: ndimage, sparse, pandas, node, sort, sqlite, g++, xz, ripgrep [all]
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    only: Vec<String>,
    /// Runs of each program under each allocator; the medians of 5 count
    #[arg(long, value_name = "N", default_value_t = 5)]
    runs: usize,
    /// Seconds for turns of glibc, bare and prezero, until their ratio is known to 0.5 %
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

impl Case for Real {
    fn measure(&self) -> Result<Report> {
        let programs = chosen(&PROGRAMS, |program| program.name, &self.only, "program")?;
        ensure!(self.runs > 0, "--runs 0: nothing to measure; give 5 or more");
        ensure!(
            (1..=1 << 16).contains(&self.text_mib),
            "--text-mib {}: give 1 to 65536",
            self.text_mib
        );
        let mut report = Report::here("real", Field::find(&self.peers)?);
        let ours = report.field.allocators.iter().find(|each| each.is_prezero());
        let build = ours.and_then(|ours| ours.library.as_deref()).map(build_of).transpose()?;
        let facts = [("build", build.unwrap_or_default()), ("text_mib", self.text_mib.to_string())];
        report.facts = facts.map(|(name, value)| (name.into(), value)).to_vec();
        let inputs = Inputs::make(self.text_mib << 20)?;
        report.field.allocators.push(Allocator::bare(inputs.passes_on()));
        let asked = |program: &Program| programs.iter().any(|each| each.name == program.name);
        let count = programs.len();
        progress::expect(count * (self.runs + 1) * report.field.allocators.len());
        let mut sheets = sheets(self.runs, self.pairs_s, self.text_mib);
        for program in &PROGRAMS {
            if !asked(program) || interrupted() {
                continue;
            }
            match program.find(self.python.as_deref()) {
                Ok(path) => {
                    let figures = self.program(program, &path, &report.field, &inputs)?;
                    sheets
                        .iter_mut()
                        .zip(figures)
                        .for_each(|(sheet, figures)| sheet.extend(figures));
                    sheets[0].notes.push(format!("{}: {}", program.name, program.about));
                }
                Err(mend) => report.notes.push(format!("left out: {}: {mend}", program.name)),
            }
        }
        report.sheets = sheets.into();
        Ok(report)
    }
}

fn sheets(runs: usize, pairs_s: u64, text_mib: u64) -> [Sheet; 3] {
    let labels = &["program"];
    let wall = Sheet::new("Real programs: from start to end", labels, Across::Who).note(format!(
        "{runs} runs each, interleaved, then turns of glibc, bare and prezero for up to {pairs_s} s; the text has \
         {text_mib} MiB; bare: a preloaded library that passes each call on to glibc"
    ));
    let peak =
        Sheet::new("Real programs: peak resident, of the largest process", labels, Across::Who);
    let account = Sheet::new(
        "Real programs: CPU time, and what prezero did for it",
        labels,
        Across::Name,
    )
    .note(
        "children included; the counters of an uncounted run: scrubd and net in ms, bytes in MiB",
    );
    [wall, peak, account]
}

/// A name for what is in a file, to tell it from another.
pub fn build_of(library: &Path) -> Result<String> {
    let bytes = std::fs::read(library).with_context(|| library.display().to_string())?;
    let mut hasher = DefaultHasher::new();
    hasher.write(&bytes);
    Ok(format!("{:016x}", hasher.finish()))
}

impl Real {
    fn program(
        &self,
        program: &Program,
        path: &Path,
        field: &Field,
        inputs: &Inputs,
    ) -> Result<[Vec<Figure>; 3]> {
        let (allocators, stats) = (&field.allocators, inputs.file("stats"));
        let nowhere = Path::new(NOWHERE);
        // Left by another program; this one may end without writing any.
        let _ = std::fs::remove_file(&stats);
        let mut runs = vec![vec![]; allocators.len()];
        let once_under = |which: usize, stats: &Path| {
            let allocator: &Allocator = &allocators[which];
            step(&format!("real: {} under {}", program.name, allocator.name))?;
            warm(WARM_BYTES)?;
            let mut command = allocator.command(path, stats)?;
            program.dress(&mut command, inputs)?;
            once(&mut command).with_context(|| format!("{} under {}", program.name, allocator.name))
        };
        // One uncounted run of all: the page cache has program and input then, and prezero tells
        // its counters. No user's program does that without being asked (0.3 ms for each process).
        let mut fresh = vec![];
        for (turn, which) in in_turns(self.runs + 1, allocators.len()) {
            let stats = if turn == 0 { &stats } else { nowhere };
            let Some(run) = kept(once_under(which, stats))? else { break };
            fresh.push((which, run));
            // A turn counts as a whole.
            if fresh.len() == allocators.len() {
                let whole = fresh.drain(..).filter(|_| turn > 0);
                whole.for_each(|(which, run)| runs[which].push(run));
            }
        }
        let place = |name| allocators.iter().position(|allocator| allocator.name == name);
        if let [Some(glibc), Some(bare), Some(ours)] = [GLIBC, BARE, PREZERO].map(place) {
            let known = |runs: &[Vec<_>]| Ok(is_known(&runs[ours], &runs[glibc]));
            let once = |which| once_under(which, nowhere);
            turns::go_on(&mut runs, &[glibc, bare, ours], self.pairs_s, once, known)?;
        }
        let text = std::fs::read_to_string(&stats).unwrap_or_default();
        let stats = serde_json::from_str(&text).unwrap_or_default();
        let names = allocators.iter().map(|each| each.name.as_str());
        Ok(figures(program.name, &names.zip(runs).collect::<Vec<_>>(), &stats))
    }
}

/// The figures of a program for each of the sheets.
fn figures(
    program: &str,
    runs: &[(&str, Vec<Run>)],
    stats: &serde_json::Value,
) -> [Vec<Figure>; 3] {
    let all = |name: &str, unit: &str, value: fn(&Run) -> f64| -> Vec<Figure> {
        let each = runs.iter().filter_map(|(who, runs)| {
            Figure::of_samples(who, name, unit, runs.iter().map(value).collect())
        });
        each.map(|figure| figure.case(&[program])).collect()
    };
    let mut wall = all(WALL, "s", |run| run.wall_s);
    let mut peak = all(PEAK, "MiB", |run| run.rss_mib);
    let mut cpu = all(CPU, "s", |run| run.cpu_s);
    let counter = |name: &str| number(stats, name).unwrap_or(0);
    let zeroed =
        ["hit_bytes", "miss_bytes", "served_absent_bytes"].map(counter).iter().sum::<u64>();
    let wanted = match find(&wall, GLIBC) {
        Some(glibc) if zeroed as f64 >= MUCH * glibc.value => GAIN,
        _ => 1.0 / (1.0 + SLOWER),
    };
    let against_wall = against_in_pairs(&wall, wanted);
    let against_cpu = against_in_pairs(&cpu, wanted).into_iter().take(1);
    let least = peers_of(&peak).min_by(|a, b| a.value.total_cmp(&b.value)).cloned();
    let against = |ours: &Figure| Some(ours.against("least", &least?).wanted(1.0 / LARGEST));
    let against_peak = find(&peak, PREZERO).and_then(against);
    let best = peers_of(&wall).min_by(|a, b| a.value.total_cmp(&b.value)).cloned();
    let best = find(&wall, PREZERO).zip(best).map(|(ours, best)| ours.against("best", &best));
    let ours = |all: &mut Vec<Figure>, against: Vec<Against>| {
        all.iter_mut()
            .filter(|it| it.who == PREZERO)
            .for_each(|it| it.against.clone_from(&against));
    };
    ours(&mut wall, against_wall.into_iter().chain(best).collect());
    ours(&mut cpu, against_cpu.map(|it| Against { wanted: None, at_limit: false, ..it }).collect());
    ours(&mut peak, against_peak.into_iter().collect());
    cpu.extend(account(stats, zeroed).into_iter().map(|figure| figure.case(&[program])));
    [wall, peak, cpu]
}

fn find<'a>(all: &'a [Figure], who: &str) -> Option<&'a Figure> {
    all.iter().find(|figure| figure.who == who)
}

fn peers_of(all: &[Figure]) -> impl Iterator<Item = &Figure> {
    all.iter().filter(|figure| ![PREZERO, BARE].contains(&figure.who.as_str()))
}

/// prezero against glibc, as much as is wanted, and against glibc behind a library that does
/// nothing. A program that misses the first and keeps the second is at the limit.
fn against_in_pairs(all: &[Figure], wanted: f64) -> Vec<Against> {
    let ours = find(all, PREZERO);
    let against = |(who, wanted): (&str, f64)| {
        let (ours, other) = ours.zip(find(all, who))?;
        let change = Change::of_runs(&ours.samples, &other.samples)?;
        let (times, noise) = change.times();
        // Of too few anything may be.
        let noise = if ours.samples.len() < FEW { noise.max(1.0) } else { noise };
        Some(Against { noise: Some(noise), ..Against::new(who, who, times).wanted(wanted) })
    };
    let mut both: Vec<_> =
        [(GLIBC, wanted), (BARE, 1.0 / (1.0 + SLOWER))].into_iter().filter_map(against).collect();
    if let [glibc, bare] = &mut both[..] {
        glibc.at_limit = wanted < 1.0 && bare.judged() == Some(Judged::Within);
        // It is the limit, and no bound of its own.
        bare.wanted = None;
    }
    both
}

/// What prezero did in the uncounted run.
fn account(stats: &serde_json::Value, zeroed: u64) -> Vec<Figure> {
    let counter = |name: &str| number(stats, name).unwrap_or(0);
    let wasted =
        ["waste_bytes", "unused_zero_bytes", "resident_zero_bytes"].map(counter).iter().sum();
    let cost_ms = counter("scrubd_cpu_ns") as f64 / 1e6;
    let clear_ns = stats["clear_ns_per_page"].as_f64().unwrap_or(0.0);
    let saved_ms = (counter("hit_bytes") / 4096) as f64 * clear_ns / 1e6;
    let mib = |name: &str, bytes: u64| {
        Figure::new(PREZERO, name, "MiB", bytes as f64 / f64::from(1 << 20))
    };
    if stats.is_null() {
        return vec![];
    }
    vec![
        mib("zero asked", zeroed),
        mib("hit", counter("hit_bytes")),
        mib("cleared", counter("miss_bytes")),
        mib("to kernel", counter("served_absent_bytes")),
        Figure::new(PREZERO, "plain requests", "", counter("plain_requests") as f64),
        mib("scrubbed", counter("scrubbed_bytes")),
        mib("wasted", wasted),
        Figure::new(PREZERO, "scrubd", "ms", cost_ms),
        Figure::new(PREZERO, "net", "ms", saved_ms - cost_ms),
    ]
}

/// Whether the ratio of two wall times is known well enough; runs were taken in pairs.
fn is_known(ours: &[Run], glibc: &[Run]) -> bool {
    let wall = |runs: &[Run]| runs.iter().map(|run| run.wall_s).collect::<Vec<_>>();
    let change = Change::of_runs(&wall(ours), &wall(glibc));
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

    /// The sheets' figures of a program: its time and memory under each.
    fn told(results: &[(&str, &[f64], f64)], hit_bytes: u64) -> [Vec<Figure>; 3] {
        let runs = |walls: &[f64], rss_mib| {
            walls.iter().map(|&wall_s| Run { wall_s, cpu_s: 1.5 * wall_s, rss_mib }).collect()
        };
        let runs: Vec<_> =
            results.iter().map(|(who, walls, rss)| (*who, runs(walls, *rss))).collect();
        figures("sort", &runs, &serde_json::json!({"hit_bytes": hit_bytes}))
    }

    /// How prezero keeps its bound against another, and whether it is at the limit.
    fn kept_against(figures: &[Figure], what: &str) -> (Option<Judged>, bool) {
        let against = &find(figures, PREZERO).unwrap().against;
        let against = against.iter().find(|against| against.what == what).unwrap();
        (against.judged(), against.at_limit)
    }

    #[test]
    fn speed_is_against_glibc_and_size_against_the_smallest_peer() {
        let with = |wall, rss| {
            let others = [(GLIBC, &[1.0; 5][..], 100.0), ("jemalloc", &[0.5; 5], 120.0)];
            let [walls, peaks, _] = told(&[others[0], others[1], (PREZERO, &[wall; 5], rss)], 0);
            (kept_against(&walls, GLIBC).0, kept_against(&peaks, "least").0)
        };
        assert_eq!(with(1.009, 110.0), (Some(Judged::Within), Some(Judged::Within)));
        assert_eq!(with(1.02, 111.0), (Some(Judged::Beyond), Some(Judged::Beyond)));
    }

    #[test]
    fn the_cost_of_any_library_is_the_limit() {
        let with = |bare| {
            let all =
                [(GLIBC, &[1.0; 5][..], 1.0), (PREZERO, &[1.05; 5], 1.0), (BARE, &[bare; 5], 0.1)];
            let [walls, peaks, _] = told(&all, 0);
            assert_eq!(kept_against(&peaks, "least").0, Some(Judged::Within), "bare is no peer");
            kept_against(&walls, GLIBC)
        };
        assert_eq!(with(1.045), (Some(Judged::Beyond), true));
        assert_eq!(with(1.03), (Some(Judged::Beyond), false), "more than that is ours");
    }

    #[test]
    fn noise_and_too_few_runs_hide_on_which_side_a_program_is() {
        let with = |walls: &[f64]| {
            let ones = vec![1.0; walls.len()];
            kept_against(&told(&[(GLIBC, &ones, 1.0), (PREZERO, walls, 1.0)], 0)[0], GLIBC).0
        };
        assert_eq!(with(&[0.9, 0.95, 1.0, 1.05, 1.1]), Some(Judged::Unclear));
        assert_eq!(with(&[1.0; FEW]), Some(Judged::Within));
        assert_eq!(with(&[1.0; FEW - 1]), Some(Judged::Unclear), "too few");
    }

    #[test]
    fn only_a_program_that_zeroes_much_has_to_gain() {
        let with = |wall, hits| {
            let all = [(GLIBC, &[2.0; 5][..], 1.0), (PREZERO, &[wall; 5], 1.0)];
            kept_against(&told(&all, hits)[0], GLIBC).0
        };
        assert_eq!(with(1.9, 2 << 30), Some(Judged::Beyond));
        assert_eq!(with(1.6, 2 << 30), Some(Judged::Within));
        assert_eq!(with(1.9, 1 << 20), Some(Judged::Within));
    }
}
