//! What `prezero top` draws: a table of processes, the selected one in detail, the broker.

use std::fmt::Write;

use ratatui::Frame;
use ratatui::crossterm::event::KeyCode;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, Sparkline, Table, TableState};

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

/// What is selected, and how the table is sorted.
#[derive(Debug)]
pub struct View {
    /// Process numbers in the order shown.
    order: Vec<u32>,
    selected: Option<u32>,
    sort: usize,
    reverse: bool,
}

impl Default for View {
    fn default() -> View {
        // The busiest scrubd first.
        View { order: vec![], selected: None, sort: 8, reverse: false }
    }
}

impl View {
    /// Sorts anew, and selects somebody who lives.
    pub fn arrange(&mut self, watch: &Watch) {
        let mut rows: Vec<&Process> = watch.processes.values().collect();
        rows.sort_by(|a, b| match self.sort {
            1 => a.command.cmp(&b.command),
            // Numbers: the largest first.
            _ => key(b, self.sort).total_cmp(&key(a, self.sort)),
        });
        if self.reverse {
            rows.reverse();
        }
        self.order = rows.iter().map(|process| process.now.pid).collect();
        let lives = |pid: &u32| self.order.contains(pid);
        self.selected = self.selected.filter(lives).or(self.order.first().copied());
    }

