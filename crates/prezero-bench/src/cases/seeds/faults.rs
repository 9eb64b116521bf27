//! Lameter's page-fault test, and the second table of the post.

use anyhow::Result;
use serde_json::Value;

use super::level::{self, CONTROL, HOST, KERNEL, PROCESS, number};
use super::setting::Setting;
use super::table::{Claim, Table, Times, experiment};
use crate::figure::{Better, Figure, Kind, Sheet};
use crate::progress::step;
use crate::worker::Program;

/// The post's columns.
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
/// The post's rate of faults.
const RATE: &str = "flt/cpu/s";
/// Between repetitions, so that a level may prepare memory.
const PAUSE_MS: &str = "300";
const PAUSED: &str = "yes";
const AT_ONCE: &str = "no";

/// The post's first table: without and with the patch, and with zeroed pages that suffice.
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
/// The post's second table: lines of 128 bytes in a page of 16 KiB, patched, 1 GiB once.
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
    judge(setting, &mut first, &mut second);
    let each = format!(
        "here each repetition of {} MiB obtains and gives back its memory, and both are timed; without a pause \
         nobody can prepare anything",
        setting.mib
    );
    let incomparable = [
        "his pages have 16 KiB and his lines 128 bytes: 128 lines a page, here 64; per byte his 16 KiB page is \
         four of today's",
        "his wall times of 2.093 and 0.012 s are minutes and hundredths as time(1) prints them; the rates are right",
        &each,
        "under prezero the page is neither faulted nor mapped anew, so his rate of faults is a rate of pages; a \
         lease is one repetition, as it is new only once",
    ];
    Ok(experiment(
        [
            "Lameter, Prezeroing V2: Why and When it works (linux-kernel, 23 December 2004)",
            "SGI Altix, 8 Itanium 2, 6 GB, 4 GiB x 3; scrubd in the kernel; second table 1 GiB x 1",
        ],
        &incomparable,
        vec![first, second],
    ))
}

/// What the figures say of the post's claims.
fn judge(setting: &Setting, first: &mut Table, second: &mut Table) {
    let post = first.times(
        RATE,
        ("post, patched", &["1", PAUSED]),
        ("post, without patch", &["1", AT_ONCE]),
    );
    let of = |says, own, other, lines, times, post| Claim {
        says,
        heading: RATE,
        own: (own, lines),
        other: (other, lines),
        times,
        post,
    };
    let (one, all): (&[&str], &[&str]) = (&["1"], &["64"]);
    let prepared = "prepared memory multiplies the pages touched in a CPU second, one line a page";
    let every =
        "zeroing makes no sense for who touches every line, against the same zone without scrubd";
    second.judge(&[
        of(prepared, PROCESS, KERNEL, one, Times::AtLeast(1.5), post),
        of("the same with all lines", PROCESS, KERNEL, all, Times::Any, None),
        of(every, PROCESS, CONTROL, all, Times::AtMost(1.1), None),
        of("a lease on the host multiplies them", HOST, KERNEL, one, Times::AtLeast(1.5), None),
    ]);
    for (lines, says) in [(one, "one line a page"), (all, "all lines")] {
        setting.judge_elsewhere(second, says, RATE, lines, if lines == one { 1.1 } else { 0.0 });
    }
    let more = "fault/wsec";
    let scale = |level, how| Claim {
        says: level,
        heading: more,
        own: (level, if how == PAUSED { &["8", PAUSED] } else { &["8", AT_ONCE] }),
        other: (level, if how == PAUSED { &["1", PAUSED] } else { &["1", AT_ONCE] }),
        times: Times::Any,
        post: None,
    };
    first.sheet.says.push("from 1 to 8 threads the pages in a second".into());
    first.judge(&[scale("post, patched", AT_ONCE), scale(KERNEL, PAUSED), scale(PROCESS, PAUSED)]);
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
