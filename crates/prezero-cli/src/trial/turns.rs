//! Turns: how many there are, and what they came to.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::once::{Better, Measured, Run, pass_on};
use super::verdict::{Asked, Seen, Times};
use super::way::{WAYS, Way};
use crate::spent::Spent;
use prezero_host::samples::{Change, median};

/// When turns end.
#[derive(Clone, Copy, Debug)]
pub enum Bound {
    /// After this number.
    Turns(usize),
    /// When it is over, or the difference is known.
    Time(Duration),
}

/// Turns that are taken whatever the time.
const FEWEST: usize = 3;
/// The turns from which on their noise may end them, and how small it must be.
const MANY: usize = 10;
const KNOWN: f64 = 0.01;
/// Noise is told with 95 % confidence. A verdict wants 99, since one trial in twenty would err otherwise, and turns may
/// end when they look well.
const SURE: f64 = 2.576 / 1.96;
/// Ranks of fewer turns than this cannot be that sure, so their noise counts twice.
const FEW: usize = 8;

/// The user pressed Ctrl-C, or the command shall end.
static STOPPED: AtomicBool = AtomicBool::new(false);

/// Whether the user pressed Ctrl-C.
pub fn interrupted() -> bool {
    STOPPED.load(Relaxed)
}

fn listen() {
    extern "C" fn stop(signal: libc::c_int) {
        STOPPED.store(true, Relaxed);
        pass_on(signal);
    }
    let handler = stop as extern "C" fn(libc::c_int) as libc::sighandler_t;
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler touches two atomics and calls what a handler may.
        unsafe { libc::signal(signal, handler) };
    }
}

/// What turns came to.
#[derive(Debug)]
pub struct Taken {
    /// The program, as it was typed.
    pub program: String,
    /// For each of [`WAYS`] as many runs.
    pub runs: [Vec<Run>; 4],
    /// What the figure is, and which is good; `None`: the time of a run.
    pub figure: Option<Better>,
    /// The share of all CPUs' time that was idle while the program ran under prezero.
    pub idle: f64,
    /// The counters of the first run under prezero.
    pub stats: Option<serde_json::Value>,
    /// Whether it is loaded and then ended.
    pub is_service: bool,
    /// The share of all CPUs' time that other programs had meanwhile.
    pub others: f64,
    /// Why there are no more turns.
    pub ended: Ended,
}

/// Why turns ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// As many were asked for.
    Counted,
    /// The difference is known well enough.
    Known,
    /// The time was over.
    Time,
    /// By a signal.
    Interrupted,
}

impl Ended {
    /// For people, behind the number of turns.
    pub fn why(self) -> &'static str {
        match self {
            Ended::Counted => "as told",
            Ended::Known => "until the difference was known",
            Ended::Time => "until the time was over",
            Ended::Interrupted => "until a signal came",
        }
    }
}

impl Taken {
    /// No run.
    pub fn nothing(program: &[OsString]) -> Taken {
        let words: Vec<_> = program.iter().map(|word| word.to_string_lossy()).collect();
        Taken {
            program: words.join(" "),
            runs: [const { vec![] }; 4],
            figure: None,
            idle: 0.0,
            stats: None,
            is_service: false,
            others: 0.0,
            ended: Ended::Counted,
        }
    }

    /// Something of each run of a way.
    pub fn of(&self, way: Way, what: impl Fn(&Run) -> f64) -> Vec<f64> {
        let nth = WAYS.iter().position(|each| *each == way).unwrap_or_default();
        self.runs[nth].iter().map(what).collect()
    }

    /// What a run is judged by, such that less is better.
    pub fn cost(&self, run: &Run) -> f64 {
        match (run.figure, self.figure) {
            (Some(figure), Some(Better::More)) => 1.0 / figure,
            (Some(figure), _) => figure,
            _ => run.load_s.unwrap_or(run.spent.wall_s),
        }
    }

    /// How many times as good one way is as another.
    pub fn times(&self, this: Way, that: Way, what: impl Fn(&Run) -> f64) -> Option<Times> {
        let change = Change::of_runs(&self.of(this, &what), &self.of(that, &what))?;
        let (times, noise) = change.times();
        let noise = noise * if self.runs[0].len() < FEW { 2.0 } else { SURE };
        times.is_finite().then_some(Times { times, noise })
    }

    fn ratio(&self, what: impl Fn(&Spent) -> f64) -> Option<f64> {
        let [this, that] =
            [Way::Prezero, Way::Plain].map(|way| median(&self.of(way, |run| what(&run.spent))));
        Some(this? / that.filter(|plain| *plain > 0.0)?)
    }

