//! What turns came to, as a table or as JSON.

use anyhow::Result;
use serde_json::{Value, json};

use super::once::Run;
use super::turns::Taken;
use super::verdict::{Times, Verdict};
use super::way::{WAYS, Way};
use crate::letters;
use prezero_host::samples::{median, noise};

/// The share of all CPUs' time from which on other programs are named.
const OTHERS: f64 = 0.1;

/// A row: its name in the table and in JSON, and what of a run it shows.
struct Row {
    name: &'static str,
    key: &'static str,
    unit: Unit,
    of: fn(&Run) -> f64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    Seconds,
    Count,
    Mib,
    Plain,
}

const ROWS: [Row; 6] = [
    Row { name: "wall", key: "wall_s", unit: Unit::Seconds, of: |run| run.spent.wall_s },
    Row { name: "user", key: "user_s", unit: Unit::Seconds, of: |run| run.spent.user_s },
    Row { name: "system", key: "system_s", unit: Unit::Seconds, of: |run| run.spent.system_s },
    Row { name: "CPU, both", key: "cpu_s", unit: Unit::Seconds, of: |run| run.spent.cpu_s() },
    Row { name: "page faults", key: "page_faults", unit: Unit::Count, of: |run| run.spent.faults },
    Row { name: "peak memory", key: "peak_mib", unit: Unit::Mib, of: |run| run.spent.peak_mib },
];
const LOAD: Row =
    Row { name: "load", key: "load_s", unit: Unit::Seconds, of: |run| run.load_s.unwrap_or(0.0) };
const FIGURE: Row =
    Row { name: "figure", key: "figure", unit: Unit::Plain, of: |run| run.figure.unwrap_or(0.0) };

/// What is there to be told: of a service the wall time is that of its load.
fn rows(taken: &Taken) -> Vec<&'static Row> {
    let some = |what: fn(&Run) -> bool| taken.runs[0].first().is_some_and(what);
    let load = some(|run| run.load_s.is_some());
    let mut rows: Vec<&Row> = if load { vec![&LOAD] } else { vec![&ROWS[0]] };
    if some(|run| run.figure.is_some()) {
        rows.insert(0, &FIGURE);
    }
    rows.extend(&ROWS[1..]);
    rows
}

/// Prints it.
///
/// # Errors
/// Standard output takes no more.
pub fn print(taken: &Taken, verdict: &Verdict, json: bool) -> Result<()> {
    if json {
        prezero_sys::print!("{:#}\n", as_json(taken, verdict))?;
        return Ok(());
    }
    let columns = letters::columns();
    let mut text = String::new();
    if !taken.runs[0].is_empty() {
        text = as_text(taken, columns);
    }
    text += &letters::folded(&verdict.text, columns);
    prezero_sys::print!("{}\n", letters::shown(text))?;
    Ok(())
}

/// Columns of a table that is not for a terminal.
const USUAL: usize = 80;

fn as_text(taken: &Taken, columns: Option<usize>) -> String {
    let turns = taken.runs[0].len();
    let head = format!(
        "{}: {turns} turn{}, {}; medians; speed-up over plain; CPUs idled {:.0} %",
        taken.program,
        if turns == 1 { "" } else { "s" },
        taken.ended.why(),
        100.0 * taken.idle
    );
    let said = taken.said.as_ref().map(|said| format!("{}: each run: {said}", taken.program));
    let lines = said.into_iter().chain(others(taken.others)).chain([head]);
    let head: String = lines.map(|line| letters::folded(&line, columns) + "\n").collect();
    let most = columns.unwrap_or(USUAL);
    head + &wide(taken).filter(|table| fits(table, most)).unwrap_or_else(|| narrow(taken))
}

fn fits(text: &str, columns: usize) -> bool {
    text.lines().all(|line| line.chars().count() <= columns)
}

/// The ways that were taken.
fn ways(taken: &Taken) -> impl Iterator<Item = Way> {
    WAYS.into_iter().filter(|way| !taken.runs[*way as usize].is_empty())
}

