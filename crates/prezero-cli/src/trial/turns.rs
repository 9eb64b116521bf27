//! Turns: how many there are, and what they came to.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use super::once::{Better, Measured, Run, pass_on};
use super::plan::{Bound, Ended, FEW, Plan};
use super::verdict::{Asked, Seen, Times};
use super::way::{WAYS, Way};
use prezero_command::outcome::Interrupted;
use prezero_command::spent::{Spent, cpu_times};
use prezero_host::samples::{Change, median};

/// The turns from which on their noise may end them, and how small it must be.
const MANY: usize = 10;
const KNOWN: f64 = 0.01;
/// Noise is told with 95 % confidence. A verdict errs once in a hundred trials at most: it wants more than 99, since turns
/// may end when they look well, and more than one comparison is looked at.
const SURE: f64 = 2.807 / 1.96;
/// Ranks of fewer turns than [`FEW`] cannot be that sure. Of two turns and more, how many standard errors they may be off
/// by with that confidence (Student 1908).
const STUDENT: [f64; FEW - 2] = [127.3, 14.09, 7.453, 5.598, 4.773, 4.317];

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
    /// Of a program that ends otherwise than in success: how, and its last words.
    pub said: Option<String>,
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
            said: None,
        }
    }

    /// Something of each run of a way.
    pub fn of(&self, way: Way, what: impl Fn(&Run) -> f64) -> Vec<f64> {
        self.runs[way as usize].iter().map(what).collect()
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
        let (these, those) = (self.of(this, &what), self.of(that, &what));
        let (times, noise) = Change::of_runs(&these, &those)?.times();
        let noise = if these.len() < FEW { times * of_few(&these, &those) } else { SURE * noise };
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
            by_time: self.figure.is_none(),
        }
    }

    /// Whether more turns would tell nothing more.
    pub fn is_known(&self) -> bool {
        let times = self.times(Way::Prezero, Way::Plain, |run| self.cost(run));
        self.runs[0].len() >= MANY && times.is_some_and(|times| times.noise <= KNOWN)
    }
}

/// What the ratio of few pairs may be off by, as a share of it: how far their logarithms lie apart. Of one pair, anything.
fn of_few(these: &[f64], those: &[f64]) -> f64 {
    // The C library of mathematics is one file more for each start of the command.
    let logs: Vec<_> = these.iter().zip(those).map(|(this, that)| libm::log(this / that)).collect();
    let Some(student) = logs.len().checked_sub(2).map(|nth| STUDENT[nth]) else {
        return f64::INFINITY;
    };
    let n = logs.len() as f64;
    let mean = logs.iter().sum::<f64>() / n;
    let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (n - 1.0);
    let noise = libm::expm1(student * (variance / n).sqrt());
    // More than all of it says nothing.
    if noise < 1.0 { noise } else { f64::INFINITY }
}

/// Ticks of all CPUs while runs went on.
#[derive(Default)]
struct Ticks {
    all: f64,
    idle: f64,
    all_ours: f64,
    idle_ours: f64,
    own_s: f64,
}

