//! `prezero bench grid`: allocate zeroed, touch L lines of each page, free.
//!
//! Each cell is a row of [`Contest`]: allocators take turns, each run a process of its own whose first rounds do not
//! count. Samples of one layout of memory say little, so what counts is the median of a process. Where noise still
//! hides the ratio, prezero and the peers that may be the fastest go on until it is known or time is up. With a busy
//! loop on every CPU a sample lasts for several of the scheduler's time slices: a shorter one falls into a slice of
//! its own or waits for the end of another's, by chance.
//!
//! Where there is a pause, the ways of the [ideal](super::ideal) take their turns among the allocators; and because no
//! allocator costs nothing, each peer's bare malloc and free is timed after the same pause:
//! the ideal and the fastest of those are together the limit of what an allocator can do. Without one the limit is a
//! bare loop, which clears and touches a block of its own.

use anyhow::{Context, Result, ensure};
use prezero::Size;
use prezero_host::samples::{Change, median};

use super::ideal::Tried;
use crate::cost::Costs;
use crate::figure::{Across, Against, Case, Figure, Report, Sheet};
use crate::parse::{up_to, whole_pages};
use crate::peers::{Field, PREZERO};
use crate::progress::{self, interrupted};
use crate::runner::{Contest, Row, Run, Way, go_on};
use crate::scratch::Scratch;
use crate::worker::{LINES, Program, occupy_all_cpus, warm};

/// Runs of each cell, at least.
/// Fixed: fewer say nothing of noise.
const MIN_RUNS: usize = 15;
/// A cell is known as soon as its ratio may be off by no more; without pauses half a percent counts.
/// Fixed: what is asked of the grid.
const KNOWN: f64 = 0.02;
const KNOWN_IDLE: f64 = 0.05;
/// About how long a sample lasts without a pause, ns; beside busy loops several time slices.
/// Fixed: far above the clock's grain.
const SAMPLE_NS: u64 = 200_000;
const BUSY_SAMPLE_NS: u64 = 24_000_000;
/// The pause, ns; longer where a scrubber of that many bytes a ns needs more.
/// Fixed: the pause of README's figure.
const PAUSE_NS: u64 = 3_000_000;
const SCRUB_RATE: u64 = 8;
/// Faulted in and given back before anything is measured, bytes.
/// Fixed: what all processes need.
const WARM_BYTES: usize = 1 << 30;
/// Of all cells with a pause together, over the best peer.
/// Fixed: what is asked of the grid.
const MEAN_WANTED: f64 = 4.5;
/// A peer may be the fastest if it is slower than the best by no more.
/// Fixed: beyond it noise decides nothing.
const CONTENDS: f64 = 1.1;
/// At the limit: what is left to gain is noise.
/// Fixed: what is asked of the grid.
const NEAR_LIMIT: f64 = 0.9;

const BARE: &str = "bare loop";
const LIMIT: &str = "limit";
const IDEAL: &str = "ideal";

