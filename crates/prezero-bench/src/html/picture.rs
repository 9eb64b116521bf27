//! The pictures of a sheet, from its figures.

use anyhow::Result;

use super::lines::Lines;
use super::plot::{Bars, Heat, Picture};
use crate::figure::{Across, Figure, Kind, Plot, Sheet, named};

/// What it is called, and the picture; `None` of nothing.
///
/// # Errors
/// It cannot be drawn.
pub fn draw(sheet: &Sheet, plot: &Plot) -> Result<Option<(&'static str, Picture)>> {
    let (x, y) = (plot.x.clone(), plot.y.clone());
    let curves = |series: Vec<(String, Vec<_>)>| {
        let some = series.iter().any(|(_, points)| points.len() > 1);
        some.then(|| Lines { x: x.clone(), y, series }.draw()).transpose()
    };
    let bars = |plot: Bars| (!plot.groups.is_empty()).then(|| plot.draw()).transpose();
    let (kind, picture) = match &plot.kind {
        Kind::Heat(what) => {
            let [rows, columns] = [0, 1].map(|nth| words(sheet, |figure| &figure.of[nth]));
            let times = |row: &String, column: &String| {
                compared(sheet, what).find(|(of, _)| of.of[..2] == [row.clone(), column.clone()])
            };
            let row = |row: &String| {
                let values = columns.iter().map(|column| Some(times(row, column)?.1));
                (row.clone(), values.collect())
            };
            let rows = rows.iter().map(row).collect();
            let heat = Heat { columns: columns.clone(), x: x.clone(), rows };
            ("heat", compared(sheet, what).next().map(|_| heat.draw()).transpose()?)
        }
        Kind::Curves(what) => {
            let points = compared(sheet, what)
                .filter_map(|(figure, times)| Some((figure.of[0].as_str(), x_of(figure)?, times)));
            ("curves", curves(series(points))?)
        }
        Kind::Lines(name) => {
            let of_it = sheet.figures.iter().filter(|figure| figure.name == *name);
            let points =
                of_it.filter_map(|figure| Some((&*figure.who, x_of(figure)?, figure.value)));
            ("lines", curves(series(points))?)
        }
        Kind::Bars(names) => {
            let of_it = |figure: &&Figure| names.contains(&figure.name);
            let each = sheet.figures.iter().filter(of_it).map(|figure| (figure, figure.value));
            ("bars", bars(grouped(sheet, x, each))?)
        }
        Kind::Changes(what) => {
            let each = compared(sheet, what).map(|(figure, times)| (figure, 100.0 * (times - 1.0)));
            ("changes", bars(grouped(sheet, x, each))?)
        }
    };
    Ok(picture.map(|picture| (kind, picture)))
}

/// What figures have of something, each once, in order.
fn words(sheet: &Sheet, of: impl Fn(&Figure) -> &String) -> Vec<String> {
    let mut all: Vec<String> = vec![];
    for word in sheet.figures.iter().map(of) {
        if !all.contains(word) {
            all.push(word.clone());
        }
    }
    all
}

/// The figures with a comparison of that name, and how many times as good each is.
fn compared<'a>(sheet: &'a Sheet, what: &'a str) -> impl Iterator<Item = (&'a Figure, f64)> {
    sheet.figures.iter().filter_map(move |figure| {
        let against = figure.against.iter().find(|against| against.what == what)?;
        Some((figure, against.times))
    })
}

/// The last word of a case, as a number.
fn x_of(figure: &Figure) -> Option<f64> {
    figure.of.last()?.parse().ok()
}

/// Curves of points with their names.
fn series<'a>(points: impl Iterator<Item = (&'a str, f64, f64)>) -> Vec<(String, Vec<(f64, f64)>)> {
    let mut all: Vec<(String, Vec<(f64, f64)>)> = vec![];
    for (name, x, y) in points {
        match all.iter_mut().find(|(known, _)| known == name) {
            Some((_, points)) => points.push((x, y)),
            None => all.push((name.into(), vec![(x, y)])),
        }
    }
    all
}

/// Bars in groups: a group for each row of the table, a series for each of its columns.
fn grouped<'a>(sheet: &Sheet, x: String, bars: impl Iterator<Item = (&'a Figure, f64)>) -> Bars {
    let several = words(sheet, |figure| &figure.name).len() > 1;
    let mut plot = Bars { x, series: vec![], groups: vec![] };
    for (figure, value) in bars {
        let (row, column) = match sheet.across {
            Across::Who if several => (Some(&figure.name), figure.who.clone()),
            Across::Who => (None, figure.who.clone()),
            Across::Name => (Some(&figure.who), named(figure)),
        };
        let row: Vec<_> = figure.of.iter().chain(row).map(String::as_str).collect();
        let row = row.join(", ");
        let place = plot.series.iter().position(|known| *known == column).unwrap_or_else(|| {
            plot.series.push(column);
            plot.series.len() - 1
        });
        let group = plot.groups.iter().position(|(known, _)| *known == row).unwrap_or_else(|| {
            plot.groups.push((row, vec![]));
            plot.groups.len() - 1
        });
        let bars = &mut plot.groups[group].1;
        bars.resize(bars.len().max(place + 1), None);
        bars[place] = Some(value);
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
            draw(&sheet, &plot).unwrap().map_or(String::new(), |(_, picture)| picture.html())
        };
        let heat = drawn(Kind::Heat("best".into()));
        assert!(["\n2.00\n", "\n1.50\n", "\n0.50\n"].iter().all(|text| heat.contains(text)));
        assert_eq!(drawn(Kind::Curves("best".into())).matches("<circle").count(), 2 * 3);
        assert_eq!(drawn(Kind::Lines("round".into())).matches("<circle").count(), 2 * 3);
        // A mark in the legend, three bars.
        assert_eq!(drawn(Kind::Bars(vec!["round".into()])).matches("<rect").count(), 2 * 4);
        assert!(drawn(Kind::Changes("best".into())).contains("\n-50\n"));
        let nothing = || "none such".to_string();
        let nothing = [Kind::Heat(nothing()), Kind::Lines(nothing()), Kind::Bars(vec![nothing()])];
        assert!(nothing.into_iter().all(|kind| drawn(kind).is_empty()));
    }
}
