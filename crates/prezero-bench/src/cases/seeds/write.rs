//! Arcangeli's microbenchmark.

use anyhow::{Context, Result};
use serde_json::Value;

use super::level::{self, Elsewhere, HOST, KERNEL, Level, PROCESS};
use super::setting::Setting;
use super::table::{Claim, Table, Times, experiment};
use crate::figure::{Better, Figure, Sheet};
use crate::progress::step;
use crate::worker::Program;

const COLUMNS: [(&str, Better); 4] = [
    ("cycles", Better::Less),
    ("writing, us", Better::Less),
    ("with malloc and free, us", Better::Less),
    ("x kernel default", Better::More),
];
const ONCE: &str = "once a process";
const LOOP: &str = "in a loop";
const PAUSED: &str = "in a loop, pauses";
/// Processes of [`ONCE`], and rounds of a loop.
const PROCESSES: usize = 15;
const ROUNDS: &str = "200";
/// Of a loop, not counted: the allocator is new to it.
const WARM_UP: usize = 20;
const PAUSE_US: &str = "3000";
const LEASE_MIB: usize = 4;

/// How many steps it takes.
pub fn steps(setting: &Setting) -> usize {
    setting.levels.len() * (PROCESSES + 2) + usize::from(setting.host) * PROCESSES
}

/// Samples of one level in one case: cycles, writing in us, whole rounds in us.
#[derive(Default)]
struct Samples([Vec<f64>; 3]);

impl Samples {
    fn add(&mut self, line: &Value, skipped: usize) -> Result<()> {
        for (key, (scale, to)) in ["cycles", "write_ns", "round_ns"]
            .into_iter()
            .zip([1.0, 1e3, 1e3].into_iter().zip(&mut self.0))
        {
            let list = line[key].as_array().with_context(|| format!("write says no {key}"))?;
            to.extend(
                list.iter().skip(skipped).filter_map(Value::as_f64).map(|value| value / scale),
            );
        }
        Ok(())
    }

    fn figures(self) -> Vec<Option<Figure>> {
        let figure = |samples| Figure::of_samples("", "", "", samples);
        self.0.into_iter().map(figure).collect()
    }
}

/// Measures.
pub fn run(setting: &Setting) -> Result<Vec<Sheet>> {
    let program = Program::write()?;
    let mut table =
        Table::new("Arcangeli, PG_zero: 4 MiB, one write each 32 KiB", &["how"], &COLUMNS);
    table.post("patched", &[ONCE], &[None, None, None, Some(3.0)]);
    let mut rows: Vec<(String, &str, Samples)> = vec![];
    for _ in 0..PROCESSES {
        for level in &setting.levels {
            step("write: once a process")?;
            add(&mut rows, &level.name, ONCE, &level.run(&program, &[])?, 0)?;
        }
    }
    if let Some(broker) = setting.broker()? {
        for _ in 0..PROCESSES {
            step("write: on a lease")?;
            let line = level::on_lease(broker, LEASE_MIB, &program, &[])?;
            add(&mut rows, HOST, ONCE, &line, 0)?;
        }
    }
    for (how, pause) in [(LOOP, "0"), (PAUSED, PAUSE_US)] {
        for level in &setting.levels {
            step(&format!("write: {how}"))?;
            let line = level.run(&program, &["--loop", ROUNDS, "--pause-us", pause])?;
            add(&mut rows, &level.name, how, &line, WARM_UP)?;
        }
    }
    for elsewhere in &setting.elsewhere {
        for line in elsewhere.find(&[("experiment", "write".into())]) {
            let many = line["cycles"].as_array().map_or(0, Vec::len);
            let how = match (many, line["pause_us"].as_u64()) {
                (1, _) => ONCE,
                (_, Some(0)) => LOOP,
                _ => PAUSED,
            };
            add(&mut rows, &elsewhere.name, how, line, if many > WARM_UP { WARM_UP } else { 0 })?;
        }
    }
    for (level, how, samples) in rows {
        table.push(&level, &[how], samples.figures());
    }
    against_kernel(&mut table, &setting.elsewhere);
    judge(setting, &mut table);
    Ok(experiment(
        [
            "Arcangeli, PG_zero (linux-kernel, 30 October 2004)",
            "not said; 2.6.9; \"this microbenchmark runs 3 times faster with the patch applied\"",
        ],
        &[
            "he gives a factor and no cycles; his clock and today's count different things",
            "his program times the writes alone; an allocator that faults or clears in malloc hides that from it, so \
             the whole round is beside",
            "his pages were prepared for the kernel's faults; here malloc hands out pages that are there (process) or \
             a file that is (host)",
        ],
        vec![table],
    ))
}