/// A column for each way; the speed-up stands below what it is of.
fn wide(taken: &Taken) -> Option<String> {
    let mut columns = vec![vec![String::new()]];
    for row in rows(taken) {
        columns[0].extend([row.name.to_string(), String::new()]);
    }
    for way in ways(taken) {
        let mut column = vec![way.name().to_string()];
        for row in rows(taken) {
            let noise = noise(&taken.of(way, row.of)).filter(|noise| *noise < 1.0);
            let noise =
                noise.map_or(String::new(), |of| format!(" ± {:.0} %", (100.0 * of).ceil()));
            column.extend([median_of(taken, way, row) + &noise, speed_up(taken, way, row)]);
        }
        columns.push(column);
    }
    let width = |column: &Vec<String>| column.iter().map(|cell| cell.chars().count()).max();
    let widths: Vec<_> = columns.iter().map(width).collect::<Option<_>>()?;
    let line = |nth: usize| {
        let cells = columns.iter().zip(&widths).skip(1);
        let cells: String =
            cells.map(|(column, width)| format!("  {:>width$}", column[nth])).collect();
        format!("{:<first$}{cells}\n", columns[0][nth], first = widths[0])
    };
    Some((0..columns[0].len()).map(line).collect())
}

/// A line for each way.
fn narrow(taken: &Taken) -> String {
    let mut text = String::new();
    for row in rows(taken) {
        text += &format!("{}\n", row.name);
        for way in ways(taken) {
            let (median, times) = (median_of(taken, way, row), speed_up(taken, way, row));
            text += format!(" {:<10} {median:>10}  {times}", way.name()).trim_end();
            text += "\n";
        }
    }
    text
}

fn median_of(taken: &Taken, way: Way, row: &Row) -> String {
    shown(median(&taken.of(way, row.of)).unwrap_or(0.0), row.unit)
}

/// Over the plain program, with its noise if that is known.
fn speed_up(taken: &Taken, way: Way, row: &Row) -> String {
    match times(taken, way, row) {
        _ if way == Way::Plain => String::new(),
        None => "-".into(),
        Some(of) if of.noise.is_finite() => format!("{:.2} ± {:.2}", of.times, of.noise),
        Some(of) => format!("{:.2}", of.times),
    }
}

fn times(taken: &Taken, way: Way, row: &Row) -> Option<Times> {
    let is_figure = row.unit == Unit::Plain;
    taken.times(way, Way::Plain, |run| if is_figure { taken.cost(run) } else { (row.of)(run) })
}

/// A line about a load that is not the program's own.
fn others(share: f64) -> Option<String> {
    (share >= OTHERS).then(|| {
        let percent = 100.0 * share;
        format!(
            "other programs had {percent:.0} % of the CPUs' time meanwhile: end them for figures of this one"
        )
    })
}

fn shown(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Seconds if value < 1.0 => format!("{:.1} ms", 1000.0 * value),
        Unit::Seconds => format!("{value:.2} s"),
        Unit::Count => format!("{value:.0}"),
        Unit::Mib => format!("{value:.0} MiB"),
        Unit::Plain if value >= 1000.0 => format!("{value:.0}"),
        Unit::Plain if value >= 100.0 => format!("{value:.1}"),
        Unit::Plain => format!("{value:.2}"),
    }
}

