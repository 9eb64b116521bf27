//! What turns mean: one verdict, with its reason. Reads no clock and no file.

use std::fmt::Display;

use prezero::internal::DEFAULT_THRESHOLD;
use serde_json::Value;

/// How many times as good, with what it may be off by either way.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Times {
    /// 2: twice as fast.
    pub times: f64,
    /// With more than 99 % confidence.
    pub noise: f64,
}

impl Times {
    /// Better by more than it may be off by.
    fn is_better(&self) -> bool {
        self.times - 1.0 > self.noise.max(NOTICED)
    }

    /// Worse by more than it may be off by.
    fn is_worse(&self) -> bool {
        let (more, noise) = self.more();
        more > noise && 1.0 - self.times > NOTICED
    }

    /// How much more it takes, as a share, and what that may be off by.
    fn more(&self) -> (f64, f64) {
        (1.0 / self.times - 1.0, self.noise / self.times / self.times)
    }
}

/// What the program asked of the zone in a run.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Asked {
    /// Bytes of zeroed memory.
    pub zeroed: u64,
    /// Of these, bytes that were zero already.
    pub hit: u64,
    /// Bytes as they are.
    pub plain: u64,
    /// Seconds of clears that the zeroes spared.
    pub spared_s: f64,
}

impl Asked {
    /// From the statistics of a run; `None` without any.
    pub fn of(stats: Option<&Value>) -> Option<Asked> {
        let stats = stats?;
        let counter = |name: &str| stats[name].as_u64().unwrap_or(0);
        let hit = counter("hit_bytes");
        let zeroed = hit + counter("miss_bytes") + counter("served_absent_bytes");
        let spared_s =
            hit as f64 / PAGE * 1e-9 * stats["clear_ns_per_page"].as_f64().unwrap_or(0.0);
        Some(Asked { zeroed, hit, plain: counter("plain_bytes"), spared_s })
    }
}

/// All that the verdict goes by.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Turns that count.
    pub turns: usize,
    /// prezero against plain.
    pub speed: Option<Times>,
    /// prezero without scrubbing against plain.
    pub unscrubbed: Option<Times>,
    /// prezero against prezero without scrubbing.
    pub scrubbing: Option<Times>,
    /// glibc told to keep its memory against plain.
    pub keeping: Option<Times>,
    /// prezero's page faults over those without.
    pub faults: Option<f64>,
    /// The same of peak memory.
    pub memory: Option<f64>,
    /// The same of CPU time.
    pub cpu: Option<f64>,
    /// The share of the CPUs' time that idled.
    pub idle: f64,
    /// How long a run takes without prezero.
    pub wall_s: f64,
    /// `None`: no counters came.
    pub asked: Option<Asked>,
    /// Whether the time of a run is what is compared, and no figure.
    pub by_time: bool,
}

/// What to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It gains.
    Use,
    /// It gains as much, or more, without scrubbing.
    UseUnscrubbed,
    /// It makes no difference.
    Same,
    /// It makes none, since no CPU idled.
    NoIdle,
    /// It loses.
    Slower,
    /// The runs differ too much among themselves.
    Unclear,
    /// The program cannot be preloaded.
    OutOfReach,
}

impl Outcome {
    /// In JSON.
    pub fn key(self) -> &'static str {
        match self {
            Outcome::Use => "use",
            Outcome::UseUnscrubbed => "use-without-scrubbing",
            Outcome::Same => "no-difference",
            Outcome::NoIdle => "no-idle-cpu",
            Outcome::Slower => "slower",
            Outcome::Unclear => "unclear",
            Outcome::OutOfReach => "out-of-reach",
        }
    }
}

/// The verdict.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// What to do.
    pub outcome: Outcome,
    /// In a sentence, with the reason.
    pub text: String,
}

