//! `prezero bench numpy`: real numpy programs, idle time between their rounds, under
//! each allocator.
//!
//! Each allocator gets several processes, their order rotated, and each process runs every
//! case; the medians are over all rounds of an allocator's processes.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use comfy_table::{CellAlignment, Table, presets::UTF8_BORDERS_ONLY};
use serde::{Deserialize, Serialize};

use super::grid_table::{marked, micros};
use super::machine::Machine;
use super::output::Output;
use super::peers::{Allocator, Field, GLIBC, NOWHERE, PREZERO};
use super::progress::{self, interrupted, step};
use super::samples::Spread;

/// The program; `bench/numpy_rounds.py` runs by itself too.
const PROGRAM: &str = include_str!("../../../bench/numpy_rounds.py");
/// Processes for each allocator.
const PROCESSES: usize = 5;
/// Rounds of each case in each process.
const ROUNDS: usize = 15;

/// The command line of `prezero bench numpy`.
#[derive(clap::Args)]
#[command(after_help = "Example: prezero bench numpy --python .venv/bin/python3")]
pub struct Numpy {
    #[command(flatten)]
    output: Output,
    /// A Python that has numpy [the first one found that does]
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
    /// Sleep before each round, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 3.0)]
    pause_ms: f64,
    /// Processes for each allocator, 15 rounds of each case in each
    #[arg(long, value_name = "N", default_value_t = PROCESSES)]
    processes: usize,
    /// Which peers: glibc, glibc-keep, jemalloc, mimalloc, tcmalloc [all]
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    peers: Vec<String>,
}

/// Everything measured.
#[derive(Debug, Serialize, Deserialize)]
struct Report {
    benchmark: String,
    machine: Machine,
    #[serde(flatten)]
    field: Field,
    numpy: String,
    pause_ms: f64,
    cases: Vec<Case>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Case {
    name: String,
    /// In the field's order.
    results: Vec<Measured>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Measured {
    allocator: String,
    us: Spread,
}

/// What the program prints.
#[derive(Deserialize)]
struct Printed {
    numpy: String,
    cases: Vec<PrintedCase>,
}

#[derive(Clone, Deserialize)]
struct PrintedCase {
    name: String,
    samples_us: Vec<f64>,
}

impl Numpy {
    /// Measures and prints.
    pub fn run(&self) -> Result<()> {
        ensure!(self.processes > 0, "--processes 0: nothing to measure; give 1 or more");
        ensure!(
            (0.0..=10_000.0).contains(&self.pause_ms),
            "--pause-ms {}: give 0 to 10000",
            self.pause_ms
        );
        let report = self.measure()?;
        progress::end();
        self.output.put(&report, || render(&report))
    }

    fn measure(&self) -> Result<Report> {
        let python = self.python()?;
        let (machine, field) = (Machine::here(), Field::find(&self.peers)?);
        let mut numpy = String::new();
        let mut samples = vec![Vec::<PrintedCase>::new(); field.allocators.len()];
        progress::expect(self.processes * field.allocators.len());
        'turns: for turn in 0..self.processes {
            for place in 0..field.allocators.len() {
                let which = (turn + place) % field.allocators.len();
                let allocator = &field.allocators[which];
                if step(&format!("numpy: {}", allocator.name)).is_err() {
                    break 'turns;
                }
                let printed = self.process(&python, allocator)?;
                numpy = printed.numpy;
                join(&mut samples[which], printed.cases);
            }
        }
        let cases = match cases(&field, samples) {
            Some(cases) => cases,
            None if interrupted() => vec![],
            None => bail!("no samples"),
        };
        Ok(Report {
            benchmark: "numpy".into(),
            machine,
            field,
            numpy,
            pause_ms: self.pause_ms,
            cases,
        })
    }

    fn process(&self, python: &Path, allocator: &Allocator) -> Result<Printed> {
        let mut command = allocator.command(python, Path::new(NOWHERE))?;
        command.args(["-c", PROGRAM, "--json", "--rounds", &ROUNDS.to_string()]);
        command.args(["--pause-ms", &self.pause_ms.to_string()]);
        let output = command.output().with_context(|| format!("{}", python.display()))?;
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr);
            let last = errors.trim().lines().last().unwrap_or_default();
            bail!("numpy under {}: {}: {last}", allocator.name, output.status);
        }
        serde_json::from_slice(&output.stdout)
            .with_context(|| format!("numpy under {}: what it printed", allocator.name))
    }

    fn python(&self) -> Result<PathBuf> {
        let has_numpy = |python: &Path| {
            let import = Command::new(python).args(["-c", "import numpy"]).output();
            import.is_ok_and(|output| output.status.success())
        };
        if let Some(python) = &self.python {
            let named = python.display();
            ensure!(
                has_numpy(python),
                "--python {named}: cannot import numpy; {named} -m pip install numpy"
            );
            return Ok(python.clone());
        }
        let known = ["python3", "/usr/bin/python3", "/usr/local/bin/python3", ".venv/bin/python3"];
        let found = known.into_iter().map(PathBuf::from).find(|python| has_numpy(python));
        found.context("no Python with NumPy; apt-get install python3-numpy, or give --python PATH")
    }
}

