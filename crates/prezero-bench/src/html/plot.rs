//! Plots as SVG: lines, horizontal bars, a heat map. Drawn twice, wide and narrow, since text
//! that is scaled with its picture cannot be read on a telephone.
//!
//! Ink is `currentColor`, so a plot is legible on light and on dark; nothing is painted behind,
//! but for a picture that stands alone ([`Picture::alone`]).

use anyhow::{Result, anyhow};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::figure::shown;

/// What [`drawn`] turns into the text's own colour.
pub const INK: RGBColor = RGBColor(1, 2, 3);
const INK_WRITTEN: &str = "\"#010203\"";
/// Apart for the colour-blind (after Okabe and Ito, 2008), each three times as light or dark as
/// the light paper and as the dark one.
const SERIES: [RGBColor; 8] = [
    RGBColor(213, 94, 0),
    RGBColor(0, 114, 178),
    RGBColor(0, 158, 115),
    RGBColor(200, 90, 150),
    RGBColor(148, 134, 20),
    RGBColor(45, 145, 205),
    RGBColor(184, 120, 0),
    RGBColor(128, 128, 128),
];
const FONT: &str = "sans-serif";
/// As plotters counts: 1.24 of what the browser is told.
pub const TEXT: u32 = 17;
/// What the widest is called.
pub const WIDEST: &str = "wide";
const WIDTHS: [(&str, u32); 2] = [(WIDEST, 860), ("narrow", 350)];
/// So many series are told by colour alone; the others, which come close to them, are hollow.
const FILLED: usize = 4;

/// Bars side by side in groups, from zero or around it.
#[derive(Debug)]
pub struct Bars {
    /// What their length is.
    pub x: String,
    /// What the bars of a group are.
    pub series: Vec<String>,
    /// Name, and one length for each series; `None`: no bar.
    pub groups: Vec<(String, Vec<Option<f64>>)>,
}

/// A number for each row and column, 1 being neutral.
#[derive(Debug)]
pub struct Heat {
    /// Above the columns.
    pub columns: Vec<String>,
    /// What they are.
    pub x: String,
    /// Name, and one number for each column.
    pub rows: Vec<(String, Vec<Option<f64>>)>,
}

