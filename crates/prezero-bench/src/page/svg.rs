//! Plots as SVG: curves, horizontal bars, a heat map. Drawn twice, wide and narrow, since text
//! that is scaled with its picture cannot be read on a telephone.
//!
//! Ink is `currentColor`, so a plot is legible on light and on dark; nothing is painted behind,
//! but for a picture that stands alone ([`Picture::alone`]).

use std::fmt::Write;

use super::axis::{Powers, short};
use super::escaped;

/// A color, as red, green and blue.
type Color = [u8; 3];

/// Okabe and Ito's colors, some of them darker or lighter: all are seen on light and on dark.
/// Fixed: a palette.
const SERIES: [Color; 8] = [
    [213, 94, 0],
    [0, 114, 178],
    [0, 158, 115],
    [200, 90, 150],
    [148, 134, 20],
    [45, 145, 205],
    [184, 120, 0],
    [128, 128, 128],
];
/// Series beyond these are drawn hollow: more colors are not told apart.
const FILLED: usize = 4;
const INK: &str = "currentColor";
/// Height of text, and its width on average as a share of that.
const TEXT: f64 = 17.0;
const WIDE: f64 = 0.52;
/// The names of the widths are classes of the page and parts of file names.
pub const WIDEST: &str = "wide";
const WIDTHS: [(&str, f64); 2] = [(WIDEST, 860.0), ("narrow", 350.0)];

/// Colors of a picture that stands alone.
const ALONE: &str = "<style>svg{color:#1b1b1b;background:#fff}@media(prefers-color-scheme:dark)\
    {svg{color:#e6e6e6;background:#16181b}}</style>";

/// The SVG of each width.
#[derive(Debug)]
pub struct Picture(Vec<(&'static str, String)>);

impl Picture {
    /// For a page, which shows the one that fits.
    pub fn html(&self) -> String {
        let element = |(class, svg): &(&str, String)| format!("<div class=\"{class}\">{svg}</div>");
        self.0.iter().map(element).collect()
    }

    /// For files.
    pub fn alone(&self) -> impl Iterator<Item = (&'static str, String)> {
        self.0.iter().map(|(width, svg)| {
            let (head, rest) = svg.split_once('>').unwrap_or((svg, ""));
            (*width, format!("{head}>\n{ALONE}{rest}\n"))
        })
    }
}

/// About how wide a letter is, in its size.
const GLYPH: f64 = 0.56;

/// One SVG.
struct Canvas {
    svg: String,
    width: f64,
}

/// Which point of a text lies at its place.
#[derive(Clone, Copy)]
enum Anchor {
    Start,
    Middle,
    End,
}

impl Canvas {
    fn add(&mut self, element: std::fmt::Arguments<'_>) {
        let _ = writeln!(self.svg, "{element}");
    }

    /// Text whose middle line is at `y`.
    fn text(&mut self, (x, y): (f64, f64), anchor: Anchor, ink: &str, size: f64, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        // A text that starts here and is longer than the room behind it is set narrower.
        let room = self.width - x - 4.0;
        let fitted = match text.chars().count() as f64 * GLYPH * size > room && anchor == "start" {
            true => format!(" textLength=\"{room:.0}\" lengthAdjust=\"spacingAndGlyphs\""),
            false => String::new(),
        };
        self.add(format_args!(
            "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\" font-family=\"sans-serif\" font-size=\"{size}\" \
             fill=\"{ink}\"{fitted}>{}</text>",
            y + 0.35 * size,
            escaped(text)
        ));
    }

    fn label(&mut self, at: (f64, f64), anchor: Anchor, text: &str) {
        self.text(at, anchor, INK, TEXT, text);
    }

    fn rect(&mut self, (x, y): (f64, f64), [width, height]: [f64; 2], paint: &str) {
        self.add(format_args!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.0}\" {paint}/>"
        ));
    }

    fn line(&mut self, points: &[(f64, f64)], paint: &str) {
        let points: String = points.iter().map(|(x, y)| format!("{x:.1},{y:.1} ")).collect();
        self.add(format_args!("<polyline points=\"{}\" fill=\"none\" {paint}/>", points.trim()));
    }

    /// A mark and a name for each series, in as many lines as it takes; where it ends.
    fn legend(&mut self, names: &[&str]) -> f64 {
        let line = TEXT + 6.0;
        let (mut x, mut y) = (4.0, 4.0);
        for (nth, name) in names.iter().enumerate() {
            let needed = width_of(name) + 30.0;
            if x > 4.0 && x + needed > self.width {
                (x, y) = (4.0, y + line);
            }
            self.rect((x, y + 3.0), [14.0, 10.0], &mark(nth));
            self.label((x + 19.0, y + 8.0), Anchor::Start, name);
            x += needed;
        }
        y + line + 4.0
    }
}

