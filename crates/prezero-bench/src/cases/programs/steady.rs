//! `prezero bench steady`: programs after their first seconds, beside every peer.
//!
//! An allocator learns in the first seconds of a program; what it gains then need not last. So nothing of those
//! counts here. Sizes are no powers of four, and besides one block a request there are a request handler, phases of
//! small and large blocks, and frames.

use anyhow::Result;

use super::{Contest, Row, Source, Turns, Ways};
use crate::figure::{Case, Report};
use crate::worker::Program;

/// Sizes of one block a request.
const SIZES: [&str; 13] = [
    "128K", "160K", "256K", "384K", "512K", "768K", "1536K", "3M", "6M", "12M", "24M", "32M", "48M",
];
/// Four lines of each page are written, or all.
const FILLS: [&str; 2] = ["steady", "fill"];
/// Other programs of `bench/programs/ablate.c`.
const OTHERS: [&str; 4] = ["handler", "handler-2", "phases", "frames"];
/// Peers; the first is the one that prezero is compared with, run by run.
const PEERS: [&str; 5] = ["glibc-keep", "glibc", "jemalloc", "mimalloc", "tcmalloc"];

/// The command line of `prezero bench steady`.
#[derive(clap::Args)]
#[command(
    after_help = "Example: prezero bench steady --only steady-512K,fill-512K,handler --runs 5"
)]
pub struct Steady {
    #[command(flatten)]
    turns: Turns,
    /// Which programs: steady-SIZE, fill-SIZE, handler, handler-2, phases, frames [all]
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    only: Vec<String>,
    /// What does not count at the beginning of a run, s
    #[arg(long, value_name = "S", default_value_t = 3.0)]
    warm: f64,
    /// How long a run counts, s
    #[arg(long, value_name = "S", default_value_t = 2.0)]
    seconds: f64,
    /// Which peers
    #[arg(long, value_delimiter = ',', value_name = "NAME,...", value_parser = PEERS)]
    peers: Vec<String>,
}

/// All programs, in the order of the table.
fn programs() -> Vec<String> {
    let sized =
        FILLS.iter().flat_map(|fill| SIZES.iter().map(move |size| format!("{fill}-{size}")));
    sized.chain(OTHERS.map(String::from)).collect()
}

impl Case for Steady {
    fn measure(&self) -> Result<Report> {
        anyhow::ensure!(
            self.seconds > 0.0 && self.warm >= 0.0,
            "--warm {}, --seconds {}: nothing would be measured",
            self.warm,
            self.seconds
        );
        let peers: Vec<&str> = match &self.peers[..] {
            [] => PEERS.to_vec(),
            some => some.iter().map(String::as_str).collect(),
        };
        let only = if self.only.is_empty() { programs() } else { self.only.clone() };
        let (program, ways) = (Program::ablate()?, Ways::find(&peers)?);
        let ms = |seconds: f64| format!("{:.0}", seconds * 1e3);
        let rest = [ms(self.warm), ms(self.seconds)];
        let contest = Contest {
            benchmark: "steady",
            title: "steady: programs after their first seconds",
            note: format!(
                "of one request, after {} s; four lines of each page, or all (fill)",
                self.warm
            ),
            labels: &["program"],
            rows: only.iter().map(|one| Row::of(&[one]).and(&rest)).collect(),
            ways: peers.iter().filter_map(|peer| ways.get(peer)).chain(ways.prezero()).collect(),
            program: &program.path(),
            source: Source::Requests,
            counters: &[],
        };
        contest.run(&self.turns, ways.0)
    }
}
