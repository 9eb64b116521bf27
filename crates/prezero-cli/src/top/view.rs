//! What `prezero top` draws: a table of processes, the selected one in detail, a line of the
//! broker, or the other way round.

use std::fmt::Write;

use ratatui::Frame;
use ratatui::crossterm::event::KeyCode;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, Sparkline, Table, TableState};

use super::broker_view::{self, BrokerView};
use super::picker::Picker;
use super::watch::{Process, STATES, Watch};

/// Headings and widths; 80 columns in all.
const COLUMNS: [(&str, u16); 11] = [
    ("PID", 7),
    ("COMMAND", 10),
    ("USED", 6),
    ("ZERO", 6),
    ("DIRTY", 6),
    ("HIT%", 5),
    ("HITS/s", 6),
    ("SCRUB/s", 7),
    ("CPU%", 5),
    ("WASTE", 6),
    ("VERIFY", 6),
];
/// Lines of the detail, its border included.
const DETAIL: u16 = 13;

/// Columns of names, which stand to the left.
const NAMES: [usize; 1] = [1];
/// Column that sorts at first: the busiest scrubd.
const CPU: usize = 8;

/// What is shown, selected, and how the tables are sorted.
#[derive(Debug)]
pub struct View {
    processes: Picker<u32>,
    broker: BrokerView,
    shows_broker: bool,
}

impl Default for View {
    fn default() -> View {
        let processes = Picker::new(COLUMNS.len(), CPU);
        View { processes, broker: BrokerView::default(), shows_broker: false }
    }
}

impl View {
    /// Sorts anew, and selects somebody who lives.
    pub fn arrange(&mut self, watch: &Watch) {
        let mut rows: Vec<&Process> = watch.processes.values().collect();
        rows.sort_by(|a, b| match self.processes.sort {
            sort if NAMES.contains(&sort) => a.command.cmp(&b.command),
            // Numbers: the largest first.
            sort => key(b, sort).total_cmp(&key(a, sort)),
        });
        self.processes.arrange(rows.iter().map(|process| process.now.pid).collect());
        self.broker.arrange(&watch.broker);
    }

    /// A key that is not for leaving.
    pub fn press(&mut self, code: KeyCode) {
        match code {
            KeyCode::Char('b') | KeyCode::Tab => self.shows_broker = !self.shows_broker,
            code if self.shows_broker => self.broker.picker.press(code),
            code => self.processes.press(code),
        }
    }

    /// Draws everything.
    pub fn draw(&self, frame: &mut Frame<'_>, watch: &Watch) {
        let [title, table, detail, other, keys] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Min(4),
            Constraint::Length(DETAIL),
            Constraint::Length(1),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        let pressure = watch.pressure.map_or(String::new(), |[memory, cpu]| {
            format!("   waiting: {memory:.1} % memory, {cpu:.1} % CPU")
        });
        let shown = if self.shows_broker { "broker".to_string() } else { processes(watch) };
        let title_text = format!("prezero top: {shown}{pressure}");
        frame.render_widget(Line::from(title_text).style(Modifier::BOLD), title);
        let (other_text, hint) = if self.shows_broker {
            self.broker.draw(frame, [table, detail], &watch.broker);
            (processes(watch), "b processes")
        } else {
            self.draw_processes(frame, [table, detail], watch);
            (broker_view::line(&watch.broker), "b broker")
        };
        frame.render_widget(Line::from(other_text), other);
        let hints = format!("up/down select   left/right sort   r reverse   {hint}   q leave");
        frame.render_widget(Line::from(hints).style(Modifier::DIM), keys);
    }

    fn draw_processes(&self, frame: &mut Frame<'_>, [table, detail]: [Rect; 2], watch: &Watch) {
        let order = self.processes.order.iter();
        let rows =
            order.filter_map(|pid| watch.processes.get(pid)).map(|each| cells(each).to_vec());
        draw_table(frame, table, &COLUMNS, &NAMES, rows.collect(), &self.processes);
        match self.processes.selected.and_then(|pid| watch.processes.get(&pid)) {
            Some(process) => draw_process(frame, detail, process),
            None => {
                let hint = "nobody runs under prezero, or nobody whom you may look at;\n\
                            start somebody: prezero run -- PROGRAM";
                let block = Block::default().borders(Borders::TOP);
                frame.render_widget(Paragraph::new(hint).block(block), detail);
            }
        }
    }
}

fn processes(watch: &Watch) -> String {
    let count = watch.processes.len();
    format!("{count} process{} under prezero", if count == 1 { "" } else { "es" })
}

