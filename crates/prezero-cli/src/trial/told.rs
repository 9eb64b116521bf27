//! What turns came to, as a table or as JSON.

use anyhow::Result;
use comfy_table::{CellAlignment, Table, presets::UTF8_BORDERS_ONLY};
use serde_json::{Value, json};

use super::once::Run;
use super::turns::Taken;
use super::verdict::Verdict;
use super::way::{WAYS, Way};
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
    if !taken.runs[0].is_empty() {
        prezero_sys::print!("{}", as_text(taken))?;
    }
    prezero_sys::print!("{}\n", verdict.text)?;
    Ok(())
}

fn as_text(taken: &Taken) -> String {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY);
    let [plain, ours, unscrubbed, keeping] = WAYS.map(Way::name);
    table.set_header(["", plain, ours, "speed-up", unscrubbed, "speed-up", keeping, "speed-up"]);
    for row in rows(taken) {
        let cell = |way| {
            let samples = taken.of(way, row.of);
            let noise = noise(&samples)
                .filter(|noise| *noise < 1.0)
                .map_or(String::new(), |noise| format!(" ± {:.0} %", (100.0 * noise).ceil()));
            format!("{}{noise}", shown(median(&samples).unwrap_or(0.0), row.unit))
        };
        let times = |way| {
            let cost =
                |run: &Run| if row.unit == Unit::Plain { taken.cost(run) } else { (row.of)(run) };
            let times = taken.times(way, Way::Plain, cost);
            times.map_or("-".into(), |of| format!("{:.2} ± {:.2}", of.times, of.noise))
        };
        table.add_row([
            row.name.to_string(),
            cell(Way::Plain),
            cell(Way::Prezero),
            times(Way::Prezero),
            cell(Way::Unscrubbed),
            times(Way::Unscrubbed),
            cell(Way::Keeping),
            times(Way::Keeping),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let turns = taken.runs[0].len();
    format!(
        "{}{}: {turns} turn{}, {}; medians; speed-up over plain; CPUs idled {:.0} %\n{table}\n",
        others(taken.others),
        taken.program,
        if turns == 1 { "" } else { "s" },
        taken.ended.why(),
        100.0 * taken.idle
    )
}

/// A line about a load that is not the program's own.
fn others(share: f64) -> String {
    if share < OTHERS {
        return String::new();
    }
    format!(
        "other programs had {:.0} % of the CPUs' time meanwhile: end them for figures of this one\n",
        100.0 * share
    )
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
            let cost =
                |run: &Run| if row.unit == Unit::Plain { taken.cost(run) } else { (row.of)(run) };
            let times = taken.times(way, Way::Plain, cost);
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
        "ways": Value::Object(WAYS.map(way).into_iter().collect()),
        "counters": taken.stats,
        "verdict": verdict.outcome.key(),
        "text": verdict.text,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spent::Spent;
    use crate::trial::once::Better;

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
        let text = as_text(&taken());
        assert!(text.starts_with("prog: 6 turns, as told;"), "{text}");
        let mut one = taken();
        one.runs.iter_mut().for_each(|runs| runs.truncate(1));
        assert!(as_text(&one).starts_with("prog: 1 turn, as told;"));
        let text_beside = as_text(&Taken { others: 0.43, ..taken() });
        assert!(
            text_beside.starts_with("other programs had 43 % of the CPUs' time"),
            "{text_beside}"
        );
        let wall = text.lines().find(|line| line.contains(" wall ")).unwrap();
        assert!(wall.contains("1.50 s ± 0 %") && wall.contains("750.0 ms ± 0 %"), "{text}");
        assert!(wall.contains("2.00 ± 0.00") && wall.contains("1.00 ± 0.00"), "{text}");
        assert!(text.contains("70") && text.contains("9 MiB") && text.contains("500.0 ms"));
    }

    #[test]
    fn a_figure_and_a_load_have_rows_of_their_own() {
        let mut taken = taken();
        for run in taken.runs.iter_mut().flatten() {
            (run.load_s, run.figure) = (Some(run.spent.wall_s), Some(100.0 * run.spent.wall_s));
        }
        taken.figure = Some(Better::More);
        let text = as_text(&taken);
        let figure = text.lines().find(|line| line.contains(" figure ")).unwrap();
        assert!(figure.contains("150.0 ± 0 %") && figure.contains("0.50 ± 0.00"), "{text}");
        assert!(text.contains(" load ") && !text.contains(" wall "), "{text}");
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
