//! Against closed forms: Erlang's for room, those of M/D/1 and of birth and death for stock.

use super::*;

const S: f64 = 1e9;

/// Erlang B: the part of starts that finds all `servers` taken, where those are lost.
fn erlang_b(servers: u64, load: f64) -> f64 {
    (1..=servers).fold(1.0, |blocked, n| load * blocked / (n as f64 + load * blocked))
}

/// Erlang C: the same, where they wait.
fn erlang_c(servers: u64, load: f64) -> f64 {
    let (blocked, used) = (erlang_b(servers, load), load / servers as f64);
    blocked / (1.0 - used * (1.0 - blocked))
}

/// M/D/1: the part of the time for which fewer than `n` are in the system.
fn md1(n: usize, load: f64) -> f64 {
    let mut arrivals = vec![(-load).exp()];
    let mut parts = vec![1.0 - load];
    for k in 0..n {
        arrivals.push(arrivals[k] * load / (k + 1) as f64);
        let through: f64 = (1..=k).map(|i| parts[i] * arrivals[k - i + 1]).sum();
        parts.push((parts[k] - parts[0] * arrivals[k] - through) / arrivals[0]);
    }
    parts[..n].iter().sum()
}

/// Birth and death: the same, where `load` is `slow` for the first `n` and `fast` beyond.
fn birth_and_death(n: i32, slow: f64, fast: f64) -> f64 {
    let below: f64 = (0..n).map(|k| slow.powi(k)).sum();
    below / (below + slow.powi(n) / (1.0 - fast))
}

/// With these starts a second, of lives and makings of a second.
fn cluster(rate: f64) -> Cluster {
    Cluster {
        hosts: 1,
        room: 1 << 40,
        keep: 0,
        gap: Time::Random(S / rate),
        life: Time::Random(S),
        making: Time::Fixed(S),
        busy: Busy::NEVER,
        full: Full::Lost,
    }
}

/// Within the noise of what was played: four deviations of as many independent draws, thrice as wide, since starts
/// that meet one busy time are alike.
fn is(found: f64, expected: f64, starts: u64) {
    let noise = 12.0 * (expected * (1.0 - expected) / starts as f64).sqrt();
    assert!((found - expected).abs() < noise.max(1e-4), "{found}, expected {expected} +- {noise}");
}

#[test]
fn the_closed_forms_are_those_of_the_tables() {
    let is = |found: f64, known: f64| assert!((found - known).abs() < 5e-5, "{found} {known}");
    is(erlang_b(10, 7.0), 0.0787);
    is(erlang_b(1, 1.0), 0.5);
    is(erlang_c(10, 7.0), 0.2217);
    is(erlang_c(1, 0.4), 0.4);
    is(md1(1, 0.5), 0.5);
    is(md1(2, 0.5), 0.5 * 0.5_f64.exp());
    is(birth_and_death(3, 0.5, 0.5), 1.0 - 0.125);
}

#[test]
fn starts_are_lost_as_erlang_says_whatever_their_lives_and_wherever_room_is() {
    const STARTS: u64 = 100_000;
    for (hosts, room) in [(1, 10), (5, 2), (10, 1)] {
        for life in [Time::Random(S), Time::Fixed(S)] {
            // What has to be made takes no time here.
            let all = Cluster { hosts, room, life, making: Time::Fixed(0.0), ..cluster(7.0) };
            is(1.0 - all.play(STARTS).room_share(), erlang_b(10, 7.0), STARTS);
        }
    }
}

#[test]
fn starts_wait_for_room_as_erlang_says() {
    const STARTS: u64 = 200_000;
    for (hosts, room) in [(1, 10), (5, 2)] {
        let all = Cluster { hosts, room, full: Full::Waits, ..cluster(7.0) };
        let found = Cluster { making: Time::Fixed(0.0), ..all }.play(STARTS);
        let waits = erlang_c(10, 7.0);
        is(1.0 - found.room_share(), waits, STARTS);
        let (mean, expected) = (found.waited_for_room / STARTS as f64, waits * S / (10.0 - 7.0));
        assert!((mean / expected - 1.0).abs() < 0.1, "{mean} ns, expected {expected}");
    }
}

