//! A report as a person reads it on a terminal.

use std::fmt::Write;

use comfy_table::{CellAlignment, Table, presets::UTF8_BORDERS_ONLY};

use crate::figure::{Across, MARKS, Report, Sheet, named};

/// Everything.
pub fn render(report: &Report) -> String {
    let mut text = format!("{}\n", report.machine);
    let versions = report.field.allocators.iter().map(|each| {
        let set = each.environment.iter().map(|(name, value)| format!(" {name}={value}"));
        format!("{} {}{}", each.name, each.version, set.collect::<String>()).trim().to_string()
    });
    let versions: Vec<_> = versions.collect();
    if !versions.is_empty() {
        let _ = writeln!(text, "{}", versions.join("; "));
    }
    text += &report.field.absences();
    for note in &report.notes {
        let _ = writeln!(text, "{note}");
    }
    let mut marked = false;
    for sheet in &report.sheets {
        let _ = writeln!(text, "\n{}", sheet.title);
        for note in &sheet.notes {
            let _ = writeln!(text, "{note}");
        }
        let drawn = draw(sheet);
        marked |= sheet.has_bounds();
        let _ = writeln!(text, "{drawn}");
        for line in sheet.judged().iter().chain(&sheet.says) {
            let _ = writeln!(text, "{line}");
        }
    }
    if marked {
        let _ = writeln!(text, "\n{MARKS}");
    }
    text
}

fn draw(sheet: &Sheet) -> Table {
    let laid = sheet.table();
    let words = match sheet.across {
        Across::Who => sheet.labels.len(),
        Across::Name => sheet.labels.len() + 1,
    };
    let mut heads = laid.heads.clone();
    // A word that is the same in all rows is told once.
    if let (Across::Who, [first, rest @ ..]) = (sheet.across, &sheet.figures[..])
        && rest.iter().all(|each| named(each) == named(first))
        && let Some(head) = heads.first_mut().filter(|_| words > 0)
    {
        *head = format!("{head} ({})", named(first));
    }
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY).set_header(heads);
    for row in &laid.rows {
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(words) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::{Against, Figure};
    use crate::peers::{Field, PREZERO};

    #[test]
    fn a_report_says_where_how_and_what() {
        let field = Field::none();
        let mut report = Report::here("x", field);
        report.notes.push("left out: hugetlb".into());
        let mut sheet = Sheet::new("t", &["size"], Across::Who).note("how");
        let against = Against::new("best", "glibc", 2.0).wanted(0.97);
        sheet.push(Figure::new(PREZERO, "round", "us", 1.0).case(&["1M"]).and([against]));
        report.sheets.push(sheet);
        let text = render(&report);
        for part in
            ["left out: hugetlb\n", "\nt\nhow\n", "size (round, us)", "2.000", "worst 2.000 (1M"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
