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
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use prezero::Size;
use prezerod::client::ClientError;
use prezerod::host::neighbours::SAMPLE_NS;
use prezerod::inode::{Kind, Making};
use prezerod::protocol::{Backing, Page, Want};
use prezerod::tenant::Payer;
use rustix::process::{Pid, Signal as Kill, kill_process};

use crate::broker::{Broker, HUGE, Reserved, backings, own_hugetlb, own_thp, warm};
use crate::figure::{Across, Against, Better, Case, Figure, Report, Sheet};
use crate::neighbours::{Crowd, Sizes};
use crate::peers::Field;
use crate::progress::{self, kept, step};
use crate::worker::{Program, allowed_cpus};
use prezero_host::samples::Change;

/// What it should reach: of one thread's populating, and of neighbours without fillers.
const SHARE: f64 = 0.9;
const SPARED: f64 = 1.0 / 1.02;
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
    /// Pairs of slices beside each load, 5 or more
    #[arg(long, value_name = "N", default_value_t = 12)]
    rounds: usize,
    /// Length of a slice
    #[arg(long, value_name = "S", default_value_t = 0.4)]
    seconds: f64,
    /// One backing only: thp, hugetlb [both]
    #[arg(long, value_name = "BACKING", value_parser = ["thp", "hugetlb"])]
    only: Option<String>,
    /// Have the broker fill at most so much in a second, and hold back for no other work beyond that
    /// [as it does by itself]
    #[arg(long, value_name = "SIZE")]
    rate: Option<Size>,
    /// Reserve the hugetlb pages that this takes, and give them back at the end (as root)
    #[arg(long)]
    reserve: bool,
}

/// How fillers treat neighbours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Manner {
    /// As it comes: they hold back while others work.
    Considerate,
    /// As fast as they can, or as `--rate` says.
    Regardless,
}

impl Manner {
    fn name(self) -> &'static str {
        match self {
            Manner::Considerate => "hold back",
            Manner::Regardless => "do not",
        }
    }

    /// In the configuration.
    fn line(self) -> &'static str {
        match self {
            Manner::Considerate => "",
            Manner::Regardless => "rate-busy = \"1T\"\n",
        }
    }
}

/// Sizes of the crowd, and what it does: for the bar of progress.
const CROWDS: usize = 3;
const LOADS: usize = 4;

/// The two tables.
struct Sheets {
    pace: Sheet,
    felt: Sheet,
}

impl Case for Fill {
    fn measure(&self) -> Result<Report> {
        let (rounds, seconds) = (self.rounds, self.seconds);
        ensure!(rounds >= 5, "--rounds {rounds}: too few; give 5 or more");
        if let Some(rate) = self.rate {
            ensure!(rate.0 as u64 >= HUGE, "--rate {rate}: less than a page; give 2M or more");
        }
        ensure!((0.05..=10.0).contains(&seconds), "--seconds {seconds}: give 0.05 to 10");
        let mut report = Report::here("fill", Field::none());
        let bytes = (READY + 2) * LEASE;
        let _reserved = if self.reserve { Some(Reserved::new(bytes / HUGE)?) } else { None };
        let mut there = backings(bytes, &mut report.notes);
        warm(bytes).context("warming: no memory of that size")?;
        there.retain(|backing| self.only.as_ref().is_none_or(|only| only == backing.name()));
        progress::expect(there.len() * (1 + CROWDS * LOADS));
        let mut pace = Sheet::new("Filling: a broker's pace", &[], Across::Name)
            .note("one thread: one that populates as much in one call; bare loop: a filler's calls and nothing else");
        if let Some(rate) = self.rate {
            pace = pace.note(format!("capped at {:.2} GB/s", rate.0 as f64 / 1e9));
        }
        let felt = Sheet::new(
            "Filling: what neighbours feel",
            &["fillers", "neighbours", "load"],
            Across::Name,
        )
        .note(format!("{rounds} pairs of slices of {seconds} s, with fillers and without"));
        let mut sheets = Sheets { pace, felt };
        for backing in there {
            if kept(self.backing(backing, report.machine.memory_bytes, &mut sheets))?.is_none() {
                break;
            }
        }
        report.sheets = vec![sheets.pace, sheets.felt];
        Ok(report)
    }
}

impl Fill {
    fn backing(&self, backing: Backing, memory: usize, sheets: &mut Sheets) -> Result<()> {
        // The memory of the backing before it may have gone to a guest's host.
        warm(READY * LEASE).context("warming: no memory of that size")?;
        step(&format!("fill: {}, pace", backing.name()))?;
        let mut both = |manner: Manner, lines: &str| {
            beside_client(backing, lines, |broker| {
                sheets.pace.extend(self.pace(backing, broker)?);
                self.felt(backing, manner, broker, memory, sheets, 0..=1)
            })
        };
        if let Some(rate) = self.rate {
            let lines = format!("rate = {}\n{}", rate.0, Manner::Regardless.line());
            return both(Manner::Regardless, &lines);
        }
        both(Manner::Considerate, Manner::Considerate.line())?;
        // With all CPUs busy nothing is filled, whatever their manner.
        beside_client(backing, Manner::Regardless.line(), |broker| {
            self.felt(backing, Manner::Regardless, broker, memory, sheets, 1..=1)
        })
    }

