//! `prezero bench doors`: what programs gain that take a zone without `LD_PRELOAD`, beside what `prezero run` gives them.
//!
//! One program a language: NumPy's rounds with the handler of `prezero.numpy`, and rounds of vectors in Rust with
//! `prezero::Global`. A handler also stands in the way of arrays that are too small for it; those are timed in one
//! process, in turns without and with it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::numpy;
use crate::figure::{Across, Case, Figure, Report, Sheet};
use crate::peers::{Allocator, Field, GLIBC, NOWHERE, PREZERO};
use crate::progress::{self, kept, step};
use crate::turns::in_turns;

/// What calls the handler too often to notice anything else.
const SMALL: &str = include_str!("../../../../bench/numpy_small.py");
/// Where cargo puts the example, below the folder of this program.
const RUST: &str = "examples/rounds";
/// Processes of each program under each door.
const PROCESSES: usize = 5;
/// The door of the program's own: `prezero.numpy` or `prezero::Global`.
const OWN: &str = "without LD_PRELOAD";

/// The command line of `prezero bench doors`.
#[derive(clap::Args)]
#[command(after_help = "Example: cargo build --release -p prezero --example rounds\n\
    PYTHONPATH=bindings/python prezero bench doors --python .venv/bin/python3")]
pub struct Doors {
    /// A Python that has numpy and prezero.numpy [the first one found that has numpy]
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
    /// The example `rounds` of the crate [examples/rounds beside this program]
    #[arg(long, value_name = "PATH")]
    rust: Option<PathBuf>,
    /// Sleep before each round, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 3.0)]
    pause_ms: f64,
    /// Processes of each program under each door
    #[arg(long, value_name = "N", default_value_t = PROCESSES)]
    processes: usize,
}

