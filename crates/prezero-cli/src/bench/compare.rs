//! `prezero bench compare`: what changed between two runs, beyond noise.
//!
//! Any two files of one benchmark: every median in the first is looked for in the second, by
//! what it is of (allocator, size, mode ...), not by where it stands. Noise is two standard
//! errors of the medians' ratio, from how far the samples lay apart; where there was one
//! sample, nothing is known of it, and the change is shown apart.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Result, ensure};
use comfy_table::{CellAlignment, Table, presets::UTF8_BORDERS_ONLY};
use serde_json::Value;

use super::output::Output;
use super::report;

/// Less is no change, whatever the noise.
const LEAST: f64 = 0.01;
/// What tells one element of a list from another, in the order in which it is told.
const NAMES: [&str; 20] = [
    "benchmark",
    "mode",
    "scene",
    "name",
    "title",
    "pattern",
    "program",
    "case",
    "threads",
    "ring",
    "bytes",
    "lines",
    "load",
    "metric",
    "phase",
    "level",
    "labels",
    "variant",
    "allocator",
    "way",
];
/// Of a normal distribution: between the first and last tenth, in standard deviations; and the
/// standard error of a median over that of a mean.
const TENTHS_APART: f64 = 2.563;
const OF_A_MEDIAN: f64 = 1.2533;

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

/// A median, and what one knows of it.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Figure {
    median: f64,
    /// Standard error over the median; `None`: unknown.
    error: Option<f64>,
}

/// Everything compared.
#[derive(Debug, serde::Serialize)]
struct Report {
    benchmark: String,
    /// Whether machine and kernel are the same.
    same_machine: bool,
    compared: usize,
    /// In one file alone.
    unmatched: usize,
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
        self.output.put(&report, || report.render())
    }
}

fn compared(before: &Value, after: &Value, only: Option<&str>) -> Report {
    let (mut old, mut new) = (BTreeMap::new(), BTreeMap::new());
    collect(before, "", &mut old);
    collect(after, "", &mut new);
    let asked = |name: &String| only.is_none_or(|only| name.contains(only));
    let (mut changed, mut unknown, mut pairs) = (vec![], vec![], 0);
    for (what, old) in old.iter().filter(|(name, _)| asked(name)) {
        let Some(new) = new.get(what) else { continue };
        pairs += 1;
        if old.median == new.median {
            continue;
        }
        let change = new.median / old.median - 1.0;
        let noise =
            old.error.zip(new.error).map(|(old, new)| 2.0 * old.hypot(new) * (1.0 + change).abs());
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
    let count = |all: &BTreeMap<String, Figure>| all.keys().filter(|name| asked(name)).count();
    Report {
        benchmark: before["benchmark"].as_str().unwrap_or_default().into(),
        same_machine: machine(before) == machine(after),
        compared: pairs,
        unmatched: count(&old) + count(&new) - 2 * pairs,
        changed,
        unknown,
    }
}

/// Every object with a median, by what it is of.
fn collect(json: &Value, path: &str, all: &mut BTreeMap<String, Figure>) {
    let join = |part: &str| if path.is_empty() { part.into() } else { format!("{path} / {part}") };
    match json {
        Value::Object(object) => {
            if let Some(median) = object.get("median").and_then(Value::as_f64) {
                all.insert(path.into(), Figure::of(json, median));
                return;
            }
            for (key, inner) in object {
                // Figures of a row are those of the table's columns, which are told by place.
                collect(inner, &if inner.is_array() { path.to_string() } else { join(key) }, all);
            }
        }
        Value::Array(list) => {
            for (nth, inner) in list.iter().enumerate() {
                let name = identity(inner).unwrap_or_else(|| format!("#{}", nth + 1));
                collect(inner, &join(&name), all);
            }
        }
        _ => {}
    }
}

/// What an element is of; `None` if it does not say.
pub fn identity(element: &Value) -> Option<String> {
    let words = NAMES.iter().filter_map(|name| match element.get(name)? {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(format!("{name} {number}")),
        Value::Array(list) => {
            let words: Vec<_> = list.iter().filter_map(Value::as_str).collect();
            (!words.is_empty()).then(|| words.join(", "))
        }
        other => Some(other.to_string()),
    });
    let words: Vec<_> = words.collect();
    (!words.is_empty()).then(|| words.join(" "))
}

impl Figure {
    fn of(json: &Value, median: f64) -> Figure {
        let number = |name: &str| json[name].as_f64();
        // What keeps no samples was taken three times or so.
        let count = json["samples"].as_array().map_or(1, Vec::len) as f64;
        let spread = number("p90").zip(number("p10")).map(|(high, low)| high - low);
        let known = spread.filter(|spread| count > 1.0 || *spread > 0.0);
        let error =
            known.map(|spread| OF_A_MEDIAN * spread / TENTHS_APART / count.sqrt() / median.abs());
        Figure { median, error }
    }
}

impl Report {
    fn render(&self) -> String {
        let mut text = String::new();
        if !self.same_machine {
            text += "not the same machine, kernel or THP setting: changes may be of those\n";
        }
        text += &shown("changed beyond noise", &self.changed);
        text += &shown("changed, and nothing is known of the noise", &self.unknown);
        text + &format!(
            "{}: {} of {} figures changed beyond noise ({} up, {} down); {} in one file alone\n",
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
            format!("{:.4}", change.before),
            format!("{:.4}", change.after),
            format!("{:+.1} %", change.change * 100.0),
            change.noise.map_or("-".into(), |noise| format!("{:.1} %", noise * 100.0)),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    format!("{table}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn run(median: f64, reversed: bool) -> Value {
        let cell = |allocator: &str, median: f64| {
            let ns = json!({"median": median, "p10": median * 0.95, "p90": median * 1.05,
                            "samples": vec![median; 25]});
            json!({"allocator": allocator, "ns": ns})
        };
        let mut results = vec![cell("glibc", 100.0), cell("prezero", median)];
        if reversed {
            results.reverse();
        }
        json!({"benchmark": "grid", "machine": {"cpu": "x"}, "modes": [
            {"mode": "idle", "cells": [{"bytes": 4096, "lines": 1, "results": results}]}
        ]})
    }

    #[test]
    fn figures_are_found_by_what_they_are_of() {
        let report = compared(&run(50.0, false), &run(60.0, true), None);
        assert_eq!((report.compared, report.unmatched, report.changed.len()), (2, 0, 1));
        let change = &report.changed[0];
        assert_eq!(change.what, "idle / bytes 4096 lines 1 / prezero / ns");
        assert!((change.change - 0.2).abs() < 1e-9 && change.noise.unwrap() < 0.05, "{change:?}");
        assert!(report.render().contains("1 of 2 figures changed beyond noise (1 up, 0 down)"));
    }

    #[test]
    fn what_lies_within_the_noise_is_no_change() {
        let report = compared(&run(50.0, false), &run(50.9, false), None);
        assert!(report.changed.is_empty(), "{report:?}");
        let only = compared(&run(50.0, false), &run(80.0, false), Some("glibc"));
        assert_eq!((only.compared, only.changed.len()), (1, 0));
    }

    #[test]
    fn one_sample_says_nothing_of_noise() {
        let once = |median: f64| {
            json!({"benchmark": "seeds", "rows": [{"level": "post", "labels": ["1", "yes"],
            "figures": [null, {"median": median}]}]})
        };
        let report = compared(&once(1.0), &once(2.0), None);
        assert_eq!((report.changed.len(), report.unknown.len()), (0, 1));
        assert_eq!(report.unknown[0].what, "post 1, yes / #2");
    }
}
