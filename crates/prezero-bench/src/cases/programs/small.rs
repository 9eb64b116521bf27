//! `prezero bench small`: small blocks that come and go together, after one large block was freed.
//!
//! glibc keeps for the small ones what it learnt from the large one, which prezero has served.

use anyhow::Result;

use super::{Contest, Row, Source, Turns, Way, Ways};
use crate::figure::{Case, Report};
use crate::peers::GLIBC;
use crate::worker::Program;

/// MiB of small blocks, MiB of the large one.
const ROWS: [[&str; 2]; 4] = [["1", "4"], ["6", "4"], ["20", "16"], ["1", "0"]];

/// The command line of `prezero bench small`.
#[derive(clap::Args)]
#[command(after_help = "Example: prezero bench small --also old/prezero")]
pub struct Small {
    #[command(flatten)]
    turns: Turns,
}

impl Case for Small {
    fn measure(&self) -> Result<Report> {
        let (program, ways) = (Program::small()?, Ways::find(&[GLIBC])?);
        let contest = Contest {
            benchmark: "small",
            title: "small: small blocks after a large one",
            note: "a round that takes and frees all small blocks".into(),
            labels: &["MiB of small blocks", "MiB of the large one"],
            rows: ROWS.iter().map(|row| Row::of(row)).collect(),
            ways: ways.0.allocators.iter().cloned().map(Way::of).collect(),
            program: &program.path(),
            source: Source::Printed(&[("round", "us")]),
            counters: &[],
        };
        contest.run(&self.turns, ways.0)
    }
}
