//! What scrubd clears, when, and how far.

use std::time::Duration;

use super::super::fake::{Fake, now, pass};
use super::super::world::{RESTED_NS, World, config, is_zero};
use super::{ANY, SMALL, bytes, order};
use crate::ablation::Ablation;
use crate::block::Run;
use crate::class::Class;
use crate::clock::REST_NS;
use crate::count::counters::Counter;
use crate::map::state::{PageState, Tally};
use crate::policy::{Step, Throttle};
use crate::units::{HUGE, HUGE_PAGES, MAX_ORDER, PAGE, PageId, Span};
use crate::zone::request::HOT_NS;

#[test]
fn the_highest_order_is_scrubbed_first() {
    let mut world = World::new(4);
    let blocks = world.dirty_all(HUGE_PAGES);
    let mut kept = Vec::new();
    for (n, block) in blocks.into_iter().enumerate() {
        if n == 0 {
            // A small dirty block at the lowest address, a huge one above.
            let block = world.zone.shorten_to(block, HUGE_PAGES - SMALL);
            kept.push(block);
        } else if n == 2 {
            let (first, dirty) = (block.first(), HUGE_PAGES);
            world.zone.pool.map.set(Span::new(first, dirty), PageState::Dirty);
            world.zone.put_to_pool(
                Run::taken(Span::new(first, dirty)),
                Tally { dirty, ..Tally::default() },
            );
        } else {
            kept.push(block);
        }
    }
    world.wanted_before(8 * HUGE_PAGES);

    assert_eq!(world.scrubber.step(&world.zone, Throttle::Normal), Step::Worked);

    assert_eq!(world.states(PageId(2 * HUGE_PAGES), HUGE_PAGES).zero, HUGE_PAGES);
    assert_eq!(world.states(PageId(HUGE_PAGES - SMALL), SMALL).dirty, SMALL);
    kept.into_iter().for_each(|block| world.zone.free(block));
    world.assert_sound();
}

#[test]
fn nothing_is_scrubbed_for_a_program_that_wants_no_zero() {
    let mut world = World::new(1);
    world.soil(world.plain(HUGE_PAGES));
    world.scrub();
    assert_eq!(world.tally().dirty, HUGE_PAGES);
}

#[test]
fn scrub_start_never_scrubs_nothing() {
    let mut world = World::with(2, |config| config.scrub_start = None);
    let blocks = world.grow(4, 64);
    blocks.into_iter().for_each(|block| world.soil(block));

    world.scrub();

    assert_eq!(world.tally().zero, 0);
    assert_eq!((world.count(Counter::ScrubbedBytes), world.fake().populates.made()), (0, 0));
}

#[test]
fn a_new_scrub_start_is_heeded_by_a_scrubd_at_work() {
    let mut world = World::new(8);
    // It comes to know what is asked for, and sets to work on that.
    for _ in 0..4 {
        let blocks: Vec<_> = (0..2).map(|_| world.zero(2 * HUGE_PAGES)).collect();
        blocks.into_iter().for_each(|block| world.soil(block));
        world.scrub();
    }
    let blocks: Vec<_> = (0..2).map(|_| world.zero(2 * HUGE_PAGES)).collect();
    blocks.into_iter().for_each(|block| world.soil(block));
    pass(RESTED_NS);
    world.work(Throttle::Resting);
    pass(RESTED_NS);
    assert_eq!(world.scrubber.step(&world.zone, Throttle::Normal), Step::Worked);
    let scrubbed = world.count(Counter::ScrubbedBytes);
    assert!(world.tally().dirty > 0, "there is more to do");

    // As large as no block of this zone.
    let config = config(8, |config| config.scrub_start = Some(MAX_ORDER));
    world.zone.tuning.set(&config);
    world.scrub();

    assert_eq!(world.count(Counter::ScrubbedBytes), scrubbed);
}

#[test]
fn no_more_lies_ready_than_the_cap_on_the_stock_allows() {
    for cap in [0, 3 * PAGE, 40 * PAGE, HUGE, 3 * HUGE] {
        let mut world = World::with(4, |config| config.stock = Some(cap));
        let blocks: Vec<_> = (0..8).map(|_| world.plain(64)).collect();
        blocks.into_iter().for_each(|block| world.soil(block));
        world.dirty_all(HUGE_PAGES).into_iter().for_each(|block| world.zone.free(block));
        world.wanted_before(4 * HUGE_PAGES);

        world.scrub();

        let zero = world.tally().zero as usize * PAGE;
        assert!(zero <= cap, "{zero} of {cap}");
        assert_eq!(zero > 0, cap >= SMALL as usize * PAGE, "{zero} of {cap}");
        world.assert_sound();
    }
}

