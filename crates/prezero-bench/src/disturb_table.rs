//! What the neighbours felt, as a person reads it.
//!
//! One row for each load and metric: the time by variant, and how much more or less that
//! is than beside prezero that never scrubs; the noise of that figure for prezero as it
//! comes; `<` where a bound is broken, `?` where the noise does not let it be told.

use std::fmt::Write;

use clap::ValueEnum;
use comfy_table::{CellAlignment, Table, presets::UTF8_BORDERS_ONLY};
use prezero::Size;

use super::disturb_report::{
    ALONE, Churned, Felt, Metric, OFF, ON, Report, Row, Scene, SceneReport,
};
use super::samples::Judged;

/// The whole report as text.
pub fn render(report: &Report) -> String {
    let mut text = format!("{}\n{}", report.machine, report.field.absences());
    let sizes = report.sizes;
    let _ = writeln!(
        text,
        "chases over {} (second-level cache), {} (shared cache), {} (memory); {} slices of {} s, \
         in turns, {OFF} and {ON} in up to {} s of pairs more\ntime for a unit of work (a load of a chase) by the wall clock or in CPU time, median of the slices; \
         lateness\nof wake-ups, median and 99th percentile of all;\n%: more than beside prezero that never scrubs ({OFF}), and the noise of \
         that for {ON};\n< beyond the bound, ? the noise hides on which side",
        Size(sizes.l2),
        Size(sizes.l3),
        Size(sizes.dram),
        report.rounds,
        report.slice_s,
        report.pairs_s
    );
    for scene in &report.scenes {
        let _ = write!(text, "\n{}\n{}\n", title(scene), table(scene));
        for churned in &scene.churns {
            text += &churn_line(churned);
        }
    }
    text.push('\n');
    for scene in &report.scenes {
        text += &verdict(scene);
    }
    text
}

fn title(report: &SceneReport) -> String {
    let who = match report.scene {
        Scene::Full => "a neighbour on every CPU",
        Scene::Beside => "a neighbour on every CPU but the program's",
        Scene::Dozing => "neighbours that sleep, on every CPU",
        Scene::TicksIdle => "a task on every CPU that wakes up each ms, else idle",
        Scene::TicksBusy => "a task on every CPU that wakes up each ms, every CPU busy",
    };
    let how = match report.churn_pause_ns {
        0 => "at full speed".to_string(),
        ns => format!("with {} ms of pause", ns as f64 / 1e6),
    };
    format!(
        "{}: {who}; the program, on CPU {}: rounds of {}, {how}",
        name(report.scene),
        report.home,
        Size(report.churn_bytes)
    )
}

fn table(report: &SceneReport) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY);
    let variants = report.rows.first().map_or(&[][..], |row| &row.results);
    let names = variants.iter().map(|felt| felt.variant.as_str());
    table.set_header(["load", "time"].into_iter().chain(names).chain(["noise"]));
    for row in &report.rows {
        let head = [row.load.to_string(), metric(row.metric).to_string()];
        let cells = row.results.iter().map(|felt| cell(row, felt));
        let noise = row.of(ON).and_then(|felt| felt.change);
        let noise = noise.map_or("-".into(), |change| format!("±{:.1} %", change.noise * 100.0));
        table.add_row(head.into_iter().chain(cells).chain([noise]));
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn metric(metric: Metric) -> &'static str {
    match metric {
        Metric::Wall => "wall, ns",
        Metric::Cpu => "CPU, ns",
        Metric::Late50 => "late, median, us",
        Metric::Late99 => "late, 99th, us",
    }
}

fn cell(row: &Row, felt: &Felt) -> String {
    let time = match row.metric {
        Metric::Wall | Metric::Cpu => digits(felt.told()),
        Metric::Late50 | Metric::Late99 => digits(felt.told() / 1e3),
    };
    // Beside nobody there is no program: a percentage would say nothing of scrubbing.
    let Some(change) = felt.change.filter(|_| felt.variant != ALONE) else { return time };
    let mark = match row.judged().filter(|_| felt.variant == ON) {
        Some((_, Judged::Beyond)) => "<",
        Some((_, Judged::Unclear)) => "?",
        _ => " ",
    };
    format!("{time} {:+.1} %{mark}", change.change * 100.0)
}

fn churn_line(churned: &Churned) -> String {
    let mut line = format!(
        "program {:<20} {:>6.2} GB/s zeroed, {:.2} CPUs",
        churned.variant,
        churned.bytes_per_s / 1e9,
        churned.cpus
    );
    if let Some(scrubd) = churned.scrubd_cpus {
        let _ = write!(line, ", of them scrubd {scrubd:.3}");
    }
    for (name, value) in &churned.counters {
        let _ = match name.strip_suffix("_bytes") {
            Some(stem) => write!(line, ", {stem} {:.1} GiB", *value as f64 / (1u64 << 30) as f64),
            None => write!(line, ", {name} {value}"),
        };
    }
    line + "\n"
}

