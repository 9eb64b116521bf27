//! Cases that run a program of `bench/programs/` from its start to its end, in several ways and in turns.
//!
//! | word | meaning |
//! |---|---|
//! | program | prints its figures as numbers in one line |
//! | row | arguments of the program: a row of the table |
//! | way | the allocator, its settings and further arguments: a column |
//!
//! The first way is the one that the others are compared with, run by run.

mod busy;
mod fork;
mod grow;
mod parts;
mod rounds;
mod short;
mod single;
mod small;
mod steady;
mod thin;
mod verify;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

pub use busy::Busy;
pub use fork::Fork;
pub use grow::Grow;
pub use parts::Parts;
pub use rounds::Rounds;
pub use short::Short;
pub use single::Single;
pub use small::Small;
pub use steady::Steady;
pub use thin::Thin;
pub use verify::Verify;

use crate::figure::{Across, Against, Figure, Report, Sheet};
use crate::peers::{Allocator, Field, NOWHERE, PREZERO};
use crate::process;
use crate::progress::{self, kept, step};
use crate::scratch::Scratch;
use crate::turns::in_turns;
use prezero_cli::samples::Change;

/// How often each way runs, and which there are beside the case's own.
#[derive(clap::Args, Debug)]
pub struct Turns {
    /// Runs of each row in each way
    #[arg(long, value_name = "N", default_value_t = 9)]
    runs: usize,
    /// The prezero of another build, as a way more
    #[arg(long, value_name = "PATH")]
    also: Vec<PathBuf>,
}

/// What a figure is called, and its unit.
type Named = (&'static str, &'static str);

/// Where the figures of a run come from.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// The program prints them.
    Printed(&'static [Named]),
    /// The kernel says what the program took: wall time and CPU time, ms.
    Used,
    /// The program prints what [`requests`] reads.
    Requests,
}

/// What [`requests`] reads.
const REQUESTS: [Named; 5] =
    [("median", "us"), ("p95", "us"), ("CPU", "us"), ("faults", ""), ("peak", "MiB")];

/// What `bench/programs/ablate.c` prints, of one request: median and 95th percentile, us, CPU time, us, faults; and
/// the peak, MiB.
///
/// # Errors
/// It printed something else.
pub fn requests(numbers: &[f64]) -> Result<[f64; REQUESTS.len()]> {
    let &[requests, median, p95, cpu, faults, peak] = numbers else {
        anyhow::bail!("it said {numbers:?}");
    };
    let (us, each) = (1e-3, 1.0 / requests.max(1.0));
    Ok([us * median, us * p95, us * each * cpu, each * faults, peak / 1024.0])
}

/// A row.
#[derive(Clone, Debug)]
struct Row {
    /// One word for each label of the table.
    of: Vec<String>,
    arguments: Vec<String>,
}

impl Row {
    /// The labels are the arguments.
    fn of(arguments: &[&str]) -> Row {
        let of: Vec<_> = arguments.iter().map(ToString::to_string).collect();
        Row { arguments: of.clone(), of }
    }

    /// With arguments that are the same in each row.
    fn and(mut self, arguments: &[String]) -> Row {
        self.arguments.extend_from_slice(arguments);
        self
    }
}

/// A way.
#[derive(Clone, Debug)]
struct Way {
    name: String,
    allocator: Allocator,
    /// The `prezero` of another build.
    prezero: Option<PathBuf>,
    arguments: &'static [&'static str],
}

impl Way {
    fn of(allocator: Allocator) -> Way {
        Way { name: allocator.name.clone(), allocator, prezero: None, arguments: &[] }
    }

    /// The same under another name, with these knobs.
    fn with(mut self, name: &str, knobs: &[(&str, &str)]) -> Way {
        let knobs = knobs.iter().map(|&(knob, value)| (knob.into(), value.into()));
        self.allocator.environment.extend(knobs);
        Way { name: name.into(), ..self }
    }