    /// What the verdict goes by.
    pub fn seen(&self) -> Seen {
        let cost = |run: &Run| self.cost(run);
        let wall = |run: &Run| run.load_s.unwrap_or(run.spent.wall_s);
        Seen {
            turns: self.runs[0].len(),
            speed: self.times(Way::Prezero, Way::Plain, cost),
            unscrubbed: self.times(Way::Unscrubbed, Way::Plain, cost),
            scrubbing: self.times(Way::Prezero, Way::Unscrubbed, cost),
            keeping: self.times(Way::Keeping, Way::Plain, cost),
            faults: self.ratio(|spent| spent.faults),
            memory: self.ratio(|spent| spent.peak_mib),
            cpu: self.ratio(Spent::cpu_s),
            idle: self.idle,
            wall_s: median(&self.of(Way::Plain, wall)).unwrap_or(0.0),
            asked: Asked::of(self.stats.as_ref()),
        }
    }

    fn is_known(&self) -> bool {
        let times = self.times(Way::Prezero, Way::Plain, |run| self.cost(run));
        self.runs[0].len() >= MANY && times.is_some_and(|times| times.noise <= KNOWN)
    }
}

/// Takes turns.
///
/// # Errors
/// A run fails, or ends otherwise than without prezero; nothing was measured.
pub fn take(measured: &Measured, program: &[OsString], bound: Bound) -> Result<Taken> {
    listen();
    let mut taken = Taken::nothing(program);
    taken.figure = measured.figure.as_ref().map(|(_, better)| *better);
    taken.is_service = measured.load.is_some();
    let mut plain_status = None;
    let (mut idle, mut all) = (0.0, 0.0);
    let (mut busy, mut whole, mut own_s) = (0.0, 0.0, 0.0);
    let began = Instant::now();
    let mut turn = 0;
    loop {
        let mut order: Vec<usize> = (0..WAYS.len()).collect();
        if turn > 0 {
            fastrand::shuffle(&mut order);
        }
        let mut fresh = [const { None::<Run> }; 4];
        for nth in order {
            let way = WAYS[nth];
            say(&format!("turn {turn}{}: {}", of(bound, began), way.name()));
            let before = cpu_times();
            let (mut run, status) = match measured.once(way, program, turn == 0) {
                _ if interrupted() => break,
                outcome => outcome.inspect_err(|_| say(""))?,
            };
            let after = cpu_times();
            let (idled, passed) = (after.0 - before.0, after.1 - before.1);
            if turn > 0 {
                (busy, whole, own_s) =
                    (busy + passed - idled, whole + passed, own_s + run.spent.cpu_s());
            }
            if way == Way::Prezero && turn > 0 {
                (idle, all) = (idle + idled, all + passed);
            }
            // A service is ended, and says what it wants.
            let plain = *plain_status.get_or_insert(status);
            if !taken.is_service && status != plain {
                say("");
                bail!("{} ends with {status}, and without prezero with {plain}", way.name());
            }
            if turn == 0 && way == Way::Prezero {
                taken.stats = run.stats.take();
            }
            fresh[nth] = Some(run);
        }
        // A turn counts as a whole.
        if fresh.iter().all(Option::is_some) && turn > 0 {
            taken.runs.iter_mut().zip(fresh).for_each(|(runs, run)| runs.extend(run));
        }
        turn += 1;
        if let Some(ended) = ended(bound, turn, began, &taken) {
            taken.ended = ended;
            break;
        }
    }
    say("");
    if taken.runs[0].is_empty() {
        bail!("interrupted before anything was measured");
    }
    taken.idle = if all > 0.0 { idle / all } else { 0.0 };
    // What loads a service is its own load.
    if whole > 0.0 && !taken.is_service {
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        taken.others = (busy - own_s * ticks).max(0.0) / whole;
    }
    Ok(taken)
}

/// Why turns end after this number, if they do.
fn ended(bound: Bound, turn: usize, began: Instant, taken: &Taken) -> Option<Ended> {
    if interrupted() {
        return Some(Ended::Interrupted);
    }
    match bound {
        Bound::Turns(turns) => (turn > turns).then_some(Ended::Counted),
        Bound::Time(_) if turn <= FEWEST => None,
        Bound::Time(_) if taken.is_known() => Some(Ended::Known),
        Bound::Time(time) => (began.elapsed() >= time).then_some(Ended::Time),
    }
}

fn of(bound: Bound, began: Instant) -> String {
    match bound {
        Bound::Turns(turns) => format!(" of {turns}"),
        Bound::Time(time) => {
            format!(", {} of {} s", began.elapsed().as_secs(), time.as_secs())
        }
    }
}

/// A line that the next one replaces, on a terminal.
fn say(line: &str) {
    if std::io::stderr().is_terminal() {
        prezero_sys::say::complain(&format!("\r\x1b[K{line}"));
    }
}

