//! `prezero bench grid`: allocate zeroed, touch L lines of each page, free.
//!
//! Each size has one long-lived worker for each allocator. For each cell they take turns:
//! a burst of a few samples each, the order rotated, until every one has as many as
//! asked for. A drift (of frequency, of neighbours on the host) so falls on all alike. Each burst
//! opens with samples that are not counted, because its worker has just sat through all other
//! workers' turns, longer than any pause that the cell is about: state that a long rest leaves
//! (scrubbed stock, purged pages) is used up first. A short cell is measured in several passes,
//! each with workers of its own: samples of one moment and one layout of memory say little, and the
//! fastest of five medians would be the luckiest. Without pauses even a long cell has three: all
//! clear in line there, and physical memory is most of the difference. Then all, or without pauses
//! prezero and the peers that may be the fastest, go on, a pass at a time, until each cell's ratio
//! is known or time is up. With a busy loop on every CPU a sample lasts for several of the
//! scheduler's time slices: a shorter one falls into a slice of its own or waits for the end of
//! another's, by chance.
//!
//! Where there is a pause, the ways of the [ideal] take their turns among the allocators; and because no
//! allocator costs nothing, each peer's bare malloc and free is timed after the same pause:
//! the ideal and the fastest of those are together the limit of what an allocator can do. Without one the limit is a
//! bare loop, which clears and touches a block of its own.

mod cell;
mod ideal;
mod turn;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use cell::{Cell, Timed, Wanted};
use ideal::{Ideal, Way, Ways};
use prezero::Size;
use turn::{BURST, Turn};

use crate::cost::{self, Cost};
use crate::figure::{Across, Case, Kind, Report, Sheet};
use crate::parse::{up_to, whole_pages};
use crate::peers::{Allocator, Field, PREZERO};
use crate::progress::{self, interrupted, step};
use crate::scratch::Scratch;
use crate::turns::in_turns;
use crate::worker::{Burst, LINES, Touch, Worker};

/// Samples in each cell, at least.
const MIN_RUNS: usize = 15;
/// With pauses a size has so many passes, or what fits into this time.
const PASS: Duration = Duration::from_secs(8);
const PASSES: usize = 5;
/// Without a pause it has so many in any case, with a third of the samples in each.
const LEAST_PASSES: usize = 3;
/// Then it goes on until its cells' ratios are known to so much. After a pause caches and clocks are as
/// the host left them, and a round of a microsecond takes half or twice that.
const KNOWN: f64 = 0.02;
const KNOWN_IDLE: f64 = 0.05;
/// How long a sample without a pause lasts at least: the clock costs 0.02 us a reading. And eight slices of 3 ms.
const SAMPLE_NS: f64 = 200_000.0;
const BUSY_SAMPLE_NS: f64 = 24_000_000.0;
/// Uncounted samples of each allocator before a cell's first burst.
const WARM_UP: usize = 4;
/// The pause of idle mode, at least.
const PAUSE_NS: u64 = 3_000_000;
/// In idle mode the pause lets a scrubber of this rate clear the block: bytes per ns.
const SCRUB_RATE: u64 = 8;
/// Memory that is faulted in and given back before anything is measured, at least.
const WARM_BYTES: usize = 1 << 30;

/// Of the ratios to the best peer with pauses.
const MEAN_WANTED: f64 = 4.5;
/// Of pictures.
const LINES_OF_A_PAGE: &str = "cache lines touched of each page";
/// What stands in for the ideal where there is no pause to scrub in.
const BARE: &str = "bare loop";

