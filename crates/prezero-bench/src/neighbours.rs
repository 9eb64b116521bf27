//! Neighbours: processes, each on a CPU of its own, that tell how long their work takes them.

use std::path::Path;

use anyhow::Result;
use prezero::Topology;

use crate::peers::Allocator;
use crate::worker::{Program, Worker};

/// A chase over the shared cache goes no further: a guest sees its host's cache, of which
/// it has a share.
const L3_MOST: usize = 32 << 20;
/// A chase over memory goes at least so far, and no further than the next.
const DRAM_LEAST: usize = 256 << 20;
const DRAM_MOST: usize = 512 << 20;
/// Of memory, all neighbours' chases together, as a divisor.
const SHARE_OF_MEMORY: usize = 4;
/// Where sysfs does not say.
const L2_UNKNOWN: usize = 1 << 20;

/// How far a chase goes, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sizes {
    /// Fits a CPU's second-level cache.
    pub l2: usize,
    /// Fits the shared cache.
    pub l3: usize,
    /// Fits none.
    pub dram: usize,
}

impl Sizes {
    /// On this machine, for as many chases as CPUs.
    pub fn here(memory: usize, cpus: usize) -> Sizes {
        Sizes::of(&Topology::read(Path::new(Topology::ROOT)), memory / cpus)
    }

    /// Half of each cache, within bounds; `memory` is a CPU's share, in bytes.
    fn of(topology: &Topology, memory: usize) -> Sizes {
        let pages = |bytes: usize| (bytes / prezero::PAGE).max(1) * prezero::PAGE;
        let l2 = if topology.l2 == 0 { L2_UNKNOWN } else { topology.l2 };
        let l3 = (topology.l3 / 2).min(L3_MOST).max(2 * l2);
        let dram = (4 * topology.l3).clamp(DRAM_LEAST, DRAM_MOST).min(memory / SHARE_OF_MEMORY);
        Sizes { l2: pages(l2 / 2), l3: pages(l3), dram: pages(dram) }
    }
}

/// Neighbours, one on each of some CPUs.
///
/// # Errors
/// One cannot be started, or pinned.
pub fn crowd(program: &Program, cpus: &[usize]) -> Result<Vec<Worker>> {
    cpus.iter().map(|&cpu| pinned(program, &Allocator::plain(), Path::new("none"), cpu)).collect()
}

/// What all neighbours' work took for each unit of it, by the clock and in CPU time; `None` if no
/// neighbour did any.
pub fn work(answers: &[Vec<u64>]) -> Option<(f64, f64)> {
    let sum = |which: usize| {
        let parts = answers.iter().map(|answer| answer.get(which).copied());
        parts.sum::<Option<u64>>().map(|sum| sum as f64)
    };
    let (work, cpu, wall) = (sum(0)?, sum(1)?, sum(2)?);
    (work > 0.0).then(|| (wall / work, cpu / work))
}

/// The program under an allocator, on one CPU; its statistics go to `stats`.
///
/// # Errors
/// It cannot be started, or pinned.
pub fn pinned(
    program: &Program,
    allocator: &Allocator,
    stats: &Path,
    cpu: usize,
) -> Result<Worker> {
    let mut worker = Worker::start(program, allocator, stats.into())?;
    worker.ask(&format!("pin {cpu}"))?;
    Ok(worker)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chases_follow_the_caches_within_bounds() {
        let topology = |l2, l3| Topology { cpus: 2, l2, l3, l3_sharers: 2 };
        let guest = Sizes::of(&topology(2 << 20, 480 << 20), 12 << 30);
        assert_eq!(guest, Sizes { l2: 1 << 20, l3: 32 << 20, dram: 512 << 20 });
        let desktop = Sizes::of(&topology(512 << 10, 16 << 20), 1 << 30);
        assert_eq!(desktop, Sizes { l2: 256 << 10, l3: 8 << 20, dram: 256 << 20 });
        let unknown = Sizes::of(&topology(0, 0), 400 << 20);
        assert_eq!(unknown, Sizes { l2: 512 << 10, l3: 2 << 20, dram: 100 << 20 });
    }

    #[test]
    fn work_is_summed_over_the_neighbours() {
        assert_eq!(work(&[vec![10, 20, 40], vec![30, 20, 40]]), Some((2.0, 1.0)));
        assert_eq!(work(&[vec![0, 1, 1]]), None);
    }
}