/// Takes turns. `status`: how the program ends when it does its work.
///
/// # Errors
/// A run fails, or ends otherwise than without prezero; nothing was measured.
pub fn take(measured: &Measured, program: &[OsString], status: u8, bound: Bound) -> Result<Taken> {
    listen();
    let mut taken = Taken::nothing(program);
    taken.figure = measured.figure.as_ref().map(|(_, better)| *better);
    taken.is_service = measured.load.is_some();
    let mut ticks = Ticks::default();
    let began = Instant::now();
    say("first run: plain");
    let (run, end) = measured.once(Way::Plain, program, false).inspect_err(|_| say(""))?;
    say("");
    let plain = end.status;
    if !taken.is_service && !interrupted() {
        if plain.code() != Some(status.into()) {
            bail!(
                "{}: {plain}; {}; give --status {} if that is how it ends",
                taken.program,
                end.said,
                plain.code().unwrap_or(0)
            );
        }
        taken.said = (status != 0).then(|| format!("{plain}; {}", end.said));
    }
    let plan = Plan::of(bound, run.spent.wall_s);
    if !interrupted() {
        prezero_sys::tell!("prezero: try: {}", plan.says());
    }
    // The first run was the first of a turn that does not count.
    let mut order = WAYS[1..].to_vec();
    let mut counts = false;
    loop {
        let mut fresh = [const { None::<Run> }; 4];
        for &way in if counts || plan.warms() { order.as_slice() } else { &[] } {
            say(&format!(
                "turn {}, {} s: {}",
                taken.runs[0].len() + 1,
                began.elapsed().as_secs(),
                way.name()
            ));
            let before = cpu_times();
            let wants = way == Way::Prezero && taken.stats.is_none();
            let (mut run, end) = match measured.once(way, program, wants) {
                _ if interrupted() => break,
                outcome => outcome.inspect_err(|_| say(""))?,
            };
            if counts {
                ticks.add(before, cpu_times(), way, &run);
            }
            // A service is ended, and says what it wants.
            if !taken.is_service && end.status != plain {
                say("");
                let where_not = if way == Way::Plain { "before" } else { "without prezero" };
                bail!(
                    "{} ends with {}, and {where_not} with {plain}; {}",
                    way.name(),
                    end.status,
                    end.said
                );
            }
            taken.stats = taken.stats.or(run.stats.take());
            fresh[way as usize] = Some(run);
        }
        // A turn counts as a whole.
        if counts && plan.ways().iter().all(|way| fresh[*way as usize].is_some()) {
            taken.runs.iter_mut().zip(fresh).for_each(|(runs, run)| runs.extend(run));
        }
        let over = if interrupted() {
            Some(Ended::Interrupted)
        } else {
            plan.ended(&taken, began.elapsed())
        };
        if let Some(ended) = over {
            taken.ended = ended;
            break;
        }
        counts = true;
        order = plan.ways().to_vec();
        fastrand::shuffle(&mut order);
    }
    say("");
    if taken.runs[0].is_empty() {
        return Err(Interrupted).context("before anything was measured");
    }
    ticks.tell(&mut taken);
    Ok(taken)
}

impl Ticks {
    fn add(&mut self, before: (f64, f64), after: (f64, f64), way: Way, run: &Run) {
        let (idle, all) = (after.0 - before.0, after.1 - before.1);
        (self.all, self.idle) = (self.all + all, self.idle + idle);
        self.own_s += run.spent.cpu_s();
        if way == Way::Prezero {
            (self.all_ours, self.idle_ours) = (self.all_ours + all, self.idle_ours + idle);
        }
    }

    fn tell(&self, taken: &mut Taken) {
        let share = |part: f64, of: f64| if of > 0.0 { part.max(0.0) / of } else { 0.0 };
        taken.idle = share(self.idle_ours, self.all_ours);
        // What loads a service is its own load.
        if !taken.is_service {
            let own = self.own_s * rustix::param::clock_ticks_per_second() as f64;
            taken.others = share(self.all - self.idle - own, self.all);
        }
    }
}

/// A line that the next one replaces, on a terminal.
fn say(line: &str) {
    if std::io::stderr().is_terminal() {
        prezero_sys::say::complain(&format!("\r\x1b[K{line}"));
    }
}

