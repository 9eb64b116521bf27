//! `prezero bench grow`: large blocks that grow by `realloc`.
//!
//! The kernel moves the mappings that glibc gives such blocks. The first time and the later ones differ: memory is
//! resident then.

use anyhow::Result;

use super::{Contest, Row, Source, Turns, Way, Ways};
use crate::figure::{Case, Report};
use crate::peers::GLIBC;
use crate::worker::Program;

/// Blocks, MiB from, MiB to, percent of each step, times, small blocks that are taken after each step.
const ROWS: [[&str; 6]; 6] = [
    ["1", "1", "1024", "50", "3", "0"],
    ["1", "1", "1024", "10", "3", "4"],
    ["1", "256", "384", "50", "5", "0"],
    ["2", "128", "256", "50", "5", "0"],
    ["8", "16", "48", "50", "5", "0"],
    ["4", "4", "16", "50", "9", "0"],
];

/// The command line of `prezero bench grow`.
#[derive(clap::Args)]
#[command(after_help = "Example: prezero bench grow --runs 3")]
pub struct Grow {
    #[command(flatten)]
    turns: Turns,
}

impl Case for Grow {
    fn measure(&self) -> Result<Report> {
        let program = Program::grow()?;
        let ways = Ways::find(&[GLIBC, "mimalloc", "jemalloc", "tcmalloc"])?;
        let contest = Contest {
            benchmark: "grow",
            title: "grow: blocks that grow by realloc",
            note: "all blocks from the first size to the last, the first time and again".into(),
            labels: &["blocks", "MiB from", "to", "percent", "times", "neighbours"],
            rows: ROWS.iter().map(|row| Row::of(row)).collect(),
            ways: ways.0.allocators.iter().cloned().map(Way::of).collect(),
            program: &program.path(),
            source: Source::Printed(&[("first", "ms"), ("again", "ms"), ("peak", "MiB")]),
            counters: &[],
        };
        contest.run(&self.turns, ways.0)
    }
}
