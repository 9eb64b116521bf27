//! `prezero bench pinned`: host memory for a GPU, until it is pinned, by the ways that servers have and by a lease.
//!
//! Each way is a process of its own: CUDA's context is there, then memory is made and pinned, touched, and copied to the device
//! and back. A second process asks `cudaMemGetInfo` in a loop meanwhile, as the servers beside it do: its longest wait
//! is the driver's lock. A lease is one that lies ready, taken by `prezero claim --pinned`, whose library answers `cudaHostAlloc`;
//! `--or-plain` is that library without a lease.
//!
//! `--knobs` measures what `--pinned-threshold` of `prezero claim` is worth: with and without.
//!
//! A machine without a GPU has a stand-in for CUDA (tests/standin), by `LD_LIBRARY_PATH`: its pins are real, its device is
//! the host. The report says so.

mod cuda;
pub mod once;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use prezero::Size;
use prezero_cli::companion;
use prezerod::protocol::Backing;

use crate::broker::{Broker, HUGE, backings, warm};
use crate::figure::{Across, Better, Case, Figure, Report, Sheet};
use crate::peers::Field;
use crate::progress::{self, Interrupted, kept, step};
use crate::scratch::Scratch;
use once::Way;

/// What a server waits for at most, in ms, while another one pins.
const STALL_MS: f64 = 100.0;
/// A lease against `cudaHostAlloc`, and against the best of the servers' own ways.
const OVER_ALLOC: f64 = 15.0;
const OVER_OWN: f64 = 3.0;

/// The command line of `prezero bench pinned`.
#[derive(clap::Args)]
#[command(after_help = "Example: prezero bench pinned --sizes 1G,4G --runs 3")]
pub struct Pinned {
    /// Rounds of each size
    #[arg(long, value_name = "N", default_value_t = 3)]
    runs: usize,
    /// Sizes
    #[arg(long, value_delimiter = ',', value_name = "SIZE,...", default_value = "1G,4G,16G")]
    sizes: Vec<Size>,
    /// The threshold of `prezero claim --pinned` instead, with and without
    #[arg(long)]
    knobs: bool,
}

/// Where a process gets its memory from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum From {
    Own(Way),
    Lease,
    Plain,
    /// Pieces below the default threshold, without `--pinned-threshold` and with it.
    Pieces,
    PiecesServed,
}

const KNOBS: [From; 2] = [From::Pieces, From::PiecesServed];

const ALL: [From; 7] = [
    From::Own(Way::Alloc),
    From::Own(Way::Small),
    From::Own(Way::Thp),
    From::Own(Way::Threads),
    From::Own(Way::Hugetlb),
    From::Plain,
    From::Lease,
];

impl From {
    /// Whether the broker has its memory.
    fn is_leased(self) -> bool {
        !matches!(self, From::Own(_) | From::Plain)
    }

    /// Its knob of `prezero claim`.
    fn knob(self) -> Option<[String; 2]> {
        let threshold = || ["--pinned-threshold".into(), Size(once::PIECE).to_string()];
        (self == From::PiecesServed).then(threshold)
    }

    fn name(self) -> &'static str {
        match self {
            From::Own(way) => way.told(),
            From::Lease => "a lease",
            From::Plain => "--or-plain",
            From::Pieces => "a lease, 16 MiB each",
            From::PiecesServed => "a lease, 16 MiB each, --pinned-threshold 16M",
        }
    }
}