/// Smaller differences are none that a user would notice.
const NOTICED: f64 = 0.005;
/// Noise above which nothing is said.
const TOO_NOISY: f64 = 0.05;
/// The start of prezero takes at most this time.
const START_S: f64 = 0.005;
/// More memory than that is worth a word, and than that a condition.
const MORE_MEMORY: f64 = 1.02;
const MUCH_MEMORY: f64 = 1.25;
/// More CPU time than that is worth a word, and less than that.
const MORE_CPU: f64 = 1.05;
const LESS_CPU: f64 = 0.95;
/// As many turns of two ways are worth a try, where there were too few: in minutes at least.
const ENOUGH: f64 = 18.0;
const MINUTES: f64 = 5.0;
/// Of all CPUs' time: with less no CPU idled.
const IDLED: f64 = 0.05;
/// What a fresh page takes at most, its fault and its clear: so much of a program's time may go there.
const PAGE_S: f64 = 1.5e-6;
const PAGE: f64 = 4096.0;
/// A program that spends less of its time so gains nothing that can be seen.
const SPENT: f64 = 0.02;
/// Of zeroed memory: if less was zero already, it came back too soon.
const READY: f64 = 0.2;

impl Verdict {
    /// Of a program that no library reaches.
    pub fn out_of_reach(why: &impl Display) -> Verdict {
        let text = format!("prezero cannot help it: it {why}");
        Verdict { outcome: Outcome::OutOfReach, text }
    }

    /// Of a program that ran in turns.
    pub fn of(seen: &Seen) -> Verdict {
        let mut verdict = Verdict::of_prezero(seen);
        let better = seen.keeping.filter(Times::is_better);
        if let Some(keeping) = better.filter(|_| verdict.outcome != Outcome::Unclear) {
            verdict.text += &format!("; glibc told to keep its memory is {}", faster(keeping));
        }
        verdict
    }

    fn of_prezero(seen: &Seen) -> Verdict {
        let Some(speed) = seen.speed else { return unclear("no run was measured".into()) };
        if seen.asked.is_some_and(|asked| asked.zeroed + asked.plain == 0) {
            let nothing = format!(
                "it asks for nothing that prezero serves, which is blocks of {} KiB and more",
                DEFAULT_THRESHOLD >> 10
            );
            return match speed.is_worse() {
                true => Verdict {
                    text: format!("{}; {nothing}", lost(seen, speed)),
                    outcome: Outcome::Slower,
                },
                false => Verdict { text: nothing, outcome: Outcome::Same },
            };
        }
        if speed.is_better() {
            return gained(seen, speed);
        }
        if let Some(unscrubbed) = seen.unscrubbed.filter(|of| of.is_better() && worse_than(seen)) {
            let text = format!(
                "{} without scrubbing{}, and no faster with it: use it with --scrub-start never",
                faster(unscrubbed),
                aside(seen)
            );
            return Verdict { outcome: Outcome::UseUnscrubbed, text };
        }
        if speed.is_worse() {
            return Verdict { outcome: Outcome::Slower, text: lost(seen, speed) };
        }
        let beyond = (speed.times - 1.0).abs() + speed.noise;
        if beyond > TOO_NOISY {
            return unclear(too_noisy(seen, speed, beyond));
        }
        let (outcome, why) = why_nothing(seen);
        Verdict { outcome, text: format!("no difference beyond {}: {why}", percent(beyond)) }
    }
}

fn unclear(text: String) -> Verdict {
    Verdict { outcome: Outcome::Unclear, text: format!("unclear: {text}") }
}

/// What can be said where whole runs say too little: what they came to so far, and what was counted within them.
fn too_noisy(seen: &Seen, speed: Times, beyond: f64) -> String {
    let turns = seen.turns;
    let mut text = match turns {
        1 => "1 turn cannot tell".into(),
        _ if beyond < 1.0 => {
            format!(
                "{turns} turns differ so much that less than {} would not show",
                percent(beyond)
            )
        }
        _ => format!("{turns} turns differ too much to tell"),
    };
    text += &format!("; so far {:.2}x as fast{}", speed.times, aside(seen));
    if let Some(cpu) = seen.cpu.filter(|cpu| *cpu < LESS_CPU) {
        text += &format!(", {} less CPU time", percent(1.0 - cpu));
    }
    let spared_s = seen.asked.map_or(0.0, |asked| asked.spared_s);
    if seen.by_time && spared_s > SPENT * seen.wall_s {
        text += &format!(", {spared_s:.2} s of clears spared of {:.2} s", seen.wall_s);
    }
    let minutes = (ENOUGH * seen.wall_s / 60.0).ceil().max(MINUTES);
    text + &format!("; give it longer (--for {minutes}m), with nothing else running")
}

