//! `prezero bench scrub`: how fast scrubd clears, against the same engine in a bare loop.
//!
//! Both in this process, on memory of the same zone, in turns: a block is written by
//! this thread and freed, scrubd clears it; another is written by this thread, and the
//! engine clears it here. Both count the CPU time of the thread that cleared, so a
//! scrubd that has to wait for a CPU is not called slow. scrubd's other work, claims, pieces,
//! commits and its accounting, is in its time.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use prezero::clear::{self, ClearEngine};
use prezero::{
    Anonymous, Block, Config, Counter, Dirty, EngineChoice, Machine, Order, PAGE, Size, StatsSink,
    Zone,
};

use crate::figure::{Across, Better, Case, Figure, Report, Sheet};
use crate::peers::{Field, PREZERO};
use crate::progress::{self, step};

/// The engine's, in every report.
const BARE: &str = "bare loop";
/// What the design asks of scrubd.
const WANTED: f64 = 0.85;
/// Of one block: more than a core's own caches hold.
const BYTES: usize = 64 << 20;
/// Room for the blocks of both.
const LIMIT: usize = 512 << 20;
/// Turns that are not counted: the zone is new, and no zeroes were requested yet.
const WARM_UP: usize = 3;
/// How long scrubd may take for one block.
const PATIENCE: Duration = Duration::from_secs(10);
/// Of a block, in bytes: less is too short a time to tell a rate from.
const MOST: u64 = BYTES as u64 / 2;
/// The time without progress after which it rests. Longer than its naps within a block.
const AT_REST: Duration = Duration::from_millis(20);
/// How often it is looked after.
const LOOK: Duration = Duration::from_millis(1);

/// The command line of `prezero bench scrub`.
#[derive(clap::Args)]
#[command(after_help = "Example: prezero bench scrub --engines stosb,avx512-nt")]
pub struct Scrub {
    /// Turns of each, 15 or more
    #[arg(long, value_name = "N", default_value_t = 15)]
    runs: usize,
    /// Which engines, of `prezero engines` [all]
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    engines: Vec<String>,
}

impl Case for Scrub {
    fn measure(&self) -> Result<Report> {
        ensure!(self.runs >= 15, "--runs {}: too few; give 15 or more", self.runs);
        let chosen = self.chosen()?;
        let mut report = Report::here("scrub", Field::none());
        let mut sheet = Sheet::new("scrub: clearing, by engine", &["engine"], Across::Who).note(format!(
            "blocks of {}, each written whole before; in turns; bytes for the clearing thread's CPU time",
            Size(BYTES)
        ));
        progress::expect(chosen.len());
        for engine in chosen {
            if step(&format!("scrub: {}", engine.name())).is_err() {
                break;
            }
            sheet.extend(self.engine(engine)?);
        }
        report.sheets.push(sheet);
        Ok(report)
    }
}

impl Scrub {
    fn chosen(&self) -> Result<Vec<&'static dyn ClearEngine>> {
        if self.engines.is_empty() {
            return Ok(clear::engines().collect());
        }
        let named = |name: &String| {
            clear::by_name(name)
                .with_context(|| format!("--engines {name}: not on this CPU; see prezero engines"))
        };
        self.engines.iter().map(named).collect()
    }

    fn engine(&self, engine: &'static dyn ClearEngine) -> Result<[Figure; 2]> {
        let zone = zone(engine.name())?;
        let pages = (BYTES / PAGE) as u32;
        let ours = zone.zero(pages, Order::MIN).context("the zone is full")?.into_dirty();
        let (mut scrubd, mut bare) = (vec![], vec![]);
        for turn in 0..WARM_UP + self.runs {
            let theirs = zone.zero(pages, Order::MIN).context("the zone is full")?.into_dirty();
            soil(zone, &theirs);
            let (bytes, ns) = scrubbed_by(zone, || zone.free(theirs))?;
            let bare_ns = cleared_here(zone, &ours, engine);
            if turn >= WARM_UP {
                scrubd.push(bytes as f64 / ns as f64);
                bare.push(BYTES as f64 / bare_ns as f64);
            }
        }
        zone.free(ours);
        zone.reclaim();
        figures(engine.name(), bare, scrubd).context("no samples")
    }
}