/// Draws each width; `draw` says how high it became.
fn drawn(draw: impl Fn(&mut Canvas) -> f64) -> Picture {
    let each = WIDTHS.map(|(class, width)| {
        let mut canvas = Canvas { svg: String::new(), width };
        let height = draw(&mut canvas).ceil();
        let head = format!(
            "<svg width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
             xmlns=\"http://www.w3.org/2000/svg\">"
        );
        (class, format!("{head}\n{}</svg>", canvas.svg))
    });
    Picture(each.into())
}

fn width_of(text: &str) -> f64 {
    text.chars().count() as f64 * TEXT * WIDE
}

fn hex([r, g, b]: Color) -> String {
    format!("#{r:02x}{g:02x}{b:02x}")
}

fn color(nth: usize) -> String {
    hex(SERIES[nth % SERIES.len()])
}

/// Of a series: filled, or else hollow.
fn mark(nth: usize) -> String {
    match nth < FILLED {
        true => format!("fill=\"{}\"", color(nth)),
        false => format!("fill=\"none\" stroke=\"{}\" stroke-width=\"2\"", color(nth)),
    }
}

/// Horizontal bars in groups.
#[derive(Debug)]
pub struct Bars {
    /// What the bars are, below them.
    pub x: String,
    pub series: Vec<String>,
    /// A name, and a value of each series or none.
    pub groups: Vec<(String, Vec<Option<f64>>)>,
}

impl Bars {
    pub fn draw(&self) -> Picture {
        /// Of a bar, with the gap below it, and of a number beside one.
        const BAR: f64 = 13.0;
        const NUMBER: f64 = 58.0;
        let names: Vec<_> = self.series.iter().map(String::as_str).collect();
        let all = || self.groups.iter().flat_map(|(_, bars)| bars.iter().flatten().copied());
        let (low, high) = (all().fold(0.0, f64::min), all().fold(0.0, f64::max));
        let span = (high - low).max(f64::MIN_POSITIVE);
        drawn(|canvas| {
            let mut y = canvas.legend(&names);
            let left = if low < 0.0 { NUMBER } else { 4.0 };
            let room = canvas.width - left - NUMBER - 4.0;
            let zero = left + -low / span * room;
            for (name, bars) in &self.groups {
                canvas.label((4.0, y + 11.0), Anchor::Start, name);
                y += 22.0;
                let began = y;
                for (nth, value) in bars.iter().enumerate() {
                    let Some(value) = value else { continue };
                    let length = (value / span * room).abs().max(1.0);
                    let from = if *value < 0.0 { zero - length } else { zero };
                    canvas.rect((from, y), [length, BAR - 2.0], &mark(nth));
                    let (x, anchor) = match *value < 0.0 {
                        true => (from - 4.0, Anchor::End),
                        false => (from + length + 4.0, Anchor::Start),
                    };
                    canvas.text((x, y + BAR / 2.0 - 1.0), anchor, INK, TEXT - 2.0, &short(*value));
                    y += BAR;
                }
                // Beside the bars alone: it would cross the names.
                canvas.line(
                    &[(zero, began), (zero, y)],
                    "stroke=\"currentColor\" stroke-opacity=\"0.6\"",
                );
                y += 2.0;
            }
            canvas.label((4.0, y + 12.0), Anchor::Start, &self.x);
            y + TEXT + 10.0
        })
    }
}

/// Ratios as a table whose cells are painted.
#[derive(Debug)]
pub struct Heat {
    pub columns: Vec<String>,
    /// What the columns are, below them.
    pub x: String,
    pub rows: Vec<(String, Vec<Option<f64>>)>,
}

/// Speed-ups whose colors stand below a heat map.
/// Fixed: slower, the same, and two that are faster.
const KEY: [f64; 4] = [0.5, 1.0, 2.0, 10.0];

