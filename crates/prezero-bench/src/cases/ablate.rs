//! `prezero bench ablate`: what each mechanism is worth.
//!
//! A mechanism is left out by the hidden knob `PREZERO_ABLATE`. The same program runs with it and without it, in
//! fresh processes: at once where it is idle most of the time, else in turns, so that what drifts on the machine hits
//! both. The rows, and which may matter for which mechanism, stand in `bench/cases.toml`.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use prezero::internal::Mechanism;
use prezero_host::samples::Change;

use crate::figure::{Across, Against, Case, Figure, Report, Sheet};
use crate::peers::{Allocator, Field, PREZERO};
use crate::progress::{self, kept, step};
use crate::runner::{Contest, Inputs, Row, Run, Way};
use crate::scratch::Scratch;
use crate::table::{self, CASES};

const KNOB: &str = "PREZERO_ABLATE";
/// Mechanisms that are compared with the same runs, where runs are made in turns.
const IN_TURNS: usize = 4;
/// Pairs of a row, at least, and those from which on their noise is believed.
const LEAST: usize = 3;
const BELIEVED: usize = 10;
/// A row ends early when its times are known so well.
const KNOWN: f64 = 0.005;
/// Fewer pairs agree by chance more often than once in twenty times.
const ENOUGH: usize = 6;
/// A change that could hide in more noise is not said to be none.
const TOLD: f64 = 0.1;
/// Less than this is next to nothing of a metric: a tenth of a fault for a request, and times that no clock tells.
const LITTLE: f64 = 0.1;
/// The column of the runs without a mechanism.
const WITHOUT: &str = "without";
/// What the program prints of a request, and those that have to be known for a row to end early.
const METRICS: [(&str, &str); 5] =
    [("time", "us"), ("95th percentile", "us"), ("CPU", "us"), ("faults", ""), ("peak", "MiB")];
const LEADING: [&str; 2] = ["time", "CPU"];

/// The command line of `prezero bench ablate`.
#[derive(clap::Args)]
#[command(after_help = "Example: prezero bench ablate --only ready,gather --json ablate.json")]
pub struct Ablate {
    /// Which mechanisms; with + between those that are left out together [each]
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    only: Vec<String>,
    /// Which workloads [where it may matter]
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
}

/// A program: its name, how many run at once, and how long it counts, s.
type Workload = (&'static str, usize, f64);

fn workloads() -> impl Iterator<Item = Workload> {
    let all = CASES.ablate.at_once.iter();
    all.flat_map(|(at_once, counted, names)| {
        names.split(' ').map(|name| (name, *at_once, *counted))
    })
}

/// Where a mechanism may matter.
fn suited(mechanism: &str) -> impl Iterator<Item = &'static str> {
    CASES.ablate.mechanisms.get(mechanism).into_iter().flat_map(|names| names.split(' '))
}

impl Case for Ablate {
    fn measure(&self) -> Result<Report> {
        ensure!(self.seconds > 0.0, "--seconds {}: nothing would be measured", self.seconds);
        ensure!((0.0..=600.0).contains(&self.warm), "--warm {}: give 0 to 600", self.warm);
        let known: Vec<&str> = Mechanism::ALL.iter().map(|each| each.name()).collect();
        let each = if self.only.is_empty() {
            known.iter().map(ToString::to_string).collect()
        } else {
            self.only.clone()
        };
        if let Some(unknown) =
            each.iter().find(|names| !names.split('+').all(|name| known.contains(&name)))
        {
            bail!("--only {unknown}: no such mechanism; --plan has them");
        }
        if let Some(unknown) =
            self.on.iter().find(|name| !workloads().any(|(known, ..)| known == **name))
        {
            bail!("--on {unknown}: no such workload; --plan has them");
        }
        let mut report = Report::here("ablate", Field::find(&["glibc".into()])?);
        if self.plan {
            let line = |each: &Mechanism| {
                let on: Vec<_> = suited(each.name()).collect();
                format!("{}: {}\n    on {}", each.name(), each.does(), on.join(" "))
            };
            report.notes.extend(Mechanism::ALL.iter().map(line));
            let names: Vec<_> = workloads().map(|(name, ..)| name).collect();
            report.notes.push(format!("workloads: {}", names.join(" ")));
            return Ok(report);
        }
        let ours = report.field.allocators.iter().find(|each| each.is_prezero()).cloned();
        let ours = ours.with_context(|| report.field.absences().trim().to_string())?;
        report.facts = vec![("warm-up, s".into(), self.warm.to_string())];
        let sheet = self.sheet(&ours, &each, &mut report.notes)?;
        report.sheets.push(sheet);
        Ok(report)
    }
}