/// Idle time of all CPUs and all of their time since the machine began, in ticks.
fn cpu_times() -> (f64, f64) {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let fields = stat.lines().next().unwrap_or_default().split_whitespace().skip(1);
    // A guest's time is a part of user time.
    let fields: Vec<f64> = fields.take(8).filter_map(|field| field.parse().ok()).collect();
    let idle = fields.get(3).unwrap_or(&0.0) + fields.get(4).unwrap_or(&0.0);
    (idle, fields.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::verdict::{Outcome, Verdict};

    fn taken(walls: [&[f64]; 3]) -> Taken {
        let run = |&wall_s: &f64| Run {
            spent: Spent { wall_s, faults: 100.0 * wall_s, peak_mib: 7.0, ..Spent::default() },
            load_s: None,
            figure: None,
            stats: None,
        };
        let [plain, ours, unscrubbed] = walls.map(|walls| walls.iter().map(run).collect());
        let runs = [plain, ours, unscrubbed, walls[0].iter().map(run).collect()];
        Taken { runs, ..Taken::nothing(&["a".into(), "b c".into()]) }
    }

    #[test]
    fn ways_are_compared_in_pairs_and_higher_is_better() {
        let plain = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let taken = taken([&plain, &plain.map(|wall| wall / 2.0), &plain]);
        let seen = taken.seen();
        let speed = seen.speed.unwrap();
        assert!((speed.times - 2.0).abs() < 1e-9 && speed.noise < 1e-9, "{speed:?}");
        assert_eq!((seen.turns, seen.faults, seen.memory), (6, Some(0.5), Some(1.0)));
        assert_eq!((seen.unscrubbed.unwrap().times, seen.wall_s), (1.0, 3.5));
        assert_eq!(taken.program, "a b c");
    }

    #[test]
    fn few_turns_are_not_trusted_and_many_equals_end_the_trial() {
        let noise = |turns: usize| {
            let plain: Vec<f64> = (0..turns).map(|n| 1.0 + 0.02 * (n % 3) as f64).collect();
            taken([&plain, &vec![1.0; turns], &plain]).seen().speed.unwrap().noise
        };
        assert!(noise(FEW - 1) > 1.5 * noise(FEW));
        assert!(taken([&[1.0; 10], &[1.0; 10], &[1.0; 10]]).is_known());
        assert!(!taken([&[1.0; 9], &[1.0; 9], &[1.0; 9]]).is_known());
    }

    #[test]
    fn a_figure_counts_by_its_direction() {
        let mut taken = taken([&[1.0], &[1.0], &[1.0]]);
        taken.runs[0][0].figure = Some(4.0);
        taken.figure = Some(Better::More);
        assert_eq!(taken.cost(&taken.runs[0][0]), 0.25);
        taken.figure = Some(Better::Less);
        assert_eq!(taken.cost(&taken.runs[0][0]), 4.0);
    }

    /// Trials of a program that prezero makes `times` as fast, with turns that differ by `spread` and are disturbed now
    /// and then, up to `most` turns: those with a verdict for or against it.
    fn decided(trials: u32, times: f64, spread: f64, most: usize) -> (u32, u32) {
        let mut random = fastrand::Rng::with_seed(53);
        let (mut good, mut bad) = (0, 0);
        for _ in 0..trials {
            let mut walls = [vec![], vec![], vec![]];
            let mut sample = |mean: f64| {
                // The sum of twelve is nearly normal.
                let normal = (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
                let disturbed = if random.f64() < 0.05 { 1.3 } else { 1.0 };
                mean * (spread * normal).exp() * disturbed
            };
            let seen = loop {
                for (walls, mean) in walls.iter_mut().zip([1.0, 1.0 / times, 1.0 / times]) {
                    walls.push(sample(mean));
                }
                let taken = taken(walls.each_ref().map(Vec::as_slice));
                let turns = walls[0].len();
                if turns >= most || turns >= FEWEST && taken.is_known() {
                    break Seen {
                        idle: 0.5,
                        asked: Some(Asked { zeroed: 1 << 40, hit: 1 << 40, plain: 0 }),
                        ..taken.seen()
                    };
                }
            };
            match Verdict::of(&seen).outcome {
                Outcome::Use | Outcome::UseUnscrubbed => good += 1,
                Outcome::Slower => bad += 1,
                _ => {}
            }
        }
        (good, bad)
    }

    #[test]
    fn a_program_that_prezero_does_not_change_gets_a_wrong_verdict_in_two_of_a_hundred_at_most() {
        for spread in [0.005, 0.02, 0.1] {
            for most in [4, 6, 20] {
                let (good, bad) = decided(1000, 1.0, spread, most);
                assert!(good + bad <= 20, "{good} good, {bad} bad: {spread}, {most} turns");
            }
        }
    }

    #[test]
    fn a_tenth_is_found_within_a_minute() {
        for (spread, turns) in [(0.005, 12), (0.03, 20), (0.06, 40)] {
            let (good, bad) = decided(300, 1.1, spread, turns);
            assert!(good >= 240 && bad == 0, "{good} good, {bad} bad: {spread}, {turns} turns");
        }
    }
}
