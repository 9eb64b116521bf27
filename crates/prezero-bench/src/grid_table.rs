//! The grid as a person reads it.
//!
//! One row a cell: microseconds of each allocator, how many times slower the best peer is
//! than prezero, and who that is. A cell that prezero loses is marked `<`. Where there is
//! an ideal, its time, its share of prezero's, the limit's share (the ideal and a bare call),
//! and how it scrubbed.

use std::fmt::Write;

use comfy_table::{CellAlignment, Table, presets::UTF8_BORDERS_ONLY};
use prezero::Size;

use super::grid_report::{Cell, Cost, Mode, ModeReport, NEAR_LIMIT, Report};
use super::grid_verdict::{Verdict, Wanted, Yardstick};

/// The whole report as text.
pub fn render(report: &Report) -> String {
    let mut text = format!("{}\n", report.machine);
    for allocator in &report.field.allocators {
        let set = allocator.environment.iter().map(|(name, value)| format!(" {name}={value}"));
        let line = format!("{} {}{}", allocator.name, allocator.version, set.collect::<String>());
        let _ = writeln!(text, "{}", line.trim());
    }
    text += &report.field.absences();
    let _ = writeln!(
        text,
        "\nus a round of calloc, touch L lines of each page{}, free; medians of {} or more samples, \
         interleaved;\nx best: the fastest peer's time over prezero's, < where prezero loses; ideal: touching \
         memory\nthat was scrubbed in the pause, no allocator, by the best way; % ideal: its time \
         over prezero's;\n% limit: that of the ideal of the ways that leave others their cache, and the fastest peer's bare malloc and \
         free after the pause;\n\
         bare: memset and touch of one block that begins with a page, no allocator;\n\
         ±: what x best may be off by, 95 %, by the medians of passes with processes of their own",
        from_line(report.at),
        report.runs
    );
    for mode in &report.modes {
        text.push('\n');
        text += &mode_table(mode, report);
    }
    text
}

/// Where that is not the page's first.
fn from_line(at: usize) -> String {
    if at == 0 { String::new() } else { format!(" (where L is 1, line {at})") }
}

fn mode_table(report: &ModeReport, whole: &Report) -> String {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY);
    let names = whole.field.allocators.iter().map(|allocator| allocator.name.as_str());
    let ideal = report.cells.iter().any(|cell| cell.ideal().is_some());
    let last = match report.mode {
        _ if !ideal => &[][..],
        Mode::Idle => &["ideal", "% ideal", "% limit", "ideal by"],
        Mode::BackToBack | Mode::Busy => &["bare", "% bare"],
    };
    let noisy = report.cells.iter().any(|cell| cell.noise().is_some());
    let noise = if noisy { &["±"][..] } else { &[] };
    let header = ["size", "L"].into_iter().chain(names).chain(["x best"]);
    let header = header.chain(noise.iter().copied()).chain(["best peer"]);
    table.set_header(header.chain(last.iter().copied()));
    for cell in &report.cells {
        let times = cell.results.iter().map(|result| micros(result.ns.median));
        let (ratio, peer) = match cell.best() {
            Some((ratio, peer)) => (marked(ratio), peer.to_string()),
            None => ("-".into(), "-".into()),
        };
        let row = [Size(cell.bytes).to_string(), cell.lines.to_string()];
        let noise = noisy.then(|| cell.noise().map_or("-".into(), |noise| format!("{noise:.2}")));
        let row = row.into_iter().chain(times).chain([ratio]).chain(noise).chain([peer]);
        table.add_row(row.chain(ideal_columns(cell).into_iter().take(last.len())));
    }
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let mut text = format!("{}\n{table}\n", title(report));
    text += &summary(report);
    for cost in &report.costs {
        text += &cost_line(cost);
    }
    text
}

fn title(report: &ModeReport) -> String {
    let pauses = report.cells.iter().map(|cell| cell.pause_ns as f64 / 1e6);
    match report.mode {
        Mode::Idle => format!(
            "idle: a pause before each round, {} ms or as long as a scrubber of 8 GB/s needs for the block (up to {:.1} ms)",
            pauses.clone().fold(f64::MAX, f64::min),
            pauses.fold(0.0, f64::max)
        ),
        Mode::BackToBack => "back to back: no pause".into(),
        Mode::Busy => "busy: no pause, and another process keeps every CPU busy".into(),
    }
}

fn ideal_columns(cell: &Cell) -> [String; 4] {
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".into());
    let percent = |share: Option<f64>| or_none(share.map(|share| format!("{:.0}", share * 100.0)));
    [
        or_none(cell.ideal().map(|ideal| micros(ideal.ns.median))),
        percent(cell.share_of_ideal()),
        percent(cell.share_of_limit()),
        or_none(cell.ideal().map(|ideal| ideal.way.clone())),
    ]
}

