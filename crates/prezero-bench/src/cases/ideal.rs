//! The grid's ideal: its rounds on memory that was scrubbed in the pause, and no allocator.
//!
//! The best clear for a cell is not known beforehand, so each [`Tried`] is: the cached and the
//! bypassing engine, on the CPU that touches the block (home) and on another one
//! (away). The rhythm is that of `bench/touch.c`: a pause, then one pass of the same compiled loop. The clear
//! opens the pause, and its CPU sleeps for what is left, so caches and clocks cool as they do for
//! the allocators. A clear that ends late is followed by [`COOL`] of sleep, so that no way gains by
//! having no time to rest. The memory is a zone's: reserved the same way, in huge pages where the
//! kernel allows, resident. Each run is a process of its own, as those of the allocators are.

use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use prezero::clear::{Cache, ClearEngine, by_name, preferred};
use prezero::{Anonymous, Backing, Topology};
use prezero_host::samples::median;
use prezero_sys::thread::{CpuMask, set_affinity};

use crate::output::config_here;
use crate::worker::{LINE, LINES, allowed_cpus};

/// The least time for which caches and clocks cool between a clear and a touch.
/// Fixed: a part of the shortest pause.
const COOL: Duration = Duration::from_micros(500);
/// Rounds that do not count, and those that do.
/// Fixed: as many as `bench/touch.c` counts.
const WARM_UP: usize = 8;
const SAMPLES: usize = 5;

/// Where a block is cleared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Place {
    /// On the CPU that touches it.
    Home,
    /// On another one.
    Away,
}

/// One run, as a hidden command.
#[derive(clap::Args, Clone, Debug)]
pub struct Ideal {
    engine: String,
    #[arg(value_enum)]
    place: Place,
    bytes: usize,
    lines: usize,
    at: usize,
    idle_ns: u64,
}

/// A way that is tried.
#[derive(Clone, Copy, Debug)]
pub struct Tried {
    engine: &'static dyn ClearEngine,
    place: Place,
}

impl Tried {
    /// Those that make sense here: away needs a second CPU.
    pub fn here() -> Result<Vec<Tried>> {
        let cpus = allowed_cpus()?.len();
        let mut engines = vec![preferred(Cache::Cached), preferred(Cache::Bypassing)];
        engines.dedup_by_key(|engine| engine.name());
        let places = [Place::Home, Place::Away].into_iter();
        let all =
            places.flat_map(|place| engines.iter().map(move |&engine| Tried { engine, place }));
        Ok(all.filter(|tried| tried.place == Place::Home || cpus > 1).collect())
    }

    pub fn name(&self) -> String {
        format!("{} {}", self.engine.name(), self.place_name())
    }

    fn place_name(&self) -> &'static str {
        if self.place == Place::Home { "home" } else { "away" }
    }

    /// The command line of a run, before its numbers.
    pub fn arguments(&self) -> [&'static str; 3] {
        ["ideal", self.engine.name(), self.place_name()]
    }

    /// Whether it takes the cache from others: a scrubber would not.
    pub fn crowds(&self, bytes: usize) -> bool {
        let set = config_here().scrub_cache;
        let set = set.unwrap_or_else(|| Topology::read(Path::new(Topology::ROOT)).set());
        self.engine.cache() != Cache::Bypassing && bytes > set
    }
}

impl Ideal {
    /// Prints the median time of a touch, ns.
    pub fn run(&self) -> Result<()> {
        let samples = self.samples(&self.memory()?)?;
        let median = median(&samples[WARM_UP..]).context("no samples")?;
        Ok(prezero_sys::print!("{median}\n")?)
    }

    fn memory(&self) -> Result<Anonymous> {
        let memory = Anonymous::reserve(self.bytes.next_multiple_of(prezero::HUGE))
            .with_context(|| format!("reserving {} bytes for the ideal", self.bytes))?;
        // SAFETY: reserved by this process alone, `len` long. Written, so that it is resident.
        unsafe { memory.base().write_bytes(1, memory.len()) };
        Ok(memory)
    }

