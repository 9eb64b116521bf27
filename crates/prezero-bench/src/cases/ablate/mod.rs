//! `prezero bench ablate`: what each mechanism is worth.
//!
//! A mechanism is left out by the hidden knob `PREZERO_ABLATE`. The same program runs with it and without it, in
//! fresh processes: at once where it is idle most of the time, else in turns, so that what drifts on the machine hits
//! both. A program learns for some seconds before its requests count. A few mechanisms are compared with the same runs.

mod group;
mod left;
mod metric;
mod run;
mod runs;
mod workload;

use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use left::Left;
use run::Stage;
use runs::Runs;
use workload::Workload;

use super::real::build_of;
use crate::figure::{Case, Report};
use crate::peers::{Field, PREZERO};
use crate::progress::{self, Interrupted};

/// Mechanisms that are compared with the same runs, where runs are made in turns: fewer runs for each, and no more than
/// this many runs lie between the two of a pair.
const IN_TURNS: usize = 4;
/// The command line of `prezero bench ablate`.
#[derive(clap::Args)]
#[command(after_help = "Example: prezero bench ablate --only ready,gather --json ablate.json")]
pub struct Ablate {
    /// Which mechanisms; with + between those that are left out together [each]
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    only: Vec<String>,
    /// Which workloads; real is all programs that others wrote [where it may matter]
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    on: Vec<String>,
    /// Run each mechanism on every workload
    #[arg(long)]
    all: bool,
    /// Say which mechanisms there are and where each may matter, and measure nothing
    #[arg(long)]
    plan: bool,
    /// For each row, s
    #[arg(long, value_name = "S", default_value_t = 13.0)]
    seconds: f64,
    /// What a program does before it counts, s
    #[arg(long, value_name = "S", default_value_t = 2.5)]
    warm: f64,
    /// The text that sort and ripgrep read, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 96)]
    text_mib: u64,
    /// A Python that has numpy, scipy and pandas [the first found that has]
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
}

impl Case for Ablate {
    fn measure(&self) -> Result<Report> {
        ensure!(self.seconds > 0.0, "--seconds {}: nothing would be measured", self.seconds);
        ensure!((0.0..=600.0).contains(&self.warm), "--warm {}: give 0 to 600", self.warm);
        let (left, workloads) = (self.left_out()?, self.workloads()?);
        let mut report = Report::here("ablate", Field::find(&["glibc".into()])?);
        if self.plan {
            report.notes.extend(plan());
            return Ok(report);
        }
        self.rows(&mut report, &left, &workloads)?;
        Ok(report)
    }
}

impl Ablate {
    fn left_out(&self) -> Result<Vec<Left>> {
        if self.only.is_empty() {
            return Ok(Left::each());
        }
        self.only.iter().map(|names| Left::read(names)).collect()
    }

    fn workloads(&self) -> Result<Vec<Workload>> {
        let all = Workload::all();
        let is = |workload: &Workload, name: &str| {
            workload.name() == name || name == "real" && matches!(workload, Workload::Real(_))
        };
        if let Some(unknown) = self.on.iter().find(|name| !all.iter().any(|each| is(each, name))) {
            bail!("--on {unknown}: no such workload; --plan has them");
        }
        let asked =
            |each: &Workload| self.on.is_empty() || self.on.iter().any(|name| is(each, name));
        Ok(all.into_iter().filter(asked).collect())
    }

    /// What each may matter for, and nothing else.
    fn asked<'a>(
        &self,
        left: &[Left],
        workloads: &'a [Workload],
    ) -> Vec<(&'a Workload, Vec<Left>)> {
        let chosen = self.all || !self.on.is_empty();
        let of = |workload: &'a Workload| {
            let suits = |each: &&Left| chosen || each.suits(workload);
            (workload, left.iter().filter(suits).cloned().collect::<Vec<_>>())
        };
        workloads.iter().map(of).filter(|(_, left)| !left.is_empty()).collect()
    }

    fn rows(&self, report: &mut Report, left: &[Left], workloads: &[Workload]) -> Result<()> {
        let ours = report.field.allocators.iter().find(|each| each.is_prezero()).cloned();
        let Some(ours) = ours else {
            let absent = report.field.absent.iter().find(|each| each.name == PREZERO);
            bail!("prezero: {}", absent.map_or("not found", |absent| &absent.mend));
        };
        let library = ours.library.as_deref().context("prezero without a library")?;
        report.facts = vec![
            ("build".into(), build_of(library)?),
            ("warm-up, s".into(), self.warm.to_string()),
        ];
        let asked = self.asked(left, workloads);
        let reads = asked.iter().any(|(workload, _)| matches!(workload, Workload::Real(_)));
        let stage = Stage::set(
            Duration::from_secs_f64(self.warm),
            self.python.clone(),
            reads.then_some(self.text_mib << 20),
        )?;
        let mut sheet = metric::sheet();
        progress::expect(asked.iter().map(|(_, left)| left.len()).sum());
        'workloads: for (workload, left) in &asked {
            let name = workload.name();
            let ready = match stage.ready(workload) {
                Ok(ready) => ready,
                Err(why) => {
                    report.notes.push(format!("left out: {name}: {why}"));
                    continue;
                }
            };
            let at_once = workload.at_once();
            let together = if at_once > 1 { at_once - 1 } else { IN_TURNS };
            for some in left.chunks(together) {
                let mut runs = Runs::begin(&ours, some, at_once);
                let budget = self.seconds * some.len() as f64;
                let taken = runs.take(&stage, &ready, &name, Duration::from_secs_f64(budget));
                runs.put(&mut sheet, &name);
                match taken {
                    Ok(()) => {}
                    Err(error) if error.is::<Interrupted>() => break 'workloads,
                    Err(error) => report.notes.push(format!("left out: {name}: {error:#}")),
                }
            }
        }
        let verdicts = metric::verdicts(&sheet);
        sheet.says.extend(verdicts);
        report.sheets.push(sheet);
        Ok(())
    }
}

/// Mechanisms with what each does and where it may matter, and workloads.
fn plan() -> Vec<String> {
    let workloads = Workload::all();
    let mut lines = vec![];
    for left in Left::each() {
        let suited = workloads.iter().filter(|each| left.suits(each)).map(Workload::name);
        let suited: Vec<_> = suited.collect();
        let mut line = format!("{}: {}", left.name(), left.does());
        let _ = write!(line, "\n    on {}", suited.join(" "));
        lines.push(line);
    }
    let names: Vec<_> = workloads.iter().map(Workload::name).collect();
    lines.push(format!("workloads: {}", names.join(" ")));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_mechanisms_and_workloads_are_told() {
        let text = plan().join("\n");
        assert!(Left::each().iter().all(|left| text.contains(&left.name())));
        assert!(text.contains("workloads: steady-96K") && text.contains("real:ripgrep"));
    }
}
