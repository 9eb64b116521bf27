//! `prezero bench disturb`: what neighbours feel of a program that runs under prezero.
//!
//! Neighbours are pinned: an arithmetic loop, pointer chases over a set that fits the
//! second-level cache, the shared one, or none (lmbench's memory latencies, by which Thorpe
//! judged zeroing in NetBSD's idle loop), and a task that wakes up each millisecond. Beside
//! them a program allocates zeroed memory, writes to each page, and frees it.
//!
//! That program takes CPU time and cache whatever its allocator does. So what counts is
//! prezero against prezero that never scrubs: all else is the same. Both are told by the
//! wall clock and by the neighbours' own CPU time, alone, beside glibc and beside another peer. The
//! variants take turns in short slices, the order rotated. Where the program pauses, scrubd works
//! beside the neighbours, and prezero runs once more with each kind of engine. A few slices do not
//! tell a difference of 2 %; so prezero that scrubs and prezero that does not go on in pairs until
//! the difference is known, or time is up.

mod stage;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use prezero::Size;
use prezero::clear::{Cache, preferred};
use stage::{ALONE, Churn, Load, Metric, Scene, Side, Stage, Time, Variant};

use crate::figure::{Across, Against, Case, Figure, Report, Sheet};
use crate::neighbours::Sizes;
use crate::peers::{Allocator, Field, PREZERO};
use crate::pool::Pool;
use crate::progress::{self, kept, step};
use crate::runner::{PAIRS, go_on, in_turns};
use crate::worker::{allowed_cpus, warm};
use prezero_host::samples::{Change, median, noise};

/// prezero that never scrubs: what scrubbing is compared with.
const OFF: &str = "never";
/// prezero as it comes.
const ON: &str = PREZERO;
/// More time for the same work with scrubbing than without, at most; and later wake-ups.
const WORK_BOUND: f64 = 0.02;
const WAKE_BOUND: f64 = 0.05;
/// Where the program pauses: as long as a scrubber of this rate takes for a round, bytes per ns.
const SCRUB_RATE: u64 = 8;
/// Of the variants, before anything is counted: chases are laid out, heaps are grown.
const WARM_ROUNDS: usize = 1;
/// Wake-ups need longer slices: a hundredth of them must be some.
const TICK_SLICES: u32 = 2;
/// Memory that is faulted in and given back before anything is measured.
const WARM_BYTES: usize = 2 << 30;

/// The command line of `prezero bench disturb`.
#[derive(clap::Args)]
#[command(after_help = "Example: prezero bench disturb --scenes ticks-idle --rounds 5")]
pub struct Disturb {
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

impl Case for Disturb {
    fn measure(&self) -> Result<Report> {
        let (seconds, rounds) = (self.seconds, self.rounds);
        ensure!((0.05..=10.0).contains(&seconds), "--seconds {seconds}: give 0.05 to 10");
        ensure!(rounds >= 5, "--rounds {rounds}: too few; give 5 or more");
        let churn = self.churn.0;
        ensure!((1 << 20..=1 << 30).contains(&churn), "--churn {}: give 1M to 1G", self.churn);
        let mut report = Report::here("disturb", Field::find(&self.peers)?);
        let cpus = allowed_cpus()?;
        let sizes = Sizes::here(report.machine.memory_bytes, cpus.len());
        report.notes.push(format!(
            "chases over {} (second-level cache), {} (shared cache), {} (memory); {rounds} slices of {seconds} s, in turns, \
             {OFF} and {ON} in up to {} s of pairs more;\ntime for a unit of work (a load of a chase) by the wall clock or in CPU \
             time, median of the slices; lateness of wake-ups, median and 99th percentile of all;\n\
             x {OFF}: how many times as good as beside prezero that never scrubs",
            Size(sizes.l2),
            Size(sizes.l3),
            Size(sizes.dram),
            self.pairs_s
        ));
        warm((cpus.len() * sizes.dram).max(WARM_BYTES))?;
        let scenes = if self.scenes.is_empty() { Scene::value_variants() } else { &self.scenes };
        let loads: usize = scenes.iter().map(|scene| scene.loads(sizes).len()).sum();
        let players = variants(scenes[0], &report.field)?.len();
        progress::expect(loads * (WARM_ROUNDS + self.rounds) * players);
        for &scene in scenes {
            let sheets = kept(self.scene(scene, &report.field, &cpus, sizes))?;
            let Some(sheets) = sheets else { break };
            report.sheets.extend(sheets);
        }
        Ok(report)
    }
}

impl Disturb {
    fn scene(
        &self,
        scene: Scene,
        field: &Field,
        cpus: &[usize],
        sizes: Sizes,
    ) -> Result<[Sheet; 2]> {
        let (home, cpus) = (cpus[0], scene.neighbours(cpus));
        ensure!(!cpus.is_empty(), "{scene:?} needs two CPUs; leave it out (--scenes)");
        let (variants, churn) = (variants(scene, field)?, scene.churn(self.churn));
        let slice = scene.slice(Duration::from_secs_f64(self.seconds));
        let mut stage = Stage::set(scene, home, cpus, &variants, churn, slice)?;
        let how = match churn.pause.as_millis() {
            0 => "at full speed".to_string(),
            ms => format!("with {ms} ms of pause"),
        };
        let name = scene.to_possible_value().map_or_else(String::new, |it| it.get_name().into());
        let mut felt =
            Sheet::new(&format!("Disturb, {name}: what neighbours feel"), &["load"], Across::Who)
                .note(format!(
                    "{}; the program, on CPU {home}: rounds of {}, {how}",
                    scene.about(),
                    Size(churn.bytes)
                ));
        for load in scene.loads(sizes) {
            felt.extend(self.load(&mut stage, load, &variants)?);
        }
        let title = format!("Disturb, {name}: the program beside them");
        let mut program = Sheet::new(&title, &[], Across::Name);
        program.extend(stage.finish()?);
        Ok([felt, program])
    }