fn verdict(report: &SceneReport) -> String {
    let Some(verdict) = report.verdict() else { return String::new() };
    let (worst, row) = (verdict.worst, verdict.row);
    let outcome = match (verdict.beyond, verdict.unclear) {
        (0, 0) => "reached".to_string(),
        (0, unclear) => format!("not decided: noise hides {unclear} of {} rows", verdict.rows),
        (beyond, 0) => format!("missed in {beyond} of {} rows", verdict.rows),
        (beyond, unclear) => {
            format!("missed in {beyond} of {} rows, noise hides {unclear}", verdict.rows)
        }
    };
    format!(
        "{}: scrubbing adds {:+.1} % ±{:.1} % at worst ({}: {}); wanted <= {:.0} %: {outcome}\n",
        name(report.scene),
        worst.change * 100.0,
        worst.noise * 100.0,
        row.load,
        metric(row.metric).rsplit_once(", ").map_or("", |(what, _)| what),
        row.bound().unwrap_or(0.0) * 100.0
    )
}

/// As `--scenes` has it.
fn name(scene: Scene) -> String {
    scene.to_possible_value().map_or_else(String::new, |value| value.get_name().to_string())
}

/// Three digits that count.
fn digits(number: f64) -> String {
    match number {
        _ if number < 10.0 => format!("{number:.2}"),
        _ if number < 100.0 => format!("{number:.1}"),
        _ => format!("{number:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::disturb_report::{Sizes, tests::row};
    use super::super::{machine::Machine, peers::Field};
    use super::*;

    fn rendered(rows: Vec<Row>) -> String {
        let scene = SceneReport {
            scene: Scene::Beside,
            churn_bytes: 64 << 20,
            churn_pause_ns: 8_000_000,
            home: 0,
            cpus: vec![1],
            rows,
            churns: vec![Churned {
                variant: ON.into(),
                bytes_per_s: 2.5e9,
                cpus: 0.75,
                scrubd_cpus: Some(0.25),
                counters: [("scrubbed_bytes".to_string(), 3u64 << 30)].into(),
            }],
        };
        render(&Report {
            benchmark: "disturb",
            machine: Machine::here(),
            field: Field { allocators: vec![], absent: vec![] },
            sizes: Sizes { l2: 1 << 20, l3: 32 << 20, dram: 512 << 20 },
            slice_s: 0.5,
            rounds: 10,
            pairs_s: 60,
            scenes: vec![scene],
        })
    }

    #[test]
    fn a_row_shows_times_changes_and_marks() {
        let text = rendered(vec![row(Metric::Wall, 0.05, 0.01), row(Metric::Cpu, 0.01, 0.04)]);
        let row = |name: &str| text.lines().find(|line| line.contains(name)).unwrap();
        let words: Vec<_> = row("chase 1M   wall, ns").split_whitespace().collect();
        assert_eq!(
            words[1..],
            ["chase", "1M", "wall,", "ns", "100", "105", "+5.0", "%<", "±1.0", "%", "│"]
        );
        assert!(row("chase 1M   CPU, ns").contains("+1.0 %?"), "{text}");
    }

    #[test]
    fn the_verdict_says_reached_missed_or_that_noise_hides_it() {
        let kept = rendered(vec![row(Metric::Wall, 0.01, 0.001)]);
        assert!(kept.contains("+1.0 % ±0.1 % at worst (chase 1M: wall); wanted <= 2 %: reached"));
        let broken = rendered(vec![row(Metric::Wall, 0.05, 0.001), row(Metric::Cpu, 0.0, 0.09)]);
        assert!(broken.contains("missed in 1 of 2 rows, noise hides 1"), "{broken}");
        let hidden = rendered(vec![row(Metric::Wall, 0.0, 0.09)]);
        assert!(hidden.contains("not decided: noise hides 1 of 1 rows"), "{hidden}");
    }

    #[test]
    fn the_programs_side_is_told_with_its_units() {
        let text = rendered(vec![row(Metric::Late99, 0.0, 0.0)]);
        let line = "2.50 GB/s zeroed, 0.75 CPUs, of them scrubd 0.250, scrubbed 3.0 GiB";
        assert!(text.contains(line), "{text}");
        assert!(text.contains("rounds of 64M, with 8 ms of pause"), "{text}");
        assert!(text.contains("wanted <= 5 %: reached"), "{text}");
    }
}