/// GB/s of the bare loop, and those of scrubd against them.
fn figures(engine: &str, bare: Vec<f64>, scrubd: Vec<f64>) -> Option<[Figure; 2]> {
    let figure = |who: &str, samples| {
        let figure = Figure::of_samples(who, "rate", "GB/s", samples)?;
        Some(figure.case(&[engine]).better(Better::More))
    };
    let (bare, scrubd) = (figure(BARE, bare)?, figure(PREZERO, scrubd)?);
    let share = scrubd.against(BARE, &bare).wanted(WANTED);
    Some([bare, scrubd.and([share])])
}

/// A zone that scrubs with one engine and verifies nothing; it stays for the process.
fn zone(engine: &'static str) -> Result<&'static Zone<Anonymous>> {
    let mut config = Config::new(&Machine::here());
    config.limit = LIMIT;
    config.engine = EngineChoice::Named(engine);
    config.verify = prezero::Verify::Off;
    config.stats = StatsSink::Off;
    let backing = Anonymous::reserve(config.limit).context("reserving memory")?;
    let zone: &'static _ = Box::leak(Box::new(Zone::new(backing, &config)?));
    prezero::allow_scrubd(zone);
    Ok(zone)
}

/// Writes to every line of a block.
fn soil(zone: &Zone<Anonymous>, block: &Block<Dirty>) {
    // SAFETY: the block is ours until it is freed, and this long.
    unsafe { zone.address(block).write_bytes(0xa5, block.bytes()) };
}

/// Bytes that scrubd cleared, and the CPU time that it took, from before `free` until it
/// has done most of a block and rests: how much it leaves as it is, is its own decision.
fn scrubbed_by(zone: &Zone<Anonymous>, free: impl FnOnce()) -> Result<(u64, u64)> {
    let before = zone.snapshot();
    let start = Instant::now();
    free();
    let (mut last, mut since) = (0, Instant::now());
    loop {
        std::thread::sleep(LOOK);
        let done = zone.snapshot().delta(&before);
        let (bytes, ns) = (done.get(Counter::ScrubbedBytes), done.get(Counter::ScrubCpuNs));
        if bytes != last {
            (last, since) = (bytes, Instant::now());
        } else if bytes >= MOST && ns > 0 && since.elapsed() >= AT_REST {
            return Ok((bytes, ns));
        }
        if start.elapsed() > PATIENCE {
            bail!(
                "scrubd cleared {} of {} in {} s; is there an idle CPU?",
                Size(bytes as usize),
                Size(BYTES),
                PATIENCE.as_secs()
            );
        }
    }
}

/// CPU time, in ns, that the engine takes for the block on this thread.
fn cleared_here(zone: &Zone<Anonymous>, block: &Block<Dirty>, engine: &dyn ClearEngine) -> u64 {
    soil(zone, block);
    let start = thread_cpu_ns();
    // SAFETY: whole pages, mapped (just written), ours until freed; the registry vouches
    // that the CPU has the engine.
    unsafe { engine.clear(zone.address(block), block.bytes()) };
    (thread_cpu_ns() - start).max(1)
}

fn thread_cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the struct is there for the call to fill; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_below_what_is_wanted_is_judged_so() {
        let judged = |rate| figures("x", vec![10.0], vec![rate]).unwrap()[1].against[0].judged();
        assert_eq!(judged(9.0), Some(prezero_host::samples::Judged::Within));
        assert_eq!(judged(8.0), Some(prezero_host::samples::Judged::Beyond));
    }

    #[test]
    fn an_engine_that_is_not_here_is_named() {
        let scrub = Scrub { runs: 15, engines: vec!["warp".into()] };
        let error = scrub.measure().unwrap_err().to_string();
        assert!(error.starts_with("--engines warp: "), "{error}");
    }
}
