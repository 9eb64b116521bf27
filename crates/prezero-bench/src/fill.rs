//! `prezero bench fill`: how fast a broker fills its stock, and what neighbours feel of it.
//!
//! A client takes each lease as soon as it lies ready, so that the broker fills on and on. Its
//! pace, by the clock and by the CPU time of its fillers, stands beside what one thread reaches
//! that populates the same pages in one call, and beside the calls of a filler in a bare loop: what the
//! kernel takes for a lease, as opposed to private memory. The three take turns. Then neighbours
//! work, pinned, on all CPUs or on all but one: arithmetic, and pointer chases over sets of the
//! sizes of the caches and beyond. In every second slice the fillers are stopped, and the two
//! kinds are compared in pairs. Beside others fillers hold back (`rate-busy` of the configuration):
//! the neighbours of all CPUs but one are measured without that, too.

use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use prezero::{Size, Topology};
use prezerod::client::ClientError;
use prezerod::inode::{Kind, Making};
use prezerod::neighbours::LOOK_NS;
use prezerod::protocol::{Backing, Page, Want};
use prezerod::tenant::Payer;
use rustix::process::{Pid, Signal as Kill, kill_process};
use serde::Serialize;

use super::broker::{Broker, HUGE, Reserved, backings, own_hugetlb, own_thp, warm};
use super::disturb_report::Sizes;
use super::fill_table::render;
use super::machine::Machine;
use super::output::Output;
use super::peers::Allocator;
use super::progress::{self, kept, step};
use super::samples::{Change, Spread};
use super::scratch::Scratch;
use super::worker::{Program, Worker, allowed_cpus};

/// A lease that is made again and again, and how many may lie ready.
const LEASE: u64 = 512 << 20;
const READY: u64 = 2;
/// Turns at the pace, and how long the broker's is.
const TURNS: usize = 9;
const TURN: Duration = Duration::from_millis(600);
/// Counters of a broker.
const MADE_BYTES: &str = "prezerod_made_bytes_total";
const MADE_CPU: &str = "prezerod_made_cpu_seconds_total";
/// Before a slice counts.
const LEAD: Duration = Duration::from_millis(100);

/// The command line of `prezero bench fill`.
#[derive(clap::Args)]
#[command(after_help = "Example: prezero bench fill --only thp --rounds 20")]
pub struct Fill {
    #[command(flatten)]
    output: Output,
    /// Pairs of slices beside each load, 5 or more
    #[arg(long, value_name = "N", default_value_t = 12)]
    rounds: usize,
    /// Length of a slice
    #[arg(long, value_name = "S", default_value_t = 0.4)]
    seconds: f64,
    /// One backing only: thp, hugetlb [both]
    #[arg(long, value_name = "BACKING", value_parser = ["thp", "hugetlb"])]
    only: Option<String>,
    /// Have the broker fill at most so much in a second, and hold back for nobody beyond that
    /// [as it does by itself]
    #[arg(long, value_name = "SIZE")]
    rate: Option<Size>,
    /// Reserve the hugetlb pages that this takes, and give them back at the end (as root)
    #[arg(long)]
    reserve: bool,
}

/// Everything that was measured.
#[derive(Debug, Serialize)]
pub struct Report {
    benchmark: &'static str,
    pub machine: Machine,
    pub slice_s: f64,
    pub rounds: usize,
    pub paces: Vec<Pace>,
    pub felt: Vec<Felt>,
    pub left_out: Vec<String>,
}

/// How fast one backing is filled, GB/s.
#[derive(Debug, Serialize)]
pub struct Pace {
    pub backing: &'static str,
    /// By the clock.
    pub wall: f64,
    /// By the CPU time of the fillers.
    pub cpu: f64,
    /// What it was allowed.
    pub cap: Option<f64>,
    /// One thread that populates as much in one call.
    pub rival: Spread,
    /// A filler's calls and nothing else.
    pub bare: Spread,
}

