//! `prezero-bench`, which `prezero bench` becomes: side by side with the allocators that people use, in one run,
//! interleaved, through the same `LD_PRELOAD` door.
//!
//! | layer | modules |
//! |---|---|
//! | figures | [`figure`] (what a case returns, how it is laid out and judged), [`pool`] (of slices); [`prezero_host::samples`] has medians and noise |
//! | what is kept | [`results`] |
//! | one renderer | [`text`], [`page`], [`output`] (JSON) |
//! | what runs | [`peers`] (the allocators), [`worker`], [`process`], [`broker`], [`neighbours`], [`cost`] |
//! | how it runs | [`turns`], [`progress`], [`scratch`], [`parse`] |
//! | [`cases`] | one file a case, or one folder |
//!
//! Layers: pool, machine, parse, scratch, progress, turns, peers, worker, process, broker, neighbours, figure, cost, text, output, page, results, report, cases
//!
//! A new case is a file in `cases`, a type that implements [`figure::Case`], and its lines in [`Bench`].

mod broker;
mod cases;
mod cost;
mod figure;
mod machine;
mod neighbours;
mod output;
mod page;
mod parse;
mod peers;
mod pool;
mod process;
mod progress;
mod report;
mod results;
mod scratch;
mod text;
mod turns;
mod worker;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use cases::latency::{Ideal, Latency, Options};
use clap::{CommandFactory, FromArgMatches, Parser};
use figure::Case;
use output::Output;
use prezero_cli::generate::Generate;
use prezero_cli::outcome;

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
    /// Say what each benchmark measures, in a line
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    output: Output,
    /// Keep the figures in DIR, too [bench/results]
    #[arg(long, value_name = "DIR", num_args = 0..=1, default_missing_value = results::FOLDER, global = true)]
    keep: Option<PathBuf>,
}

/// What can be asked for.
#[derive(clap::Subcommand)]
enum Bench {
    /// What each mechanism is worth: programs with it and without it.
    Ablate(cases::ablate::Ablate),
    /// Programs that never pause, where scrubd is in the way.
    #[command(after_help = "Example: prezero bench busy --only batch-1m,threads-4m --lines 16")]
    Busy(Options),
    /// Programs after their first seconds: any size, a request handler, phases.
    #[command(
        after_help = "Example: prezero bench steady --only steady-512K,fill-512K,handler --runs 5"
    )]
    Steady(Options),
    /// What neighbours feel: speed, cache latency, wake-ups (15 min).
    Disturb(cases::disturb::Disturb),
    /// NumPy and Rust with a zone of their own, beside `prezero run`.
    Doors(cases::latency::doors::Doors),
    /// How fast prezerod fills its stock, and what neighbours feel of it.
    Fill(cases::fill::Fill),
    /// The broker's rule of stock on many hosts for days, in made-up time.
    Fleet(cases::fleet::Fleet),
    /// What a fork costs a process that has much memory idle.
    #[command(after_help = "Example: prezero bench fork --runs 5")]
    Fork(Options),
    /// Allocate zeroed, touch, free: idle, back to back and busy.
    Grid(cases::latency::grid::Grid),
    /// Large blocks that grow by realloc.
    #[command(after_help = "Example: prezero bench grow --runs 3")]
    Grow(Options),
    /// Memory leased from prezerod against one's own hugetlb and THP.
    Lease(cases::lease::Lease),
    /// Numpy rounds with idle time between them: zeros, a+a, a boolean mask.
    Numpy(cases::latency::doors::Numpy),
    /// malloc and free of one block, by threads and between them.
    #[command(after_help = "Example: prezero bench pair --threads 1,2 --json pair.json")]
    Pair(Options),
    /// How much to keep ready, and how many hosts, by made-up clusters.
    Plan(cases::plan::Plan),
    /// What calloc, writing and free take after a pause.
    #[command(
        after_help = "Example: prezero bench parts --also old/prezero --sizes 64K,1M --lines 4"
    )]
    Parts(Options),
    /// Host memory for a GPU: until it is pinned, and what other processes wait.
    Pinned(cases::pinned::Pinned),
    /// Programs of other projects: wall time, CPU time, peak size.
    Real(cases::real::Real),
    /// One page of HTML with plots: from files, or measured for it.
    Report(report::Report),
    /// Keep what --json wrote, and make the index of all that is kept.
    Results(results::Results),
    /// How fast scrubd clears, against the same engine in a bare loop.
    Scrub(cases::scrub::Scrub),
    /// The experiments of the four posts, beside their own figures.
    Seeds(cases::seeds::Seeds),
    /// A compile that ends soon.
    #[command(after_help = "Example: prezero bench short --runs 60")]
    Short(Options),
    /// What a program with one thread pays in libc.
    #[command(after_help = "Example: prezero bench single --runs 5")]
    Single(Options),
    /// Small blocks after a large one was freed.
    #[command(after_help = "Example: prezero bench small --also old/prezero")]
    Small(Options),
    /// Programs that start with leased memory, against each one's own way.
    Start(cases::start::Start),
    /// Large zeroed blocks of which little is touched.
    #[command(after_help = "Example: prezero bench thin --runs 3")]
    Thin(Options),
    /// What reading zero memory back costs.
    #[command(after_help = "Example: prezero bench verify --runs 15")]
    Verify(Options),
    /// Patterns of demand: what is scrubbed in vain, cost and gain.
    Waste(cases::waste::Waste),
    /// One run of what no allocator can beat, for the grid.
    #[command(hide = true)]
    Ideal(Ideal),
    /// One process of the benchmark of pinned memory.
    #[command(hide = true)]
    PinnedOnce(cases::pinned::once::Once),
    /// Write man pages and shell completions: for packages, which leave it out.
    #[command(skip)]
    Generate(Generate),
}

