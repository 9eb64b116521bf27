//! The pictures of a sheet, from its figures.

use super::svg::{Bars, Heat, Lines, Picture};
use crate::figure::{Across, Figure, Kind, Plot, Sheet, named};

/// The kind of picture and the picture; `None` if there is nothing to show.
pub fn draw(sheet: &Sheet, plot: &Plot) -> Option<(&'static str, Picture)> {
    let (x, y) = (plot.x.clone(), plot.y.clone());
    let curves = |series: Vec<(String, Vec<_>)>| {
        let some = series.iter().any(|(_, points)| points.len() > 1);
        some.then(|| Lines { x: x.clone(), y, series }.draw())
    };
    let bars = |plot: Bars| (!plot.groups.is_empty()).then(|| plot.draw());
    let named_so = |name: &String| {
        sheet.figures.iter().filter(move |each| each.name == *name).collect::<Vec<_>>()
    };
    let (kind, picture) = match &plot.kind {
        Kind::Heat(what) => {
            compared(sheet, what).next()?;
            let [rows, columns] = [0, 1].map(|nth| words(sheet, |figure| &figure.of[nth]));
            let times = |row: &String, column: &String| {
                let mut all = compared(sheet, what);
                Some(all.find(|(of, _)| of.of[..2] == [row.clone(), column.clone()])?.1)
            };
            let row = |row: &String| {
                (row.clone(), columns.iter().map(|column| times(row, column)).collect())
            };
            let rows = rows.iter().map(row).collect();
            ("heat", Some(Heat { columns: columns.clone(), x, rows }.draw()))
        }
        Kind::Curves(what) => {
            let points = compared(sheet, what)
                .filter_map(|(figure, times)| Some((figure.of[0].as_str(), x_of(figure)?, times)));
            ("curves", curves(series(points)))
        }
        Kind::Lines(name) => {
            let points = named_so(name)
                .into_iter()
                .filter_map(|figure| Some((&*figure.who, x_of(figure)?, figure.value)));
            ("lines", curves(series(points)))
        }
        Kind::Bars(names) => {
            let of_it = |figure: &&Figure| names.contains(&figure.name);
            let each = sheet.figures.iter().filter(of_it).map(|figure| (figure, figure.value));
            ("bars", bars(grouped(sheet, x, each)))
        }
        Kind::Changes(what) => {
            let each = compared(sheet, what).map(|(figure, times)| (figure, 100.0 * (times - 1.0)));
            ("changes", bars(grouped(sheet, x, each)))
        }
    };
    Some((kind, picture?))
}

/// What the figures have of it, each once, in their order.
fn words(sheet: &Sheet, of: impl Fn(&Figure) -> &String) -> Vec<String> {
    let mut all: Vec<String> = vec![];
    for word in sheet.figures.iter().map(of) {
        place(&mut all, |known| known == word, || word.clone());
    }
    all
}

/// Where it is, or will be at the end.
fn place<T>(all: &mut Vec<T>, is: impl Fn(&T) -> bool, new: impl FnOnce() -> T) -> usize {
    all.iter().position(is).unwrap_or_else(|| {
        all.push(new());
        all.len() - 1
    })
}

fn compared<'a>(sheet: &'a Sheet, what: &'a str) -> impl Iterator<Item = (&'a Figure, f64)> {
    sheet.figures.iter().filter_map(move |figure| {
        Some((figure, figure.against.iter().find(|against| against.what == what)?.times))
    })
}

/// The last word of its case, if that is a number.
fn x_of(figure: &Figure) -> Option<f64> {
    figure.of.last()?.parse().ok()
}

fn series<'a>(points: impl Iterator<Item = (&'a str, f64, f64)>) -> Vec<(String, Vec<(f64, f64)>)> {
    let mut all: Vec<(String, Vec<(f64, f64)>)> = vec![];
    for (name, x, y) in points {
        let at = place(&mut all, |(known, _)| known == name, || (name.into(), vec![]));
        all[at].1.push((x, y));
    }
    all
}

/// A group for each row of the table, a bar for each column.
fn grouped<'a>(sheet: &Sheet, x: String, bars: impl Iterator<Item = (&'a Figure, f64)>) -> Bars {
    let several = words(sheet, |figure| &figure.name).len() > 1;
    let mut plot = Bars { x, series: vec![], groups: vec![] };
    for (figure, value) in bars {
        let (row, column) = match sheet.across {
            Across::Who => (Some(&figure.name).filter(|_| several), figure.who.clone()),
            Across::Name => (Some(&figure.who), named(figure)),
        };
        let row = figure.of.iter().chain(row).map(String::as_str).collect::<Vec<_>>().join(", ");
        let nth = place(&mut plot.series, |known| *known == column, || column.clone());
        let group = place(&mut plot.groups, |(known, _)| *known == row, || (row.clone(), vec![]));
        let bars = &mut plot.groups[group].1;
        bars.resize(bars.len().max(nth + 1), None);
        bars[nth] = Some(value);
    }
    plot
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Against;
    use crate::peers::PREZERO;

    #[test]
    fn every_kind_is_drawn_with_all_its_figures() {
        let mut sheet = Sheet::new("t", &["size", "lines"], Across::Who);
        for (size, lines, times) in [("1M", "1", 2.0), ("1M", "64", 1.5), ("2M", "1", 0.5)] {
            let figure = Figure::new(PREZERO, "round", "us", 7.0 * times).case(&[size, lines]);
            sheet.push(figure.and([Against::new("best", "glibc", times)]));
        }
        let drawn = |kind| {
            let plot = Plot { kind, x: "x".into(), y: "y".into(), caption: String::new() };
            draw(&sheet, &plot).map_or(String::new(), |(_, picture)| picture.html())
        };
        let heat = drawn(Kind::Heat("best".into()));
        assert!([">2.00<", ">1.50<", ">0.50<"].iter().all(|text| heat.contains(text)));
        assert_eq!(drawn(Kind::Curves("best".into())).matches("<circle").count(), 2 * 3);
        assert_eq!(drawn(Kind::Lines("round".into())).matches("<circle").count(), 2 * 3);
        // A mark in the legend, three bars.
        assert_eq!(drawn(Kind::Bars(vec!["round".into()])).matches("<rect").count(), 2 * 4);
        assert!(drawn(Kind::Changes("best".into())).contains(">-50<"));
        let nothing = || "none such".to_string();
        let nothing = [Kind::Heat(nothing()), Kind::Lines(nothing()), Kind::Bars(vec![nothing()])];
        assert!(nothing.into_iter().all(|kind| drawn(kind).is_empty()));
    }
}
