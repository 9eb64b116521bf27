//! A report into its file.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use super::Kept;
use crate::machine::{Machine, output};
use crate::output::Taken;

/// Adds a report to the file of its machine, date and commit. One of the same benchmark is replaced.
pub fn keep(folder: &Path, mut taken: Taken, commit: Option<&str>) -> Result<()> {
    let commit = match commit {
        Some(commit) => commit.to_string(),
        None => {
            let folder = folder.ancestors().find(|folder| folder.is_dir()).unwrap_or(folder);
            let folder = folder.to_string_lossy();
            let told = output("git", &["-C", &folder, "rev-parse", "--short=7", "HEAD"]);
            told.with_context(|| format!("{folder}: no repository; give --commit NAME"))?
        }
    };
    round(&mut taken);
    forget_places(&mut taken);
    let date = date(taken.taken_s);
    let machine = folder.join(slug(&taken.report.machine));
    let file = machine.join(format!("{date}-{commit}.json"));
    let mut kept = match std::fs::read_to_string(&file) {
        Ok(text) => serde_json::from_str(&text).with_context(|| file.display().to_string())?,
        Err(_) => Kept { date, commit, reports: vec![] },
    };
    kept.reports.retain(|report| report.report.benchmark != taken.report.benchmark);
    kept.reports.push(taken);
    kept.reports.sort_by(|a, b| a.report.benchmark.cmp(&b.report.benchmark));
    std::fs::create_dir_all(&machine)
        .and_then(|()| std::fs::write(&file, lines(&serde_json::to_value(&kept)?)))
        .with_context(|| file.display().to_string())
}

/// A short name of a machine: its CPU and how many of them.
fn slug(machine: &Machine) -> String {
    let words = machine.cpu.to_lowercase();
    let words = words.split(|c: char| !c.is_ascii_alphanumeric() && c != '.');
    let told = words.filter(|word| !["", "r", "tm", "cpu", "processor"].contains(word));
    let cpus = machine.cpus.to_string();
    told.chain([cpus.as_str(), "cpus"]).collect::<Vec<_>>().join("-")
}

/// Year, month and day, UTC (Hinnant's `civil_from_days`).
fn date(seconds: u64) -> String {
    let days = seconds / 86_400 + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    format!("{:04}-{month:02}-{day:02}", year + 400 * era + later)
}

/// Numbers with five digits that count: further digits are far below any noise.
fn round(taken: &mut Taken) {
    let short = |value: &mut f64| {
        if let Ok(rounded) = format!("{value:.4e}").parse() {
            *value = rounded;
        }
    };
    for figure in taken.report.sheets.iter_mut().flat_map(|sheet| &mut sheet.figures) {
        short(&mut figure.value);
        figure.samples.iter_mut().for_each(short);
        figure.noise.iter_mut().for_each(short);
        for against in &mut figure.against {
            short(&mut against.times);
            against.noise.iter_mut().for_each(short);
        }
    }
}

/// Where files lay on the machine says nothing to a reader: of a library its name stays, of the command line all but
/// where its JSON went.
fn forget_places(taken: &mut Taken) {
    for library in taken.report.field.allocators.iter_mut().filter_map(|each| each.library.as_mut())
    {
        if let Some(name) = library.file_name() {
            *library = name.into();
        }
    }
    let mut words: Vec<&str> = taken.command.split(' ').collect();
    if let Some(at) = words.iter().position(|word| *word == "--json") {
        let value = usize::from(words.get(at + 1).is_some_and(|word| !word.starts_with('-')));
        words.drain(at..=at + value);
    }
    taken.command = words.join(" ");
}

/// JSON with a line for each figure, so that a change of one is a change of one line.
fn lines(value: &Value) -> String {
    let mut text = String::new();
    write(&mut text, value, 0);
    text + "\n"
}

/// File, reports, report, sheets, sheet, figures: a deeper level is one line.
const DEEPEST: usize = 6;

