//! Shutemov's demonstration: what reading makes resident.

use anyhow::Result;
use serde_json::Value;

use super::level::{KERNEL, Level, PROCESS, number};
use super::table::{Table, experiment};
use super::{Setting, verdict};
use crate::figure::{Better, Figure, Sheet};
use crate::progress::step;
use crate::worker::Program;

const COLUMNS: [(&str, Better); 4] = [
    ("before, MiB", Better::Neither),
    ("risen by reading, MiB", Better::Less),
    ("risen at the end, MiB", Better::Less),
    ("ms", Better::Less),
];
/// What reading may make resident: page tables are not counted, the rest is the program's own.
const MOST_MIB: f64 = 1.0;
const NEW: &str = "new process";
const USED: &str = "after use";
const MODES: [&str; 3] = ["never", "always", "asis"];

/// What runs: level, THP, whether the process has a past.
type Case<'a> = (&'a Level, &'a str, bool);

fn cases(setting: &Setting) -> Vec<Case<'_>> {
    let mut cases = vec![];
    for level in &setting.levels {
        let modes = match level.name.as_str() {
            KERNEL | PROCESS => &MODES[..],
            _ => &MODES[2..],
        };
        cases.extend(modes.iter().map(|mode| (level, *mode, false)));
        cases.push((level, "asis", true));
    }
    cases
}

/// How many steps it takes.
pub fn steps(setting: &Setting) -> usize {
    2 * cases(setting).len() * setting.runs
}

/// Measures.
pub fn run(setting: &Setting) -> Result<Vec<Sheet>> {
    let program = Program::resident()?;
    let mut read = Table::new(
        "Shutemov, huge zero page: 200 MiB, every page read",
        &["THP", "process"],
        &COLUMNS,
    );
    let post = |table: &mut Table, with, thp, risen| {
        table.post(with, &[thp, NEW], &[None, risen, risen, None]);
    };
    post(&mut read, "2012", "never", Some(0.4));
    post(&mut read, "2012", "always", Some(200.0));
    post(&mut read, "huge zero page", "always", Some(0.4));
    let mut sparse = Table::new(
        "Shutemov, huge zero page: NPB-like, 384 MiB, all pages read, one in 16 written",
        &["THP", "process"],
        &COLUMNS,
    );
    for (what, table) in [("read", &mut read), ("sparse", &mut sparse)] {
        for (level, thp, used) in cases(setting) {
            let mut arguments = vec![what, "--thp", thp];
            arguments.extend(used.then_some("--used"));
            let mut lines = vec![];
            for _ in 0..setting.runs {
                step(&format!("resident: {what}, THP {thp}"))?;
                lines.push(level.run(&program, &arguments)?);
            }
            row(table, &level.name, thp, used, &lines)?;
        }
        for elsewhere in &setting.elsewhere {
            for thp in MODES {
                let name = if what == "read" { "resident" } else { "sparse" };
                let wanted = [("experiment", name.into()), ("thp", Value::from(thp))];
                let lines: Vec<Value> = elsewhere.find(&wanted).into_iter().cloned().collect();
                if !lines.is_empty() {
                    row(table, &elsewhere.name, thp, false, &lines)?;
                }
            }
        }
    }
    let mut held = held(&read, &sparse);
    for each in &setting.elsewhere {
        if let Some(risen) = read.value(&each.name, &["always", NEW], COLUMNS[1].0) {
            held.push(verdict(
                risen < MOST_MIB,
                &format!("{}: {risen:.2} MiB of 200 under THP always", each.name),
            ));
        }
    }
    let incomparable = vec![
        "he gives all that is resident, about 400 KiB of program included; here the rise".into(),
        "always is set for the allocation alone (madvise), never for the process (prctl)".into(),
        "ft.A itself is not here: the arrays have its size and are read and written as sparsely as \
         would explain his figure"
            .into(),
        "a lease is resident as a whole when it is handed out: no row".into(),
    ];
    Ok(experiment(
        [
            "Shutemov, Introduce huge zero page (linux-mm, 9 August 2012)",
            "not said; ft.A of the NAS Parallel Benchmarks took up to 2.5 times the memory",
        ],
        incomparable,
        held,
        vec![read, sparse],
    ))
}