/// A table with one row selected and one heading underlined, the one that sorts.
pub fn draw_table<K: Clone + PartialEq>(
    frame: &mut Frame<'_>,
    area: Rect,
    columns: &[(&str, u16)],
    names: &[usize],
    rows: Vec<Vec<String>>,
    picker: &Picker<K>,
) {
    let header = columns.iter().enumerate().map(|(nth, (name, width))| {
        let mark =
            if nth == picker.sort { Modifier::UNDERLINED | Modifier::BOLD } else { Modifier::BOLD };
        Cell::from(Line::styled(aligned(names.contains(&nth), name, *width), mark))
    });
    let rows = rows.iter().map(|cells| {
        let cells = cells.iter().enumerate();
        Row::new(cells.map(|(nth, text)| aligned(names.contains(&nth), text, columns[nth].1)))
    });
    let widths = columns.iter().map(|(_, width)| Constraint::Length(*width));
    let table = Table::new(rows, widths)
        .header(Row::new(header))
        .column_spacing(1)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut state = TableState::default().with_selected(picker.at());
    frame.render_stateful_widget(table, area, &mut state);
}

/// Names to the left, numbers to the right.
fn aligned(left: bool, text: &str, width: u16) -> String {
    let width = usize::from(width);
    if left { format!("{text:<width$}") } else { format!("{text:>width$}") }
}

fn key(process: &Process, column: usize) -> f64 {
    let number = |name| process.now.number(name);
    match column {
        0 => f64::from(process.now.pid),
        2 => number("allocated_bytes"),
        3 => number("resident_zero_bytes"),
        4 => number("resident_dirty_bytes"),
        5 => process.hit_share().unwrap_or(-1.0),
        6 => process.rate("hits"),
        7 => process.rate("scrubbed_bytes"),
        9 => process.wasted(),
        10 => number("verify_failures"),
        _ => process.cpu_share(),
    }
}

fn cells(process: &Process) -> [String; COLUMNS.len()] {
    let bytes = |column| size(key(process, column));
    let verify = match process.now.number("verify_failures") {
        0.0 => "good".into(),
        failures => format!("{failures:.0} BAD"),
    };
    [
        process.now.pid.to_string(),
        process.command.chars().take(usize::from(COLUMNS[1].1)).collect(),
        bytes(2),
        bytes(3),
        bytes(4),
        process.hit_share().map_or("-".into(), |share| format!("{:.0}", share * 100.0)),
        count(key(process, 6)),
        bytes(7),
        format!("{:.1}", process.cpu_share() * 100.0),
        bytes(9),
        verify,
    ]
}

fn draw_process(frame: &mut Frame<'_>, area: Rect, process: &Process) {
    let title = format!(" {} {} ", process.now.pid, process.command);
    let block = Block::default().borders(Borders::TOP).title(title);
    let inside = block.inner(area);
    frame.render_widget(block, area);
    let [left, right] =
        Layout::horizontal([Constraint::Min(40), Constraint::Length(37)]).areas(inside);
    let sparks = [
        Spark { name: "scrub/s", past: &process.scrubbed, shown: size },
        Spark { name: "hits/s", past: &process.hits, shown: count },
        Spark { name: "zero", past: &process.zero, shown: size },
    ];
    draw_detail(frame, left, about(process), sparks);
    frame.render_widget(Paragraph::new(orders(process, usize::from(right.height))), right);
}

/// A figure now and as it was.
#[derive(Debug)]
pub struct Spark<'a> {
    /// What it is.
    pub name: &'a str,
    /// Look by look.
    pub past: &'a [u64],
    /// How the last one is written.
    pub shown: fn(f64) -> String,
}