    /// The same under another name, with further arguments of the program.
    fn given(self, name: &str, arguments: &'static [&'static str]) -> Way {
        Way { name: name.into(), arguments, ..self }
    }

    fn command(&self, program: &Path, stats: &Path) -> Result<Command> {
        let mut command = self.allocator.command(program, stats)?;
        if let Some(prezero) = &self.prezero {
            let mut other = Command::new(prezero);
            other.args(command.get_args());
            for (name, value) in command.get_envs() {
                match value {
                    Some(value) => other.env(name, value),
                    None => other.env_remove(name),
                };
            }
            std::os::unix::process::CommandExt::process_group(&mut other, 0);
            command = other;
        }
        command.stdin(Stdio::null());
        Ok(command)
    }
}

/// The allocators that a case has side by side, by name.
struct Ways(Field);

impl Ways {
    /// prezero and these peers, as far as they are here.
    fn find(peers: &[&str]) -> Result<Ways> {
        let peers: Vec<String> = peers.iter().map(ToString::to_string).collect();
        Ok(Ways(Field::find(&peers)?))
    }

    fn get(&self, name: &str) -> Option<Way> {
        self.0.allocators.iter().find(|each| each.name == name).cloned().map(Way::of)
    }

    fn prezero(&self) -> Option<Way> {
        self.get(PREZERO)
    }

    /// prezero, where there is nothing to measure without it.
    fn needed(&self) -> Result<Way> {
        let mend = self.0.absent.iter().find(|absent| absent.name == PREZERO);
        self.prezero().with_context(|| {
            format!("prezero: {}", mend.map_or("it is not here", |absent| &absent.mend))
        })
    }
}

/// What a case runs.
struct Contest<'a> {
    benchmark: &'static str,
    /// What the table shows.
    title: &'static str,
    /// How it is to be read.
    note: String,
    labels: &'static [&'static str],
    rows: Vec<Row>,
    ways: Vec<Way>,
    program: &'a Path,
    source: Source,
    /// Counters of prezero that are figures, too, of one run.
    counters: &'static [&'static str],
}

impl Contest<'_> {
    /// All rows in all ways.
    fn run(mut self, turns: &Turns, field: Field) -> Result<Report> {
        ensure!(turns.runs > 0, "--runs 0: nothing to measure; give 1 or more");
        let ours = self.ways.iter().find(|way| way.name == PREZERO).cloned();
        for also in &turns.also {
            let way = ours.clone().context("--also: this case has no way that is prezero alone")?;
            ensure!(also.is_file(), "--also {}: no such file", also.display());
            // With a slash in it, or the path would be searched.
            let prezero = Some(std::path::absolute(also)?);
            self.ways.push(Way { name: also.display().to_string(), prezero, ..way });
        }
        let mut report = Report::here(self.benchmark, field);
        let mut sheet = Sheet::new(self.title, self.labels, Across::Name)
            .note(self.note.clone())
            .note(format!("{} runs in turns, medians", turns.runs));
        let scratch = Scratch::new()?;
        progress::expect(self.rows.len() * self.ways.len() * turns.runs);
        'rows: for row in &self.rows {
            let mut taken = vec![vec![]; self.ways.len()];
            for (_, which) in in_turns(turns.runs, self.ways.len()) {
                let name = &self.ways[which].name;
                let once = step(&format!("{}: {} under {name}", self.benchmark, row.of.join(" ")))
                    .and_then(|()| self.once(&self.ways[which], row, &scratch));
                match kept(once)? {
                    Some(figures) => taken[which].push(figures),
                    None => break 'rows,
                }
            }
            sheet.extend(self.figures(row, &taken));
        }
        report.sheets.push(sheet);
        Ok(report)
    }

    /// One run: its figures, and then its counters.
    fn once(&self, way: &Way, row: &Row, scratch: &Scratch) -> Result<Vec<f64>> {
        let counts = !self.counters.is_empty() && way.allocator.is_prezero();
        let stats = if counts { scratch.file("stats") } else { NOWHERE.into() };
        let mut command = way.command(self.program, &stats)?;
        command.args(&row.arguments).args(way.arguments);
        let mut figures = match self.source {
            Source::Printed(figures) => {
                let numbers = printed(&mut command)?;
                ensure!(numbers.len() == figures.len(), "{} said {numbers:?}", self.benchmark);
                numbers
            }
            Source::Requests => requests(&printed(&mut command)?)?.to_vec(),
            Source::Used => {
                command.stdout(Stdio::null());
                let run = process::once(&mut command)?;
                vec![run.wall_s * 1e3, run.cpu_s * 1e3]
            }
        };
        if counts {
            let json: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(stats)?)?;
            figures.extend(self.counters.iter().map(|name| json[name].as_f64().unwrap_or(0.0)));
        }
        Ok(figures)
    }

    /// What a row came to, of each way's runs.
    fn figures(&self, row: &Row, taken: &[Vec<Vec<f64>>]) -> Vec<Figure> {
        let printed: Vec<Named> = match self.source {
            Source::Printed(figures) => figures.to_vec(),
            Source::Used => vec![("wall", "ms"), ("CPU", "ms")],
            Source::Requests => REQUESTS.to_vec(),
        };
        let counted = self.counters.iter().map(|&name| (name, ""));
        let mut figures = vec![];
        for (nth, (name, unit)) in printed.into_iter().chain(counted).enumerate() {
            let samples = |runs: &[Vec<f64>]| {
                runs.iter().filter_map(|run| run.get(nth).copied()).collect::<Vec<_>>()
            };
            let base = samples(&taken[0]);
            for (way, runs) in self.ways.iter().zip(taken) {
                let own = samples(runs);
                let change = Change::of_runs(&own, &base).filter(|_| way.name != self.ways[0].name);
                let against = change.filter(|change| change.change.is_finite()).map(|change| {
                    let (times, noise) = change.times();
                    let peer = &self.ways[0].name;
                    Against { noise: Some(noise), ..Against::new(peer, peer, times) }
                });
                let figure = Figure::of_samples(&way.name, name, unit, own);
                let of: Vec<_> = row.of.iter().map(String::as_str).collect();
                figures.extend(figure.map(|figure| figure.case(&of).and(against)));
            }
        }
        figures
    }
}