fn summary(report: &ModeReport) -> String {
    let Some(verdict) = report.verdict() else { return String::new() };
    let (mean, (ratio, cell)) = (verdict.mean, verdict.worst);
    let mut text = format!(
        "geometric mean {mean:.2}x the best peer; worst cell {ratio:.2}x ({}); {} of {} cells lost",
        cell.name(),
        verdict.lost,
        report.cells.len()
    );
    let is_idle = report.mode == Mode::Idle;
    if let Some((share, cell)) = verdict.ideal.filter(|_| is_idle) {
        let _ = write!(text, "; worst share of ideal {:.0} % ({})", share * 100.0, cell.name());
    }
    if let Some(((limit, worst), (share, cell))) = verdict.limit.zip(verdict.of_limit) {
        let _ = write!(
            text,
            "\nlimit, {}: {limit:.2}x the best peer, worst cell {worst:.2}x; of it this is {:.0} %; worst cell {:.0} % ({})",
            if is_idle { "the ideal and a bare call" } else { "a bare loop" },
            mean / limit * 100.0,
            share * 100.0,
            cell.name()
        );
        let (far, unclear) = (verdict.far, verdict.far_or_not);
        let _ = write!(
            text,
            "; {} of {} cells are within 10 % of it, {far} are not, noise hides {unclear}",
            report.cells.len() - far - unclear,
            report.cells.len()
        );
    }
    if let (Mode::BackToBack | Mode::Busy, Some(Yardstick { peer, worst: (ratio, cell) })) =
        (report.mode, report.yardstick())
    {
        let _ = write!(
            text,
            "\nthe best peer by this measure, held against the other peers: {peer}, worst cell {ratio:.2}x ({})",
            cell.name()
        );
    }
    let Wanted { mean: least_mean, worst, ideal } = report.mode.wanted();
    let _ = write!(text, "\nwanted:");
    if let Some(least) = least_mean {
        let _ = write!(text, " mean >= {least}x: {};", reached(mean >= least));
    }
    let _ = write!(text, " worst cell >= {worst}x: {}", of_cells(&verdict, report, ratio >= worst));
    if let Some((least, (share, _))) = ideal.zip(verdict.ideal) {
        let percent = least * 100.0;
        let _ =
            write!(text, "; worst share of ideal >= {percent:.0} %: {}", reached(share >= least));
    }
    text + "\n"
}

/// Whether all cells are as wanted, where their noise tells; else how many are not, and how many of
/// them cannot be: there the limit takes as long.
fn of_cells(verdict: &Verdict<'_>, report: &ModeReport, all: bool) -> String {
    let (below, unclear) = (verdict.below.len(), verdict.unclear.len());
    if below + unclear == 0 {
        return reached(all).into();
    }
    let cells = report.cells.len();
    let mut text = match (below, unclear) {
        (0, _) => format!("not decided: noise hides {unclear} of {cells} cells"),
        (_, 0) => format!("missed: {below} of {cells} cells"),
        _ => format!("missed: {below} of {cells} cells, noise hides {unclear} more"),
    };
    if verdict.limit.is_some() {
        let limited = |cell: &&&Cell| cell.share_of_limit().is_some_and(|s| s >= NEAR_LIMIT);
        let near = verdict.below.iter().chain(&verdict.unclear).filter(limited).count();
        let limit = if report.mode == Mode::Idle { "limit" } else { "bare loop" };
        let _ = write!(text, "; {near} of these are within 10 % of the {limit}");
    }
    text
}

fn reached(is: bool) -> &'static str {
    if is { "reached" } else { "missed" }
}

/// What one allocator used up, on one line.
pub fn cost_line(cost: &Cost) -> String {
    let mut line = format!(
        "CPU {:<10} {:>7.2} s user {:>7.2} s system",
        cost.allocator, cost.user_s, cost.system_s
    );
    if let Some(background) = cost.background_s {
        let _ = write!(line, ", of both {background:.2} s in scrubd");
    }
    for (name, value) in &cost.counters {
        let _ = match name.strip_suffix("_bytes") {
            Some(stem) => write!(line, ", {stem} {:.1} GiB", *value as f64 / (1u64 << 30) as f64),
            None => write!(line, ", {name} {value}"),
        };
    }
    line + "\n"
}

/// A ratio with its mark where it is below one.
pub fn marked(ratio: f64) -> String {
    format!("{ratio:.2}{}", if ratio < 1.0 { "<" } else { " " })
}

