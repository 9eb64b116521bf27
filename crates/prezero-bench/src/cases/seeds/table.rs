//! A table of an experiment: the post's rows beside today's levels, which are the `who` of its figures.

use super::level::KERNEL;
use crate::figure::{Across, Better, Figure, Sheet};

/// What the post measured, in the column that says on what.
pub const POST: &str = "post";

/// A heading with its unit, and which way is up.
pub type Column = (&'static str, Better);

/// A sheet whose rows have these columns.
#[derive(Debug)]
pub struct Table {
    /// What is in it so far.
    pub sheet: Sheet,
    columns: &'static [Column],
}

/// Name and unit of a heading.
fn split(heading: &str) -> (&str, &str) {
    heading.rsplit_once(", ").unwrap_or((heading, ""))
}

impl Table {
    /// Without rows.
    pub fn new(title: &str, labels: &[&str], columns: &'static [Column]) -> Table {
        let order = columns.iter().map(|(heading, _)| split(heading).0.into()).collect();
        Table { sheet: Sheet { order, ..Sheet::new(title, labels, Across::Name) }, columns }
    }

    /// Adds a row of what was printed in a post.
    pub fn post(&mut self, with: &str, of: &[&str], figures: &[Option<f64>]) {
        let level = if with.is_empty() { POST.into() } else { format!("{POST}, {with}") };
        let figures = figures.iter().map(|value| Some(Figure::new(&level, "", "", (*value)?)));
        self.push(&level, of, figures.collect());
    }

    /// Adds a row: a figure for each column, `None` where nothing was measured or printed.
    pub fn push(&mut self, level: &str, of: &[&str], figures: Vec<Option<Figure>>) {
        for ((heading, better), figure) in self.columns.iter().zip(figures) {
            let ((name, unit), Some(figure)) = (split(heading), figure) else { continue };
            let (name, unit, who) = (name.into(), unit.into(), level.into());
            let control = figure.control || level == KERNEL;
            let figure = Figure { name, unit, who, better: *better, control, ..figure };
            self.sheet.push(figure.case(of));
        }
    }

    /// A figure by level, case and heading.
    pub fn value(&self, level: &str, of: &[&str], heading: &str) -> Option<f64> {
        self.sheet.value(level, of, split(heading).0)
    }
}

/// The tables of one post, with what is said of it: on what it was measured, what cannot be
/// compared, and what held and what did not.
pub fn experiment(
    [seed, then]: [&str; 2],
    incomparable: Vec<String>,
    held: Vec<String>,
    tables: Vec<Table>,
) -> Vec<Sheet> {
    let mut sheets: Vec<_> = tables.into_iter().map(|table| table.sheet).collect();
    if let Some(first) = sheets.first_mut() {
        first.notes.extend([seed.into(), format!("then: {then}")]);
    }
    if let Some(last) = sheets.last_mut() {
        last.notes.extend(incomparable.into_iter().map(|why| format!("not comparable: {why}")));
        last.says = held;
    }
    sheets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_found_by_level_case_and_heading() {
        let mut table = Table::new(
            "t",
            &["threads"],
            &[("wall, s", Better::Less), ("flt/cpu/s", Better::More)],
        );
        table.post("patched", &["8"], &[None, Some(2.5)]);
        assert_eq!(table.value("post, patched", &["8"], "flt/cpu/s"), Some(2.5));
        assert_eq!(table.value("post, patched", &["8"], "wall, s"), None);
        assert_eq!(table.value("post, patched", &["4"], "flt/cpu/s"), None);
        table.push(KERNEL, &["8"], vec![Some(Figure::new("", "", "", 3.0)), None]);
        let figure = table.sheet.find(KERNEL, &["8"], "wall").unwrap();
        assert!(figure.unit == "s" && figure.control && figure.better == Better::Less);
    }
}