impl Case for Pinned {
    fn measure(&self) -> Result<Report> {
        ensure!(self.runs >= 1, "--runs {}: give 1 or more", self.runs);
        let whole = |size: &&Size| !(size.0 as u64).is_multiple_of(HUGE) || size.0 == 0;
        if let Some(bad) = self.sizes.iter().find(whole) {
            bail!("--sizes {bad}: give multiples of 2M");
        }
        let mut report = Report::here("pinned", Field::none());
        let is_standin = cuda::Cuda::find()?.is_standin;
        if is_standin {
            report.notes.push(
                "no GPU: a stand-in for CUDA pins by io_uring, and copies on the host".into(),
            );
        }
        let room = report.machine.memory_bytes as u64 / 5 * 2;
        progress::expect(self.sizes.len() * self.runs * self.ways().len());
        let mut sheet = Sheet::new("Pinned memory", &["size"], Across::Name).note(format!(
            "medians of {} rounds, in turn; first touch by the thread's CPU time; \
             stall: the longest cudaMemGetInfo of a second process",
            self.runs
        ));
        for size in &self.sizes {
            let bytes = size.0 as u64;
            if bytes > room {
                report
                    .notes
                    .push(format!("left out: {size}: memory has room for {}", Size(room as usize)));
                continue;
            }
            match kept(self.size(bytes, &mut report.notes)) {
                Ok(Some(figures)) => sheet.extend(figures),
                Ok(None) => break,
                Err(error) => report.notes.push(format!("left out: {size}: {error:#}")),
            }
        }
        ensure!(!sheet.figures.is_empty(), "nothing was measured: {}", report.notes.join("; "));
        report.sheets.push(sheet);
        Ok(report)
    }
}

impl Pinned {
    fn ways(&self) -> &'static [From] {
        if self.knobs { &KNOBS } else { &ALL }
    }

    fn size(&self, bytes: u64, notes: &mut Vec<String>) -> Result<Vec<Figure>> {
        let scratch = Scratch::new()?;
        let size = Size(bytes as usize);
        warm(bytes).context("warming: no memory of that size")?;
        let there = backings(bytes + HUGE, &mut vec![]);
        let backing = if there.contains(&Backing::Thp) { Backing::Thp } else { Backing::Hugetlb };
        let broker = Broker::start(backing, bytes, 1)?;
        let mut watcher = Watcher::start(&scratch)?;
        let mut all: Vec<(From, Vec<Taken>)> =
            self.ways().iter().map(|&from| (from, vec![])).collect();
        for round in 0..self.runs {
            for (from, samples) in &mut all {
                step(&format!("pinned: {size}, {}, round {}", from.name(), round + 1))?;
                broker.wait_for(1)?;
                match one(*from, bytes, &broker, &scratch, &mut watcher) {
                    Ok(taken) => samples.push(taken),
                    Err(error) if error.is::<Interrupted>() => return Err(error),
                    Err(error) => {
                        let note = format!("left out: {size}, {}: {error:#}", from.name());
                        if !notes.contains(&note) {
                            notes.push(note);
                        }
                    }
                }
            }
        }
        Ok(figures(&size.to_string(), all))
    }
}

/// What one process took.
#[derive(Clone, Copy, Default, Debug)]
struct Taken {
    pinned_ms: f64,
    touch_ms: f64,
    to_gb_s: f64,
    from_gb_s: f64,
    stall_ms: f64,
}

fn one(
    from: From,
    bytes: u64,
    broker: &Broker,
    scratch: &Scratch,
    watcher: &mut Watcher,
) -> Result<Taken> {
    let own = std::env::current_exe().context("this program is gone")?;
    let way = match from {
        From::Own(way) => way,
        From::Pieces | From::PiecesServed => Way::Pieces,
        _ => Way::Alloc,
    };
    let size = Size(bytes as usize).to_string();
    let mut command = match from {
        From::Own(_) => Command::new(&own),
        _ => {
            let mut command = Command::new(companion::find(companion::PREZERO)?);
            let nowhere = scratch.file("no-broker");
            let socket = if from.is_leased() { broker.socket() } else { nowhere };
            command.args(["claim", &size, "--pinned", "--wait", "30", "--socket"]).arg(socket);
            if !from.is_leased() {
                command.arg("--or-plain");
            }
            command.args(from.knob().into_iter().flatten());
            command.arg("--").arg(&own);
            command
        }
    };
    command.args(["pinned-once", way.word(), &size]).env("STANDIN_DIR", scratch.file(""));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut process = Ended(command.spawn().context("the worker cannot be run")?);
    let mut output = BufReader::new(process.0.stdout.take().context("no output")?);
    let mut line = String::new();
    output.read_line(&mut line)?;
    ensure!(line.trim() == "ready", "CUDA refuses: {}", line.trim());
    watcher.longest()?;
    let mut input = process.0.stdin.take().context("no input")?;
    input.write_all(b"go\n")?;
    line.clear();
    output.read_line(&mut line)?;
    let stall_ms = watcher.longest()?;
    let values: Vec<f64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [pinned_ms, touch_ms, to_gb_s, from_gb_s] = values[..] else { bail!("{}", line.trim()) };
    drop(input);
    process.0.wait()?;
    Ok(Taken { pinned_ms, touch_ms, to_gb_s, from_gb_s, stall_ms })
}