/// The command line of `prezero bench grid`.
#[derive(clap::Args)]
#[command(
    after_help = "Example: prezero bench grid --idle on --sizes 1M,16M --peers glibc,tcmalloc"
)]
pub struct Grid {
    /// Only 64K, 1M and 16M with 1 and 64 lines (unless --sizes, --lines say otherwise)
    #[arg(long)]
    quick: bool,
    /// Samples in each cell, 15 or more
    #[arg(long, value_name = "N", default_value_t = MIN_RUNS)]
    runs: usize,
    /// Block sizes, whole pages
    #[arg(long, value_delimiter = ',', value_name = "SIZE,...", value_parser = whole_pages)]
    sizes: Vec<usize>,
    /// Cache lines touched in each page, 1 to 64
    #[arg(long, value_delimiter = ',', value_name = "L,...", value_parser = up_to::<LINES>)]
    lines: Vec<usize>,
    /// Seconds more for a size whose ratios are not known yet
    #[arg(long, value_name = "S", default_value_t = 60)]
    passes_s: u64,
    /// The first line touched in each page, 0 to 63; with L lines the remainder of it by 64 / L
    #[arg(long, value_name = "LINE", default_value_t = 0)]
    at: usize,
    /// Between rounds: a pause (on), none (off), none and every CPU busy, or all three
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

/// What happens between the rounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    /// A pause.
    Idle,
    /// Nothing.
    BackToBack,
    /// Nothing, and another process keeps each CPU busy.
    Busy,
}

impl Case for Grid {
    fn measure(&self) -> Result<Report> {
        ensure!(self.runs >= MIN_RUNS, "--runs {}: too few; give {MIN_RUNS} or more", self.runs);
        ensure!(
            self.at < LINES,
            "--at {}: a page has {LINES} lines; give 0 to {}",
            self.at,
            LINES - 1
        );
        let mut report = Report::here("grid", Field::find(&self.peers)?);
        report.notes.push(format!(
            "a round: calloc, touch so many lines of each page{}, free; medians of {} or more samples, interleaved;\n\
             limit: touching memory that was scrubbed in the pause, in a way that leaves others their cache, and the \
             fastest peer's bare malloc and free;\nideal: the same by the best way and without a call; without a pause \
             limit is memset and touch of one block;\n±: what x may be off by, 95 %, by the medians of passes with \
             processes of their own",
            if self.at == 0 { String::new() } else { format!(" (of one, line {})", self.at) },
            self.runs
        ));
        let touch = Touch::unpack()?;
        let sizes = self.sizes();
        let largest = sizes.iter().copied().max().unwrap_or(0);
        touch.warm((4 * largest).max(WARM_BYTES))?;
        progress::expect(self.modes().len() * sizes.len() * self.lines().len());
        for mode in self.modes() {
            if interrupted() {
                break;
            }
            let _busy = if mode == Mode::Busy { Some(touch.occupy_all_cpus()?) } else { None };
            let ways = if mode == Mode::Idle { Some(Ways::here()?) } else { None };
            let mut costs: Vec<_> = report.field.allocators.iter().map(Cost::of).collect();
            let mut sheet = mode.sheet();
            let stage = Stage { field: &report.field, mode, ways: ways.as_ref() };
            for &bytes in &sizes {
                if interrupted() {
                    break;
                }
                for cell in self.size(&touch, &stage, bytes, &mut costs)? {
                    sheet.extend(cell.figures(mode.wanted()));
                }
            }
            let costs = cost::sheet(&format!("Costs of the grid, {}", mode.name()), &costs);
            report.sheets.extend([sheet, costs]);
        }
        Ok(report)
    }
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
            })
            .plot(
                Kind::Heat("best".into()),
                [LINES_OF_A_PAGE, ""],
                "Blocks by size and lines touched: the fastest peer's time over prezero's, blue where prezero is faster, red where it is slower.",
            )
            .plot(
                Kind::Curves("best".into()),
                [LINES_OF_A_PAGE, "speed-up over the best peer"],
                "Lameter's curve: the more of a page is touched at once, the less there is to gain.",
            );
        sheet.wanted_mean = (self == Mode::Idle).then(|| ("best".into(), MEAN_WANTED));
        sheet
    }

    /// What its cells are to reach.
    fn wanted(self) -> Wanted {
        match self {
            Mode::Idle => Wanted { best: 1.1, ideal: Some(0.85) },
            Mode::BackToBack | Mode::Busy => Wanted { best: 0.97, ideal: None },
        }
    }

    /// To how much a cell's ratio is known that needs no further pass.
    fn known(self) -> f64 {
        match self {
            Mode::Idle => KNOWN_IDLE,
            Mode::BackToBack | Mode::Busy => KNOWN,
        }
    }
}

