//! `prezero bench waste`: patterns of demand, and what scrubbing for them costs and gains.
//!
//! Each pattern is played by a fresh process under prezero, under prezero with scrubd off
//! (the control: what scrubbing alone changes) and under each peer. Bytes come from prezero's own
//! counters, CPU time from the kernel, the time of a burst from the program. Two
//! allocators are compared over the bursts that both played, phase by phase.

mod pattern;

use anyhow::{Context, Result, ensure};
use pattern::{Burst, PATTERNS, Pattern, judged, share};

use crate::cost::number;
use crate::figure::{Across, Better, Case, Figure, Report, Sheet};
use crate::parse::chosen;
use crate::peers::{Allocator, Field, PREZERO};
use crate::progress::{self, step};
use crate::runner::{Contest, Row, Way, in_turns};
use crate::scratch::Scratch;
use crate::worker::{Program, warm};
use prezero_host::samples::median;

/// Prezero with scrubd off, in every report.
const CONTROL: &str = "no scrubd";
/// Bursts of each phase that are not compared: the allocator is new to it.
const WARM_UP: usize = 3;
/// The command line of `prezero bench waste`.
#[derive(clap::Args)]
#[command(after_help = "Example: prezero bench waste --only never,bursty-1m")]
pub struct Waste {
    /// Which patterns: never, steady, steady-mixed, bursty-1m, bursty-4m, bursty-64m, once, phases, mixed, hostile, adverse [all]
    #[arg(long, value_delimiter = ',', value_name = "PATTERN,...")]
    only: Vec<String>,
    /// Factor by which each plays longer; 1 takes about a minute for all of them
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

/// What an allocator's process used, in all.
#[derive(Clone, Debug)]
struct Cost {
    allocator: String,
    /// CPU time, all threads.
    cpu_s: f64,
    /// The part of it that threads took of which the program knows nothing.
    background_s: f64,
    /// Peak resident.
    rss_kib: u64,
}

/// One process, as it told.
struct Run {
    bursts: Vec<Burst>,
    cost: Cost,
    stats: Option<serde_json::Value>,
}

/// What the patterns come to.
struct Sheets {
    bytes: Sheet,
    asked: Sheet,
    times: Sheet,
    account: Sheet,
}

impl Case for Waste {
    fn measure(&self) -> Result<Report> {
        let patterns = chosen(&PATTERNS, |pattern| pattern.name, &self.only, "pattern")?;
        ensure!((0.05..=100.0).contains(&self.times), "--times {}: give 0.05 to 100", self.times);
        let mut report = Report::here("waste", Field::find(&self.peers)?);
        let mut allocators = report.field.allocators.clone();
        allocators
            .extend(report.field.allocators.iter().filter(|each| each.is_prezero()).map(control));
        let mut sheets = Sheets::new();
        progress::expect(patterns.len() * allocators.len());
        'patterns: for (turn, pattern) in patterns.into_iter().enumerate() {
            let mut runs = vec![];
            for (_, which) in in_turns(turn + 1, allocators.len()).skip(turn * allocators.len()) {
                let name = label(&allocators[which]);
                if step(&format!("waste: {} under {name}", pattern.name)).is_err() {
                    break 'patterns;
                }
                warm(pattern.warm_mib << 20)?;
                runs.push((which, self.play(pattern, &allocators[which], name)?));
            }
            runs.sort_by_key(|(which, _)| *which);
            sheets.add(pattern, &Played { runs: runs.into_iter().map(|(_, run)| run).collect() });
        }
        sheets.times.compare_with_best("burst", None);
        report.sheets = vec![sheets.bytes, sheets.asked, sheets.times, sheets.account];
        Ok(report)
    }
}

