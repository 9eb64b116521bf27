//! Where a report goes: a table to stdout, and everything as JSON to a file or to stdout.

use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::Serialize;

use super::progress::interrupted;

/// A report, and how it was taken.
#[derive(Serialize)]
struct Taken<'a, R> {
    #[serde(flatten)]
    report: &'a R,
    /// Whether nobody interrupted it.
    complete: bool,
    /// Version.
    prezero: &'static str,
    /// The command line.
    command: String,
    /// Seconds since 1970.
    taken_s: u64,
}

impl<'a, R> Taken<'a, R> {
    fn now(report: &'a R) -> Taken<'a, R> {
        let arguments = std::env::args_os().skip(1);
        let words = arguments.map(|word| word.to_string_lossy().into_owned());
        let command = ["prezero".into()].into_iter().chain(words).collect::<Vec<_>>().join(" ");
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Taken {
            report,
            complete: !interrupted(),
            prezero: env!("CARGO_PKG_VERSION"),
            command,
            taken_s: since.map_or(0, |since| since.as_secs()),
        }
    }
}

fn note() -> &'static str {
    if interrupted() { "interrupted: only what was measured to its end is above\n" } else { "" }
}

/// `--json`, as every benchmark has it.
#[derive(clap::Args, Debug, Default)]
pub struct Output {
    /// Write everything as JSON to FILE as well; with - or nothing to stdout, without the table
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
}

impl Output {
    /// Prints the table, or the report as JSON; or the one and writes the other.
    pub fn put(&self, report: &impl Serialize, table: impl FnOnce() -> String) -> Result<()> {
        let Some(file) = &self.json else {
            print!("{}{}", table(), note());
            return Ok(());
        };
        let json = serde_json::to_string_pretty(&Taken::now(report))? + "\n";
        if file.as_os_str() == "-" {
            print!("{json}");
            return Ok(());
        }
        print!("{}{}", table(), note());
        std::fs::write(file, json)
            .with_context(|| format!("--json {}: give a file that can be written", file.display()))
    }
}
