//! `prezero bench`: side by side with the allocators that people use, in one run,
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

use anyhow::Result;

/// The benchmarks.
#[derive(clap::Subcommand)]
#[command(after_help = "Example: prezero bench report --quick")]
pub enum Bench {
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
}

impl Bench {
    /// Measures and prints.
    pub fn run(&self) -> Result<()> {
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
        }
    }
}
