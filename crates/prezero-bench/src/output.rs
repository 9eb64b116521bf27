//! Where a report goes: a table to stdout, and everything as JSON to a file or to stdout.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result};
use prezero::Config;
use prezero::internal::KNOBS;
use serde::Serialize;

use crate::figure::Report;
use crate::progress::interrupted;
use crate::text;

/// Which form the file has.
const FORMAT: u32 = 2;

/// A report, and how it was taken.
#[derive(Debug, Serialize)]
pub struct Taken {
    /// [`FORMAT`].
    format: u32,
    /// What was measured.
    #[serde(flatten)]
    pub report: Report,
    /// Whether it ran to its end, without an interruption.
    pub complete: bool,
    /// Version.
    prezero: String,
    /// The command line.
    command: String,
    /// prezero's knobs, as its programs found them in the environment; a benchmark that turns
    /// one says so in its figures.
    settings: BTreeMap<String, String>,
    /// Those that are not as they are by default.
    turned: Vec<String>,
    /// When it was written, in seconds since 1970.
    taken_s: u64,
}

/// The knobs in an environment. With a knob that makes no sense nothing would have run.
fn config<'a>(get: impl Fn(&str) -> Option<&'a str>) -> Config {
    let machine = prezero::Machine::here();
    Config::from_env(&machine, get).unwrap_or_else(|_| Config::new(&machine))
}

/// Those of this process's environment.
pub fn config_here() -> Config {
    let environment: BTreeMap<String, String> = std::env::vars().collect();
    config(|name| environment.get(name).map(String::as_str))
}

/// All knobs, and those that are not as they are by default.
fn settings(config: &Config) -> (BTreeMap<String, String>, Vec<String>) {
    let plain = Config::new(&prezero::Machine::here());
    let all = KNOBS.iter().map(|knob| (knob.name.into(), config.show(knob).to_string()));
    let is_turned = |knob: &&'static prezero::internal::Knob| {
        config.show(knob).to_string() != plain.show(knob).to_string()
    };
    (all.collect(), KNOBS.iter().filter(is_turned).map(|knob| knob.name.into()).collect())
}

impl Taken {
    /// As this process took it.
    pub fn now(mut report: Report) -> Taken {
        let arguments = std::env::args_os().skip(1);
        let words = arguments.map(|word| word.to_string_lossy().into_owned());
        let command =
            ["prezero bench".into()].into_iter().chain(words).collect::<Vec<_>>().join(" ");
        let (settings, turned) = settings(&config_here());
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        for sheet in &mut report.sheets {
            sheet.verdicts = sheet.judged();
        }
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
        let (all, turned) = settings(&config(|_| None));
        assert_eq!(all.len(), KNOBS.len());
        assert!(turned.is_empty());
        let (all, turned) =
            settings(&config(|name| (name == "PREZERO_SCRUB_RATE").then_some("2G")));
        assert_eq!((all["scrub-rate"].as_str(), turned), ("2G", vec!["scrub-rate".to_string()]));
    }
}