/// The command line of `prezero bench grid`.
#[derive(clap::Args)]
#[command(
    after_help = "Example: prezero bench grid --idle on --sizes 1M,16M --peers glibc,tcmalloc"
)]
pub struct Grid {
    /// A grid of 3 sizes by 2 lines
    #[arg(long)]
    quick: bool,
    /// Runs in each cell, 15 or more
    #[arg(long, value_name = "N", default_value_t = MIN_RUNS)]
    runs: usize,
    /// Block sizes, whole pages [64K to 256M]
    #[arg(long, value_delimiter = ',', value_name = "SIZE,...", value_parser = whole_pages)]
    sizes: Vec<usize>,
    /// Cache lines touched in each page, 1 to 64 [1,4,16,64]
    #[arg(long, value_delimiter = ',', value_name = "L,...", value_parser = up_to::<LINES>)]
    lines: Vec<usize>,
    /// Seconds for further runs of a cell whose ratio is not known well enough
    #[arg(long, value_name = "S", default_value_t = 8)]
    passes_s: u64,
    /// The line of a page that is touched first
    #[arg(long, value_name = "LINE", default_value_t = 0)]
    at: usize,
    /// With pauses, without, without and with all CPUs busy, or all three
    #[arg(long, value_enum, default_value = "all")]
    idle: Idle,
    /// Which peers: glibc, glibc-keep, jemalloc, mimalloc, tcmalloc [all]
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    peers: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Idle {
    On,
    Off,
    Busy,
    All,
}

/// A third of the grid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    Idle,
    BackToBack,
    Busy,
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Mode::Idle => "idle",
            Mode::BackToBack => "back-to-back",
            Mode::Busy => "busy",
        }
    }

    fn sheet(self) -> Sheet {
        let title = format!("Grid, {}: allocate zeroed, touch, free", self.name());
        let mut sheet = Sheet::new(&title, &["size", "lines"], Across::Who)
            .note(match self {
                Mode::Idle => "a pause before each round, in which memory can be prepared: 3 ms, or as long as a scrubber of 8 GB/s needs",
                Mode::BackToBack => "no pause: nothing can be prepared, and nothing should be lost",
                Mode::Busy => "no pause, and another process keeps each CPU busy",
            });
        sheet.wanted_mean = (self == Mode::Idle).then(|| ("best".into(), MEAN_WANTED));
        sheet
    }

    /// What is wanted beside the best peer, and beside the ideal.
    fn wanted(self) -> (f64, Option<f64>) {
        if self == Mode::Idle { (1.1, Some(0.85)) } else { (0.97, None) }
    }

    /// Pause and length of a sample, ns, of `bench/touch.c`.
    fn rhythm(self, bytes: usize) -> [String; 2] {
        let (pause, sample) = match self {
            Mode::Idle => (PAUSE_NS.max(bytes as u64 / SCRUB_RATE), 0),
            Mode::BackToBack => (0, SAMPLE_NS),
            Mode::Busy => (0, BUSY_SAMPLE_NS),
        };
        [pause.to_string(), sample.to_string()]
    }
}

/// The times of a way in a cell, ns: a median for each process.
#[derive(Clone, Debug)]
struct Timed {
    who: String,
    ns: Vec<f64>,
}

impl Timed {
    fn median(&self) -> f64 {
        median(&self.ns).unwrap_or(f64::MAX)
    }

    /// How many times as fast `ours` is as this, as `what`; the noise of that is of the runs in pairs.
    fn over(&self, ours: &Timed, what: &str) -> Against {
        let times = self.median() / ours.median();
        let pairs = self.ns.len().min(ours.ns.len());
        let change = Change::of(&self.ns[..pairs], &ours.ns[..pairs]).filter(|_| pairs > 1);
        let noise = change.map(|Change { change, noise }| noise + (times - 1.0 - change).abs());
        Against { noise, ..Against::new(what, &self.who, times) }
    }
}

fn fastest<'a>(all: impl IntoIterator<Item = &'a Timed>) -> Option<&'a Timed> {
    all.into_iter().min_by(|a, b| a.median().total_cmp(&b.median()))
}

/// One cell: the allocators, what no allocator can beat with whether it crowds others out of their cache, and the
/// peers' bare calls.
struct Cell {
    case: [String; 2],
    allocators: Vec<Timed>,
    tried: Vec<(Timed, bool)>,
    calls: Vec<Timed>,
}

impl Cell {
    fn ours(&self) -> Option<&Timed> {
        self.allocators.iter().find(|each| each.who == PREZERO)
    }

    fn best(&self) -> Option<&Timed> {
        fastest(self.allocators.iter().filter(|each| each.who != PREZERO))
    }

    /// The fastest way that spares others their cache, and the fastest peer's call.
    fn limit(&self) -> Option<Timed> {
        let sparing = self.tried.iter().filter(|(_, crowds)| !crowds).map(|(tried, _)| tried);
        let sparing = fastest(sparing)?;
        let call = fastest(&self.calls).map_or(0.0, Timed::median);
        Some(Timed { ns: sparing.ns.iter().map(|ns| ns + call).collect(), ..sparing.clone() })
    }