/// How fillers treat neighbours.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Manner {
    /// As it comes: they hold back while others work.
    Considerate,
    /// As fast as they can, or as `--rate` says.
    Regardless,
}

impl Manner {
    /// In the configuration.
    fn line(self) -> &'static str {
        match self {
            Manner::Considerate => "",
            Manner::Regardless => "rate-busy = \"1T\"\n",
        }
    }
}

/// What neighbours felt beside one backing's filling.
#[derive(Debug, Serialize)]
pub struct Felt {
    pub backing: &'static str,
    pub manner: Manner,
    /// CPUs with a neighbour.
    pub busy: usize,
    pub cpus: usize,
    pub load: String,
    pub wall: Change,
    pub cpu: Change,
    /// Bytes a second that were filled meanwhile, GB/s.
    pub filled: f64,
}

/// Sizes of the crowd, and what it does: for the bar of progress.
const CROWDS: usize = 3;
const LOADS: usize = 4;

impl Fill {
    /// Measures and prints.
    pub fn run(&self) -> Result<()> {
        let (rounds, seconds) = (self.rounds, self.seconds);
        ensure!(rounds >= 5, "--rounds {rounds}: too few; give 5 or more");
        if let Some(rate) = self.rate {
            ensure!(rate.0 as u64 >= HUGE, "--rate {rate}: less than a page; give 2M or more");
        }
        ensure!((0.05..=10.0).contains(&seconds), "--seconds {seconds}: give 0.05 to 10");
        let machine = Machine::here();
        let bytes = (READY + 2) * LEASE;
        let _reserved = if self.reserve { Some(Reserved::new(bytes / HUGE)?) } else { None };
        let (there, left_out) = backings(bytes);
        warm(bytes).context("warming: no memory of that size")?;
        let slice_s = self.seconds;
        let mut report = Report {
            benchmark: "fill",
            machine,
            slice_s,
            rounds,
            paces: vec![],
            felt: vec![],
            left_out,
        };
        let wanted =
            |backing: Backing| self.only.as_ref().is_none_or(|only| only == backing.name());
        let there: Vec<Backing> = there
            .into_iter()
            .filter_map(|(backing, there)| (there && wanted(backing)).then_some(backing))
            .collect();
        progress::expect(there.len() * (1 + CROWDS * LOADS));
        for backing in there {
            if kept(self.backing(backing, &mut report))?.is_none() {
                break;
            }
        }
        progress::end();
        self.output.put(&report, || render(&report))
    }

    fn backing(&self, backing: Backing, report: &mut Report) -> Result<()> {
        let name = backing.name();
        // What the backing before it gave back may have gone to a guest's host.
        warm(READY * LEASE).context("warming: no memory of that size")?;
        step(&format!("fill: {name}, pace"))?;
        if let Some(rate) = self.rate {
            let lines = format!("rate = {}\n{}", rate.0, Manner::Regardless.line());
            return beside_client(backing, &lines, |broker| {
                report.paces.push(self.pace(backing, broker)?);
                self.felt(backing, Manner::Regardless, broker, report, 0..=1)
            });
        }
        beside_client(backing, Manner::Considerate.line(), |broker| {
            report.paces.push(self.pace(backing, broker)?);
            self.felt(backing, Manner::Considerate, broker, report, 0..=1)
        })?;
        // With all CPUs busy nothing is filled, whatever their manner.
        beside_client(backing, Manner::Regardless.line(), |broker| {
            self.felt(backing, Manner::Regardless, broker, report, 1..=1)
        })
    }