/// A door, and how many microseconds each round took behind it.
type Door = (&'static str, Allocator);

/// What `numpy_small.py` prints.
#[derive(Deserialize)]
struct Small {
    cases: Vec<SmallCase>,
}

#[derive(Deserialize)]
struct SmallCase {
    name: String,
    without_ns: Vec<f64>,
    with_ns: Vec<f64>,
}

impl Case for Doors {
    fn measure(&self) -> Result<Report> {
        numpy::check(self.processes, self.pause_ms)?;
        let field = Field::find(&[GLIBC.into()])?;
        ensure!(field.absent.is_empty(), "{}", field.absences().trim_end());
        let python = numpy::python(self.python.as_deref())?;
        let import = Command::new(&python).args(["-c", "import prezero.numpy"]).output();
        ensure!(
            import.is_ok_and(|output| output.status.success()),
            "{} has no prezero.numpy; install the wheel of prezero, or set PYTHONPATH",
            python.display()
        );
        let rust = self.rust()?;
        let mut report = Report::here("doors", field);
        progress::expect(self.processes * (3 + 3 + 1));
        let mut sheet = self.rounds(&report.field, &python, &rust)?;
        sheet.notes.push(format!("{} ms before each round, medians, interleaved", self.pause_ms));
        report.sheets.push(sheet);
        report.sheets.extend(kept(self.small(&python))?);
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

    /// Large blocks, by program and door.
    fn rounds(&self, field: &Field, python: &Path, rust: &Path) -> Result<Sheet> {
        let ours = |allocator: &&Allocator| allocator.is_prezero();
        let preloaded = field.allocators.iter().find(ours).context("prezero without a library")?;
        let plain = |variable: Option<&str>| Allocator {
            environment: variable.map(|name| (name.into(), "1".into())).into_iter().collect(),
            ..Allocator::plain()
        };
        // `Global` is in the program, and has to be told to leave it alone.
        let of_numpy: [Door; 3] = [
            (GLIBC, plain(None)),
            (OWN, plain(Some("PREZERO_ROUNDS_HANDLER"))),
            (PREZERO, preloaded.clone()),
        ];
        let of_rust: [Door; 3] = [
            (GLIBC, plain(Some("PREZERO_DISABLE"))),
            (OWN, plain(None)),
            (PREZERO, preloaded.clone()),
        ];
        let mut cases: Vec<(String, [Vec<f64>; 3])> = vec![];
        let mut add = |name: String, door: usize, samples: Vec<f64>| {
            let known = cases.iter().position(|(known, _)| *known == name);
            let known = known.unwrap_or_else(|| {
                cases.push((name, Default::default()));
                cases.len() - 1
            });
            cases[known].1[door].extend(samples);
        };
        for (_, door) in in_turns(self.processes, 3) {
            if step(&format!("NumPy: {}", of_numpy[door].0)).is_err() {
                break;
            }
            for case in numpy::rounds(python, &of_numpy[door].1, self.pause_ms)?.cases {
                add(case.name, door, case.samples_us);
            }
        }
        for (_, door) in in_turns(self.processes, 3) {
            if step(&format!("Rust: {}", of_rust[door].0)).is_err() {
                break;
            }
            let mut command = of_rust[door].1.command(rust, Path::new(NOWHERE))?;
            let samples = printed(command.args(["samples", &self.pause_ms.to_string()]))?;
            add("vec![0u8; 16M], a byte a page".into(), door, samples);
        }
        Ok(sheet(cases))
    }

    /// Small arrays, which a handler must not slow down.
    fn small(&self, python: &Path) -> Result<Sheet> {
        let mut sheet = Sheet::new("doors: arrays too small for a handler", &["call"], Across::Who)
            .note("a call, without and with prezero.numpy in turns, in one process");
        let mut all: Vec<SmallCase> = vec![];
        for _ in 0..self.processes {
            if step("NumPy: small arrays").is_err() {
                break;
            }
            let mut command = Allocator::plain().command(python, Path::new(NOWHERE))?;
            let made: Small = printed(command.args(["-c", SMALL, "--json"]))?;
            for case in made.cases {
                match all.iter_mut().find(|known| known.name == case.name) {
                    Some(known) => {
                        known.without_ns.extend(case.without_ns);
                        known.with_ns.extend(case.with_ns);
                    }
                    None => all.push(case),
                }
            }
        }
        for case in all {
            let of = |who, samples| Figure::of_samples(who, "call", "ns", samples);
            let (Some(without), Some(with)) = (of(GLIBC, case.without_ns), of(OWN, case.with_ns))
            else {
                continue;
            };
            let against = with.against(GLIBC, &without);
            sheet.extend([without, with.and([against])].map(|each| each.case(&[&case.name])));
        }
        Ok(sheet)
    }
}

/// What a program prints as JSON.
fn printed<T: DeserializeOwned>(command: &mut Command) -> Result<T> {
    let named = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| named.clone())?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{named}: {}: {}", output.status, errors.trim());
    serde_json::from_slice(&output.stdout).with_context(|| format!("{named}: what it printed"))
}

/// A row a case: the program as it is, its own door, and `prezero run`.
fn sheet(cases: Vec<(String, [Vec<f64>; 3])>) -> Sheet {
    let mut sheet = Sheet::new("doors: rounds with pauses", &["program"], Across::Who);
    for (case, samples) in cases {
        let figures = [GLIBC, OWN, PREZERO].into_iter().zip(samples);
        let figures =
            figures.filter_map(|(who, samples)| Figure::of_samples(who, "round", "us", samples));
        let figures: Vec<_> = figures.map(|figure| figure.case(&[&case])).collect();
        let glibc = figures.iter().find(|figure| figure.who == GLIBC).cloned();
        sheet.extend(figures.into_iter().map(|figure| {
            let glibc = glibc.as_ref().filter(|_| figure.who != GLIBC);
            let against = glibc.map(|glibc| figure.against(GLIBC, glibc));
            figure.and(against)
        }));
    }
    sheet
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_door_is_compared_with_the_program_as_it_is() {
        let samples = [vec![900.0], vec![300.0], vec![100.0]];
        let sheet = sheet(vec![("zeros".into(), samples)]);
        let times = |who| {
            let figure = sheet.find(who, &["zeros"], "round").unwrap();
            figure.against.iter().map(|it| (&*it.peer, it.times)).collect::<Vec<_>>()
        };
        assert_eq!((times(OWN), times(PREZERO)), (vec![(GLIBC, 3.0)], vec![(GLIBC, 9.0)]));
        assert!(times(GLIBC).is_empty());
    }

    #[test]
    fn a_program_that_is_not_built_comes_with_its_mend() {
        let rust = Some("/nowhere/rounds".into());
        let doors = Doors { python: None, rust, pause_ms: 3.0, processes: 1 };
        let error = doors.rust().unwrap_err().to_string();
        assert!(error.contains("cargo build --release -p prezero --example rounds"), "{error}");
    }
}
