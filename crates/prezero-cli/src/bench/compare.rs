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
use prezero::Size;
use serde_json::Value;

use super::output::Output;
use super::report;

/// Less is no change, whatever the noise.
const LEAST: f64 = 0.01;
/// What tells one element of a list from another, in the order in which it is told.
const NAMES: [&str; 22] = [
    "benchmark",
    "mode",
    "scene",
    "name",
    "title",
    "pattern",
    "program",
    "case",
    "backing",
    "pages",
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
    /// In one file alone, or of the same as another.
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
    let (mut changed, mut unknown, mut pairs) = (vec![], vec![], 0);
    for (what, old) in old.iter().filter(|(name, _)| asked(name)) {
        let (Some(old), Some(Some(new))) = (old, new.get(what)) else { continue };
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
    let count =
        |all: &BTreeMap<String, Option<Figure>>| all.keys().filter(|name| asked(name)).count();
    Report {
        benchmark: before["benchmark"].as_str().unwrap_or_default().into(),
        same_machine: machine(before) == machine(after),
        compared: pairs,
        unmatched: count(&old) + count(&new) - 2 * pairs,
        changed,
        unknown,
    }
}

/// Every object with a median, by what it is of; `None` where several are of the same, which
/// nobody can tell apart.
fn collect(json: &Value, path: &str, all: &mut BTreeMap<String, Option<Figure>>) {
    if let Some(median) = json.get("median").and_then(Value::as_f64) {
        let figure = Some(Figure::of(json, median));
        all.entry(path.into()).and_modify(|known| *known = None).or_insert(figure);
        return;
    }
    for (path, _, inner) in inside(json, path) {
        collect(inner, &path, all);
    }
}

/// What lies in an object or a list: what each is of, below `path`, and where it stands there, as
/// JSON pointers have it (RFC 6901).
pub fn inside<'a>(json: &'a Value, path: &str) -> Vec<(String, String, &'a Value)> {
    let join = |part: &str| if path.is_empty() { part.into() } else { format!("{path} / {part}") };
    match json {
        Value::Object(object) => {
            let each = object.iter().map(|(key, inner)| {
                // The elements of a list say what they are of; those of pairs have a name alone.
                let says = inner.as_array().is_some_and(|list| !list.iter().any(is_pair));
                let path = if says { path.into() } else { join(key) };
                (path, key.replace('~', "~0").replace('/', "~1"), inner)
            });
            each.collect()
        }
        Value::Array(list) => {
            let each = list.iter().enumerate().map(|(nth, inner)| match inner.as_array() {
                Some(pair) if is_pair(inner) => {
                    (join(pair[0].as_str().unwrap_or_default()), format!("{nth}/1"), &pair[1])
                }
                // Figures of a row are those of the table's columns, which are told by place.
                _ => {
                    let name = identity(inner).unwrap_or_else(|| format!("#{}", nth + 1));
                    (join(&name), nth.to_string(), inner)
                }
            });
            each.collect()
        }
        _ => vec![],
    }
}

/// A name and what bears it.
fn is_pair(json: &Value) -> bool {
    matches!(json.as_array().map(Vec::as_slice), Some([Value::String(_), Value::Object(_)]))
}

/// What an element is of; `None` if it does not say.
fn identity(element: &Value) -> Option<String> {
    let words = NAMES.iter().filter_map(|name| match element.get(name)? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(match number.as_u64().filter(|_| *name == "bytes") {
            Some(bytes) => Size(bytes as usize).to_string(),
            None => format!("{name} {number}"),
        }),
        Value::Array(list) => {
            let words: Vec<_> = list.iter().filter_map(Value::as_str).collect();
            (!words.is_empty()).then(|| words.join(", "))
        }
        // A word with its parameter; anything longer is no name, but figures that differ from run to run.
        Value::Object(object) if object.len() == 1 => {
            let (word, parameter) = object.iter().next()?;
            Some(format!(
                "{word} {}",
                parameter.as_str().map_or_else(|| parameter.to_string(), String::from)
            ))
        }
        Value::Bool(is) => Some(format!("{name} {is}")),
        Value::Null | Value::Object(_) => None,
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
        assert_eq!(change.what, "idle / 4K lines 1 / prezero / ns");
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

    #[test]
    fn pairs_are_told_by_their_names_and_the_lists_that_hold_them() {
        let run = |first: &str, second: &str| {
            let of = |way: &str, median: f64| json!([way, {"median": median, "p10": 0.9 * median, "p90": 1.1 * median}]);
            json!({"benchmark": "lease", "sizes": [{"bytes": 2 << 20,
                "ways": [of(first, 1.0), of(second, 9.0)], "cost_ms": [of(first, 5.0)]}]})
        };
        let report = compared(&run("own", "lease"), &run("lease", "thp"), None);
        // Neither by their places nor one list's with the other's.
        assert_eq!((report.compared, report.unmatched), (1, 4), "{report:?}");
        assert_eq!(report.changed[0].what, "2M / ways / lease");
    }

    #[test]
    fn what_a_run_counted_is_no_name() {
        let run = |hit: u64| {
            json!({"benchmark": "waste", "patterns": [{"pattern": "steady",
                "bytes": {"hit": hit, "made": hit}, "load": {"chase": 4096}, "us": {"median": 1.0}}]})
        };
        let report = compared(&run(1), &run(2), None);
        assert_eq!((report.compared, report.unmatched), (1, 0), "{report:?}");
        assert_eq!(inside(&run(1)["patterns"], "")[0].0, "steady chase 4096");
    }

    #[test]
    fn two_of_one_name_are_not_compared() {
        let row = |median: f64| json!({"program": "QEMU", "ms": {"median": median}});
        let run = json!({"benchmark": "start", "rows": [row(1.0), row(2.0)]});
        let report = compared(&run, &run, None);
        assert_eq!((report.compared, report.unmatched), (0, 2), "{report:?}");
    }

    #[test]
    fn figures_have_four_digits() {
        let all = [0.0, 0.01234, 0.5, 12.3456, 1234.56, 1_234_567.0];
        assert_eq!(
            all.map(digits),
            ["0.000000000", "0.01234", "0.5000", "12.35", "1235", "1234567"]
        );
    }
}