    /// One load beside every variant in turn, then beside those two that are compared.
    fn load(&self, stage: &mut Stage, load: Load, variants: &[Variant]) -> Result<Vec<Figure>> {
        let mut times = vec![Vec::<Vec<Time>>::new(); variants.len()];
        let mut slice = |which: usize| {
            step(&format!("{:?}: {load}: {}", stage.scene(), variants[which].name))?;
            stage.slice(load, which)
        };
        for (round, next) in in_turns(WARM_ROUNDS + self.rounds, variants.len()) {
            let times_of = slice(next)?;
            if round >= WARM_ROUNDS {
                times[next].push(times_of);
            }
        }
        let told =
            |times: &[_]| figures(variants, times).with_context(|| format!("{load}: no samples"));
        let place = |name| variants.iter().position(|variant| variant.name == name);
        if let (Some(off), Some(on)) = (place(OFF), place(ON)) {
            // Not after each: of wake-ups it takes a second once there are hundreds of pairs.
            let known = |times: &[Vec<_>]| {
                let some_more = times[off].len().is_multiple_of(PAIRS);
                Ok(some_more && told(times)?.iter().all(is_known))
            };
            go_on(&mut times, &[off, on], self.pairs_s, slice, known)?;
        }
        told(&times)
    }
}

/// Whether what scrubbing adds is known to half of its bound, so that where it adds nothing the
/// bound is seen to be kept. It does not matter on which side it is: a run that stops at a welcome
/// value is wrong more often than its noise says.
fn is_known(figure: &Figure) -> bool {
    figure.against.iter().all(|against| {
        let (Some(wanted), Some(noise)) = (against.wanted, against.noise) else { return true };
        noise <= (1.0 - wanted) / 2.0
    })
}

/// What a variant's slices told of one load by one metric.
struct Told {
    each: Vec<f64>,
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
        let each = all.iter().map(of_one).collect::<Option<_>>()?;
        Some(Told { each, all: share.map(|share| (Pool::of(&all), share)) })
    }

    fn value(&self) -> Option<f64> {
        match &self.all {
            Some((all, share)) => all.quantile(*share),
            None => median(&self.each),
        }
    }

    fn above(&self, off: &Told) -> Option<Change> {
        match (&self.all, &off.all) {
            (Some((all, share)), Some((off, _))) => all.change_from(off, *share),
            _ => Change::of(&self.each, &off.each),
        }
    }
}

/// From each variant's slices to a figure of it for each load and metric that they tell.
fn figures(variants: &[Variant], times: &[Vec<Vec<Time>>]) -> Option<Vec<Figure>> {
    let mut all = vec![];
    let off = variants.iter().position(|variant| variant.name == OFF);
    for (which, &(load, metric, _)) in times.first()?.first()?.iter().enumerate() {
        for (variant, slices) in variants.iter().zip(times) {
            let told = Told::of(slices, which)?;
            let (name, unit, scale) = metric.told();
            let figure = Figure {
                noise: noise(&told.each),
                samples: told.each.iter().map(|ns| ns / scale).collect(),
                ..Figure::new(&variant.name, name, unit, told.value()? / scale)
            };
            // Alone there is no program: a comparison would say nothing of scrubbing. A variant
            // that took no part in the pairs is compared with the turns before them.
            let off = off.filter(|_| ![OFF, ALONE].contains(&&*variant.name));
            let off = off.and_then(|off| Told::of(times[off].get(..slices.len())?, which));
            let against = off.and_then(|off| told.above(&off)).map(|change| {
                let (times, noise) = change.times();
                let wanted = metric.bound().filter(|_| variant.name == ON);
                let wanted = wanted.map(|bound| 1.0 / (1.0 + bound));
                Against { noise: Some(noise), wanted, ..Against::new(OFF, OFF, times) }
            });
            all.push(figure.case(&[&load.to_string()]).and(against));
        }
    }
    Some(all)
}

impl Metric {
    /// What scrubbing may add to it; `None` where nothing is asked.
    fn bound(self) -> Option<f64> {
        match self {
            Metric::Wall | Metric::Cpu => Some(WORK_BOUND),
            Metric::Late99 => Some(WAKE_BOUND),
            Metric::Late50 => None,
        }
    }
}

