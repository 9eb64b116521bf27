//! How a sheet is laid out on a terminal: rows of cells.

use super::sheet::{Across, Against, Figure, Sheet};
use crate::peers::PREZERO;
use prezero_host::samples::Judged;

/// A table: what stands above the columns, and its rows.
#[derive(Debug)]
pub struct Table {
    pub heads: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

/// Where nothing is known.
const EMPTY: &str = "-";

/// A figure's name with its unit.
pub fn named(figure: &Figure) -> String {
    match figure.unit.as_str() {
        "" => figure.name.clone(),
        unit => format!("{}, {unit}", figure.name),
    }
}

/// The columns of one comparison: how many times as good, what that may be off by, and as which
/// other.
#[derive(PartialEq)]
struct Compared<'a> {
    /// The figures that have it: of this name, where several of a row may; and how it is called.
    name: Option<&'a str>,
    what: &'a str,
    noisy: bool,
    told: bool,
}

impl Sheet {
    /// Its rows: the words that tell them apart, and their figures.
    fn rows(&self) -> Vec<(Vec<String>, Vec<&Figure>)> {
        let by_name = self.figures.iter().any(|figure| named(figure) != named(&self.figures[0]));
        let mut rows: Vec<(Vec<String>, Vec<&Figure>)> = vec![];
        for figure in &self.figures {
            let last = match self.across {
                Across::Who => by_name.then(|| named(figure)),
                Across::Name => Some(figure.who.clone()),
            };
            let key: Vec<_> = figure.of.iter().cloned().chain(last).collect();
            match rows.iter_mut().find(|(known, _)| *known == key) {
                Some((_, figures)) => figures.push(figure),
                None => rows.push((key, vec![figure])),
            }
        }
        rows
    }

    /// The column that a figure stands in.
    fn head(&self, figure: &Figure) -> String {
        if self.across == Across::Who { figure.who.clone() } else { named(figure) }
    }

    /// Whether its comparisons have columns of their own; the others tell the first in their cell.
    fn is_subject(&self, figure: &Figure) -> bool {
        self.across == Across::Name || figure.who == PREZERO
    }

    /// The comparisons that have columns.
    fn compared(&self) -> Vec<Compared<'_>> {
        let mut all: Vec<Compared<'_>> = vec![];
        for figure in self.figures.iter().filter(|figure| self.is_subject(figure)) {
            let name = (self.across == Across::Name).then_some(figure.name.as_str());
            for against in &figure.against {
                let (noisy, told) = (against.noise.is_some(), against.peer != against.what);
                match all.iter_mut().find(|each| (each.name, each.what) == (name, &against.what)) {
                    Some(known) => {
                        (known.noisy, known.told) = (known.noisy || noisy, known.told || told)
                    }
                    None => all.push(Compared { name, what: &against.what, noisy, told }),
                }
            }
        }
        all
    }

    /// As a table.
    pub fn table(&self) -> Table {
        let (rows, compared) = (self.rows(), self.compared());
        let mut columns: Vec<String> = vec![];
        for head in self.figures.iter().map(|figure| self.head(figure)) {
            if !columns.contains(&head) {
                columns.push(head);
            }
        }
        let words = rows.first().map_or(0, |(key, _)| key.len());
        let mut heads = self.labels.clone();
        heads.resize(words.max(heads.len()), String::new());
        heads.extend(columns.iter().cloned());
        for each in &compared {
            // Several names may be compared with the same.
            let alone = compared.iter().filter(|other| other.what == each.what).count() == 1;
            let name =
                each.name.filter(|_| !alone).map_or(String::new(), |name| format!("{name} "));
            heads.push(format!("{name}x {}", each.what));
            heads.extend(each.noisy.then(|| "±".to_string()));
            heads.extend(each.told.then(|| each.what.to_string()));
        }
        let row = |(key, figures): (Vec<String>, Vec<&Figure>)| {
            let value = |head: &String| {
                let figure = figures.iter().find(|figure| self.head(figure) == *head);
                figure.map_or(EMPTY.into(), |figure| self.value_cell(figure))
            };
            let row = key.into_iter().chain(columns.iter().map(value));
            row.chain(compared.iter().flat_map(|each| self.comparison(each, &figures))).collect()
        };
        Table { rows: rows.into_iter().map(row).collect(), heads }
    }

    /// The cells of a comparison in a row of these figures.
    fn comparison(&self, of: &Compared<'_>, row: &[&Figure]) -> Vec<String> {
        let found = row.iter().find_map(|figure| {
            let of_it = self.is_subject(figure) && of.name.is_none_or(|name| name == figure.name);
            figure.against.iter().find(|each| of_it && each.what == of.what)
        });
        let times = found.map(|it| times(it) + mark(it.judged(), it.at_limit));
        let noise = found.and_then(|it| Some(format!("{:.3}", it.noise?)));
        let peer = found.map(|it| it.peer.clone());
        let cells = [Some(times), of.noisy.then_some(noise), of.told.then_some(peer)];
        cells.into_iter().flatten().map(|cell| cell.unwrap_or(EMPTY.into())).collect()
    }

    fn value_cell(&self, figure: &Figure) -> String {
        let beside = figure.against.first().filter(|_| !self.is_subject(figure));
        let beside = beside.map_or(String::new(), |it| format!(" {}x", times(it)));
        format!("{}{}{beside}", shown(figure.value), mark(figure.judged(), false))
    }
}
fn times(against: &Against) -> String {
    match against.times {
        times if times >= 100.0 => format!("{times:.0}"),
        times if times >= 10.0 => format!("{times:.1}"),
        // Of a bound of some hundredths a thousandth is much.
        times => format!("{times:.3}"),
    }
}