#[test]
fn stock_is_found_as_often_as_a_filler_has_fewer_orders_than_that() {
    const STARTS: u64 = 100_000;
    for load in [0.3, 0.6, 0.8] {
        for keep in [1, 2, 4] {
            let found = Cluster { keep, ..cluster(load) }.play(STARTS);
            is(found.ready_share(), md1(keep as usize, load), STARTS);
            if keep == 1 {
                // Poisson arrivals see time averages: as often as one lies ready.
                is(found.idle, found.ready_share(), STARTS);
            }
        }
        // Without stock each start waits for its making and for those before it: Pollaczek and Khinchine.
        let found = cluster(load).play(STARTS);
        let mean = found.waited_for_lease / STARTS as f64;
        let expected = S * (1.0 + load / (2.0 * (1.0 - load)));
        assert!((mean / expected - 1.0).abs() < 0.05, "{mean} ns, expected {expected}");
    }
}

#[test]
fn starts_are_spread_over_hosts() {
    const STARTS: u64 = 200_000;
    // Each host has a fourth of them.
    let found = Cluster { hosts: 4, keep: 2, ..cluster(4.0 * 0.6) }.play(STARTS);
    is(found.ready_share(), md1(2, 0.6), STARTS);
}

#[test]
fn a_filler_is_slow_on_busy_cpus_until_a_start_waits() {
    const STARTS: u64 = 200_000;
    let (load, pace) = (0.1, 0.25);
    let slow = load / pace;
    let all = |share, span| {
        let busy = Busy { share, span, pace };
        Cluster { keep: 2, making: Time::Random(S), busy, ..cluster(load) }
    };
    is(all(1.0, S).play(STARTS).ready_share(), birth_and_death(2, slow, load), STARTS);
    // Busy and idle for long: each as if there were no other.
    let mixed = (birth_and_death(2, slow, load) + birth_and_death(2, load, load)) / 2.0;
    let found = all(0.5, 3000.0 * S).play(STARTS).ready_share();
    assert!((found - mixed).abs() < 0.02, "{found}, expected {mixed}");
    // In turns much shorter than a making: the mean pace.
    let mean = load / ((1.0 + pace) / 2.0);
    is(all(0.5, 0.01 * S).play(20_000).ready_share(), birth_and_death(2, mean, load), 20_000);
}

#[test]
fn stock_and_leases_share_the_room() {
    // One lease fits: once it is taken nothing is ready, and nothing is made ahead.
    let tight = Cluster { room: 1, keep: 4, making: Time::Fixed(S / 1e3), ..cluster(1.0) };
    let found = tight.play(50_000);
    is(1.0 - found.room_share(), erlang_b(1, 1.0), 50_000);
    assert!(found.idle < 0.51 && found.ready + 200 > found.room, "{found:?}");
}

#[test]
fn the_least_stock_and_the_least_hosts_are_those_of_the_closed_forms() {
    const STARTS: u64 = 100_000;
    for (load, share) in [(0.3, 0.9), (0.6, 0.95), (0.1, 0.99)] {
        let expected = (0..100).find(|&keep| md1(keep, load) >= share).unwrap() as u64;
        let ready = |keep| Cluster { keep, ..cluster(load) }.play(STARTS).ready_share();
        let found = least(1000, |keep| ready(keep) >= share).unwrap();
        assert!(found.abs_diff(expected) <= 1, "{load}: {found}, expected {expected}");
    }
    let all = Cluster { room: 8, making: Time::Fixed(0.0), ..cluster(100.0) };
    for share in [0.99, 0.999] {
        let blocked = |hosts: u64| erlang_b(8 * hosts, 100.0);
        let expected = (1..100).find(|&hosts| blocked(hosts) <= 1.0 - share).unwrap();
        let found = all.hosts_for(share, 20 * STARTS / 10, 1000).unwrap();
        assert!(found.abs_diff(expected) <= 1, "{share}: {found}, expected {expected}");
    }
}

#[test]
fn the_least_number_is_found_by_halves() {
    for wanted in [0, 1, 2, 3, 7, 8, 9, 100] {
        assert_eq!(least(100, |n| n >= wanted), Some(wanted));
    }
    assert_eq!(least(100, |n| n > 100), None);
}
