//! `prezero bench disturb`: what neighbours feel of a program that runs under prezero.
//!
//! Neighbours are pinned: an arithmetic loop, pointer chases over a set that fits the
//! second-level cache, the shared one, or none (lmbench's memory latencies, by which Thorpe
//! judged zeroing in NetBSD's idle loop), and a task that wakes up each millisecond. Beside
//! them a program allocates zeroed memory, writes to each page, and frees it.
//!
//! That program takes CPU time and cache whatever its allocator does. So what counts is
//! prezero against prezero that never scrubs: all else is the same. Both are told by the
//! wall clock and by the neighbours' own CPU time, beside nobody, glibc and another peer.
//! The variants take turns in short slices, the order rotated. Where the program pauses,
//! scrubd works beside the neighbours, and prezero runs once more with each kind of engine.
//! A few slices do not tell a difference of 2 %; so prezero that scrubs and prezero that does
//! not go on in pairs until the difference is known, or time is up.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use prezero::{Size, Topology};

use super::disturb_report::{Felt, Load, OFF, ON, Report, Row, Scene, SceneReport, Side, Sizes};
use super::disturb_stage::{Churn, Stage, Time, Variant};
use super::disturb_table;
use super::machine::Machine;
use super::output::Output;
use super::pairs::{self, PAIRS};
use super::peers::{Allocator, Field};
use super::progress::{self, kept, step};
use super::samples::{Change, Pool, Spread};
use super::worker::{Touch, allowed_cpus};
use prezero_cli::bare::Memory;

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
/// Where the program pauses: as long as a scrubber of this rate takes for a round, bytes per ns.
const SCRUB_RATE: u64 = 8;
/// Of the variants, before anything is counted: chases are laid out, heaps are grown.
const WARM_ROUNDS: usize = 1;
/// Wake-ups need longer slices: a hundredth of them must be some.
const TICK_SLICES: u32 = 2;
/// Memory that is faulted in and given back before anything is measured.
const WARM_BYTES: usize = 2 << 30;
/// What the engines are chosen on: more than private caches hold.
const CALIBRATED_ON: usize = 64 << 20;

/// The command line of `prezero bench disturb`.
#[derive(clap::Args)]
#[command(after_help = "Example: prezero bench disturb --scenes ticks-idle --rounds 5")]
pub struct Disturb {
    #[command(flatten)]
    output: Output,
    /// Length of a slice, 0.05 to 10 (wake-ups: twice that)
    #[arg(long, value_name = "S", default_value_t = 0.5)]
    seconds: f64,
    /// Slices of each variant beside each load, 5 or more
    #[arg(long, value_name = "N", default_value_t = 10)]
    rounds: usize,
    /// Seconds for each load's pairs of prezero with and without scrubbing, until the difference is
    /// known to half of what is asked
    #[arg(long, value_name = "S", default_value_t = 30)]
    pairs_s: u64,
    /// What the program asks for in a round: less than twenty private caches hold is scrubbed
    /// through it, more past it
    #[arg(long, value_name = "SIZE", default_value = "64M")]
    churn: Size,
    /// Which scenes: full, beside, dozing, ticks-idle, ticks-busy [all]
    #[arg(
        long,
        value_enum,
        hide_possible_values = true,
        value_delimiter = ',',
        value_name = "SCENE,..."
    )]
    scenes: Vec<Scene>,
    /// Which peers: glibc, glibc-keep, jemalloc, mimalloc, tcmalloc
    #[arg(long, value_delimiter = ',', value_name = "NAME,...", default_value = "glibc,tcmalloc")]
    peers: Vec<String>,
}

const SCENES: [Scene; 5] =
    [Scene::Full, Scene::Beside, Scene::Dozing, Scene::TicksIdle, Scene::TicksBusy];

impl Disturb {
    /// Measures and prints.
    pub fn run(&self) -> Result<()> {
        let (seconds, rounds) = (self.seconds, self.rounds);
        ensure!((0.05..=10.0).contains(&seconds), "--seconds {seconds}: give 0.05 to 10");
        ensure!(rounds >= 5, "--rounds {rounds}: too few; give 5 or more");
        let churn = self.churn.0;
        ensure!((1 << 20..=1 << 30).contains(&churn), "--churn {}: give 1M to 1G", self.churn);
        let report = self.measure()?;
        progress::end();
        self.output.put(&report, || disturb_table::render(&report))
    }

