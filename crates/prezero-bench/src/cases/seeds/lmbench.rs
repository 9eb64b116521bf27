//! Thorpe's tables of lmbench.

use anyhow::{Context, Result};
use serde_json::Value;

use super::level::{CONTROL, KERNEL, Level, PROCESS};
use super::setting::Setting;
use super::table::{Claim, Column, Table, Times, experiment};
use crate::figure::{Better, Figure, Sheet};
use crate::machine;
use crate::progress::step;
use crate::worker::Program;

/// The loop that clears in the pause, without any allocator.
const IDLE_LOOP: &str = "idle loop of this CPU";
/// Less is noise.
const GAINS: f64 = 1.1;
/// As the program calls what it times.
const WHAT: [&str; 7] = ["fork", "exec", "sh", "mmap", "protect", "pagefault", "zerofill"];
const TIMES: [Column; 7] = [
    ("fork, us", Better::Less),
    ("exec, us", Better::Less),
    ("sh, us", Better::Less),
    ("mmap, us", Better::Less),
    ("prot fault, us", Better::Less),
    ("page fault, us", Better::Less),
    ("zero-fill fault, us", Better::Less),
];
const PLACES: [Column; 4] = [
    ("L1, ns", Better::Less),
    ("L2, ns", Better::Less),
    ("L3, ns", Better::Less),
    ("main, ns", Better::Less),
];
const L2: &str = PLACES[1].0;
const OFF: &str = "off";
const CACHED: &str = "cached";
const BYPASSING: &str = "bypassing";
/// Of a set in the main memory, KiB, unless the L3 is larger.
const MAIN_KIB: usize = 256 << 10;
const MAIN_MOST_KIB: usize = 1 << 20;

/// How many steps it takes.
pub fn steps(setting: &Setting) -> usize {
    let prezero = setting.levels.iter().filter(|level| level.name == PROCESS).count();
    setting.levels.len() * WHAT.len() + PLACES.len() * 3 * (1 + prezero)
}

/// Measures both tables.
pub fn run(setting: &Setting) -> Result<Vec<Sheet>> {
    let program = Program::lmbench()?;
    let mut times =
        Table::new("Thorpe, zeroing in the idle loop: processes, mappings and faults", &[], &TIMES);
    times.post(
        "without",
        &[],
        &[Some(1100.0), Some(4000.0), Some(8000.0), Some(7298.0), None, Some(9100.0), None],
    );
    times.post(
        "with idle zeroing",
        &[],
        &[Some(800.0), Some(4000.0), Some(7000.0), Some(7098.0), None, Some(7700.0), None],
    );
    let mut rows: Vec<(String, Vec<Option<Figure>>)> =
        setting.levels.iter().map(|level| (level.name.clone(), vec![])).collect();
    for what in WHAT {
        for (level, (_, figures)) in setting.levels.iter().zip(&mut rows) {
            step(&format!("lmbench: {what}"))?;
            figures.push(figure(&level.run(&program, &[what])?, "us"));
        }
    }
    for elsewhere in &setting.elsewhere {
        let figures = WHAT.iter().map(|what| {
            let wanted = [("experiment", "lmbench".into()), ("what", Value::from(*what))];
            figure(elsewhere.find(&wanted).first()?, "us")
        });
        rows.push((elsewhere.name.clone(), figures.collect()));
    }
    for (level, figures) in rows {
        times.push(&level, &[], figures);
    }
    let (mut memory, sets) = memory(setting, &program)?;
    judge(setting, &mut times, &mut memory);
    let sets = format!("his sets are those of a Celeron with an L2 of 128 KiB; here {sets}");
    Ok(experiment(
        [
            "Thorpe, Support for zero'ing pages in idle loop (current-users, 24 April 2000)",
            "300 MHz Celeron, 32 MB, NetBSD 1.4X",
        ],
        &[
            "his tables print thousands of microseconds as K, so 4K exec is anything from 3.5 to 4.5 ms",
            "his page fault is one of a file, zeroing spares it page tables at most; zero-fill fault was not in his \
             suite",
            &sets,
            "fork, exec and sh under an allocator pay for loading its library",
        ],
        vec![times, memory],
    ))
}

/// What the figures say of the post's claims.
fn judge(setting: &Setting, times: &mut Table, memory: &mut Table) {
    let ouch = "an idle loop that clears through the cache of its own CPU makes the L2 slow";
    let scrubd = "scrubd, told to use the cache, makes the L2 slow";
    let of = |says, level, scrub, times, post| Claim {
        says,
        heading: L2,
        own: (level, &[OFF]),
        other: (level, scrub),
        times,
        post,
    };
    memory.judge(&[
        of(ouch, IDLE_LOOP, &[CACHED], Times::AtLeast(1.5), Some(87.0 / 36.0)),
        of("one that clears past it", IDLE_LOOP, &[BYPASSING], Times::Any, None),
        of(scrubd, PROCESS, &[CACHED], Times::Any, None),
    ]);
    for what in ["fork, us", "sh, us"] {
        let post = times.times(what, ("post, with idle zeroing", &[]), ("post, without", &[]));
        // Not against the kernel's: the price of a library in a child is no prezeroing, and a zone
        // within the process helps no page tables of a child.
        let says = format!(
            "{} gains, against the same zone without scrubd",
            what.trim_end_matches(", us")
        );
        let (own, other) = ((PROCESS, &[][..]), (CONTROL, &[][..]));
        let at_least = Times::AtLeast(GAINS);
        times.judge(&[Claim { says: &says, heading: what, own, other, times: at_least, post }]);
    }
    for what in ["fork, us", "zero-fill fault, us"] {
        setting.judge_elsewhere(times, what.trim_end_matches(", us"), what, &[], GAINS);
    }
}

