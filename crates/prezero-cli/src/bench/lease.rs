//! `prezero bench lease`: memory from prezerod against what a client does without it.
//!
//! Each round asks for so much in 2 MiB pages and counts from the request until all of it is
//! mapped and written once a page: a lease that lies ready; the client's own hugetlb pages,
//! populated in one call; transparent huge pages, populated in one call. The three take turns
//! in one process, on memory that the host has backed before. Between rounds the broker makes
//! the next lease, and that is not counted here but shown: it is the price, paid while idle.
//!
//! The broker is one of its own, started for this; hugetlb pages are reserved for it and for
//! its rival with `--reserve`, and given back.

use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use comfy_table::{CellAlignment, Table, presets::UTF8_BORDERS_ONLY};
use prezero::Size;
use prezero_sys::shared::{PrivateMap, SharedMap};
use prezerod::client::{Client, ClientError, Lease as Leased};
use prezerod::host::Host;
use prezerod::protocol::{Backing, Page, Want};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use serde::Serialize;

use super::machine::Machine;
use super::output::Output;
use super::progress::{self, kept, step};
use super::samples::{Spread, quantile};
use super::scratch::Scratch;

/// What the design asks: times its rivals, and ms for each GiB.
const OVER_HUGETLB: f64 = 100.0;
const OVER_THP: f64 = 20.0;
const MS_PER_GIB: f64 = 1.0;
/// And of small leases: so many a second, of which 99 % within so many ms.
const A_SECOND: f64 = 1000.0;
const P99_MS: f64 = 2.0;
/// Small leases: how many, and how many other clients are connected meanwhile.
const SMALL: u64 = 1000;
const IDLE_CLIENTS: usize = 100;
/// How long the broker may take to make what a round needs.
const PATIENCE: Duration = Duration::from_secs(120);
const HUGE: u64 = 2 << 20;

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
enum Way {
    LeaseHugetlb,
    OwnHugetlb,
    LeaseThp,
    OwnThp,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Way::LeaseHugetlb => "lease, hugetlb",
            Way::OwnHugetlb => "own hugetlb",
            Way::LeaseThp => "lease, thp",
            Way::OwnThp => "own THP",
        }
    }
}

#[derive(Debug, Serialize)]
struct Report {
    benchmark: &'static str,
    machine: Machine,
    runs: usize,
    sizes: Vec<Row>,
    small: Vec<Small>,
    left_out: Vec<String>,
}

/// One size: ms from the request to the last page written, by way.
#[derive(Debug, Serialize)]
struct Row {
    bytes: u64,
    ways: Vec<(Way, Spread)>,
    /// CPU time that the broker spent on one lease, ms.
    cost_ms: Vec<(Way, Spread)>,
}

/// Small leases of one backing.
#[derive(Debug, Serialize)]
struct Small {
    way: Way,
    leases: u64,
    clients: usize,
    a_second: f64,
    p50_ms: f64,
    p99_ms: f64,
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
        let mut left_out = vec![];
        let host = Host::new("/");
        // One lease ready, and as much for the rival.
        let pages = 2 * largest / HUGE + 64;
        let _reserved = if self.reserve { Some(Reserved::new(pages)?) } else { None };
        let hugetlb =
            host.nodes().iter().map(|&node| host.pool(node, Page::Huge).free).sum::<u64>() >= pages;
        if !hugetlb {
            left_out
                .push(format!("hugetlb: fewer than {pages} pages free; give --reserve as root"));
        }
        if !host.thp() {
            left_out.push("leases of thp: this kernel makes none".into());
        }
        let backings: Vec<Backing> = [(Backing::Hugetlb, hugetlb), (Backing::Thp, host.thp())]
            .into_iter()
            .filter_map(|(backing, there)| there.then_some(backing))
            .collect();
        progress::expect(1 + sizes.len() * self.runs + backings.len());
        warm(largest).context("warming: no memory of that size; give smaller --sizes")?;
        let mut report = Report {
            benchmark: "lease",
            machine,
            runs: self.runs,
            sizes: vec![],
            small: vec![],
            left_out,
        };
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
            for (backing, broker) in &brokers {
                broker.wait_for(1)?;
                let (ms, lease) = broker.lease(bytes)?;
                let way = lease_of(*backing);
                note(&mut ways, way, ms);
                note(&mut costs, way, lease.granted.cost_ns as f64 / 1e6);
                drop(lease);
                if *backing == Backing::Hugetlb {
                    note(&mut ways, Way::OwnHugetlb, own_hugetlb(bytes)?);
                }
            }
            note(&mut ways, Way::OwnThp, own_thp(bytes)?);
        }
        let spread = |all: Vec<(Way, Vec<f64>)>| -> Vec<(Way, Spread)> {
            let rows = all.into_iter();
            rows.filter_map(|(way, samples)| Some((way, Spread::of(samples)?))).collect()
        };
        Ok(Row { bytes, ways: spread(ways), cost_ms: spread(costs) })
    }
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
        Backing::Thp => Way::LeaseThp,
    }
}