    fn measure(&self) -> Result<Report> {
        let (machine, field) = (Machine::here(), Field::find(&self.peers)?);
        let cpus = allowed_cpus()?;
        let topology = Topology::read(Path::new(Topology::ROOT));
        let sizes = Sizes::of(&topology, machine.memory_bytes / cpus.len());
        Touch::unpack()?.warm((cpus.len() * sizes.dram).max(WARM_BYTES))?;
        let scenes = if self.scenes.is_empty() { &SCENES[..] } else { &self.scenes };
        let loads: usize = scenes.iter().map(|scene| scene.loads(sizes).len()).sum();
        let players = variants(scenes[0], &field)?.len();
        progress::expect(loads * (WARM_ROUNDS + self.rounds) * players);
        let mut measured = vec![];
        for &scene in scenes {
            let Some(scene) = kept(self.scene(scene, &field, &cpus, sizes))? else { break };
            measured.push(scene);
        }
        let scenes = measured;
        let (slice_s, rounds, pairs_s) = (self.seconds, self.rounds, self.pairs_s);
        Ok(Report { benchmark: "disturb", machine, field, sizes, slice_s, rounds, pairs_s, scenes })
    }

    fn scene(
        &self,
        scene: Scene,
        field: &Field,
        cpus: &[usize],
        sizes: Sizes,
    ) -> Result<SceneReport> {
        let (home, cpus) = (cpus[0], scene.neighbours(cpus));
        ensure!(!cpus.is_empty(), "{scene:?} needs two CPUs; leave it out (--scenes)");
        let (variants, churn) = (variants(scene, field)?, scene.churn(self.churn));
        let slice = scene.slice(Duration::from_secs_f64(self.seconds));
        let mut stage = Stage::set(scene, home, cpus, &variants, churn, slice)?;
        let mut rows = vec![];
        for load in scene.loads(sizes) {
            rows.extend(self.load(&mut stage, load, &variants)?);
        }
        Ok(SceneReport {
            scene,
            home,
            churn_bytes: churn.bytes,
            churn_pause_ns: churn.pause.as_nanos() as u64,
            cpus: cpus.to_vec(),
            rows,
            churns: stage.finish()?,
        })
    }

    /// One load beside every variant in turn, then beside those two that are compared.
    fn load(&self, stage: &mut Stage, load: Load, variants: &[Variant]) -> Result<Vec<Row>> {
        let mut times = vec![Vec::<Vec<Time>>::new(); variants.len()];
        let mut slice = |which: usize| {
            step(&format!("{:?}: {load}: {}", stage.scene(), variants[which].name))?;
            stage.slice(load, which)
        };
        for round in 0..WARM_ROUNDS + self.rounds {
            for place in 0..variants.len() {
                let next = (round + place) % variants.len();
                let times_of = slice(next)?;
                if round >= WARM_ROUNDS {
                    times[next].push(times_of);
                }
            }
        }
        let told =
            |times: &[_]| rows(variants, times).with_context(|| format!("{load}: no samples"));
        let place = |name| variants.iter().position(|variant| variant.name == name);
        if let (Some(off), Some(on)) = (place(OFF), place(ON)) {
            // Not after each: of wake-ups it takes a second once there are hundreds of pairs.
            let known = |times: &[Vec<_>]| {
                let some_more = times[off].len().is_multiple_of(PAIRS);
                Ok(some_more && told(times)?.iter().all(Row::is_known))
            };
            pairs::go_on(&mut times, &[off, on], self.pairs_s, slice, known)?;
        }
        told(&times)
    }
}

/// What a variant's slices told of one load by one metric.
struct Told {
    each: Spread,
    /// Wake-ups, and which quantile of them counts.
    all: Option<(Pool, f64)>,
}

impl Told {
    /// Of the `which`-th time of each; `None` if one has none.
    fn of(slices: &[Vec<Time>], which: usize) -> Option<Told> {
        let share = slices.first()?.get(which)?.1.share();
        let all = slices.iter().map(|slice| Some(slice.get(which)?.2.as_slice()));
        let all = all.collect::<Option<Vec<_>>>()?;
        let of_one = |slice: &&[f64]| Pool::of(&[slice]).quantile(share.unwrap_or(0.5));
        let each = Spread::of(all.iter().map(of_one).collect::<Option<_>>()?)?;
        Some(Told { each, all: share.map(|share| (Pool::of(&all), share)) })
    }

