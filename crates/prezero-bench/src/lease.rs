//! `prezero bench lease`: memory from prezerod against what a client does without it.
//!
//! Each round asks for so much in 2 MiB pages and counts from the request until all of it is
//! mapped and written once a page: a lease that lies ready; the client's own hugetlb pages,
//! populated in one call; transparent huge pages, populated in one call. The three take turns
//! in one process, on memory that the host has backed before, and nobody fills meanwhile. The
//! broker makes each lease just before its turn, and that is not counted here but shown: it is
//! the price, paid while idle.
//!
//! The broker is one of its own, started for this; hugetlb pages are reserved for it and for
//! its rival with `--reserve`, and given back.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use prezero::Size;
use prezerod::client::Client;
use prezerod::protocol::{Backing, Page, Want};
use serde::Serialize;

use super::broker::{Broker, HUGE, Reserved, backings, ms, own_hugetlb, own_thp, warm};
use super::lease_table::render;
use super::machine::Machine;
use super::output::Output;
use super::progress::{self, kept, step};
use super::samples::{Spread, quantile};

/// What the design asks: times its rivals, and ms for each GiB.
pub const OVER_HUGETLB: f64 = 100.0;
pub const OVER_THP: f64 = 20.0;
pub const MS_PER_GIB: f64 = 1.0;
/// And of small leases: so many a second, of which 99 % within so many ms.
pub const A_SECOND: f64 = 1000.0;
pub const P99_MS: f64 = 2.0;
/// Small leases: how many, and over how many connections.
const SMALL: u64 = 1000;
const CLIENTS: usize = 100;

/// The command line of `prezero bench lease`.
#[derive(clap::Args)]
#[command(after_help = "Example: prezero bench lease --sizes 1G --runs 5")]
pub struct Lease {
    #[command(flatten)]
    output: Output,
    /// Rounds of each size
    #[arg(long, value_name = "N", default_value_t = 15)]
    runs: usize,
    /// Sizes
    #[arg(long, value_delimiter = ',', value_name = "SIZE,...", default_value = "1G,2G,4G")]
    sizes: Vec<Size>,
    /// Reserve the hugetlb pages that this takes, and give them back at the end (as root)
    #[arg(long)]
    reserve: bool,
}

/// One way to come by memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    LeaseHugetlb,
    OwnHugetlb,
    LeaseThp,
    OwnThp,
}

impl Way {
    /// Its row.
    pub fn name(self) -> &'static str {
        match self {
            Way::LeaseHugetlb => "lease, hugetlb",
            Way::OwnHugetlb => "own hugetlb",
            Way::LeaseThp => "lease, thp",
            Way::OwnThp => "own THP",
        }
    }
}

#[derive(Debug, Serialize)]
pub struct Report {
    pub benchmark: &'static str,
    pub machine: Machine,
    pub runs: usize,
    pub sizes: Vec<Row>,
    pub small: Vec<Small>,
    pub left_out: Vec<String>,
}

/// One size: ms from the request to the last page written, by way.
#[derive(Debug, Serialize)]
pub struct Row {
    pub bytes: u64,
    pub ways: Vec<(Way, Spread)>,
    /// CPU time that the broker spent on one lease, ms.
    pub cost_ms: Vec<(Way, Spread)>,
}

/// Small leases of one backing.
#[derive(Debug, Serialize)]
pub struct Small {
    pub way: Way,
    pub leases: u64,
    pub clients: usize,
    pub a_second: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
}

impl Lease {
    /// Measures and prints.
    pub fn run(&self) -> Result<()> {
        ensure!(self.runs >= 3, "--runs {}: too few; give 3 or more", self.runs);
        let sizes: Vec<u64> = self.sizes.iter().map(|size| size.0 as u64).collect();
        if let Some(bad) = sizes.iter().find(|&&size| size == 0 || !size.is_multiple_of(HUGE)) {
            bail!("--sizes {}: give multiples of 2M", Size(*bad as usize));
        }
        let machine = Machine::here();
        let largest = sizes.iter().copied().max().unwrap_or(0).max(SMALL * HUGE);
        // One lease ready, and as much for the rival.
        let pages = 2 * largest / HUGE + 64;
        let _reserved = if self.reserve { Some(Reserved::new(pages)?) } else { None };
        let (there, left_out) = backings(pages * HUGE);
        progress::expect(1 + sizes.len() * self.runs + there.len());
        warm(largest).context("warming: no memory of that size; give smaller --sizes")?;
        let mut report = Report {
            benchmark: "lease",
            machine,
            runs: self.runs,
            sizes: vec![],
            small: vec![],
            left_out,
        };
        let backings: Vec<Backing> =
            there.into_iter().filter_map(|(backing, there)| there.then_some(backing)).collect();
        for bytes in sizes {
            let Some(row) = kept(self.size(bytes, &backings))? else { break };
            report.sizes.push(row);
        }
        for &backing in &backings {
            report.small.extend(kept(small(backing))?);
        }
        progress::end();
        self.output.put(&report, || render(&report))
    }

