//! One case with many presets: how long a program takes for a request, under each allocator.
//!
//! A [`Preset`](presets::Preset) says which program runs, in which rows and ways, and what it prints. Ways take turns,
//! a fresh process each, the order rotated. [`grid`] compares with what no allocator can beat as well.

mod contest;
pub mod doors;
pub mod grid;
mod ideal;
mod named;
mod presets;

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use prezero_host::samples::Change;

pub use contest::{Contest, Row, Run, Way};
pub use ideal::Ideal;
pub use presets::requests;

use crate::cost::Costs;
use crate::figure::{Across, Against, Case, Figure, Report, Sheet};
use crate::parse::{up_to, whole_pages};
use crate::peers::PREZERO;
use crate::progress;
use crate::scratch::Scratch;
use crate::worker::{LINES, Program};
use presets::{Preset, Reads};

/// What `bench/pair.c` can start, and what its ring can hold.
/// Fixed: bounds of the program.
const MOST_THREADS: usize = 256;
const MOST_RING: usize = 1024;

/// The command line of a preset.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// Runs of each row in each way [9]
    #[arg(long, value_name = "N")]
    runs: Option<usize>,
    /// The prezero of another build, as a way more
    #[arg(long, value_name = "PATH")]
    also: Vec<PathBuf>,
    /// Which peers: glibc, glibc-keep, jemalloc, mimalloc, tcmalloc
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    peers: Vec<String>,
    /// Which programs or patterns [all]
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    only: Vec<String>,
    /// Block sizes, whole pages
    #[arg(long, value_delimiter = ',', value_name = "SIZE,...", value_parser = whole_pages)]
    sizes: Vec<usize>,
    /// Cache lines that are written in each page, 1 to 64
    #[arg(long, value_delimiter = ',', value_name = "N,...", value_parser = up_to::<LINES>)]
    lines: Vec<usize>,
    /// Seconds that do not count, at the start of a run
    #[arg(long, value_name = "S")]
    warm: Option<f64>,
    /// Seconds that count
    #[arg(long, value_name = "S")]
    seconds: Option<f64>,
    /// Threads, each with a loop of its own
    #[arg(long, value_delimiter = ',', value_name = "N,...", value_parser = up_to::<MOST_THREADS>)]
    threads: Vec<usize>,
    /// Blocks on their way from one thread to another, at most
    #[arg(long, value_delimiter = ',', value_name = "N,...", value_parser = up_to::<MOST_RING>)]
    ring: Vec<usize>,
}

impl Options {
    /// Refuses what the preset has no use for.
    fn check(&self, preset: &Preset) -> Result<()> {
        let given = [
            ("peers", !self.peers.is_empty()),
            ("only", !self.only.is_empty()),
            ("sizes", !self.sizes.is_empty()),
            ("lines", !self.lines.is_empty()),
            ("warm", self.warm.is_some()),
            ("seconds", self.seconds.is_some()),
            ("threads", !self.threads.is_empty()),
            ("ring", !self.ring.is_empty()),
        ];
        let useless = |&&(name, given): &&(&str, bool)| given && !preset.takes.contains(&name);
        if let Some((name, _)) = given.iter().find(useless) {
            bail!("--{name}: {} has none; leave it out", preset.name);
        }
        let (warm, seconds) = (self.warm.unwrap_or(0.0), self.seconds.unwrap_or(1.0));
        ensure!(warm >= 0.0, "--warm {warm}: give 0 or more");
        ensure!(seconds > 0.0, "--seconds {seconds}: nothing would be measured");
        ensure!(!preset.rows.is_empty(), "--only {}: no such row", self.only.join(","));
        Ok(())
    }
}

/// A preset as a case.
pub struct Latency<'a> {
    pub name: &'a str,
    pub options: &'a Options,
}

impl Case for Latency<'_> {
    fn measure(&self) -> Result<Report> {
        measure(self.name, self.options)
    }
}

