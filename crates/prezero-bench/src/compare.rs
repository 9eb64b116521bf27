//! `prezero bench compare`: what changed between two runs, beyond noise.
//!
//! Any two files of one benchmark: every median in the first is looked for in the second, by
//! what it is of (allocator, size, mode ...), not by where it stands. Noise is of two kinds. Within
//! a run: three standard errors of the medians' ratio, from how far the samples lay apart; where
//! there was one sample, nothing is known of it, and the change is shown apart. And between the
//! runs, which an hour and another neighbour lie between: what figures have changed that prezero
//! has no part in, those of other allocators or of programs without it. Where there are too few of these,
//! that is said.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Result, ensure};
use comfy_table::{CellAlignment, Table, presets::UTF8_BORDERS_ONLY};
use serde_json::Value;

use super::output::Output;
use super::{peers, report};

mod figures;

pub use figures::inside;
use figures::{Figures, collect};

/// Less is no change, whatever the noise.
const LEAST: f64 = 0.01;
/// Standard errors that chance seldom makes: files have hundreds of figures.
const ERRORS: f64 = 3.0;
/// Of figures that prezero has no part in: this share has changed by less than what counts as
/// noise between the runs, and with fewer nothing is known of that.
const STEADY: f64 = 0.95;
const CONTROLS: usize = 8;
/// By these words in their names, and those of the peers, one knows them.
const OTHERS: [&str; 8] = [
    "kernel default",
    "bare",
    "untouched",
    "prealloc",
    "its own",
    "own-thp",
    "own-hugetlb",
    "rival",
];

/// The command line of `prezero bench compare`.
#[derive(clap::Args)]
#[command(
    after_help = "Example: prezero bench pair --json before.json; ...; prezero bench pair --json after.json; \
    prezero bench compare before.json after.json"
)]
pub struct Compare {
    #[command(flatten)]
    output: Output,
    /// What was written with --json before
    #[arg(value_name = "A.json")]
    before: PathBuf,
    /// And after
    #[arg(value_name = "B.json")]
    after: PathBuf,
    /// Show only what has this in its name, as prezero
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
}

/// Everything compared.
#[derive(Debug, serde::Serialize)]
struct Report {
    benchmark: String,
    /// Whether machine and kernel are the same.
    same_machine: bool,
    compared: usize,
    /// In one file alone, or of the same as another.
    unmatched: usize,
    /// Noise between the runs, by what was measured; not there: unknown.
    between: BTreeMap<String, f64>,
    /// Beyond noise, the greatest change first.
    changed: Vec<Change>,
    /// Changes of figures of whose noise nothing is known.
    unknown: Vec<Change>,
}

#[derive(Debug, serde::Serialize)]
struct Change {
    what: String,
    before: f64,
    after: f64,
    /// The ratio, less one.
    change: f64,
    noise: Option<f64>,
}

impl Compare {
    /// Compares and prints.
    pub fn run(&self) -> Result<()> {
        let (before, after) = (report::read(&self.before)?, report::read(&self.after)?);
        ensure!(
            before["benchmark"] == after["benchmark"],
            "{} is of {}, {} of {}: give two of one benchmark",
            self.before.display(),
            before["benchmark"],
            self.after.display(),
            after["benchmark"]
        );
        let report = compared(&before, &after, self.only.as_deref());
        ensure!(
            report.compared > 0,
            "nothing to compare: {} figures, none of which{} is in both files",
            report.unmatched,
            self.only.as_ref().map_or(String::new(), |only| format!(", with {only} in its name,"))
        );
        self.output.put(&report, || report.render())
    }
}