    fn above(&self, off: &Told) -> Option<Change> {
        match (&self.all, &off.all) {
            (Some((all, share)), Some((off, _))) => Change::of_pooled(all, off, *share),
            _ => Change::of(&self.each, &off.each),
        }
    }
}

/// From each variant's slices to a row for each load and metric that they tell.
fn rows(variants: &[Variant], times: &[Vec<Vec<Time>>]) -> Option<Vec<Row>> {
    let row = |(which, &(load, metric, _)): (usize, &Time)| {
        let off = variants.iter().position(|variant| variant.name == OFF);
        let felt = |(variant, slices): (&Variant, &Vec<_>)| {
            let told = Told::of(slices, which)?;
            // Who took no part in the pairs is compared with the turns before them.
            let off = off.filter(|_| variant.name != OFF);
            let off = off.and_then(|off| Told::of(times[off].get(..slices.len())?, which));
            let change = off.and_then(|off| told.above(&off));
            let of_all = told.all.as_ref().and_then(|(all, share)| all.quantile(*share));
            Some(Felt { variant: variant.name.clone(), ns: told.each, of_all, change })
        };
        let results = variants.iter().zip(times).map(felt).collect::<Option<_>>()?;
        Some(Row { load, metric, results })
    };
    times.first()?.first()?.iter().enumerate().map(row).collect()
}

/// Nobody, the peers, prezero without scrubbing and with it; where scrubd has idle time also
/// with one engine for everything.
fn variants(scene: Scene, field: &Field) -> Result<Vec<Variant>> {
    let ours = field.allocators.iter().find(|each| each.is_prezero());
    let ours = ours.context("prezero is not here: build it (make build)")?;
    let named = |name: &str, environment: &[(&str, &str)]| {
        let environment = environment.iter().map(|&(k, v)| (k.into(), v.into())).collect();
        let allocator = Allocator { environment, ..ours.clone() };
        Variant { name: name.into(), allocator: Some(allocator) }
    };
    let mut variants = vec![Variant::alone()];
    let peers = field.allocators.iter().filter(|each| !each.is_prezero());
    variants.extend(
        peers.map(|peer| Variant { name: peer.name.clone(), allocator: Some(peer.clone()) }),
    );
    variants.extend([named(OFF, &[("PREZERO_SCRUB_START", "never")]), named(ON, &[])]);
    if matches!(scene, Scene::Beside | Scene::Dozing) {
        let chosen = Memory::new(CALIBRATED_ON).calibrated();
        for (kind, engine) in [("cached", chosen.cached), ("bypassing", chosen.bypassing)] {
            let name = format!("{kind} {}", engine.name());
            variants.push(named(&name, &[("PREZERO_ENGINE", engine.name())]));
        }
    }
    Ok(variants)
}

impl Scene {
    /// Where its neighbours are.
    fn neighbours(self, cpus: &[usize]) -> &[usize] {
        if self == Scene::Beside { &cpus[1..] } else { cpus }
    }

    fn churn(self, Size(bytes): Size) -> Churn {
        let pause = match self {
            Scene::Full | Scene::TicksBusy => Duration::ZERO,
            Scene::Beside | Scene::Dozing | Scene::TicksIdle => {
                Duration::from_nanos(bytes as u64 / SCRUB_RATE)
            }
        };
        Churn { bytes, pause }
    }

    fn slice(self, slice: Duration) -> Duration {
        match self {
            Scene::TicksIdle | Scene::TicksBusy => slice * TICK_SLICES,
            Scene::Full | Scene::Beside | Scene::Dozing => slice,
        }
    }

    fn loads(self, Sizes { l2, l3, dram }: Sizes) -> Vec<Load> {
        match self {
            Scene::Full | Scene::Beside => {
                vec![Load::Compute, Load::Chase(l2), Load::Chase(l3), Load::Chase(dram)]
            }
            Scene::Dozing => vec![Load::Doze(l2)],
            Scene::TicksIdle | Scene::TicksBusy => vec![Load::Tick(Side::Home)],
        }
    }
}

