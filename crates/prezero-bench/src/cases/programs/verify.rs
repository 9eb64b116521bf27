//! `prezero bench verify`: what reading zero memory back costs a `calloc` that finds its block ready.

use anyhow::Result;

use super::{Contest, Row, Source, Turns, Ways};
use crate::figure::{Case, Report};
use crate::peers::GLIBC;
use crate::worker::Program;

/// Of a run.
const ROUNDS: &str = "1000";
const KNOB: &str = "PREZERO_VERIFY";

/// The command line of `prezero bench verify`.
#[derive(clap::Args)]
#[command(after_help = "Example: prezero bench verify --runs 15")]
pub struct Verify {
    #[command(flatten)]
    turns: Turns,
}

impl Case for Verify {
    fn measure(&self) -> Result<Report> {
        let (program, ways) = (Program::verify()?, Ways::find(&[GLIBC])?);
        let ours = ways.needed()?;
        let modes = ["off", "sample", "full"].map(|mode| ours.clone().with(mode, &[(KNOB, mode)]));
        let contest = Contest {
            benchmark: "verify",
            title: "verify: a block that lies ready",
            note: "calloc of 64 KiB, by how much of it is read back first".into(),
            labels: &["block"],
            rows: vec![Row { of: vec!["64 KiB".into()], arguments: vec![ROUNDS.into()] }],
            ways: modes.into(),
            program: &program.path(),
            source: Source::Printed(&[("calloc", "ns")]),
            counters: &[],
        };
        contest.run(&self.turns, ways.0)
    }
}