    fn size(&self, bytes: u64, backings: &[Backing]) -> Result<Row> {
        let brokers: Vec<(Backing, Broker)> = backings
            .iter()
            .map(|&backing| Ok((backing, Broker::start(backing, bytes, 1)?)))
            .collect::<Result<_>>()?;
        let mut ways: Vec<(Way, Vec<f64>)> = vec![];
        let mut costs: Vec<(Way, Vec<f64>)> = vec![];
        for round in 0..self.runs {
            step(&format!("lease: {}, round {}", Size(bytes as usize), round + 1))?;
            // Nobody fills while the rivals have their turn. Each takes its memory twice, and
            // the second time counts: what was free for long a guest's host may have taken.
            wait_for_all(&brokers)?;
            if backings.contains(&Backing::Hugetlb) {
                own_hugetlb(bytes)?;
                note(&mut ways, Way::OwnHugetlb, own_hugetlb(bytes)?);
            }
            own_thp(bytes)?;
            note(&mut ways, Way::OwnThp, own_thp(bytes)?);
            // The lease that is timed was made after what the rivals freed: a guest gives that
            // back to its host, and stumbles meanwhile.
            for (backing, broker) in &brokers {
                drop(broker.lease(bytes)?);
                broker.wait_for(1)?;
                let (ms, lease) = broker.lease(bytes)?;
                let way = lease_of(*backing);
                note(&mut ways, way, ms);
                note(&mut costs, way, lease.granted.cost_ns as f64 / 1e6);
            }
        }
        let spread = |all: Vec<(Way, Vec<f64>)>| -> Vec<(Way, Spread)> {
            let rows = all.into_iter();
            rows.filter_map(|(way, samples)| Some((way, Spread::of(samples)?))).collect()
        };
        Ok(Row { bytes, ways: spread(ways), cost_ms: spread(costs) })
    }
}

/// Until a lease lies ready everywhere: then nobody fills.
fn wait_for_all(brokers: &[(Backing, Broker)]) -> Result<()> {
    brokers.iter().try_for_each(|(_, broker)| broker.wait_for(1))
}

fn note(all: &mut Vec<(Way, Vec<f64>)>, way: Way, ms: f64) {
    match all.iter_mut().find(|(other, _)| *other == way) {
        Some((_, samples)) => samples.push(ms),
        None => all.push((way, vec![ms])),
    }
}

fn lease_of(backing: Backing) -> Way {
    match backing {
        Backing::Hugetlb => Way::LeaseHugetlb,
        Backing::Thp | Backing::Tmpfs => Way::LeaseThp,
    }
}

/// Small leases one after the other, each over the next of all connections.
fn small(backing: Backing) -> Result<Small> {
    step(&format!("lease: {SMALL} of 2M"))?;
    let broker = Broker::start(backing, HUGE, SMALL)?;
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| broker.connect()).collect::<Result<_>>()?;
    broker.wait_for(SMALL)?;
    let want = Want { bytes: HUGE, page: Page::Huge, node: None };
    let mut times = vec![];
    let began = Instant::now();
    for turn in 0..SMALL as usize {
        let asked = Instant::now();
        drop(clients[turn % CLIENTS].lease(want, Duration::ZERO)?);
        times.push(ms(asked));
    }
    let a_second = SMALL as f64 / began.elapsed().as_secs_f64();
    times.sort_by(f64::total_cmp);
    let at = |share| quantile(&times, share).unwrap_or(f64::NAN);
    let (p50_ms, p99_ms) = (at(0.5), at(0.99));
    Ok(Small { way: lease_of(backing), leases: SMALL, clients: CLIENTS, a_second, p50_ms, p99_ms })
}
