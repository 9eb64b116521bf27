//! The processes of one scene, and one slice of it.
//!
//! All processes start once. A process that is not in a slice is stopped by a signal, so that no
//! thread of it (a scrubber, a purger) works into another's slice. The program under test starts a
//! little before the neighbours are counted, and stops when they have answered. It has one CPU, its
//! home, so that the scheduler's moving it about is not in the figures; a scrubber goes where it
//! likes.

use std::time::Duration;

use anyhow::{Result, bail};
use prezero::Size;

use crate::cost::{counters, told};
use crate::figure::{Better, Figure};
use crate::neighbours::{crowd, pinned, work};
use crate::peers::Allocator;
use crate::scratch::Scratch;
use crate::worker::{Program, Signal, Worker};

/// No program runs beside the neighbours.
pub const ALONE: &str = "alone";
/// The time for which all processes are under way before the count begins: a chase has been once round the
/// shared cache, and prezero has seen what is asked for.
const LEAD: Duration = Duration::from_millis(200);
/// The time for which the program goes on after the neighbours should have ended.
const TAIL: Duration = Duration::from_millis(50);
/// Of tasks that wake up.
const PERIOD: Duration = Duration::from_millis(1);
/// Loads at each wake-up of a task that chases: some 25 us in the second-level cache.
const HOPS: u64 = 4096;

/// What the neighbours do, and what the program does beside them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
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
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Load {
    /// Arithmetic in registers.
    Compute,
    /// Loads in a random order over a number of bytes, each waiting for the last.
    Chase(usize),
    /// The same, a few thousand at each wake-up of a periodic task.
    Doze(usize),
    /// A periodic task that does nothing.
    Tick(Side),
}

/// Where a neighbour is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
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
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Metric {
    /// A unit of work, by the wall clock.
    Wall,
    /// A unit of work, in CPU time of the process that did it.
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

    /// Its name, its unit, and how many ns that is.
    pub fn told(self) -> (&'static str, &'static str, f64) {
        match self {
            Metric::Wall => ("wall", "ns", 1.0),
            Metric::Cpu => ("CPU", "ns", 1.0),
            Metric::Late50 => ("late, median", "us", 1e3),
            Metric::Late99 => ("late, 99th", "us", 1e3),
        }
    }
}

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
    /// Workers that keep those CPUs busy where a scene wants that, but for the program's CPU while
    /// it runs.
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
    /// Starts all processes: a neighbour on each of `cpus`, at `home` the program under each
    /// variant.
    pub fn set(
        scene: Scene,
        home: usize,
        cpus: &[usize],
        variants: &[Variant],
        churn: Churn,
        slice: Duration,
    ) -> Result<Stage> {
        let (program, folder) = (Program::find("disturb")?, Scratch::new()?);
        let neighbours = crowd(&program, cpus)?;
        let busy = if scene == Scene::TicksBusy { cpus } else { &[] };
        let busy = crowd(&program, busy)?;
        let churner = |variant: &Variant| {
            let start = |each| pinned(&program, each, &folder.file(&variant.name), home);
            let worker = variant.allocator.as_ref().map(start).transpose()?;
            Ok((variant.clone(), worker, Sum::default()))
        };
        let churners = variants.iter().map(churner).collect::<Result<Vec<_>>>()?;
        let at_home = cpus.iter().position(|&cpu| cpu == home);
        let stage = Stage {
            scene,
            churn,
            slice,
            neighbours,
            at_home,
            crowd: busy,
            churners,
            _folder: folder,
        };
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
            _ => work(&felt).map(|(wall, cpu)| {
                let told = |metric, ns| (load, metric, vec![ns]);
                vec![told(Metric::Wall, wall), told(Metric::Cpu, cpu)]
            }),
        };
        let Some(times) = times else { bail!("{load}: nothing done in {:?}", self.slice) };
        Ok(times)
    }

    /// Ends all processes. Returns what the program did under each variant, over all slices.
    pub fn finish(self) -> Result<Vec<Figure>> {
        for worker in self.neighbours.into_iter().chain(self.crowd) {
            worker.finish()?;
        }
        let mut all = vec![];
        for (variant, worker, sum) in self.churners {
            let Some(worker) = worker else { continue };
            worker.signal(Signal::Continue)?;
            let counted = (self.slice + TAIL).as_secs_f64() * f64::from(sum.slices);
            let ran = counted + LEAD.as_secs_f64() * f64::from(sum.slices);
            let figure = |name, unit, value| Figure::new(&variant.name, name, unit, value);
            all.push(
                figure("zeroed", "GB/s", sum.bytes as f64 / 1e9 / counted).better(Better::More),
            );
            all.push(figure("CPUs", "", sum.cpu_ns as f64 / 1e9 / counted));
            let scrubd = sum.scrubd_ns.map(|ns| ns as f64 / 1e9 / ran);
            all.extend(scrubd.map(|cpus| figure("of them scrubd", "", cpus)));
            let stats = worker.finish()?;
            all.extend(
                stats.map(|stats| told(&variant.name, &counters(&stats))).unwrap_or_default(),
            );
        }
        Ok(all)
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
        assert_eq!(late(Some(0), &[vec![1]]).unwrap().len(), 2, "no CPU is away");
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
        assert!(churned.iter().all(|it| it.who == "glibc" && it.value > 0.0), "{churned:?}");
        let names: Vec<_> = churned.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["zeroed", "CPUs"]);
    }

    #[test]
    fn a_busy_cpu_has_one_beside_which_a_task_wakes_up() {
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
