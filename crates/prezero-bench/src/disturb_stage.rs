//! The processes of one scene, and one slice of it.
//!
//! Everybody is started once. Whoever is not in a slice is stopped by a signal, so that no
//! thread of his (a scrubber, a purger) works into somebody else's. The program under test
//! starts a little before the neighbours are counted, and stops when they have answered. It
//! has one CPU, its home, so that the scheduler's moving it about is not in the figures; a
//! scrubber goes where it likes.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::disturb_report::{ALONE, Churned, Load, Metric, Scene, Side};
use super::grid_report::counters;
use super::peers::Allocator;
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

/// What a slice tells: of which load, by which metric, ns: one for all its work, or each wake-up's.
pub type Time = (Load, Metric, Vec<f64>);

/// A scene that is set.
#[derive(Debug)]
pub struct Stage {
    scene: Scene,
    churn: Churn,
    slice: Duration,
    neighbours: Vec<Worker>,
    /// Which of them has the program's CPU.
    at_home: Option<usize>,
    /// Who keep those CPUs busy where a scene wants that, but for the program's while it runs.
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
    /// Starts everybody: a neighbour on each of `cpus`, at `home` the program under each
    /// variant.
    pub fn set(
        scene: Scene,
        home: usize,
        cpus: &[usize],
        variants: &[Variant],
        churn: Churn,
        slice: Duration,
    ) -> Result<Stage> {
        let (program, folder) = (Program::disturb()?, Scratch::new()?);
        let start = |allocator: &Allocator, stats: &str, cpu: usize| {
            let mut worker = Worker::start(&program, allocator, folder.file(stats))?;
            worker.ask(&format!("pin {cpu}"))?;
            Ok(worker)
        };
        let plain = Allocator::plain();
        let on_each_cpu =
            || cpus.iter().map(|&cpu| start(&plain, "none", cpu)).collect::<Result<Vec<_>>>();
        let neighbours = on_each_cpu()?;
        let crowd = if scene == Scene::TicksBusy { on_each_cpu()? } else { vec![] };
        let churner = |variant: &Variant| {
            let start = |each| start(each, &variant.name, home);
            let worker = variant.allocator.as_ref().map(start).transpose()?;
            Ok((variant.clone(), worker, Sum::default()))
        };
        let churners = variants.iter().map(churner).collect::<Result<Vec<_>>>()?;
        let at_home = cpus.iter().position(|&cpu| cpu == home);
        let stage =
            Stage { scene, churn, slice, neighbours, at_home, crowd, churners, _folder: folder };
        stage
            .churners
            .iter()
            .try_for_each(|(_, worker, _)| signal(worker.as_ref(), Signal::Stop))?;
        Ok(stage)
    }