/// A process that does not outlive its use.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The second process.
struct Watcher {
    _process: Ended,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Watcher {
    fn start(scratch: &Scratch) -> Result<Watcher> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["pinned-once", "watch", "0"]).env("STANDIN_DIR", scratch.file(""));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Ended(command.spawn().context("the second process cannot be run")?);
        let input = process.0.stdin.take().context("no input")?;
        let output = BufReader::new(process.0.stdout.take().context("no output")?);
        Ok(Watcher { _process: process, input, output })
    }

    /// ms of its longest question since the last time.
    fn longest(&mut self) -> Result<f64> {
        self.input.write_all(b"\n")?;
        std::thread::sleep(Duration::from_millis(1));
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        line.trim().parse().with_context(|| format!("the second process says {:?}", line.trim()))
    }
}

/// The medians of each way, and a lease against the others.
fn figures(size: &str, all: Vec<(From, Vec<Taken>)>) -> Vec<Figure> {
    let mut figures = vec![];
    for (from, taken) in all {
        let of = |name: &str, unit: &str, value: fn(&Taken) -> f64| {
            Figure::of_samples(from.name(), name, unit, taken.iter().map(value).collect())
        };
        let until = of("until pinned", "ms", |taken| taken.pinned_ms);
        let touch = of("first touch", "ms", |taken| taken.touch_ms);
        let to =
            of("to the GPU", "GB/s", |taken| taken.to_gb_s).map(|each| each.better(Better::More));
        let back =
            of("from it", "GB/s", |taken| taken.from_gb_s).map(|each| each.better(Better::More));
        let stall = of("stall", "ms", |taken| taken.stall_ms);
        let is_own = matches!(from, From::Own(_));
        let stall = stall.map(|each| if is_own { each } else { each.wanted(STALL_MS) });
        let each = [until, touch, to, back, stall].into_iter().flatten();
        figures.extend(each);
    }
    let until = |figures: &[Figure], who: &str| {
        figures.iter().find(|figure| figure.who == who && figure.name == "until pinned").cloned()
    };
    let alloc = until(&figures, Way::Alloc.told());
    let threads = until(&figures, Way::Threads.told());
    for figure in figures.iter_mut().filter(|figure| figure.name == "until pinned") {
        let over_own = if figure.who == From::Lease.name() { OVER_OWN } else { 1.0 };
        if figure.who == From::Lease.name() {
            let against =
                alloc.as_ref().map(|alloc| figure.against(&alloc.who, alloc).wanted(OVER_ALLOC));
            figure.against.extend(against);
        }
        if [From::Lease, From::Plain].iter().any(|from| from.name() == figure.who) {
            let against =
                threads.as_ref().map(|own| figure.against(&own.who, own).wanted(over_own));
            figure.against.extend(against);
        }
    }
    figures.into_iter().map(|figure| figure.case(&[size])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_held_against_the_driver_and_the_servers_own_ways() {
        let took = |pinned_ms| vec![Taken { pinned_ms, stall_ms: 5.0, ..Taken::default() }];
        let all = figures(
            "1G",
            vec![
                (From::Own(Way::Alloc), took(400.0)),
                (From::Own(Way::Threads), took(100.0)),
                (From::Plain, took(50.0)),
                (From::Lease, took(20.0)),
            ],
        );
        let against = |who: &str| -> Vec<(String, f64)> {
            let found = all.iter().find(|each| each.who == who && each.name == "until pinned");
            found.unwrap().against.iter().map(|it| (it.peer.clone(), it.times)).collect()
        };
        let (alloc, threads) = (Way::Alloc.told().to_string(), Way::Threads.told().to_string());
        assert_eq!(against("a lease"), [(alloc, 20.0), (threads.clone(), 5.0)]);
        assert_eq!(against("--or-plain"), [(threads, 2.0)]);
        assert!(against(Way::Alloc.told()).is_empty());
    }
}