impl Ablate {
    fn sheet(&self, ours: &Allocator, each: &[String], notes: &mut Vec<String>) -> Result<Sheet> {
        let mut sheet = Sheet::new(
            "ablate: programs without a mechanism",
            &["mechanism", "workload"],
            Across::Who,
        )
        .note("speed-up with the mechanism over without it; above 1 it spares something");
        let suits = |names: &str, workload: &str| {
            self.all
                || self.on.iter().any(|on| on == workload)
                || (self.on.is_empty()
                    && names.split('+').any(|name| suited(name).any(|on| on == workload)))
        };
        let of = |workload: Workload| {
            let left: Vec<&str> =
                each.iter().map(String::as_str).filter(|names| suits(names, workload.0)).collect();
            (workload, left)
        };
        let asked: Vec<_> = workloads().map(of).filter(|(_, left)| !left.is_empty()).collect();
        progress::expect(asked.iter().map(|(_, left)| left.len()).sum());
        let inputs = Inputs::new(1, None)?;
        let scratch = Scratch::new()?;
        'workloads: for ((name, at_once, counted), left) in asked {
            let mut arguments =
                vec![name.to_string(), format!("{}s", self.warm), format!("{counted}s")];
            let mut program = inputs.program("ablate")?;
            if let Some(limit) = CASES.ablate.limit.get(name) {
                // In a cgroup of its own: a shell makes it and takes it away.
                let script = inputs.filled("{limited.sh}")?;
                let within =
                    [script, table::bytes(limit)?.to_string(), program.display().to_string()];
                arguments = [within.to_vec(), arguments].concat();
                program = "/bin/sh".into();
            }
            let row = Row { of: vec![name.into()], program, arguments, ..Row::default() };
            for some in left.chunks(if at_once > 1 { at_once - 1 } else { IN_TURNS }) {
                let ways: Vec<Way> = [Way::of(ours)]
                    .into_iter()
                    .chain(some.iter().map(|names| without(ours, names)))
                    .collect();
                let contest = Contest {
                    name: "ablate",
                    ways: &ways,
                    stats: false,
                    prints: true,
                    scratch: &scratch,
                };
                let budget = Duration::from_secs_f64(self.seconds * some.len() as f64);
                let mut taken = vec![vec![]; ways.len()];
                let whole = kept(take(&contest, &row, at_once, budget, &mut taken));
                for (names, without) in some.iter().zip(&taken[1..]) {
                    add(&mut sheet, [names, name], &taken[0], without);
                }
                match whole {
                    Ok(Some(ended)) => sheet.says.extend(ended),
                    Ok(None) => break 'workloads,
                    Err(error) => notes.push(format!("left out: {name}: {error:#}")),
                }
            }
        }
        let verdicts = verdicts(&sheet);
        sheet.says.extend(verdicts);
        Ok(sheet)
    }
}

/// The same without some. A mechanism that the environment leaves out stays out.
fn without(ours: &Allocator, names: &str) -> Way {
    let too = std::env::var(KNOB).unwrap_or_default();
    let names_of = format!("{too},{}", names.replace('+', ","));
    let mut way = Way { name: names.into(), ..Way::of(ours) };
    way.allocator.environment.push((KNOB.into(), names_of.trim_start_matches(',').into()));
    way
}

