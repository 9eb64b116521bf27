//! Where a report goes: a table to stdout, and everything as JSON to a file or to stdout.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use prezero::Config;
use prezero::internal::KNOBS;
use serde::{Deserialize, Serialize};

use crate::figure::Report;
use crate::progress::interrupted;
use crate::text;

/// Which form the file has.
const FORMAT: u32 = 2;

/// A report, and how it was taken.
#[derive(Debug, Serialize, Deserialize)]
pub struct Taken {
    /// [`FORMAT`].
    format: u32,
    /// What was measured.
    #[serde(flatten)]
    pub report: Report,
    /// Whether it ran to its end, without an interruption.
    pub complete: bool,
    /// Version.
    pub prezero: String,
    /// The command line.
    pub command: String,
    /// prezero's knobs, as its programs found them in the environment; a benchmark that turns
    /// one says so in its figures.
    pub settings: BTreeMap<String, String>,
    /// Those that are not as they are by default.
    pub turned: Vec<String>,
    /// When it was written, in seconds since 1970.
    pub taken_s: u64,
}

/// The knobs in an environment, and those that are not as they are by default.
fn settings<'a>(get: impl Fn(&str) -> Option<&'a str>) -> (BTreeMap<String, String>, Vec<String>) {
    let machine = prezero::Machine::here();
    let plain = Config::new(&machine);
    // With a knob that makes no sense nothing would have run.
    let config = Config::from_env(&machine, get).unwrap_or(plain);
    let all = KNOBS.iter().map(|knob| (knob.name.into(), config.show(knob).to_string()));
    let turned =
        KNOBS.iter().filter(|knob| config.show(knob).to_string() != plain.show(knob).to_string());
    (all.collect(), turned.map(|knob| knob.name.into()).collect())
}

/// Those of this process.
pub fn settings_here() -> (BTreeMap<String, String>, Vec<String>) {
    let environment: BTreeMap<String, String> = std::env::vars().collect();
    settings(|name| environment.get(name).map(String::as_str))
}

impl Taken {
    /// As this process took it.
    pub fn now(report: Report) -> Taken {
        let arguments = std::env::args_os().skip(1);
        let words = arguments.map(|word| word.to_string_lossy().into_owned());
        let command =
            ["prezero bench".into()].into_iter().chain(words).collect::<Vec<_>>().join(" ");
        let (settings, turned) = settings_here();
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Taken {
            format: FORMAT,
            report,
            complete: !interrupted(),
            prezero: env!("CARGO_PKG_VERSION").into(),
            command,
            settings,
            turned,
            taken_s: since.map_or(0, |since| since.as_secs()),
        }
    }

    /// As a file has it.
    ///
    /// # Errors
    /// It cannot be read, or is none.
    pub fn read(file: &Path) -> Result<Taken> {
        let named = || file.display().to_string();
        let text = std::fs::read_to_string(file).with_context(named)?;
        let json: serde_json::Value = serde_json::from_str(&text)
            .with_context(|| format!("{}: give a file that bench --json wrote", named()))?;
        ensure!(
            json["format"] == FORMAT,
            "{}: not what this version's bench --json writes; measure again",
            named()
        );
        serde_json::from_value(json).with_context(named)
    }
}

/// The knobs of this process's environment.
pub fn config_here() -> Config {
    let machine = prezero::Machine::here();
    let environment: BTreeMap<String, String> = std::env::vars().collect();
    let get = |name: &str| environment.get(name).map(String::as_str);
    // With a knob that makes no sense nothing would have run.
    Config::from_env(&machine, get).unwrap_or_else(|_| Config::new(&machine))
}

/// Where the report goes.
#[derive(clap::Args, Debug, Default)]
pub struct Output {
    /// Write JSON to FILE, too; or to stdout alone
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-", global = true)]
    json: Option<PathBuf>,
}

impl Output {
    /// Prints the table, or the report as JSON; or the one and writes the other. The report comes back.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn put(&self, report: Report) -> Result<Taken> {
        let taken = Taken::now(report);
        let json = serde_json::to_string_pretty(&taken)? + "\n";
        if self.json.as_ref().is_some_and(|file| file.as_os_str() == "-") {
            prezero_sys::print!("{json}")?;
            return Ok(taken);
        }
        prezero_sys::print!("{}", text::render(&taken.report))?;
        if !taken.complete {
            prezero_sys::print!("interrupted: only what was measured to its end is above\n")?;
        }
        if let Some(file) = &self.json {
            let named = || format!("--json {}: give a file that can be written", file.display());
            std::fs::write(file, json).with_context(named)?;
        }
        Ok(taken)
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
        assert_eq!((all["scrub-rate"].as_str(), turned), ("2G", vec!["scrub-rate".to_string()]));
    }
}
