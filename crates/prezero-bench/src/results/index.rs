//! The index: of each machine what was measured last, and what it came to.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::Kept;
use crate::output::Taken;

/// A longer index would not be read.
const MOST_LINES: usize = 200;
const HEAD: &str = "\
# Results

Made by `prezero bench results` from the files beside it; do not edit. A file holds what was measured on one
machine, of one commit, on one day. `prezero bench BENCHMARK --keep` adds to it, or `prezero bench results FILE` what
`--json` wrote. Of each benchmark the last report is told here.

Tables of before are in the history: `git show d85e5bb:bench/RESULTS.md`.
";

/// Of all files in a folder.
pub fn of(folder: &Path) -> Result<String> {
    let mut text = HEAD.to_string();
    for Machine { files, reports } in last(folder)? {
        let Some(first) = reports.first() else { continue };
        let machine = first.taken.report.machine.named();
        let more = if files == 1 { "" } else { "s" };
        let _ = writeln!(text, "\n## {machine}\n\n{files} file{more}");
        for kept in &reports {
            let Last { date, commit, place, taken } = kept;
            let benchmark = &taken.report.benchmark;
            let _ = writeln!(text, "\n### {benchmark}: {date}, [{commit}]({})\n", place.display());
            text += &of_report(taken);
        }
    }
    let lines = text.lines().count();
    ensure!(lines <= MOST_LINES, "the index would have {lines} lines; shorten what sheets say");
    Ok(text)
}

/// What was kept on a machine: of each benchmark the last report.
#[derive(Debug)]
pub struct Machine {
    files: usize,
    pub reports: Vec<Last>,
}

/// A report, and where it is kept.
#[derive(Debug)]
pub struct Last {
    pub date: String,
    pub commit: String,
    place: PathBuf,
    pub taken: Taken,
}

/// What was kept last, by machine.
pub fn last(folder: &Path) -> Result<Vec<Machine>> {
    let machines = inside(folder)?.into_iter().filter(|path| path.is_dir());
    machines.map(|machine| of_machine(&machine)).collect()
}

/// What is in a folder, by name.
fn inside(folder: &Path) -> Result<Vec<PathBuf>> {
    let named = || folder.display().to_string();
    let entries = std::fs::read_dir(folder).with_context(named)?;
    let mut paths: Vec<_> =
        entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>().with_context(named)?;
    paths.sort();
    Ok(paths)
}

fn of_machine(folder: &Path) -> Result<Machine> {
    // Of one day there may be several files.
    let (mut last, mut files) = (BTreeMap::<String, Last>::new(), 0);
    for file in inside(folder)? {
        let read =
            || -> Result<Kept> { Ok(serde_json::from_str(&std::fs::read_to_string(&file)?)?) };
        let Kept { date, commit, reports } = read().with_context(|| file.display().to_string())?;
        let place = file.strip_prefix(folder.parent().unwrap_or(folder)).unwrap_or(&file);
        for taken in reports {
            let benchmark = taken.report.benchmark.clone();
            if last.get(&benchmark).is_none_or(|it| it.taken.taken_s <= taken.taken_s) {
                let (date, commit) = (date.clone(), commit.clone());
                last.insert(benchmark, Last { date, commit, place: place.into(), taken });
            }
        }
        files += 1;
    }
    Ok(Machine { files, reports: last.into_values().collect() })
}

/// How a line ends that says of something that it showed nothing. They are one line here.
const NOTHING: &str = ": nothing beyond noise";

fn of_report(taken: &Taken) -> String {
    let mut text = format!("`{}`\n", taken.command);
    if !taken.complete {
        text += "\nIt was interrupted.\n";
    }
    for note in &taken.report.notes {
        let _ = writeln!(text, "\n{note}");
    }
    for sheet in &taken.report.sheets {
        let _ = writeln!(text, "\n{}, {} figures:\n", sheet.title, sheet.figures.len());
        let (mut nothing, mut lines) = (vec![], vec![]);
        for line in sheet.verdicts().into_iter().chain(sheet.says.clone()) {
            match line.strip_suffix(NOTHING) {
                Some(of) if !nothing.contains(&of.to_owned()) => nothing.push(of.to_owned()),
                Some(_) => {}
                None => lines.push(line),
            }
        }
        if !nothing.is_empty() {
            lines.push(format!("nothing beyond noise: {}", nothing.join(", ")));
        }
        lines.iter().for_each(|line| text += &format!("- {line}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::{Across, Report, Sheet};
    use crate::peers::Field;
    use crate::results::keep::keep;
    use crate::scratch::Scratch;

    #[test]
    fn the_last_report_of_a_benchmark_is_told_and_a_long_index_refused() {
        let scratch = Scratch::new().unwrap();
        let folder = scratch.file("results");
        let second = std::cell::Cell::new(0);
        let take = |commit: &str, says: Vec<String>| {
            let mut report = Report::here("pair", Field::none());
            report.sheets.push(Sheet { says, ..Sheet::new("pairs", &[], Across::Who) });
            second.set(second.get() + 1);
            let mut taken = Taken::now(report);
            taken.taken_s = second.get();
            keep(&folder, taken, Some(commit)).unwrap();
        };
        take("a1", vec!["it was slow".into()]);
        take("b2", vec!["it is fast".into()]);
        let text = of(&folder).unwrap();
        assert!(text.contains("- it is fast") && !text.contains("slow"), "{text}");
        assert!(text.contains("2 files") && text.contains("-b2.json)"), "{text}");
        take("a0", vec!["it is faster still".into()]);
        let text = of(&folder).unwrap();
        assert!(text.contains("- it is faster still") && !text.contains("it is fast\n"), "{text}");
        let nothing = ["a", "b", "a"].map(|of| format!("{of}{NOTHING}"));
        take("c0", nothing.into());
        let text = of(&folder).unwrap();
        assert!(text.contains("- nothing beyond noise: a, b\n"), "{text}");
        take("c3", vec!["much".into(); MOST_LINES]);
        assert!(of(&folder).unwrap_err().to_string().contains("lines"));
    }
}