/// The memory latency after an idle moment, by what used that moment.
fn memory(setting: &Setting, program: &Program) -> Result<(Table, String)> {
    let mut table = Table::new(
        "Thorpe, zeroing in the idle loop: memory latency after a pause of 5 ms, by what was cleared in it",
        &["scrub"],
        &PLACES,
    );
    table.post("", &[OFF], &[Some(10.0), Some(36.0), None, Some(202.0)]);
    table.post("", &[BYPASSING], &[Some(10.0), Some(36.0), None, Some(200.0)]);
    table.post("", &[CACHED], &[Some(10.0), Some(87.0), None, Some(200.0)]);
    let sets = sets();
    let kib = sets.map(|kib| kib.to_string());
    let find = |name: &str| setting.levels.iter().find(|level| level.name == name);
    let kernel = find(KERNEL).context("the kernel's level is missing")?;
    let mut row = |name: &str, level: &Level, label: &str, scrub: &str| -> Result<()> {
        let mut figures = vec![];
        for kib in &kib {
            step(&format!("lmbench: memory, scrub {label}"))?;
            let arguments = ["memory", "--kib", kib, "--scrub", scrub];
            figures.push(figure(&level.run(program, &arguments)?, "ns"));
        }
        table.push(name, &[label], figures);
        Ok(())
    };
    for scrub in [OFF, BYPASSING, CACHED] {
        row(IDLE_LOOP, kernel, scrub, scrub)?;
    }
    if let Some(prezero) = find(PROCESS) {
        let with = |settings| prezero.called(PROCESS, settings);
        let never = with(&[("PREZERO_SCRUB_START", "never")]);
        row(PROCESS, &never, OFF, "program")?;
        row(PROCESS, &with(&[("PREZERO_SCRUB_CACHE", "64K")]), BYPASSING, "program")?;
        row(PROCESS, &with(&[("PREZERO_SCRUB_CACHE", "1T")]), CACHED, "program")?;
    }
    for elsewhere in &setting.elsewhere {
        for scrub in [OFF, BYPASSING, CACHED] {
            let at = |kib: usize| {
                let wanted = [
                    ("experiment", "lmbench".into()),
                    ("what", "memory".into()),
                    ("scrub", scrub.into()),
                    ("kib", Value::from(kib)),
                ];
                figure(elsewhere.find(&wanted).first()?, "ns")
            };
            // The sets of all.sh.
            let figures = vec![at(16), at(1024), None, at(MAIN_KIB)];
            table.push(&elsewhere.name, &[scrub], figures);
        }
    }
    let sizes = sets.map(|kib| prezero::Size(kib << 10).to_string());
    Ok((
        table,
        format!(
            "{} for L1, {} for L2, {} for L3 and {} for main",
            sizes[0], sizes[1], sizes[2], sizes[3]
        ),
    ))
}

/// KiB that fit the L1, the L2 and the L3, and that fit none (or as much as is sensible).
fn sets() -> [usize; 4] {
    let cache = |name: &str, otherwise: usize| {
        let bytes = machine::output("getconf", &[name]).and_then(|text| text.parse::<usize>().ok());
        bytes.filter(|&bytes| bytes > 0).map_or(otherwise, |bytes| bytes >> 10)
    };
    let (l1, l2) = (cache("LEVEL1_DCACHE_SIZE", 32), cache("LEVEL2_CACHE_SIZE", 1024));
    let l3 = cache("LEVEL3_CACHE_SIZE", 16 << 10);
    // A CPU of a large machine has the L3 with many others.
    let shared = (l3 / 4).clamp(2 * l2, 32 << 10);
    [l1 / 2, l2 / 2, shared, (4 * l3).clamp(MAIN_KIB, MAIN_MOST_KIB)]
}

/// The median that a line has, and how far its tenths lie apart.
fn figure(line: &Value, unit: &str) -> Option<Figure> {
    let number = |name: &str| line[unit][name].as_f64();
    let value = number("median")?;
    let apart = number("p90").zip(number("p10")).map(|(high, low)| (high - low) / value);
    Some(Figure { noise: apart, ..Figure::new("", "", "", value) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_grow_and_leave_room() {
        let sets = sets();
        assert!(sets.is_sorted() && sets[0] >= 8 && sets[3] <= MAIN_MOST_KIB, "{sets:?}");
    }
}