/// The mark of a figure that misses its bound, at the limit or not, or that noise hides.
fn mark(judged: Option<Judged>, at_limit: bool) -> &'static str {
    match judged {
        Some(Judged::Beyond) if at_limit => "=",
        Some(Judged::Beyond) => "<",
        Some(Judged::Unclear) => "?",
        _ => "",
    }
}

/// What the marks say, for the end of a table.
pub const MARKS: &str =
    "< misses what is wanted, ? noise hides whether, = misses it and no allocator can do better";

/// A number as a cell has room for: three digits that count.
pub fn shown(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        1e9.. => (value / 1e9, "G"),
        1e6.. => (value / 1e6, "M"),
        1e5.. => (value / 1e3, "k"),
        _ => (value, ""),
    };
    match scaled.abs() {
        0.0 => "0".into(),
        100.0.. => format!("{scaled:.0}{unit}"),
        10.0.. => format!("{scaled:.1}{unit}"),
        0.1.. => format!("{scaled:.2}{unit}"),
        // Two that count, and no exponents for people.
        1e-6.. => format!("{scaled:.*}", (1.0 - scaled.abs().log10().floor()) as usize),
        _ => format!("{scaled:.1e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(sheet: &Sheet) -> Vec<Vec<String>> {
        let table = sheet.table();
        [table.heads].into_iter().chain(table.rows).collect()
    }

    fn text(rows: &[&[&str]]) -> Vec<Vec<String>> {
        rows.iter().map(|row| row.iter().map(ToString::to_string).collect()).collect()
    }

    #[test]
    fn allocators_stand_side_by_side_and_prezero_has_its_comparisons_behind() {
        let mut sheet = Sheet::new("t", &["size"], Across::Who);
        let figure = |who: &str, us| Figure::new(who, "round", "us", us).case(&["1M"]);
        sheet.extend([figure("glibc", 4.0), figure("tcmalloc", 3.0)]);
        sheet.push(figure(PREZERO, 2.0).and([Against {
            noise: Some(0.3),
            ..Against::new("best", "tcmalloc", 1.5).wanted(1.6)
        }]));
        let rows = words(&sheet);
        assert_eq!(
            rows,
            text(&[
                &["size", "glibc", "tcmalloc", PREZERO, "x best", "±", "best"],
                &["1M", "4.00", "3.00", "2.00", "1.500?", "0.300", "tcmalloc"],
            ])
        );
    }

    #[test]
    fn figures_stand_side_by_side_under_each_way() {
        let mut sheet = Sheet::new("t", &["size"], Across::Name);
        let figure = |who: &str, name: &str, ms| Figure::new(who, name, "ms", ms).case(&["1G"]);
        sheet.push(figure("lease", "took", 0.5).and([Against::new("own", "own", 200.0)]));
        sheet.extend([figure("lease", "paid", 90.0), figure("own", "took", 100.0).wanted(50.0)]);
        assert_eq!(
            words(&sheet),
            text(&[
                &["size", "", "took, ms", "paid, ms", "x own"],
                &["1G", "lease", "0.50", "90.0", "200"],
                &["1G", "own", "100<", "-", "-"],
            ])
        );
    }

    #[test]
    fn of_several_that_are_compared_all_but_prezero_tell_it_in_their_cell() {
        let mut sheet = Sheet::new("t", &[], Across::Who);
        for (name, who) in [("wall", "glibc"), ("wall", PREZERO), ("cpu", PREZERO)] {
            sheet
                .push(Figure::new(who, name, "ns", 1.0).and([Against::new("never", "never", 0.5)]));
        }
        assert_eq!(
            words(&sheet),
            text(&[
                &["", "glibc", PREZERO, "x never"],
                &["wall, ns", "1.00 0.500x", "1.00", "0.500"],
                &["cpu, ns", "-", "1.00", "0.500"],
            ])
        );
    }

    #[test]
    fn numbers_keep_three_digits() {
        let all = [0.0, 0.01234, 0.5, 12.34, 1234.5, 99_999.0, 523_456.0, 2.5e7, -3.25, 3.5e10];
        let shown = all.map(shown);
        let wanted =
            ["0", "0.012", "0.50", "12.3", "1234", "99999", "523k", "25.0M", "-3.25", "35.0G"];
        assert_eq!(shown, wanted);
    }
}
