//! The grid's ideal: its rounds on memory that was scrubbed in the pause, and no allocator.
//!
//! The best clear for a cell is not known beforehand, so each [`Way`] is tried: the cached, the
//! bypassing and the demoting engine, on the CPU that touches the block (home) and on another one
//! (away). The rhythm is the workers': a pause, then one pass of the same compiled loop. The clear
//! opens the pause, and its CPU sleeps for what is left, so caches and clocks cool as they do for
//! the allocators. A clear that ends late is followed by [`COOL`] of sleep, so that no way gains by
//! having no time to rest. The memory is a zone's: reserved the same way, in huge pages where the
//! kernel allows, resident; each pass over a size has some of its own, as the allocators' processes
//! have.

use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use prezero::clear::{Cache, ClearEngine};
use prezero::{Anonymous, Backing, Topology};
use prezero_sys::thread::{CpuMask, set_affinity};

use prezero_cli::bare::Memory;

use crate::output::config_here;
use crate::worker::{Burst, LINE, LINES, allowed_cpus};

/// Sleep between a clear and its sample, at least: scrubd's longest nap within work.
const COOL: Duration = Duration::from_micros(500);
/// What the engines are chosen on: more than private caches hold.
const CALIBRATED_ON: usize = 64 << 20;

/// Where the clear happens, seen from the CPU that touches the block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Home,
    Away,
}

/// An engine at a place.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    engine: &'static dyn ClearEngine,
    place: Place,
}

impl std::fmt::Display for Way {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let place = match self.place {
            Place::Home => "home",
            Place::Away => "away",
        };
        write!(f, "{} {place}", self.engine.name())
    }
}

/// What can be tried on this machine.
#[derive(Debug)]
pub struct Ways {
    all: Vec<Way>,
    cpus: Vec<usize>,
    /// Bytes that prezero clears through a shared cache to be used together, at most.
    set: usize,
}

impl Ways {
    /// Measures which engines there are to try.
    pub fn here() -> Result<Ways> {
        let cpus = allowed_cpus()?;
        let chosen = Memory::new(CALIBRATED_ON).calibrated();
        let engines = distinct([Some(chosen.cached), Some(chosen.bypassing), chosen.demoting]);
        let set = config_here().scrub_cache;
        let set = set.unwrap_or_else(|| Topology::read(Path::new(Topology::ROOT)).set());
        Ok(Ways { all: ways(&engines, cpus.len()), cpus, set })
    }
}

/// Memory, and the ways to scrub it.
#[derive(Debug)]
pub struct Ideal<'a> {
    memory: Anonymous,
    ways: &'a Ways,
}

impl<'a> Ideal<'a> {
    /// For blocks of up to `bytes`, whole pages.
    pub fn new(bytes: usize, ways: &'a Ways) -> Result<Ideal<'a>> {
        let memory = Anonymous::reserve(bytes.next_multiple_of(prezero::HUGE))
            .with_context(|| format!("reserving {bytes} bytes for the ideal"))?;
        // SAFETY: the range is ours, mapped and this long.
        unsafe { memory.base().write_bytes(1, memory.len()) };
        Ok(Ideal { memory, ways })
    }

    /// What can be tried here.
    pub fn ways(&self) -> &'a [Way] {
        &self.ways.all
    }

    /// Whether the `nth` way takes more of a cache that others use than prezero may, when it clears `bytes`.
    pub fn crowds(&self, nth: usize, bytes: usize) -> bool {
        let through = self.ways.all[nth].engine.cache() != Cache::Bypassing;
        through && bytes > self.ways.set
    }

    /// Nanoseconds of each sample of a burst of single rounds with a pause. Home is the
    /// `turn`-th CPU, so that the CPUs take turns as well.
    pub fn run(&self, way: Way, burst: Burst, turn: usize) -> Result<Vec<f64>> {
        ensure!(burst.rounds == 1 && burst.idle_ns > 0, "the ideal is one round after a pause");
        ensure!(burst.bytes <= self.memory.len(), "the ideal has no {} bytes", burst.bytes);
        let fits = burst.lines > 0 && burst.at < LINES / burst.lines;
        ensure!(fits, "a page has no {} lines from line {} on", burst.lines, burst.at);
        let cpus = &self.ways.cpus;
        let cpu = |place: usize| cpus[(turn + place) % cpus.len()];
        let (ask, asked) = channel::<()>();
        let (tell, told) = channel();
        thread::scope(|scope| {
            let away = scope.spawn(|| match way.place {
                Place::Home => Ok(()),
                Place::Away => self.clear_when_asked(way, burst, cpu(1), asked, tell),
            });
            let home = scope.spawn(|| self.touch_in_rhythm(way, burst, cpu(0), ask, told));
            let (samples, cleared) = (joined(home)?, joined(away));
            cleared.and(Ok(samples))
        })
    }

    fn touch_in_rhythm(
        &self,
        way: Way,
        burst: Burst,
        cpu: usize,
        ask: Sender<()>,
        told: Receiver<Instant>,
    ) -> Result<Vec<f64>> {
        set_affinity(&CpuMask::only(cpu)).with_context(|| format!("moving to CPU {cpu}"))?;
        let mut samples = Vec::with_capacity(burst.samples);
        for _ in 0..burst.samples {
            let due = Instant::now() + Duration::from_nanos(burst.idle_ns);
            match way.place {
                Place::Home => {
                    self.clear(way, burst);
                    sleep_until(due.max(Instant::now() + COOL));
                }
                Place::Away => {
                    ask.send(()).context("the clearing thread is gone")?;
                    sleep_until(due);
                    // One look, no clock: what runs here warms the core for the sample.
                    let cleared = match told.try_recv() {
                        Ok(cleared) => cleared,
                        Err(_) => told.recv().context("the clearing thread is gone")?,
                    };
                    if cleared + COOL > due {
                        thread::sleep(COOL);
                    }
                }
            }
            let start = Instant::now();
            self.touch(burst);
            samples.push(start.elapsed().as_nanos() as f64);
        }
        Ok(samples)
    }

