//! A table of an experiment: the post's rows beside today's levels, which are the `who` of its figures.

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
            let figure = Figure { name, unit, who, better: *better, ..figure };
            self.sheet.push(figure.case(of));
        }
    }

    /// A figure by level, case and heading.
    pub fn value(&self, level: &str, of: &[&str], heading: &str) -> Option<f64> {
        self.sheet.value(level, of, split(heading).0)
    }
}

/// How many times as good the one has to be as the other.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Times {
    /// That many or more.
    AtLeast(f64),
    /// That many or fewer.
    AtMost(f64),
    /// Nothing is asked.
    Any,
}

/// A level in a case.
pub type Place<'a> = (&'a str, &'a [&'a str]);

/// What a post says, as a figure and how many times as good as another it is.
#[derive(Debug)]
pub struct Claim<'a> {
    /// It, in words.
    pub says: &'a str,
    /// Which figures.
    pub heading: &'a str,
    /// This one.
    pub own: Place<'a>,
    /// Against that one.
    pub other: Place<'a>,
    /// How many times.
    pub times: Times,
    /// In the post.
    pub post: Option<f64>,
}

impl Table {
    /// How many times as good the one is as the other.
    pub fn times(&self, heading: &str, own: Place<'_>, other: Place<'_>) -> Option<f64> {
        let find = |(level, of): Place<'_>| self.sheet.find(level, of, split(heading).0);
        Some(find(own)?.times(find(other)?)).filter(|times| times.is_finite())
    }

    /// What held and what did not, of those of which there are figures.
    pub fn judge(&mut self, claims: &[Claim<'_>]) {
        for claim in claims {
            let Some(times) = self.times(claim.heading, claim.own, claim.other) else { continue };
            let verdict = match claim.times {
                Times::AtLeast(least) if times >= least => "held: ",
                Times::AtMost(most) if times <= most => "held: ",
                Times::Any => "",
                _ => "did not hold: ",
            };
            let post = claim.post.map_or(String::new(), |post| format!(" (in the post {post:.2})"));
            let says = claim.says;
            self.sheet.says.push(format!("{verdict}{says}: {times:.2} times{post}"));
        }
    }
}

/// The tables of one post, with what is said of it: on what it was measured, and what cannot be
/// compared.
pub fn experiment(
    [seed, then]: [&str; 2],
    incomparable: &[&str],
    tables: Vec<Table>,
) -> Vec<Sheet> {
    let mut sheets: Vec<_> = tables.into_iter().map(|table| table.sheet).collect();
    if let Some(first) = sheets.first_mut() {
        first.notes.extend([seed.into(), format!("then: {then}")]);
    }
    if let Some(last) = sheets.last_mut() {
        last.notes.extend(incomparable.iter().map(|why| format!("not comparable: {why}")));
    }
    sheets
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::seeds::level::KERNEL;

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
        assert!(figure.unit == "s" && figure.better == Better::Less);
    }

    #[test]
    fn claims_follow_the_figures() {
        let mut table = Table::new("t", &["lines"], &[("us", Better::Less)]);
        for (level, us) in [("post, without", 8.0), ("post, with", 2.0), ("a", 9.0), ("b", 3.0)] {
            table.push(level, &["1"], vec![Some(Figure::new("", "", "", us))]);
        }
        let one: &[&str] = &["1"];
        let post = table.times("us", ("post, with", one), ("post, without", one));
        let claim = |times, own| Claim {
            says: "it is faster",
            heading: "us",
            own: (own, one),
            other: ("a", one),
            times,
            post,
        };
        table.judge(&[
            claim(Times::AtLeast(3.0), "b"),
            claim(Times::AtLeast(3.1), "b"),
            claim(Times::AtMost(3.1), "b"),
            claim(Times::Any, "b"),
            claim(Times::Any, "none such"),
        ]);
        let told = "it is faster: 3.00 times (in the post 4.00)";
        let said = ["held: ", "did not hold: ", "held: ", ""].map(|held| format!("{held}{told}"));
        assert_eq!(table.sheet.says, said);
    }
}
