//! What `prezero top` draws of the selected process: what it did, how it is set, and its free
//! blocks.

use prezero::internal::ORDERS;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Modifier;
use ratatui::text::Line;
use ratatui::widgets::{Block, Borders, Paragraph};

use super::view::{Spark, count, draw_detail, size};
use super::watch::{Process, STATES};

/// Lines that show everything: a border, a heading, and the orders.
pub const WHOLE: u16 = 2 + ORDERS as u16;

/// Draws it.
pub fn draw(frame: &mut Frame<'_>, area: Rect, process: &Process) {
    let title = format!(" {} {} ", process.now.pid, process.command);
    let block = Block::default().borders(Borders::TOP).title(title);
    let inside = block.inner(area);
    frame.render_widget(block, area);
    let [left, right] =
        Layout::horizontal([Constraint::Min(40), Constraint::Length(35)]).areas(inside);
    let sparks = [
        Spark { name: "scrub/s", past: &process.scrubbed, shown: size },
        Spark { name: "hits/s", past: &process.hits, shown: count },
        Spark { name: "zero", past: &process.zero, shown: size },
    ];
    draw_detail(frame, left, about(process), sparks);
    frame.render_widget(Paragraph::new(orders(process, usize::from(right.height))), right);
}

/// What was found where zero memory was read back.
fn zeroes(trust: &str) -> &'static str {
    match trust {
        "whole" => "all zeroes were zero",
        "lost" => "A ZERO WAS NONE: clears all in line",
        _ => "zeroes: unknown",
    }
}

fn about(process: &Process) -> Vec<Line<'static>> {
    let now = &process.now;
    let number = |name| now.number(name);
    let knob = |name: &str| {
        let found = now.knobs.iter().find(|(each, _)| *each == name);
        found.map_or("-".to_string(), |(_, value)| value.clone())
    };
    let line = |text: String| Line::from(text);
    vec![
        line(format!("scrubd {}, {}", now.fact("scrubd"), zeroes(now.fact("trust")))),
        line(format!(
            "hits {}  misses {}  aborts {}",
            count(number("hits")),
            count(number("misses")),
            count(number("aborts"))
        )),
        line(format!(
            "target {}  scrubbed {}",
            size(number("target_zero_bytes")),
            size(number("scrubbed_bytes"))
        )),
        line(format!(
            "released {}  unused {}  verified {}",
            size(number("released_bytes")),
            size(number("unused_zero_bytes")),
            count(number("verified_pages"))
        )),
        line(format!(
            "clears by {}, past the cache by {}",
            now.fact("engine_cached"),
            now.fact("engine_bypassing")
        )),
        line(format!(
            "start {} rate {} cache {} verify {}",
            knob("scrub-start"),
            knob("scrub-rate"),
            knob("scrub-cache"),
            knob("verify")
        )),
    ]
}

/// Free blocks by order and state, the largest first. Where not all have room those go of which
/// nothing is resident.
fn orders(process: &Process, lines: usize) -> Vec<Line<'static>> {
    let heading = format!("{:>6}{}", "free", STATES.map(|state| format!("{state:>7}")).concat());
    let mut all = vec![Line::from(heading).style(Modifier::BOLD)];
    let orders = process.orders().map(|order| (order, process.free(order)));
    for (order, blocks) in shown_orders(orders.collect(), lines.saturating_sub(1)) {
        let blocks = blocks.map(|blocks| format!("{:>7}", count(blocks as f64)));
        all.push(Line::from(format!("{:>6}{}", size((4096u64 << order) as f64), blocks.concat())));
    }
    all
}

/// Of orders and their blocks by state, those to be shown.
fn shown_orders(
    mut orders: Vec<(usize, [u64; STATES.len()])>,
    room: usize,
) -> Vec<(usize, [u64; STATES.len()])> {
    orders.reverse();
    let mut spare = orders.len().saturating_sub(room);
    let [dirty, zero, _, mixed] = [0, 1, 2, 3];
    orders.retain(|(_, blocks)| {
        let absent = blocks[dirty] + blocks[zero] + blocks[mixed] == 0;
        let goes = absent && spare > 0;
        spare -= usize::from(goes);
        !goes
    });
    orders.truncate(room);
    orders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_shown_first() {
        let absent = [0, 0, 5, 0];
        let orders =
            vec![(4, [1, 0, 0, 0]), (5, absent), (6, [0, 2, 0, 0]), (7, absent), (8, absent)];
        let shown = |room| -> Vec<usize> {
            shown_orders(orders.clone(), room).into_iter().map(|(order, _)| order).collect()
        };
        assert_eq!(
            (shown(5), shown(3), shown(2)),
            (vec![8, 7, 6, 5, 4], vec![6, 5, 4], vec![6, 4])
        );
        assert_eq!(shown(1), [6]);
    }
}
