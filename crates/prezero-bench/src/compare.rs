//! `prezero bench compare`: what changed between two runs, beyond noise.
//!
//! Any two files of one benchmark: each figure of the first is looked for in the second, by its
//! sheet, its case, its name and its allocator. Noise is of two kinds. Within a run it is that of
//! the figures; of one that was taken once nothing is known, and its change is shown apart. Between
//! the runs, which an hour and another neighbour lie between, it is what figures have changed in
//! which prezero has no part; where there are too few of these, that is said.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

use crate::figure::{Across, Better, Case, Figure, Report, Sheet};
use crate::output::Taken;
use crate::peers::Field;

/// Less is no change, whatever the noise.
const LEAST: f64 = 0.01;
/// Files have hundreds of figures, of which some lie outside any 95 %: this factor of the noise
/// chance seldom makes.
const SELDOM: f64 = 1.5;
/// Of figures that prezero has no part in, this share has changed by less than what counts as
/// noise between the runs; with fewer figures nothing is known of that.
const STEADY: f64 = 0.95;
const CONTROLS: usize = 8;

/// The command line of `prezero bench compare`.
#[derive(clap::Args)]
#[command(
    after_help = "Example: prezero bench pair --json before.json; ...; prezero bench pair --json after.json; \
    prezero bench compare before.json after.json"
)]
pub struct Compare {
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

impl Case for Compare {
    fn measure(&self) -> Result<Report> {
        let (before, after) = (read(&self.before)?, read(&self.after)?);
        ensure!(
            before.benchmark == after.benchmark,
            "{} is of {}, {} of {}: give two of one benchmark",
            self.before.display(),
            before.benchmark,
            self.after.display(),
            after.benchmark
        );
        compared(&before, &after, self.only.as_deref())
    }
}

fn read(file: &Path) -> Result<Report> {
    Ok(Taken::read(file)?.report)
}

/// What a figure is of.
fn name_of(sheet: &Sheet, figure: &Figure) -> String {
    let of = figure.of.iter().chain([&figure.who, &figure.name]).map(String::as_str);
    [&*sheet.title]
        .into_iter()
        .chain(of)
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join(" / ")
}

/// A figure in both files.
struct Pair<'a> {
    name: String,
    /// What was measured, whatever the case.
    kind: String,
    old: &'a Figure,
    new: &'a Figure,
}

impl Pair<'_> {
    /// The ratio, less one.
    fn change(&self) -> f64 {
        self.new.value / self.old.value - 1.0
    }

    /// What that may be off by from within the runs; `None`: nothing is known.
    fn noise(&self) -> Option<f64> {
        let (old, new) = (self.old.noise?, self.new.noise?);
        Some(SELDOM * old.hypot(new) * (1.0 + self.change()).abs())
    }
}

/// Every figure by what it is of; `None` where several are of the same, which cannot be told apart.
fn collect(report: &Report) -> BTreeMap<String, Option<(&Sheet, &Figure)>> {
    let mut all = BTreeMap::new();
    for sheet in &report.sheets {
        for figure in &sheet.figures {
            let place = all.entry(name_of(sheet, figure));
            place.and_modify(|known| *known = None).or_insert(Some((sheet, figure)));
        }
    }
    all
}

fn compared(before: &Report, after: &Report, only: Option<&str>) -> Result<Report> {
    let (old, new) = (collect(before), collect(after));
    let asked = |name: &&String| only.is_none_or(|only| name.contains(only));
    let pairs: Vec<_> = old
        .iter()
        .filter_map(|(name, old)| {
            let (sheet, old) = (*old)?;
            let (_, new) = (*new.get(name)?)?;
            let (name, kind) = (name.clone(), format!("{} / {}", sheet.title, old.name));
            (old.value != 0.0).then_some(Pair { name, kind, old, new })
        })
        .collect();
    let between = between(&pairs);
    let pairs: Vec<_> = pairs.into_iter().filter(|pair| asked(&&pair.name)).collect();
    let all = old.keys().filter(asked).count() + new.keys().filter(asked).count();
    let unmatched = all - 2 * pairs.len();
    ensure!(
        !pairs.is_empty(),
        "nothing to compare: {unmatched} figures, none of which{} is in both files",
        only.map_or(String::new(), |only| format!(", with {only} in its name,"))
    );
    let (mut changed, mut unknown) = (vec![], vec![]);
    for pair in &pairs {
        let noise =
            pair.noise().map(|noise| noise.hypot(between.get(&pair.kind).copied().unwrap_or(0.0)));
        match noise {
            None if pair.change().abs() > LEAST => unknown.push((pair, None)),
            Some(noise) if pair.change().abs() > noise.max(LEAST) => {
                changed.push((pair, Some(noise)))
            }
            _ => {}
        }
    }
    let mut report = Report::here("compare", Field::none());
    if !before.machine.is_like(&after.machine) {
        report
            .notes
            .push("not the same machine, kernel or THP setting: changes may be of those".into());
    }
    for (kind, noise) in &between {
        report.notes.push(format!(
            "between the runs: of figures in {kind} that prezero has no part in {:.0} % changed by less than \
             {:.1} %: that is noise",
            STEADY * 100.0,
            noise * 100.0
        ));
    }
    if between.is_empty() {
        report.notes.push(
            "between the runs: nothing is known of noise, only within each; repeat them to see"
                .into(),
        );
    }
    let way = |better: Better| changed.iter().filter(|(pair, _)| direction(pair) == better).count();
    report.notes.push(format!(
        "{}: {} of {} figures changed beyond noise ({} better, {} worse); {unmatched} not in both, or not told apart",
        before.benchmark,
        changed.len(),
        pairs.len(),
        way(Better::More),
        way(Better::Less),
    ));
    for (title, mut list) in
        [("changed beyond noise", changed), ("changed, and nothing is known of the noise", unknown)]
    {
        list.sort_by(|a, b| b.0.change().abs().total_cmp(&a.0.change().abs()));
        let mut sheet = Sheet::new(title, &["figure"], Across::Who);
        for (pair, noise) in list {
            let percent = |part: f64| part * 100.0;
            let columns = [
                ("before", Some(pair.old.value)),
                ("after", Some(pair.new.value)),
                ("change, %", Some(percent(pair.change()))),
                ("noise, %", noise.map(percent)),
            ];
            for (who, value) in columns {
                let figure = value.map(|value| Figure::new(who, "", "", value).case(&[&pair.name]));
                sheet.extend(figure);
            }
        }
        if !sheet.figures.is_empty() {
            report.sheets.push(sheet);
        }
    }
    Ok(report)
}

