//! An experiment as data: tables of figures, the post's rows beside today's.

use std::fmt::Write;

use comfy_table::{CellAlignment, Table as Grid, presets::UTF8_BORDERS_ONLY};
use serde::{Deserialize, Serialize};

use crate::samples::Spread;

/// What the post measured, in the column that says on what.
pub const POST: &str = "post";

/// One experiment of one post, repeated.
#[derive(Debug, Serialize, Deserialize)]
pub struct Experiment {
    /// As `--only` takes it.
    pub name: String,
    /// Who, what, when.
    pub seed: String,
    /// On what.
    pub then: String,
    /// What cannot be compared, one reason each.
    pub incomparable: Vec<String>,
    /// The figures.
    pub tables: Vec<Table>,
    /// What held and what did not, in a sentence each, derived from the tables.
    pub held: Vec<String>,
}

/// Rows of figures under common headings.
#[derive(Debug, Serialize, Deserialize)]
pub struct Table {
    /// What it shows.
    pub title: String,
    /// Headings of the labels that tell rows of one level apart.
    pub labels: Vec<String>,
    /// Headings of the figures.
    pub columns: Vec<Column>,
    /// The post's first.
    pub rows: Vec<Row>,
}

/// A heading of figures.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Column {
    /// Name with unit.
    pub name: String,
    /// Which way is up.
    pub better: Better,
}

/// Which of two figures is the better one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// The larger.
    More,
    /// The smaller.
    Less,
    /// Neither.
    Neither,
}

/// One level in one case.
#[derive(Debug, Serialize, Deserialize)]
pub struct Row {
    /// [`POST`] and what it was with, or a level of today.
    pub level: String,
    /// One for each of the table's labels.
    pub labels: Vec<String>,
    /// One for each of the table's columns; `None`: not measured, or not printed.
    pub figures: Vec<Option<Figure>>,
}

/// A median, and where the samples lay.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Figure {
    /// The median, or the only value.
    pub median: f64,
    /// A tenth lies below.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p10: Option<f64>,
    /// A tenth lies above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p90: Option<f64>,
}

impl Figure {
    /// One that was measured, or printed, once.
    pub fn once(median: f64) -> Figure {
        Figure { median, p10: None, p90: None }
    }

    /// Of samples; `None` if there are none.
    pub fn of(samples: Vec<f64>) -> Option<Figure> {
        let spread = Spread::of(samples)?;
        Some(Figure { median: spread.median, p10: Some(spread.p10), p90: Some(spread.p90) })
    }
}

impl Column {
    /// Heading and direction.
    pub fn new(name: &str, better: Better) -> Column {
        Column { name: name.into(), better }
    }
}

impl Table {
    /// Without rows.
    pub fn new(title: &str, labels: &[&str], columns: &[(&str, Better)]) -> Table {
        Table {
            title: title.into(),
            labels: labels.iter().map(ToString::to_string).collect(),
            columns: columns.iter().map(|(name, better)| Column::new(name, *better)).collect(),
            rows: vec![],
        }
    }

    /// Adds a row of what was printed in a post.
    pub fn post(&mut self, with: &str, labels: &[&str], figures: &[Option<f64>]) {
        let level = if with.is_empty() { POST.into() } else { format!("{POST}, {with}") };
        let labels = labels.iter().map(ToString::to_string).collect();
        let figures = figures.iter().map(|figure| figure.map(Figure::once)).collect();
        self.push(Row { level, labels, figures });
    }

    /// Adds a row.
    pub fn push(&mut self, row: Row) {
        assert_eq!(row.labels.len(), self.labels.len(), "{}: {}", self.title, row.level);
        assert_eq!(row.figures.len(), self.columns.len(), "{}: {}", self.title, row.level);
        self.rows.push(row);
    }

    /// A figure by level, labels and column.
    pub fn figure(&self, level: &str, labels: &[&str], column: &str) -> Option<f64> {
        let column = self.columns.iter().position(|each| each.name == column)?;
        let row = self.rows.iter().find(|row| row.level == level && row.labels == labels)?;
        row.figures[column].map(|figure| figure.median)
    }

    fn render(&self) -> String {
        let mut grid = Grid::new();
        grid.load_style(UTF8_BORDERS_ONLY);
        let columns = self.columns.iter().map(|column| &column.name);
        grid.set_header([&String::new()].into_iter().chain(&self.labels).chain(columns));
        for row in &self.rows {
            let figures = row.figures.iter().map(|figure| figure.map_or("-".into(), shown));
            let words = [row.level.clone()].into_iter().chain(row.labels.iter().cloned());
            grid.add_row(words.chain(figures));
        }
        for column in grid.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        format!("{}\n{grid}\n", self.title)
    }
}

impl Experiment {
    /// For a person.
    pub fn render(&self) -> String {
        let mut text = format!("\n{}\nthen: {}\n", self.seed, self.then);
        for table in &self.tables {
            text += &table.render();
        }
        for reason in &self.incomparable {
            let _ = writeln!(text, "not comparable: {reason}");
        }
        for sentence in &self.held {
            let _ = writeln!(text, "{sentence}");
        }
        text
    }
}

/// Three digits, and no more than a person reads.
pub fn shown(figure: Figure) -> String {
    let value = figure.median;
    match value.abs() {
        1e15.. => format!("{value:e}"),
        1000.0.. => format!("{value:.0}"),
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        0.0 => "0".into(),
        0.01.. => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_found_by_level_labels_and_column() {
        let mut table = Table::new("t", &["threads"], &[("s", Better::Less), ("n", Better::More)]);
        table.post("patched", &["8"], &[None, Some(2.5)]);
        assert_eq!(table.figure("post, patched", &["8"], "n"), Some(2.5));
        assert_eq!(table.figure("post, patched", &["8"], "s"), None);
        assert_eq!(table.figure("post, patched", &["4"], "n"), None);
        assert!(table.render().contains("2.50"));
    }

    #[test]
    fn figures_keep_three_digits() {
        let shown = |value| shown(Figure::once(value));
        assert_eq!([shown(0.0), shown(0.123), shown(52150.369)], ["0", "0.12", "52150"]);
        assert_eq!([shown(12.34), shown(0.0012)], ["12.3", "0.0012"]);
    }
}