    fn figures(&self, (wanted, of_ideal): (f64, Option<f64>)) -> Vec<Figure> {
        let case = self.case.each_ref().map(String::as_str);
        let figure = |who: &str, ns: &[f64]| {
            let us = ns.iter().map(|ns| ns / 1e3).collect();
            Some(Figure::of_samples(who, "round", "us", us)?.case(&case))
        };
        let mut all: Vec<_> =
            self.allocators.iter().filter_map(|each| figure(&each.who, &each.ns)).collect();
        let limit = self.limit();
        let ideal = fastest(self.tried.iter().map(|(tried, _)| tried));
        let ideal = ideal.filter(|_| !self.calls.is_empty());
        for (who, tried) in [(LIMIT, limit.as_ref()), (IDEAL, ideal)] {
            all.extend(tried.and_then(|tried| figure(who, &tried.ns)));
        }
        let Some(ours) = self.ours() else { return all };
        let to_limit = limit.map(|limit| limit.over(ours, LIMIT));
        let at_limit = to_limit.as_ref().is_some_and(|it| it.times >= NEAR_LIMIT);
        let best = self.best().map(|best| best.over(ours, "best").wanted(wanted));
        let best = best.map(|best| Against { at_limit, ..best });
        let to_ideal = ideal.map(|ideal| Against { wanted: of_ideal, ..ideal.over(ours, IDEAL) });
        if let Some(ours) = all.iter_mut().find(|figure| figure.who == PREZERO) {
            ours.against = [best, to_limit, to_ideal].into_iter().flatten().collect();
        }
        all
    }
}

/// Those of which one may be the fastest, and prezero.
fn contenders(ways: &[Way], times: &[Vec<f64>]) -> Vec<usize> {
    let at = |nth: usize| median(&times[nth]).unwrap_or(f64::MAX);
    let peers = (0..ways.len()).filter(|&nth| ways[nth].name != PREZERO);
    let best = peers.map(at).fold(f64::MAX, f64::min);
    let near = |&nth: &usize| ways[nth].name == PREZERO || at(nth) <= CONTENDS * best;
    (0..ways.len()).filter(near).collect()
}

impl Case for Grid {
    fn measure(&self) -> Result<Report> {
        let (runs, at) = (self.runs, self.at);
        ensure!(runs >= MIN_RUNS, "--runs {runs}: too few; give {MIN_RUNS} or more");
        ensure!(at < LINES, "--at {at}: a page has {LINES} lines; give 0 to {}", LINES - 1);
        let mut report = Report::here("grid", Field::find(&self.peers)?);
        report.notes.push(format!(
            "a round: calloc, touch L lines of each page{}, free; medians of {runs} or more processes, interleaved;\n\
             limit: touching memory that was scrubbed in the pause, in a way that leaves others their cache, and the \
             fastest peer's bare malloc and free;\nideal: the same by the best way and without a call; without a pause \
             limit is memset and touch of one block;\n±: what x may be off by, 95 %",
            if at == 0 { String::new() } else { format!(" (of one, line {at})") },
        ));
        let (few, many): (&[u32], &[u32]) = (&[16, 20, 24], &[16, 18, 20, 22, 24, 26, 28]);
        let shifts = if self.quick { few } else { many };
        let sizes = or(&self.sizes, shifts.iter().map(|shift| 1 << shift).collect());
        let lines = or(&self.lines, if self.quick { vec![1, 64] } else { vec![1, 4, 16, 64] });
        let modes = match self.idle {
            Idle::On => vec![Mode::Idle],
            Idle::Off => vec![Mode::BackToBack],
            Idle::Busy => vec![Mode::Busy],
            Idle::All => vec![Mode::Idle, Mode::BackToBack, Mode::Busy],
        };
        warm((4 * sizes.iter().copied().max().unwrap_or(0)).max(WARM_BYTES))?;
        let ways: Vec<_> = report.field.allocators.iter().map(Way::of).collect();
        progress::expect(modes.len() * sizes.len() * lines.len() * (ways.len() + 1) * runs);
        for mode in modes {
            let _busy = if mode == Mode::Busy { Some(occupy_all_cpus()?) } else { None };
            let tried = if mode == Mode::Idle { Tried::here()? } else { vec![] };
            let (mut sheet, mut costs) = (mode.sheet(), Costs::default());
            'sizes: for &bytes in &sizes {
                let mut calls = None;
                for &lines in &lines {
                    let cell =
                        self.cell(mode, &ways, &tried, bytes, lines, &mut calls, &mut costs)?;
                    let Some(cell) = cell else { break 'sizes };
                    sheet.extend(cell.figures(mode.wanted()));
                }
            }
            let costs = costs.sheet(&format!("Costs of the grid, {}", mode.name()));
            report.sheets.extend([sheet, costs]);
            if interrupted() {
                break;
            }
        }
        Ok(report)
    }
}