fn ms(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

/// Small leases one after the other, with other clients connected.
fn small(backing: Backing) -> Result<Small> {
    step(&format!("lease: {SMALL} of 2M"))?;
    let broker = Broker::start(backing, HUGE, SMALL)?;
    let idle: Vec<Client> = (0..IDLE_CLIENTS).map(|_| broker.connect()).collect::<Result<_>>()?;
    broker.wait_for(SMALL)?;
    let mut client = broker.connect()?;
    let want = Want { bytes: HUGE, page: Page::Huge, node: None };
    let mut times = vec![];
    let began = Instant::now();
    for _ in 0..SMALL {
        let asked = Instant::now();
        drop(client.lease(want, Duration::ZERO)?);
        times.push(ms(asked));
    }
    let a_second = SMALL as f64 / began.elapsed().as_secs_f64();
    times.sort_by(f64::total_cmp);
    let at = |share| quantile(&times, share).unwrap_or(f64::NAN);
    let (p50_ms, p99_ms) = (at(0.5), at(0.99));
    Ok(Small {
        way: lease_of(backing),
        leases: SMALL,
        clients: idle.len(),
        a_second,
        p50_ms,
        p99_ms,
    })
}

/// A broker of this benchmark, ended when dropped.
#[derive(Debug)]
pub(super) struct Broker {
    process: Child,
    scratch: Scratch,
}

impl Broker {
    /// With so many leases of so many bytes kept ready.
    pub(super) fn start(backing: Backing, bytes: u64, keep: u64) -> Result<Broker> {
        let scratch = Scratch::new()?;
        let config = format!(
            "backing = \"{}\"\nlimit = {}\n[[stock]]\nsize = {bytes}\nkeep = {keep}\nmost = {keep}\n",
            backing.name(),
            bytes * keep,
        );
        std::fs::write(scratch.file("config"), config)?;
        let program = prezerod_path()?;
        let process = Command::new(&program)
            .arg("--config")
            .arg(scratch.file("config"))
            .arg("--socket")
            .arg(scratch.file("socket"))
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .with_context(|| format!("{}: cannot be run", program.display()))?;
        let broker = Broker { process, scratch };
        let began = Instant::now();
        while broker.connect().is_err() {
            ensure!(began.elapsed() < PATIENCE, "prezerod does not come up; try it by itself");
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(broker)
    }

    fn connect(&self) -> Result<Client> {
        Ok(Client::connect(&self.socket())?)
    }

    /// Where it listens.
    pub(super) fn socket(&self) -> PathBuf {
        self.scratch.file("socket")
    }

    /// Waits until so many leases lie ready.
    pub(super) fn wait_for(&self, leases: u64) -> Result<()> {
        let mut client = self.connect()?;
        let began = Instant::now();
        loop {
            let report: serde_json::Value =
                serde_json::from_str(&client.report(prezerod::protocol::Report::Stock)?)?;
            if report["ready"].as_array().is_some_and(|ready| ready.len() as u64 >= leases) {
                return Ok(());
            }
            ensure!(began.elapsed() < PATIENCE, "the broker makes nothing; is memory short?");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// ms from the request to the last page written.
    fn lease(&self, bytes: u64) -> Result<(f64, Leased)> {
        let mut client = self.connect()?;
        let want = Want { bytes, page: Page::Huge, node: None };
        let began = Instant::now();
        let lease = client.lease(want, Duration::ZERO)?;
        let map = lease.map()?;
        map.touch(0, bytes as usize, HUGE as usize);
        let took = ms(began);
        Ok::<_, ClientError>((took, lease)).map_err(Into::into)
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The broker beside this command.
pub(super) fn prezerod_path() -> Result<PathBuf> {
    let here = std::env::current_exe()?;
    let path = here.parent().unwrap_or(Path::new("/")).join("prezerod");
    ensure!(
        path.is_file(),
        "{}: not there; build it: cargo build --release -p prezerod",
        path.display()
    );
    Ok(path)
}

/// What a client without a broker does with the same pages: QEMU's and DPDK's way.
fn own_hugetlb(bytes: u64) -> Result<f64> {
    let began = Instant::now();
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
    let file = memfd_create("own", flags)?;
    ftruncate(&file, bytes)?;
    let map = SharedMap::new(file.as_fd(), bytes as usize, HUGE as usize)?;
    map.populate()?;
    map.touch(0, bytes as usize, HUGE as usize);
    Ok(ms(began))
}

fn own_thp(bytes: u64) -> Result<f64> {
    let began = Instant::now();
    let map = PrivateMap::huge(bytes as usize)?;
    map.populate()?;
    map.touch(0, bytes as usize, HUGE as usize);
    Ok(ms(began))
}

/// Has the host back the memory that will be used: a guest's first touch is another story.
fn warm(bytes: u64) -> Result<()> {
    step("lease: warming")?;
    PrivateMap::huge(2 * bytes as usize)?.populate()?;
    Ok(())
}

/// Hugetlb pages on top of those there are, given back when dropped.
struct Reserved {
    before: String,
}

impl Reserved {
    const FILE: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";

    fn new(pages: u64) -> Result<Reserved> {
        let before = std::fs::read_to_string(Self::FILE)?.trim().to_owned();
        let all = before.parse::<u64>()? + pages;
        std::fs::write(Self::FILE, all.to_string()).context("--reserve: needs root")?;
        let reserved = Reserved { before };
        let got = std::fs::read_to_string(Self::FILE)?.trim().parse::<u64>()?;
        ensure!(
            got == all,
            "--reserve: {all} hugetlb pages wanted, the kernel found {got}; give smaller --sizes"
        );
        Ok(reserved)
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if std::fs::write(Self::FILE, &self.before).is_err() {
            eprintln!("prezero: bench: {} should be {} again", Self::FILE, self.before);
        }
    }
}

fn render(report: &Report) -> String {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY);
    table.set_header([
        "size",
        "way",
        "ms",
        "p10",
        "p90",
        "ms a GiB",
        "x lease",
        "CPU of the broker, ms",
    ]);
    let mut verdicts = vec![];
    for row in &report.sizes {
        let of =
            |way: Way| row.ways.iter().find(|(other, _)| *other == way).map(|(_, ms)| ms.median);
        for (way, spread) in &row.ways {
            let lease = match way {
                Way::OwnHugetlb => of(Way::LeaseHugetlb),
                Way::OwnThp => of(Way::LeaseHugetlb).or(of(Way::LeaseThp)),
                _ => None,
            };
            let cost = row.cost_ms.iter().find(|(other, _)| other == way);
            table.add_row([
                Size(row.bytes as usize).to_string(),
                way.name().into(),
                format!("{:.3}", spread.median),
                format!("{:.3}", spread.p10),
                format!("{:.3}", spread.p90),
                format!("{:.3}", per_gib(spread.median, row.bytes)),
                lease.map_or(String::new(), |lease| format!("{:.0}", spread.median / lease)),
                cost.map_or(String::new(), |(_, cost)| format!("{:.0}", cost.median)),
            ]);
        }
        let size = Size(row.bytes as usize);
        for (lease, own, wanted) in [
            (Way::LeaseHugetlb, Way::OwnHugetlb, OVER_HUGETLB),
            (Way::LeaseHugetlb, Way::OwnThp, OVER_THP),
            (Way::LeaseThp, Way::OwnThp, OVER_THP),
        ] {
            if let (Some(lease_ms), Some(own_ms)) = (of(lease), of(own)) {
                let times = own_ms / lease_ms;
                let verdict = if times >= wanted { "reached" } else { "missed" };
                let (lease, own) = (lease.name(), own.name());
                verdicts.push(format!(
                    "{size}: {lease} {times:.0}x {own}, wanted {wanted:.0}x: {verdict}"
                ));
            }
        }
        for lease in [Way::LeaseHugetlb, Way::LeaseThp] {
            if let Some(ms) = of(lease).map(|ms| per_gib(ms, row.bytes)) {
                let verdict = if ms <= MS_PER_GIB { "reached" } else { "missed" };
                verdicts.push(format!(
                    "{size}: {} {ms:.3} ms a GiB, wanted {MS_PER_GIB}: {verdict}",
                    lease.name()
                ));
            }
        }
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for small in &report.small {
        let good = small.a_second >= A_SECOND && small.p99_ms <= P99_MS;
        verdicts.push(format!(
            "{} of 2M, {} other clients connected: {:.0} a second, median {:.3} ms, p99 {:.3} ms; wanted {A_SECOND:.0} and {P99_MS} ms: {}",
            small.way.name(),
            small.clients,
            small.a_second,
            small.p50_ms,
            small.p99_ms,
            if good { "reached" } else { "missed" }
        ));
    }
    let left_out: String =
        report.left_out.iter().map(|what| format!("left out: {what}\n")).collect();
    format!(
        "{}\nfrom the request to mapped and written once in each 2 MiB page; {} rounds, interleaved, medians\n\
         {left_out}{table}\n{}\n",
        report.machine,
        report.runs,
        verdicts.join("\n")
    )
}

fn per_gib(ms: f64, bytes: u64) -> f64 {
    ms / (bytes as f64 / f64::from(1 << 30))
}