/// How much it loses, with the cause if that has a comparison of its own that shows it.
fn lost(seen: &Seen, speed: Times) -> String {
    let (more, noise) = speed.more();
    let (lost_s, noise_s) = (seen.wall_s * more, seen.wall_s * noise);
    let starts = seen.unscrubbed.is_some_and(|of| of.is_worse()) && !worse_than(seen);
    if seen.by_time && starts && lost_s < START_S {
        return format!(
            "slower by {:.1} ms ± {:.1} a run, which is what its start takes: \
             not for a program that ends after {:.1} ms",
            1e3 * lost_s,
            1e3 * noise_s,
            1e3 * seen.wall_s
        );
    }
    let cause = if worse_than(seen) { "; scrubbing is what it loses by" } else { "" };
    format!("slower by {} ± {}{cause}: do not use it", percent(more), percent(noise))
}

/// Whether scrubbing is seen to cost the program.
fn worse_than(seen: &Seen) -> bool {
    seen.scrubbing.is_some_and(|of| of.is_worse())
}

fn gained(seen: &Seen, speed: Times) -> Verdict {
    let much = seen.memory.filter(|memory| *memory > MUCH_MEMORY);
    let use_it = if much.is_some() { "use it, if it may take that memory" } else { "use it" };
    let mut text = format!("{}{}: {use_it}", faster(speed), aside(seen));
    if worse_than(seen) {
        text += "; --scrub-start never is better still";
        return Verdict { outcome: Outcome::UseUnscrubbed, text };
    }
    Verdict { outcome: Outcome::Use, text }
}

fn faster(of: Times) -> String {
    format!("{:.2}x ± {:.2} as fast", of.times, of.noise)
}

/// What else changed: `, 44 % as many page faults, 6 % more memory`.
fn aside(seen: &Seen) -> String {
    let mut text = String::new();
    if let Some(faults) = seen.faults.filter(|faults| *faults < 0.95) {
        text += &format!(", {:.0} % as many page faults", 100.0 * faults);
    }
    if let Some(memory) = seen.memory.filter(|memory| *memory > MORE_MEMORY) {
        text += &format!(", {} more memory", percent(memory - 1.0));
    }
    if let Some(cpu) = seen.cpu.filter(|cpu| *cpu > MORE_CPU) {
        text += &format!(", {} more CPU time", percent(cpu - 1.0));
    }
    text
}

/// Why a program that could gain does not.
fn why_nothing(seen: &Seen) -> (Outcome, String) {
    let same = |why: String| (Outcome::Same, why);
    let Some(asked) = seen.asked else {
        return same("no counters came from it, so prezero may not have reached it".into());
    };
    let worth = |bytes: u64| bytes as f64 / PAGE * PAGE_S / seen.wall_s.max(1e-9);
    if asked.zeroed == 0 {
        let plain = bytes(asked.plain);
        return same(format!("it asks for no zeroed memory, only for {plain} as it is"));
    }
    if worth(asked.zeroed) < SPENT {
        return same(format!("it asks for {} of zeroed memory in all", bytes(asked.zeroed)));
    }
    if seen.idle < IDLED {
        let busy = percent(1.0 - seen.idle);
        let why = format!("no CPU idled ({busy} busy), so nothing could be cleared ahead");
        return (Outcome::NoIdle, why);
    }
    let ready = asked.hit as f64 / asked.zeroed as f64;
    if ready < READY {
        return same(format!(
            "of {} of zeroed memory {} was zero already: it asks again too soon after it frees",
            bytes(asked.zeroed),
            percent(ready)
        ));
    }
    same(format!("{} of zeroed memory are not where its time goes", bytes(asked.zeroed)))
}

/// `1.2 %`, `44 %`.
fn percent(share: f64) -> String {
    let value = 100.0 * share;
    if value.abs() < 9.95 { format!("{value:.1} %") } else { format!("{value:.0} %") }
}

