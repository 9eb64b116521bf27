//! `prezero-bench`, which `prezero bench` becomes: side by side with the allocators that people use, in one run,
//! interleaved, through the same `LD_PRELOAD` door.
//!
//! A benchmark is a command line, a program and a number: most stand in `bench/cases.toml` ([`table`]), and one
//! [`runner`] runs them. [`cases`] are those that no command line can say. `bench/plot.py` draws what was measured.
//!
//! | layer | modules |
//! |---|---|
//! | figures | [`figure`] (what a case returns, how it is laid out and judged), [`pool`] (of slices); [`prezero_host::samples`] has medians and noise |
//! | where they go | [`text`], [`output`] (JSON), [`plot`] (the script) |
//! | what runs | [`table`], [`peers`] (the allocators), [`worker`], [`broker`], [`neighbours`], [`cost`] |
//! | how it runs | [`runner`], [`progress`], [`scratch`], [`parse`] |
//!
//! Layers: pool, machine, parse, scratch, progress, table, peers, worker, broker, neighbours, figure, cost, text, output, plot, runner, generate, cases

mod broker;
mod cases;
mod cost;
mod figure;
mod generate;
mod machine;
mod neighbours;
mod output;
mod parse;
mod peers;
mod plot;
mod pool;
mod progress;
mod runner;
mod scratch;
mod table;
mod text;
mod worker;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use figure::{Case, Report};
use output::Output;
use prezero_command::outcome;
use runner::Options;
use table::CASES;

/// Measure against glibc, jemalloc, mimalloc and tcmalloc, side by side.
#[derive(Parser)]
#[command(
    name = "prezero-bench",
    bin_name = "prezero bench",
    disable_help_subcommand = true,
    arg_required_else_help = true,
    help_template = "{about}\n\n{usage-heading} {usage}\n\nOptions:\n{options}{after-help}"
)]
struct Line {
    #[command(subcommand)]
    bench: Option<Bench>,
    #[command(flatten)]
    common: Common,
}

/// What stands before a benchmark, or behind it.
#[derive(Args)]
struct Common {
    /// Say what each benchmark measures, in a line
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    output: Output,
    /// Keep the figures in DIR, too [bench/results]
    #[arg(long, value_name = "DIR", num_args = 0..=1, default_missing_value = plot::FOLDER, global = true)]
    keep: Option<PathBuf>,
}

/// What can be asked for beside the cases of the file.
#[derive(Subcommand)]
enum Bench {
    /// What each mechanism is worth: programs with it and without it.
    Ablate(cases::ablate::Ablate),
    /// What neighbours feel: speed, cache latency, wake-ups (15 min).
    Disturb(cases::disturb::Disturb),
    /// The broker's rule of stock on many hosts for days, in made-up time.
    Fleet(prezerod_fleet::hosts::Fleet),
    /// Allocate zeroed, touch, free: idle, back to back and busy.
    Grid(cases::grid::Grid),
    /// How much to keep ready, and how many hosts, by made-up clusters.
    Plan(prezerod_fleet::plan::Plan),
    /// One page of HTML with plots: from files, or measured for it.
    Report(plot::Page),
    /// Keep what --json wrote, and make the index of all that is kept.
    Results(plot::Results),
    /// How fast scrubd clears, against the same engine in a bare loop.
    Scrub(cases::scrub::Scrub),
    /// One run of what no allocator can beat, for the grid.
    #[command(hide = true)]
    Ideal(cases::Ideal),
    /// Write man pages and shell completions: for packages, which leave it out.
    #[command(hide = true, after_help = "Example: prezero-bench generate /usr/local/share")]
    Generate(generate::Generate),
}

fn shown(line: &clap::Command) -> impl Iterator<Item = &clap::Command> {
    line.get_subcommands().filter(|each| !each.is_hide_set())
}

/// The whole command line. It lists names alone: a line for each would not fit a screen.
fn command() -> clap::Command {
    let said = CASES.benchmarks.iter().map(|(name, case)| runner::command(name, case));
    let line = Line::command().subcommands(said);
    let mut names: Vec<_> = shown(&line).map(clap::Command::get_name).collect();
    names.sort_unstable();
    let after = format!(
        "Benchmarks, and what is done with their figures: {}\n\nExample: prezero bench report --quick",
        names.join(", ")
    );
    line.after_help(after)
}

fn main() -> ExitCode {
    match command().try_get_matches() {
        Ok(matches) => outcome::told("bench", run(&matches).and_then(|()| progress::whole())),
        Err(error) => outcome::refuse(&error, command(), |_| outcome::USAGE),
    }
}

fn run(matches: &ArgMatches) -> Result<()> {
    let common = Common::from_arg_matches(matches)?;
    if common.list {
        for each in shown(&command()) {
            let about = each.get_about().cloned().unwrap_or_default();
            prezero_sys::print!("{:<14}{about}\n", each.get_name())?;
        }
    }
    let Some((name, below)) = matches.subcommand() else { return Ok(()) };
    common.keep.is_some().then(machine::quiet).transpose()?;
    let report = match CASES.benchmarks.get(name) {
        Some(case) => Some(runner::measure(name, case, &Options::of(case, below)?)),
        None => Bench::from_arg_matches(matches)?.measure()?,
    };
    progress::end();
    let Some(report) = report else { return Ok(()) };
    let taken = common.output.put(report?)?;
    match common.keep.filter(|_| taken.complete) {
        Some(folder) => plot::keep(&folder, &taken),
        None => Ok(()),
    }
}

impl Bench {
    /// Measures; nothing where there is nothing to measure.
    fn measure(&self) -> Result<Option<Result<Report>>> {
        let case: &dyn Case = match self {
            Bench::Ideal(ideal) => return ideal.run().map(|()| None),
            Bench::Report(page) => return page.run().map(|()| None),
            Bench::Results(results) => return results.run().map(|()| None),
            Bench::Generate(generate) => return generate.run(&command()).map(|()| None),
            Bench::Ablate(case) => case,
            Bench::Disturb(case) => case,
            Bench::Fleet(case) => case,
            Bench::Plan(case) => case,
            Bench::Grid(case) => case,
            Bench::Scrub(case) => case,
        };
        Ok(Some(case.measure()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_of_every_benchmark_fits_a_screen_and_has_an_example() {
        assert_eq!(prezero_command::help::flaws(&command()), Vec::<String>::new());
    }

    #[test]
    fn prezero_completes_the_benchmarks_and_their_pages_are_written() {
        let folder = scratch::Scratch::new().unwrap();
        let line = [
            std::ffi::OsString::from("prezero-bench"),
            "generate".into(),
            folder.file("share").into(),
        ];
        run(&command().try_get_matches_from(line).unwrap()).unwrap();
        let read = |name: &str| std::fs::read_to_string(folder.file("share").join(name)).unwrap();

        assert!(read("man/man1/prezero-bench-seeds.1").contains("prezero bench seeds"));
        let words = read("bash-completion/completions/prezero");
        assert!(words.contains("pinned-knobs") && words.contains("--passes-s"), "{words}");
        assert!(read("zsh/site-functions/_prezero-bench").contains("--passes-s"));
        assert!(read("fish/vendor_completions.d/prezero.fish").contains("-f -a grid"));
    }
}
