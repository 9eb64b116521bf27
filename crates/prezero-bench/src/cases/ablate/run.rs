//! One run of a workload, and what it took.

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::group::Group;
use super::metric::Figures;
use super::workload::{Mode, Workload};
use crate::cases::latency::requests;
use crate::cases::real::programs::{self, Inputs};
use crate::peers::{Allocator, NOWHERE};
use crate::process::once_with_faults;
use crate::worker::{Program, warm};

/// Faulted in and given back before a program that others wrote: it must not wait for the hypervisor.
const WARM_BYTES: usize = 512 << 20;

/// What a run of a workload needs.
#[derive(Debug)]
pub enum Ready<'a> {
    /// The program in a mode, and where it runs.
    Steady(Mode, Option<Group>),
    /// A program that others wrote, and what starts it.
    Real(&'a programs::Program, PathBuf),
}

/// What all runs share.
#[derive(Debug)]
pub struct Stage {
    program: Program,
    inputs: Option<Inputs>,
    warm: Duration,
    python: Option<PathBuf>,
}

impl Stage {
    /// With inputs for programs that others wrote, where the text has that many bytes.
    pub fn set(warm: Duration, python: Option<PathBuf>, text: Option<u64>) -> Result<Stage> {
        Ok(Stage {
            program: Program::ablate()?,
            inputs: text.map(Inputs::make).transpose()?,
            warm,
            python,
        })
    }

    /// What a workload needs, or why it cannot run here.
    pub fn ready<'a>(&self, workload: &'a Workload) -> Result<Ready<'a>, String> {
        match workload {
            Workload::Steady(mode) => Ok(Ready::Steady(*mode, None)),
            Workload::Limited(mode, bytes) => Ok(Ready::Steady(*mode, Some(Group::new(*bytes)?))),
            Workload::Real(program) => {
                program.find(self.python.as_deref()).map(|path| Ready::Real(program, path))
            }
        }
    }

    /// A run under each allocator, all at once.
    ///
    /// # Errors
    /// One cannot be started; or, of each, how it ended otherwise than well.
    pub fn run(&self, ready: &Ready<'_>, under: &[&Allocator]) -> Result<Vec<Result<Figures>>> {
        match ready {
            Ready::Steady(mode, group) => {
                let start = |allocator: &&Allocator| {
                    let mut command = allocator.command(&self.program.path(), NOWHERE.as_ref())?;
                    let ms = |time: Duration| time.as_millis().to_string();
                    command.args([mode.name, &*ms(self.warm), &*ms(mode.counted)]);
                    if let Some(group) = group {
                        group.enclose(&mut command)?;
                    }
                    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
                    Ok(command.spawn()?)
                };
                let started: Vec<_> = under.iter().map(start).collect::<Result<_>>()?;
                Ok(started.into_iter().map(steady).collect())
            }
            Ready::Real(program, path) => {
                Ok(under.iter().map(|allocator| self.real(program, path, allocator)).collect())
            }
        }
    }

    fn real(
        &self,
        program: &programs::Program,
        path: &Path,
        allocator: &Allocator,
    ) -> Result<Figures> {
        warm(WARM_BYTES)?;
        let inputs = self.inputs.as_ref().context("inputs were not made")?;
        let mut command = allocator.command(path, NOWHERE.as_ref())?;
        program.dress(&mut command, inputs)?;
        let (run, faults) = once_with_faults(&mut command)?;
        Ok(Figures([
            Some(run.wall_s * 1e6),
            None,
            Some(run.cpu_s * 1e6),
            Some(faults as f64),
            Some(run.rss_mib),
        ]))
    }
}

fn steady(child: Child) -> Result<Figures> {
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "it ended with {}", output.status);
    let line = String::from_utf8_lossy(&output.stdout);
    let numbers: Result<Vec<f64>, _> = line.split_whitespace().map(str::parse).collect();
    let figures = requests(&numbers.with_context(|| format!("it said {line}"))?)?;
    Ok(Figures(figures.map(Some)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_and_faults_are_those_of_a_request() {
        let figures = requests(&[10.0, 1000.0, 2000.0, 30_000.0, 5.0, 4096.0]).unwrap();
        assert_eq!(figures, [1.0, 2.0, 3.0, 0.5, 4.0]);
        assert!(requests(&[1.0]).is_err());
    }

    #[test]
    fn every_mode_runs_without_prezero() {
        let stage = Stage::set(Duration::ZERO, None, None).unwrap();
        // One of each kind: the others differ by their size.
        for name in ["steady-96K", "sparse-plain-1M", "handler-2", "passing", "frames"] {
            let mode = Mode { name, counted: Duration::from_millis(200), at_once: 2 };
            let plain = Allocator::plain();
            let both = stage.run(&Ready::Steady(mode, None), &[&plain, &plain]).unwrap();
            for figures in both.into_iter().map(Result::unwrap) {
                assert!(figures.0.iter().all(Option::is_some), "{name}: {figures:?}");
            }
        }
        let unknown = Mode { name: "steady", counted: Duration::from_millis(1), at_once: 1 };
        let ended = stage.run(&Ready::Steady(unknown, None), &[&Allocator::plain()]).unwrap();
        assert!(ended[0].is_err());
    }
}