#[test]
fn blocks_below_scrub_start_are_left_alone() {
    let mut world = World::with(1, |config| config.scrub_start = Some(order(6)));
    let all = world.dirty_all(16);
    // Every second block stays in use: nothing merges beyond order 4.
    let (keep, give): (Vec<_>, Vec<_>) = all.into_iter().partition(|b| b.first().0 / 16 % 2 == 0);
    give.into_iter().for_each(|block| world.zone.free(block));
    world.wanted_before(HUGE_PAGES);

    world.scrub();
    assert_eq!(world.tally().zero, 0, "order 4 is below it");

    keep.into_iter().for_each(|block| world.zone.free(block));
    world.scrub();
    assert!(world.tally().zero > 0, "merged they are above it");
    world.assert_sound();
}

#[test]
fn a_block_freed_just_now_is_not_touched() {
    let mut world = World::new(1);
    let blocks = [SMALL, 9 * SMALL].map(|pages| world.zero(pages));
    blocks.into_iter().for_each(|block| world.soil(block));

    pass(50_000);
    assert_eq!(world.work(Throttle::Normal), 0);
    assert_eq!((world.tally().zero, world.count(Counter::ScrubbedBytes)), (0, 0));

    world.scrub();
    assert_eq!(world.tally().zero, 10 * SMALL);
}

#[test]
fn a_program_that_frees_all_the_time_is_waited_for_until_what_it_left_is_hot_no_more() {
    let mut world = World::new(8);
    let (left, mut used) = (world.zero(2 * HUGE_PAGES), world.zero(2 * HUGE_PAGES));
    world.wanted_before(4 * HUGE_PAGES);
    world.soil(left);
    let began = now();
    while now() - began < HOT_NS {
        world.soil(used);
        assert_eq!(world.work(Throttle::Normal), 0, "after {} us", (now() - began) / 1000);
        used = world.zero(2 * HUGE_PAGES);
        pass(50_000);
    }
    world.soil(used);
    for _ in 0..4 {
        if world.work(Throttle::Normal) > 0 {
            break;
        }
        pass(50_000);
        world.soil(world.zero(2 * HUGE_PAGES));
    }
    assert_eq!(world.zone.pool.map.sums.zero(), 2 * HUGE_PAGES, "it did not come back to that");
}

#[test]
fn in_a_pause_what_was_freed_is_not_waited_for_longer_than_a_rest() {
    let mut world = World::new(8);
    let block = world.zero(2 * HUGE_PAGES);
    world.wanted_before(2 * HUGE_PAGES);
    world.soil(block);
    pass(3 * REST_NS);
    world.work(Throttle::Normal);
    assert_eq!(world.zone.pool.map.sums.zero(), 2 * HUGE_PAGES);
}

#[test]
fn a_resting_scrubd_clears_nothing() {
    let mut world = World::new(1);
    world.soil(world.zero(HUGE_PAGES));
    pass(RESTED_NS);
    assert_eq!(world.work(Throttle::Resting), 0);
    assert_eq!(world.tally().zero, 0);
}

/// Blocks that rested and are wanted zero, memory to fault in and to give back; and how often the kernel was
/// asked for either before they were freed.
fn with_everything_to_do() -> (World, u64, u64) {
    let mut world = World::with(2, |config| config.decay = Duration::ZERO);
    let blocks = world.grow(3, 32);
    let (populates, releases) = (world.fake().populates.made(), world.fake().releases.made());
    blocks.into_iter().for_each(|block| world.soil(block));
    pass(RESTED_NS);
    (world, populates, releases)
}

#[test]
fn an_unsure_scrubd_clears_and_asks_nothing_of_the_kernel() {
    let (mut world, populates, releases) = with_everything_to_do();

    let scrubbed = world.count(Counter::ScrubbedBytes);

    assert!(world.work(Throttle::Unsure) > 0);

    assert!(world.count(Counter::ScrubbedBytes) > scrubbed);
    assert_eq!(world.fake().populates.made(), populates);
    assert_eq!(world.fake().releases.made(), releases);
}

#[test]
fn a_scrubd_among_others_for_every_cpu_does_nothing() {
    let (mut world, populates, releases) = with_everything_to_do();
    let scrubbed = world.count(Counter::ScrubbedBytes);

    assert_eq!(world.work(Throttle::Crowded), 0);

    assert_eq!(world.count(Counter::ScrubbedBytes), scrubbed);
    assert_eq!(world.fake().populates.made(), populates);
    assert_eq!(world.fake().releases.made(), releases);

    assert!(world.work(Throttle::Unsure) > 0, "there was something to clear");
    // One look to see what lies on the lists, and one to see what lies there still.
    for _ in 0..2 {
        world.work(Throttle::Normal);
    }
    assert!(world.fake().releases.made() > releases, "and to give back");
}

