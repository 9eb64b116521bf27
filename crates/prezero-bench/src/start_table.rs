//! `prezero bench start`, for people.

use comfy_table::{CellAlignment, Table, presets::UTF8_BORDERS_ONLY};
use prezero::Size;

use super::start::{Report, Row};
use super::start_ways::Base;

/// A guest with a lease should start no slower than this, against one without any memory ready.
const OF_BARE: f64 = 1.1;

/// The table and the verdicts.
pub fn render(report: &Report) -> String {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY);
    table.set_header(["program", "memory", "way", "ms", "p10", "p90", "x bare", "x lease"]);
    let mut verdicts = vec![];
    for contest in contests(&report.rows) {
        let of = |base: Base| contest.iter().find(|row| row.base == base).map(|row| row.ms.median);
        let (bare, ready) = (of(Base::Bare), of(Base::Ready));
        for row in contest {
            let over = |other: Option<f64>| {
                other.map_or(String::new(), |other| format!("{:.2}", row.ms.median / other))
            };
            let ms = |ms: f64| format!("{ms:.1}");
            table.add_row([
                row.program.to_owned(),
                Size(row.bytes as usize).to_string(),
                row.way.clone(),
                ms(row.ms.median),
                ms(row.ms.p10),
                ms(row.ms.p90),
                over(bare),
                over(ready),
            ]);
            if row.program == "QEMU"
                && row.base == Base::Ready
                && let Some(bare) = bare
            {
                let times = row.ms.median / bare;
                let verdict = if times <= OF_BARE { "reached" } else { "missed" };
                let launched = of(Base::Launched).map(|launched| row.ms.median / launched);
                let launched = launched
                    .map_or(String::new(), |times| format!("; {times:.2}x one that env(1) starts"));
                verdicts.push(format!(
                    "QEMU, {}: {times:.2}x bare, wanted {OF_BARE}x or less: {verdict}{launched}\n",
                    row.way
                ));
            }
        }
    }
    table.column_iter_mut().skip(3).for_each(|c| c.set_cell_alignment(CellAlignment::Right));
    let left_out: String =
        report.left_out.iter().map(|what| format!("left out: {what}\n")).collect();
    format!(
        "{}\nfrom the start of the program, or of prezero claim, until it is ready; {} rounds, interleaved, medians\n\
         {left_out}{table}\n{}",
        report.machine,
        report.runs,
        verdicts.concat()
    )
}

/// Rows of one program that ran in turns.
fn contests(rows: &[Row]) -> impl Iterator<Item = &[Row]> {
    // A contest begins where a program's first way comes again.
    let same = |a: &Row, b: &Row| a.program == b.program && b.base != Base::Bare;
    rows.chunk_by(same)
}
