//! `prezero bench numpy` and `prezero bench doors`: rounds with idle time between them, of real programs.
//!
//! `numpy` runs NumPy's rounds under each allocator. `doors` shows what programs gain that take a zone without
//! `LD_PRELOAD`, beside what `prezero run` gives them: NumPy's rounds with the handler of `prezero.numpy`, and rounds of
//! vectors in Rust with `prezero::Global`. A handler also stands in the way of arrays that are too small for it; those
//! are timed in one process, in turns without and with it.
//!
//! Each way gets several processes, their order rotated, and each process runs every case; the medians are over all
//! rounds of a way's processes.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::contest::{Contest, Row, Way};
use crate::figure::{Across, Case, Figure, Report, Sheet};
use crate::peers::{Allocator, Field, GLIBC, PREZERO};
use crate::progress;
use crate::scratch::Scratch;

/// The program; `bench/numpy_rounds.py` runs by itself too.
const ROUNDS: &str = include_str!("../../../../../bench/numpy_rounds.py");
/// What calls the handler too often to notice anything else.
const SMALL: &str = include_str!("../../../../../bench/numpy_small.py");
/// Where cargo puts the example, below the folder of this program.
const RUST: &str = "examples/rounds";
/// The door of the program's own: `prezero.numpy` or `prezero::Global`.
const OWN: &str = "without LD_PRELOAD";

/// How often, and with which pauses.
#[derive(clap::Args)]
struct Pace {
    /// A Python that has numpy, for `doors` prezero.numpy too [the first one found that has numpy]
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
    /// Sleep before each round, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 3.0)]
    pause_ms: f64,
    /// Processes in each way, 15 rounds of each case in each
    #[arg(long, value_name = "N", default_value_t = 5)]
    processes: usize,
}

/// The command line of `prezero bench numpy`.
#[derive(clap::Args)]
#[command(after_help = "Example: prezero bench numpy --python .venv/bin/python3")]
pub struct Numpy {
    #[command(flatten)]
    pace: Pace,
    /// Which peers: glibc, glibc-keep, jemalloc, mimalloc, tcmalloc [all]
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    peers: Vec<String>,
}

/// The command line of `prezero bench doors`.
#[derive(clap::Args)]
#[command(after_help = "Example: cargo build --release -p prezero --example rounds\n\
    PYTHONPATH=bindings/python prezero bench doors --python .venv/bin/python3")]
pub struct Doors {
    #[command(flatten)]
    pace: Pace,
    /// The example `rounds` of the crate [examples/rounds beside this program]
    #[arg(long, value_name = "PATH")]
    rust: Option<PathBuf>,
}

/// What `numpy_rounds.py` prints.
#[derive(Deserialize)]
struct Rounds {
    numpy: String,
    cases: Vec<Round>,
}

#[derive(Deserialize)]
struct Round {
    name: String,
    samples_us: Vec<f64>,
}

/// What `numpy_small.py` prints.
#[derive(Deserialize)]
struct Calls {
    cases: Vec<Call>,
}

#[derive(Deserialize)]
struct Call {
    name: String,
    without_ns: Vec<f64>,
    with_ns: Vec<f64>,
}

/// Samples of each case, by way.
#[derive(Default)]
struct Samples(Vec<(String, Vec<Vec<f64>>)>);

impl Samples {
    fn add(&mut self, name: &str, way: usize, ways: usize, samples: Vec<f64>) {
        if !self.0.iter().any(|(known, _)| known == name) {
            self.0.push((name.into(), vec![vec![]; ways]));
        }
        let known = self.0.iter_mut().find(|(known, _)| known == name);
        known.into_iter().for_each(|(_, all)| all[way].extend(samples.iter()));
    }

    /// A row a case; each way but glibc stands beside it.
    fn sheet(self, title: &str, label: &str, figure: (&str, &str), ways: &[&str]) -> Sheet {
        let mut sheet = Sheet::new(title, &[label], Across::Who);
        for (case, samples) in self.0 {
            let figures = ways.iter().zip(samples);
            let figures = figures
                .filter_map(|(who, samples)| Figure::of_samples(who, figure.0, figure.1, samples));
            let figures: Vec<_> = figures.map(|each| each.case(&[&case])).collect();
            let glibc = figures.iter().find(|figure| figure.who == GLIBC).cloned();
            sheet.extend(figures.into_iter().map(|figure| {
                let compared = [PREZERO, OWN].contains(&&*figure.who);
                let glibc = glibc.as_ref().filter(|_| compared);
                let against = glibc.map(|glibc| figure.against(GLIBC, glibc));
                figure.and(against)
            }));
        }
        sheet
    }
}