/// What packages call.
#[derive(Parser)]
#[command(name = "prezero-bench", bin_name = "prezero bench")]
enum Packaging {
    /// Write man pages and shell completions
    Generate(Generate),
}

fn shown(line: &clap::Command) -> impl Iterator<Item = &clap::Command> {
    line.get_subcommands().filter(|each| !each.is_hide_set())
}

/// The whole command line. It lists names alone: a line for each would not fit a screen.
fn command() -> clap::Command {
    let line = Line::command();
    let names: Vec<_> = shown(&line).map(clap::Command::get_name).collect();
    let after = format!(
        "Benchmarks, and what is done with their figures: {}\n\nExample: prezero bench report --quick",
        names.join(", ")
    );
    line.after_help(after)
}

/// The command line, and the name of what it asks for.
fn parsed() -> Result<(Line, String), clap::Error> {
    if std::env::args_os().nth(1).is_some_and(|name| name == "generate") {
        let Packaging::Generate(generate) = Packaging::try_parse()?;
        let (bench, output) = (Some(Bench::Generate(generate)), Output::default());
        return Ok((Line { bench, list: false, output, keep: None }, String::new()));
    }
    let matches = command().try_get_matches()?;
    let name = matches.subcommand_name().unwrap_or_default().to_string();
    Ok((Line::from_arg_matches(&matches)?, name))
}

fn main() -> ExitCode {
    match parsed() {
        Ok((line, name)) => {
            outcome::told("bench", line.run(&name).and_then(|()| progress::whole()))
        }
        Err(error) => outcome::refuse(&error, command(), |_| outcome::USAGE),
    }
}

/// `prezero` with the benchmarks below `bench`, for completions.
fn prezero() -> clap::Command {
    prezero_cli::command().mut_subcommand("bench", |_| command().name("bench"))
}

impl Line {
    fn run(&self, name: &str) -> Result<()> {
        if self.list {
            for each in shown(&Line::command()) {
                prezero_sys::print!(
                    "{:<10}{}\n",
                    each.get_name(),
                    each.get_about().cloned().unwrap_or_default()
                )?;
            }
        }
        let Some(bench) = &self.bench else { return Ok(()) };
        bench.run(name, &self.output, self.keep.as_deref())
    }
}

impl Bench {
    /// Measures and prints.
    fn run(&self, name: &str, output: &Output, keep: Option<&Path>) -> Result<()> {
        let case: &dyn Case = match self {
            Bench::Busy(options)
            | Bench::Fork(options)
            | Bench::Grow(options)
            | Bench::Pair(options)
            | Bench::Parts(options)
            | Bench::Short(options)
            | Bench::Single(options)
            | Bench::Small(options)
            | Bench::Steady(options)
            | Bench::Thin(options)
            | Bench::Verify(options) => &Latency { name, options },
            Bench::Ideal(ideal) => return ideal.run(),
            Bench::PinnedOnce(once) => return once.run(),
            Bench::Report(report) => return report.run(),
            Bench::Results(results) => return results.run(),
            Bench::Generate(generate) => return generate.run(&command(), &prezero()),
            Bench::Ablate(case) => case,
            Bench::Disturb(case) => case,
            Bench::Doors(case) => case,
            Bench::Fill(case) => case,
            Bench::Fleet(case) => case,
            Bench::Plan(case) => case,
            Bench::Grid(case) => case,
            Bench::Lease(case) => case,
            Bench::Numpy(case) => case,
            Bench::Pinned(case) => case,
            Bench::Real(case) => case,
            Bench::Scrub(case) => case,
            Bench::Seeds(case) => case,
            Bench::Start(case) => case,
            Bench::Waste(case) => case,
        };
        let report = case.measure();
        progress::end();
        let taken = output.put(report?)?;
        let Some(folder) = keep.filter(|_| taken.complete) else { return Ok(()) };
        results::keep(folder, taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_of_every_benchmark_fits_a_screen_and_has_an_example() {
        assert_eq!(prezero_cli::help::flaws(&command()), Vec::<String>::new());
    }

    #[test]
    fn prezero_completes_the_benchmarks_and_their_pages_are_written() {
        let folder = scratch::Scratch::new().unwrap();
        let line = ["prezero-bench".into(), "generate".into(), folder.file("share")];
        let Packaging::Generate(generate) = Packaging::try_parse_from(line).unwrap();
        Bench::Generate(generate).run("generate", &Output::default(), None).unwrap();
        let read = |name: &str| std::fs::read_to_string(folder.file("share").join(name)).unwrap();

        assert!(read("man/man1/prezero-bench-seeds.1").contains("prezero bench seeds"));
        let words = read("bash-completion/completions/prezero");
        assert!(words.contains("prezero__subcmd__bench__subcmd__grid"));
        assert!(words.contains("scrub-rate") && !words.contains("generate"), "{words}");
    }
}
