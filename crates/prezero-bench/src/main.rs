//! `prezero-bench`, which `prezero bench` becomes: side by side with the allocators that people use, in one run,
//! interleaved, through the same `LD_PRELOAD` door.
//!
//! [`peers`] are the allocators, [`samples`] the arithmetic, [`machine`] what the
//! numbers were taken on; each benchmark is a module that ends in a report of plain
//! data, and a `table` that a person reads.

mod broker;
mod compare;
mod disturb;
mod disturb_report;
mod disturb_stage;
mod disturb_table;
mod fill;
mod fill_table;
mod grid;
mod grid_report;
mod grid_table;
mod grid_verdict;
mod ideal;
mod lease;
mod lease_table;
mod machine;
mod numpy;
mod output;
mod pair;
mod pairs;
mod peers;
mod progress;
mod real;
mod real_programs;
mod real_report;
mod real_run;
mod real_table;
mod report;
mod samples;
mod scratch;
mod scrub;
mod seeds;
mod start;
mod start_table;
mod start_ways;
mod turn;
mod waste;
mod waste_pattern;
mod waste_table;
mod worker;

use std::process::ExitCode;

use anyhow::Result;
use clap::{CommandFactory, Parser};
use prezero_cli::generate::Generate;
use prezero_cli::outcome;

/// Measure against glibc, jemalloc, mimalloc and tcmalloc, side by side.
#[derive(Parser)]
#[command(
    name = "prezero-bench",
    bin_name = "prezero bench",
    disable_help_subcommand = true,
    arg_required_else_help = true,
    after_help = "Example: prezero bench report --quick"
)]
enum Bench {
    /// What changed between two runs of a benchmark, beyond noise.
    Compare(compare::Compare),
    /// What neighbours feel: speed, cache latency, wake-ups (15 min).
    Disturb(disturb::Disturb),
    /// How fast prezerod fills its stock, and what neighbours feel of it.
    Fill(fill::Fill),
    /// Allocate zeroed, touch, free: idle, back to back and busy.
    Grid(grid::Grid),
    /// Memory leased from prezerod against one's own hugetlb and THP.
    Lease(lease::Lease),
    /// Numpy rounds with idle time between them: zeros, a+a, a boolean mask.
    Numpy(numpy::Numpy),
    /// malloc and free of one block, by threads and between them.
    Pair(pair::Pair),
    /// Programs that nobody here wrote: wall time, CPU time, peak size.
    Real(real::Real),
    /// One page of HTML with plots: from files, or measured for it.
    Report(report::Report),
    /// The experiments of the four posts, beside their own figures.
    Seeds(seeds::Seeds),
    /// How fast scrubd clears, against the same engine in a bare loop.
    Scrub(scrub::Scrub),
    /// Programs that start with leased memory, against each one's own way.
    Start(start::Start),
    /// Patterns of demand: what is scrubbed in vain, cost and gain.
    Waste(waste::Waste),
    /// Write man pages and shell completions: for packages, and in none of these.
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

/// The command line.
fn parsed() -> Result<Bench, clap::Error> {
    match std::env::args_os().nth(1) {
        Some(name) if name == "generate" => {
            Packaging::try_parse().map(|Packaging::Generate(generate)| Bench::Generate(generate))
        }
        _ => Bench::try_parse(),
    }
}

fn main() -> ExitCode {
    match parsed() {
        Ok(bench) => outcome::told("bench", bench.run()),
        Err(error) => outcome::refuse(&error, Bench::command(), |_| outcome::USAGE),
    }
}

/// `prezero` with the benchmarks below `bench`, for completions.
fn prezero() -> clap::Command {
    prezero_cli::command().mut_subcommand("bench", |_| Bench::command().name("bench"))
}

impl Bench {
    /// Measures and prints.
    fn run(&self) -> Result<()> {
        match self {
            Bench::Compare(compare) => compare.run(),
            Bench::Disturb(disturb) => disturb.run(),
            Bench::Fill(fill) => fill.run(),
            Bench::Grid(grid) => grid.run(),
            Bench::Lease(lease) => lease.run(),
            Bench::Numpy(numpy) => numpy.run(),
            Bench::Pair(pair) => pair.run(),
            Bench::Real(real) => real.run(),
            Bench::Report(report) => report.run(),
            Bench::Seeds(seeds) => seeds.run(),
            Bench::Scrub(scrub) => scrub.run(),
            Bench::Start(start) => start.run(),
            Bench::Waste(waste) => waste.run(),
            Bench::Generate(generate) => generate.run(&Bench::command(), &prezero()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_of_every_benchmark_fits_a_screen_and_has_an_example() {
        assert_eq!(prezero_cli::help::flaws(&Bench::command()), Vec::<String>::new());
    }

    #[test]
    fn prezero_completes_the_benchmarks_and_their_pages_are_written() {
        let folder = scratch::Scratch::new().unwrap();
        let line = ["prezero-bench".into(), "generate".into(), folder.file("share")];
        let Packaging::Generate(generate) = Packaging::try_parse_from(line).unwrap();
        Bench::Generate(generate).run().unwrap();
        let read = |name: &str| std::fs::read_to_string(folder.file("share").join(name)).unwrap();

        assert!(read("man/man1/prezero-bench-seeds.1").contains("prezero bench seeds"));
        let words = read("bash-completion/completions/prezero");
        assert!(
            words.contains("prezero__subcmd__bench__subcmd__grid") && words.contains("scrub-rate")
        );
        assert!(!words.contains("generate"), "it offers what packages call");
    }
}
