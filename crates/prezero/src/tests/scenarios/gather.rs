//! What the lists keep when the map is searched, and what it finds then.

use super::super::fake::pass;
use super::super::world::World;
use super::{ANY, SMALL, bytes};
use crate::units::{HUGE_PAGES, PageId};
use crate::zone::request::HOT_NS;

/// Two huge blocks that were written to, and in the first of them two small blocks that were
/// freed last.
fn freed_small_last() -> World {
    let world = World::new(2);
    world.soil(world.plain(2 * HUGE_PAGES));
    let small = [world.plain(SMALL), world.plain(SMALL)];
    assert!(small.iter().all(|block| block.first() < PageId(HUGE_PAGES)));
    small.into_iter().for_each(|block| world.soil(block));
    assert_eq!(listed(&world), 2 * bytes(SMALL));
    world
}

fn listed(world: &World) -> u64 {
    world.zone.snapshot().gauges.quicklist_hot_cold_bytes
}

#[test]
fn a_hot_block_stays_on_its_list() {
    let world = freed_small_last();

    let huge = world.plain(HUGE_PAGES);

    assert_eq!((huge.first(), listed(&world)), (PageId(HUGE_PAGES), 2 * bytes(SMALL)));
    world.zone.free(huge);
    world.assert_sound();
}

#[test]
fn a_cold_block_leaves_the_lists_and_the_block_around_it_is_whole() {
    for zero in [false, true] {
        let world = freed_small_last();
        pass(2 * HOT_NS);

        let huge = if zero { world.zero(HUGE_PAGES).into_dirty() } else { world.plain(HUGE_PAGES) };

        assert_eq!((huge.first(), listed(&world)), (PageId(0), 0));
        world.zone.free(huge);
        world.assert_sound();
    }
}

/// A request that finds nothing resident looks on all lists first, but not again and again. A block
/// that lies there soon after is on its way from one thread to another.
#[test]
fn for_small_requests_all_lists_are_emptied_once_in_a_while_for_large_ones_at_once() {
    let world = World::new(8);
    let free_one = || world.soil(world.plain(SMALL));
    let listed_after = |pages| {
        let block = world.plain(pages); // in use to the end
        world.fill(block.first(), pages, 1);
        listed(&world)
    };
    free_one();
    pass(2 * HOT_NS);
    assert_eq!(listed_after(2 * SMALL), 0);
    free_one();
    assert_eq!(listed_after(2 * SMALL), bytes(SMALL), "so soon");
    assert_eq!(listed_after(HUGE_PAGES + SMALL), 0, "no list serves it");
    free_one();
    pass(HOT_NS / 2);
    assert_eq!(listed_after(2 * SMALL), bytes(SMALL));
    pass(HOT_NS / 2 + (1 << 17));
    assert_eq!(listed_after(2 * SMALL), 0);
    world.assert_sound();
}

#[test]
fn it_is_no_older_for_that() {
    let world = freed_small_last();
    pass(2 * HOT_NS);
    let tick = world.zone.pool.clock.turn().tick;

    let huge = world.plain(2 * HUGE_PAGES);

    assert_eq!(world.zone.pool.map.freed_at(0), Some(tick), "it does not look idle");
    world.zone.free(huge);
}

#[test]
fn zero_blocks_stay_where_they_are_asked_for() {
    let mut world = World::new(4);
    world.stock_zero(HUGE_PAGES);
    let zero = world.zone.only_zero(SMALL, ANY).expect("there is a stock");
    world.soil(world.plain(2 * HUGE_PAGES));
    world.zone.free_zeroed(zero);
    pass(2 * HOT_NS);

    let huge = world.plain(HUGE_PAGES);

    assert_eq!(world.zone.snapshot().gauges.quicklist_zero_bytes, bytes(SMALL));
    world.zone.free(huge);
    world.assert_sound();
}