/// Nanoseconds as microseconds, three digits that count.
pub fn micros(ns: f64) -> String {
    let us = ns / 1e3;
    match us {
        _ if us < 10.0 => format!("{us:.2}"),
        _ if us < 100.0 => format!("{us:.1}"),
        _ => format!("{us:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::PREZERO;

    fn recorded() -> Report {
        serde_json::from_str(include_str!("../tests/grid.json")).unwrap()
    }

    #[test]
    fn a_row_shows_each_median_the_ratio_and_the_best_peer() {
        let text = render(&recorded());
        let row = text.lines().find(|line| line.contains("64K")).unwrap();
        let columns: Vec<_> = row.split_whitespace().filter(|word| *word != "│").collect();
        let expected = [
            "64K",
            "1",
            "25.6",
            "1.20",
            "0.15",
            "8.00",
            "glibc-keep",
            "0.12",
            "80",
            "95",
            "stosb",
            "home",
        ];
        assert_eq!(columns, expected);
    }

    #[test]
    fn a_lost_cell_is_marked_and_counted() {
        let text = render(&recorded());
        assert!(text.lines().any(|line| line.contains("1M") && line.contains("0.50<")), "{text}");
        assert!(text.contains("worst cell 0.50x (1M L=64); 1 of 2 cells lost"), "{text}");
        assert!(text.contains("geometric mean 2.00x"), "{text}");
    }

    #[test]
    fn the_verdict_names_each_target() {
        let text = render(&recorded());
        assert!(text.contains("cells lost; worst share of ideal 75 % (1M L=64)"), "{text}");
        let wanted = "wanted: mean >= 4.5x: missed; worst cell >= 1.1x: missed: 1 of 2 cells; \
                      0 of these are within 10 % of the limit; worst share of ideal >= 85 %: missed";
        assert!(text.contains(wanted), "{text}");
    }

    #[test]
    fn without_a_pause_there_is_no_ideal_and_another_target() {
        let mut report = recorded();
        report.modes[0].mode = Mode::BackToBack;
        for cell in &mut report.modes[0].cells {
            cell.ideal.clear();
            cell.results.iter_mut().for_each(|result| result.ns.median = 100.0);
        }
        report.modes[0].cells[1].results[0].ns.median = 125.0;
        let text = render(&report);
        assert!(text.contains("other peers: glibc-keep, worst cell 1.00x (64K L=1)\n"), "{text}");
        assert!(text.contains("wanted: worst cell >= 0.97x: reached\n"), "{text}");
        assert!(!text.contains("ideal by") && !text.contains("% bare"), "{text}");
    }

    #[test]
    fn without_a_pause_a_bare_loop_is_the_limit() {
        let mut report = recorded();
        report.modes[0].mode = Mode::BackToBack;
        report.modes[0].cells.iter_mut().for_each(|cell| cell.calls.clear());
        let text = render(&report);
        let row = text.lines().find(|line| line.contains("64K")).unwrap();
        let columns: Vec<_> = row.split_whitespace().filter(|word| *word != "│").collect();
        assert_eq!(columns[columns.len() - 2..], ["0.12", "80"]);
        let said = "limit, a bare loop: 2.58x the best peer, worst cell 0.67x; of it this is 77 %; \
                    worst cell 75 % (1M L=64); 0 of 2 cells are within 10 % of it, 2 are not, noise hides 0";
        assert!(text.contains(said) && !text.contains("share of ideal"), "{text}");
    }

    #[test]
    fn without_a_pause_what_noise_hides_is_not_decided_and_the_bare_loop_excuses() {
        let mut report = recorded();
        report.modes[0].mode = Mode::BackToBack;
        for cell in &mut report.modes[0].cells {
            cell.calls.clear();
            for result in &mut cell.results {
                (result.ns.median, result.passes) = (100.0, vec![100.0; 5]);
            }
        }
        let cells = &mut report.modes[0].cells;
        cells[0].results[2].passes = vec![90.0, 100.0, 110.0, 100.0, 120.0];
        let text = render(&report);
        assert!(text.contains("1.00    0.17"), "{text}");
        assert!(
            text.contains("worst cell >= 0.97x: not decided: noise hides 1 of 2 cells"),
            "{text}"
        );

        let cells = &mut report.modes[0].cells;
        (cells[1].results[2].ns.median, cells[1].results[2].passes) = (125.0, vec![125.0; 5]);
        cells[1].ideal.truncate(1);
        cells[1].ideal[0].ns.median = 115.0;
        let text = render(&report);
        let said =
            "missed: 1 of 2 cells, noise hides 1 more; 2 of these are within 10 % of the bare loop";
        assert!(text.contains(said), "{text}");
    }

    #[test]
    fn background_and_absence_are_told() {
        let text = render(&recorded());
        assert!(text.contains("of both 0.25 s in scrubd, scrubbed 2.0 GiB"), "{text}");
        assert!(text.contains("left out: mimalloc: apt-get install libmimalloc2.0"), "{text}");
        assert!(text.contains("8 GB/s"), "the pause is stated: {text}");
    }

    #[test]
    fn json_reads_back_as_it_was_written() {
        let json = serde_json::to_value(recorded()).unwrap();
        let raw: serde_json::Value =
            serde_json::from_str(include_str!("../tests/grid.json")).unwrap();
        assert_eq!(json, raw);
    }

    #[test]
    fn without_prezero_there_is_no_ratio() {
        let mut report = recorded();
        for cell in &mut report.modes[0].cells {
            cell.results.retain(|result| result.allocator != PREZERO);
        }
        assert!(!render(&report).contains("geometric mean"));
    }
}
