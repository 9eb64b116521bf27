//! `prezero bench waste`: patterns of demand, and what scrubbing for them costs and gains.
//!
//! Each pattern is played by a fresh process under prezero, under prezero with scrubd off
//! (the control: what scrubbing alone changes) and under each peer. Bytes come from prezero's own
//! counters, CPU time from the kernel, the time of a burst from the program. Two
//! allocators are compared over the bursts that both played, phase by phase.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use super::grid_report::number;
use super::machine::Machine;
use super::output::Output;
use super::peers::{Allocator, Field, PREZERO};
use super::progress::{self, step};
use super::samples::Spread;
use super::scratch::Scratch;
use super::waste_pattern::{Burst, PATTERNS, Pattern, Verdict, judge};
use super::waste_table;
use super::worker::{Program, Touch};

/// Prezero with scrubd off, in every report.
pub const CONTROL: &str = "no scrubd";
/// Bursts of each phase that are not compared: the allocator is new to it.
const WARM_UP: usize = 3;
/// The command line of `prezero bench waste`.
#[derive(clap::Args)]
#[command(after_help = "Example: prezero bench waste --only never,bursty-1m")]
pub struct Waste {
    #[command(flatten)]
    output: Output,
    /// Which patterns: never, steady, steady-mixed, bursty-1m, bursty-4m, bursty-64m, once, phases, mixed, hostile, adverse [all]
    #[arg(long, value_delimiter = ',', value_name = "PATTERN,...")]
    only: Vec<String>,
    /// Play each so many times as long; 1 takes about a minute for all of them
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    times: f64,
    /// Which peers are timed: glibc, glibc-keep, jemalloc, mimalloc, tcmalloc
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "NAME,...",
        default_value = "glibc,glibc-keep,tcmalloc"
    )]
    peers: Vec<String>,
}

/// Everything measured.
#[derive(Debug, Serialize, Deserialize)]
pub struct Report {
    /// `waste`.
    pub benchmark: String,
    /// Taken on.
    pub machine: Machine,
    /// Taken with.
    #[serde(flatten)]
    pub field: Field,
    /// One entry for each pattern.
    pub patterns: Vec<Played>,
}

/// One pattern.
#[derive(Debug, Serialize, Deserialize)]
pub struct Played {
    /// Its name.
    pub pattern: String,
    /// What it does.
    pub about: String,
    /// prezero against what is asked of it; `None` if it did not run.
    pub verdict: Option<Verdict>,
    /// Prezero's bytes at the end, in a burst's terms.
    pub bytes: Burst,
    /// Prezero's own estimate: pages hit x calibrated cost of clearing one, s.
    pub saved_estimate_s: f64,
    /// One for each phase, in the order of the first burst.
    pub phases: Vec<Phase>,
    /// One for each allocator, the control included.
    pub costs: Vec<Cost>,
    /// Prezero's, each.
    pub bursts: Vec<Burst>,
}

/// The bursts of one phase that all allocators played.
#[derive(Debug, Serialize, Deserialize)]
pub struct Phase {
    /// Its name.
    pub name: String,
    /// How many of them prezero played in all.
    pub bursts: usize,
    /// Its hits of what was asked for as zero, 0 to 1; `None` if nothing was.
    pub hit_share: Option<f64>,
    /// One for each allocator that got so far.
    pub times: Vec<Time>,
}

/// One allocator's bursts in one phase.
#[derive(Debug, Serialize, Deserialize)]
pub struct Time {
    /// Which.
    pub allocator: String,
    /// Of a burst.
    pub us: Spread,
}

/// What an allocator's process used, in all.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cost {
    /// Which.
    pub allocator: String,
    /// How long it played.
    pub played_s: f64,
    /// CPU time, all threads.
    pub cpu_s: f64,
    /// Of it, that of threads the program knows nothing of.
    pub background_s: f64,
    /// Peak resident.
    pub rss_kib: u64,
}