    fn clear_when_asked(
        &self,
        way: Way,
        burst: Burst,
        cpu: usize,
        asked: Receiver<()>,
        tell: Sender<Instant>,
    ) -> Result<()> {
        set_affinity(&CpuMask::only(cpu)).with_context(|| format!("moving to CPU {cpu}"))?;
        while asked.recv().is_ok() {
            self.clear(way, burst);
            if tell.send(Instant::now()).is_err() {
                break;
            }
        }
        Ok(())
    }

    fn clear(&self, way: Way, burst: Burst) {
        // SAFETY: whole pages of our own resident memory, no more than there is, which the
        // other thread does not touch until it is told; the CPU has the engine.
        unsafe { way.engine.clear(self.memory.base(), burst.bytes) };
    }

    fn touch(&self, burst: Burst) {
        let first = burst.at * LINE;
        // SAFETY: lines of whole pages of our own memory, no more than there is, as `run` checked;
        // no engine clears now.
        unsafe { touch_lines(self.memory.base().as_ptr().add(first), burst.bytes, burst.lines) };
    }
}

unsafe extern "C" {
    /// `bench/loop.c`, the object that the workers are linked with.
    fn touch_lines(start: *mut u8, bytes: usize, lines: usize);
}

/// Each engine once, in order.
fn distinct(
    engines: impl IntoIterator<Item = Option<&'static dyn ClearEngine>>,
) -> Vec<&'static dyn ClearEngine> {
    let mut distinct: Vec<&'static dyn ClearEngine> = vec![];
    for engine in engines.into_iter().flatten() {
        if distinct.iter().all(|known| known.name() != engine.name()) {
            distinct.push(engine);
        }
    }
    distinct
}

/// Every engine at every place that this many CPUs offer. Demoting at home would send away
/// what the touching CPU wants near.
fn ways(engines: &[&'static dyn ClearEngine], cpus: usize) -> Vec<Way> {
    let sensible = |way: &Way| match way.place {
        Place::Home => way.engine.cache() != Cache::Demoted,
        Place::Away => cpus > 1,
    };
    let places = [Place::Home, Place::Away].into_iter();
    let all = places.flat_map(|place| engines.iter().map(move |&engine| Way { engine, place }));
    all.filter(sensible).collect()
}

fn sleep_until(due: Instant) {
    let left = due.saturating_duration_since(Instant::now());
    if !left.is_zero() {
        thread::sleep(left);
    }
}

fn joined<T>(thread: thread::ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

#[cfg(test)]
mod tests {
    use super::*;
    use prezero::clear;

    #[test]
    fn ways_are_every_engine_near_and_far() {
        let cached = clear::engines().find(|engine| engine.cache() == Cache::Cached);
        let engines = distinct([cached, cached, None]);
        assert_eq!(engines.len(), 1);
        let places = |cpus| ways(&engines, cpus).iter().map(|way| way.place).collect::<Vec<_>>();
        assert_eq!(places(2), [Place::Home, Place::Away]);
        assert_eq!(places(1), [Place::Home]);
    }

    #[test]
    fn each_way_leaves_the_touched_lines_and_nothing_else_written() {
        let bytes = 2 * prezero::PAGE;
        let ways = Ways::here().unwrap();
        let ideal = Ideal::new(bytes, &ways).unwrap();
        for &way in ideal.ways() {
            let burst = Burst { bytes, lines: 4, at: 5, samples: 3, rounds: 1, idle_ns: 100_000 };
            assert_eq!(ideal.run(way, burst, 0).unwrap().len(), 3);
            // SAFETY: ours, initialised, and no thread writes now.
            let block = unsafe { std::slice::from_raw_parts(ideal.memory.base().as_ptr(), bytes) };
            assert_eq!(block.iter().map(|&byte| usize::from(byte)).sum::<usize>(), 8, "{way}");
        }
    }

    #[test]
    fn a_clear_through_the_cache_crowds_it_beyond_a_set() {
        let ways = Ways::here().unwrap();
        let ideal = Ideal::new(prezero::PAGE, &ways).unwrap();
        for (nth, way) in ideal.ways().iter().enumerate() {
            let through = way.engine.cache() != Cache::Bypassing;
            assert_eq!(
                (ideal.crowds(nth, ways.set), ideal.crowds(nth, ways.set + 1)),
                (false, through)
            );
        }
    }

    #[test]
    fn rounds_without_a_pause_have_no_ideal() {
        let ways = Ways::here().unwrap();
        let ideal = Ideal::new(prezero::PAGE, &ways).unwrap();
        let burst = Burst { bytes: 4096, lines: 1, at: 0, samples: 1, rounds: 1, idle_ns: 0 };
        assert!(ideal.run(ideal.ways()[0], burst, 0).is_err());
    }

    #[test]
    fn lines_that_a_page_does_not_have_are_refused() {
        let ways = Ways::here().unwrap();
        let ideal = Ideal::new(prezero::PAGE, &ways).unwrap();
        let burst = Burst { bytes: 4096, lines: 4, at: 15, samples: 1, rounds: 1, idle_ns: 1 };
        assert!(ideal.run(ideal.ways()[0], burst, 0).is_ok());
        for (lines, at) in [(4, 16), (64, 1), (0, 0), (65, 0)] {
            assert!(ideal.run(ideal.ways()[0], Burst { lines, at, ..burst }, 0).is_err());
        }
    }
}
