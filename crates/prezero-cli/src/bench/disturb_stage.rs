//! The processes of one scene, and one slice of it.
//!
//! Everybody is started once. Whoever is not in a slice is stopped by a signal, so that no
//! thread of his (a scrubber, a purger) works into somebody else's. The program under test
//! starts a little before the neighbours are counted, and stops when they have answered.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::disturb_report::{ALONE, Churned, Load, Metric, Scene};
use super::grid_report::counters;
use super::peers::Allocator;
use super::samples::quantile;
use super::scratch::Scratch;
use super::worker::{Program, Signal, Worker};

/// Everybody is under way for so long before anybody counts: a chase has been once round the
/// shared cache, and prezero has seen what is asked for.
const LEAD: Duration = Duration::from_millis(200);
/// The program goes on for so long after the neighbours should have ended.
const TAIL: Duration = Duration::from_millis(50);
/// Of tasks that wake up.
const PERIOD: Duration = Duration::from_millis(1);
/// Loads at each wake-up of a task that chases: some 25 us in the second-level cache.
const HOPS: u64 = 4096;

/// Under what the program runs.
#[derive(Clone, Debug)]
pub struct Variant {
    /// Its column.
    pub name: String,
    /// `None`: the program does not run.
    pub allocator: Option<Allocator>,
}

/// What the program does.
#[derive(Clone, Copy, Debug)]
pub struct Churn {
    /// Zeroed in each round.
    pub bytes: usize,
    /// After it.
    pub pause: Duration,
}

/// A scene that is set.
#[derive(Debug)]
pub struct Stage {
    scene: Scene,
    churn: Churn,
    slice: Duration,
    neighbours: Vec<Worker>,
    /// Who keep the CPUs busy where a scene wants that.
    crowd: Vec<Worker>,
    churners: Vec<(Variant, Option<Worker>, Sum)>,
    _folder: Scratch,
}

/// Over all counted slices.
#[derive(Clone, Copy, Default, Debug)]
struct Sum {
    slices: u32,
    bytes: u64,
    cpu_ns: u64,
    scrubd_ns: Option<u64>,
}

impl Stage {
    /// Starts everybody: a neighbour on each of `cpus`, the program under each variant.
    pub fn set(
        scene: Scene,
        cpus: &[usize],
        variants: &[Variant],
        churn: Churn,
        slice: Duration,
    ) -> Result<Stage> {
        let (program, folder) = (Program::disturb()?, Scratch::new()?);
        let plain = Allocator::plain();
        let on_each_cpu = || {
            let start = |&cpu: &usize| {
                let mut worker = Worker::start(&program, &plain, folder.file("none"))?;
                worker.ask(&format!("pin {cpu}"))?;
                Ok(worker)
            };
            cpus.iter().map(start).collect::<Result<Vec<_>>>()
        };
        let neighbours = on_each_cpu()?;
        let crowd = if scene == Scene::TicksBusy { on_each_cpu()? } else { vec![] };
        let start = |variant: &Variant| {
            let start = |each| Worker::start(&program, each, folder.file(&variant.name));
            let worker = variant.allocator.as_ref().map(start).transpose()?;
            Ok((variant.clone(), worker, Sum::default()))
        };
        let churners = variants.iter().map(start).collect::<Result<Vec<_>>>()?;
        let stage = Stage { scene, churn, slice, neighbours, crowd, churners, _folder: folder };
        stage
            .churners
            .iter()
            .try_for_each(|(_, worker, _)| signal(worker.as_ref(), Signal::Stop))?;
        Ok(stage)
    }

    /// One slice with the program under the `variant`-th; its times by metric.
    pub fn slice(&mut self, load: Load, variant: usize) -> Result<Vec<(Metric, f64)>> {
        let (lead, slice) = (LEAD.as_nanos(), self.slice.as_nanos());
        let (_, churner, sum) = &mut self.churners[variant];
        let before = churner.as_ref().and_then(Worker::background_ns);
        signal(churner.as_ref(), Signal::Continue)?;
        if let Some(churner) = churner {
            let Churn { bytes, pause } = self.churn;
            let slice = slice + TAIL.as_nanos();
            churner.tell(&format!("churn {bytes} {} {lead} {slice}", pause.as_nanos()))?;
        }
        for worker in &mut self.crowd {
            worker.tell(&command(Load::Compute, lead, slice + TAIL.as_nanos()))?;
        }
        for worker in &mut self.neighbours {
            worker.tell(&command(load, lead, slice))?;
        }
        let hear = |worker: &mut Worker| worker.hear();
        let felt = self.neighbours.iter_mut().map(hear).collect::<Result<Vec<_>>>()?;
        for worker in &mut self.crowd {
            worker.hear()?;
        }
        if let Some(churner) = churner {
            let [_, bytes, cpu_ns] = churner.hear()?[..] else {
                bail!("the program beside the neighbours told something else")
            };
            let after = churner.background_ns();
            churner.signal(Signal::Stop)?;
            sum.slices += 1;
            sum.bytes += bytes;
            sum.cpu_ns += cpu_ns;
            if let Some(after) = after {
                *sum.scrubd_ns.get_or_insert(0) += after - before.unwrap_or(0);
            }
        }
        times(load, &felt).with_context(|| format!("{load}: no work in {:?}", self.slice))
    }