/// What the figures say of the post's claim.
fn judge(setting: &Setting, table: &mut Table) {
    let [cycles, _, round, _] = COLUMNS.map(|(heading, _)| heading);
    let (paused, once): (&[&str], &[&str]) = (&[PAUSED], &[ONCE]);
    let of = |says, heading, own, other, of, times| Claim {
        says,
        heading,
        own: (own, of),
        other: (other, of),
        times,
        post: None,
    };
    let three = Times::AtLeast(3.0);
    table.judge(&[
        of(
            "3 times faster in a process that lives and pauses",
            cycles,
            PROCESS,
            KERNEL,
            paused,
            three,
        ),
        of("there, malloc, writes and free", round, PROCESS, KERNEL, paused, Times::Any),
        // No level prepares memory before a process begins.
        of("3 times faster once a process, as his did", cycles, PROCESS, KERNEL, once, three),
        of("the same with the memory leased", cycles, HOST, KERNEL, once, three),
    ]);
    for Level { name, .. } in &setting.levels {
        if ![KERNEL, PROCESS].contains(&name.as_str()) {
            // An allocator that keeps its memory has no faults either.
            let says = format!("prezero against {name}, in a loop with pauses");
            let claim = of("", cycles, PROCESS, name, paused, Times::Any);
            table.judge(&[Claim { says: &says, ..claim }]);
        }
    }
    setting.judge_elsewhere(table, "in a loop with pauses", cycles, paused, 3.0);
}

fn add<'a>(
    rows: &mut Vec<(String, &'a str, Samples)>,
    level: &str,
    how: &'a str,
    line: &Value,
    skipped: usize,
) -> Result<()> {
    if let Some((.., samples)) = rows.iter_mut().find(|(each, at, _)| each == level && *at == how) {
        return samples.add(line, skipped);
    }
    let mut samples = Samples::default();
    samples.add(line, skipped)?;
    rows.push((level.into(), how, samples));
    Ok(())
}

/// Fills the last column: the kernel's cycles over each level's; a level from elsewhere has the
/// kernel there without the patches, or none.
fn against_kernel(table: &mut Table, elsewhere: &[Elsewhere]) {
    let cycles: Vec<Figure> =
        table.sheet.figures.iter().filter(|figure| figure.name == COLUMNS[0].0).cloned().collect();
    for figure in cycles {
        let base = match elsewhere.iter().find(|each| each.name == figure.who) {
            Some(each) => each.base.as_deref().unwrap_or_default(),
            None => KERNEL,
        };
        let of: Vec<_> = figure.of.iter().map(String::as_str).collect();
        let Some(kernel) = table.value(base, &of, COLUMNS[0].0) else { continue };
        let factor = Figure::new("", "", "", kernel / figure.value);
        table.push(&figure.who, &of, vec![None, None, None, Some(factor)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_is_counted_without_its_beginning() {
        let line = serde_json::json!({
            "cycles": [9000, 100, 300], "write_ns": [9000, 1000, 3000], "round_ns": [1, 2000, 4000]
        });
        let mut rows = vec![];
        add(&mut rows, KERNEL, LOOP, &line, 1).unwrap();
        add(&mut rows, KERNEL, LOOP, &line, 1).unwrap();
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].2.0[0], [100.0, 300.0, 100.0, 300.0]);
        assert_eq!(rows[0].2.0[1], [1.0, 3.0, 1.0, 3.0]);
    }

    #[test]
    fn factors_are_against_the_kernel_in_the_same_case() {
        let mut table = Table::new("", &["how"], &COLUMNS);
        for (level, how, cycles) in [
            (KERNEL, PAUSED, 300.0),
            (PROCESS, PAUSED, 50.0),
            (KERNEL, ONCE, 90.0),
            (PROCESS, ONCE, 100.0),
        ] {
            table.push(level, &[how], vec![Some(Figure::new("", "", "", cycles))]);
        }
        let lines = std::env::temp_dir().join(format!("prezero-write-{}", std::process::id()));
        std::fs::write(&lines, "{\"experiment\":\"write\"}").unwrap();
        let elsewhere = Elsewhere::read(&format!("guest={0},{0}", lines.display())).unwrap();
        std::fs::remove_file(lines).unwrap();
        for (level, cycles) in [("guest, unpatched", 9000.0), ("guest", 4500.0)] {
            table.push(level, &[PAUSED], vec![Some(Figure::new("", "", "", cycles))]);
        }
        against_kernel(&mut table, &elsewhere);
        assert_eq!(table.value(PROCESS, &[PAUSED], "x kernel default"), Some(6.0));
        assert_eq!(table.value("guest", &[PAUSED], "x kernel default"), Some(2.0));
        assert_eq!(table.value("guest, unpatched", &[PAUSED], "x kernel default"), None);
    }
}
