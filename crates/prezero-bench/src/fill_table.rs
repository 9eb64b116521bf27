//! `prezero bench fill`, for people.

use comfy_table::{CellAlignment, Table, presets::UTF8_BORDERS_ONLY};

use super::fill::{Manner, Report};
use super::samples::Change;

/// What it should reach: of one thread's populating, and what neighbours may feel.
const SHARE: f64 = 0.9;
const FELT: f64 = 0.02;

/// Tables and verdicts.
pub fn render(report: &Report) -> String {
    let mut paces = Table::new();
    paces.load_style(UTF8_BORDERS_ONLY);
    paces.set_header([
        "filling",
        "GB/s",
        "GB/s of CPU",
        "one thread GB/s",
        "share",
        "of CPU",
        "bare loop GB/s",
        "share",
    ]);
    let mut verdicts = vec![];
    for pace in &report.paces {
        let rival = pace.rival.median;
        let (wall, cpu) = (pace.wall / rival, pace.cpu / rival);
        let of_bare = pace.wall / pace.bare.median;
        paces.add_row([
            pace.backing.to_owned(),
            format!("{:.2}", pace.wall),
            format!("{:.2}", pace.cpu),
            format!("{rival:.2}"),
            format!("{:.0} %", wall * 100.0),
            format!("{:.0} %", cpu * 100.0),
            format!("{:.2}", pace.bare.median),
            format!("{:.0} %", of_bare * 100.0),
        ]);
        if let Some(cap) = pace.cap {
            verdicts.push(format!("{}: capped at {cap:.2} GB/s", pace.backing));
            continue;
        }
        let verdict = if wall >= SHARE { "reached" } else { "missed" };
        verdicts.push(format!(
            "{}: filled at {:.0} % of one thread's pace, wanted {:.0} %: {verdict}; at {:.0} % of what \
             the kernel does in a bare loop",
            pace.backing,
            wall * 100.0,
            SHARE * 100.0,
            of_bare * 100.0
        ));
    }
    let mut felt = Table::new();
    felt.load_style(UTF8_BORDERS_ONLY);
    felt.set_header([
        "filling",
        "held back",
        "neighbours",
        "load",
        "time",
        "CPU time",
        "filled GB/s",
    ]);
    for row in &report.felt {
        felt.add_row([
            row.backing.to_owned(),
            if row.manner == Manner::Considerate { "yes" } else { "no" }.to_owned(),
            format!("on {} of {} CPUs", row.busy, row.cpus),
            row.load.clone(),
            shown(row.wall),
            shown(row.cpu),
            format!("{:.2}", row.filled),
        ]);
    }
    for manner in [Manner::Considerate, Manner::Regardless] {
        let rows: Vec<_> = report.felt.iter().filter(|row| row.manner == manner).collect();
        if rows.is_empty() {
            continue;
        }
        let over = rows.iter().filter(|row| row.wall.change - row.wall.noise > FELT).count();
        verdicts.push(format!(
            "neighbours, fillers {}: {} of {} rows within {:.0} % by the clock, noise allowed for{}",
            if manner == Manner::Considerate { "holding back" } else { "without regard for them" },
            rows.len() - over,
            rows.len(),
            FELT * 100.0,
            match (manner, over) {
                (Manner::Regardless, _) => "",
                (_, 0) => ": reached",
                _ => ": missed",
            }
        ));
    }
    for table in [&mut paces, &mut felt] {
        table.column_iter_mut().skip(1).for_each(|c| c.set_cell_alignment(CellAlignment::Right));
    }
    let left_out: String =
        report.left_out.iter().map(|what| format!("left out: {what}\n")).collect();
    format!(
        "{}\n{left_out}{paces}\nneighbours: {} pairs of slices of {} s, with and without fillers; change and its noise\n\
         {felt}\n{}\n",
        report.machine,
        report.rounds,
        report.slice_s,
        verdicts.join("\n")
    )
}

fn shown(change: Change) -> String {
    format!("{:+.1} % ± {:.1}", change.change * 100.0, change.noise * 100.0)
}