fn row(table: &mut Table, level: &str, thp: &str, used: bool, lines: &[Value]) -> Result<()> {
    let mib = |line: &Value, from: &str, to: &str| -> Result<f64> {
        Ok((number(line, to)? - number(line, from)?) / 1024.0)
    };
    let each = |of: &dyn Fn(&Value) -> Result<f64>| -> Result<Option<Figure>> {
        Ok(Figure::of_samples(level, "", "", lines.iter().map(of).collect::<Result<_>>()?))
    };
    let figures = vec![
        each(&|line| Ok(number(line, "rss_before_kib")? / 1024.0))?,
        each(&|line| mib(line, "rss_before_kib", "rss_read_kib"))?,
        each(&|line| mib(line, "rss_before_kib", "rss_after_kib"))?,
        each(&|line| number(line, "took_ms"))?,
    ];
    table.push(level, &[thp, if used { USED } else { NEW }], figures);
    Ok(())
}

fn held(read: &Table, sparse: &Table) -> Vec<String> {
    let mut sentences = vec![];
    let rise = |table: &Table, level, thp, past| table.value(level, &[thp, past], COLUMNS[1].0);
    if let Some(risen) = rise(read, KERNEL, "always", NEW) {
        sentences.push(verdict(
            risen < MOST_MIB,
            &format!(
                "with the huge zero page reading makes nothing resident under THP always: {risen:.2} MiB of \
                 200"
            ),
        ));
    }
    let ours = MODES.map(|thp| rise(read, PROCESS, thp, NEW));
    let ours = ours.into_iter().chain([rise(read, PROCESS, "asis", USED)]).flatten();
    if let Some(most) = ours.max_by(f64::total_cmp) {
        sentences.push(verdict(
            most < MOST_MIB,
            &format!(
                "the same under prezero, whatever THP says and after use too: {most:.2} MiB at most"
            ),
        ));
    }
    let end = |level, thp| sparse.value(level, &[thp, NEW], COLUMNS[2].0);
    if let (Some(never), Some(always)) = (end(KERNEL, "never"), end(KERNEL, "always")) {
        let ours = end(PROCESS, "asis").zip(end(KERNEL, "asis"));
        let ours = ours.map_or(String::new(), |(ours, kernel)| {
            format!(
                "; as the machine is set prezero takes {:.1} times what the kernel does",
                ours / kernel
            )
        });
        sentences.push(verdict(
            always < 2.5 * never,
            &format!(
                "what is written sparsely no longer costs 2.5 times the memory: {:.1} times, since each \
                 page written in a huge page makes all of it resident{ours}",
                always / never
            ),
        ));
    }
    sentences
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(read: f64) -> Value {
        serde_json::json!({
            "rss_before_kib": 1024.0, "rss_read_kib": 1024.0 + read, "rss_after_kib": 4096.0, "took_ms": 1.0
        })
    }

    #[test]
    fn the_rise_is_what_counts() {
        let mut table = Table::new("", &["THP", "process"], &COLUMNS);
        row(&mut table, KERNEL, "never", false, &[line(512.0)]).unwrap();
        let medians: Vec<_> = table.sheet.figures.iter().map(|figure| figure.value).collect();
        assert_eq!(medians, [1.0, 0.5, 3.0, 1.0]);
        assert!(row(&mut table, KERNEL, "never", false, &[serde_json::json!({})]).is_err());
    }

    #[test]
    fn a_mebibyte_under_prezero_is_too_much() {
        let sparse = Table::new("", &["THP", "process"], &COLUMNS);
        let judged = |kib| {
            let mut read = Table::new("", &["THP", "process"], &COLUMNS);
            row(&mut read, PROCESS, "always", false, &[line(100.0)]).unwrap();
            row(&mut read, PROCESS, "asis", true, &[line(kib)]).unwrap();
            held(&read, &sparse).remove(0)
        };
        assert!(judged(1000.0).starts_with("held: "));
        assert!(judged(1025.0).starts_with("did not hold: "), "the worst of all counts");
    }
}