    /// Neighbours on all CPUs but `spared`.
    fn felt(
        &self,
        backing: Backing,
        manner: Manner,
        broker: &Broker,
        report: &mut Report,
        spared: RangeInclusive<usize>,
    ) -> Result<()> {
        let made = || broker.counter(MADE_BYTES);
        let cpus = allowed_cpus()?;
        let topology = Topology::read(Path::new(Topology::ROOT));
        let sizes = Sizes::of(&topology, report.machine.memory_bytes / cpus.len());
        let mut loads = vec![("compute".to_owned(), "compute".to_owned())];
        for bytes in [sizes.l2, sizes.l3, sizes.dram] {
            loads.push((format!("chase {}", Size(bytes)), format!("chase {bytes}")));
        }
        for busy in spared.map(|spared| cpus.len().saturating_sub(spared)).filter(|busy| *busy > 0)
        {
            let mut crowd = Crowd::start(&cpus[cpus.len() - busy..])?;
            for (load, command) in &loads {
                step(&format!("fill: {}, {load} on {busy} CPUs", backing.name()))?;
                let before = made()?;
                let (on, off, filled_s) = self.load(broker, &mut crowd, command)?;
                let filled = gb_per_s(made()? - before, filled_s);
                let change = |which: fn(&(f64, f64)) -> f64| {
                    let of = |all: &[(f64, f64)]| Spread::of(all.iter().map(which).collect());
                    Change::of(&of(&on)?, &of(&off)?)
                };
                let (wall, cpu) = (change(|one| one.0), change(|one| one.1));
                report.felt.push(Felt {
                    backing: backing.name(),
                    manner,
                    busy,
                    cpus: cpus.len(),
                    load: load.clone(),
                    wall: wall.context("slices")?,
                    cpu: cpu.context("slices")?,
                    filled,
                });
            }
        }
        Ok(())
    }

    fn pace(&self, backing: Backing, broker: &Broker) -> Result<Pace> {
        while broker.fillers().is_empty() || broker.counter(MADE_BYTES)? == 0.0 {
            std::thread::sleep(LEAD);
        }
        let sums =
            || Ok::<_, anyhow::Error>([broker.counter(MADE_BYTES)?, broker.counter(MADE_CPU)?]);
        let (mut made, mut wall_s, mut rival, mut bare) = ([0.0; 2], 0.0, vec![], vec![]);
        for _ in 0..TURNS {
            // The rivals were neighbours of the stopped fillers, who see now that they are gone.
            std::thread::sleep(2 * Duration::from_nanos(LOOK_NS));
            let (began, before) = (Instant::now(), sums()?);
            std::thread::sleep(TURN);
            let after = sums()?;
            wall_s += began.elapsed().as_secs_f64();
            let stopped = Stopped::fillers(broker);
            made = [made[0] + after[0] - before[0], made[1] + after[1] - before[1]];
            let ms = match backing {
                Backing::Hugetlb => own_hugetlb(LEASE),
                _ => own_thp(LEASE),
            };
            rival.push(gb_per_s(LEASE as f64, ms? / 1e3));
            bare.push(gb_per_s(LEASE as f64, alone(backing)?));
            drop(stopped);
        }
        Ok(Pace {
            backing: backing.name(),
            wall: gb_per_s(made[0], wall_s),
            cpu: gb_per_s(made[0], made[1]),
            cap: self.rate.map(|rate| rate.0 as f64 / 1e9),
            rival: Spread::of(rival).context("turns")?,
            bare: Spread::of(bare).context("turns")?,
        })
    }

    /// ns of a unit of work by the clock and by CPU time, with fillers and without; and for how
    /// many seconds the fillers might run.
    #[expect(clippy::type_complexity, reason = "two lists of pairs, named where they are used")]
    fn load(
        &self,
        broker: &Broker,
        crowd: &mut Crowd,
        command: &str,
    ) -> Result<(Vec<(f64, f64)>, Vec<(f64, f64)>, f64)> {
        let (mut on, mut off, mut filled_s) = (vec![], vec![], 0.0);
        // One pair more than is counted: chases are laid out in the first.
        for round in 0..=self.rounds {
            for which in [round % 2 == 0, round % 2 == 1] {
                let began = Instant::now();
                let _stopped = (!which).then(|| Stopped::fillers(broker));
                let felt = crowd.slice(command, LEAD, Duration::from_secs_f64(self.seconds))?;
                if which {
                    filled_s += began.elapsed().as_secs_f64();
                }
                if round > 0 {
                    if which { on.push(felt) } else { off.push(felt) }
                }
            }
        }
        Ok((on, off, filled_s))
    }
}