#[test]
fn a_huge_block_of_small_pages_is_scrubbed_into_one_huge_page_once() {
    let mut world = World::in_small(4, 2);
    for round in 0..3 {
        world.soil(world.zero(3 * HUGE_PAGES));
        world.scrub();
        assert_eq!(world.tally().zero, 3 * HUGE_PAGES, "round {round}");
        assert_eq!(world.fake().made_huge(), [(0, 1), (1, 1)]);
    }
    let block = world.zone.only_zero(3 * HUGE_PAGES, ANY).unwrap();
    assert!(is_zero(&world.zone, &block));
    world.zone.free(block);
    world.assert_sound();
}

#[test]
fn a_large_block_is_faulted_in_whole_from_the_start() {
    let world = World::in_small(32, 16);
    let small = world.plain(7 * HUGE_PAGES + 1);
    assert_eq!(world.fake().made_huge(), []);
    let large = world.zero(10 * HUGE_PAGES + 1);
    assert_eq!((large.first().0, world.fake().made_huge()), (8 * HUGE_PAGES, vec![(8, 8)]));
    let larger = world.plain(9 * HUGE_PAGES);
    assert_eq!(world.fake().made_huge().len(), 1, "beyond they are huge already");
    [small, large.into_dirty(), larger].into_iter().for_each(|block| world.zone.free(block));
}

#[test]
fn a_block_that_fills_its_huge_blocks_is_faulted_in_whole_beyond_the_first() {
    let world = World::in_small(40, 40);
    let few = [(); 8].map(|()| world.plain(4 * HUGE_PAGES));
    assert_eq!(world.fake().made_huge(), [], "32 of them lie in small pages");
    let ragged = [80, 240, 320, HUGE_PAGES + 1].map(|pages| world.plain(pages));
    assert_eq!(world.fake().made_huge(), [], "each would leave memory unused");
    let whole = world.plain(2 * HUGE_PAGES);
    let half = world.plain(HUGE_PAGES / 2);
    let at = [&whole, &half].map(|block| block.first().huge());
    assert_eq!(world.fake().made_huge(), [(at[0], 2), (at[1], 1)]);
    few.into_iter().chain(ragged).chain([whole, half]).for_each(|block| world.zone.free(block));
    world.assert_sound();
}

#[test]
fn a_zone_without_huge_pages_gets_none_fresh_or_scrubbed() {
    let fake = Fake::in_small(64 * HUGE, 64);
    let mut world = World::of(fake, &config(64, |config| config.huge = false));
    let blocks = [32, 9, 2].map(|huge| world.plain(huge * HUGE_PAGES));
    assert_eq!(world.fake().made_huge(), []);
    blocks.into_iter().for_each(|block| world.zone.free(block));
    let pages = 3 * HUGE_PAGES;
    for _ in 0..3 {
        world.soil(world.zero(pages));
        world.scrub();
        assert!(world.tally().zero >= pages);
    }
    assert_eq!(world.fake().made_huge(), []);
    world.assert_sound();
}

#[test]
fn a_zone_of_odd_length_is_used_from_its_beginning() {
    let world = World::new(7);
    let blocks = [1, SMALL, 80, HUGE_PAGES / 2].map(|pages| world.plain(pages));
    assert!(blocks.iter().all(|block| block.first().huge() == 0), "{blocks:?}");
    blocks.into_iter().for_each(|block| world.zone.free(block));
}

#[test]
fn an_unsure_scrubd_leaves_small_pages_as_they_are() {
    let mut world = World::in_small(2, 2);
    let pages = 2 * HUGE_PAGES;
    world.soil(world.zero(pages));
    for _ in 0..2 {
        pass(RESTED_NS);
        world.work(Throttle::Unsure);
    }
    assert_eq!((world.tally().zero, world.fake().made_huge().len()), (pages, 0));
}

#[test]
fn memory_becomes_resident_for_small_blocks_that_lie_ready() {
    let mut world = World::with(4, |config| config.without = Ablation::read("cost-model").unwrap());
    let ready = 64 * Class::of(64).unwrap().slots() as u64;
    for _ in 0..6 {
        world.soil(world.zero(64));
        pass(3_000_000);
        world.work(Throttle::Normal);
    }
    let resident = |world: &World| {
        let gauges = world.zone.snapshot().gauges;
        gauges.resident_zero_bytes + gauges.resident_dirty_bytes
    };
    assert_eq!(resident(&world), bytes(ready as u32), "as much as lies ready, and no more");
    let misses = world.count(Counter::Misses);
    let blocks: Vec<_> = (0..4).map(|_| world.zero(64)).collect();
    assert_eq!(world.count(Counter::Misses), misses);
    blocks.into_iter().for_each(|block| world.soil(block));
    world.assert_sound();
}