/// The neighbours alone, the peers, prezero without scrubbing and with it. Where scrubd has idle
/// time, also one engine for everything.
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
        for (kind, cache) in [("cached", Cache::Cached), ("bypassing", Cache::Bypassing)] {
            let engine = preferred(cache);
            let name = format!("{kind} {}", engine.name());
            variants.push(named(&name, &[("PREZERO_ENGINE", engine.name())]));
        }
    }
    Ok(variants)
}

impl Scene {
    fn about(self) -> &'static str {
        match self {
            Scene::Full => "a neighbour on every CPU",
            Scene::Beside => "a neighbour on every CPU but the program's",
            Scene::Dozing => "neighbours that sleep, on every CPU",
            Scene::TicksIdle => "a task on every CPU that wakes up each ms, else idle",
            Scene::TicksBusy => "a task on every CPU that wakes up each ms, every CPU busy",
        }
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    fn variants_named(names: &[&str]) -> Vec<Variant> {
        let variant = |name: &&str| Variant { name: name.to_string(), allocator: None };
        names.iter().map(variant).collect()
    }

    fn of<'a>(figures: &'a [Figure], who: &str, name: &str) -> &'a Figure {
        figures.iter().find(|figure| figure.who == who && figure.name == name).unwrap()
    }

    #[test]
    fn each_metric_has_a_figure_and_each_variant_but_two_a_comparison() {
        let variants = variants_named(&[ALONE, OFF, ON]);
        let slice = |ns: f64| {
            [(Metric::Wall, ns), (Metric::Cpu, ns / 2.0)]
                .map(|(m, ns)| (Load::Compute, m, vec![ns]))
                .to_vec()
        };
        let slices = |ns: f64| vec![slice(ns); 5];
        let times = [slices(100.0), slices(200.0), slices(210.0)];

        let figures = figures(&variants, &times).unwrap();

        assert_eq!((figures.len(), of(&figures, ON, "CPU").value), (6, 105.0));
        let against = &of(&figures, ON, "wall").against[0];
        assert!((against.times - 1.0 / 1.05).abs() < 1e-9 && against.noise == Some(0.0));
        assert_eq!(against.judged(), Some(prezero_host::samples::Judged::Beyond));
        assert!(figures.iter().all(|figure| figure.who == ON || figure.against.is_empty()));
    }

    #[test]
    fn a_figure_without_pairs_is_compared_with_the_turns_before_them() {
        let variants = variants_named(&["glibc", OFF, ON]);
        let slice = |ns: f64| vec![(Load::Compute, Metric::Wall, vec![ns])];
        let mut times = [vec![slice(300.0); 5], vec![slice(200.0); 5], vec![slice(210.0); 5]];
        times[1].extend(vec![slice(100.0); 10]);
        times[2].extend(vec![slice(101.0); 10]);

        let figures = figures(&variants, &times).unwrap();

        let times = |who| of(&figures, who, "wall").against[0].times;
        assert!((times("glibc") - 1.0 / 1.5).abs() < 1e-9 && (times(ON) - 1.0 / 1.01).abs() < 1e-9);
    }

    #[test]
    fn wake_ups_are_told_by_those_of_all_slices_together() {
        let (load, variants) = (Load::Tick(Side::Home), variants_named(&[OFF, ON]));
        // One of a hundred is late, in one slice of two all of them.
        let slice = |late: usize, us: f64| {
            let ns = 1e3 * us;
            let all: Vec<_> = (0..100).map(|n| if n < late { 10.0 * ns } else { ns }).collect();
            vec![(load, Metric::Late50, all.clone()), (load, Metric::Late99, all)]
        };
        let slices = |us: f64| (0..10).map(|n| slice(4 * (n % 2), us)).collect::<Vec<_>>();

        let figures = figures(&variants, &[slices(100.0), slices(110.0)]).unwrap();

        let told = |name| [OFF, ON].map(|who| of(&figures, who, name).value);
        assert_eq!((told("late, median"), told("late, 99th")), ([100.0, 110.0], [1000.0, 1100.0]));
        for name in ["late, median", "late, 99th"] {
            let against = &of(&figures, ON, name).against[0];
            assert!((against.times - 1.0 / 1.1).abs() < 1e-9 && against.noise.unwrap() < 1e-9);
        }
    }

    #[test]
    fn the_cost_of_scrubbing_is_known_by_its_noise_alone() {
        let with = |times: f64, noise: f64, wanted| {
            let against = Against { noise: Some(noise), wanted, ..Against::new(OFF, OFF, times) };
            Figure::new(ON, "wall", "ns", 1.0).and([against])
        };
        assert!(is_known(&with(0.9, 0.009, Some(1.0 / 1.02))));
        assert!(!is_known(&with(0.9, 0.011, Some(1.0 / 1.02))));
        assert!(is_known(&with(1.0, 9.0, None)), "nothing is asked");
    }

    #[test]
    fn one_cpu_has_no_neighbour() {
        assert!(Scene::Beside.neighbours(&[3]).is_empty());
        assert_eq!(Scene::Beside.neighbours(&[0, 1]), [1]);
        assert_eq!(Scene::Full.neighbours(&[0, 1]), [0, 1]);
    }
}
