//! What the neighbours felt, as data, and whether that is within the bounds.
//!
//! Everything is a time, and less is better: a neighbour's time for a unit of its work by
//! the wall clock (what the scheduler and the caches took), by its own CPU time (the caches
//! and the memory bus alone), or how late it woke up.

use std::collections::BTreeMap;

use prezero::Size;
use serde::Serialize;

use super::machine::Machine;
use super::peers::Field;
use super::samples::{Change, Judged, Spread, judge};

/// Nobody runs beside the neighbours.
pub const ALONE: &str = "alone";
/// prezero that never scrubs: what scrubbing is compared with.
pub const OFF: &str = "never";
/// prezero as it comes.
pub const ON: &str = "prezero";

/// More time for the same work with scrubbing than without, at most.
const WORK_BOUND: f64 = 0.02;
/// And later wake-ups, at most.
const WAKE_BOUND: f64 = 0.05;

/// Everything measured.
#[derive(Debug, Serialize)]
pub struct Report {
    /// `disturb`.
    pub benchmark: &'static str,
    /// Taken on.
    pub machine: Machine,
    /// Taken with.
    #[serde(flatten)]
    pub field: Field,
    /// Of the chases.
    pub sizes: Sizes,
    /// Of one slice.
    pub slice_s: f64,
    /// Slices of each variant for each load, before those in pairs.
    pub rounds: usize,
    /// For the pairs of each load.
    pub pairs_s: u64,
    /// One entry for each.
    pub scenes: Vec<SceneReport>,
}

/// How far a chase goes, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Sizes {
    /// Fits a CPU's second-level cache.
    pub l2: usize,
    /// Fits the shared cache.
    pub l3: usize,
    /// Fits none.
    pub dram: usize,
}

/// Who does what beside whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Scene {
    /// A neighbour on every CPU, and the program at full speed
    Full,
    /// One CPU without a neighbour, and the program with pauses: scrubd works beside them
    Beside,
    /// Neighbours that sleep: scrubd works on their CPUs meanwhile
    Dozing,
    /// Wake-ups on idle CPUs, and the program with pauses
    TicksIdle,
    /// Wake-ups on busy CPUs, and the program at full speed
    TicksBusy,
}

/// What a neighbour does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Load {
    /// Arithmetic in registers.
    Compute,
    /// Loads in a random order over so many bytes, each waiting for the last.
    Chase(usize),
    /// The same, a few thousand at each wake-up of a periodic task.
    Doze(usize),
    /// A periodic task that does nothing.
    Tick(Side),
}

/// Where a neighbour is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    /// On the CPU of the program.
    Home,
    /// On another.
    Away,
}

impl std::fmt::Display for Load {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Load::Compute => write!(f, "compute"),
            Load::Chase(bytes) => write!(f, "chase {}", Size(*bytes)),
            Load::Doze(bytes) => write!(f, "chase {} and sleep", Size(*bytes)),
            Load::Tick(Side::Home) => write!(f, "tick, program's CPU"),
            Load::Tick(Side::Away) => write!(f, "tick, other CPUs"),
        }
    }
}

/// What a time is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// A unit of work, by the wall clock.
    Wall,
    /// A unit of work, in CPU time of the one who did it.
    Cpu,
    /// A wake-up's lateness, the median of all.
    Late50,
    /// A wake-up's lateness, 99 of 100 of all being less.
    Late99,
}

impl Metric {
    /// Which quantile of all wake-ups of all slices it is; `None` for work, of which each slice tells one figure.
    pub fn share(self) -> Option<f64> {
        match self {
            Metric::Wall | Metric::Cpu => None,
            Metric::Late50 => Some(0.5),
            Metric::Late99 => Some(0.99),
        }
    }

    /// What scrubbing may add to it; `None` where nothing is asked.
    fn bound(self) -> Option<f64> {
        match self {
            Metric::Wall | Metric::Cpu => Some(WORK_BOUND),
            Metric::Late99 => Some(WAKE_BOUND),
            Metric::Late50 => None,
        }
    }
}

/// One scene.
#[derive(Debug, Serialize)]
pub struct SceneReport {
    /// Which.
    pub scene: Scene,
    /// Zeroed memory that the program asks for in each round.
    pub churn_bytes: usize,
    /// Its pause after each; 0 for none.
    pub churn_pause_ns: u64,
    /// The CPU of the program.
    pub home: usize,
    /// CPUs with a neighbour.
    pub cpus: Vec<usize>,
    /// One for each load and metric.
    pub rows: Vec<Row>,
    /// The program's side, one for each variant that has one.
    pub churns: Vec<Churned>,
}

/// One load by one metric.
#[derive(Debug, Serialize)]
pub struct Row {
    /// Of the neighbours.
    pub load: Load,
    /// What is told.
    pub metric: Metric,
    /// One for each variant.
    pub results: Vec<Felt>,
}

/// One variant in one row.
#[derive(Debug, Serialize)]
pub struct Felt {
    /// Which.
    pub variant: String,
    /// One sample for each slice.
    pub ns: Spread,
    /// Of wake-ups, the metric's quantile of those of all slices together: what `change` is of then.
    pub of_all: Option<f64>,
    /// Against prezero that never scrubs; `None` for itself.
    pub change: Option<Change>,
}