/// Six lines, and three figures with their past.
pub fn draw_detail(
    frame: &mut Frame<'_>,
    area: Rect,
    about: Vec<Line<'_>>,
    sparks: [Spark<'_>; 3],
) {
    let [lines, first, second, third] = Layout::vertical([
        Constraint::Length(6),
        Constraint::Length(2),
        Constraint::Length(2),
        Constraint::Length(2),
    ])
    .areas(area);
    frame.render_widget(Paragraph::new(about), lines);
    for (area, Spark { name, past, shown }) in [first, second, third].into_iter().zip(sparks) {
        let [label, spark] =
            Layout::horizontal([Constraint::Length(15), Constraint::Min(10)]).areas(area);
        let now = past.last().copied().unwrap_or(0);
        frame.render_widget(Line::from(format!("{name:<7} {:>6}", shown(now as f64))), label);
        let room = usize::from(spark.width);
        let recent = &past[past.len().saturating_sub(room)..];
        frame.render_widget(Sparkline::default().data(recent), spark);
    }
}

fn about(process: &Process) -> Vec<Line<'static>> {
    let now = &process.now;
    let number = |name| now.number(name);
    let knob = |name: &str| {
        let found = now.knobs.iter().find(|(each, _)| each == name);
        found.map_or("-".to_string(), |(_, value)| value.clone())
    };
    let line = |text: String| Line::from(text);
    vec![
        line(format!("scrubd {}, trust {}", now.fact("scrubd"), now.fact("trust"))),
        line(format!(
            "hits {}  misses {}  aborts {}",
            count(number("hits")),
            count(number("misses")),
            count(number("aborts"))
        )),
        line(format!(
            "target {}  scrubbed {}  prefaulted {}",
            size(number("target_zero_bytes")),
            size(number("scrubbed_bytes")),
            size(number("prefaulted_bytes"))
        )),
        line(format!(
            "released {}  unused {}  verified {}",
            size(number("released_bytes")),
            size(number("unused_zero_bytes")),
            count(number("verified_pages"))
        )),
        line(format!("{} / {}", now.fact("engine_cached"), now.fact("engine_bypassing"))),
        line(format!(
            "start {} rate {} cache {} verify {}",
            knob("scrub-start"),
            knob("scrub-rate"),
            knob("scrub-cache"),
            knob("verify")
        )),
    ]
}

/// Free blocks by order and state: the largest orders, as many as fit.
fn orders(process: &Process, lines: usize) -> Vec<Line<'static>> {
    let heading = format!("{:>6}{}", "free", STATES.map(|state| format!("{state:>7}")).concat());
    let mut all = vec![Line::from(heading).style(Modifier::BOLD)];
    let mut orders: Vec<_> = process.orders().collect();
    orders.reverse();
    for order in orders.into_iter().take(lines.saturating_sub(1)) {
        let blocks = process.free(order).map(|blocks| format!("{:>7}", count(blocks as f64)));
        all.push(Line::from(format!("{:>6}{}", size((4096u64 << order) as f64), blocks.concat())));
    }
    all
}

/// The table alone, for `--once`.
pub fn table(watch: &Watch) -> String {
    let mut view = View::default();
    view.arrange(watch);
    let mut text = String::new();
    let mut line = |cells: Vec<String>| {
        let row = cells.iter().enumerate();
        let row = row.map(|(nth, cell)| aligned(NAMES.contains(&nth), cell, COLUMNS[nth].1));
        let _ = writeln!(text, "{}", row.collect::<Vec<_>>().join(" "));
    };
    line(COLUMNS.map(|(name, _)| name.to_string()).to_vec());
    for process in view.processes.order.iter().filter_map(|pid| watch.processes.get(pid)) {
        line(cells(process).to_vec());
    }
    let _ = writeln!(text, "{}", broker_view::line(&watch.broker));
    text
}

/// Text of somebody else's, without anything that commands a terminal.
pub fn plain(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
}

/// Bytes in at most six characters.
pub fn size(bytes: f64) -> String {
    scaled(bytes, 1024.0, &["", "K", "M", "G", "T"])
}

/// A number in at most six characters.
pub fn count(number: f64) -> String {
    scaled(number, 1000.0, &["", "k", "m", "g", "t"])
}

fn scaled(mut value: f64, step: f64, units: &[&str]) -> String {
    let mut units = units.iter();
    let mut unit = units.next();
    while value >= step.min(999.5) && units.len() > 0 {
        value /= step;
        unit = units.next();
    }
    let unit = unit.unwrap_or(&"");
    if value < 10.0 && !unit.is_empty() {
        format!("{value:.1}{unit}")
    } else {
        format!("{value:.0}{unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_fits_eighty_columns() {
        let widths: u16 = COLUMNS.iter().map(|(_, width)| width).sum();
        assert!(usize::from(widths) + COLUMNS.len() - 1 <= 80, "{widths}");
    }

    #[test]
    fn sizes_fit_their_columns() {
        for (value, shown) in [
            (0.0, "0"),
            (1023.0, "1.0K"),
            (1536.0, "1.5K"),
            (999.0, "999"),
            (5e9, "4.7G"),
            (1e15, "909T"),
        ] {
            assert_eq!(size(value), shown);
        }
        assert_eq!(count(1234.0), "1.2k");
    }
}