impl Pace {
    fn check(&self) -> Result<()> {
        let Pace { processes, pause_ms, .. } = self;
        ensure!(*processes > 0, "--processes 0: nothing to measure; give 1 or more");
        ensure!((0.0..=10_000.0).contains(pause_ms), "--pause-ms {pause_ms}: give 0 to 10000");
        Ok(())
    }

    /// The one that was asked for, or the first that has NumPy.
    fn python(&self) -> Result<PathBuf> {
        let has_numpy = |python: &Path| imports(python, "numpy");
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

    /// What a program prints in each way, read as JSON; less if it was interrupted.
    fn take<T: DeserializeOwned>(
        &self,
        program: &Path,
        ways: &[Way],
        arguments: &[&str],
        mut each: impl FnMut(usize, T),
    ) -> Result<()> {
        let (stats, scratch) = (false, &Scratch::new()?);
        let contest = Contest { name: "rounds", program, ways, stats, scratch };
        let row = Row::new(&["NumPy and others"], arguments);
        for (way, runs) in contest.row(&row, self.processes)?.into_iter().flatten().enumerate() {
            for run in runs {
                let said = serde_json::from_str(&run.said);
                each(way, said.with_context(|| format!("{}: what it printed", program.display()))?);
            }
        }
        Ok(())
    }

    /// NumPy's rounds; the version of NumPy.
    fn numpy(&self, python: &Path, ways: &[Way], samples: &mut Samples) -> Result<String> {
        let (pause, mut version) = (self.pause_ms.to_string(), String::new());
        let arguments = ["-c", ROUNDS, "--json", "--rounds", "15", "--pause-ms", &pause];
        self.take(python, ways, &arguments, |way, printed: Rounds| {
            version = printed.numpy;
            for Round { name, samples_us } in printed.cases {
                samples.add(&name, way, ways.len(), samples_us);
            }
        })?;
        Ok(version)
    }
}

fn imports(python: &Path, module: &str) -> bool {
    let import = Command::new(python).args(["-c", &format!("import {module}")]).output();
    import.is_ok_and(|output| output.status.success())
}

impl Case for Numpy {
    fn measure(&self) -> Result<Report> {
        self.pace.check()?;
        let (python, mut samples) = (self.pace.python()?, Samples::default());
        let mut report = Report::here("numpy", Field::find(&self.peers)?);
        let ways: Vec<_> = report.field.allocators.iter().map(Way::of).collect();
        progress::expect(self.pace.processes * ways.len());
        let version = self.pace.numpy(&python, &ways, &mut samples)?;
        let names: Vec<_> = ways.iter().map(|way| way.name.as_str()).collect();
        let title = "numpy: rounds with pauses";
        let mut sheet = samples.sheet(title, "case", ("round", "us"), &names);
        sheet.compare_with_best("round", None);
        let pause = self.pace.pause_ms;
        report.sheets.push(
            sheet.note(format!(
                "NumPy {version}, {pause} ms before each round, medians, interleaved"
            )),
        );
        report.facts = vec![("numpy".into(), version)];
        Ok(report)
    }
}

impl Case for Doors {
    fn measure(&self) -> Result<Report> {
        let pace = &self.pace;
        pace.check()?;
        let field = Field::find(&[GLIBC.into()])?;
        ensure!(field.absent.is_empty(), "{}", field.absences().trim_end());
        let python = pace.python()?;
        ensure!(
            imports(&python, "prezero.numpy"),
            "{} has no prezero.numpy; install the wheel of prezero, or set PYTHONPATH",
            python.display()
        );
        let rust = self.rust()?;
        let mut report = Report::here("doors", field);
        progress::expect(pace.processes * (3 + 3 + 1));
        let preloaded = report.field.allocators.iter().find(|each| each.is_prezero());
        let preloaded = Way::of(preloaded.context("prezero without a library")?);
        let plain = Way::of(&Allocator::plain());
        let doors = |off: &[(&str, &str)], own: &[(&str, &str)]| {
            let [off, own] =
                [(GLIBC, off), (OWN, own)].map(|(name, set)| plain.clone().with(name, set, &[]));
            [off, own, preloaded.clone()]
        };
        let mut samples = Samples::default();
        pace.numpy(&python, &doors(&[], &[("PREZERO_ROUNDS_HANDLER", "1")]), &mut samples)?;
        // `Global` is in the program, and has to be told to leave it alone.
        let (ways, pause) = (doors(&[("PREZERO_DISABLE", "1")], &[]), pace.pause_ms.to_string());
        pace.take(&rust, &ways, &["samples", &pause], |way, printed: Vec<f64>| {
            samples.add("vec![0u8; 16M], a byte a page", way, ways.len(), printed);
        })?;
        let names = [GLIBC, OWN, PREZERO];
        let title = "doors: rounds with pauses";
        let sheet = samples.sheet(title, "program", ("round", "us"), &names);
        let note = format!("{pause} ms before each round, medians, interleaved");
        report.sheets.push(sheet.note(note));
        let mut calls = Samples::default();
        pace.take(&python, &[plain], &["-c", SMALL, "--json"], |_, printed: Calls| {
            for Call { name, without_ns, with_ns } in printed.cases {
                calls.add(&name, 0, 2, without_ns);
                calls.add(&name, 1, 2, with_ns);
            }
        })?;
        let title = "doors: arrays too small for a handler";
        let sheet = calls.sheet(title, "call", ("call", "ns"), &[GLIBC, OWN]);
        let note = "a call, without and with prezero.numpy in turns, in one process";
        report.sheets.push(sheet.note(note));
        Ok(report)
    }
}

impl Doors {
    fn rust(&self) -> Result<PathBuf> {
        let beside = || Some(std::env::current_exe().ok()?.parent()?.join(RUST));
        let program = self.rust.clone().or_else(beside).unwrap_or_else(|| RUST.into());
        ensure!(
            program.is_file(),
            "{}: not there; cargo build --release -p prezero --example rounds, or give --rust PATH",
            program.display()
        );
        Ok(program)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(sheet: &Sheet, who: &str) -> Vec<(String, String, f64)> {
        let figure = sheet.find(who, &["zeros"], "round").unwrap();
        let each = figure.against.iter();
        each.map(|it| (it.what.clone(), it.peer.clone(), it.times)).collect()
    }

    fn sheet(ways: &[&str], samples: &[f64]) -> Sheet {
        let samples = samples.iter().map(|&us| vec![us]).collect();
        Samples(vec![("zeros".into(), samples)]).sheet("t", "case", ("round", "us"), ways)
    }

    #[test]
    fn ratios_are_to_glibc_and_to_the_best_peer() {
        let mut sheet = sheet(&[GLIBC, "jemalloc", PREZERO], &[3900.0, 630.0, 100.0]);
        sheet.compare_with_best("round", None);
        let best = ("best".into(), "jemalloc".into(), 6.3);
        assert_eq!(told(&sheet, PREZERO), [(GLIBC.into(), GLIBC.into(), 39.0), best]);
        assert!(told(&sheet, "jemalloc").is_empty());
    }

    #[test]
    fn each_door_is_compared_with_the_program_as_it_is() {
        let sheet = sheet(&[GLIBC, OWN, PREZERO], &[900.0, 300.0, 100.0]);
        let times = |who| told(&sheet, who).into_iter().map(|it| it.2).collect::<Vec<_>>();
        assert_eq!([times(GLIBC), times(OWN), times(PREZERO)], [vec![], vec![3.0], vec![9.0]]);
    }

    #[test]
    fn a_python_without_numpy_and_a_program_that_is_not_built_come_with_their_mend() {
        let pace = |python| Pace { python, pause_ms: 3.0, processes: 1 };
        let numpy = Numpy { pace: pace(Some("/bin/false".into())), peers: vec![] };
        let error = numpy.measure().unwrap_err().to_string();
        assert!(error.starts_with("--python /bin/false: cannot import numpy; "), "{error}");
        let doors = Doors { pace: pace(None), rust: Some("/nowhere/rounds".into()) };
        let error = doors.rust().unwrap_err().to_string();
        assert!(error.contains("cargo build --release -p prezero --example rounds"), "{error}");
    }
}
