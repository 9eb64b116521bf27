//! `prezero bench thin`: large zeroed blocks of which little is touched.

use anyhow::Result;

use super::{Contest, Row, Source, Turns, Way, Ways};
use crate::figure::{Case, Report};
use crate::peers::GLIBC;
use crate::worker::Program;

/// MiB, pages touched of a thousand.
const BLOCKS: [[&str; 2]; 4] = [["1024", "20"], ["64", "50"], ["64", "200"], ["8", "100"]];
/// Between two blocks, ms.
const PAUSES: [&str; 2] = ["0", "30"];

/// The command line of `prezero bench thin`.
#[derive(clap::Args)]
#[command(after_help = "Example: prezero bench thin --runs 3")]
pub struct Thin {
    #[command(flatten)]
    turns: Turns,
}

impl Case for Thin {
    fn measure(&self) -> Result<Report> {
        let (program, ways) = (Program::thin()?, Ways::find(&[GLIBC])?);
        let rows = BLOCKS
            .iter()
            .flat_map(|[mib, touched]| PAUSES.map(|pause| Row::of(&[mib, touched, pause])));
        let contest = Contest {
            benchmark: "thin",
            title: "thin: blocks of which little is touched",
            note: "calloc, touch and free, and what was resident at the peak".into(),
            labels: &["MiB", "touched of 1000", "pause, ms"],
            rows: rows.collect(),
            ways: ways.0.allocators.iter().cloned().map(Way::of).collect(),
            program: &program.path(),
            source: Source::Printed(&[("block", "ms"), ("peak", "MiB")]),
            counters: &[],
        };
        contest.run(&self.turns, ways.0)
    }
}
