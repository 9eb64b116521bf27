//! Where a report goes: a table to stdout, and everything as JSON to a file or to stdout.

use std::path::PathBuf;

use anyhow::{Context, Result};

/// `--json`, as every benchmark has it.
#[derive(clap::Args, Debug, Default)]
pub struct Output {
    /// Write everything as JSON to FILE as well; with - or nothing to stdout, without the table
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
}

impl Output {
    /// Prints the table, or the report as JSON; or the one and writes the other.
    pub fn put(
        &self,
        report: &impl serde::Serialize,
        table: impl FnOnce() -> String,
    ) -> Result<()> {
        let Some(file) = &self.json else {
            print!("{}", table());
            return Ok(());
        };
        let json = serde_json::to_string_pretty(report)? + "\n";
        if file.as_os_str() == "-" {
            print!("{json}");
            return Ok(());
        }
        print!("{}", table());
        std::fs::write(file, json)
            .with_context(|| format!("--json {}: give a file that can be written", file.display()))
    }
}