fn compared(before: &Value, after: &Value, only: Option<&str>) -> Report {
    let (mut old, mut new) = (BTreeMap::new(), BTreeMap::new());
    collect(before, "", &mut old);
    collect(after, "", &mut new);
    let asked = |name: &String| only.is_none_or(|only| name.contains(only));
    let between = between(&old, &new);
    let (mut changed, mut unknown, mut pairs) = (vec![], vec![], 0);
    for (what, old) in old.iter().filter(|(name, _)| asked(name)) {
        let (Some(old), Some(Some(new))) = (old, new.get(what)) else { continue };
        pairs += 1;
        if old.median == new.median {
            continue;
        }
        let change = new.median / old.median - 1.0;
        let between = between.get(kind(what)).copied().unwrap_or(0.0);
        let noise = old
            .error
            .zip(new.error)
            .map(|(old, new)| (ERRORS * old.hypot(new) * (1.0 + change).abs()).hypot(between));
        let row =
            Change { what: what.clone(), before: old.median, after: new.median, change, noise };
        match noise {
            None if change.abs() > LEAST => unknown.push(row),
            Some(noise) if change.abs() > noise.max(LEAST) => changed.push(row),
            _ => {}
        }
    }
    for list in [&mut changed, &mut unknown] {
        list.sort_by(|a, b| b.change.abs().total_cmp(&a.change.abs()));
    }
    let machine =
        |json: &Value| ["cpu", "cpus", "kernel", "thp"].map(|key| json["machine"][key].clone());
    let count = |all: &Figures| all.keys().filter(|name| asked(name)).count();
    Report {
        benchmark: before["benchmark"].as_str().unwrap_or_default().into(),
        same_machine: machine(before) == machine(after),
        compared: pairs,
        unmatched: count(&old) + count(&new) - 2 * pairs,
        between,
        changed,
        unknown,
    }
}

/// What was measured: the last part of a name.
fn kind(what: &str) -> &str {
    what.rsplit(" / ").next().unwrap_or(what)
}

/// How much figures changed from run to run that prezero has no part in, by what was measured.
fn between(old: &Figures, new: &Figures) -> BTreeMap<String, f64> {
    let is_other = |part: &str| {
        let part = format!(" {} ", part.replace(',', ""));
        peers::names().chain(OTHERS).any(|word| part.contains(&format!(" {word} ")))
    };
    let mut changes: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for (what, old) in old.iter().filter(|(what, _)| what.split(" / ").any(is_other)) {
        // Of figures without an error some are facts, and some so rough that they say nothing.
        let (Some(old), Some(Some(new))) = (old, new.get(what)) else { continue };
        if old.error.is_some() && new.error.is_some() {
            let change = (new.median / old.median - 1.0).abs();
            changes.entry(kind(what).into()).or_default().push(change);
        }
    }
    changes.retain(|_, changes| changes.len() >= CONTROLS);
    let steady = |(kind, mut changes): (String, Vec<f64>)| {
        changes.sort_by(f64::total_cmp);
        let at = (changes.len() as f64 * STEADY).ceil() as usize;
        (kind, changes[at.clamp(1, changes.len()) - 1])
    };
    changes.into_iter().map(steady).collect()
}

impl Report {
    fn render(&self) -> String {
        let mut text = String::new();
        if !self.same_machine {
            text += "not the same machine, kernel or THP setting: changes may be of those\n";
        }
        for (kind, noise) in &self.between {
            text += &format!(
                "between the runs: of figures in {kind} that prezero has no part in {:.0} % changed by less \
                 than {:.1} %: that is noise\n",
                STEADY * 100.0,
                noise * 100.0
            );
        }
        if self.between.is_empty() {
            text += "between the runs: nothing is known of noise, only within each; repeat them to see\n";
        }
        text += &shown("changed beyond noise", &self.changed);
        text += &shown("changed, and nothing is known of the noise", &self.unknown);
        text + &format!(
            "{}: {} of {} figures changed beyond noise ({} up, {} down); {} not in both, or not told apart\n",
            self.benchmark,
            self.changed.len(),
            self.compared,
            self.changed.iter().filter(|each| each.change > 0.0).count(),
            self.changed.iter().filter(|each| each.change < 0.0).count(),
            self.unmatched
        )
    }
}

fn shown(title: &str, changes: &[Change]) -> String {
    if changes.is_empty() {
        return String::new();
    }
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY).set_header([title, "before", "after", "change", "noise"]);
    for change in changes {
        table.add_row([
            change.what.clone(),
            digits(change.before),
            digits(change.after),
            format!("{:+.1} %", change.change * 100.0),
            change.noise.map_or("-".into(), |noise| format!("{:.1} %", noise * 100.0)),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    format!("{table}\n")
}

/// Four digits that count.
fn digits(figure: f64) -> String {
    let before_point = figure.abs().max(1e-6).log10().floor() as i32 + 1;
    format!("{figure:.*}", (4 - before_point).clamp(0, 9) as usize)
}

#[cfg(test)]
mod tests;
