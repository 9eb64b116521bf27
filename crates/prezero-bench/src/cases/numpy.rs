//! `prezero bench numpy`: real numpy programs, idle time between their rounds, under
//! each allocator.
//!
//! Each allocator gets several processes, their order rotated, and each process runs every
//! case; the medians are over all rounds of an allocator's processes.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use crate::figure::{Across, Case, Figure, Report, Sheet};
use crate::peers::{Allocator, Field, GLIBC, NOWHERE, PREZERO};
use crate::progress::{self, step};
use crate::turns::in_turns;

/// The program; `bench/numpy_rounds.py` runs by itself too.
const PROGRAM: &str = include_str!("../../../../bench/numpy_rounds.py");
/// Processes for each allocator.
const PROCESSES: usize = 5;
/// Rounds of each case in each process.
const ROUNDS: usize = 15;

/// The command line of `prezero bench numpy`.
#[derive(clap::Args)]
#[command(after_help = "Example: prezero bench numpy --python .venv/bin/python3")]
pub struct Numpy {
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

/// What the program prints.
#[derive(Deserialize)]
pub(super) struct Printed {
    numpy: String,
    pub(super) cases: Vec<PrintedCase>,
}

#[derive(Deserialize)]
pub(super) struct PrintedCase {
    pub(super) name: String,
    pub(super) samples_us: Vec<f64>,
}

/// Whether so many processes and such pauses can be measured.
pub(super) fn check(processes: usize, pause_ms: f64) -> Result<()> {
    ensure!(processes > 0, "--processes 0: nothing to measure; give 1 or more");
    ensure!((0.0..=10_000.0).contains(&pause_ms), "--pause-ms {pause_ms}: give 0 to 10000");
    Ok(())
}

impl Case for Numpy {
    fn measure(&self) -> Result<Report> {
        check(self.processes, self.pause_ms)?;
        let python = python(self.python.as_deref())?;
        let mut report = Report::here("numpy", Field::find(&self.peers)?);
        let allocators = &report.field.allocators;
        // The times of each case, by allocator.
        let mut cases: Vec<(String, Vec<Vec<f64>>)> = vec![];
        progress::expect(self.processes * allocators.len());
        for (_, which) in in_turns(self.processes, allocators.len()) {
            if step(&format!("numpy: {}", allocators[which].name)).is_err() {
                break;
            }
            let printed = rounds(&python, &allocators[which], self.pause_ms)?;
            report.facts = vec![("numpy".into(), printed.numpy)];
            for PrintedCase { name, samples_us } in printed.cases {
                let known = cases.iter().position(|(known, _)| *known == name);
                let known = known.unwrap_or_else(|| {
                    cases.push((name, vec![vec![]; allocators.len()]));
                    cases.len() - 1
                });
                cases[known].1[which].extend(samples_us);
            }
        }
        let names: Vec<_> = allocators.iter().map(|each| each.name.as_str()).collect();
        let sheet = sheet(&names, cases).note(format!(
            "NumPy {}, {} ms before each round, medians, interleaved",
            report.facts.first().map_or("", |(_, version)| version),
            self.pause_ms
        ));
        report.sheets.push(sheet);
        Ok(report)
    }
}

/// All cases in a process of their own.
pub(super) fn rounds(python: &Path, allocator: &Allocator, pause_ms: f64) -> Result<Printed> {
    let mut command = allocator.command(python, Path::new(NOWHERE))?;
    command.args(["-c", PROGRAM, "--json", "--rounds", &ROUNDS.to_string()]);
    command.args(["--pause-ms", &pause_ms.to_string()]);
    let output = command.output().with_context(|| format!("{}", python.display()))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        let last = errors.trim().lines().last().unwrap_or_default();
        bail!("numpy under {}: {}: {last}", allocator.name, output.status);
    }
    serde_json::from_slice(&output.stdout)
        .with_context(|| format!("numpy under {}: what it printed", allocator.name))
}

/// The one that was asked for, or the first that has NumPy.
pub(super) fn python(asked: Option<&Path>) -> Result<PathBuf> {
    let has_numpy = |python: &Path| {
        let import = Command::new(python).args(["-c", "import numpy"]).output();
        import.is_ok_and(|output| output.status.success())
    };
    if let Some(python) = asked {
        let named = python.display();
        ensure!(
            has_numpy(python),
            "--python {named}: cannot import numpy; {named} -m pip install numpy"
        );
        return Ok(python.into());
    }
    let known = ["python3", "/usr/bin/python3", "/usr/local/bin/python3", ".venv/bin/python3"];
    let found = known.into_iter().map(PathBuf::from).find(|python| has_numpy(python));
    found.context("no Python with NumPy; apt-get install python3-numpy, or give --python PATH")
}

fn sheet(names: &[&str], cases: Vec<(String, Vec<Vec<f64>>)>) -> Sheet {
    let mut sheet = Sheet::new("numpy: rounds with pauses", &["case"], Across::Who);
    for (case, samples) in cases {
        let each = names.iter().zip(samples);
        let figures =
            each.filter_map(|(who, samples)| Figure::of_samples(who, "round", "us", samples));
        sheet.extend(figures.map(|figure| figure.case(&[&case])));
        let against =
            sheet.find(PREZERO, &[&case], "round").zip(sheet.find(GLIBC, &[&case], "round"));
        let against = against.map(|(ours, glibc)| ours.against(GLIBC, glibc));
        if let Some(ours) = sheet.figures.last_mut().filter(|last| last.who == PREZERO) {
            ours.against.extend(against);
        }
    }
    sheet.compare_with_best("round", None);
    sheet
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_to_glibc_and_to_the_best_peer() {
        let samples = vec![vec![3900.0], vec![630.0], vec![100.0]];
        let sheet = sheet(&[GLIBC, "jemalloc", PREZERO], vec![("zeros".into(), samples)]);
        let ours = sheet.find(PREZERO, &["zeros"], "round").unwrap();
        let told: Vec<_> = ours.against.iter().map(|it| (&*it.what, &*it.peer, it.times)).collect();
        assert_eq!(told, [(GLIBC, GLIBC, 39.0), ("best", "jemalloc", 6.3)]);
    }

    #[test]
    fn a_python_without_numpy_comes_with_its_mend() {
        let python = Some("/bin/false".into());
        let numpy = Numpy { python, pause_ms: 3.0, processes: 1, peers: vec![] };
        let error = numpy.measure().unwrap_err().to_string();
        assert!(error.starts_with("--python /bin/false: cannot import numpy; "), "{error}");
    }
}