/// Adds a process's samples to what its allocator has.
fn join(all: &mut Vec<PrintedCase>, more: Vec<PrintedCase>) {
    for case in more {
        match all.iter_mut().find(|known| known.name == case.name) {
            Some(known) => known.samples_us.extend(case.samples_us),
            None => all.push(case),
        }
    }
}

/// From one list of cases for each allocator to one list of allocators for each case.
fn cases(field: &Field, samples: Vec<Vec<PrintedCase>>) -> Option<Vec<Case>> {
    let mut cases = Vec::<Case>::new();
    for (allocator, measured) in field.allocators.iter().zip(samples) {
        for PrintedCase { name, samples_us } in measured {
            let allocator = allocator.name.clone();
            let result = Measured { allocator, us: Spread::of(samples_us)? };
            match cases.iter_mut().find(|case| case.name == name) {
                Some(case) => case.results.push(result),
                None => cases.push(Case { name, results: vec![result] }),
            }
        }
    }
    Some(cases)
}

fn render(report: &Report) -> String {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY);
    let names = report.field.allocators.iter().map(|allocator| allocator.name.as_str());
    let header = ["case"].into_iter().chain(names.clone());
    table.set_header(header.chain(["x glibc", "x best", "best peer"]));
    for case in &report.cases {
        let times = names.clone().map(|name| match case.median(name) {
            Some(us) => micros(us * 1e3),
            None => "-".into(),
        });
        let ratio = |peer: Option<f64>| match (peer, case.median(PREZERO)) {
            (Some(peer), Some(ours)) => marked(peer / ours),
            _ => "-".into(),
        };
        let best = case.best_peer();
        let verdict = [
            ratio(case.median(GLIBC)),
            ratio(best.map(|best| best.us.median)),
            best.map_or("-".into(), |best| best.allocator.clone()),
        ];
        table.add_row([case.name.clone()].into_iter().chain(times).chain(verdict));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    format!(
        "{}\n{}NumPy {}, {} ms before each round; us a round, medians, interleaved\n{table}\n",
        report.machine,
        report.field.absences(),
        report.numpy,
        report.pause_ms
    )
}

impl Case {
    fn median(&self, allocator: &str) -> Option<f64> {
        let found = self.results.iter().find(|result| result.allocator == allocator);
        found.map(|result| result.us.median)
    }

    fn best_peer(&self) -> Option<&Measured> {
        let peers = self.results.iter().filter(|result| result.allocator != PREZERO);
        peers.min_by(|a, b| a.us.median.total_cmp(&b.us.median))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_to_glibc_and_to_the_best_peer() {
        let case = |name: &str, us: f64| Measured {
            allocator: name.into(),
            us: Spread::of(vec![us]).unwrap(),
        };
        let results = vec![case("glibc", 3900.0), case("jemalloc", 630.0), case(PREZERO, 100.0)];
        let field = Field::find(&["glibc".into()]).unwrap();
        let (glibc, like) = (field.allocators[0].clone(), |name: &str| Allocator {
            name: name.into(),
            ..field.allocators[0].clone()
        });
        let report = Report {
            benchmark: "numpy".into(),
            machine: Machine::here(),
            field: Field {
                allocators: vec![glibc, like("jemalloc"), like(PREZERO)],
                absent: vec![],
            },
            numpy: "2.0".into(),
            pause_ms: 3.0,
            cases: vec![Case { name: "zeros".into(), results }],
        };

        let text = render(&report);

        let row = text.lines().find(|line| line.contains("zeros")).unwrap();
        let words: Vec<_> = row.split_whitespace().filter(|word| *word != "│").collect();
        assert_eq!(words, ["zeros", "3900", "630", "100", "39.00", "6.30", "jemalloc"]);
    }

    #[test]
    fn a_python_without_numpy_comes_with_its_mend() {
        let numpy = Numpy {
            output: Output::default(),
            python: Some("/bin/false".into()),
            pause_ms: 3.0,
            processes: 1,
            peers: vec![],
        };
        let error = numpy.run().unwrap_err().to_string();
        assert!(error.starts_with("--python /bin/false: cannot import numpy; "), "{error}");
    }
}
