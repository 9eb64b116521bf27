//! Synthetic demand: steady, in bursts, in phases, none, and hostile.

use super::Act::{FreePlain, FreeZero, Pass, Plain, Release, Zero};
use super::{Act, MIB, MS, Model, US};

/// Takes pages, uses them for a while, gives them back, and pauses.
fn round(pages: u64, used: u64, pause: u64) -> [Act; 4] {
    [Zero(pages), Pass(used), FreeZero(pages), Pass(pause)]
}

fn repeat(times: usize, acts: &[Act]) -> impl Iterator<Item = Act> {
    std::iter::repeat_n(acts, times).flatten().copied()
}

/// A burst of `count` blocks that live together.
fn burst(count: usize, pages: u64, pause: u64) -> Vec<Act> {
    let mut acts: Vec<Act> = repeat(count, &[Zero(pages), Pass(100 * US)]).collect();
    acts.extend(repeat(count, &[FreeZero(pages)]));
    acts.push(Pass(pause));
    acts
}

#[test]
fn a_program_that_never_asks_for_zero_gets_nothing_scrubbed() {
    let acts = [Plain(4 * MIB), Pass(MS), FreePlain(4 * MIB), Pass(3 * MS)];
    let outcome = Model::new().play(repeat(1000, &acts));
    assert_eq!(outcome.scrubbed, 0);
    assert!(outcome.freed > 0);
}

#[test]
fn steady_demand_is_met_and_next_to_nothing_is_wasted() {
    for pages in [MIB / 2, MIB, 4 * MIB, 32 * MIB] {
        let outcome = Model::new().play(repeat(1000, &round(pages, MS, 5 * MS)));
        assert!(outcome.hit_share() > 0.95, "{pages} pages: {outcome:?}");
        assert!(outcome.waste() <= 0.05, "{pages} pages: {outcome:?}");
    }
}

#[test]
fn a_steady_block_is_found_whole() {
    for pages in [4 * MIB, 16 * MIB] {
        let mut model = Model::new();
        model.play(repeat(50, &round(pages, MS / 10, 6 * MS)));
        let outcome = model.play(repeat(500, &round(pages, MS / 10, 6 * MS)));
        assert_eq!(outcome.hit, outcome.asked, "a page that is missing is a miss: {outcome:?}");
    }
}

#[test]
fn a_loop_without_pauses_is_left_alone() {
    let outcome = Model::new().play(repeat(10_000, &round(4 * MIB, 300 * US, 0)));
    assert!(outcome.effort() < 0.01, "{outcome:?}");
}

#[test]
fn bursts_hit_from_the_fourth_on() {
    for (count, pages) in [(64, MIB), (16, 4 * MIB), (1, 64 * MIB)] {
        let mut model = Model::new();
        let burst = burst(count, pages, 90 * MS);
        model.play(repeat(3, &burst));
        let outcome = model.play(repeat(20, &burst));
        assert!(outcome.hit_share() >= 0.95, "{count} of {pages} pages: {outcome:?}");
        assert!(outcome.waste() <= 0.05 + 1.0 / 20.0, "{count} of {pages} pages: {outcome:?}");
    }
}

#[test]
fn rare_bursts_find_their_stock_too() {
    let mut model = Model::new();
    let burst = burst(16, 4 * MIB, 4000 * MS);
    model.play(repeat(3, &burst));
    assert!(model.play(repeat(5, &burst)).hit_share() >= 0.95);
}

#[test]
fn slow_bursts_that_grow_are_followed() {
    let mut model = Model::new();
    for count in 1..32 {
        model.play(burst(count, MIB, 50 * MS));
    }
    assert!(model.play(burst(32, MIB, 50 * MS)).hit_share() >= 0.9);
}

#[test]
fn a_request_that_comes_once_costs_what_it_is_lent_and_no_more() {
    let mut model = Model::new();
    let start = model.play(burst(64, 8 * MIB, 100 * MS));
    let after = model.play(repeat(3000, &[Plain(MIB), Pass(MS), FreePlain(MIB), Pass(9 * MS)]));
    // What a size is lent: all of it would be 39 ms.
    assert!(start.spent_ns + after.spent_ns <= 12 * MS, "{start:?} {after:?}");
    assert!(after.effort() < 0.01, "{after:?}");
}

/// A zeroed array, and two results of the same size that need no zero: an addition.
#[test]
fn blocks_that_are_wanted_as_they_are_stay_as_they_are() {
    let n = 32 * MIB;
    let acts = [
        Zero(n),
        Pass(300 * US),
        Plain(n),
        Pass(3 * MS),
        Plain(n),
        Pass(3 * MS),
        FreePlain(n),
        FreePlain(n),
        FreeZero(n),
        Pass(5 * MS),
    ];
    let mut model = Model::new();
    model.play(repeat(5, &acts));
    let outcome = model.play(repeat(200, &acts));
    assert!(outcome.hit_share() > 0.9, "{outcome:?}");
    assert!(outcome.to_plain as f64 <= 0.05 * outcome.scrubbed as f64, "{outcome:?}");
}

/// A start-up in which plain requests take the little that was made, as in most programs.
#[test]
fn losses_in_small_do_not_hold_back_the_large() {
    let mut model = Model::new();
    let small = [Zero(96), Pass(MS), FreeZero(96), Pass(MS), Plain(96), FreePlain(96)];
    model.play(repeat(20, &small));
    let n = 32 * MIB;
    model.play(repeat(3, &round(n, MS, 3 * MS)));
    let outcome = model.play(repeat(15, &round(n, MS, 3 * MS)));
    assert!(outcome.hit_share() > 0.95, "{outcome:?}");
}