impl Sizes {
    /// Half of each cache, within bounds; `memory` is a CPU's share, in bytes.
    pub fn of(topology: &Topology, memory: usize) -> Sizes {
        let pages = |bytes: usize| (bytes / prezero::PAGE).max(1) * prezero::PAGE;
        let l2 = if topology.l2 == 0 { L2_UNKNOWN } else { topology.l2 };
        let l3 = (topology.l3 / 2).min(L3_MOST).max(2 * l2);
        let dram = (4 * topology.l3).clamp(DRAM_LEAST, DRAM_MOST).min(memory / SHARE_OF_MEMORY);
        Sizes { l2: pages(l2 / 2), l3: pages(l3), dram: pages(dram) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::disturb_report::Metric;
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
    fn each_metric_has_a_row_and_each_variant_but_one_a_change() {
        let variant = |name: &str| Variant { name: name.into(), allocator: None };
        let variants = [variant("alone"), variant(OFF), variant(ON)];
        let slice = |ns: f64| {
            [(Metric::Wall, ns), (Metric::Cpu, ns / 2.0)]
                .map(|(m, ns)| (Load::Compute, m, vec![ns]))
                .to_vec()
        };
        let slices = |ns: f64| vec![slice(ns); 5];
        let times = [slices(100.0), slices(200.0), slices(210.0)];

        let rows = rows(&variants, &times).unwrap();

        assert_eq!(rows.len(), 2);
        assert_eq!(rows[1].of(ON).unwrap().told(), 105.0);
        let change = rows[0].of(ON).unwrap().change.unwrap();
        assert!((change.change - 0.05).abs() < 1e-9 && change.noise == 0.0);
        assert!(rows[0].of(OFF).unwrap().change.is_none());
    }

    #[test]
    fn who_has_no_pairs_is_compared_with_the_turns_before_them() {
        let variant = |name: &str| Variant { name: name.into(), allocator: None };
        let variants = [variant("glibc"), variant(OFF), variant(ON)];
        let slice = |ns: f64| vec![(Load::Compute, Metric::Wall, vec![ns])];
        let mut times = [vec![slice(300.0); 5], vec![slice(200.0); 5], vec![slice(210.0); 5]];
        times[1].extend(vec![slice(100.0); 10]);
        times[2].extend(vec![slice(101.0); 10]);

        let rows = rows(&variants, &times).unwrap();

        let change = |name| rows[0].of(name).unwrap().change.unwrap().change;
        assert!((change("glibc") - 0.5).abs() < 1e-9 && (change(ON) - 0.01).abs() < 1e-9);
    }

    #[test]
    fn wake_ups_are_told_by_those_of_all_slices_together() {
        let variant = |name: &str| Variant { name: name.into(), allocator: None };
        let (load, variants) = (Load::Tick(Side::Home), [variant(OFF), variant(ON)]);
        // One of a hundred is late, in one slice of two all of them.
        let slice = |late: usize, ns: f64| {
            let all: Vec<_> = (0..100).map(|n| if n < late { 10.0 * ns } else { ns }).collect();
            vec![(load, Metric::Late50, all.clone()), (load, Metric::Late99, all)]
        };
        let slices = |ns: f64| (0..10).map(|n| slice(4 * (n % 2), ns)).collect::<Vec<_>>();

        let rows = rows(&variants, &[slices(100.0), slices(110.0)]).unwrap();

        let told = |row: usize, name| rows[row].of(name).unwrap().told();
        assert_eq!((told(0, OFF), told(1, OFF)), (100.0, 1000.0));
        assert_eq!((told(0, ON), told(1, ON)), (110.0, 1100.0));
        assert_eq!(rows[1].of(ON).unwrap().ns.p10, 110.0, "a slice without");
        for row in &rows {
            let change = row.of(ON).unwrap().change.unwrap();
            assert!((change.change - 0.1).abs() < 1e-9 && change.noise < 1e-9, "{change:?}");
        }
    }

    #[test]
    fn one_cpu_has_nobody_beside() {
        assert!(Scene::Beside.neighbours(&[3]).is_empty());
        assert_eq!(Scene::Beside.neighbours(&[0, 1]), [1]);
        assert_eq!(Scene::Full.neighbours(&[0, 1]), [0, 1]);
    }
}
