//! Lameter's page-fault test, and his second table.

use anyhow::Result;
use serde_json::Value;

use super::level::{self, CONTROL, HOST, KERNEL, PROCESS, number};
use super::table::{Table, experiment};
use super::{Setting, gains, verdict};
use crate::figure::{Better, Figure, Kind, Sheet};
use crate::progress::step;
use crate::worker::Program;

/// His columns.
const COLUMNS: [(&str, Better); 6] = [
    ("user, s", Better::Less),
    ("system, s", Better::Less),
    ("wall, s", Better::Less),
    ("flt/cpu/s", Better::More),
    ("fault/wsec", Better::More),
    ("background, s", Better::Neither),
];
/// The same, as the program names them.
const KEYS: [&str; 6] = ["user_s", "system_s", "wall_s", "flt_cpu_s", "fault_wsec", "background_s"];
const THREADS: [&str; 4] = ["1", "2", "4", "8"];
const LINES: [&str; 7] = ["1", "2", "4", "8", "16", "32", "64"];
/// His rate of faults.
const RATE: &str = "flt/cpu/s";
/// Between repetitions, so that somebody may prepare memory.
const PAUSE_MS: &str = "300";
const PAUSED: &str = "yes";
const AT_ONCE: &str = "no";

/// His first table: without and with the patch, and with zeroed pages that suffice.
const POST: [(&str, &str, &str, [f64; 5]); 9] = [
    ("without patch", "1", AT_ONCE, [0.146, 11.155, 11.030, 69584.896, 69566.852]),
    ("without patch", "2", AT_ONCE, [0.170, 14.909, 7.097, 52150.369, 98643.687]),
    ("without patch", "4", AT_ONCE, [0.181, 16.597, 5.079, 46869.167, 135642.420]),
    ("without patch", "8", AT_ONCE, [0.166, 23.239, 4.037, 33599.215, 179791.120]),
    ("patched", "1", AT_ONCE, [0.183, 2.750, 2.093, 268077.996, 267952.890]),
    ("patched", "2", AT_ONCE, [0.185, 4.876, 2.097, 155344.562, 263967.292]),
    ("patched", "4", AT_ONCE, [0.150, 6.617, 2.097, 116205.793, 264774.080]),
    ("patched", "8", AT_ONCE, [0.186, 13.693, 3.054, 56659.819, 221701.073]),
    ("patched", "1", PAUSED, [0.014, 0.110, 0.012, 524292.194, 517665.538]),
];
/// His second table: lines of 128 bytes in a page of 16 KiB, patched, 1 GiB once.
const POST_LINES: [(&str, [f64; 5]); 8] = [
    ("1", [0.01, 0.12, 0.01, 500813.853, 497925.891]),
    ("2", [0.01, 0.11, 0.01, 493453.103, 472877.725]),
    ("4", [0.02, 0.10, 0.01, 479351.658, 471507.415]),
    ("8", [0.01, 0.13, 0.01, 424742.054, 416725.013]),
    ("16", [0.05, 0.12, 0.01, 347715.359, 336983.834]),
    ("32", [0.12, 0.13, 0.02, 258112.286, 256246.731]),
    ("64", [0.24, 0.14, 0.03, 169896.381, 168189.283]),
    ("128", [0.49, 0.14, 0.06, 102300.257, 101674.435]),
];

/// One row to be measured.
struct Case<'a> {
    threads: &'a str,
    lines: &'a str,
    paused: &'a str,
}

impl Case<'_> {
    fn arguments(&self, mib: &str) -> Vec<String> {
        let pause = if self.paused == PAUSED { PAUSE_MS } else { "0" };
        let pairs = [
            ("--mib", mib),
            ("--threads", self.threads),
            ("--lines", self.lines),
            ("--pause-ms", pause),
            ("--warm", "1"),
        ];
        pairs.iter().flat_map(|(name, value)| [name.to_string(), value.to_string()]).collect()
    }

    /// Lines of the program from elsewhere that are of this case.
    fn is(&self) -> [(&'static str, Value); 4] {
        let number = |text: &str| Value::from(text.parse::<u64>().unwrap_or(0));
        let pause = if self.paused == PAUSED { PAUSE_MS } else { "0" };
        [
            ("experiment", "faults".into()),
            ("threads", number(self.threads)),
            ("lines", number(self.lines)),
            ("pause_ms", number(pause)),
        ]
    }
}

/// How many steps it takes.
pub fn steps(setting: &Setting) -> usize {
    let levels = setting.levels.len() * setting.runs;
    let host = usize::from(setting.host) * setting.runs;
    levels * (2 * THREADS.len() + LINES.len() - 1) + host * (THREADS.len() + LINES.len() - 1)
}