impl Grid {
    /// All cells of one size.
    fn size(
        &self,
        touch: &Touch,
        stage: &Stage<'_>,
        bytes: usize,
        costs: &mut [Cost],
    ) -> Result<Vec<Cell>> {
        let began = Instant::now();
        let mut who: Vec<_> = stage.field.allocators.iter().collect();
        let mut cells = self.pass(touch, stage, &who, bytes, costs, true)?;
        let mut again = |who: &[&Allocator], cells: &mut [Cell]| -> Result<()> {
            let again = self.pass(touch, stage, who, bytes, costs, false)?;
            cells.iter_mut().zip(again).for_each(|(cell, again)| cell.add(again));
            Ok(())
        };
        for done in 1.. {
            let all_have_run = match stage.mode {
                Mode::Idle => done >= PASSES || began.elapsed() > PASS,
                Mode::BackToBack | Mode::Busy => done >= LEAST_PASSES,
            };
            if all_have_run || interrupted() {
                break;
            }
            again(&who, &mut cells)?;
        }
        // With pauses all stay: a process's turn comes as often in each pass, and lasts as long. Where
        // scrubbing costs more than it spares, a size closes after some ms of CPU time (`cost.rs`).
        if stage.mode != Mode::Idle {
            let contenders = Cell::contenders(&cells);
            who.retain(|allocator| contenders.contains(&allocator.name));
        }
        let (began, time) = (Instant::now(), Duration::from_secs(self.passes_s));
        let known = |cell: &Cell| cell.is_known(stage.mode.known());
        while began.elapsed() < time && !cells.iter().all(known) && !interrupted() {
            again(&who, &mut cells)?;
        }
        Ok(cells)
    }

    /// Each cell of one size once, by workers of its own.
    fn pass(
        &self,
        touch: &Touch,
        stage: &Stage<'_>,
        who: &[&Allocator],
        bytes: usize,
        costs: &mut [Cost],
        first: bool,
    ) -> Result<Vec<Cell>> {
        let folder = Scratch::new()?;
        let start = |allocator: &Allocator| {
            Worker::start(touch.program(), allocator, folder.file(&allocator.name))
        };
        let mut workers = who.iter().map(|one| start(one)).collect::<Result<Vec<_>>>()?;
        let calls = match stage.mode {
            Mode::Idle => self.calls(&mut workers, who, bytes)?,
            Mode::BackToBack | Mode::Busy => vec![],
        };
        let mut bare = match stage.mode {
            Mode::Idle => None,
            Mode::BackToBack | Mode::Busy => Some(start(&Allocator::plain())?),
        };
        let ideal = stage.ways.map(|ways| Ideal::new(bytes, ways)).transpose()?;
        let mut cells = vec![];
        for lines in self.lines() {
            if first {
                if step(&format!("{:?}: {} x {lines}", stage.mode, Size(bytes))).is_err() {
                    break;
                }
            } else if interrupted() {
                break;
            }
            let others = (ideal.as_ref(), bare.as_mut());
            let cell = self.cell((&mut workers, who), others, stage, bytes, lines)?;
            cells.push(Cell { calls: calls.clone(), ..cell });
        }
        for (worker, allocator) in workers.into_iter().zip(who) {
            let cost = costs.iter_mut().find(|cost| cost.allocator == allocator.name);
            cost.context("a cost for each allocator")?.add(worker)?;
        }
        Ok(cells)
    }

    /// The peers' malloc and free of `bytes` after a pause, in which nothing is cleared or touched.
    fn calls(
        &self,
        workers: &mut [Worker],
        who: &[&Allocator],
        bytes: usize,
    ) -> Result<Vec<Timed>> {
        let bare = Burst { bytes, lines: 0, at: 0, samples: WARM_UP, rounds: 1, idle_ns: PAUSE_NS };
        let names = who.iter().map(|allocator| allocator.name.as_str());
        let mut peers: Vec<_> =
            workers.iter_mut().zip(names).filter(|(_, name)| *name != PREZERO).collect();
        let mut turns: Vec<_> = peers.iter().map(|_| Turn::new(bare, &[], SAMPLE_NS)).collect();
        for (_, next) in in_turns(self.runs.div_ceil(BURST), peers.len()) {
            turns[next].take(|each| peers[next].0.run(each))?;
        }
        let calls = peers.iter().zip(turns);
        Ok(calls.filter_map(|((_, name), turn)| turn.timed(name)).collect())
    }

