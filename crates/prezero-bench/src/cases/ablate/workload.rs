//! What programs do while a mechanism is left out, and which mechanism may matter for which of them.

use std::time::Duration;

use prezero::internal::Mechanism;

use crate::cases::real::programs::{PROGRAMS, Program};

/// What is run with a mechanism and without it.
#[derive(Clone, Copy, Debug)]
pub enum Workload {
    /// `bench/programs/ablate.c` in a mode.
    Steady(Mode),
    /// The same below a memory limit, in bytes.
    Limited(Mode, u64),
    /// A program of `bench real`.
    Real(&'static Program),
}

/// What the program does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mode {
    /// As the program knows it.
    pub name: &'static str,
    /// How long it is counted.
    pub counted: Duration,
    /// How many of it run at once: all that are compared, where they are idle most of the time.
    /// Other work on the host then hits all of them, and noise is half as large as in turns.
    pub at_once: usize,
}

/// How long a workload is counted that leaves no time between its requests.
const SHORT: Duration = Duration::from_millis(800);
/// And one that pauses, or takes long for a request.
const LONG: Duration = Duration::from_millis(2500);
/// `limit` of the program takes and frees 100 MiB, then as much of another kind.
const LIMIT: u64 = 192 << 20;

/// Modes of the program, by how long each counts and how many run at once.
const MODES: [(Duration, usize, &str); 6] = [
    (
        LONG,
        5,
        "steady-96K steady-384K steady-1M steady-3M fill-96K fill-384K fill-1M sparse-384K sparse-48M sparse-plain-1M handler phases bursts",
    ),
    (LONG, 3, "steady-12M growing mosaic"),
    (LONG, 1, "steady-48M fill-12M fill-48M fork neighbour-1M neighbour-busy-3M crowd-1M"),
    (LONG, 2, "fill-3M frames"),
    (
        SHORT,
        1,
        "busy-96K busy-384K busy-1M busy-3M busy-12M busy-48M busy-fill-96K busy-fill-384K busy-fill-1M busy-fill-3M busy-fill-12M busy-fill-48M spare-8M any batch-1M",
    ),
    (LONG, 4, "handler-2 passing"),
];

impl Workload {
    /// All of them, in the order of the table.
    pub fn all() -> Vec<Workload> {
        let modes = MODES.iter().flat_map(|&(counted, at_once, names)| {
            names.split(' ').map(move |name| Workload::Steady(Mode { name, counted, at_once }))
        });
        let limit = Mode { name: "limit", counted: LONG, at_once: 1 };
        let limited = Workload::Limited(limit, LIMIT);
        modes.chain([limited]).chain(PROGRAMS.iter().map(Workload::Real)).collect()
    }

    /// Its name in a row. Programs that others wrote have `real:` before theirs.
    pub fn name(&self) -> String {
        match self {
            Workload::Steady(mode) | Workload::Limited(mode, _) => mode.name.into(),
            Workload::Real(program) => format!("real:{}", program.name),
        }
    }

    /// How many runs of it are made at once.
    pub fn at_once(&self) -> usize {
        match self {
            Workload::Steady(mode) | Workload::Limited(mode, _) => mode.at_once,
            Workload::Real(_) => 1,
        }
    }

    /// Whether a mechanism may matter for it.
    pub fn suits(&self, mechanism: Mechanism) -> bool {
        suited(mechanism).contains(&self.name().as_str())
    }
}

/// Where a mechanism may matter.
fn suited(mechanism: Mechanism) -> &'static [&'static str] {
    match mechanism {
        Mechanism::Headroom => &["growing"],
        Mechanism::PreferredCpu => &["fill-1M", "passing"],
        Mechanism::CostModel => &["steady-96K", "steady-384K", "handler", "phases", "bursts"],
        Mechanism::Ready => &["steady-384K", "fill-384K", "handler", "phases"],
        Mechanism::Suppress => &["handler", "phases"],
        Mechanism::Backoff => &["crowd-1M", "neighbour-busy-3M", "batch-1M", "handler-2"],
        Mechanism::Thin => &["sparse-48M"],
        Mechanism::Untouched => &["sparse-plain-1M", "handler"],
        Mechanism::WipeOnFork => &["fork"],
        Mechanism::LazyFree => &["limit"],
        Mechanism::Reclaim => &["limit", "growing", "handler"],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mechanism_has_a_workload_and_each_name_in_the_table_is_one() {
        let names: Vec<_> = Workload::all().iter().map(Workload::name).collect();
        for &mechanism in Mechanism::ALL {
            let suited = suited(mechanism);
            assert!(!suited.is_empty(), "{}", mechanism.name());
            let is_known = |name: &&&str| names.iter().any(|known| known == **name);
            assert_eq!(suited.iter().find(|name| !is_known(name)), None);
        }
    }
}