fn bytes(n: u64) -> String {
    let (mib, gib) = (n as f64 / 1048576.0, n as f64 / 1073741824.0);
    if gib >= 1.0 { format!("{gib:.1} GiB") } else { format!("{mib:.1} MiB") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn times(times: f64, noise: f64) -> Option<Times> {
        Some(Times { times, noise })
    }

    /// A program that asks for much, with the first CPU in three idle, and nothing to see.
    fn level() -> Seen {
        Seen {
            turns: 10,
            speed: times(1.002, 0.01),
            unscrubbed: times(1.0, 0.01),
            scrubbing: times(1.0, 0.01),
            keeping: times(1.0, 0.01),
            faults: Some(1.0),
            memory: Some(1.0),
            cpu: Some(1.0),
            idle: 0.33,
            wall_s: 1.0,
            asked: Some(Asked { zeroed: 1000 * MIB, hit: 900 * MIB, ..Asked::default() }),
            by_time: true,
        }
    }

    fn told(seen: &Seen) -> (Outcome, String) {
        let Verdict { outcome, text } = Verdict::of(seen);
        (outcome, text)
    }

    #[test]
    fn a_gain_is_told_with_its_price() {
        let mut seen = Seen { speed: times(1.19, 0.03), ..level() };
        (seen.faults, seen.memory) = (Some(0.44), Some(1.06));
        let text = "1.19x ± 0.03 as fast, 44 % as many page faults, 6.0 % more memory: use it";
        assert_eq!(told(&seen), (Outcome::Use, text.into()));
        (seen.memory, seen.cpu) = (Some(1.8), Some(1.5));
        assert!(
            told(&seen).1.ends_with(
                "80 % more memory, 50 % more CPU time: use it, if it may take that memory"
            )
        );
        seen.scrubbing = times(0.9, 0.02);
        let (outcome, text) = told(&seen);
        assert!(outcome == Outcome::UseUnscrubbed && text.ends_with("never is better still"));
        seen.keeping = times(1.12, 0.02);
        let (_, text) = told(&seen);
        assert!(text.ends_with("; glibc told to keep its memory is 1.12x ± 0.02 as fast"));
    }

    #[test]
    fn what_gains_without_scrubbing_alone_is_told_so() {
        let seen = Seen { unscrubbed: times(1.1, 0.02), scrubbing: times(0.9, 0.02), ..level() };
        let text = "1.10x ± 0.02 as fast without scrubbing, and no faster with it: \
                    use it with --scrub-start never";
        assert_eq!(told(&seen), (Outcome::UseUnscrubbed, text.into()));
    }

    #[test]
    fn a_loss_is_told_with_its_cause() {
        let alone = Seen { speed: times(0.8, 0.016), ..level() };
        assert_eq!(told(&alone).1, "slower by 25 % ± 2.5 %: do not use it", "no cause is shown");
        let seen = Seen { scrubbing: times(0.8, 0.016), ..alone };
        let text = "slower by 25 % ± 2.5 %; scrubbing is what it loses by: do not use it";
        assert_eq!(told(&seen), (Outcome::Slower, text.into()));
        let seen = Seen { scrubbing: times(0.99, 0.02), unscrubbed: times(0.8, 0.016), ..seen };
        assert_eq!(told(&seen).1, "slower by 25 % ± 2.5 %: do not use it");
    }

    #[test]
    fn an_error_above_the_effect_is_unclear() {
        // As a share of its time the effect is the error's half, though 1 lies beyond both.
        let wild = Times { times: 0.34, noise: 0.267 };
        assert!(wild.times + wild.noise < 1.0);
        let seen = Seen { speed: Some(wild), scrubbing: Some(wild), ..level() };
        assert_eq!(told(&seen).0, Outcome::Unclear);
        for nth in 1..400 {
            let of = Times { times: 0.01 * f64::from(nth), noise: 0.25 };
            let (more, noise) = of.more();
            assert!(!of.is_better() || of.times - 1.0 > of.noise);
            assert!(!of.is_worse() || more > noise);
        }
    }

    #[test]
    fn the_start_is_told_the_same_way_whatever_the_program_asks_for() {
        let slow = times(0.375, 0.01);
        let seen = Seen { speed: slow, unscrubbed: slow, wall_s: 0.0012, ..level() };
        let text = "slower by 2.0 ms ± 0.1 a run, which is what its start takes: \
                    not for a program that ends after 1.2 ms";
        assert_eq!(told(&seen), (Outcome::Slower, text.into()));
        let asked = Some(Asked::default());
        let (outcome, nothing) = told(&Seen { asked, ..seen });
        assert_eq!(outcome, Outcome::Slower);
        assert!(nothing.starts_with(&format!("{text}; it asks for nothing")), "{nothing}");
        for other in [
            Seen { unscrubbed: times(1.0, 0.01), ..seen },
            Seen { scrubbing: times(0.5, 0.01), ..seen },
            Seen { by_time: false, ..seen },
        ] {
            assert!(!told(&other).1.contains("its start"), "{}", told(&other).1);
        }
    }

    #[test]
    fn noise_is_no_verdict_and_says_what_was_seen() {
        let seen = Seen { speed: times(1.05, 0.08), ..level() };
        let (outcome, text) = told(&seen);
        assert_eq!(outcome, Outcome::Unclear);
        assert!(text.starts_with("unclear: 10 turns differ so much that less than 13 %"), "{text}");
        let wild = Seen { speed: times(2.0, 4.0), ..level() };
        let text = told(&wild).1;
        assert!(text.starts_with("unclear: 10 turns differ too much to tell; so far 2.00x"));
        assert!(text.ends_with("; give it longer (--for 5m), with nothing else running"), "{text}");
        let asked = Some(Asked { spared_s: 1.9, zeroed: 1 << 32, ..Asked::default() });
        let seen = Seen { speed: times(1.1, f64::INFINITY), turns: 1, asked, ..level() };
        let seen = Seen { cpu: Some(0.88), faults: Some(0.44), wall_s: 20.1, ..seen };
        let text = "unclear: 1 turn cannot tell; so far 1.10x as fast, 44 % as many page faults, 12 % \
                    less CPU time, 1.90 s of clears spared of 20.10 s; give it longer (--for 7m), \
                    with nothing else running";
        assert_eq!(told(&seen), (Outcome::Unclear, text.into()));
    }

    #[test]
    fn where_there_is_nothing_it_says_why() {
        let with = |zeroed, hit, plain, idle| {
            let asked = Some(Asked {
                zeroed: zeroed * MIB,
                hit: hit * MIB,
                plain: plain * MIB,
                ..Asked::default()
            });
            told(&Seen { asked, idle, ..level() })
        };
        let nothing = |why: &str| (Outcome::Same, format!("no difference beyond 1.2 %: {why}"));
        let asks_nothing = (
            Outcome::Same,
            "it asks for nothing that prezero serves, which is blocks of 128 KiB and more".into(),
        );
        assert_eq!(with(0, 0, 0, 0.5), asks_nothing);
        let threshold = format!("no block of {} KiB or more", DEFAULT_THRESHOLD >> 10);
        assert!(include_str!("../../man/try.inc").contains(&threshold));
        let asked = Some(Asked::default());
        assert_eq!(
            told(&Seen { asked, speed: times(2.3, 0.0), turns: 1, ..level() }),
            asks_nothing
        );
        let plain = nothing("it asks for no zeroed memory, only for 2.0 GiB as it is");
        assert_eq!(with(0, 0, 2048, 0.5), plain);
        assert_eq!(with(3, 1, 9, 0.5), nothing("it asks for 3.0 MiB of zeroed memory in all"));
        let (outcome, text) = with(1000, 10, 0, 0.03);
        assert_eq!(outcome, Outcome::NoIdle);
        assert!(text.ends_with("no CPU idled (97 % busy), so nothing could be cleared ahead"));
        let (outcome, text) = with(1000, 10, 0, 0.5);
        assert_eq!(outcome, Outcome::Same);
        assert!(text.contains("1.0 % was zero already: it asks again too soon"), "{text}");
        assert!(with(1000, 900, 0, 0.5).1.ends_with("are not where its time goes"));
        assert!(told(&Seen { asked: None, ..level() }).1.contains("no counters came"));
    }

    #[test]
    fn counters_are_read_from_the_statistics() {
        let stats = serde_json::json!({"hit_bytes": 1, "miss_bytes": 2, "served_absent_bytes": 4,
            "plain_bytes": 8, "clear_ns_per_page": 4096e9});
        let asked = Asked { zeroed: 7, hit: 1, plain: 8, spared_s: 1.0 };
        assert_eq!(Asked::of(Some(&stats)), Some(asked));
        assert_eq!(Asked::of(None), None);
    }
}
