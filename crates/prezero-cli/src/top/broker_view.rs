//! What `prezero top` draws of the broker: a table of its memory, the selected row's holders,
//! what it did.

use prezero_sys::escape::escape;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::Line;
use ratatui::widgets::{Block, Borders, Paragraph, Wrap};

use super::broker::{Broker, Kind, Row, Watched};
use super::picker::Picker;
use super::view::{self, Spark, count, size};

/// Headings and widths; 80 columns in all.
const COLUMNS: [(&str, u16); 10] = [
    ("PAGES", 6),
    ("NODE", 4),
    ("PIECE", 6),
    ("READY", 6),
    ("LEASED", 6),
    ("WANTED", 6),
    ("BYTES", 7),
    ("AGE s", 7),
    ("CPU s", 7),
    ("CHARGED TO", 14),
];
/// Columns of names, which stand to the left.
const NAMES: [usize; 1] = [9];
/// Column that sorts at first: the most bytes that lie ready.
const BYTES: usize = 6;

/// Lines for why the selected row is not as it should be.
const SHORTAGE: u16 = 2;

/// How the table is sorted and what is selected.
#[derive(Debug)]
pub struct BrokerView {
    /// Keys go to it.
    pub picker: Picker<Kind>,
    rows: Vec<Row>,
}

impl Default for BrokerView {
    fn default() -> BrokerView {
        BrokerView { picker: Picker::new(COLUMNS.len(), BYTES), rows: vec![] }
    }
}

impl BrokerView {
    /// Sorts anew.
    pub fn arrange(&mut self, watched: &Watched) {
        self.rows = watched.broker.as_ref().map_or_else(Vec::new, Broker::rows);
        let sort = self.picker.sort;
        if NAMES.contains(&sort) {
            self.rows.sort_by(|a, b| a.kind.2.cmp(&b.kind.2));
        } else {
            self.rows.sort_by(|a, b| key(b, sort).total_cmp(&key(a, sort)));
        }
        self.picker.arrange(self.rows.iter().map(|row| row.kind.clone()).collect());
    }

    /// Draws table and detail.
    pub fn draw(&self, frame: &mut Frame<'_>, [table, detail]: [Rect; 2], watched: &Watched) {
        let row = |kind: &Kind| self.rows.iter().find(|row| row.kind == *kind);
        let rows = self.picker.order.iter().filter_map(row).map(|row| cells(row).to_vec());
        view::draw_table(frame, table, &COLUMNS, &NAMES, rows.collect(), &self.picker);
        let block = Block::default().borders(Borders::TOP);
        let Some(broker) = &watched.broker else {
            let hint = "no broker answers; start one: prezerod &";
            frame.render_widget(Paragraph::new(hint).block(block), detail);
            return;
        };
        let selected = self.picker.selected.as_ref().and_then(row);
        let title =
            selected.map(|row| format!(" {} of {} pages ", size(row.kind.3 as f64), row.kind.0));
        let block = block.title(title.unwrap_or_default());
        let inside = block.inner(detail);
        frame.render_widget(block, detail);
        // Of a full screen the last of the three figures makes room for it.
        let shortage = selected.and_then(|row| row.shortage.as_ref());
        let lines = if shortage.is_some() { SHORTAGE } else { 0 };
        let [above, inside] =
            Layout::vertical([Constraint::Length(lines), Constraint::Fill(1)]).areas(inside);
        if let Some(why) = shortage {
            let why = Paragraph::new(format!("shortage: {}", escape(why)));
            frame.render_widget(why.wrap(Wrap { trim: true }), above);
        }
        let [left, right] =
            Layout::horizontal([Constraint::Min(44), Constraint::Length(33)]).areas(inside);
        let mut lines = vec![Line::from("held by")];
        let holders = selected.map_or(vec![], |row| broker.holders(row));
        let room = usize::from(right.height).saturating_sub(2);
        lines.extend(holders.iter().take(room).map(|holder| Line::from(holder.clone())));
        if holders.len() > room {
            lines.push(Line::from(format!("and {} more", holders.len() - room)));
        }
        if holders.is_empty() {
            lines.push(Line::from("no holder that you may see"));
        }
        frame.render_widget(Paragraph::new(lines), right);
        let [ready, made, hits] = &watched.past;
        let sparks = [
            Spark { name: "ready", past: ready, shown: size },
            Spark { name: "made/s", past: made, shown: size },
            Spark { name: "hits/s", past: hits, shown: count },
        ];
        view::draw_detail(frame, left, about(watched, broker), sparks);
    }
}

fn key(row: &Row, column: usize) -> f64 {
    let (_, node, _, bytes) = &row.kind;
    let [ready, leased, wanted] = row.pieces;
    match column {
        0 | 2 => *bytes as f64,
        1 => *node as f64,
        3 => ready as f64,
        4 => leased as f64,
        5 => wanted as f64,
        7 => row.age,
        8 => row.cost,
        _ => ready as f64 * *bytes as f64,
    }
}