    /// A key that is not for leaving.
    pub fn press(&mut self, code: KeyCode) {
        let at = self.order.iter().position(|pid| Some(*pid) == self.selected).unwrap_or(0);
        let columns = COLUMNS.len();
        match code {
            KeyCode::Up | KeyCode::Char('k') => self.select(at.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.select(at + 1),
            KeyCode::Home => self.select(0),
            KeyCode::End => self.select(usize::MAX),
            KeyCode::Left | KeyCode::Char('<') => self.sort = (self.sort + columns - 1) % columns,
            KeyCode::Right | KeyCode::Char('>') => self.sort = (self.sort + 1) % columns,
            KeyCode::Char('r') => self.reverse = !self.reverse,
            _ => {}
        }
    }

    fn select(&mut self, at: usize) {
        self.selected = self.order.get(at).or(self.order.last()).copied();
    }

    /// Draws everything.
    pub fn draw(&self, frame: &mut Frame<'_>, watch: &Watch) {
        let [title, table, detail, broker, keys] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Min(4),
            Constraint::Length(DETAIL),
            Constraint::Length(1),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        let count = self.order.len();
        let title_text =
            format!("prezero top: {count} process{}", if count == 1 { "" } else { "es" });
        frame.render_widget(Line::from(title_text).style(Modifier::BOLD), title);
        self.draw_table(frame, table, watch);
        match self.selected.and_then(|pid| watch.processes.get(&pid)) {
            Some(process) => draw_process(frame, detail, process),
            None => {
                let hint = "nobody runs under prezero, or nobody whom you may look at;\n\
                            start somebody: prezero run -- PROGRAM";
                let block = Block::default().borders(Borders::TOP);
                frame.render_widget(Paragraph::new(hint).block(block), detail);
            }
        }
        frame.render_widget(Line::from(broker_line(watch)), broker);
        let hints = "up/down select   left/right sort   r reverse   q leave";
        frame.render_widget(Line::from(hints).style(Modifier::DIM), keys);
    }

    fn draw_table(&self, frame: &mut Frame<'_>, area: Rect, watch: &Watch) {
        let header = COLUMNS.iter().enumerate().map(|(nth, (name, width))| {
            let mark = if nth == self.sort {
                Modifier::UNDERLINED | Modifier::BOLD
            } else {
                Modifier::BOLD
            };
            Cell::from(Line::styled(aligned(nth, name, *width), mark))
        });
        let rows = self.order.iter().filter_map(|pid| watch.processes.get(pid)).map(|process| {
            let cells = cells(process).into_iter().enumerate();
            Row::new(cells.map(|(nth, text)| aligned(nth, &text, COLUMNS[nth].1)))
        });
        let widths = COLUMNS.map(|(_, width)| Constraint::Length(width));
        let table = Table::new(rows, widths)
            .header(Row::new(header))
            .column_spacing(1)
            .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
        let at = self.order.iter().position(|pid| Some(*pid) == self.selected);
        let mut state = TableState::default().with_selected(at);
        frame.render_stateful_widget(table, area, &mut state);
    }
}

/// Names to the left, numbers to the right.
fn aligned(nth: usize, text: &str, width: u16) -> String {
    let width = usize::from(width);
    if nth == 1 { format!("{text:<width$}") } else { format!("{text:>width$}") }
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
    let [lines, scrubbed, hits, zero] = Layout::vertical([
        Constraint::Length(6),
        Constraint::Length(2),
        Constraint::Length(2),
        Constraint::Length(2),
    ])
    .areas(left);
    frame.render_widget(Paragraph::new(about(process)), lines);
    for (area, name, past, shown) in [
        (scrubbed, "scrub/s", &process.scrubbed, size as fn(f64) -> String),
        (hits, "hits/s", &process.hits, count),
        (zero, "zero", &process.zero, size),
    ] {
        let [label, spark] =
            Layout::horizontal([Constraint::Length(15), Constraint::Min(10)]).areas(area);
        let now = past.last().copied().unwrap_or(0);
        frame.render_widget(Line::from(format!("{name:<7} {:>6}", shown(now as f64))), label);
        let room = usize::from(spark.width);
        let recent = &past[past.len().saturating_sub(room)..];
        frame.render_widget(Sparkline::default().data(recent), spark);
    }
    frame.render_widget(Paragraph::new(orders(process, usize::from(right.height))), right);
}

fn about(process: &Process) -> Vec<Line<'static>> {
    let now = &process.now;
    let number = |name| now.number(name);
    let knob = |name: &str| {
        let found = now.knobs.iter().find(|(each, _)| each == name);
        found.map_or("-".to_string(), |(_, value)| value.clone())
    };
    let line = |text: String| Line::from(Span::raw(text));
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

fn broker_line(watch: &Watch) -> String {
    let Some(broker) = &watch.broker else { return "broker: none answers".into() };
    let number = |name: &str| broker[name].as_f64().unwrap_or(0.0);
    let rows = |name: &str| broker[name].as_array().cloned().unwrap_or_default();
    let sum = |name: &str| rows(name).iter().filter_map(|row| row["bytes"].as_f64()).sum::<f64>();
    format!(
        "broker: ready {} in {}, leased {} in {}, hits {} misses {}, made {}, wasted {}",
        size(sum("ready")),
        rows("ready").len(),
        size(sum("leased")),
        rows("leased").len(),
        number("hits"),
        number("misses"),
        size(number("made_bytes")),
        size(number("waste_bytes"))
    )
}

/// The table alone, for `--once`.
pub fn table(watch: &Watch) -> String {
    let mut view = View::default();
    view.arrange(watch);
    let mut text = String::new();
    let mut line = |cells: Vec<String>| {
        let row = cells.iter().enumerate().map(|(nth, cell)| aligned(nth, cell, COLUMNS[nth].1));
        let _ = writeln!(text, "{}", row.collect::<Vec<_>>().join(" "));
    };
    line(COLUMNS.map(|(name, _)| name.to_string()).to_vec());
    for process in view.order.iter().filter_map(|pid| watch.processes.get(pid)) {
        line(cells(process).to_vec());
    }
    let _ = writeln!(text, "{}", broker_line(watch));
    text
}

/// Bytes in at most six characters.
fn size(bytes: f64) -> String {
    scaled(bytes, 1024.0, &["", "K", "M", "G", "T"])
}

/// A number in at most six characters.
fn count(number: f64) -> String {
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

    #[test]
    fn keys_choose_column_and_direction() {
        let mut view = View::default();
        let first = view.sort;
        view.press(KeyCode::Right);
        assert_eq!(view.sort, first + 1);
        view.press(KeyCode::Left);
        view.press(KeyCode::Char('r'));
        assert!(view.sort == first && view.reverse);
        view.press(KeyCode::Down);
        assert_eq!(view.selected, None, "nobody is there");
    }
}
