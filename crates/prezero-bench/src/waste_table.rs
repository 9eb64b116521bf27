//! The patterns of `prezero bench waste` as a person reads them.
//!
//! Three tables: where the bytes went, what it cost and gained, and the verdicts.

use comfy_table::{CellAlignment, Table, presets::UTF8_BORDERS_ONLY};

use super::grid_table::micros;
use super::peers::PREZERO;
use super::waste::{CONTROL, Played, Report};
use super::waste_pattern::share;

/// The whole report as text.
pub fn render(report: &Report) -> String {
    let played = &report.patterns;
    let missed = played.iter().filter(|each| each.verdict.as_ref().is_none_or(|v| !v.met)).count();
    format!(
        "{}\n{}\nbytes in MiB, under prezero; made: scrubbed; wasted: of made\n{}\n\
         \nus a burst, medians; x best: the fastest peer's over prezero's; gained: prezero's bursts at \
         the peer's\n(or at its own without scrubd) medians, less at its own; net: that less scrubd's CPU\n{}\n\n{}\
         {} of {} patterns as asked\n",
        report.machine,
        report.field.absences(),
        bytes_table(played),
        time_table(played),
        verdicts(played),
        played.len() - missed,
        played.len()
    )
}

fn bytes_table(patterns: &[Played]) -> Table {
    let mut table = started(&[
        "pattern",
        "freed",
        "made",
        "hit",
        "cleared",
        "to kernel",
        "to plain",
        "unused",
        "left",
        "wasted",
    ]);
    for played in patterns {
        let b = &played.bytes;
        let counts = [b.freed, b.made, b.hit, b.miss, b.absent, b.plain, b.unused, b.zero];
        let mib = counts.map(|bytes| format!("{:.0}", bytes as f64 / (1 << 20) as f64));
        let wasted = 100.0 * share(b.plain + b.unused + b.zero, b.made);
        let row = [played.pattern.clone()].into_iter().chain(mib);
        table.add_row(row.chain([format!("{wasted:.1} %")]));
    }
    finished(table)
}

fn time_table(patterns: &[Played]) -> Table {
    let mut table = started(&[
        "pattern",
        "phase",
        "hits",
        "prezero",
        CONTROL,
        "best peer",
        "",
        "x best",
        "scrubd ms",
        "gained ms",
        "on no scrubd",
        "net ms",
        "estimated",
    ]);
    for played in patterns {
        let scrubd = played.cost(PREZERO).map(|cost| 1e3 * cost.background_s);
        let ours = played.seconds(PREZERO);
        let gained = |seconds: Option<f64>| Some(1e3 * (seconds? - ours?));
        let over_peer = gained(played.best_peer().map(|(_, seconds)| seconds));
        let over_control = gained(played.seconds(CONTROL));
        let net = over_control.zip(scrubd).map(|(gained, cost)| gained - cost);
        let estimate = scrubd.map(|cost| 1e3 * played.saved_estimate_s - cost);
        let mut account = [scrubd, over_peer, over_control, net, estimate].map(milliseconds);
        for (place, phase) in played.phases.iter().enumerate() {
            let us = |name: &str| {
                phase.times.iter().find(|time| time.allocator == name).map(|time| time.us.median)
            };
            let best = phase
                .times
                .iter()
                .filter(|time| ![PREZERO, CONTROL].contains(&time.allocator.as_str()))
                .min_by(|a, b| a.us.median.total_cmp(&b.us.median));
            let shown = |us: Option<f64>| us.map_or("-".into(), |us| micros(us * 1e3));
            let ratio = best.zip(us(PREZERO)).map(|(best, ours)| best.us.median / ours);
            let mut row = vec![
                if place == 0 { played.pattern.clone() } else { String::new() },
                phase.name.clone(),
                phase.hit_share.map_or("-".into(), |share| format!("{:.1} %", 100.0 * share)),
                shown(us(PREZERO)),
                shown(us(CONTROL)),
                shown(best.map(|best| best.us.median)),
                best.map_or("-".into(), |best| best.allocator.clone()),
                ratio.map_or("-".into(), |ratio| format!("{ratio:.2}")),
            ];
            row.extend(std::mem::take(&mut account));
            table.add_row(row);
        }
    }
    finished(table)
}

fn milliseconds(ms: Option<f64>) -> String {
    ms.map_or("-".into(), |ms| format!("{ms:.0}"))
}

fn verdicts(patterns: &[Played]) -> String {
    let line = |played: &Played| {
        let (mark, words) = match &played.verdict {
            Some(verdict) => {
                let mark = if verdict.met { "met   " } else { "MISSED" };
                (mark, format!("{}; asked: {}", verdict.reached, verdict.target))
            }
            None => ("MISSED", "prezero did not run".into()),
        };
        format!("{mark} {:<12} {words}\n", played.pattern)
    };
    patterns.iter().map(line).collect()
}

fn started(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY);
    table.set_header(header);
    table
}

fn finished(mut table: Table) -> Table {
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
