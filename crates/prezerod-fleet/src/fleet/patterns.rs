//! Patterns of demand: how often a lease lies ready, and how much memory does.

use prezerod::demand::Demand;
use prezerod::protocol::{Page, Want};
use prezerod::stock::Need;
use prezerod::tenant::Payer;

use super::simulation::{Learnt, Machine, Simulation};

const S: u64 = 1_000_000_000;
const HOUR: u64 = 3600 * S;
const WINDOW: u64 = 75 * 60 * S;
const GIB: u64 = 1 << 30;

fn want(mib: u64) -> Need {
    let want = Want { bytes: mib << 20, page: Page::Huge, node: Some(0) };
    Need { want, payer: Payer::BROKER }
}

/// Requests: when, ns, and of how many GiB.
type Requests = Box<dyn Iterator<Item = (u64, u64)>>;

fn every(ns: u64) -> Requests {
    Box::new((1..).map(move |nth| (nth * ns, 2)))
}

/// Ten each hour, so far apart.
fn hourly(gap: u64) -> Requests {
    Box::new((1..).flat_map(move |hour| (0..10).map(move |nth| (hour * HOUR + nth * gap, 2))))
}

fn poisson(mean_s: f64, sizes: &'static [u64]) -> Requests {
    let (mut random, mut at) = (fastrand::Rng::with_seed(7), 0);
    Box::new(std::iter::from_fn(move || {
        at += (-(1.0 - random.f64()).ln() * mean_s * 1e9) as u64;
        Some((at, sizes[random.usize(..sizes.len())]))
    }))
}

/// Those of the first minutes of each hour.
fn first(minutes: u64, requests: Requests) -> Requests {
    Box::new(requests.filter(move |(at, _)| at % HOUR < minutes * 60 * S))
}

#[test]
fn a_day_of_each_pattern_hits_as_often_and_keeps_no_more_than_this() {
    for (name, requests, hits, gib) in [
        ("every 3 s", every(3 * S), 99.9, 1.8),
        ("every 8 s", every(8 * S), 99.9, 2.0),
        ("every 40 min", every(2400 * S), 97.0, 2.0),
        ("10 at once, hourly", hourly(0), 95.0, 20.0),
        ("10 in 1.5 s, hourly", hourly(S / 6), 95.0, 14.0),
        ("10 in 30 s, hourly", hourly(3 * S), 99.5, 2.0),
        ("Poisson, 3 s", poisson(3.0, &[2]), 99.4, 6.0),
        ("1, 2, 4 GiB, Poisson, 5 s", poisson(5.0, &[1, 2, 4]), 99.4, 15.0),
        ("20 min of one every 3 s, 40 min idle", first(20, every(3 * S)), 99.9, 2.0),
    ] {
        let machine = Machine { pace: 8 * GIB, limit: 1 << 44 };
        let mut trial = Simulation::new(machine, Learnt(Demand::new(0, WINDOW)));
        requests
            .take_while(|(at, _)| *at <= 24 * HOUR)
            .for_each(|(at, gib)| trial.ask(at, &want(gib << 10)));
        trial.pass(24 * HOUR);
        let sums = trial.sums();
        let share = 100.0 * sums.hits as f64 / (sums.hits as usize + sums.waits.len()) as f64;
        let ready = sums.ready / sums.length as f64 / GIB as f64;
        assert!(share >= hits && ready <= gib, "{name}: {share:.2} % hits, {ready:.2} GiB");
    }
}
