//! The patterns of `prezero bench waste`, what each has to reach, and whether it did.
//!
//! Everything here is arithmetic on bursts that a worker has told of. **Made** is what
//! scrubd cleared. **Waste** is what of it no ZERO request used: given to
//! plain requests, given back to the kernel unused, or lying there at the end.

use crate::figure::{Better, Figure};
use crate::peers::PREZERO;

/// One pattern, and how long it is played.
#[derive(Clone, Copy, Debug)]
pub struct Pattern {
    /// As `bench/waste.c` knows it.
    pub name: &'static str,
    /// What it does, for people.
    pub about: &'static str,
    /// Milliseconds under prezero.
    pub ms: u64,
    /// Milliseconds under each of the others, which have nothing to learn.
    pub peer_ms: u64,
    /// Faulted in and given back before each process: a kernel tells its hypervisor of pages
    /// that were free for two seconds, and the next touch of them waits for the host (512 MiB took
    /// 1 s instead of 80 ms).
    pub warm_mib: usize,
    /// What is asked of prezero.
    pub target: Target,
}

/// What is asked of a pattern.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    /// Made, of the bytes freed, at most.
    MadeOfFreed(f64),
    /// Waste, of the bytes made, at most.
    WasteOfMade(f64),
    /// Given to plain requests, of the bytes made, at most.
    PlainOfMade(f64),
    /// Hits, of the bytes asked for as zero from the fourth burst on, at least.
    HitsFromFourth(f64),
    /// Made, of the bytes freed, at most, from a second after this phase began and as long as
    /// it lasts; or waste of the bytes made, at most, all the time.
    StepsAside { phase: Option<&'static str>, share: f64, waste: f64 },
}

/// All of them, in the order of the tables.
pub const PATTERNS: [Pattern; 11] = [
    pattern(
        "never",
        [2000, 500, 256],
        Target::MadeOfFreed(0.01),
        "6 plain blocks of 64K to 32M, filled; 3 ms pause",
    ),
    pattern(
        "steady",
        [1500, 400, 128],
        Target::WasteOfMade(0.05),
        "calloc 4M, a line of each page; 3 ms pause",
    ),
    pattern(
        "steady-mixed",
        [1500, 400, 128],
        Target::WasteOfMade(0.05),
        "calloc 256K to 16M in turn, a line of each page; 3 ms pause",
    ),
    pattern(
        "bursty-1m",
        [2000, 1000, 128],
        Target::HitsFromFourth(0.95),
        "64 x calloc 1M, filled, live together, every 100 ms",
    ),
    pattern(
        "bursty-4m",
        [2000, 1000, 128],
        Target::HitsFromFourth(0.95),
        "16 x calloc 4M, filled, live together, every 100 ms",
    ),
    pattern(
        "bursty-64m",
        [2000, 1000, 128],
        Target::HitsFromFourth(0.95),
        "calloc 64M, filled, every 100 ms",
    ),
    pattern(
        "once",
        [8000, 300, 1024],
        ASIDE_WHEN_PLAIN,
        "64 x calloc 8M once; then plain 1M every 10 ms",
    ),
    pattern(
        "phases",
        [4500, 1350, 128],
        ASIDE_WHEN_PLAIN,
        "calloc 4M; then 16 x 64K; then plain of both; then 4M again; all filled; 3 ms pause",
    ),
    pattern(
        "mixed",
        [1500, 600, 128],
        Target::PlainOfMade(0.05),
        "a = zeros(32M), two plain 32M filled (b = a + a); 3 ms pause",
    ),
    pattern(
        "hostile",
        [2000, 500, 128],
        ASIDE,
        "calloc 64K to 8M, no size twice; kept, grown, or wanted back as plain; 1 ms pause",
    ),
    pattern(
        "adverse",
        [2000, 500, 128],
        ASIDE,
        "calloc 8M, then plain 8M + 1M; calloc 1M, then plain 1M + 8M; 3 ms pauses",
    ),
];

const fn pattern(
    name: &'static str,
    [ms, peer_ms, warm_mib]: [u64; 3],
    target: Target,
    about: &'static str,
) -> Pattern {
    Pattern { name, about, ms, peer_ms, warm_mib: warm_mib as usize, target }
}

/// As long as its plain phase lasts, and at all times.
const ASIDE_WHEN_PLAIN: Target =
    Target::StepsAside { phase: Some("plain"), share: 0.01, waste: 0.05 };