impl Heat {
    pub fn draw(&self) -> Picture {
        const ROW: f64 = 30.0;
        drawn(|canvas| {
            let widest = self.rows.iter().map(|(name, _)| width_of(name)).fold(0.0, f64::max);
            let left = widest + 24.0;
            let step = (canvas.width - left - 4.0) / self.columns.len().max(1) as f64;
            let middle = |column: usize| left + step * (column as f64 + 0.5);
            for (nth, column) in self.columns.iter().enumerate() {
                canvas.label((middle(nth), ROW / 2.0), Anchor::Middle, column);
            }
            let mut top = ROW;
            for (name, values) in &self.rows {
                canvas.label((left - 10.0, top + ROW / 2.0), Anchor::End, name);
                for (column, value) in values.iter().enumerate() {
                    let Some(value) = value else { continue };
                    let (paint, ink) = shade(*value);
                    let place = (middle(column) - step / 2.0 + 1.0, top + 1.0);
                    let paint = format!("fill=\"{}\"", hex(paint));
                    canvas.rect(place, [step - 2.0, ROW - 2.0], &paint);
                    let place = (middle(column), top + ROW / 2.0);
                    let ratio =
                        if *value >= 10.0 { format!("{value:.1}") } else { format!("{value:.2}") };
                    canvas.text(place, Anchor::Middle, &hex(ink), TEXT, &ratio);
                }
                top += ROW;
            }
            canvas.label((4.0, top + 14.0), Anchor::Start, &self.x);
            top += TEXT + 12.0;
            // What the colors mean.
            canvas.label((4.0, top + 8.0), Anchor::Start, "speed-up:");
            let mut x = 4.0 + width_of("speed-up: ");
            for ratio in KEY {
                canvas.rect(
                    (x, top + 3.0),
                    [14.0, 10.0],
                    &format!("fill=\"{}\"", hex(shade(ratio).0)),
                );
                canvas.label((x + 19.0, top + 8.0), Anchor::Start, &short(ratio));
                x += width_of(&short(ratio)) + 34.0;
            }
            top + TEXT + 10.0
        })
    }
}

/// Curves; both axes are logarithmic.
#[derive(Debug)]
pub struct Lines {
    /// What the axes are, and in which unit.
    pub x: String,
    pub y: String,
    /// Name and points.
    pub series: Vec<(String, Vec<(f64, f64)>)>,
}

impl Lines {
    pub fn draw(&self) -> Picture {
        /// Room left of the curves, right of them, below them, and their height.
        const ROOM: [f64; 4] = [76.0, 22.0, 52.0, 240.0];
        let points = || self.series.iter().flat_map(|(_, points)| points);
        let x = Powers::over(points().map(|point| point.0), 0.0);
        let y = Powers::over(points().map(|point| point.1), 0.08);
        let names: Vec<_> = self.series.iter().map(|(name, _)| name.as_str()).collect();
        drawn(|canvas| {
            let [left, right, below, height] = ROOM;
            let top = canvas.legend(&names) + 8.0;
            let (width, bottom) = (canvas.width - left - right, top + height);
            let across = |exponent: f64| left + width * x.share(exponent);
            let up = |exponent: f64| bottom - height * y.share(exponent);
            let (faint, axis) = (
                "stroke=\"currentColor\" stroke-opacity=\"0.15\"",
                "stroke=\"currentColor\" stroke-opacity=\"0.6\"",
            );
            for tick in x.ticks(if canvas.width < 500.0 { 4 } else { 8 }) {
                canvas.line(&[(across(tick), top), (across(tick), bottom)], faint);
                canvas.label((across(tick), bottom + 13.0), Anchor::Middle, &x.label(tick));
            }
            for tick in y.ticks(6) {
                canvas.line(&[(left, up(tick)), (left + width, up(tick))], faint);
                canvas.label((left - 8.0, up(tick)), Anchor::End, &y.label(tick));
            }
            canvas.line(&[(left, top), (left, bottom), (left + width, bottom)], axis);
            canvas.label((left + width / 2.0, bottom + 36.0), Anchor::Middle, &self.x);
            let middle = top + height / 2.0;
            canvas.add(format_args!("<g transform=\"rotate(-90 12 {middle:.1})\">"));
            canvas.label((12.0, middle), Anchor::Middle, &self.y);
            canvas.add(format_args!("</g>"));
            for (nth, (_, points)) in self.series.iter().enumerate() {
                let points: Vec<_> =
                    points.iter().map(|point| (across(x.at(point.0)), up(y.at(point.1)))).collect();
                canvas.line(&points, &format!("stroke=\"{}\" stroke-width=\"2\"", color(nth)));
                for (x, y) in points {
                    let mark = mark(nth);
                    canvas
                        .add(format_args!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" {mark}/>"));
                }
            }
            bottom + below
        })
    }
}

