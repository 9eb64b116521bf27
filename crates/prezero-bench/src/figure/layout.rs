//! How a sheet is laid out: rows of cells, the same ones for a terminal and for HTML.

use super::sheet::{Across, Against, Figure, Sheet};
use crate::peers::PREZERO;
use prezero_host::samples::Judged;

/// What stands in a cell.
#[derive(Clone, PartialEq, Debug)]
pub enum Cell {
    /// Words that tell rows apart, or a peer's name.
    Word(String),
    /// A number, and where it stands below the sheet's figures, as a JSON pointer.
    Number(String, String),
    /// Nothing.
    Empty,
}

impl Cell {
    /// As it is shown.
    pub fn text(&self) -> &str {
        match self {
            Cell::Word(text) | Cell::Number(text, _) => text,
            Cell::Empty => "-",
        }
    }
}

/// A table.
#[derive(Debug)]
pub struct Table {
    /// Above the columns.
    pub heads: Vec<String>,
    /// As long as the heads, each.
    pub rows: Vec<Vec<Cell>>,
}

/// A figure's name with its unit.
pub fn named(figure: &Figure) -> String {
    match figure.unit.as_str() {
        "" => figure.name.clone(),
        unit => format!("{}, {unit}", figure.name),
    }
}

/// The columns of one comparison: how many times as good, what that may be off by, and as which
/// other.
struct Compared<'a> {
    /// The figures that have it: of this name, where several of a row may; and how it is called.
    name: Option<&'a str>,
    what: &'a str,
    /// Whether anything is known of noise, and whether the peer is another in some rows.
    noisy: bool,
    told: bool,
}

impl Compared<'_> {
    /// Its cells in a row of these figures.
    fn cells(&self, sheet: &Sheet, row: &[usize]) -> Vec<Cell> {
        let found = row.iter().find_map(|&nth| {
            let figure = &sheet.figures[nth];
            let of_it =
                sheet.is_subject(figure) && self.name.is_none_or(|name| name == figure.name);
            let place = figure.against.iter().position(|each| each.what == self.what);
            place.filter(|_| of_it).map(|place| (nth, place, &figure.against[place]))
        });
        let number =
            |text, nth, place, what| Cell::Number(text, format!("{nth}/against/{place}/{what}"));
        let times = found.map_or(Cell::Empty, |(nth, place, it)| {
            number(times(it) + mark(it.judged(), it.at_limit), nth, place, "times")
        });
        let noise = found.and_then(|(nth, place, it)| {
            Some(number(format!("{:.3}", it.noise?), nth, place, "noise"))
        });
        let peer = found.map_or(Cell::Empty, |(.., it)| Cell::Word(it.peer.clone()));
        let noise = self.noisy.then(|| noise.unwrap_or(Cell::Empty));
        [Some(times), noise, self.told.then_some(peer)].into_iter().flatten().collect()
    }
}

impl Sheet {
    /// Its rows: the words that tell them apart, and the places of their figures.
    fn rows(&self) -> Vec<(Vec<String>, Vec<usize>)> {
        let by_name = self.figures.iter().any(|figure| named(figure) != named(&self.figures[0]));
        let mut rows: Vec<(Vec<String>, Vec<usize>)> = vec![];
        for (nth, figure) in self.figures.iter().enumerate() {
            let last = match self.across {
                Across::Who => by_name.then(|| named(figure)),
                Across::Name => Some(figure.who.clone()),
            };
            let key: Vec<_> = figure.of.iter().cloned().chain(last).collect();
            match rows.iter_mut().find(|(known, _)| *known == key) {
                Some((_, places)) => places.push(nth),
                None => rows.push((key, vec![nth])),
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
        let in_order = |name: &String| self.figures.iter().find(|figure| figure.name == *name);
        let mut columns: Vec<String> = vec![];
        for figure in self.order.iter().filter_map(in_order).chain(&self.figures) {
            let head = self.head(figure);
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
        let row = |(key, places): (Vec<String>, Vec<usize>)| {
            let value = |head: &String| {
                let place = places.iter().find(|&&nth| self.head(&self.figures[nth]) == *head);
                place.map_or(Cell::Empty, |&nth| self.value_cell(nth))
            };
            let row = key.into_iter().map(Cell::Word).chain(columns.iter().map(value));
            row.chain(compared.iter().flat_map(|each| each.cells(self, &places))).collect()
        };
        Table { rows: rows.into_iter().map(row).collect(), heads }
    }

    fn value_cell(&self, nth: usize) -> Cell {
        let figure = &self.figures[nth];
        let beside = figure.against.first().filter(|_| !self.is_subject(figure));
        let beside = beside.map_or(String::new(), |it| format!(" {}x", times(it)));
        let text = format!("{}{}{beside}", shown(figure.value), mark(figure.judged(), false));
        Cell::Number(text, format!("{nth}/value"))
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
        let row = |row: &Vec<Cell>| row.iter().map(|cell| cell.text().to_string()).collect();
        [table.heads.clone()].into_iter().chain(table.rows.iter().map(row)).collect()
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