/// A run that took this, for tests.
#[cfg(test)]
pub fn run(wall_s: f64) -> Run {
    let spent = Spent { wall_s, faults: 100.0 * wall_s, peak_mib: 7.0, ..Spent::default() };
    Run { spent, load_s: None, figure: None, stats: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::verdict::{Outcome, Verdict};
    use std::time::Duration;

    fn taken(walls: [&[f64]; 3]) -> Taken {
        let [plain, ours, unscrubbed] = walls.map(|walls| walls.iter().copied().map(run).collect());
        let runs = [plain, ours, unscrubbed, walls[0].iter().copied().map(run).collect()];
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
        assert!(noise(1) == f64::INFINITY && noise(2) > 5.0 * noise(3));
        assert!((3..FEW - 1).all(|turns| noise(turns) > noise(turns + 1)), "of few");
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

    /// Verdicts of trials for and against prezero.
    #[derive(Debug, Default)]
    struct Decided {
        good: usize,
        bad: usize,
        turns: usize,
    }

    /// Trials in made-up time, of a minute each, of a program that runs for `wall_s` and that prezero makes `times` as
    /// fast. Its runs differ by `spread` and are disturbed now and then.
    fn decided(trials: usize, wall_s: f64, times: f64, spread: f64) -> Decided {
        let mut random = fastrand::Rng::with_seed(53);
        let mut decided = Decided::default();
        for _ in 0..trials {
            let mut passed_s = 0.0;
            let mut sample = |way: Way, passed_s: &mut f64| {
                let mean = match way {
                    Way::Prezero | Way::Unscrubbed => wall_s / times,
                    _ => wall_s,
                };
                // The sum of twelve is nearly normal.
                let normal = (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
                let disturbed = if random.f64() < 0.05 { 1.3 } else { 1.0 };
                let wall_s = mean * (spread * normal).exp() * disturbed;
                *passed_s += wall_s;
                run(wall_s)
            };
            let mut taken = Taken::nothing(&[]);
            let first_s = sample(Way::Plain, &mut passed_s).spent.wall_s;
            let plan = Plan::of(Bound::Time(Duration::from_secs(60)), first_s);
            if plan.warms() {
                WAYS[1..].iter().for_each(|&way| drop(sample(way, &mut passed_s)));
            }
            while plan.ended(&taken, Duration::from_secs_f64(passed_s)).is_none() {
                for &way in plan.ways() {
                    taken.runs[way as usize].push(sample(way, &mut passed_s));
                }
            }
            let asked = Asked { zeroed: 1 << 40, hit: 1 << 40, ..Asked::default() };
            let seen = Seen { idle: 0.5, asked: Some(asked), ..taken.seen() };
            let verdict = Verdict::of(&seen);
            assert!(!verdict.text.is_empty() && seen.turns > 0);
            decided.turns += seen.turns;
            match verdict.outcome {
                Outcome::Use | Outcome::UseUnscrubbed => decided.good += 1,
                Outcome::Slower => decided.bad += 1,
                _ => {}
            }
        }
        decided
    }

    #[test]
    fn of_a_hundred_trials_of_nothing_one_at_most_is_wrong() {
        println!("effect  run, s  spread  turns  wrong of 1,000");
        for wall_s in [0.5, 1.6, 2.5, 5.0, 10.0, 20.0] {
            for spread in [0.003, 0.02, 0.1, 0.3] {
                let of = decided(1000, wall_s, 1.0, spread);
                let (wrong, turns) = (of.good + of.bad, of.turns / 1000);
                println!("{:6} {wall_s:7} {spread:7} {turns:6} {wrong:6}", 1.0);
                assert!(wrong <= 10, "{of:?} of runs of {wall_s} s that differ by {spread}");
            }
        }
    }

    #[test]
    fn a_tenth_is_found_within_a_minute_and_never_taken_for_a_loss() {
        println!("run, s  spread  turns  found of 300");
        for (wall_s, spread, least) in [
            (0.3, 0.06, 240),
            (0.6, 0.03, 240),
            (1.0, 0.005, 200),
            (5.0, 0.005, 180),
            (20.0, 0.005, 0),
        ] {
            let of = decided(300, wall_s, 1.1, spread);
            println!("{wall_s:6} {spread:7} {:6} {:6}", of.turns / 300, of.good);
            assert!(of.good >= least && of.bad <= 1, "{of:?} of {wall_s} s, {spread}");
        }
    }
}
