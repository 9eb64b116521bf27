//! The large block freed last: who gets it, and that it makes no demand.
#![allow(unsafe_code)]

use super::super::fake::pass;
use super::super::world::{RESTED_NS, World, is_zero};
use super::{bytes, order};
use crate::class::BANDS;
use crate::count::counters::Counter;
use crate::units::{HUGE_PAGES, Order, PageId};

/// Beyond what any list keeps.
const LARGE: u32 = 2 * HUGE_PAGES;

/// Pages asked for that a stock could have served.
fn demand(world: &World) -> u64 {
    let mut sums = [0; BANDS];
    world.zone.cpu().demand.add_to(&mut sums);
    sums.iter().sum()
}

/// One block zero and rested, and another behind it, written to and freed just now: its first page.
fn one_zero_one_fresh() -> (World, PageId) {
    let mut world = World::new(8);
    let (low, high) = (world.zero(LARGE), world.zero(LARGE));
    let first = high.first();
    assert!(low.first() < first);
    world.soil(low);
    world.scrub();
    assert_eq!(world.zone.pool.stock.zero(), LARGE);
    world.soil(high);
    (world, first)
}

#[test]
fn what_was_freed_a_moment_before_comes_before_zeroes_and_is_no_demand() {
    let (world, first) = one_zero_one_fresh();
    let asked = demand(&world);

    let again = world.zero(LARGE);

    assert_eq!(again.first(), first);
    assert!(is_zero(&world.zone, &again));
    assert_eq!((world.count(Counter::MissBytes), demand(&world)), (bytes(LARGE), asked));
    assert_eq!(world.zone.pool.stock.zero(), LARGE, "nobody took them");
    world.soil(again);
    world.assert_sound();
}

#[test]
fn what_has_rested_comes_after_zeroes() {
    let (world, first) = one_zero_one_fresh();
    let asked = demand(&world);
    pass(RESTED_NS);

    let again = world.zero(LARGE);

    assert!(again.first() < first && is_zero(&world.zone, &again));
    assert_eq!((world.count(Counter::HitBytes), demand(&world)), (bytes(LARGE), asked + 1024));
    world.zone.free(again);
    world.assert_sound();
}

#[test]
fn a_smaller_request_gets_its_front_and_a_larger_one_none_of_it() {
    let world = World::new(8);
    let block = world.zero(2 * LARGE);
    let first = block.first();
    world.soil(block);

    let front = world.zero(LARGE + HUGE_PAGES);
    assert_eq!(front.first(), first);
    let behind = world.zone.pool.buddy.holder(first.plus(front.pages()));
    assert!(behind.is_some(), "its end stays free");
    world.soil(front);

    let larger = world.zero(3 * LARGE);
    assert_eq!(larger.pages(), 3 * LARGE);
    world.zone.free(larger);
    world.assert_sound();
}

#[test]
fn what_is_not_aligned_as_asked_is_left() {
    let world = World::new(16);
    let (before, block) = (world.zero(LARGE + HUGE_PAGES), world.zero(LARGE));
    let first = block.first();
    let eight_mib: Order = order(11);
    assert!(!first.is_aligned(eight_mib));
    world.soil(block);

    let aligned = world.zone.zero(LARGE, eight_mib).expect("the zone has room");

    assert!(aligned.first().is_aligned(eight_mib) && is_zero(&world.zone, &aligned));
    world.zone.free(aligned);
    world.zone.free(before);
    world.assert_sound();
}

#[test]
fn what_others_have_taken_of_it_by_now_is_theirs() {
    let (world, first) = one_zero_one_fresh();
    let taken = world.plain(HUGE_PAGES);
    assert!((first..first.plus(LARGE)).contains(&taken.first()), "plain takes what is dirty");

    let other = world.zero(LARGE);

    let (mine, theirs) = (other.first(), taken.first());
    assert!(!(mine..mine.plus(LARGE)).contains(&theirs) && is_zero(&world.zone, &other));
    world.zone.free(other);
    world.zone.free(taken);
    world.assert_sound();
}

#[test]
fn what_went_back_to_the_kernel_meanwhile_is_looked_for_like_any_other() {
    let (world, _) = one_zero_one_fresh();
    world.zone.give_back_all();
    assert_eq!(world.zone.pool.stock.resident(), 0);

    let block = world.zero(LARGE);

    assert!(is_zero(&world.zone, &block));
    assert_eq!(world.count(Counter::MissBytes), 0);
    world.zone.free(block);
    world.assert_sound();
}