/// One process, as it told.
struct Run {
    bursts: Vec<Burst>,
    cost: Cost,
    stats: Option<serde_json::Value>,
}

impl Waste {
    /// Measures and prints.
    pub fn run(&self) -> Result<()> {
        let known = |name: &String| PATTERNS.iter().any(|pattern| pattern.name == name);
        if let Some(unknown) = self.only.iter().find(|name| !known(name)) {
            let names: Vec<_> = PATTERNS.iter().map(|pattern| pattern.name).collect();
            bail!("--only {unknown}: no such pattern; give some of {}", names.join(","));
        }
        ensure!((0.05..=100.0).contains(&self.times), "--times {}: give 0.05 to 100", self.times);
        let report = self.measure()?;
        progress::end();
        self.output.put(&report, || waste_table::render(&report))
    }

    fn measure(&self) -> Result<Report> {
        let (machine, field) = (Machine::here(), Field::find(&self.peers)?);
        let touch = Touch::unpack()?;
        let mut allocators = field.allocators.clone();
        allocators.extend(field.allocators.iter().filter(|each| each.is_prezero()).map(control));
        let asked = |pattern: &&Pattern| {
            self.only.is_empty() || self.only.iter().any(|name| name == pattern.name)
        };
        let mut patterns = vec![];
        progress::expect(PATTERNS.iter().filter(asked).count() * allocators.len());
        'patterns: for (turn, pattern) in PATTERNS.iter().filter(asked).enumerate() {
            let mut runs = vec![];
            for place in 0..allocators.len() {
                let which = (turn + place) % allocators.len();
                let name = label(&allocators[which]);
                if step(&format!("waste: {} under {name}", pattern.name)).is_err() {
                    break 'patterns;
                }
                touch.warm(pattern.warm_mib << 20)?;
                runs.push((which, self.play(pattern, &allocators[which], name)?));
            }
            runs.sort_by_key(|(which, _)| *which);
            patterns.push(Played::of(pattern, runs.into_iter().map(|(_, run)| run).collect()));
        }
        Ok(Report { benchmark: "waste".into(), machine, field, patterns })
    }

    fn play(&self, pattern: &Pattern, allocator: &Allocator, name: &str) -> Result<Run> {
        let (scratch, worker) = (Scratch::new()?, Program::waste()?);
        let ms = if name == PREZERO { pattern.ms } else { pattern.peer_ms };
        let ms = (ms as f64 * self.times).ceil() as u64;
        let stats = scratch.file("stats");
        let mut command: Command = allocator.command(&worker.path(), &stats)?;
        command.arg(pattern.name).arg(ms.to_string()).stdin(Stdio::null());
        let output = command.stderr(Stdio::inherit()).output().context(name.to_string())?;
        ensure!(output.status.success(), "{} under {name}: {}", pattern.name, output.status);
        let told = String::from_utf8_lossy(&output.stdout);
        let stats = std::fs::read_to_string(&stats).ok();
        let stats = stats.and_then(|text| serde_json::from_str(&text).ok());
        Run::parse(&told, name, ms, stats)
            .with_context(|| format!("{} under {name}: what it printed: {told}", pattern.name))
    }
}

/// Prezero without its thread.
fn control(prezero: &Allocator) -> Allocator {
    let environment = vec![("PREZERO_SCRUB_START".into(), "never".into())];
    Allocator { environment, ..prezero.clone() }
}

fn label(allocator: &Allocator) -> &str {
    if allocator.is_prezero() && !allocator.environment.is_empty() {
        CONTROL
    } else {
        &allocator.name
    }
}

impl Run {
    fn parse(told: &str, name: &str, ms: u64, stats: Option<serde_json::Value>) -> Option<Run> {
        let (bursts, end) = told.trim_end().rsplit_once('\n')?;
        let bursts = bursts.lines().map(Burst::parse).collect::<Option<Vec<_>>>()?;
        let mut numbers = end.strip_prefix("end ")?.split(' ').map(|word| word.parse::<u64>().ok());
        let mut next = || numbers.next().flatten();
        let cost = Cost {
            allocator: name.into(),
            played_s: ms as f64 / 1e3,
            cpu_s: next()? as f64 / 1e9,
            background_s: next()? as f64 / 1e9,
            rss_kib: next()?,
        };
        Some(Run { bursts, cost, stats })
    }