    fn cell(
        &self,
        (workers, who): (&mut [Worker], &[&Allocator]),
        (ideal, mut bare): (Option<&Ideal<'_>>, Option<&mut Worker>),
        stage: &Stage<'_>,
        bytes: usize,
        lines: usize,
    ) -> Result<Cell> {
        let pause_ns = match stage.mode {
            Mode::Idle => PAUSE_NS.max(bytes as u64 / SCRUB_RATE),
            Mode::BackToBack | Mode::Busy => 0,
        };
        let sample_ns = if stage.mode == Mode::Busy { BUSY_SAMPLE_NS } else { SAMPLE_NS };
        let at = self.at % (LINES / lines);
        let single = Burst { bytes, lines, at, samples: WARM_UP, rounds: 1, idle_ns: pause_ns };
        let mut turns = vec![];
        for worker in workers.iter_mut() {
            worker.check(bytes)?;
            turns.push(Turn::new(single, &worker.run(single)?, sample_ns));
        }
        for (worker, turn) in workers.iter_mut().zip(&mut turns) {
            // Again with the rounds of the real thing: the first pass was short and cold.
            if turn.burst.rounds > 1 {
                *turn = Turn::new(turn.burst, &worker.run(turn.burst)?, sample_ns);
            }
        }
        let ways = ideal.map_or(&[][..], |ideal| ideal.ways());
        let mut tries: Vec<_> = ways.iter().map(|_| Turn::new(single, &[], sample_ns)).collect();
        if let Some(bare) = &mut bare {
            let short = Turn::new(single, &bare.bare(single)?, sample_ns).burst;
            tries.push(Turn::new(short, &bare.bare(short)?, sample_ns));
        }
        let players = workers.len() + tries.len();
        let passes = if pause_ns > 0 { 1 } else { LEAST_PASSES };
        for (burst, next) in in_turns(self.runs.div_ceil(BURST * passes), players) {
            match (next.checked_sub(workers.len()), ideal, &mut bare) {
                (Some(way), Some(ideal), _) => {
                    tries[way].take(|each| ideal.run(ways[way], each, burst))?;
                }
                (Some(place), None, Some(bare)) => tries[place].take(|each| bare.bare(each))?,
                _ => turns[next].take(|each| workers[next].run(each))?,
            }
        }
        let results = turns.into_iter().zip(who).filter_map(|(turn, one)| turn.timed(&one.name));
        let names = ways.iter().map(Way::to_string).chain(bare.map(|_| BARE.to_string()));
        let crowds = |nth| ideal.is_some_and(|ideal: &Ideal<'_>| ideal.crowds(nth, bytes));
        let tried = names.zip(tries).enumerate().filter_map(|(nth, (way, turn))| {
            Some(Timed { crowds: crowds(nth), ..turn.timed(&way)? })
        });
        let (results, ideal) = (results.collect(), tried.collect());
        Ok(Cell { bytes, lines, results, ideal, calls: vec![] })
    }

    fn sizes(&self) -> Vec<usize> {
        let shifts: &[u32] = if self.quick { &[16, 20, 24] } else { &[16, 18, 20, 22, 24, 26, 28] };
        given_or(&self.sizes, || shifts.iter().map(|shift| 1 << shift).collect())
    }

    fn lines(&self) -> Vec<usize> {
        given_or(&self.lines, || if self.quick { vec![1, 64] } else { vec![1, 4, 16, 64] })
    }

    fn modes(&self) -> Vec<Mode> {
        match self.idle {
            Idle::On => vec![Mode::Idle],
            Idle::Off => vec![Mode::BackToBack],
            Idle::Busy => vec![Mode::Busy],
            Idle::All => vec![Mode::Idle, Mode::BackToBack, Mode::Busy],
        }
    }
}

fn given_or(given: &[usize], default: impl Fn() -> Vec<usize>) -> Vec<usize> {
    if given.is_empty() { default() } else { given.to_vec() }
}

/// What all cells of a mode have in common.
struct Stage<'a> {
    field: &'a Field,
    mode: Mode,
    /// Where there is a pause.
    ways: Option<&'a Ways>,
}
