//! `prezero bench short`: what a short compile takes under prezero.
//!
//! `cc1plus` itself, without its driver. The ways between glibc and `prezero run` say which part costs what: the
//! library that is preloaded, requests that reach it, and scrubd.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use super::{Contest, Row, Source, Turns, Way, Ways};
use crate::figure::{Case, Report};
use crate::machine;
use crate::peers::{Allocator, GLIBC};
use crate::scratch::Scratch;

const TEXT: &str = include_str!("../../../../../bench/programs/short.cc");

/// The command line of `prezero bench short`.
#[derive(clap::Args)]
#[command(after_help = "Example: prezero bench short --runs 60")]
pub struct Short {
    #[command(flatten)]
    turns: Turns,
}

impl Case for Short {
    fn measure(&self) -> Result<Report> {
        let compiler = machine::output("g++", &["-print-prog-name=cc1plus"]).map(PathBuf::from);
        let compiler =
            compiler.filter(|path| path.is_file()).context("no g++; apt-get install g++")?;
        let (scratch, ways) = (Scratch::new()?, Ways::find(&[GLIBC])?);
        std::fs::write(scratch.file("short.cc"), TEXT)?;
        let file = |name: &str| scratch.file(name).to_string_lossy().into_owned();
        let (source, product) = (file("short.cc"), file("short.s"));
        let folder = format!("{}-linux-gnu", std::env::consts::ARCH);
        let arguments =
            ["-quiet", "-imultiarch", &folder, "-D_GNU_SOURCE", "-O2", &source, "-o", &product];
        let ours = ways.needed()?;
        let library = ours.allocator.library.clone();
        ensure!(library.is_some(), "prezero without a library");
        // By LD_PRELOAD alone, without the command.
        let alone = |name: &str, knobs: &[(&str, &str)]| {
            let name_and_library = Allocator { library: library.clone(), ..Allocator::plain() };
            Way::of(name_and_library).with(name, knobs)
        };
        let contest = Contest {
            benchmark: "short",
            title: "short: a compile that ends soon",
            note: "cc1plus on a few lines that use the C++ library".into(),
            labels: &["program"],
            rows: vec![Row { of: vec!["cc1plus".into()], ..Row::of(&arguments) }],
            ways: vec![
                ways.get(GLIBC).context("no glibc")?,
                alone("library alone", &[]),
                alone("no request reaches it", &[("PREZERO_THRESHOLD", "1G")]),
                alone("never scrubs", &[("PREZERO_SCRUB_START", "never")]),
                ours,
            ],
            program: &compiler,
            source: Source::Used,
            counters: &[],
        };
        contest.run(&self.turns, ways.0)
    }
}