const ASIDE: Target = Target::StepsAside { phase: None, share: 0.01, waste: PAYS };

/// Waste of the bytes made where zeroes still pay: idle time is priced at a quarter, so one page in four has to be used.
const PAYS: f64 = 0.75;
const WASTED: &str = "wasted of scrubbed";

/// One burst. All but its time are bytes since the start, read after it.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Burst {
    /// Of the pattern.
    pub phase: String,
    /// Since the program's start.
    pub start_ns: u64,
    /// How long it took, without the pause.
    pub burst_ns: u64,
    /// By the program.
    pub freed: u64,
    /// By scrubd.
    pub made: u64,
    /// Asked for as zero, and zero already.
    pub hit: u64,
    /// Asked for as zero, and cleared.
    pub miss: u64,
    /// Asked for as zero, and left to the kernel.
    pub absent: u64,
    /// Zero, given to plain requests.
    pub plain: u64,
    /// Made, given to the kernel unused.
    pub unused: u64,
    /// Zero at that moment.
    pub zero: u64,
}

impl Burst {
    /// A line of the worker's; `None` if it is none.
    pub fn parse(line: &str) -> Option<Burst> {
        let (phase, numbers) = line.split_once(' ')?;
        let numbers: Vec<u64> =
            numbers.split(' ').map(str::parse).collect::<Result<_, _>>().ok()?;
        let [start_ns, burst_ns, freed, made, hit, miss, absent, plain, unused, zero] =
            numbers.try_into().ok()?;
        let whole =
            Burst { phase: phase.into(), start_ns, burst_ns, freed, made, ..Burst::default() };
        Some(Burst { hit, miss, absent, plain, unused, zero, ..whole })
    }

    /// Bytes of ZERO requests.
    fn asked(&self) -> u64 {
        self.hit + self.miss + self.absent
    }
}

/// What prezero reached of what is asked of it; `end` is what its final statistics say.
pub fn judged(target: Target, bursts: &[Burst], end: &Burst) -> Figure {
    let percent = |name: &str, part: f64, bound: f64| {
        Figure::new(PREZERO, name, "%", 100.0 * part).wanted(100.0 * bound)
    };
    let waste = share(end.plain + end.unused + end.zero, end.made);
    match target {
        Target::MadeOfFreed(bound) => {
            percent("scrubbed of freed", share(end.made, end.freed), bound)
        }
        Target::WasteOfMade(bound) => percent(WASTED, waste, bound),
        Target::PlainOfMade(bound) => {
            percent("given to plain requests of scrubbed", share(end.plain, end.made), bound)
        }
        Target::HitsFromFourth(bound) => {
            percent("hits from the 4th burst on", hits_from_fourth(bursts), bound)
                .better(Better::More)
        }
        Target::StepsAside { phase, share: bound, waste: least } => {
            let (made, freed) = after_a_second(phase, bursts, end);
            let late = share(made, freed);
            // Either will do.
            if late > bound && waste <= least {
                return percent(WASTED, waste, least);
            }
            let of = phase.map_or(String::new(), |phase| format!(" of {phase}"));
            percent(&format!("scrubbed of freed after 1 s{of}"), late, bound)
        }
    }
}