    /// The bytes after the last burst and what scrubd still did, from the final statistics.
    fn end(&self) -> Burst {
        let of = |name| self.stats.as_ref().and_then(|stats| number(stats, name)).unwrap_or(0);
        Burst {
            phase: "end".into(),
            freed: self.bursts.last().map_or(0, |burst| burst.freed),
            made: of("scrubbed_bytes"),
            hit: of("hit_bytes"),
            miss: of("miss_bytes"),
            absent: of("served_absent_bytes"),
            plain: of("waste_bytes"),
            unused: of("unused_zero_bytes"),
            zero: of("resident_zero_bytes"),
            ..Burst::default()
        }
    }

    fn saved_estimate_s(&self) -> f64 {
        let clear = self.stats.as_ref().and_then(|stats| stats["clear_ns_per_page"].as_f64());
        let hit = self.bursts.last().map_or(0, |burst| burst.hit);
        hit as f64 / prezero::PAGE as f64 * clear.unwrap_or(0.0) / 1e9
    }

    fn of_phase(&self, phase: &str) -> Vec<&Burst> {
        self.bursts.iter().filter(|burst| burst.phase == phase).collect()
    }
}

impl Played {
    fn of(pattern: &Pattern, runs: Vec<Run>) -> Played {
        let prezero = runs.iter().find(|run| run.cost.allocator == PREZERO);
        let end = prezero.map(Run::end).unwrap_or_default();
        let names = phase_names(&runs);
        Played {
            pattern: pattern.name.into(),
            about: pattern.about.into(),
            verdict: prezero.map(|run| judge(pattern.target, &run.bursts, &end)),
            bytes: end,
            saved_estimate_s: prezero.map_or(0.0, Run::saved_estimate_s),
            phases: names.iter().map(|name| Phase::of(name, &runs)).collect(),
            bursts: prezero.map(|run| run.bursts.clone()).unwrap_or_default(),
            costs: runs.into_iter().map(|run| run.cost).collect(),
        }
    }

    /// What an allocator used; `None` if it did not run.
    pub fn cost(&self, allocator: &str) -> Option<&Cost> {
        self.costs.iter().find(|cost| cost.allocator == allocator)
    }

    /// Seconds that prezero's bursts would take, each as long as `allocator`'s median of its
    /// phase; `None` if it did not get to one of them.
    pub fn seconds(&self, allocator: &str) -> Option<f64> {
        let of_phase = |phase: &Phase| {
            let time = phase.times.iter().find(|time| time.allocator == allocator)?;
            Some(phase.bursts as f64 * time.us.median / 1e6)
        };
        self.phases.iter().map(of_phase).sum()
    }

    /// The fastest peer and its seconds.
    pub fn best_peer(&self) -> Option<(&str, f64)> {
        let peers = self.costs.iter().map(|cost| cost.allocator.as_str());
        peers
            .filter(|name| ![PREZERO, CONTROL].contains(name))
            .filter_map(|name| Some((name, self.seconds(name)?)))
            .min_by(|a, b| a.1.total_cmp(&b.1))
    }
}

fn phase_names(runs: &[Run]) -> Vec<String> {
    let mut names = Vec::<String>::new();
    for burst in runs.iter().flat_map(|run| &run.bursts) {
        if !names.contains(&burst.phase) {
            names.push(burst.phase.clone());
        }
    }
    names
}