fn as_json(taken: &Taken, verdict: &Verdict) -> Value {
    let way = |way: Way| {
        let each = rows(taken).into_iter().map(|row| {
            let samples = taken.of(way, row.of);
            let times = times(taken, way, row);
            let told = json!({
                "median": median(&samples),
                "noise": noise(&samples),
                "times_as_good_as_plain": times.map(|of| of.times),
                "times_noise": times.map(|of| of.noise),
                "samples": samples,
            });
            (row.key.to_string(), told)
        });
        (way.key().to_string(), Value::Object(each.collect()))
    };
    json!({
        "program": taken.program,
        "turns": taken.runs[0].len(),
        "idle": taken.idle,
        "others": taken.others,
        "ended": format!("{:?}", taken.ended).to_lowercase(),
        "said": taken.said,
        "ways": Value::Object(ways(taken).map(way).collect()),
        "counters": taken.stats,
        "verdict": verdict.outcome.key(),
        "text": verdict.text,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::once::Better;
    use prezero_command::spent::Spent;

    fn taken() -> Taken {
        let run = |wall_s| Run {
            spent: Spent { wall_s, user_s: 0.5, system_s: 2.5, faults: 70.0, peak_mib: 9.0 },
            load_s: None,
            figure: None,
            stats: None,
        };
        let runs = [1.5, 0.75, 1.5, 1.5].map(|wall| vec![run(wall); 6]);
        Taken { runs, idle: 0.5, ..Taken::nothing(&["prog".into()]) }
    }

    #[test]
    fn the_table_has_medians_with_their_noise_and_what_is_better_is_higher() {
        let text = as_text(&taken(), None);
        assert!(text.starts_with("prog: 6 turns, as told;"), "{text}");
        let mut one = taken();
        one.runs.iter_mut().for_each(|runs| runs.truncate(1));
        let text_of_one = as_text(&one, None);
        assert!(text_of_one.starts_with("prog: 1 turn, as told;"));
        assert!(text_of_one.contains(" 2.00\n") || text_of_one.contains(" 2.00 "), "{text_of_one}");
        let said = Some("exit status: 3; it said: so".into());
        let beside = as_text(&Taken { others: 0.43, said, ..taken() }, None);
        let lines: Vec<_> = beside.lines().collect();
        assert_eq!(lines[0], "prog: each run: exit status: 3; it said: so");
        assert!(lines[1].starts_with("other programs had 43 % of the CPUs' time"), "{beside}");
        let mut wall = text.lines().skip_while(|line| !line.starts_with("wall "));
        let (times, ups) = (wall.next().unwrap(), wall.next().unwrap());
        assert!(times.contains("1.50 s ± 0 %") && times.contains("750.0 ms ± 0 %"), "{text}");
        assert!(ups.contains("2.00 ± 0.00") && ups.contains("1.00 ± 0.00"), "{text}");
        assert!(text.contains("70") && text.contains("9 MiB") && text.contains("500.0 ms"));
    }

    #[test]
    fn it_fits_a_terminal_of_80_columns_and_of_40() {
        let mut large = taken();
        for (nth, run) in large.runs.iter_mut().flatten().enumerate() {
            run.spent.wall_s *= 900.0 + 9.0 * nth as f64;
            run.spent.faults = 123_456_789.0;
            run.spent.peak_mib = 262_144.0;
        }
        large.others = 0.5;
        for columns in [40, 80, 200] {
            for taken in [&taken(), &large] {
                let text = as_text(taken, Some(columns));
                assert!(fits(&text, columns), "{columns}:\n{text}");
                assert!(WAYS.iter().all(|way| text.contains(way.name())), "{text}");
            }
        }
        assert!(fits(as_text(&taken(), None).split_once('\n').unwrap().1, USUAL));
        large.runs[2..].iter_mut().for_each(Vec::clear);
        let two = as_text(&large, None);
        assert!(!two.contains("unscrubbed") && two.contains("prezero"), "{two}");
    }

    #[test]
    fn a_figure_and_a_load_have_rows_of_their_own() {
        let mut taken = taken();
        for run in taken.runs.iter_mut().flatten() {
            (run.load_s, run.figure) = (Some(run.spent.wall_s), Some(100.0 * run.spent.wall_s));
        }
        taken.figure = Some(Better::More);
        let text = as_text(&taken, None);
        let mut figure = text.lines().skip_while(|line| !line.starts_with("figure "));
        assert!(figure.next().unwrap().contains("150.0 ± 0 %"), "{text}");
        assert!(figure.next().unwrap().contains("0.50 ± 0.00"), "{text}");
        assert!(text.contains("\nload ") && !text.contains("\nwall "), "{text}");
    }

    #[test]
    fn json_has_every_run_and_the_verdict() {
        let verdict = Verdict::of(&taken().seen());
        let json = as_json(&taken(), &verdict);
        assert_eq!(json["verdict"], "use");
        assert_eq!(json["ways"]["prezero"]["wall_s"]["samples"].as_array().unwrap().len(), 6);
        assert_eq!(json["ways"]["prezero"]["wall_s"]["times_as_good_as_plain"], 2.0);
        assert_eq!(json["turns"], 6);
    }
}