/// What the program beside the neighbours did in one scene.
#[derive(Clone, Default, Debug, Serialize)]
pub struct Churned {
    /// Under which variant.
    pub variant: String,
    /// Zeroed bytes asked for in a second, over all slices.
    pub bytes_per_s: f64,
    /// CPU seconds in a second, all its threads.
    pub cpus: f64,
    /// Of that, the scrubbing thread's; `None` where there is none.
    pub scrubd_cpus: Option<f64>,
    /// Counters of its zone, for the whole scene; empty for others.
    pub counters: BTreeMap<String, u64>,
}

impl Felt {
    /// What counts.
    pub fn told(&self) -> f64 {
        self.of_all.unwrap_or(self.ns.median)
    }
}

impl Row {
    /// What `variant` felt.
    pub fn of(&self, variant: &str) -> Option<&Felt> {
        self.results.iter().find(|felt| felt.variant == variant)
    }

    /// Whether what scrubbing adds is known to half of its bound, so that where it adds nothing the
    /// bound is seen to be kept. It does not matter on which side it is: who stops when he likes what
    /// he sees is wrong more often than his noise says.
    pub fn is_known(&self) -> bool {
        let change = self.of(ON).and_then(|felt| felt.change);
        let (Some(bound), Some(change)) = (self.metric.bound(), change) else { return true };
        change.noise <= bound / 2.0
    }

    /// How scrubbing as it comes compares with its bound; `None` where there is none.
    pub fn judged(&self) -> Option<(Change, Judged)> {
        let (change, bound) = (self.of(ON)?.change?, self.metric.bound()?);
        Some((change, judge(change, bound)))
    }
}

/// What the rows of one kind come to.
#[derive(Clone, Copy, Debug)]
pub struct Verdict<'a> {
    /// Most of all that scrubbing added, and where.
    pub worst: Change,
    /// Its load.
    pub row: &'a Row,
    /// Rows that are beyond their bound, and rows of which one cannot tell.
    pub beyond: usize,
    /// See `beyond`.
    pub unclear: usize,
    /// All that have one.
    pub rows: usize,
}

impl SceneReport {
    /// `None` where nothing has a bound.
    pub fn verdict(&self) -> Option<Verdict<'_>> {
        let judged: Vec<_> =
            self.rows.iter().filter_map(|row| Some((row, row.judged()?))).collect();
        let count = |what| judged.iter().filter(|(_, (_, judged))| *judged == what).count();
        let worst = judged.iter().max_by(|a, b| a.1.0.change.total_cmp(&b.1.0.change))?;
        Some(Verdict {
            worst: worst.1.0,
            row: worst.0,
            beyond: count(Judged::Beyond),
            unclear: count(Judged::Unclear),
            rows: judged.len(),
        })
    }
}

impl Row {
    /// What the bound is, where there is one.
    pub fn bound(&self) -> Option<f64> {
        self.metric.bound()
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A row with a change of `change` by prezero, in ten slices with that much noise.
    pub fn row(metric: Metric, change: f64, noise: f64) -> Row {
        let felt = |variant: &str, ns, change| Felt {
            variant: variant.into(),
            ns: Spread::of(vec![ns; 10]).unwrap(),
            of_all: None,
            change,
        };
        let on = felt(ON, 100.0 * (1.0 + change), Some(Change { change, noise }));
        Row { load: Load::Chase(1 << 20), metric, results: vec![felt(OFF, 100.0, None), on] }
    }

    #[test]
    fn work_and_wake_ups_have_bounds_of_their_own() {
        assert_eq!(row(Metric::Wall, 0.04, 0.001).judged().unwrap().1, Judged::Beyond);
        assert_eq!(row(Metric::Late99, 0.04, 0.001).judged().unwrap().1, Judged::Within);
        assert!(row(Metric::Late50, 0.04, 0.001).judged().is_none());
    }

    #[test]
    fn a_row_is_known_by_its_noise_alone() {
        assert!(row(Metric::Cpu, 0.05, 0.01).is_known());
        assert!(!row(Metric::Cpu, 0.5, 0.011).is_known());
        assert!(row(Metric::Late99, 0.0, 0.025).is_known());
        assert!(row(Metric::Late50, 0.0, 9.0).is_known(), "nothing is asked");
    }

    #[test]
    fn a_verdict_is_about_the_worst_row_and_counts_the_others() {
        let rows = vec![
            row(Metric::Wall, 0.01, 0.001),
            row(Metric::Cpu, 0.05, 0.001),
            row(Metric::Wall, 0.0, 0.04),
        ];
        let scene = SceneReport {
            scene: Scene::Full,
            churn_bytes: 1 << 26,
            churn_pause_ns: 0,
            home: 0,
            cpus: vec![0, 1],
            rows,
            churns: vec![],
        };
        let verdict = scene.verdict().unwrap();
        assert_eq!((verdict.beyond, verdict.unclear, verdict.rows), (1, 1, 3));
        assert_eq!((verdict.worst.change, verdict.row.metric), (0.05, Metric::Cpu));
    }
}
