//! All hosts under one rule, by as many threads as there are CPUs.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use super::simulation::{Machine, Simulation, Sums};
use prezerod::protocol::{Page, Want};
use prezerod::stock::Need;
use prezerod::tenant::Payer;

use super::arrivals::Arrivals;
use super::rules::Named;

/// What is the same for all hosts.
#[derive(Debug)]
pub struct Setting {
    /// Each host.
    pub machine: Machine,
    /// See prezerod's configuration.
    pub forget: Duration,
    /// Leases of each size that are kept.
    pub keep: u64,
}

/// What came of it on all hosts.
#[derive(Clone, Default, Debug)]
pub struct Tally {
    /// Requests that were served at once.
    pub hits: u64,
    /// Bytes given back unused.
    pub vain: u64,
    /// Bytes that lay ready, times ns.
    pub ready: f64,
    /// Time of all hosts, ns.
    pub length_ns: f64,
    /// Requests that waited, by their wait in ns, to a hundredth.
    waits: BTreeMap<u64, u64>,
    misses: u64,
}

impl Tally {
    /// All requests.
    pub fn requests(&self) -> u64 {
        self.hits + self.misses
    }

    /// What this share of all requests waited at most, ns.
    pub fn wait_ns(&self, share: f64) -> u64 {
        let mut below = (share * self.requests() as f64).ceil() as u64;
        if below <= self.hits {
            return 0;
        }
        below -= self.hits;
        for (wait, count) in &self.waits {
            if below <= *count {
                return *wait;
            }
            below -= count;
        }
        self.waits.last_key_value().map_or(0, |(wait, _)| *wait)
    }

    fn add(&mut self, sums: &Sums) {
        self.hits += sums.hits;
        self.vain += sums.vain;
        self.ready += sums.ready;
        self.length_ns += sums.length as f64;
        self.misses += sums.waits.len() as u64;
        for wait in &sums.waits {
            let digits = (wait.max(&1).ilog2()).saturating_sub(7);
            *self.waits.entry(wait >> digits << digits).or_default() += 1;
        }
    }

    fn join(&mut self, other: Tally) {
        self.hits += other.hits;
        self.vain += other.vain;
        self.ready += other.ready;
        self.length_ns += other.length_ns;
        self.misses += other.misses;
        for (wait, count) in other.waits {
            *self.waits.entry(wait).or_default() += count;
        }
    }
}

/// A lease of `bytes`.
pub fn need(bytes: u64) -> Need {
    let want = Want { bytes, page: Page::Huge, node: None };
    Need { want, payer: Payer::BROKER }
}

/// Plays all hosts, or those that come before `stop` says yes.
pub fn play(
    arrivals: &Arrivals<'_>,
    rule: &Named,
    setting: &Setting,
    stop: impl Fn() -> bool + Sync,
) -> Tally {
    /// Hosts that one thread takes at a time, and adds in their order.
    const AT_ONCE: usize = 16;
    let next = AtomicUsize::new(0);
    let some = || {
        let mut tallies = vec![];
        loop {
            let from = next.fetch_add(AT_ONCE, Relaxed);
            if from >= arrivals.hosts || stop() {
                return tallies;
            }
            let mut tally = Tally::default();
            for host in from..(from + AT_ONCE).min(arrivals.hosts) {
                tally.add(&one(arrivals, host, rule, setting));
            }
            tallies.push((from, tally));
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut tallies: Vec<(usize, Tally)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(some)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect()
    });
    // In the order of the hosts, whichever thread had them: sums are the same in every run.
    tallies.sort_by_key(|(from, _)| *from);
    let mut all = Tally::default();
    tallies.into_iter().for_each(|(_, tally)| all.join(tally));
    all
}

fn one(arrivals: &Arrivals<'_>, host: usize, rule: &Named, setting: &Setting) -> Sums {
    let requests = arrivals.of_host(host);
    let mut sizes: Vec<u64> = requests.iter().map(|it| it.1).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let sizes: Vec<Need> = sizes.into_iter().map(need).collect();
    let mut trial = Simulation::new(setting.machine, (rule.new)(setting, &sizes));
    for (at, bytes) in requests {
        trial.ask(at, &need(bytes));
    }
    trial.pass(arrivals.until);
    trial.sums()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_those_of_all_requests() {
        let mut tally = Tally::default();
        let waits = vec![1_000_000, 2_000_000, 1_000_000_000];
        tally.add(&Sums { hits: 7, waits, ..Sums::default() });
        let close = |share, ns: u64| {
            let told = tally.wait_ns(share);
            assert!(told <= ns && told >= ns - ns / 100, "{share}: {told}");
        };
        assert_eq!(tally.wait_ns(0.5), 0);
        assert_eq!(tally.wait_ns(0.7), 0);
        close(0.8, 1_000_000);
        close(0.9, 2_000_000);
        close(0.99, 1_000_000_000);
        assert_eq!(Tally::default().wait_ns(0.99), 0);
    }
}