/// More: it is better than before; less: worse.
fn direction(pair: &Pair<'_>) -> Better {
    match (pair.old.better, pair.change() > 0.0) {
        (Better::Neither, _) => Better::Neither,
        (Better::More, true) | (Better::Less, false) => Better::More,
        _ => Better::Less,
    }
}

/// How much figures changed from run to run that prezero has no part in, by what was measured.
fn between(pairs: &[Pair<'_>]) -> BTreeMap<String, f64> {
    let mut changes: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    // Of figures without noise some are facts, and some so rough that they say nothing.
    for pair in pairs.iter().filter(|pair| pair.old.control && pair.noise().is_some()) {
        changes.entry(pair.kind.clone()).or_default().push(pair.change().abs());
    }
    changes.retain(|_, changes| changes.len() >= CONTROLS);
    let steady = |(kind, mut changes): (String, Vec<f64>)| {
        changes.sort_by(f64::total_cmp);
        let at = (changes.len() as f64 * STEADY).ceil() as usize;
        (kind, changes[at.clamp(1, changes.len()) - 1])
    };
    changes.into_iter().map(steady).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::render;

    /// A run of as many sizes, under glibc and prezero, in some order.
    fn run(glibc: &[f64], ours: f64) -> Report {
        let mut report = Report::here("grid", Field::none());
        let mut sheet = Sheet::new("idle", &["size"], Across::Who);
        for (nth, us) in glibc.iter().enumerate() {
            for (who, us) in [("glibc", *us), ("prezero", ours)] {
                let samples = (0..25).map(|n| us * (1.0 + 0.002 * f64::from(n % 5))).collect();
                let figure = Figure::of_samples(who, "round", "us", samples).unwrap();
                sheet.push(figure.case(&[&format!("{nth}M")]));
            }
        }
        report.sheets.push(sheet);
        report
    }

    #[test]
    fn figures_are_found_by_what_they_are_of_and_changes_have_a_direction() {
        let (old, mut new) = (run(&[100.0], 50.0), run(&[100.0], 60.0));
        new.sheets[0].figures.reverse();
        let report = compared(&old, &new, None).unwrap();
        let text = render(&report);
        assert!(
            text.contains("1 of 2 figures changed beyond noise (0 better, 1 worse); 0 not in"),
            "{text}"
        );
        assert!(text.contains("idle / 0M / prezero / round") && text.contains("20.0"), "{text}");
        let text = render(&compared(&new, &old, None).unwrap());
        assert!(text.contains("(1 better, 0 worse)"), "{text}");
    }

    #[test]
    fn a_difference_within_the_noise_is_no_change() {
        let report = compared(&run(&[100.0], 50.0), &run(&[100.0], 50.2), None).unwrap();
        assert!(report.sheets.is_empty(), "{report:?}");
        let only = compared(&run(&[100.0], 50.0), &run(&[100.0], 80.0), Some("glibc")).unwrap();
        assert!(only.notes.iter().any(|note| note.contains("0 of 1 figures")), "{only:?}");
        let nothing = compared(&run(&[100.0], 50.0), &run(&[100.0], 50.0), Some("hoard"));
        assert!(nothing.unwrap_err().to_string().contains("with hoard in its name"));
    }

    #[test]
    fn the_change_of_others_is_noise_between_the_runs() {
        let still = [100.0; 20];
        let mut drifted = still;
        (0..20).for_each(|nth| drifted[nth] *= 1.0 + 0.01 * nth as f64);
        let changed = |old: &Report, new: &Report| {
            let report = compared(old, new, Some("prezero")).unwrap();
            report.sheets.first().map_or(0, |sheet| sheet.table().rows.len())
        };
        assert_eq!(changed(&run(&still, 5.0), &run(&drifted, 5.5)), 0);
        assert_eq!(changed(&run(&still, 5.0), &run(&drifted, 7.0)), 20);
        assert_eq!(changed(&run(&still, 5.0), &run(&still, 5.2)), 20, "where nothing else moved");
    }

    #[test]
    fn of_what_was_taken_once_nothing_is_known_and_two_of_one_name_are_left_out() {
        let mut runs = [run(&[100.0], 50.0), run(&[100.0], 60.0)];
        for report in &mut runs {
            report.sheets[0].figures.iter_mut().for_each(|figure| figure.noise = None);
        }
        let report = compared(&runs[0], &runs[1], None).unwrap();
        assert_eq!(report.sheets[0].title, "changed, and nothing is known of the noise");
        for report in &mut runs {
            let twice = report.sheets[0].figures[1].clone();
            report.sheets[0].figures.push(twice);
        }
        let report = compared(&runs[0], &runs[1], None).unwrap();
        assert!(report.notes.iter().any(|note| note.contains("0 of 1 figures")), "{report:?}");
    }
}