/// Forth and back until the time is up or all is known; which did not end well, and how.
fn take(
    contest: &Contest<'_>,
    row: &Row,
    at_once: usize,
    budget: Duration,
    taken: &mut [Vec<Vec<f64>>],
) -> Result<Vec<String>> {
    for way in &contest.ways[1..] {
        step(&format!("ablate: {} without {}", row.of[0], way.name))?;
    }
    let (began, mut ended) = (Instant::now(), vec![]);
    let mut order: Vec<usize> = (0..contest.ways.len()).collect();
    for turn in 0.. {
        let known = || taken[1..].iter().all(|without| is_known(&taken[0], without));
        if (turn >= LEAST && began.elapsed() >= budget) || (turn >= BELIEVED && known()) {
            break;
        }
        let mut fresh = vec![];
        for some in order.clone().chunks(at_once) {
            progress::whole()?;
            let ways: Vec<&Way> = some.iter().map(|&which| &contest.ways[which]).collect();
            for (&which, run) in some.iter().zip(contest.at_once(&ways, row)?) {
                match run.and_then(|run: Run| run.numbers()) {
                    Ok(numbers) => fresh.push((which, numbers)),
                    Err(error) if which > 0 => {
                        ended.push(format!(
                            "{} without {}: {error:#}",
                            row.of[0], contest.ways[which].name
                        ));
                        order.retain(|&each| each != which);
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        fresh.into_iter().for_each(|(which, numbers)| taken[which].push(numbers));
        order.reverse();
    }
    Ok(ended)
}

fn samples(runs: &[Vec<f64>], metric: usize) -> Vec<f64> {
    runs.iter().filter_map(|run| run.get(metric).copied()).collect()
}

/// Without over with, less one. `None` where both are next to nothing, whose ratio says nothing.
fn change(with: &[Vec<f64>], without: &[Vec<f64>], metric: usize) -> Option<Change> {
    let pairs = with.len().min(without.len());
    let (with, without) = (samples(&with[..pairs], metric), samples(&without[..pairs], metric));
    if with.iter().chain(&without).all(|value| *value < LITTLE) {
        return None;
    }
    let change = Change::of_runs(&without, &with)?;
    (change.change.is_finite() && change.noise.is_finite()).then_some(change)
}

fn is_known(with: &[Vec<f64>], without: &[Vec<f64>]) -> bool {
    let leading = METRICS.iter().enumerate().filter(|(_, (name, _))| LEADING.contains(name));
    leading
        .map(|(metric, _)| change(with, without, metric))
        .all(|change| change.is_none_or(|change| change.noise <= KNOWN))
}

/// Adds the pairs of a mechanism on a workload.
fn add(sheet: &mut Sheet, of: [&str; 2], with: &[Vec<f64>], without: &[Vec<f64>]) {
    let pairs = with.len().min(without.len());
    for (metric, (name, unit)) in METRICS.into_iter().enumerate() {
        let figure = |who: &str, runs: &[Vec<f64>]| {
            Some(Figure::of_samples(who, name, unit, samples(&runs[..pairs], metric))?.case(&of))
        };
        let against = change(with, without, metric).map(|change| Against {
            noise: Some(change.noise),
            ..Against::new(WITHOUT, WITHOUT, 1.0 + change.change)
        });
        sheet.extend(figure(PREZERO, with).map(|figure| figure.and(against)));
        sheet.extend(figure(WITHOUT, without));
    }
}

/// What the comparisons come to, a sentence for each mechanism. Where times were not known well enough to show a tenth,
/// nothing is said of the mechanism.
fn verdicts(sheet: &Sheet) -> Vec<String> {
    let mut mechanisms: Vec<&str> = vec![];
    for figure in &sheet.figures {
        if !mechanisms.contains(&&*figure.of[0]) {
            mechanisms.push(&figure.of[0]);
        }
    }
    let verdict = |mechanism: &str| {
        let (mut beyond, mut is_told) = (vec![], true);
        for figure in sheet.figures.iter().filter(|figure| figure.of[0] == mechanism) {
            for against in &figure.against {
                let enough = figure.samples.len() >= ENOUGH;
                let noise = against.noise.unwrap_or(f64::INFINITY);
                is_told &= (enough && noise <= TOLD) || !LEADING.contains(&figure.name.as_str());
                if enough && (against.times - 1.0).abs() > noise {
                    beyond.push(format!(
                        "{} of {} x {:.3} ± {noise:.3}",
                        figure.name, figure.of[1], against.times
                    ));
                }
            }
        }
        match (&beyond[..], is_told) {
            ([], true) => format!("{mechanism}: nothing beyond noise"),
            ([], false) => format!("{mechanism}: too few runs"),
            _ => format!("{mechanism}: {}", beyond.join("; ")),
        }
    };
    mechanisms.into_iter().map(verdict).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(times: &[f64]) -> Vec<Vec<f64>> {
        times.iter().map(|&us| vec![us, us, 2.0 * us, 0.0, 1.0]).collect()
    }

    fn sheet() -> Sheet {
        Sheet::new("t", &["mechanism", "workload"], Across::Who)
    }

    #[test]
    fn each_mechanism_has_a_workload_and_each_name_in_the_table_is_one() {
        let names: Vec<_> = workloads().map(|(name, ..)| name).collect();
        for mechanism in Mechanism::ALL {
            let suited: Vec<_> = suited(mechanism.name()).collect();
            assert!(
                !suited.is_empty(),
                "bench/cases.toml: [ablate.mechanisms] has no {}",
                mechanism.name()
            );
            assert_eq!(suited.iter().find(|name| !names.contains(name)), None);
        }
        let known: Vec<_> = Mechanism::ALL.iter().map(|each| each.name()).collect();
        assert_eq!(
            CASES.ablate.mechanisms.keys().find(|name| !known.contains(&name.as_str())),
            None,
            "it is gone"
        );
    }

    #[test]
    fn savings_are_told_and_nothing_over_nothing_is_none() {
        let mut sheet = sheet();
        add(
            &mut sheet,
            ["latest", "busy"],
            &runs(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
            &runs(&[1.1, 2.2, 3.3, 4.4, 5.5, 6.6]),
        );
        let figure = sheet.find(PREZERO, &["latest", "busy"], "time").unwrap();
        assert!((figure.against[0].times - 1.1).abs() < 1e-9, "{figure:?}");
        assert!(sheet.find(PREZERO, &["latest", "busy"], "faults").unwrap().against.is_empty());
        assert!(verdicts(&sheet)[0].starts_with("latest: time of busy x 1.100 ± 0.000; "));
    }

    #[test]
    fn nothing_is_said_of_few_pairs_or_under_much_noise() {
        let mut sheet = sheet();
        add(&mut sheet, ["few", "busy"], &runs(&[1.0; 3]), &runs(&[1.0; 3]));
        add(
            &mut sheet,
            ["noisy", "busy"],
            &runs(&[1.0; 6]),
            &runs(&[2.0, 0.5, 2.0, 0.5, 2.0, 0.5]),
        );
        add(
            &mut sheet,
            ["none", "busy"],
            &runs(&[1.0; 6]),
            &runs(&[1.01, 0.99, 1.01, 0.99, 1.01, 0.99]),
        );
        assert_eq!(
            verdicts(&sheet),
            ["few: too few runs", "noisy: too few runs", "none: nothing beyond noise"]
        );
    }

    #[test]
    fn several_are_left_out_together_by_the_knob() {
        let way = without(&Allocator::plain(), "backoff+gather");
        let (knob, names) = &way.allocator.environment[0];
        assert!(knob == KNOB && names.ends_with("backoff,gather"), "{names}");
    }
}