fn cells(row: &Row) -> [String; COLUMNS.len()] {
    let (page, node, payer, bytes) = &row.kind;
    let [ready, leased, wanted] = row.pieces;
    [
        page.clone(),
        node.to_string(),
        size(*bytes as f64),
        ready.to_string(),
        leased.to_string(),
        wanted.to_string(),
        size(key(row, BYTES)),
        format!("{:.0}", row.age),
        format!("{:.2}", row.cost),
        escape(payer),
    ]
}

fn about(watched: &Watched, broker: &Broker) -> Vec<Line<'static>> {
    let counter = |name| broker.counter(name);
    let answers = watched
        .silent()
        .map_or("answers".into(), |silent| format!("SILENT for {:.0} s", silent.as_secs_f64()));
    let verify = match counter("audit_failures") {
        0.0 => "all zero".to_string(),
        failures => format!("{failures:.0} NOT ZERO"),
    };
    let lines = [
        format!("broker {answers}, {} clients wait", broker.number("waiting")),
        format!("hits {}  misses {}", count(counter("lease_hits")), count(counter("lease_misses"))),
        format!(
            "made {} for {:.1} CPU s, making {}",
            size(counter("made_bytes")),
            counter("made_cpu_seconds"),
            size(broker.number("making_bytes"))
        ),
        format!(
            "in vain {}, for pressure {}",
            size(counter("waste_bytes")),
            size(counter("pressure_bytes"))
        ),
        format!("audits {}, {verify}", count(counter("audits"))),
        format!("failures {}, fillers lost {}", counter("make_failures"), counter("filler_deaths")),
    ];
    lines.into_iter().map(Line::from).collect()
}

/// What is wanted and does not lie ready, a line each, for `--once`.
pub fn shortages(watched: &Watched) -> Vec<String> {
    let rows = watched.broker.as_ref().map_or_else(Vec::new, Broker::rows);
    let line = |row: &Row| {
        let ([ready, _, wanted], piece) = (row.pieces, size(row.kind.3 as f64));
        let why = escape(row.shortage.as_ref()?);
        Some(format!("broker: {ready} of {wanted} ready of {piece} in {} pages: {why}", row.kind.0))
    };
    rows.iter().filter_map(line).collect()
}

/// In one line, beside processes and for `--once`.
pub fn line(watched: &Watched) -> String {
    let Some(broker) = &watched.broker else { return "broker: none answers".into() };
    let silent = if watched.silent().is_some() { " (SILENT)" } else { "" };
    format!(
        "broker{silent}: ready {} in {}, leased {} in {}, hits {} misses {}, made {}, wasted {}",
        size(broker.sum("ready", "bytes")),
        broker.list("ready").len(),
        size(broker.sum("leased", "bytes")),
        broker.list("leased").len(),
        broker.number("hits"),
        broker.number("misses"),
        size(broker.number("made_bytes")),
        size(broker.number("waste_bytes"))
    )
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
    fn a_lack_is_said_whole_on_a_small_screen_and_for_once() {
        let file = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
        let why =
            format!("1G asked, 8M free in the pool of 2M pages; reserve more: echo 520 > {file}");
        let report = serde_json::json!({"wanted": [{"page_bytes": 2 << 20, "node": null, "bytes": 1 << 30,
            "target": 2, "ready": 0, "shortage": {"reason": "host", "why": why}}]});
        let watched = Watched::seen(report);
        assert_eq!(
            shortages(&watched),
            [format!("broker: 0 of 2 ready of 1.0G in 2.0M pages: {why}")]
        );
        let mut shown = BrokerView::default();
        shown.arrange(&watched);
        let backend = ratatui::backend::TestBackend::new(80, 21);
        let mut terminal = ratatui::Terminal::new(backend).unwrap();
        let areas = [Rect::new(0, 0, 80, 8), Rect::new(0, 8, 80, 13)];
        terminal.draw(|frame| shown.draw(frame, areas, &watched)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y| (0..80).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        let lines: Vec<String> = (0..21).map(line).collect();
        let all = lines.join("\n");
        assert!(
            lines[9].starts_with("shortage: 1G asked, 8M free") && lines[10].contains(file),
            "{all}"
        );
        for kept in ["held by", "failures 0", "ready ", "made/s "] {
            assert!(lines[11..].iter().any(|line| line.contains(kept)), "{kept}:\n{all}");
        }
    }

    #[test]
    fn every_column_has_its_figure() {
        let row = Row {
            kind: ("2.0M".into(), 1, "/vms\x1b\u{202e}".into(), 4 << 20),
            pieces: [3, 2, 5],
            age: 9.4,
            cost: 0.25,
            shortage: None,
        };
        let shown = cells(&row);
        assert_eq!(
            shown.each_ref().map(String::as_str),
            ["2.0M", "1", "4.0M", "3", "2", "5", "12M", "9", "0.25", "/vms\\u{1b}\\u{202e}"]
        );
        assert_eq!([3, 4, 5, 7].map(|column| key(&row, column)), [3.0, 2.0, 5.0, 9.4]);
    }
}