/// Measures both tables.
pub fn run(setting: &Setting) -> Result<Vec<Sheet>> {
    let program = Program::faults()?;
    let mut first = Table::new(
        "Lameter, Prezeroing V2: page faults, threads that share the memory, one line touched a page",
        &["threads", "pause"],
        &COLUMNS,
    );
    for (with, threads, paused, figures) in POST {
        first.post(with, &[threads, paused], &with_background(figures));
    }
    let mut second = Table::new(
        "Lameter, Prezeroing V2: cache lines touched a page, one thread",
        &["lines"],
        &COLUMNS,
    );
    second.sheet = second.sheet.plot(
        Kind::Lines(RATE.into()),
        ["cache lines touched of each page", "pages in a CPU second"],
        "Lameter's curve: his figures of 2004 and today's levels.",
    );
    for (lines, figures) in POST_LINES {
        second.post("patched", &[lines], &with_background(figures));
    }
    for paused in [AT_ONCE, PAUSED] {
        for threads in THREADS {
            let case = Case { threads, lines: "1", paused };
            for (level, figures) in rows(setting, &program, &case)? {
                if paused == PAUSED && threads == "1" {
                    second.push(&level, &["1"], figures.clone());
                }
                first.push(&level, &[threads, paused], figures);
            }
        }
    }
    for lines in &LINES[1..] {
        let case = Case { threads: "1", lines, paused: PAUSED };
        for (level, figures) in rows(setting, &program, &case)? {
            second.push(&level, &[lines], figures);
        }
    }
    let mut held = held(&first, &second);
    let rate = |lines: &'static str, table: &'static str| {
        let second = &second;
        move |level: &str| second.value(level, &[lines], table)
    };
    let all: Vec<_> = gains(setting, rate("64", RATE), Better::More).collect();
    for (level, one) in gains(setting, rate("1", RATE), Better::More) {
        let all = all.iter().find(|(each, _)| *each == level).map_or(f64::NAN, |(_, all)| *all);
        held.push(verdict(
            one > 1.1 && one >= all,
            &format!(
                "{level}: {one:.2} times the pages in a CPU second of the same kernel without the patches \
                 with one line a page, {all:.2} times with all of them"
            ),
        ));
    }
    let incomparable = vec![
        "his pages have 16 KiB and his lines 128 bytes: 128 lines a page, here 64; per byte his 16 KiB \
         page is four of today's"
            .into(),
        "his wall times of 2.093 and 0.012 s are minutes and hundredths as time(1) prints them; the \
         rates are right"
            .into(),
        format!(
            "here each repetition of {} MiB obtains and gives back its memory, and both are timed; \
             without a pause nobody can prepare anything",
            setting.mib
        ),
        "under prezero the page is neither faulted nor mapped anew, so his rate of faults is a rate of \
         pages; a lease is one repetition, as it is new only once"
            .into(),
    ];
    Ok(experiment(
        [
            "Lameter, Prezeroing V2: Why and When it works (linux-kernel, 23 December 2004)",
            "SGI Altix, 8 Itanium 2, 6 GB, 4 GiB x 3; scrubd in the kernel; second table 1 GiB x 1",
        ],
        incomparable,
        held,
        vec![first, second],
    ))
}

fn with_background(figures: [f64; 5]) -> [Option<f64>; 6] {
    let mut row = [None; 6];
    for (to, from) in row.iter_mut().zip(figures) {
        *to = Some(from);
    }
    row
}

/// The case at each level, the levels in turns.
fn rows(
    setting: &Setting,
    program: &Program,
    case: &Case<'_>,
) -> Result<Vec<(String, Vec<Option<Figure>>)>> {
    let mib = setting.mib.to_string();
    let arguments = case.arguments(&mib);
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let label =
        format!("faults: {} threads, {} lines, pause {}", case.threads, case.lines, case.paused);
    let mut lines: Vec<(String, Vec<Value>)> =
        setting.levels.iter().map(|level| (level.name.clone(), vec![])).collect();
    for run in 0..setting.runs {
        for place in 0..setting.levels.len() {
            let next = (run + place) % setting.levels.len();
            step(&label)?;
            lines[next].1.push(setting.levels[next].run(program, &arguments)?);
        }
    }
    // A lease lies ready whenever it is asked for: it has no row without a pause.
    if let Some(broker) = setting.broker()?.filter(|_| case.paused == PAUSED) {
        let mut measured = vec![];
        let arguments: Vec<_> = ["--reps", "1", "--warm", "0"].into_iter().collect();
        let given = ["--mib", &mib, "--threads", case.threads, "--lines", case.lines];
        let arguments = [&given[..], &arguments].concat();
        for _ in 0..setting.runs {
            step(&label)?;
            measured.push(level::on_lease(broker, setting.mib, program, &arguments)?);
        }
        lines.push((HOST.into(), measured));
    }
    for elsewhere in &setting.elsewhere {
        let found = elsewhere.find(&case.is());
        lines.push((elsewhere.name.clone(), found.into_iter().cloned().collect()));
    }
    let mut rows = vec![];
    for (level, lines) in lines.into_iter().filter(|(_, lines)| !lines.is_empty()) {
        let figure = |key| -> Result<Option<Figure>> {
            let samples = lines.iter().map(|line| number(line, key)).collect::<Result<_>>()?;
            Ok(Figure::of_samples(&level, "", "", samples))
        };
        let figures = KEYS.into_iter().map(figure).collect::<Result<_>>()?;
        rows.push((level, figures));
    }
    Ok(rows)
}