fn gb_per_s(bytes: f64, seconds: f64) -> f64 {
    bytes / 1e9 / seconds
}

/// Seconds that the calls of a filler take for a lease, with nothing around them.
fn alone(backing: Backing) -> Result<f64> {
    let kind = Kind { page: Page::Huge, backing, node: 0, payer: Payer::BROKER };
    let began = Instant::now();
    let mut making = Making::begin(kind, LEASE)?;
    while making.step(LEASE)? > 0 {}
    let inode = making.finish()?;
    let took = began.elapsed().as_secs_f64();
    drop(inode);
    Ok(took)
}

/// Measures while a client takes what lies ready, from a broker with more lines in its
/// configuration.
fn beside_client(
    backing: Backing,
    lines: &str,
    measure: impl FnOnce(&Broker) -> Result<()>,
) -> Result<()> {
    let broker = Broker::with(backing, LEASE, READY, lines)?;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let client = scope.spawn(|| consume(&broker, &over));
        let measured = measure(&broker);
        over.store(true, Ordering::Relaxed);
        let consumed = client.join().unwrap_or_else(|_| Err(anyhow::anyhow!("the client died")));
        measured.and(consumed)
    })
}

/// Takes what lies ready, until it is over. It asks for nothing else: what a client was told to
/// come back for is made without regard for others.
fn consume(broker: &Broker, over: &AtomicBool) -> Result<()> {
    let mut client = broker.connect()?;
    let want = Want { bytes: LEASE, page: Page::Huge, node: None };
    while !over.load(Ordering::Relaxed) {
        let available = client.available(Page::Huge, None)?;
        if available.largest < LEASE {
            std::thread::sleep(Duration::from_millis(5));
            continue;
        }
        match client.lease(want, Duration::ZERO) {
            Ok(lease) => drop(lease),
            Err(ClientError::When(..)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Fillers that were stopped, until dropped.
struct Stopped(Vec<i32>);

impl Stopped {
    fn fillers(broker: &Broker) -> Stopped {
        let fillers = broker.fillers();
        signal(&fillers, Kill::STOP);
        Stopped(fillers)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        signal(&self.0, Kill::CONT);
    }
}

fn signal(processes: &[i32], what: Kill) {
    for pid in processes.iter().filter_map(|&pid| Pid::from_raw(pid)) {
        // One that is gone does nothing.
        let _ = kill_process(pid, what);
    }
}

/// Neighbours, one on each of some CPUs.
struct Crowd {
    workers: Vec<Worker>,
    _folder: Scratch,
}

impl Crowd {
    fn start(cpus: &[usize]) -> Result<Crowd> {
        let (program, folder) = (Program::disturb()?, Scratch::new()?);
        let workers = cpus.iter().map(|cpu| {
            let mut worker = Worker::start(&program, &Allocator::plain(), folder.file("none"))?;
            worker.ask(&format!("pin {cpu}"))?;
            Ok(worker)
        });
        Ok(Crowd { workers: workers.collect::<Result<_>>()?, _folder: folder })
    }

    /// ns of a unit of work in a slice, by the clock and by CPU time.
    fn slice(&mut self, command: &str, lead: Duration, slice: Duration) -> Result<(f64, f64)> {
        for worker in &mut self.workers {
            worker.tell(&format!("{command} {} {}", lead.as_nanos(), slice.as_nanos()))?;
        }
        let (mut work, mut cpu, mut wall) = (0.0, 0.0, 0.0);
        for worker in &mut self.workers {
            let [done, cpu_ns, wall_ns] = worker.hear()?[..] else {
                anyhow::bail!("{command}: a neighbour told something else")
            };
            (work, cpu, wall) = (work + done as f64, cpu + cpu_ns as f64, wall + wall_ns as f64);
        }
        ensure!(work > 0.0, "{command}: nothing done in {slice:?}");
        Ok((wall / work, cpu / work))
    }
}