/// A plot in all its widths.
#[derive(Debug)]
pub struct Picture(Vec<(&'static str, String)>);

/// Paper and ink of a picture that stands alone: a page that shows it as an image lends it
/// neither, but tells it whether its reader wants them dark.
const ALONE: &str = "<style>svg{color:#1b1b1b;background:#fff}@media(prefers-color-scheme:dark)\
    {svg{color:#e6e6e6;background:#16181b}}</style>";

impl Picture {
    /// For a page: each width in an element of its class.
    pub fn html(&self) -> String {
        let element = |(class, svg): &(&str, String)| format!("<div class=\"{class}\">{svg}</div>");
        self.0.iter().map(element).collect()
    }

    /// For files: what each width is called, and it.
    pub fn alone(&self) -> impl Iterator<Item = (&'static str, String)> {
        self.0.iter().map(|(width, svg)| {
            let (head, rest) = svg.split_once('>').unwrap_or((svg, ""));
            (*width, format!("{head}>\n{ALONE}{rest}\n"))
        })
    }
}

/// Draws all widths of a plot.
pub fn drawn(
    height: impl Fn(u32) -> u32,
    draw: impl Fn(&Area<'_>, u32) -> Result<()>,
) -> Result<Picture> {
    let mut all = vec![];
    for (class, width) in WIDTHS {
        let mut svg = String::new();
        {
            let area =
                SVGBackend::with_string(&mut svg, (width, height(width))).into_drawing_area();
            draw(&area, width)?;
            area.present().map_err(|error| anyhow!("drawing: {error}"))?;
        }
        all.push((class, svg.trim().replace(INK_WRITTEN, "\"currentColor\"")));
    }
    Ok(Picture(all))
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

pub fn failed<E: std::fmt::Debug>(error: E) -> anyhow::Error {
    anyhow!("drawing: {error:?}")
}

pub fn ink(size: u32) -> TextStyle<'static> {
    (FONT, size).into_font().color(&INK)
}

fn at(style: TextStyle<'static>, h: HPos, v: VPos) -> TextStyle<'static> {
    style.pos(Pos::new(h, v))
}

pub fn color(nth: usize) -> RGBColor {
    SERIES[nth % SERIES.len()]
}

/// How a bar or a dot of a series is painted.
pub fn mark(nth: usize) -> ShapeStyle {
    if nth < FILLED { color(nth).filled() } else { color(nth).stroke_width(2) }
}

/// About how wide a text is.
fn width_of(text: &str) -> u32 {
    text.chars().count() as u32 * TEXT * 46 / 100
}

/// Names with their colours, as many in a row as fit; draws, and tells the height.
pub fn legend(area: Option<&Area<'_>>, width: u32, names: &[&str]) -> Result<u32> {
    let line = TEXT as i32 + 6;
    let (mut x, mut y) = (4i32, 4i32);
    for (nth, name) in names.iter().enumerate() {
        let needed = width_of(name) as i32 + 30;
        if x > 4 && x + needed > width as i32 {
            (x, y) = (4, y + line);
        }
        if let Some(area) = area {
            let place = [(x, y + 3), (x + 14, y + 13)];
            area.draw(&Rectangle::new(place, mark(nth))).map_err(failed)?;
            area.draw(&Text::new(name.to_string(), (x + 19, y + 1), ink(TEXT))).map_err(failed)?;
        }
        x += needed;
    }
    Ok((y + line + 4) as u32)
}

impl Bars {
    /// As SVG.
    pub fn draw(&self) -> Result<Picture> {
        const BAR: i32 = 13;
        let names: Vec<_> = self.series.iter().map(String::as_str).collect();
        let all = || self.groups.iter().flat_map(|(_, bars)| bars.iter().flatten().copied());
        let (low, high) = (all().fold(0.0, f64::min), all().fold(0.0, f64::max));
        let span = (high - low).max(f64::MIN_POSITIVE);
        let group = |bars: &[Option<f64>]| 24 + BAR * bars.iter().flatten().count() as i32;
        let body: i32 = self.groups.iter().map(|(_, bars)| group(bars)).sum();
        let height = |width| legend(None, width, &names).unwrap_or(0) + body as u32 + TEXT + 14;
        drawn(height, |area, width| {
            let mut y = legend(Some(area), width, &names)? as i32;
            // Beside the bars stands what they say.
            let room = f64::from(width) - 2.0 * 58.0;
            let zero = 58 + (-low / span * room) as i32;
            let zero = if low < 0.0 { zero } else { 4 };
            let room = if low < 0.0 { room } else { f64::from(width) - 4.0 - 62.0 };
            let began = y;
            for (name, bars) in &self.groups {
                area.draw(&Text::new(name.clone(), (4, y + 4), ink(TEXT))).map_err(failed)?;
                y += 22;
                for (nth, value) in bars.iter().enumerate() {
                    let Some(value) = value else { continue };
                    let end = zero + (value / span * room).round() as i32;
                    let (from, to) = (zero.min(end), zero.max(end).max(zero.min(end) + 1));
                    let bar = [(from, y), (to, y + BAR - 2)];
                    area.draw(&Rectangle::new(bar, mark(nth))).map_err(failed)?;
                    let (place, side) =
                        if *value < 0.0 { (from - 4, HPos::Right) } else { (to + 4, HPos::Left) };
                    let style = at(ink(TEXT - 2), side, VPos::Center);
                    area.draw(&Text::new(short(*value), (place, y + BAR / 2), style))
                        .map_err(failed)?;
                    y += BAR;
                }
                y += 2;
            }
            let axis = PathElement::new([(zero, began), (zero, y)], INK.mix(0.6));
            area.draw(&axis).map_err(failed)?;
            area.draw(&Text::new(self.x.clone(), (4, y + 4), ink(TEXT))).map_err(failed)
        })
    }
}

impl Heat {
    /// As SVG.
    pub fn draw(&self) -> Result<Picture> {
        const ROW: i32 = 30;
        let height = |_| (ROW * (self.rows.len() as i32 + 1) + 2 * TEXT as i32 + 16) as u32;
        drawn(height, |area, width| {
            let names =
                self.rows.iter().map(|(name, _)| width_of(name)).max().unwrap_or(0) as i32 + 16;
            let step = (width as i32 - names - 4) / self.columns.len().max(1) as i32;
            let middle = |column: usize| names + step * column as i32 + step / 2;
            let center = |size| at(ink(size), HPos::Center, VPos::Center);
            for (nth, column) in self.columns.iter().enumerate() {
                let place = (middle(nth), ROW / 2);
                area.draw(&Text::new(column.clone(), place, center(TEXT))).map_err(failed)?;
            }
            for (nth, (name, values)) in self.rows.iter().enumerate() {
                let top = ROW * (nth as i32 + 1);
                let style = at(ink(TEXT), HPos::Right, VPos::Center);
                let place = (names - 10, top + ROW / 2);
                area.draw(&Text::new(name.clone(), place, style)).map_err(failed)?;
                for (column, value) in values.iter().enumerate() {
                    let Some(value) = value else { continue };
                    let left = names + step * column as i32;
                    let cell = [(left + 1, top + 1), (left + step - 1, top + ROW - 1)];
                    let (paint, text) = shade(*value);
                    area.draw(&Rectangle::new(cell, paint.filled())).map_err(failed)?;
                    let style = (FONT, TEXT).into_font().color(&text);
                    let style = at(style, HPos::Center, VPos::Center);
                    let place = (middle(column), top + ROW / 2);
                    area.draw(&Text::new(ratio(*value), place, style)).map_err(failed)?;
                }
            }
            let below = ROW * (self.rows.len() as i32 + 1) + 6;
            area.draw(&Text::new(self.x.clone(), (4, below), ink(TEXT))).map_err(failed)
        })
    }
}

/// How light a colour is (WCAG 2, relative luminance).
fn light(RGBColor(r, g, b): RGBColor) -> f64 {
    let linear = |part: u8| {
        let part = f64::from(part) / 255.0;
        if part <= 0.03928 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
    };
    0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b)
}

/// How well the one is read on the other, from 1 to 21 (WCAG 2; 4.5 for text, 3 for marks).
fn contrast(one: RGBColor, other: RGBColor) -> f64 {
    let (one, other) = (light(one) + 0.05, light(other) + 0.05);
    (one / other).max(other / one)
}

/// Blue above one, red below, the deeper the farther, on a scale of powers; and the ink that is
/// read better on it.
fn shade(ratio: f64) -> (RGBColor, RGBColor) {
    let depth = (ratio.ln().abs() / 10f64.ln()).min(1.0);
    let mix =
        |from: u8, to: u8| (f64::from(from) + (f64::from(to) - f64::from(from)) * depth) as u8;
    let (r, g, b) = if ratio >= 1.0 { (8, 69, 148) } else { (165, 15, 21) };
    let paint = RGBColor(mix(240, r), mix(240, g), mix(240, b));
    let ink = if contrast(WHITE, paint) > contrast(BLACK, paint) { WHITE } else { BLACK };
    (paint, ink)
}

/// Two digits behind the point, fewer where there are many before it.
fn ratio(value: f64) -> String {
    if value >= 10.0 { format!("{value:.1}") } else { format!("{value:.2}") }
}

/// A number as a label has room for: without zeroes behind the point.
pub fn short(value: f64) -> String {
    let text = shown(value);
    let (number, unit) = text.split_at(text.len() - text.ends_with(['k', 'M', 'G']) as usize);
    match number.contains(['.']) && !number.contains('e') {
        true => format!("{}{unit}", number.trim_end_matches('0').trim_end_matches('.')),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_has_both_widths_its_numbers_and_no_fixed_ink() {
        let heat = Heat {
            columns: vec!["1".into(), "64".into()],
            x: "lines".into(),
            rows: vec![
                ("64K".into(), vec![Some(2.345), None]),
                ("1M".into(), vec![Some(0.5), Some(12.34)]),
            ],
        };
        let picture = heat.draw().unwrap();
        let svg = picture.html();
        assert_eq!(svg.matches("<svg").count(), 2);
        let alone: Vec<_> = picture.alone().collect();
        assert_eq!([alone[0].0, alone[1].0], ["wide", "narrow"]);
        for ((_, alone), width) in alone.iter().zip([860, 350]) {
            let head = format!("<svg width=\"{width}\"");
            assert!(alone.starts_with(&head) && alone.ends_with("</svg>\n"), "{alone}");
            assert_eq!((alone.matches("<svg").count(), alone.matches("<style>").count()), (1, 1));
        }
        for number in ["2.35", "0.50", "12.3"] {
            assert_eq!(svg.matches(&format!("\n{number}\n")).count(), 2, "{number}: {svg}");
        }
        assert!(!svg.contains("010203") && svg.contains("currentColor"));
    }

    #[test]
    fn every_bar_is_drawn() {
        let groups =
            vec![("g".into(), vec![Some(-1.5), Some(3.0)]), ("h".into(), vec![None, Some(2.0)])];
        let bars = Bars { x: "s".into(), series: vec!["p".into(), "q".into()], groups }
            .draw()
            .unwrap()
            .html();
        // Two marks in the legend, three bars.
        assert_eq!(bars.matches("<rect").count(), 2 * 5);
    }

    #[test]
    fn better_is_blue_and_worse_is_red() {
        let (good, bad) = (shade(3.0).0, shade(0.4).0);
        assert!(good.2 > good.0 && bad.0 > bad.2);
        assert_eq!((shade(9.0).1, shade(1.1).1), (WHITE, BLACK));
    }

    #[test]
    fn figures_are_read_on_every_cell_and_series_are_seen_on_either_paper() {
        for step in -30..=30 {
            let (paint, ink) = shade(1.1f64.powi(step));
            assert!(contrast(paint, ink) >= 4.5, "{step}: {paint:?}");
        }
        for color in SERIES {
            for paper in [WHITE, RGBColor(0x16, 0x18, 0x1b)] {
                assert!(contrast(color, paper) >= 3.0, "{color:?} on {paper:?}");
            }
        }
    }

    #[test]
    fn labels_are_short() {
        for (value, shown) in [
            (0.0, "0"),
            (1.0, "1"),
            (1.5, "1.5"),
            (12.0, "12"),
            (500_000.0, "500k"),
            (4e7, "40M"),
            (-3.25, "-3.25"),
        ] {
            assert_eq!(short(value), shown);
        }
    }
}