fn write(text: &mut String, value: &Value, depth: usize) {
    let indent = "\n".to_string() + &" ".repeat(depth + 1);
    let is_deep = |value: &&Value| matches!(value, Value::Array(_) | Value::Object(_));
    let (open, close, parts): (_, _, Vec<(Option<&String>, &Value)>) = match value {
        Value::Array(all) if depth < DEEPEST && all.iter().any(|each| is_deep(&each)) => {
            ('[', ']', all.iter().map(|each| (None, each)).collect())
        }
        Value::Object(all) if depth < DEEPEST && all.values().any(|each| is_deep(&each)) => {
            ('{', '}', all.iter().map(|(name, each)| (Some(name), each)).collect())
        }
        _ => return *text += &value.to_string(),
    };
    text.push(open);
    for (nth, (name, part)) in parts.into_iter().enumerate() {
        *text += if nth > 0 { "," } else { "" };
        *text += &indent;
        if let Some(name) = name {
            *text += &format!("{}: ", Value::from(name.as_str()));
        }
        write(text, part, depth + 1);
    }
    *text += &indent[..indent.len() - 1];
    text.push(close);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::figure::{Across, Figure, Report, Sheet};
    use crate::peers::Field;
    use crate::scratch::Scratch;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let days = [(0, "1970-01-01"), (951_782_400, "2000-02-29"), (1_795_737_599, "2026-11-26")];
        days.into_iter().for_each(|(seconds, told)| assert_eq!(date(seconds), told));
    }

    #[test]
    fn a_machine_is_named_by_its_cpu_and_their_count() {
        let mut machine = Machine::here();
        (machine.cpu, machine.cpus) = ("Intel(R) Xeon(R) CPU @ 2.50GHz".into(), 4);
        assert_eq!(slug(&machine), "intel-xeon-2.50ghz-4-cpus");
    }

    #[test]
    fn where_files_lay_is_forgotten() {
        let mut taken = Taken::now(Report::here("echo", Field::none()));
        let mut allocator = crate::peers::Allocator::plain();
        allocator.library = Some("/some/where/libprezero.so".into());
        taken.report.field.allocators = vec![allocator];
        for (command, kept) in [
            (
                "prezero bench steady --json /some/where/steady.json --runs 1",
                "prezero bench steady --runs 1",
            ),
            ("prezero bench steady --json", "prezero bench steady"),
            ("prezero bench steady --json --runs 1", "prezero bench steady --runs 1"),
        ] {
            taken.command = command.into();
            forget_places(&mut taken);
            assert_eq!(taken.command, kept);
        }
        assert_eq!(taken.report.field.allocators[0].library, Some("libprezero.so".into()));
    }

    #[test]
    fn json_has_a_line_for_each_figure_and_stays_the_same() {
        let figure = json!({"name": "wall", "samples": [1, 2]});
        let value = json!({"reports": [{"sheets": [{"figures": [figure, figure]}]}]});
        let text = lines(&value);
        assert_eq!(text.lines().filter(|line| line.contains("samples")).count(), 2, "{text}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
    }

    #[test]
    fn a_second_report_of_a_benchmark_replaces_the_first() {
        let scratch = Scratch::new().unwrap();
        let folder = scratch.file("results");
        let take = |benchmark: &str, value| {
            let mut report = Report::here(benchmark, Field::none());
            let mut sheet = Sheet::new("t", &[], Across::Who);
            sheet.push(Figure::new("x", "wall", "s", value));
            report.sheets.push(sheet);
            keep(&folder, Taken::now(report), Some("abc")).unwrap();
        };
        take("pair", 1.0);
        take("grid", 2.0);
        take("pair", 1.234_567_8);
        let machine = std::fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
        let file = std::fs::read_dir(machine).unwrap().next().unwrap().unwrap().path();
        assert!(file.to_string_lossy().ends_with("-abc.json"));
        let kept: Kept = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
        let named: Vec<_> = kept.reports.iter().map(|each| &*each.report.benchmark).collect();
        assert_eq!(named, ["grid", "pair"]);
        assert_eq!(kept.reports[1].report.sheets[0].figures[0].value, 1.2346);
    }
}