    fn samples(&self, memory: &Anonymous) -> Result<Vec<f64>> {
        let fits = self.lines > 0 && self.at < LINES / self.lines;
        ensure!(fits, "a page has no {} lines from line {} on", self.lines, self.at);
        ensure!(self.idle_ns > 0, "the ideal is one round after a pause");
        let engine = by_name(&self.engine).context("no such engine on this CPU")?;
        let clear = || {
            // SAFETY: whole pages of our own memory; either thread clears while the other waits for it. The engine
            // is one that this CPU has.
            unsafe { engine.clear(memory.base(), self.bytes) }
        };
        let cpus = allowed_cpus()?;
        let (ask, asked) = channel::<()>();
        let (tell, told) = channel();
        thread::scope(|scope| {
            let away = (self.place == Place::Away).then(|| {
                let other = cpus[1 % cpus.len()];
                scope.spawn(move || clear_when_asked(other, clear, asked, tell))
            });
            let home = scope.spawn(|| self.in_rhythm(cpus[0], memory, clear, ask, told));
            let samples = joined(home)?;
            away.map_or(Ok(()), joined).and(Ok(samples))
        })
    }

    fn in_rhythm(
        &self,
        cpu: usize,
        memory: &Anonymous,
        clear: impl Fn(),
        ask: Sender<()>,
        told: Receiver<Instant>,
    ) -> Result<Vec<f64>> {
        set_affinity(&CpuMask::only(cpu)).with_context(|| format!("moving to CPU {cpu}"))?;
        let mut samples = Vec::with_capacity(WARM_UP + SAMPLES);
        for _ in 0..WARM_UP + SAMPLES {
            let due = Instant::now() + Duration::from_nanos(self.idle_ns);
            if self.place == Place::Home {
                clear();
                sleep_until(due.max(Instant::now() + COOL));
            } else {
                ask.send(()).context("the clearing thread is gone")?;
                sleep_until(due);
                let cleared = told.recv().context("the clearing thread is gone")?;
                if cleared + COOL > due {
                    thread::sleep(COOL);
                }
            }
            let start = Instant::now();
            // SAFETY: within the block, which begins with a page: `run` refuses other lines. The clear has ended.
            unsafe {
                touch_lines(memory.base().as_ptr().add(self.at * LINE), self.bytes, self.lines)
            };
            samples.push(start.elapsed().as_nanos() as f64);
        }
        Ok(samples)
    }
}

fn clear_when_asked(
    cpu: usize,
    clear: impl Fn(),
    asked: Receiver<()>,
    tell: Sender<Instant>,
) -> Result<()> {
    set_affinity(&CpuMask::only(cpu)).with_context(|| format!("moving to CPU {cpu}"))?;
    while asked.recv().is_ok() {
        clear();
        if tell.send(Instant::now()).is_err() {
            break;
        }
    }
    Ok(())
}

unsafe extern "C" {
    /// Of `bench/loop.c`.
    fn touch_lines(start: *mut u8, bytes: usize, lines: usize);
}

fn sleep_until(due: Instant) {
    thread::sleep(due.saturating_duration_since(Instant::now()));
}

fn joined<T>(thread: thread::ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_tried_makes_sense_here_and_past_the_cache_crowds_nobody() {
        let all = Tried::here().unwrap();
        assert!(all.iter().any(|tried| tried.name().ends_with(" home")));
        for tried in &all {
            let crowds = tried.engine.cache() != Cache::Bypassing;
            assert_eq!(tried.crowds(usize::MAX), crowds, "{}", tried.name());
            assert!(!tried.crowds(4096), "{}", tried.name());
        }
    }

    #[test]
    fn each_leaves_the_touched_lines_and_nothing_else_written() {
        for tried in Tried::here().unwrap() {
            let ideal = ideal(&tried, 4, 5);
            let memory = ideal.memory().unwrap();
            assert_eq!(ideal.samples(&memory).unwrap().len(), WARM_UP + SAMPLES);
            // SAFETY: ours, initialised, and no thread writes now.
            let block = unsafe { std::slice::from_raw_parts(memory.base().as_ptr(), ideal.bytes) };
            let sum = block.iter().map(|&byte| usize::from(byte)).sum::<usize>();
            assert_eq!(sum, 8, "{}", tried.name());
        }
    }

    fn ideal(tried: &Tried, lines: usize, at: usize) -> Ideal {
        let (engine, place) = (tried.engine.name().into(), tried.place);
        Ideal { engine, place, bytes: 2 * prezero::PAGE, lines, at, idle_ns: 100_000 }
    }

    #[test]
    fn lines_that_a_page_does_not_have_and_rounds_without_a_pause_are_refused() {
        let tried = Tried::here().unwrap()[0];
        let refused = |ideal: Ideal| ideal.samples(&ideal.memory().unwrap()).is_err();
        for (lines, at) in [(4, 16), (64, 1), (0, 0), (65, 0)] {
            assert!(refused(ideal(&tried, lines, at)), "{lines} {at}");
        }
        assert!(!refused(ideal(&tried, 4, 15)));
        assert!(refused(Ideal { idle_ns: 0, ..ideal(&tried, 4, 0) }));
    }
}