/// `part` of `whole`; nothing of nothing is 0.
pub fn share(part: u64, whole: u64) -> f64 {
    if part == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// The share of hits from the fourth burst on.
fn hits_from_fourth(bursts: &[Burst]) -> f64 {
    match bursts.get(2..).unwrap_or_default() {
        [third, .., last] => {
            share(last.hit.saturating_sub(third.hit), last.asked() - third.asked())
        }
        _ => 0.0,
    }
}

/// Made and freed from a second after the phase (or everything) began until it ended; in the
/// last phase until the end.
fn after_a_second(phase: Option<&str>, bursts: &[Burst], end: &Burst) -> (u64, u64) {
    const SECOND_NS: u64 = 1_000_000_000;
    let of_phase = |burst: &&Burst| phase.is_none_or(|phase| phase == burst.phase);
    let Some(began) = bursts.iter().find(of_phase).map(|burst| burst.start_ns) else {
        return (0, 0);
    };
    let late = |burst: &&Burst| of_phase(burst) && burst.start_ns >= began + SECOND_NS;
    let first = bursts.iter().find(late);
    let last = bursts.iter().rfind(late).map(|last| {
        let is_last = bursts.last().is_some_and(|burst| burst.start_ns == last.start_ns);
        if is_last { end } else { last }
    });
    let Some((first, last)) = first.zip(last) else { return (0, 0) };
    (last.made.saturating_sub(first.made), last.freed.saturating_sub(first.freed))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn burst(phase: &str, start_ns: u64) -> Burst {
        Burst { phase: phase.into(), start_ns, ..Burst::default() }
    }

    #[test]
    fn a_line_of_the_worker_is_read_and_nothing_else() {
        let read = Burst::parse("zero 1 2 3 4 5 6 7 8 9 10").unwrap();
        assert_eq!(
            (read.phase.as_str(), read.burst_ns, read.absent, read.zero),
            ("zero", 2, 7, 10)
        );
        assert_eq!(Burst::parse("end 1 2 3"), None);
        assert_eq!(Burst::parse("zero 1 2 3 4 5 6 7 8 9 x"), None);
    }

    /// What is reached, and whether it is as asked.
    fn reached(target: Target, bursts: &[Burst], end: &Burst) -> (f64, bool) {
        let figure = judged(target, bursts, end);
        let value = (figure.value * 10.0).round() / 10.0;
        (value, figure.judged() == Some(prezero_host::samples::Judged::Within))
    }

    #[test]
    fn waste_is_all_that_no_zero_request_used() {
        let end = Burst { made: 1000, plain: 20, unused: 20, zero: 10, ..Burst::default() };
        assert_eq!(reached(Target::WasteOfMade(0.05), &[], &end), (5.0, true));
        assert!(!reached(Target::WasteOfMade(0.05), &[], &Burst { zero: 11, ..end }).1);
    }

    #[test]
    fn a_program_that_never_asks_may_cost_a_hundredth() {
        let end = Burst { freed: 1000, made: 10, ..Burst::default() };
        assert!(reached(Target::MadeOfFreed(0.01), &[], &end).1);
        assert!(!reached(Target::MadeOfFreed(0.01), &[], &Burst { made: 11, ..end }).1);
    }

    #[test]
    fn zero_that_lies_there_is_no_waste_to_plain_requests() {
        let end = Burst { made: 100, plain: 6, zero: 94, ..Burst::default() };
        assert_eq!(reached(Target::PlainOfMade(0.05), &[], &end).0, 6.0);
    }

    #[test]
    fn the_first_three_bursts_may_miss() {
        let at = |hit, miss| Burst { hit, miss, ..Burst::default() };
        let bursts = [at(0, 100), at(0, 200), at(0, 300), at(100, 300), at(190, 310)];
        assert_eq!(reached(Target::HitsFromFourth(0.95), &bursts, &Burst::default()), (95.0, true));
        assert!(!reached(Target::HitsFromFourth(0.95), &bursts[..3], &Burst::default()).1);
    }

    #[test]
    fn stepping_aside_counts_from_a_second_into_the_phase_to_its_end() {
        let made = |burst: Burst, made, freed| Burst { made, freed, ..burst };
        let bursts = [
            made(burst("zero", 0), 500, 500),
            made(burst("plain", SECOND), 900, 600),
            made(burst("plain", 2 * SECOND), 1000, 700),
            made(burst("plain", 3 * SECOND), 1002, 900),
            made(burst("zero", 4 * SECOND), 2000, 1000),
        ];
        let end = made(burst("", 0), 2100, 1000);
        assert_eq!(after_a_second(Some("plain"), &bursts, &end), (2, 200));
        assert_eq!(after_a_second(None, &bursts, &end), (1200, 400), "to the very end");
        assert_eq!(after_a_second(Some("other"), &bursts, &end), (0, 0));
        let aside = Target::StepsAside { phase: Some("plain"), share: 0.01, waste: 0.05 };
        assert!(reached(aside, &bursts, &end).1);
    }

    #[test]
    fn used_zeroes_are_no_reason_to_step_aside() {
        let bursts = [burst("round", 0), burst("round", SECOND)];
        let end = Burst { made: 1000, hit: 1000, freed: 1000, ..Burst::default() };
        let aside = Target::StepsAside { phase: None, share: 0.01, waste: 0.05 };
        assert!(reached(aside, &bursts, &end).1);
        assert!(!reached(aside, &bursts, &Burst { plain: 51, ..end }).1);
    }
}