    /// One slice with the program under the `variant`-th.
    pub fn slice(&mut self, load: Load, variant: usize) -> Result<Vec<Time>> {
        let (lead, slice) = (LEAD.as_nanos(), self.slice.as_nanos());
        let (_, churner, sum) = &mut self.churners[variant];
        let before = churner.as_ref().and_then(Worker::background_ns);
        signal(churner.as_ref(), Signal::Continue)?;
        if let Some(churner) = churner {
            let Churn { bytes, pause } = self.churn;
            let slice = slice + TAIL.as_nanos();
            churner.tell(&format!("churn {bytes} {} {lead} {slice}", pause.as_nanos()))?;
        }
        // One on a CPU: with two beside it a task that wakes up waits now and then for the end of a time
        // slice, about as often as a 99th percentile takes to be one or not.
        let program = churner.as_ref().and(self.at_home);
        let idle_without = |&(place, _): &(usize, &mut Worker)| Some(place) != program;
        let mut crowd: Vec<_> = self.crowd.iter_mut().enumerate().filter(idle_without).collect();
        for (_, worker) in &mut crowd {
            worker.tell(&command(Load::Compute, lead, slice + TAIL.as_nanos()))?;
        }
        for worker in &mut self.neighbours {
            worker.tell(&command(load, lead, slice))?;
        }
        let hear = |worker: &mut Worker| worker.hear();
        let felt = self.neighbours.iter_mut().map(hear).collect::<Result<Vec<_>>>()?;
        for (_, worker) in crowd {
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
        let times = match load {
            Load::Tick(_) => late(self.at_home, &felt),
            _ => work(load, &felt),
        };
        times.with_context(|| format!("{load}: nothing done in {:?}", self.slice))
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
        Load::Tick(_) => format!("tick {period} {lead} {slice}"),
    }
}

/// What all neighbours' work took; `None` if nobody did anything.
fn work(load: Load, answers: &[Vec<u64>]) -> Option<Vec<Time>> {
    let sum = |which: usize| {
        let parts = answers.iter().map(|answer| answer.get(which).copied());
        parts.sum::<Option<u64>>().map(|sum| sum as f64)
    };
    let (work, cpu, wall) = (sum(0)?, sum(1)?, sum(2)?);
    let told = |metric, ns: f64| (load, metric, vec![ns / work]);
    (work > 0.0).then(|| vec![told(Metric::Wall, wall), told(Metric::Cpu, cpu)])
}

/// How late the wake-ups were at home and away; `None` if there were none.
fn late(at_home: Option<usize>, answers: &[Vec<u64>]) -> Option<Vec<Time>> {
    let mut times = vec![];
    for side in [Side::Home, Side::Away] {
        let here = |which: usize| (Some(which) == at_home) == (side == Side::Home);
        let answers = answers.iter().enumerate().filter(|(which, _)| here(*which));
        let late: Vec<_> = answers.flat_map(|(_, each)| each).map(|&ns| ns as f64).collect();
        if !late.is_empty() {
            times.push((Load::Tick(side), Metric::Late50, late.clone()));
            times.push((Load::Tick(side), Metric::Late99, late));
        }
    }
    (!times.is_empty()).then_some(times)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::allowed_cpus;

    #[test]
    fn work_is_summed_over_the_neighbours() {
        let times = work(Load::Compute, &[vec![10, 20, 40], vec![30, 20, 40]]).unwrap();
        let told = |metric, ns| (Load::Compute, metric, vec![ns]);
        let expected = [told(Metric::Wall, 2.0), told(Metric::Cpu, 1.0)];
        assert_eq!(times, expected);
        assert!(work(Load::Chase(4096), &[vec![0, 1, 1]]).is_none());
    }

    #[test]
    fn lateness_is_told_for_the_programs_cpu_and_for_all_others() {
        let times = late(Some(1), &[vec![1, 2], vec![50, 50], vec![3]]).unwrap();
        let told = |side, metric| {
            times
                .iter()
                .find(|time| (time.0, time.1) == (Load::Tick(side), metric))
                .unwrap()
                .2
                .clone()
        };
        for metric in [Metric::Late50, Metric::Late99] {
            assert_eq!(told(Side::Home, metric), [50.0, 50.0]);
            assert_eq!(told(Side::Away, metric), [1.0, 2.0, 3.0]);
        }
        assert!(late(Some(0), &[vec![]]).is_none());
        assert_eq!(late(Some(0), &[vec![1]]).unwrap().len(), 2, "nobody is away");
    }

    #[test]
    fn neighbours_have_times_and_the_program_beside_them_an_account() {
        let beside = Variant { name: "glibc".into(), allocator: Some(Allocator::plain()) };
        let churn = Churn { bytes: 1 << 20, pause: Duration::from_millis(1) };
        // Long enough for one tick on a machine that starves.
        let slice = Duration::from_millis(300);
        let cpu = allowed_cpus().unwrap()[0];
        let mut stage =
            Stage::set(Scene::Full, cpu, &[cpu], &[Variant::alone(), beside], churn, slice)
                .unwrap();
        for load in [Load::Compute, Load::Chase(65536), Load::Doze(65536), Load::Tick(Side::Home)] {
            let times = stage.slice(load, 0).unwrap();
            let all = times.iter().flat_map(|(.., ns)| ns);
            assert!(times.len() == 2 && all.clone().all(|&ns| ns > 0.0), "{times:?}");
        }
        stage.slice(Load::Compute, 1).unwrap();
        let churned = stage.finish().unwrap();
        assert_eq!(churned.len(), 1);
        assert!(churned[0].bytes_per_s > 0.0 && churned[0].cpus > 0.0, "{churned:?}");
        assert_eq!(churned[0].scrubd_cpus, None);
    }

    #[test]
    fn a_busy_cpu_has_one_beside_whom_a_task_wakes_up() {
        let beside = Variant { name: "glibc".into(), allocator: Some(Allocator::plain()) };
        let churn = Churn { bytes: 1 << 20, pause: Duration::ZERO };
        let (slice, cpu) = (Duration::from_millis(300), allowed_cpus().unwrap()[0]);
        let variants = [Variant::alone(), beside];
        let mut stage = Stage::set(Scene::TicksBusy, cpu, &[cpu], &variants, churn, slice).unwrap();
        let mut crowd_took = |variant| {
            let so_far =
                |stage: &mut Stage| stage.crowd[0].ask("usage").unwrap().iter().sum::<u64>();
            let before = so_far(&mut stage);
            stage.slice(Load::Tick(Side::Home), variant).unwrap();
            so_far(&mut stage) - before
        };
        let (beside_the_program, beside_nobody) = (crowd_took(1), crowd_took(0));
        assert!(beside_the_program * 10 < beside_nobody, "{beside_the_program} {beside_nobody}");
        stage.finish().unwrap();
    }
}