/// The numbers that a program prints.
fn printed(command: &mut Command) -> Result<Vec<f64>> {
    let output = command.stderr(Stdio::null()).output().context("cannot be started")?;
    ensure!(output.status.success(), "it ended with {}", output.status);
    let line = String::from_utf8_lossy(&output.stdout);
    let numbers: Result<_, _> = line.split_whitespace().map(str::parse).collect();
    numbers.with_context(|| format!("it said {}", line.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contest<'a>(ways: Vec<Way>, program: &'a Path) -> Contest<'a> {
        Contest {
            benchmark: "echo",
            title: "what is said",
            note: String::new(),
            labels: &["first", "second"],
            rows: vec![Row::of(&["3", "4"])],
            ways,
            program,
            source: Source::Printed(&[("one", "us"), ("other", "us")]),
            counters: &[],
        }
    }

    #[test]
    fn each_way_says_its_figures_and_is_compared_with_the_first() {
        let plain = Way::of(Allocator::plain());
        let ways = vec![plain.clone(), Way { name: "again".into(), ..plain }];
        let turns = Turns { runs: 3, also: vec![] };
        let report = contest(ways, Path::new("/bin/echo")).run(&turns, Field::none()).unwrap();
        let figure = report.sheets[0].find("again", &["3", "4"], "other").unwrap();
        assert_eq!((figure.value, figure.samples.len()), (4.0, 3));
        assert_eq!(figure.against[0].times, 1.0);
        assert!(report.sheets[0].find("glibc", &["3", "4"], "one").unwrap().against.is_empty());
    }

    #[test]
    fn a_program_that_says_something_else_is_an_error() {
        let ways = vec![Way::of(Allocator::plain()).given("three", &["5"])];
        let turns = Turns { runs: 1, also: vec![] };
        let error = contest(ways, Path::new("/bin/echo")).run(&turns, Field::none()).unwrap_err();
        assert!(error.to_string().contains("echo said"), "{error}");
    }
}