impl Waste {
    fn play(&self, pattern: &Pattern, allocator: &Allocator, name: &str) -> Result<Run> {
        let (scratch, worker) = (&Scratch::new()?, Program::find("waste")?);
        let ms = if name == PREZERO { pattern.ms } else { pattern.peer_ms };
        let ms = (ms as f64 * self.times).ceil() as u64;
        let ways = [Way::of(allocator)];
        let contest = Contest { name: "waste", ways: &ways, stats: true, prints: true, scratch };
        let arguments = vec![pattern.name.into(), ms.to_string()];
        let row = Row {
            of: vec![pattern.name.into()],
            program: worker.path(),
            arguments,
            ..Row::default()
        };
        let played = contest.once(&ways[0], &row)?;
        let (told, stats) = (played.said, Some(played.stats).filter(|stats| !stats.is_null()));
        Run::parse(&told, name, stats)
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
    fn parse(told: &str, name: &str, stats: Option<serde_json::Value>) -> Option<Run> {
        let (bursts, end) = told.trim_end().rsplit_once('\n')?;
        let bursts = bursts.lines().map(Burst::parse).collect::<Option<Vec<_>>>()?;
        let mut numbers = end.strip_prefix("end ")?.split(' ').map(|word| word.parse::<u64>().ok());
        let mut next = || numbers.next().flatten();
        let cost = Cost {
            allocator: name.into(),
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

/// One pattern, under each allocator.
struct Played {
    runs: Vec<Run>,
}

/// An allocator's bursts in one phase.
struct Time<'a> {
    who: &'a str,
    us: Vec<f64>,
}

impl Played {
    fn prezero(&self) -> Option<&Run> {
        self.runs.iter().find(|run| run.cost.allocator == PREZERO)
    }

    /// In the order of their first bursts.
    fn phases(&self) -> Vec<&str> {
        let mut names = vec![];
        for burst in self.runs.iter().flat_map(|run| &run.bursts) {
            if !names.contains(&burst.phase.as_str()) {
                names.push(burst.phase.as_str());
            }
        }
        names
    }

    /// The bursts of a phase that all allocators played.
    fn times(&self, phase: &str) -> Vec<Time<'_>> {
        // The n-th burst is the same under each; the shortest run says how many are compared.
        let common = self.runs.iter().map(|run| run.of_phase(phase).len()).min().unwrap_or(0);
        let skipped = if common > 2 * WARM_UP { WARM_UP } else { 0 };
        let time = |run: &'_ Run| -> Vec<f64> {
            let bursts = run.of_phase(phase);
            bursts[skipped..common].iter().map(|burst| burst.burst_ns as f64 / 1e3).collect()
        };
        self.runs.iter().map(|run| Time { who: &run.cost.allocator, us: time(run) }).collect()
    }

    /// Seconds that prezero's bursts would take, each as long as `allocator`'s median of its
    /// phase; `None` if it did not get to one of them.
    fn seconds(&self, allocator: &str) -> Option<f64> {
        let of_phase = |phase: &str| {
            let bursts = self.prezero()?.of_phase(phase).len();
            let time = self.times(phase).into_iter().find(|time| time.who == allocator)?;
            Some(bursts as f64 * median(&time.us)? / 1e6)
        };
        self.phases().into_iter().map(of_phase).sum()
    }

    /// The fastest peer's seconds.
    fn best_peer(&self) -> Option<f64> {
        let peers = self.runs.iter().map(|run| run.cost.allocator.as_str());
        let peers = peers.filter(|name| ![PREZERO, CONTROL].contains(name));
        peers.filter_map(|name| self.seconds(name)).min_by(f64::total_cmp)
    }
}

impl Sheets {
    fn new() -> Sheets {
        let bytes = Sheet::new("Waste: what became of what scrubd cleared", &["pattern"], Across::Name)
            .note("made: scrubbed; wasted: of made, given to plain requests or the kernel, or left at the end");
        let asked = Sheet::new("Waste: what is asked of each pattern", &["pattern"], Across::Who);
        let times = Sheet::new("Waste: bursts", &["pattern", "phase"], Across::Who)
            .note("medians, over the bursts that all played; hits: of what was asked for as zero");
        let account = Sheet::new("Waste: what it costs and gains", &["pattern"], Across::Name).note(
            "gained: prezero's bursts at the fastest peer's medians, or at its own without scrubd, less at its own; \
             net: the latter less scrubd's CPU time; estimated: as its own counters have it",
        );
        Sheets { bytes, asked, times, account }
    }

