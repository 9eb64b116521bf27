//! When which host is asked for how much.

use std::f64::consts::TAU;

use fastrand::Rng;

use super::trace::Trace;

/// A second, ns.
pub const S: u64 = 1_000_000_000;
const HOUR: u64 = 3600 * S;
pub const DAY: u64 = 24 * HOUR;
const GIB: u64 = 1 << 30;

/// A request: when, ns from midnight of the first day, and for how many bytes.
pub type Request = (u64, u64);

/// Requests by a rule.
#[derive(Debug)]
pub struct Pattern {
    /// For the command line.
    pub name: &'static str,
    /// For people.
    about: &'static str,
    /// Of one host, in order, up to that time.
    make: fn(&mut Rng, u64) -> Vec<Request>,
}

/// All of them, in the order of the tables.
pub const PATTERNS: [Pattern; 7] = [
    Pattern { name: "regular", about: "2 GiB every 10 minutes", make: regular },
    Pattern { name: "poisson", about: "2 GiB every 10 minutes on average", make: poisson },
    Pattern {
        name: "diurnal",
        about: "2 GiB, 1 an hour at 4:00, 11 an hour at 16:00",
        make: diurnal,
    },
    Pattern { name: "hourly", about: "ten of 2 GiB within 1.5 s, each hour", make: hourly },
    Pattern { name: "nightly", about: "40 of 1 GiB within a minute after 2:00", make: nightly },
    Pattern { name: "mixed", about: "1, 2 or 4 GiB every 10 minutes on average", make: mixed },
    Pattern {
        name: "rush",
        about: "2 GiB every 3 s for 20 minutes, twice a day at any time",
        make: rush,
    },
];

fn regular(random: &mut Rng, until: u64) -> Vec<Request> {
    let every = 600 * S;
    let from = random.u64(..every);
    (0..).map(|nth| (from + nth * every, 2 * GIB)).take_while(|it| it.0 < until).collect()
}

/// ns until the next of requests that are independent of one another.
fn gap(random: &mut Rng, mean_ns: f64) -> u64 {
    (-(1.0 - random.f64()).ln() * mean_ns) as u64
}

fn independent(random: &mut Rng, until: u64, mean_ns: u64, sizes: &[u64]) -> Vec<Request> {
    let mut at = 0;
    let next = std::iter::from_fn(|| {
        at += gap(random, mean_ns as f64);
        Some((at, sizes[random.usize(..sizes.len())]))
    });
    next.take_while(|it| it.0 < until).collect()
}

fn poisson(random: &mut Rng, until: u64) -> Vec<Request> {
    independent(random, until, 600 * S, &[2 * GIB])
}

fn mixed(random: &mut Rng, until: u64) -> Vec<Request> {
    independent(random, until, 600 * S, &[GIB, 2 * GIB, 4 * GIB])
}

fn diurnal(random: &mut Rng, until: u64) -> Vec<Request> {
    const MOST: f64 = 11.0;
    let mut all = independent(random, until, HOUR / MOST as u64, &[2 * GIB]);
    let rate = |at: u64| {
        let of_day = (at % DAY) as f64 / DAY as f64;
        6.0 - 5.0 * ((of_day - 4.0 / 24.0) * TAU).cos()
    };
    all.retain(|(at, _)| random.f64() * MOST < rate(*at));
    all
}

fn hourly(random: &mut Rng, until: u64) -> Vec<Request> {
    let from = random.u64(..HOUR);
    let hours = (0..).map(|hour| from + hour * HOUR).take_while(|at| *at < until);
    hours.flat_map(|at| (0..10).map(move |nth| (at + nth * S / 6, 2 * GIB))).collect()
}

fn nightly(random: &mut Rng, until: u64) -> Vec<Request> {
    let nights = (0..).map(|day| day * DAY + 2 * HOUR).take_while(|at| *at < until);
    let nights: Vec<u64> = nights.collect();
    let mut all: Vec<_> = nights
        .iter()
        .flat_map(|at| (0..40).map(|_| (at + random.u64(..60 * S), GIB)).collect::<Vec<_>>())
        .collect();
    all.sort_unstable();
    all
}

fn rush(random: &mut Rng, until: u64) -> Vec<Request> {
    let halves = (0..).map(|half| half * DAY / 2).take_while(|at| *at < until);
    let begins: Vec<u64> = halves.map(|at| at + random.u64(..DAY / 2 - HOUR)).collect();
    begins.iter().flat_map(|at| (0..400).map(move |nth| (at + nth * 3 * S, 2 * GIB))).collect()
}

/// Requests to all hosts.
#[derive(Debug)]
pub struct Arrivals<'a> {
    /// What they are called.
    pub name: String,
    /// What they are.
    pub about: String,
    /// Hosts.
    pub hosts: usize,
    /// When they end, ns.
    pub until: u64,
    source: Source<'a>,
}

#[derive(Debug)]
enum Source<'a> {
    Pattern(&'a Pattern),
    Random { mean_ns: u64, bytes: u64 },
    Trace(Trace),
}

impl Arrivals<'_> {
    /// By a rule.
    pub fn of_pattern(pattern: &Pattern, hosts: u32, days: u32) -> Arrivals<'_> {
        let (name, about) = (pattern.name.to_string(), pattern.about.to_string());
        let (hosts, until) = (hosts as usize, u64::from(days) * DAY);
        Arrivals { name, about, hosts, until, source: Source::Pattern(pattern) }
    }

    /// Of one size, independent of one another, at this mean distance on each host.
    pub fn at_random(hosts: u32, days: u32, mean_ns: u64, bytes: u64) -> Arrivals<'static> {
        let (name, about) = ("random".into(), "independent of one another".into());
        let (hosts, until) = (hosts as usize, u64::from(days) * DAY);
        Arrivals { name, about, hosts, until, source: Source::Random { mean_ns, bytes } }
    }

    /// As they were.
    pub fn of_trace(trace: Trace) -> Arrivals<'static> {
        let (name, about) = ("trace".into(), "as they were".into());
        let (hosts, until) = (trace.hosts.len(), trace.until());
        Arrivals { name, about, hosts, until, source: Source::Trace(trace) }
    }

    /// Those to one host, in order.
    pub fn of_host(&self, host: usize) -> Vec<Request> {
        let mut random = Rng::with_seed(host as u64 + 1);
        match &self.source {
            Source::Pattern(pattern) => (pattern.make)(&mut random, self.until),
            Source::Random { mean_ns, bytes } => {
                independent(&mut random, self.until, *mean_ns, &[*bytes])
            }
            Source::Trace(trace) => trace.hosts[host].clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_in_order_within_the_time_and_as_many_as_is_said() {
        for (pattern, a_day) in PATTERNS.iter().zip([144, 144, 144, 240, 40, 144, 800]) {
            let arrivals = Arrivals::of_pattern(pattern, 1, 30);
            let all = arrivals.of_host(0);
            assert!(all.is_sorted() && all.last().is_some_and(|it| it.0 < 30 * DAY + 60 * S));
            let found = all.len() as f64 / 30.0;
            assert!((found / f64::from(a_day) - 1.0).abs() < 0.1, "{}: {found}", pattern.name);
            assert_ne!(all, arrivals.of_host(1), "{}", pattern.name);
        }
    }
}