impl Grid {
    /// A cell; `None`: interrupted. The calls of its size are timed once.
    #[expect(clippy::too_many_arguments, reason = "what differs between cells")]
    fn cell(
        &self,
        mode: Mode,
        ways: &[Way],
        tried: &[Tried],
        bytes: usize,
        lines: usize,
        calls: &mut Option<Vec<Timed>>,
        costs: &mut Costs,
    ) -> Result<Option<Cell>> {
        let (touch, scratch) = (Program::find("touch")?, Scratch::new()?);
        let program = touch.path();
        let (name, own) = (format!("grid, {}", mode.name()), std::env::current_exe()?);
        let at = (self.at % (LINES / lines)).to_string();
        let case = [Size(bytes).to_string(), lines.to_string()];
        let rhythm = mode.rhythm(bytes);
        let row = |what: &str, lines: &str, at: &str| {
            let arguments = [what, &bytes.to_string(), lines, at, &rhythm[0], &rhythm[1]];
            let arguments = arguments.map(String::from).to_vec();
            Row { of: case.to_vec(), program: program.clone(), arguments, ..Row::default() }
        };
        let contest =
            |ways| Contest { name: &name, ways, stats: true, prints: true, scratch: &scratch };
        let times = |ways: &[Way], taken: Vec<Vec<f64>>| -> Vec<Timed> {
            let each = ways.iter().zip(taken);
            each.map(|(way, ns)| Timed { who: way.name.clone(), ns }).collect()
        };
        let ns = |taken: &[Vec<Run>]| -> Result<Vec<Vec<f64>>> {
            let median = |run: &Run| run.numbers()?.first().copied().context("it said nothing");
            taken.iter().map(|runs| runs.iter().map(median).collect()).collect()
        };
        let (bytes_word, lines_word) = (bytes.to_string(), lines.to_string());
        let mut beside: Vec<Way> = tried
            .iter()
            .map(|one| {
                let [what, engine, place] = one.arguments();
                let arguments = [what, engine, place, &bytes_word, &lines_word, &at, &rhythm[0]];
                Way::beside(&one.name(), &own, &arguments)
            })
            .collect();
        if mode != Mode::Idle {
            let arguments = ["bare", &bytes_word, &lines_word, &at, &rhythm[0], &rhythm[1]];
            beside.push(Way::beside(BARE, &program, &arguments));
        }
        let crowds = |nth: usize| tried.get(nth).is_some_and(|one| one.crowds(bytes));
        let peers: Vec<Way> = ways.iter().filter(|way| way.name != PREZERO).cloned().collect();
        if mode == Mode::Idle && calls.is_none() {
            // A few processes: a call costs far less than a round.
            let few = self.runs.div_ceil(5);
            let row = row("round", "0", "0");
            let Some(taken) = contest(&peers).row(&row, few)? else { return Ok(None) };
            *calls = Some(times(&peers, ns(&taken)?));
        }
        let players = [ways, &beside].concat();
        let (contest, row) = (contest(&players), row("round", &lines_word, &at));
        let Some(runs) = contest.row(&row, self.runs)? else { return Ok(None) };
        for (way, runs) in ways.iter().zip(&runs) {
            runs.iter().for_each(|run| costs.add(&[], &way.name, &run.spent, &run.stats));
        }
        let mut taken = ns(&runs)?;
        let tried = times(&beside, taken.split_off(ways.len()));
        let tried = tried.into_iter().enumerate().map(|(nth, timed)| (timed, crowds(nth)));
        let those = contenders(ways, &taken);
        let to = if mode == Mode::Idle { KNOWN_IDLE } else { KNOWN };
        let known = |taken: &[Vec<f64>]| {
            let all = times(ways, taken.to_vec());
            let cell = Cell { case: case.clone(), allocators: all, tried: vec![], calls: vec![] };
            let best = cell.ours().zip(cell.best()).map(|(ours, best)| best.over(ours, "best"));
            Ok(best.is_none_or(|best| best.noise.is_some_and(|noise| noise <= to)))
        };
        let once = |which: usize| {
            if interrupted() {
                return Err(progress::Interrupted.into());
            }
            let run = contest.once(&ways[which], &row)?;
            Ok(ns(&[vec![run]])?[0][0])
        };
        go_on(&mut taken, &those, self.passes_s, once, known)?;
        let calls = calls.clone().unwrap_or_default();
        let allocators = times(ways, taken);
        Ok(Some(Cell { case: case.clone(), allocators, tried: tried.collect(), calls }))
    }
}

