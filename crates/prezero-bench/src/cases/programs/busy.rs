//! `prezero bench busy`: programs that never pause, where scrubd can only be in the way.
//!
//! The grid knows one of these patterns. Rings of blocks, batches, sizes at random, two threads; under a glibc that
//! keeps its memory, under a prezero that never scrubs, and under prezero.

use anyhow::Result;

use super::{Contest, Row, Source, Turns, Ways};
use crate::figure::{Case, Report};
use crate::worker::Program;

/// As `bench/programs/busy.c` knows them.
const PATTERNS: [&str; 18] = [
    "one-4m",
    "spare-4m",
    "spare-8m",
    "spare-16m",
    "two-4m",
    "two-16m",
    "eight-256k",
    "any-256k-4m",
    "any-1m-16m",
    "any-4m-64m",
    "four-1m-16m",
    "three-4m-64m",
    "batch-256k",
    "batch-1m",
    "batch-4m",
    "mixed-4m",
    "threads-1m",
    "threads-4m",
];

/// The command line of `prezero bench busy`.
#[derive(clap::Args)]
#[command(after_help = "Example: prezero bench busy --only batch-1m,threads-4m --lines 16")]
pub struct Busy {
    #[command(flatten)]
    turns: Turns,
    /// Which patterns [all]
    #[arg(long, value_delimiter = ',', value_name = "NAME,...", value_parser = PATTERNS)]
    only: Vec<String>,
    /// How long a run takes, s
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    seconds: f64,
    /// Cache lines that are written in each page, 1 to 64
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    lines: u8,
}

impl Case for Busy {
    fn measure(&self) -> Result<Report> {
        anyhow::ensure!(
            self.seconds > 0.0,
            "--seconds {}: nothing would be measured",
            self.seconds
        );
        let (program, ways) = (Program::busy()?, Ways::find(&["glibc-keep"])?);
        let rest = [self.seconds.to_string(), self.lines.to_string()];
        let asked = |pattern: &&&str| {
            self.only.is_empty() || self.only.iter().any(|only| only == **pattern)
        };
        let ours = ways.prezero();
        let never =
            ours.clone().map(|way| way.with("never scrubs", &[("PREZERO_SCRUB_START", "never")]));
        let contest = Contest {
            benchmark: "busy",
            title: "busy: programs that never pause",
            note: format!("a step of the pattern; {} lines of each page are written", self.lines),
            labels: &["pattern"],
            rows: PATTERNS.iter().filter(asked).map(|one| Row::of(&[one]).and(&rest)).collect(),
            ways: ways.get("glibc-keep").into_iter().chain(never).chain(ours).collect(),
            program: &program.path(),
            source: Source::Printed(&[("step", "us")]),
            counters: &[],
        };
        contest.run(&self.turns, ways.0)
    }
}
