//! What happens when a page that should be zero is not.

use super::super::world::{World, is_zero};
use super::{ANY, SMALL, bytes};
use crate::config::Verify;
use crate::count::counters::Counter;
use crate::mem::states::PageState;
use crate::units::{HUGE_PAGES, PageId};

#[test]
fn a_scribbled_zero_page_ends_all_trust() {
    let mut world = World::with(2, |config| config.verify = Verify::Full);
    world.stock_zero(600);
    let victim = (0..1024).map(PageId).find(|&p| world.zone.pool.states.get(p) == PageState::Zero);
    world.fill(victim.unwrap(), 1, 0x66);

    let block = world.zero(600);

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
    let block = world.zero(600);
    assert!(is_zero(&world.zone, &block));
    assert_eq!(world.count(Counter::MissBytes), misses + bytes(600));
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
    assert_eq!(world.zone.snapshot().gauges.quicklist_zero_bytes, bytes(3 * SMALL));
    (0..HUGE_PAGES)
        .map(PageId)
        .filter(|&p| world.zone.pool.states.get(p) == PageState::Zero)
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
