//! `prezero bench single`: what a program with one thread pays in libc once there is a scrubd.
//!
//! libc locks as soon as it believes that there are more threads. A second thread of the program's own is what
//! scrubd would cost as a `pthread`.

use anyhow::Result;

use super::{Contest, Row, Source, Turns, Ways};
use crate::figure::{Case, Report};
use crate::peers::GLIBC;
use crate::worker::Program;

/// The command line of `prezero bench single`.
#[derive(clap::Args)]
#[command(after_help = "Example: prezero bench single --runs 5")]
pub struct Single {
    #[command(flatten)]
    turns: Turns,
}

impl Case for Single {
    fn measure(&self) -> Result<Report> {
        let (program, ways) = (Program::single()?, Ways::find(&[GLIBC])?);
        let plain = ways.get(GLIBC);
        let threads = plain.clone().map(|way| way.given("glibc, two threads", &["thread"]));
        let contest = Contest {
            benchmark: "single",
            title: "single: libc in a program with one thread",
            note: "a putc, and a malloc with its free of a small block".into(),
            labels: &["program"],
            rows: vec![Row { of: vec!["one thread".into()], arguments: vec![] }],
            ways: plain.into_iter().chain(threads).chain(ways.prezero()).collect(),
            program: &program.path(),
            source: Source::Printed(&[("putc", "ns"), ("malloc and free", "ns")]),
            counters: &[],
        };
        contest.run(&self.turns, ways.0)
    }
}