fn measure(name: &str, options: &Options) -> Result<Report> {
    let (mut preset, field) = presets::find(name, options)?;
    options.check(&preset)?;
    let runs = options.runs.unwrap_or(preset.manner.runs);
    ensure!(runs > 0, "--runs 0: nothing to measure; give 1 or more");
    ensure!(
        runs >= preset.manner.least,
        "--runs {runs}: too few; give {} or more",
        preset.manner.least
    );
    let ours = preset.ways.iter().find(|way| way.name == PREZERO).cloned();
    for also in &options.also {
        let way = ours.clone().context("--also: this case has no way that is prezero alone")?;
        ensure!(also.is_file(), "--also {}: no such file", also.display());
        // With a slash in it, or the path would be searched.
        let prezero = Some(std::path::absolute(also)?);
        preset.ways.push(Way { name: also.display().to_string(), prezero, ..way });
    }
    if let Some(bytes) = preset.manner.warm_bytes {
        crate::worker::warm(bytes)?;
    }
    let mut report = Report::here(name, field);
    let mut sheets: Vec<_> = preset.titles.iter().map(|title| preset.sheet(title, runs)).collect();
    let (scratch, mut costs) = (Scratch::new()?, Costs::default());
    let program = preset.program.path();
    let contest = Contest {
        name,
        program: &program,
        ways: &preset.ways,
        stats: preset.manner.costs.is_some(),
        scratch: &scratch,
    };
    progress::expect(preset.rows.len() * preset.ways.len() * runs);
    for (nth, row) in &preset.rows {
        let Some(taken) = contest.row(row, runs)? else { break };
        for (way, runs) in preset.ways.iter().zip(&taken) {
            runs.iter().for_each(|run| costs.add(&way.name, &run.spent, &run.stats));
        }
        sheets[*nth].extend(preset.figures(row, &taken)?);
    }
    for (sheet, wanted) in sheets.iter_mut().zip(&preset.manner.best) {
        sheet.compare_with_best(preset.figures[0].0, *wanted);
    }
    report.sheets.extend(sheets);
    report.sheets.extend(preset.manner.costs.map(|title| costs.sheet(title)));
    report.sheets.retain(|sheet| !sheet.figures.is_empty());
    Ok(report)
}

impl Preset {
    fn sheet(&self, title: &str, runs: usize) -> Sheet {
        let across = if self.manner.best.is_empty() { Across::Name } else { Across::Who };
        let turns = format!("{runs} runs in turns, medians");
        Sheet::new(title, self.labels, across).note(self.note.clone()).note(turns)
    }

    /// Of a row; each way is compared with the first, run by run, where the best peer is not.
    fn figures(&self, row: &Row, taken: &[Vec<Run>]) -> Result<Vec<Figure>> {
        let read = |runs: &Vec<Run>| runs.iter().map(|run| self.read(run)).collect();
        let taken: Vec<Vec<Vec<f64>>> = taken.iter().map(read).collect::<Result<_>>()?;
        let (first, mut figures) = (&self.ways[0].name, vec![]);
        for (nth, (name, unit)) in self.figures.iter().copied().enumerate() {
            let samples = |runs: &[Vec<f64>]| -> Vec<f64> {
                runs.iter().filter_map(|run| run.get(nth).copied()).collect()
            };
            let base = samples(&taken[0]);
            for (way, runs) in self.ways.iter().zip(&taken) {
                let own = samples(runs);
                let compared = self.manner.best.is_empty() && way.name != *first;
                let change = Change::of_runs(&own, &base).filter(|_| compared);
                let against = change.filter(|change| change.change.is_finite()).map(|change| {
                    let (times, noise) = change.times();
                    Against { noise: Some(noise), ..Against::new(first, first, times) }
                });
                let figure = Figure::of_samples(&way.name, name, unit, own);
                figures.extend(figure.map(|figure| figure.case(&row.case()).and(against)));
            }
        }
        Ok(figures)
    }

    /// A run's figures.
    fn read(&self, run: &Run) -> Result<Vec<f64>> {
        let figures = match self.reads {
            Reads::Numbers => run.numbers()?,
            Reads::Requests => requests(&run.numbers()?)?.to_vec(),
            Reads::Spent => vec![run.spent.wall_s * 1e3, run.spent.cpu_s() * 1e3],
        };
        ensure!(figures.len() == self.figures.len(), "{} said {}", self.name, run.said);
        Ok(figures)
    }
}

/// A program that the command carries, or another one.
#[derive(Debug)]
enum Runs {
    Ours(Program),
    Other(PathBuf, #[expect(dead_code, reason = "holds its inputs")] Scratch),
}

impl Runs {
    fn path(&self) -> PathBuf {
        match self {
            Runs::Ours(program) => program.path(),
            Runs::Other(path, _) => path.clone(),
        }
    }
}
