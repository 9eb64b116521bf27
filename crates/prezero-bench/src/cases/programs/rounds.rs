//! `prezero bench rounds`: programs that pause, hold their block for a part of each round, and change their pace.
//!
//! Beside the time to get and write a block stand the counters of prezero: pages found zero, how
//! often scrubd woke and stepped aside, and its CPU time.

use anyhow::Result;

use super::{Contest, Row, Source, Turns, Way, Ways};
use crate::figure::{Case, Report};
use crate::peers::GLIBC;
use crate::worker::Program;

/// KiB, and three words for each pace: rounds, us from one to the next, us held.
const ROWS: [&[&str]; 7] = [
    &["64", "250", "3000", "3"],
    &["1024", "250", "3000", "1000"],
    &["4096", "250", "3000", "100"],
    &["4096", "250", "3000", "2000"],
    &["4096", "50", "16000", "100"],
    &["4096", "50", "16000", "8000"],
    &["4096", "20", "16000", "100", "60", "3000", "100"],
];

/// The command line of `prezero bench rounds`.
#[derive(clap::Args)]
#[command(after_help = "Example: prezero bench rounds --runs 3")]
pub struct Rounds {
    #[command(flatten)]
    turns: Turns,
}

impl Case for Rounds {
    fn measure(&self) -> Result<Report> {
        let (program, ways) = (Program::rounds()?, Ways::find(&[GLIBC])?);
        let row = |row: &&[&str]| {
            let paces = row[1..].join(" ");
            Row { of: vec![row[0].into(), paces], ..Row::of(row) }
        };
        let contest = Contest {
            benchmark: "rounds",
            title: "rounds: programs that pause and hold their block",
            note: "calloc and writing; pace: rounds, us from one to the next, us held".into(),
            labels: &["KiB", "pace"],
            rows: ROWS.iter().map(row).collect(),
            ways: ways.0.allocators.iter().cloned().map(Way::of).collect(),
            program: &program.path(),
            source: Source::Printed(&[("get and write", "us")]),
            counters: &["hits", "misses", "daemon_wakeups", "asides", "daemon_cpu_ns"],
        };
        contest.run(&self.turns, ways.0)
    }
}