fn or(given: &[usize], default: Vec<usize>) -> Vec<usize> {
    if given.is_empty() { default } else { given.to_vec() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prezero_host::samples::Judged;

    fn timed(who: &str, ns: &[f64]) -> Timed {
        Timed { who: who.into(), ns: ns.into() }
    }

    /// A cell, by the times of the allocators' processes.
    fn cell(allocators: &[(&str, &[f64])]) -> Cell {
        let allocators = allocators.iter().map(|(who, ns)| timed(who, ns)).collect();
        let case = ["64K", "1"].map(String::from);
        Cell { case, allocators, tried: vec![], calls: vec![] }
    }

    fn against(cell: &Cell, what: &str) -> Option<Against> {
        let figures = cell.figures((0.97, Some(0.85)));
        let ours = figures.iter().find(|figure| figure.who == PREZERO)?;
        ours.against.iter().find(|against| against.what == what).cloned()
    }

    #[test]
    fn the_ideal_is_the_best_way_and_the_limit_one_that_spares_others_with_a_call() {
        let mut cell = cell(&[("glibc", &[400.0]), (PREZERO, &[200.0])]);
        let tried = |who, ns| (timed(who, &[ns]), false);
        cell.tried = vec![tried("stosb away", 300.0), tried("stosb home", 160.0)];
        cell.calls = vec![timed("glibc", &[50.0]), timed("tcmalloc", &[30.0])];
        let told = |cell: &Cell, what| against(cell, what).map(|it| (it.times, it.peer)).unwrap();
        assert_eq!(told(&cell, "best"), (2.0, "glibc".into()));
        assert_eq!(told(&cell, IDEAL), (0.8, "stosb home".into()));
        assert_eq!(told(&cell, LIMIT), (0.95, "stosb home".into()), "which has a call in it");
        cell.tried.push((timed("plain home", &[120.0]), true));
        assert_eq!(told(&cell, IDEAL), (0.6, "plain home".into()), "whatever it does to others");
        assert_eq!(told(&cell, LIMIT), (0.95, "stosb home".into()), "which spares them");
        assert!(against(&cell, "best").unwrap().at_limit);
        cell.calls.clear();
        assert!(against(&cell, IDEAL).is_none(), "without a pause there is a bare loop alone");
        assert!(!against(&cell, "best").unwrap().at_limit, "0.8 of it is not near");
    }

    #[test]
    fn differences_between_runs_are_noise_and_a_drift_of_all_is_none() {
        let drifts = cell(&[("glibc", &[95.0, 190.0, 285.0]), (PREZERO, &[100.0, 200.0, 300.0])]);
        let best = against(&drifts, "best").unwrap();
        assert!(best.noise.unwrap() < 1e-9 && best.judged() == Some(Judged::Beyond), "{best:?}");
        let noisy = cell(&[("glibc", &[95.0, 95.0, 120.0]), (PREZERO, &[100.0, 100.0, 100.0])]);
        let best = against(&noisy, "best").unwrap();
        assert!((best.noise.unwrap() - 0.25).abs() < 1e-9, "{best:?}");
        assert_eq!(best.judged(), Some(Judged::Unclear));
        let one = cell(&[("glibc", &[1.0]), (PREZERO, &[1.0])]);
        assert_eq!(against(&one, "best").unwrap().noise, None, "one run");
    }

    #[test]
    fn an_allocator_that_may_be_the_fastest_goes_on() {
        let ways = ["a", "b", "c", PREZERO].map(|name| Way::beside(name, "x".as_ref(), &[]));
        let times = [vec![100.0], vec![109.0], vec![200.0], vec![500.0]];
        assert_eq!(contenders(&ways, &times), [0, 1, 3]);
    }
}