    /// Neighbours on all CPUs but `spared`.
    fn felt(
        &self,
        backing: Backing,
        manner: Manner,
        broker: &Broker,
        memory: usize,
        sheets: &mut Sheets,
        spared: RangeInclusive<usize>,
    ) -> Result<()> {
        let made = || broker.counter(MADE_BYTES);
        let cpus = allowed_cpus()?;
        let sizes = Sizes::here(memory, cpus.len());
        let mut loads = vec![("compute".to_owned(), "compute".to_owned())];
        for bytes in [sizes.l2, sizes.l3, sizes.dram] {
            loads.push((format!("chase {}", Size(bytes)), format!("chase {bytes}")));
        }
        let (program, wanted) =
            (Program::find("disturb")?, (manner == Manner::Considerate).then_some(SPARED));
        for busy in spared.map(|spared| cpus.len().saturating_sub(spared)).filter(|busy| *busy > 0)
        {
            let mut crowd = Crowd::start(&program, &cpus[cpus.len() - busy..])?;
            let neighbours = format!("on {busy} of {} CPUs", cpus.len());
            for (load, command) in &loads {
                step(&format!("fill: {}, {load} {neighbours}", backing.name()))?;
                let before = made()?;
                let (on, off, filled_s) = self.load(broker, &mut crowd, command)?;
                let filled = gb_per_s(made()? - before, filled_s);
                for (nth, name) in ["wall", "CPU"].into_iter().enumerate() {
                    let of = |all: &[[f64; 2]]| all.iter().map(|one| one[nth]).collect::<Vec<_>>();
                    let (times, noise) = Change::of(&of(&on), &of(&off)).context("slices")?.times();
                    let without =
                        Against { noise: Some(noise), ..Against::new("without", "without", times) };
                    let wanted = wanted.filter(|_| name == "wall");
                    let figure = Figure::of_samples(backing.name(), name, "ns", of(&on))
                        .context("slices")?;
                    let figure = figure.case(&[manner.name(), &neighbours, load]);
                    sheets.felt.push(figure.and([Against { wanted, ..without }]));
                }
                let filled =
                    Figure::new(backing.name(), "filled", "GB/s", filled).better(Better::More);
                sheets.felt.push(filled.case(&[manner.name(), &neighbours, load]));
            }
        }
        Ok(())
    }

    fn pace(&self, backing: Backing, broker: &Broker) -> Result<Vec<Figure>> {
        while broker.fillers().is_empty() || broker.counter(MADE_BYTES)? == 0.0 {
            std::thread::sleep(LEAD);
        }
        let sums =
            || Ok::<_, anyhow::Error>([broker.counter(MADE_BYTES)?, broker.counter(MADE_CPU)?]);
        let (mut made, mut wall_s, mut rival, mut bare) = ([0.0; 2], 0.0, vec![], vec![]);
        for _ in 0..TURNS {
            // The rivals were neighbours of the stopped fillers. The fillers see now that they are
            // gone.
            std::thread::sleep(2 * Duration::from_nanos(SAMPLE_NS));
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
        let rate =
            |name, value| Figure::new(backing.name(), name, "GB/s", value).better(Better::More);
        let of = |name, samples| {
            let figure =
                Figure::of_samples(backing.name(), name, "GB/s", samples).context("turns")?;
            Ok::<_, anyhow::Error>(figure.better(Better::More))
        };
        let (rival, bare) = (of("one thread", rival)?, of("bare loop", bare)?);
        let of_rival = |figure: Figure, wanted| {
            let share = Against::new("one thread", "one thread", figure.times(&rival));
            let of_bare = Against::new("bare loop", "bare loop", figure.times(&bare));
            figure.and([Against { wanted, ..share }, of_bare])
        };
        let wanted = self.rate.is_none().then_some(SHARE);
        let wall = of_rival(rate("filled", gb_per_s(made[0], wall_s)), wanted);
        let cpu = of_rival(rate("filled by CPU", gb_per_s(made[0], made[1])), None);
        Ok(vec![wall, cpu, rival, bare])
    }

    /// ns of a unit of work by the clock and by CPU time, with fillers and without; and for how
    /// many seconds the fillers might run.
    fn load(
        &self,
        broker: &Broker,
        crowd: &mut Crowd,
        command: &str,
    ) -> Result<(Slices, Slices, f64)> {
        let (mut on, mut off, mut filled_s) = (vec![], vec![], 0.0);
        // One pair more than is counted: chases are laid out in the first.
        for round in 0..=self.rounds {
            for which in [round % 2 == 0, round % 2 == 1] {
                let began = Instant::now();
                let _stopped = (!which).then(|| Stopped::fillers(broker));
                let felt = crowd.slice(command, LEAD, Duration::from_secs_f64(self.seconds))?;
                let felt = [felt.0, felt.1];
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

/// ns of a unit of work in each slice, by the clock and by CPU time.
type Slices = Vec<[f64; 2]>;

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

/// Takes leases that lie ready, until it is over. It asks for no other: the broker makes a lease
/// that a client was told to come back for without regard for other work.
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