    fn add(&mut self, pattern: &Pattern, played: &Played) {
        let case = &[pattern.name];
        let ours =
            |name: &str, unit: &str, value| Figure::new(PREZERO, name, unit, value).case(case);
        self.asked.notes.push(format!("{}: {}", pattern.name, pattern.about));
        for phase in played.phases() {
            let times = played.times(phase).into_iter().filter_map(|Time { who, us }| {
                Some(Figure::of_samples(who, "burst", "us", us)?.case(&[pattern.name, phase]))
            });
            self.times.extend(times);
            let hits = played.prezero().and_then(|run| hit_share(phase, &run.bursts));
            let hits = hits.map(|share| ours("hits", "%", 100.0 * share).better(Better::More));
            self.times.extend(hits.map(|figure| figure.case(&[pattern.name, phase])));
        }
        for Run { cost, .. } in &played.runs {
            let times = [("CPU", "s", cost.cpu_s), ("background", "s", cost.background_s)];
            let all = times.into_iter().chain([("peak", "MiB", cost.rss_kib as f64 / 1024.0)]);
            let figure =
                |(name, unit, value)| Figure::new(&cost.allocator, name, unit, value).case(case);
            self.account.extend(all.map(figure));
        }
        let Some(run) = played.prezero() else { return };
        let end = run.end();
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        for (name, bytes) in [
            ("freed", end.freed),
            ("made", end.made),
            ("hit", end.hit),
            ("cleared", end.miss),
            ("to kernel", end.absent),
            ("to plain", end.plain),
            ("unused", end.unused),
            ("left", end.zero),
        ] {
            self.bytes.push(ours(name, "MiB", mib(bytes)).better(Better::Neither));
        }
        let wasted = share(end.plain + end.unused + end.zero, end.made);
        self.bytes.push(ours("wasted", "%", 100.0 * wasted));
        self.asked.push(judged(pattern.target, &run.bursts, &end).case(case));
        let scrubd_ms = 1e3 * run.cost.background_s;
        let gained = |seconds: Option<f64>| Some(1e3 * (seconds? - played.seconds(PREZERO)?));
        let over_control = gained(played.seconds(CONTROL));
        for (name, ms) in [
            ("gained on best peer", gained(played.best_peer())),
            ("gained on no scrubd", over_control),
            ("net", over_control.map(|gained| gained - scrubd_ms)),
            ("estimated", Some(1e3 * run.saved_estimate_s() - scrubd_ms)),
        ] {
            self.account.extend(ms.map(|ms| ours(name, "ms", ms).better(Better::More)));
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
        Run::parse(&format!("{told}end 2000000000 500000000 64\n"), allocator, None).unwrap()
    }

    fn two_phases() -> Played {
        let ours: Vec<_> = (1..=8).map(|n| ("a", 1000 * n, n)).chain([("b", 9000, 8); 4]).collect();
        let theirs: Vec<_> = [("a", 9000, 0); 7].into_iter().chain([("b", 1000, 0); 2]).collect();
        let slower: Vec<_> = theirs.iter().map(|(phase, ns, hit)| (*phase, 2 * ns, *hit)).collect();
        let runs = vec![run("glibc", &slower), run("tcmalloc", &theirs), run(PREZERO, &ours)];
        Played { runs }
    }

    #[test]
    fn allocators_are_compared_over_the_bursts_that_both_played() {
        let played = two_phases();
        let samples = |phase: &str| played.times(phase).pop().unwrap().us;
        assert_eq!(samples("a"), [4.0, 5.0, 6.0, 7.0], "7 of 8, without the first 3");
        assert_eq!(samples("b"), [9.0, 9.0], "too few to leave some out");
    }

    #[test]
    fn seconds_weigh_each_phase_by_its_bursts() {
        let played = two_phases();
        let close = |seconds: Option<f64>, us: f64| (seconds.unwrap() * 1e6 - us).abs() < 1e-6;
        assert!(close(played.seconds(PREZERO), 8.0 * 5.5 + 4.0 * 9.0));
        assert!(close(played.best_peer(), 8.0 * 9.0 + 4.0 * 1.0), "tcmalloc's");
        assert_eq!(played.seconds("mimalloc"), None);
    }

    #[test]
    fn a_pattern_is_told_phase_by_phase_with_its_costs_and_gains() {
        let mut sheets = Sheets::new();
        sheets.add(&PATTERNS[1], &two_phases());
        sheets.times.compare_with_best("burst", None);
        let name = PATTERNS[1].name;
        assert_eq!(sheets.times.value(PREZERO, &[name, "a"], "hits"), Some(50.0));
        assert_eq!(
            sheets.times.value(PREZERO, &[name, "b"], "hits"),
            None,
            "nothing was asked for"
        );
        let against = &sheets.times.find(PREZERO, &[name, "b"], "burst").unwrap().against[0];
        assert_eq!((against.peer.as_str(), against.times), ("tcmalloc", 1.0 / 9.0));
        assert_eq!(sheets.account.value("glibc", &[name], "CPU"), Some(2.0));
        assert_eq!(sheets.account.value("glibc", &[name], "background"), Some(0.5));
        let gained = sheets.account.value(PREZERO, &[name], "gained on best peer").unwrap();
        assert!(
            (gained - 1e-3 * (8.0 * 9.0 + 4.0 - 8.0 * 5.5 - 4.0 * 9.0)).abs() < 1e-9,
            "{gained}"
        );
        assert!(Run::parse("", "glibc", None).is_none());
    }
}
