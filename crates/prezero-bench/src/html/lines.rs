//! Curves.

use anyhow::Result;
use plotters::prelude::*;

use super::plot::{INK, Picture, TEXT, color, drawn, failed, ink, legend, mark, short};

/// Curves; both axes are logarithmic.
#[derive(Debug)]
pub struct Lines {
    /// What the axes are.
    pub x: String,
    /// And in which unit.
    pub y: String,
    /// Name and points.
    pub series: Vec<(String, Vec<(f64, f64)>)>,
}

/// An axis in powers of a base: plotted are exponents, and its labels are at whole ones where
/// it has room for them.
struct Powers {
    base: f64,
    /// What the powers are of: one, a thousand, a million.
    unit: f64,
    from: f64,
    to: f64,
}

impl Powers {
    /// Of all these, with a margin; of two where they are not far apart, else of ten.
    fn over(values: impl Iterator<Item = f64> + Clone, margin: f64) -> Powers {
        let (low, high) = ends(values);
        let base = if high / low > 100.0 { 10.0f64 } else { 2.0 };
        let margin = (high / low).powf(margin);
        let unit = 1000f64.powf(high.max(1.0).log(1000.0).floor());
        let (low, high) = (low / margin / unit, high * margin / unit);
        Powers { base, unit, from: low.log(base), to: high.log(base) }
    }

    /// Of two, from the least of these to the greatest.
    fn of_two(values: impl Iterator<Item = f64> + Clone) -> Powers {
        let (low, high) = ends(values);
        Powers { base: 2.0, unit: 1.0, from: low.log2(), to: high.log2() }
    }

    fn at(&self, value: f64) -> f64 {
        let value = value / self.unit;
        if self.base == 2.0 { value.log2() } else { value.log(self.base) }
    }

    /// How many labels, at most so many: one for each power, or five where there are few.
    fn labels(&self, most: usize) -> usize {
        let powers = (self.to.floor() - self.from.ceil()) as usize + 1;
        if powers < 3 { 5 } else { powers.min(most) }
    }

    fn label(&self, exponent: f64) -> String {
        short(self.unit * self.base.powf(exponent))
    }
}

fn ends(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let low = values.clone().fold(f64::MAX, f64::min);
    (low, values.fold(f64::MIN, f64::max).max(low * 1.01))
}

impl Lines {
    /// As SVG.
    pub fn draw(&self) -> Result<Picture> {
        let points = || self.series.iter().flat_map(|(_, points)| points);
        let x = Powers::of_two(points().map(|point| point.0));
        let y = Powers::over(points().map(|point| point.1), 0.08);
        let names: Vec<_> = self.series.iter().map(|(name, _)| name.as_str()).collect();
        let height = |width| 300 + legend(None, width, &names).unwrap_or(0);
        drawn(height, |area, width| {
            let top = legend(Some(area), width, &names)?;
            let (_, area) = area.split_vertically(top);
            let mut chart = ChartBuilder::on(&area)
                .margin(8)
                .margin_right(16)
                .x_label_area_size(42)
                .y_label_area_size(74)
                .build_cartesian_2d(x.from..x.to, y.from..y.to)
                .map_err(failed)?;
            let narrow = width < 500;
            chart
                .configure_mesh()
                .bold_line_style(INK.mix(0.15))
                .light_line_style(INK.mix(0.0))
                .axis_style(INK.mix(0.6))
                .label_style(ink(TEXT))
                .axis_desc_style(ink(TEXT))
                .x_labels(x.labels(if narrow { 4 } else { 8 }))
                .y_labels(y.labels(6))
                .x_desc(&self.x)
                .y_desc(&self.y)
                .x_label_formatter(&|exponent| x.label(*exponent))
                .y_label_formatter(&|exponent| y.label(*exponent))
                .draw()
                .map_err(failed)?;
            for (nth, (_, points)) in self.series.iter().enumerate() {
                let style = color(nth).stroke_width(2);
                let points = || points.iter().map(|point| (x.at(point.0), y.at(point.1)));
                chart.draw_series(LineSeries::new(points(), style)).map_err(failed)?;
                let dots = points().map(|point| Circle::new(point, 3, mark(nth)));
                chart.draw_series(dots).map_err(failed)?;
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_series_is_drawn() {
        let series =
            vec![("a".into(), vec![(1.0, 10.0), (64.0, 2.0)]), ("b".into(), vec![(1.0, 1.0)])];
        let lines = Lines { x: "x".into(), y: "y".into(), series }.draw().unwrap().html();
        assert_eq!(lines.matches("<circle").count(), 2 * 3);
        let many = (0..6).map(|nth| (nth.to_string(), vec![(1.0, 1.0 + f64::from(nth))])).collect();
        let lines = Lines { x: "x".into(), y: "y".into(), series: many }.draw().unwrap().html();
        // A dot and a mark of two series each, in two widths.
        let is_mark = |line: &&str| line.starts_with("<circle") || line.starts_with("<rect");
        let marks = lines.lines().filter(is_mark);
        let hollow = marks.filter(|mark| mark.contains("fill=\"none\""));
        assert_eq!(hollow.count(), 2 * 2 * 2, "{lines}");
    }

    #[test]
    fn an_axis_is_labelled_at_powers_or_has_five_labels() {
        let axis = |values: [f64; 2]| Powers::over(values.into_iter(), 0.08);
        assert_eq!(
            (axis([1.0, 16.0]).base, axis([1e5, 9e6]).base, axis([1e4, 9e6]).base),
            (2.0, 2.0, 10.0)
        );
        assert_eq!(axis([0.93, 1.12]).labels(6), 5);
        let lines = Powers::of_two([1.0, 128.0].into_iter());
        assert_eq!((lines.from, lines.to, lines.at(128.0)), (0.0, 7.0, 7.0), "the last label too");
        assert_eq!((axis([1.0, 16.0]).labels(6), axis([1.0, 16.0]).label(4.0)), (5, "16".into()));
        let rates = axis([3e5, 5e6]);
        assert_eq!((rates.at(4e6), rates.label(2.0)), (2.0, "4M".into()));
        assert_eq!((rates.label(-1.0), rates.label(-2.0)), ("500k".into(), "250k".into()));
        assert_eq!(axis([1e3, 1e7]).labels(4), 4, "no more than there is room for");
    }
}
