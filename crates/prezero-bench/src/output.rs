//! Where a report goes: a table to stdout, and everything as JSON to a file or to stdout.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result};
use prezero::{Config, KNOBS};
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
    /// prezero's knobs, as its programs found them in the environment; a benchmark that turns
    /// one says so in its rows.
    settings: BTreeMap<&'static str, String>,
    /// Those that are not as they are by default.
    turned: Vec<&'static str>,
    /// Seconds since 1970.
    taken_s: u64,
}

/// The knobs in an environment, and those that are not as they are by default.
fn settings<'a>(
    get: impl Fn(&str) -> Option<&'a str>,
) -> (BTreeMap<&'static str, String>, Vec<&'static str>) {
    let machine = prezero_cli::library::machine();
    let plain = Config::new(&machine);
    // With a knob that makes no sense nothing would have run.
    let config = Config::from_env(&machine, get).unwrap_or_else(|_| plain.clone());
    let all = KNOBS.iter().map(|knob| (knob.name, config.show(knob).to_string()));
    let turned =
        KNOBS.iter().filter(|knob| config.show(knob).to_string() != plain.show(knob).to_string());
    (all.collect(), turned.map(|knob| knob.name).collect())
}

/// Those of this process.
pub fn settings_here() -> (BTreeMap<&'static str, String>, Vec<&'static str>) {
    let environment: BTreeMap<String, String> = std::env::vars().collect();
    settings(|name| environment.get(name).map(String::as_str))
}

impl<'a, R> Taken<'a, R> {
    fn now(report: &'a R) -> Taken<'a, R> {
        let arguments = std::env::args_os().skip(1);
        let words = arguments.map(|word| word.to_string_lossy().into_owned());
        let command =
            ["prezero bench".into()].into_iter().chain(words).collect::<Vec<_>>().join(" ");
        let (settings, turned) = settings_here();
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Taken {
            report,
            complete: !interrupted(),
            prezero: env!("CARGO_PKG_VERSION"),
            command,
            settings,
            turned,
            taken_s: since.map_or(0, |since| since.as_secs()),
        }
    }
}

/// The knobs of this process's environment.
pub fn config_here() -> Config {
    let machine = prezero_cli::library::machine();
    let environment: BTreeMap<String, String> = std::env::vars().collect();
    let get = |name: &str| environment.get(name).map(String::as_str);
    // With a knob that makes no sense nothing would have run.
    Config::from_env(&machine, get).unwrap_or_else(|_| Config::new(&machine))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_all_the_knobs_and_those_that_were_turned_are_named() {
        let (all, turned) = settings(|_| None);
        assert_eq!((all.len(), all["scrub-start"].as_str()), (KNOBS.len(), "4"));
        assert!(turned.is_empty());
        let (all, turned) = settings(|name| (name == "PREZERO_SCRUB_RATE").then_some("2G"));
        assert_eq!((all["scrub-rate"].as_str(), turned), ("2G", vec!["scrub-rate"]));
    }
}