impl Phase {
    fn of(name: &str, runs: &[Run]) -> Phase {
        // The n-th burst is the same under each; the shortest run says how many are compared.
        let common = runs.iter().map(|run| run.of_phase(name).len()).min().unwrap_or(0);
        let skipped = if common > 2 * WARM_UP { WARM_UP } else { 0 };
        let time = |run: &Run| {
            let bursts = run.of_phase(name);
            let us = bursts[skipped..common].iter().map(|burst| burst.burst_ns as f64 / 1e3);
            Some(Time { allocator: run.cost.allocator.clone(), us: Spread::of(us.collect())? })
        };
        let prezero = runs.iter().find(|run| run.cost.allocator == PREZERO);
        Phase {
            name: name.into(),
            bursts: prezero.map_or(0, |run| run.of_phase(name).len()),
            hit_share: prezero.and_then(|run| hit_share(name, &run.bursts)),
            times: runs.iter().filter_map(time).collect(),
        }
    }
}

/// Hits of what a phase asked for as zero.
fn hit_share(phase: &str, bursts: &[Burst]) -> Option<f64> {
    let none = Burst::default();
    let before = [&none].into_iter().chain(bursts);
    let of_phase = before.zip(bursts).filter(|(_, burst)| burst.phase == phase);
    let (hit, asked) = of_phase.fold((0, 0), |(hit, asked), (before, burst)| {
        let part = |of: fn(&Burst) -> u64| of(burst).saturating_sub(of(before));
        (hit + part(|b| b.hit), asked + part(|b| b.hit + b.miss + b.absent))
    });
    (asked > 0).then(|| hit as f64 / asked as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(allocator: &str, bursts: &[(&str, u64, u64)]) -> Run {
        let line = |(phase, ns, hit): &(&str, u64, u64)| {
            format!("{phase} 0 {ns} 0 0 {hit} 0 {hit} 0 0 0\n")
        };
        let told: String = bursts.iter().map(line).collect();
        Run::parse(&format!("{told}end 2000000000 500000000 64\n"), allocator, 1000, None).unwrap()
    }

    fn two_phases() -> Played {
        let ours: Vec<_> = (1..=8).map(|n| ("a", 1000 * n, n)).chain([("b", 9000, 8); 4]).collect();
        let theirs: Vec<_> = [("a", 9000, 0); 7].into_iter().chain([("b", 1000, 0); 2]).collect();
        let slower: Vec<_> = theirs.iter().map(|(phase, ns, hit)| (*phase, 2 * ns, *hit)).collect();
        Played::of(
            &PATTERNS[1],
            vec![run("glibc", &slower), run("tcmalloc", &theirs), run(PREZERO, &ours)],
        )
    }

    #[test]
    fn allocators_are_compared_over_the_bursts_that_both_played() {
        let phases = two_phases().phases;
        let samples = |phase: usize, which: usize| phases[phase].times[which].us.samples.clone();
        assert_eq!(samples(0, 2), [4.0, 5.0, 6.0, 7.0], "7 of 8, without the first 3");
        assert_eq!(samples(1, 2), [9.0, 9.0], "too few to leave some out");
        assert_eq!(phases[0].bursts, 8);
    }

    #[test]
    fn seconds_weigh_each_phase_by_its_bursts() {
        let played = two_phases();
        let close = |seconds: Option<f64>, us: f64| (seconds.unwrap() * 1e6 - us).abs() < 1e-6;
        assert!(close(played.seconds(PREZERO), 8.0 * 5.5 + 4.0 * 9.0));
        let (best, seconds) = played.best_peer().unwrap();
        assert!(best == "tcmalloc" && close(Some(seconds), 8.0 * 9.0 + 4.0 * 1.0));
        assert_eq!(played.seconds("mimalloc"), None);
    }

    #[test]
    fn hits_are_told_phase_by_phase() {
        let played = two_phases();
        assert_eq!(played.phases[0].hit_share, Some(0.5));
        assert_eq!(played.phases[1].hit_share, None, "nothing was asked for");
    }

    #[test]
    fn costs_are_read_in_their_units() {
        let cost = &two_phases().costs[0];
        assert_eq!((cost.cpu_s, cost.background_s, cost.rss_kib), (2.0, 0.5, 64));
        assert!(Run::parse("", "glibc", 1, None).is_none());
    }
}
