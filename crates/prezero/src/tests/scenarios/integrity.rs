//! What happens when a page that should be zero is not.

use super::super::fake::Fault;
use super::super::world::{World, is_zero};
use super::{ANY, SMALL, bytes};
use crate::config::Verify;
use crate::count::counters::Counter;
use crate::map::state::PageState;
use crate::units::{HUGE_PAGES, PageId};

#[test]
fn a_scribbled_zero_page_ends_all_trust() {
    let mut world = World::with(2, |config| config.verify = Verify::Full);
    world.stock_zero(608);
    let victim = (0..1024).map(PageId).find(|&p| world.zone.pool.map.state(p) == PageState::Zero);
    world.fill(victim.unwrap(), 1, 0x66);

    let block = world.zero(608);

    assert!(is_zero(&world.zone, &block), "what is handed out is zero all the same");
    assert_eq!(world.count(Counter::VerifyFailures), 1);
    assert!(!world.zone.trust.is_whole());
    world.zone.free(block);
    // From now on nothing is believed, cleared ahead, or served as ready.
    let scrubbed = world.count(Counter::ScrubbedBytes);
    world.scrub();
    assert_eq!(world.count(Counter::ScrubbedBytes), scrubbed);
    assert!(world.zone.only_zero(1, ANY).is_none());
    let misses = world.count(Counter::MissBytes);
    let block = world.zero(608);
    assert!(is_zero(&world.zone, &block));
    assert_eq!(world.count(Counter::MissBytes), misses + bytes(608));
    assert_eq!(world.count(Counter::VerifyFailures), 1, "said once");
    world.zone.free(block);
}

#[test]
fn after_trust_is_lost_what_lies_on_the_zero_lists_is_cleared_too() {
    let mut world = World::with(1, |config| config.verify = Verify::Full);
    for _ in 0..3 {
        let blocks = [(); 3].map(|()| world.zero(SMALL));
        blocks.into_iter().for_each(|block| world.soil(block));
    }
    world.scrub();
    assert_eq!(world.count(Counter::Refiles), 3);
    (0..HUGE_PAGES)
        .map(PageId)
        .filter(|&p| world.zone.pool.map.state(p) == PageState::Zero)
        .for_each(|page| world.fill(page, 1, 0x66));

    let blocks = [(); 3].map(|()| world.zero(SMALL));

    assert!(blocks.iter().all(|block| is_zero(&world.zone, block)));
    blocks.into_iter().for_each(|block| world.zone.free(block));
    world.assert_sound();
}

#[test]
fn a_sample_finds_a_scribbler_sooner_or_later() {
    let mut world = World::with(1, |config| config.verify = Verify::Sample);
    world.stock_zero(SMALL);
    for _ in 0..100_000 {
        if !world.zone.trust.is_whole() {
            break;
        }
        let block = world.zone.only_zero(SMALL, ANY).unwrap();
        let first = block.first();
        world.zone.free_zeroed(block);
        world.fill(first, SMALL, 0x66);
        // Undone before the next owner looks, unless the sample came first.
        if let Some(block) = world.zone.only_zero(SMALL, ANY) {
            world.fill(first, SMALL, 0);
            world.zone.free_zeroed(block);
        }
    }
    assert!(world.count(Counter::VerifyFailures) > 0);
}

/// A world of which every block was in use and went back to the kernel.
fn released(swaps: bool) -> World {
    let world = World::with(4, |config| config.verify = Verify::Full);
    world.fake().set_swap(swaps);
    let block = world.zero(4 * HUGE_PAGES);
    world.soil(block);
    world.zone.reclaim();
    assert_eq!(world.zone.snapshot().gauges.absent_bytes, bytes(4 * HUGE_PAGES));
    world
}

#[test]
fn absent_pages_that_were_written_to_are_found_however_they_are_scattered() {
    for swaps in [false, true] {
        for step in [1, 2, 3, 7, 15, 16, 64, 511] {
            let world = released(swaps);
            for page in (0..4 * HUGE_PAGES).step_by(step) {
                world.fill(PageId(page), 1, 0x66);
            }

            let block = world.zero(4 * HUGE_PAGES);

            assert!(is_zero(&world.zone, &block), "every {step}th page");
            assert!(world.count(Counter::VerifyFailures) > 0, "every {step}th page");
            world.zone.free(block);
        }
    }
}

#[test]
fn an_absent_page_that_was_written_to_and_swapped_out_is_found() {
    let world = released(true);
    world.fill(PageId(700), 1, 0x66);
    world.fake().swap_out(PageId(700));

    let block = world.zero(4 * HUGE_PAGES);

    assert!(is_zero(&world.zone, &block));
    assert_eq!(world.count(Counter::VerifyFailures), 1);
    world.zone.free(block);
}

#[test]
fn absent_pages_are_found_where_the_kernel_does_not_say_what_is_resident() {
    let world = released(false);
    world.fake().residencies.refuse(Fault::Always);
    world.fill(PageId(700), 1, 0x66);

    let block = world.zero(4 * HUGE_PAGES);

    assert!(is_zero(&world.zone, &block));
    assert_eq!(world.count(Counter::VerifyFailures), 1);
    world.zone.free(block);
}

#[test]
fn absent_pages_that_are_read_back_stay_absent() {
    for swaps in [false, true] {
        let world = released(swaps);
        let before = world.fake().releases.made();
        let block = world.zero(4 * HUGE_PAGES);
        assert!(is_zero(&world.zone, &block));
        assert_eq!(world.count(Counter::AbsentBytes), 2 * bytes(4 * HUGE_PAGES));
        assert_eq!(world.fake().releases.made() > before, swaps, "what is read is given back");
        world.zone.free(block);
    }
}