    /// Ends everybody; what the program did under each variant.
    pub fn finish(self) -> Result<Vec<Churned>> {
        for worker in self.neighbours.into_iter().chain(self.crowd) {
            worker.finish()?;
        }
        let mut churned = vec![];
        for (variant, worker, sum) in self.churners {
            let Some(worker) = worker else { continue };
            worker.signal(Signal::Continue)?;
            let counted = (self.slice + TAIL).as_secs_f64() * f64::from(sum.slices);
            let ran = counted + LEAD.as_secs_f64() * f64::from(sum.slices);
            churned.push(Churned {
                variant: variant.name,
                bytes_per_s: sum.bytes as f64 / counted,
                cpus: sum.cpu_ns as f64 / 1e9 / counted,
                scrubd_cpus: sum.scrubd_ns.map(|ns| ns as f64 / 1e9 / ran),
                counters: worker.finish()?.map_or_else(BTreeMap::new, |json| counters(&json)),
            });
        }
        Ok(churned)
    }

    /// What is on.
    pub fn scene(&self) -> Scene {
        self.scene
    }
}

impl Variant {
    /// The program does not run.
    pub fn alone() -> Variant {
        Variant { name: ALONE.into(), allocator: None }
    }
}

fn signal(worker: Option<&Worker>, what: Signal) -> Result<()> {
    worker.map_or(Ok(()), |worker| worker.signal(what))
}

fn command(load: Load, lead: u128, slice: u128) -> String {
    let period = PERIOD.as_nanos();
    match load {
        Load::Compute => format!("compute {lead} {slice}"),
        Load::Chase(bytes) => format!("chase {bytes} {lead} {slice}"),
        Load::Doze(bytes) => format!("doze {bytes} {HOPS} {period} {lead} {slice}"),
        Load::Tick => format!("tick {period} {lead} {slice}"),
    }
}

/// What all neighbours' answers come to; `None` if nobody did anything.
fn times(load: Load, answers: &[Vec<u64>]) -> Option<Vec<(Metric, f64)>> {
    if load == Load::Tick {
        let mut late: Vec<_> = answers.iter().flatten().map(|&ns| ns as f64).collect();
        late.sort_by(f64::total_cmp);
        return Some(vec![
            (Metric::Late50, quantile(&late, 0.5)?),
            (Metric::Late99, quantile(&late, 0.99)?),
        ]);
    }
    let sum = |which: usize| {
        let parts = answers.iter().map(|answer| answer.get(which).copied());
        parts.sum::<Option<u64>>().map(|sum| sum as f64)
    };
    let (work, cpu, wall) = (sum(0)?, sum(1)?, sum(2)?);
    (work > 0.0).then(|| vec![(Metric::Wall, wall / work), (Metric::Cpu, cpu / work)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::worker::allowed_cpus;

    #[test]
    fn work_is_summed_over_the_neighbours_and_lateness_is_pooled() {
        let work = times(Load::Compute, &[vec![10, 20, 40], vec![30, 20, 40]]).unwrap();
        assert_eq!(work, [(Metric::Wall, 2.0), (Metric::Cpu, 1.0)]);
        let late = times(Load::Tick, &[vec![1, 2], vec![3]]).unwrap();
        assert_eq!(late[0], (Metric::Late50, 2.0));
        assert!(times(Load::Chase(4096), &[vec![0, 1, 1]]).is_none());
        assert!(times(Load::Tick, &[vec![]]).is_none());
    }

    #[test]
    fn neighbours_have_times_and_the_program_beside_them_an_account() {
        let beside = Variant { name: "glibc".into(), allocator: Some(Allocator::plain()) };
        let churn = Churn { bytes: 1 << 20, pause: Duration::from_millis(1) };
        let slice = Duration::from_millis(5);
        let cpu = allowed_cpus().unwrap()[0];
        let mut stage =
            Stage::set(Scene::Full, &[cpu], &[Variant::alone(), beside], churn, slice).unwrap();
        for load in [Load::Compute, Load::Chase(65536), Load::Doze(65536), Load::Tick] {
            let times = stage.slice(load, 0).unwrap();
            assert!(times.len() == 2 && times.iter().all(|(_, ns)| *ns > 0.0), "{times:?}");
        }
        stage.slice(Load::Compute, 1).unwrap();
        let churned = stage.finish().unwrap();
        assert_eq!(churned.len(), 1);
        assert!(churned[0].bytes_per_s > 0.0 && churned[0].cpus > 0.0, "{churned:?}");
        assert_eq!(churned[0].scrubd_cpus, None);
    }
}
