//! Shutemov's demonstration: what reading makes resident.

use anyhow::Result;
use serde_json::Value;

use super::level::{KERNEL, Level, PROCESS, number};
use super::setting::Setting;
use super::table::{Claim, POST, Table, Times, experiment};
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
    bound(&mut read.sheet);
    let end = COLUMNS[2].0;
    let of = |says, own, other, times| Claim { says, heading: end, own, other, times, post: None };
    let never: &[&str] = &["never", NEW];
    sparse.judge(&[
        of(
            "what is written sparsely costs little more memory with huge pages",
            (KERNEL, never),
            (KERNEL, &["always", NEW]),
            Times::AtMost(2.5),
        ),
        of(
            "as the machine is set the kernel's, against prezero's",
            (KERNEL, &["asis", NEW]),
            (PROCESS, &["asis", NEW]),
            Times::Any,
        ),
    ]);
    Ok(experiment(
        [
            "Shutemov, Introduce huge zero page (linux-mm, 9 August 2012)",
            "not said; ft.A of the NAS Parallel Benchmarks took up to 2.5 times the memory",
        ],
        &[
            "he gives all that is resident, about 400 KiB of program included; here the rise",
            "always is set for the allocation alone (madvise), never for the process (prctl)",
            "ft.A itself is not here: the arrays have its size and are read and written as sparsely as would explain \
             his figure",
            "a lease is resident as a whole when it is handed out: no row",
        ],
        vec![read, sparse],
    ))
}

/// With the huge zero page reading makes nothing resident under THP always; the same under prezero,
/// whatever THP says and after use too, and elsewhere.
fn bound(read: &mut Sheet) {
    let risen = COLUMNS[1].0.trim_end_matches(", MiB");
    for figure in read.figures.iter_mut().filter(|figure| figure.name == risen) {
        let asked = figure.who == PROCESS || figure.of == ["always", NEW];
        let asked = asked && !figure.who.starts_with(POST);
        figure.wanted = asked.then_some(MOST_MIB);
    }
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
        let kept = |kib| {
            let mut read = Table::new("", &["THP", "process"], &COLUMNS);
            row(&mut read, PROCESS, "always", false, &[line(100.0)]).unwrap();
            row(&mut read, PROCESS, "asis", true, &[line(kib)]).unwrap();
            bound(&mut read.sheet);
            read.sheet.verdicts().remove(0)
        };
        assert!(kept(1000.0).ends_with("wanted at most 1: reached"), "{}", kept(1000.0));
        assert!(kept(1025.0).ends_with("missed in 1 of 2"), "the worst of all counts");
    }
}
