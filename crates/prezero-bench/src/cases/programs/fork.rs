//! `prezero bench fork`: what a fork costs a process that has much memory idle.
//!
//! prezero brings a thread and mappings of its own, so that the row without idle memory and the way with a second
//! thread show what these cost by themselves.

use anyhow::Result;

use super::{Contest, Row, Source, Turns, Ways};
use crate::figure::{Case, Report};
use crate::peers::GLIBC;
use crate::worker::Program;

/// Freed before the forks, MiB.
const FREED: [&str; 2] = ["0", "1024"];
/// In a run.
const FORKS: &str = "300";

/// The command line of `prezero bench fork`.
#[derive(clap::Args)]
#[command(after_help = "Example: prezero bench fork --runs 5")]
pub struct Fork {
    #[command(flatten)]
    turns: Turns,
}

impl Case for Fork {
    fn measure(&self) -> Result<Report> {
        let (program, ways) = (Program::fork()?, Ways::find(&[GLIBC])?);
        let plain = ways.get(GLIBC);
        let threads = plain.clone().map(|way| way.given("glibc, two threads", &["thread"]));
        let contest = Contest {
            benchmark: "fork",
            title: "fork: a process with memory idle",
            note: "a fork, and a fork with its child's end".into(),
            labels: &["MiB freed"],
            rows: FREED.map(|mib| Row::of(&[mib]).and(&[FORKS.into()])).into(),
            ways: plain.into_iter().chain(threads).chain(ways.prezero()).collect(),
            program: &program.path(),
            source: Source::Printed(&[("fork", "us"), ("child gone", "us")]),
            counters: &[],
        };
        contest.run(&self.turns, ways.0)
    }
}