/// How light a color is (WCAG 2's relative luminance).
fn light(color: Color) -> f64 {
    let linear = |part: u8| {
        let part = f64::from(part) / 255.0;
        if part <= 0.03928 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
    };
    let [r, g, b] = color.map(linear);
    0.2126 * r + 0.7152 * g + 0.0722 * b
}

/// From 1 to 21.
fn contrast(one: Color, other: Color) -> f64 {
    let (one, other) = (light(one) + 0.05, light(other) + 0.05);
    (one / other).max(other / one)
}

/// What a cell is painted in, and its text: the bluer the better, the redder the worse.
fn shade(ratio: f64) -> (Color, Color) {
    const PALE: f64 = 240.0;
    let depth = (ratio.ln().abs() / 10f64.ln()).min(1.0);
    let deep: Color = if ratio >= 1.0 { [8, 69, 148] } else { [165, 15, 21] };
    let paint = deep.map(|part| (PALE + (f64::from(part) - PALE) * depth) as u8);
    let (black, white) = ([0; 3], [255; 3]);
    (paint, if contrast(white, paint) > contrast(black, paint) { white } else { black })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_has_both_widths_its_numbers_and_no_fixed_ink() {
        let rows = vec![
            ("64K".into(), vec![Some(2.345), None]),
            ("1M".into(), vec![Some(0.5), Some(12.34)]),
        ];
        let picture =
            Heat { columns: vec!["1".into(), "64".into()], x: "lines".into(), rows }.draw();
        let svg = picture.html();
        assert_eq!(svg.matches("<svg").count(), 2);
        let alone: Vec<_> = picture.alone().collect();
        assert_eq!([alone[0].0, alone[1].0], ["wide", "narrow"]);
        for ((_, alone), width) in alone.iter().zip([860, 350]) {
            let head = format!("<svg width=\"{width}\"");
            assert!(alone.starts_with(&head) && alone.ends_with("</svg>\n"), "{alone}");
            assert_eq!((alone.matches("<svg").count(), alone.matches("<style>").count()), (1, 1));
        }
        // A cell for each value, and the key: slower, the same, faster.
        assert_eq!(svg.matches("<rect").count(), 2 * (3 + KEY.len()));
        for number in ["2.35", "0.50", "12.3", "0.5", "2", "10"] {
            assert_eq!(svg.matches(&format!(">{number}<")).count(), 2, "{number}: {svg}");
        }
        assert!(svg.contains("currentColor"));
    }

    #[test]
    fn every_bar_and_every_series_is_drawn() {
        let groups =
            vec![("g".into(), vec![Some(-1.5), Some(3.0)]), ("h".into(), vec![None, Some(2.0)])];
        let bars = Bars { x: "s".into(), series: vec!["p".into(), "q".into()], groups };
        // Two marks in the legend, three bars; an axis for each group.
        assert_eq!(bars.draw().html().matches("<rect").count(), 2 * 5);
        assert_eq!(bars.draw().html().matches("<polyline").count(), 2 * 2);
        let many = (0..6).map(|nth| (nth.to_string(), vec![(1.0, 1.0 + f64::from(nth))])).collect();
        let lines = Lines { x: "x".into(), y: "y".into(), series: many }.draw().html();
        assert_eq!(lines.matches("<circle").count(), 2 * 6);
        // A dot and a mark of two series each, in two widths.
        let is_mark = |line: &&str| line.starts_with("<circle") || line.starts_with("<rect");
        let hollow = lines.lines().filter(is_mark).filter(|mark| mark.contains("fill=\"none\""));
        assert_eq!(hollow.count(), 2 * 2 * 2, "{lines}");
    }

    #[test]
    fn figures_are_read_on_every_cell_and_series_are_seen_on_either_paper() {
        let (good, bad) = (shade(3.0).0, shade(0.4).0);
        assert!(good[2] > good[0] && bad[0] > bad[2], "better is blue, worse is red");
        for step in -30..=30 {
            let (paint, ink) = shade(1.1f64.powi(step));
            assert!(contrast(paint, ink) >= 4.5, "{step}: {paint:?}");
        }
        for color in SERIES {
            for paper in [[255; 3], [0x16, 0x18, 0x1b]] {
                assert!(contrast(color, paper) >= 3.0, "{color:?} on {paper:?}");
            }
        }
    }
}