/// What the figures say of his claims.
fn held(first: &Table, second: &Table) -> Vec<String> {
    let rate = RATE;
    let mut sentences = vec![];
    let his = first.value("post, patched", &["1", PAUSED], rate).zip(first.value(
        "post, without patch",
        &["1", AT_ONCE],
        rate,
    ));
    let gain = |lines: &str| {
        let ours = second.value(PROCESS, &[lines], rate)?;
        Some(ours / second.value(KERNEL, &[lines], rate)?)
    };
    if let (Some((patched, plain)), Some(one), Some(all)) = (his, gain("1"), gain("64")) {
        sentences.push(verdict(
            one > 1.5 && one > all,
            &format!(
                "prepared memory multiplies the pages touched in a CPU second: {one:.1} times the kernel's \
                 under prezero with one line a page (his patch {:.1} times), {all:.1} times with all lines",
                patched / plain
            ),
        ));
        let control = |lines: &str| {
            let ours = second.value(PROCESS, &[lines], rate)?;
            Some(ours / second.value(CONTROL, &[lines], rate)?)
        };
        if let (Some(one), Some(all)) = (control("1"), control("64")) {
            sentences.push(verdict(
                all < one && all < 1.1,
                &format!(
                    "zeroing makes no sense for who touches every line: against the same zone without \
                     scrubd {one:.1} times with one line a page and {all:.2} times with all 64"
                ),
            ));
        }
    }
    let scale = |level: &str| {
        let eight = first.value(level, &["8", PAUSED], "fault/wsec")?;
        Some(eight / first.value(level, &["1", PAUSED], "fault/wsec")?)
    };
    if let (Some(kernel), Some(ours)) = (scale(KERNEL), scale(PROCESS)) {
        let [one, eight] = ["1", "8"].map(|threads| {
            first.value("post, patched", &[threads, AT_ONCE], "fault/wsec").unwrap_or(f64::NAN)
        });
        sentences.push(format!(
            "from 1 to 8 threads his patched kernel went to {:.2} times the pages in a second; today the \
             kernel goes to {kernel:.2} times and prezero to {ours:.2} times",
            eight / one
        ));
    }
    if let (Some(host), Some(kernel)) =
        (second.value(HOST, &["1"], rate), second.value(KERNEL, &["1"], rate))
    {
        sentences.push(verdict(
            host > 1.5 * kernel,
            &format!(
                "on the host, a lease gives {:.1} times the kernel's pages in a CPU second",
                host / kernel
            ),
        ));
    }
    sentences
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(ours: [f64; 2]) -> Table {
        let mut table = Table::new("", &["lines"], &COLUMNS);
        let figures = |rate| {
            let mut figures = vec![None; 6];
            figures[3] = Some(Figure::new("", "", "", rate));
            figures
        };
        let mut row = |level: &str, lines: &str, rate| {
            table.push(level, &[lines], figures(rate));
        };
        for (lines, ours) in ["1", "64"].into_iter().zip(ours) {
            row(KERNEL, lines, 100.0);
            row(CONTROL, lines, 150.0);
            row(PROCESS, lines, ours);
        }
        table
    }

    fn first() -> Table {
        let mut first = Table::new("", &["threads", "pause"], &COLUMNS);
        for (with, threads, paused, figures) in POST {
            first.post(with, &[threads, paused], &with_background(figures));
        }
        first
    }

    #[test]
    fn sentences_follow_the_figures() {
        let good = held(&first(), &second([600.0, 160.0]));
        assert!(good[0].starts_with("held: ") && good[0].contains("6.0 times"), "{good:?}");
        assert!(good[0].contains("his patch 7.5 times"), "{good:?}");
        assert!(good[1].starts_with("held: ") && good[1].contains("1.07 times"), "{good:?}");
        let bad = held(&first(), &second([90.0, 200.0]));
        assert!(bad.iter().all(|sentence| sentence.starts_with("did not hold: ")), "{bad:?}");
    }

    #[test]
    fn without_figures_nothing_is_said() {
        let empty = Table::new("", &["lines"], &COLUMNS);
        assert!(held(&first(), &empty).is_empty());
    }
}
