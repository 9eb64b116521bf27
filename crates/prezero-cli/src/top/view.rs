//! What `prezero top` draws: a table of processes, the selected one in detail, a line of the
//! broker, or the other way round.

use std::fmt::Write;

use ratatui::Frame;
use ratatui::crossterm::event::KeyCode;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, Sparkline, Table, TableState, Wrap};

use super::broker_view::{self, BrokerView};
use super::picker::Picker;
use super::process_view;
use super::watch::{Process, Watch};
use crate::letters;

/// Headings and widths; 80 columns in all. Where there are fewer, the last ones are left out.
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
/// Lines of the detail, its border included, in 24 lines.
const DETAIL: u16 = 13;
/// Lines that the table has before the detail has any.
const TABLE: u16 = 8;
/// What Linux calls a program has no more letters.
const COMMAND: u16 = 15;

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
    /// Sorts anew, and selects a process that lives.
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
        let rows =
            if self.shows_broker { self.broker.picker.order.len() } else { watch.processes.len() };
        let [title, table, detail, other, keys] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Min(1),
            Constraint::Length(detail_lines(frame.area().height.saturating_sub(3), rows)),
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
        let hints = format!("q leave   {hint}   up/down select   left/right sort   r reverse");
        frame.render_widget(Line::from(hints).style(Modifier::DIM), keys);
        let cells = frame.buffer_mut().content.iter_mut();
        for cell in cells.filter(|cell| !cell.symbol().is_ascii()) {
            let letter = letters::shown(cell.symbol().to_string());
            cell.set_symbol(&letter);
        }
    }

    fn draw_processes(&self, frame: &mut Frame<'_>, [table, detail]: [Rect; 2], watch: &Watch) {
        let order = self.processes.order.iter();
        let rows =
            order.filter_map(|pid| watch.processes.get(pid)).map(|each| cells(each).to_vec());
        draw_table(frame, table, &COLUMNS, &NAMES, rows.collect(), &self.processes);
        match self.processes.selected.and_then(|pid| watch.processes.get(&pid)) {
            Some(process) => process_view::draw(frame, detail, process),
            None => {
                let hint = format!(
                    "no process runs under prezero, has freed {} MiB yet, and may be looked at by you;\n\
                     start one: prezero run -- PROGRAM",
                    prezero::internal::START_BYTES >> 20
                );
                let block = Block::default().borders(Borders::TOP);
                let hint = Paragraph::new(hint).wrap(Wrap { trim: true });
                frame.render_widget(hint.block(block), detail);
            }
        }
    }
}

fn processes(watch: &Watch) -> String {
    let count = watch.processes.len();
    format!("{count} process{} under prezero", if count == 1 { "" } else { "es" })
}

/// Lines of the detail, of those that it shares with a table: the table has what
/// it needs, but leaves the detail what it has in 24 lines.
fn detail_lines(both: u16, rows: usize) -> u16 {
    let table = u16::try_from(rows + 1).unwrap_or(u16::MAX).max(TABLE);
    let least = DETAIL.min(both.saturating_sub(TABLE));
    both.saturating_sub(table).clamp(least, process_view::WHOLE.max(least))
}

/// How many columns there is room for, and how wide each is: a figure that is cut is another
/// figure. A column of names takes what is left over.
fn fitting(columns: &[(&str, u16)], name: usize, room: u16) -> Vec<u16> {
    let (mut widths, mut taken) = (vec![], 0);
    for (_, width) in columns {
        let needed = width + u16::from(!widths.is_empty());
        if taken + needed > room {
            break;
        }
        taken += needed;
        widths.push(*width);
    }
    if let Some(width) = widths.get_mut(name) {
        let most = if name + 1 == columns.len() { u16::MAX } else { COMMAND.max(*width) };
        *width = (*width + room - taken).min(most);
    }
    widths
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
    let widths = fitting(columns, names[0], area.width);
    let header = columns.iter().zip(&widths).enumerate().map(|(nth, ((name, _), width))| {
        let mark =
            if nth == picker.sort { Modifier::UNDERLINED | Modifier::BOLD } else { Modifier::BOLD };
        Cell::from(Line::styled(aligned(names.contains(&nth), name, *width), mark))
    });
    let rows = rows.iter().map(|cells| {
        let cells = cells.iter().zip(&widths).enumerate();
        Row::new(cells.map(|(nth, (text, width))| aligned(names.contains(&nth), text, *width)))
    });
    let lengths = widths.iter().map(|width| Constraint::Length(*width));
    let table = Table::new(rows, lengths)
        .header(Row::new(header))
        .column_spacing(1)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut state = TableState::default().with_selected(picker.at());
    frame.render_stateful_widget(table, area, &mut state);
}

/// Names to the left, numbers to the right, and no wider than this.
fn aligned(left: bool, text: &str, width: u16) -> String {
    let width = usize::from(width);
    if left { format!("{text:<width$.width$}") } else { format!("{text:>width$.width$}") }
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
        process.command.clone(),
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
        // Where there is no room for all, it goes.
        Constraint::Max(2),
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
    for line in broker_view::shortages(&watch.broker) {
        let _ = writeln!(text, "{line}");
    }
    text
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
    fn a_column_is_whole_or_not_there() {
        let widths = |room| fitting(&COLUMNS, NAMES[0], room);
        let all: Vec<_> = COLUMNS.iter().map(|(_, width)| *width).collect();
        assert_eq!(widths(80), all);
        assert_eq!(widths(200)[1], COMMAND, "the whole name where there is room");
        let narrow = widths(40);
        assert_eq!((narrow.len(), narrow[0], narrow[2..].to_vec()), (5, 7, vec![6, 6, 6]));
        assert!(narrow.iter().sum::<u16>() + 4 <= 40 && narrow[1] > 10, "{narrow:?}");
        assert_eq!(widths(5), [0; 0]);
    }

    #[test]
    fn the_detail_has_what_the_table_leaves() {
        for (lines, rows, detail) in [
            (24, 0, 13),
            (24, 100, 13),
            (12, 10, 1),
            (50, 1, process_view::WHOLE),
            (50, 30, 16),
            (5, 1, 0),
        ] {
            assert_eq!(detail_lines(lines - 3, rows), detail, "{lines} lines, {rows} rows");
        }
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
