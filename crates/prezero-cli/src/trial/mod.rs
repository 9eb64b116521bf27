//! `prezero try`: a program without and with prezero, in turns, and one verdict.
//!
//! Each turn runs the program in four ways, in random order: as it is, under `prezero run`, under
//! `prezero run --scrub-start never`, and with glibc told to keep its memory. A first turn is not counted: it brings
//! the program and its files into the page cache. Where the time has too few turns of four, a turn is the first
//! two, and one plain run alone comes before. The first run under prezero writes the counters
//! that the verdict's reason comes from.
//!
//! A program that fails is not measured.
//!
//! | module | holds |
//! |---|---|
//! | [`way`] | the ways to run a program |
//! | [`input`] | what each run reads |
//! | [`once`] | one run: a program to its end, or a service and its load |
//! | [`plan`] | what a turn is, how long turns take, when they end: pure |
//! | [`turns`] | how many turns, and what they came to |
//! | [`verdict`] | what that means: pure |
//! | [`told`] | the table, and JSON |

mod input;
mod once;
mod plan;
mod told;
mod turns;
mod verdict;
mod way;

use std::ffi::OsString;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use regex_lite::Regex;

use self::input::Input;
use self::once::{Better, Measured};
use self::plan::{Bound, Ended};
use self::turns::Taken;
use self::verdict::Verdict;
use crate::claim::Wait;
use prezero_command::help::OneScreen;
use prezero_command::library;
use prezero_command::outcome::Interrupted;
use prezero_command::program::{self, Fit};

/// How long turns go on unless the command line says so.
const FOR: Duration = Duration::from_secs(60);

/// The command line of `prezero try`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    prezero try -- python3 script.py\n  \
    prezero try --figure 'took ([0-9.]+)' --better less -- ./program\n  \
    prezero try --measure 'redis-benchmark -q -t set' --figure 'SET: ([0-9.]+)' \\\n      \
    -- redis-server")]
pub struct Try {
    #[command(flatten)]
    _help: OneScreen,
    /// Number of turns of all four
    #[arg(long, value_name = "N", conflicts_with = "time", value_parser = turns_of)]
    pairs: Option<usize>,
    /// The most time for all turns [60s]
    #[arg(long = "for", id = "time", value_name = "TIME", value_parser = time_of)]
    time: Option<Wait>,
    /// PROGRAM is a service: start it, run this load, stop it
    #[arg(long, value_name = "CMD", value_parser = load_of)]
    measure: Option<String>,
    /// Judge by a figure that CMD, or PROGRAM, prints
    #[arg(long, value_name = "REGEX")]
    figure: Option<String>,
    /// Which figures are better [more]
    #[arg(
        long,
        value_name = "more|less",
        requires = "figure",
        default_value = "more",
        hide_possible_values = true,
        hide_default_value = true
    )]
    better: Better,
    /// How PROGRAM ends when it does its work [0]
    #[arg(long, value_name = "N", conflicts_with = "measure")]
    status: Option<u8>,
    /// Print one JSON object with every run
    #[arg(long)]
    json: bool,
    /// The program and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        value_names = ["PROGRAM", "ARGS"],
        hide_short_help = true
    )]
    command: Vec<OsString>,
}

fn turns_of(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(turns) if turns > 0 => Ok(turns),
        _ => Err("give a number from 1 up".into()),
    }
}

fn time_of(text: &str) -> Result<Wait, String> {
    match text.parse()? {
        Wait(Duration::ZERO) => Err("nothing would be measured; give 10s or more".into()),
        time => Ok(time),
    }
}

fn load_of(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err("give the command of the load".into());
    }
    Ok(text.to_owned())
}

impl Try {
    /// Measures and prints.
    ///
    /// # Errors
    /// The program does not run, or not as it does without prezero.
    pub fn run(&self) -> Result<()> {
        let figure = self.figure()?;
        let path = match program::find(&self.command[0], std::env::var_os("PATH")) {
            Ok(path) => path,
            Err(missing) => bail!("{missing}"),
        };
        if let Some(missing) = program::without_interpreter(&path) {
            bail!("{missing}");
        }
        let preloaded = std::env::var_os("LD_PRELOAD").unwrap_or_default();
        if preloaded.to_string_lossy().contains("libprezero.so") {
            bail!("LD_PRELOAD has libprezero.so, so no run would be without it; unset it");
        }
        if let Fit::CannotPreload(why) = program::fit(&path) {
            let verdict = Verdict::out_of_reach(&why);
            return told::print(&Taken::nothing(&self.command), &verdict, self.json);
        }
        // A run under prezero would be a plain one.
        library::in_front_of(&library::find(library::ALLOCATOR)?, None)?;
        let measured = Measured { load: self.measure.clone(), figure, input: Input::own()? };
        let taken = turns::take(&measured, &self.command, self.status.unwrap_or(0), self.bound())?;
        let verdict = Verdict::of(&taken.seen());
        told::print(&taken, &verdict, self.json)?;
        match taken.ended {
            Ended::Interrupted => Err(Interrupted).context("what was measured stands above"),
            _ => Ok(()),
        }
    }

    fn bound(&self) -> Bound {
        match (self.pairs, self.time) {
            (Some(pairs), _) => Bound::Turns(pairs),
            (None, time) => Bound::Time(time.map_or(FOR, |Wait(time)| time)),
        }
    }

    fn figure(&self) -> Result<Option<(Regex, Better)>> {
        let Some(pattern) = &self.figure else { return Ok(None) };
        let regex = Regex::new(pattern).with_context(|| format!("--figure {pattern}"))?;
        if regex.captures_len() < 2 {
            bail!("--figure {pattern}: no group; write the number as ([0-9.]+)");
        }
        Ok(Some((regex, self.better)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_measure_nothing_is_refused() {
        assert_eq!(time_of("500ms"), Ok(Wait(Duration::from_millis(500))));
        assert!(time_of("0s").unwrap_err().contains("give 10s or more"));
        assert!(time_of("never").is_err() && turns_of("0").is_err());
        assert_eq!(load_of("true").as_deref(), Ok("true"));
        assert_eq!(load_of(" ").unwrap_err(), "give the command of the load");
    }
}
