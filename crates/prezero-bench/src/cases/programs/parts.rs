//! `prezero bench parts`: what `calloc`, writing and `free` take by themselves after a pause.
//!
//! Most of use with `--also` and the prezero of another build.

use anyhow::{Result, ensure};
use prezero::Size;

use super::{Contest, Row, Source, Turns, Way, Ways};
use crate::figure::{Case, Report};
use crate::worker::Program;

/// Rounds of a run.
const ROUNDS: &str = "200";

/// The command line of `prezero bench parts`.
#[derive(clap::Args)]
#[command(after_help = "Example: prezero bench parts --also old/prezero --sizes 64K,1M --lines 4")]
pub struct Parts {
    #[command(flatten)]
    turns: Turns,
    /// Block sizes, whole pages
    #[arg(long, value_delimiter = ',', value_name = "SIZE,...", default_value = "64K,256K,1M")]
    sizes: Vec<Size>,
    /// Cache lines that are written in each page, 1 to 64
    #[arg(long, value_delimiter = ',', value_name = "N,...", default_value = "1,16,64",
          value_parser = clap::value_parser!(u8).range(1..=64))]
    lines: Vec<u8>,
}

impl Case for Parts {
    fn measure(&self) -> Result<Report> {
        let (program, ways) = (Program::parts()?, Ways::find(&["glibc-keep"])?);
        let mut rows = vec![];
        for size in &self.sizes {
            let pages = size.0 > 0 && size.0.is_multiple_of(prezero::PAGE);
            ensure!(pages, "--sizes {size}: give whole pages of 4K");
            rows.extend(self.lines.iter().map(|lines| {
                let arguments = [size.0.to_string(), lines.to_string(), ROUNDS.into()];
                Row { of: vec![size.to_string(), lines.to_string()], arguments: arguments.into() }
            }));
        }
        let contest = Contest {
            benchmark: "parts",
            title: "parts: a block after a pause",
            note: "calloc, writing and free, each by itself and all together".into(),
            labels: &["size", "lines"],
            rows,
            ways: ways.0.allocators.iter().cloned().map(Way::of).collect(),
            program: &program.path(),
            source: Source::Printed(&[
                ("calloc", "ns"),
                ("write", "ns"),
                ("free", "ns"),
                ("all", "ns"),
            ]),
            counters: &[],
        };
        contest.run(&self.turns, ways.0)
    }
}