/// Sums, which take the stock of the arrays before them as it is, and then a mask.
#[test]
fn a_stock_that_was_wanted_as_it_is_comes_back_within_ten_bursts() {
    let n = 32 * MIB;
    let mut model = Model::new();
    model.play(repeat(18, &round(n, MS, 3 * MS)));
    model.play(repeat(18, &[Plain(n), Pass(2 * MS), FreePlain(n), Pass(3 * MS)]));
    model.play(repeat(10, &round(10 * MIB, 20 * US, 3 * MS)));
    let outcome = model.play(repeat(10, &round(10 * MIB, 20 * US, 3 * MS)));
    assert!(outcome.hit_share() > 0.95, "{outcome:?}");
}

#[test]
fn a_change_of_phase_is_followed_within_a_second() {
    let plain = [Plain(4 * MIB), Pass(MS), FreePlain(4 * MIB), Pass(3 * MS)];
    let mut model = Model::new();
    model.play(repeat(400, &round(4 * MIB, MS, 3 * MS)));

    let change = model.play(repeat(250, &round(16, 20 * US, 4 * MS)));
    assert!(change.hit_share() > 0.9, "to small blocks: {change:?}");

    model.play(repeat(250, &plain));
    let rest = model.play(repeat(500, &plain));
    assert!(rest.effort() < 0.01, "to plain: {rest:?}");

    model.play(repeat(250, &round(4 * MIB, MS, 3 * MS)));
    let again = model.play(repeat(250, &round(4 * MIB, MS, 3 * MS)));
    assert!(again.hit_share() > 0.9, "back to large blocks: {again:?}");
}

/// Whatever is made zero goes to a plain request: all dirty memory is taken before the next
/// request for zero comes.
#[test]
fn hostile_demand_costs_two_thousandths_of_a_cpu() {
    let acts = [
        Plain(8 * MIB),
        Pass(2 * MS),
        Zero(8 * MIB),
        FreeZero(8 * MIB),
        Pass(MS),
        FreePlain(8 * MIB),
        Pass(MS),
        Plain(16 * MIB),
        Pass(100 * US),
        FreePlain(16 * MIB),
    ];
    let mut model = Model::new();
    model.play(repeat(250, &acts));
    let outcome = model.play(repeat(2500, &acts));
    let wall = 2500 * 4100 * US;
    assert!(outcome.asked > 0 && outcome.spent_ns <= wall / 500, "{outcome:?}");
}

/// Blocks of no size twice. All that lies there is wanted as it is once, two MiB, which is forgiven, and later now
/// and again, where a page of a stock takes four clears in place to make.
#[test]
fn a_program_that_gains_less_than_it_costs_and_wastes_some_is_left_alone_after_seconds() {
    let mut size = 1;
    let mut rounds = |count, plain: &[Act]| {
        let mut acts = Vec::new();
        for i in 0..count {
            size = size * 5 % 2039;
            acts.extend([Zero(size), Pass(20 * US), FreeZero(size), Pass(2 * MS)]);
            acts.extend(plain.iter().filter(|_| i % 10 == 9));
        }
        acts
    };
    let plain = [Plain(2039), FreePlain(2039)];
    let mut model = Model::new();
    model.play(rounds(4, &[]));
    let once = model.play(plain);
    assert!((MIB..4 * MIB).contains(&once.to_plain), "{once:?}");
    let outcome = model.play(rounds(500, &[]));
    assert!(outcome.hit_share() > 0.95, "{outcome:?}");

    let mut model = Model::with_scrubs_of(1200);
    model.play(rounds(4000, &plain));
    let outcome = model.play(rounds(500, &plain));
    assert!(outcome.effort() <= 0.02, "{outcome:?}");
}

/// Fifty looks in each pause: small blocks are not worth them, a large one is.
#[test]
fn a_program_that_saves_less_than_the_looks_cost_is_left_alone() {
    let small = round(4, 20 * US, 5 * MS);
    let mut model = Model::with_looks_of(2 * US);
    let first = model.play(repeat(1000, &small));
    assert!(first.hit_share() < 0.2, "it was tried: {first:?}");
    let then = model.play(repeat(10_000, &small));
    assert!(then.hit_share() < 0.02, "{then:?}");

    model.play(repeat(200, &round(MIB, 20 * US, 5 * MS)));
    let large = model.play(repeat(1000, &round(MIB, 20 * US, 5 * MS)));
    assert!(large.hit_share() > 0.9, "{large:?}");
}

/// Scrubbed memory goes back to the kernel before a request comes. It is lost, and only the cost model
/// tells.
#[test]
fn a_net_loss_makes_scrubd_step_aside_within_a_second() {
    let block = 256 * MIB;
    let mut model = Model::new();
    model.play(repeat(100, &round(block, MS, 50 * MS)));
    let lost = [Zero(block), Pass(MS), FreeZero(block), Pass(48 * MS), Release, Pass(MS)];

    let first = model.play(repeat(20, &lost));
    let then = model.play(repeat(20, &lost));

    // All of it would be 19.7 ms for each of the twenty.
    assert!(first.spent_ns <= 260 * MS, "{first:?}");
    assert!(then.spent_ns <= 10 * MS, "{then:?}");
}
