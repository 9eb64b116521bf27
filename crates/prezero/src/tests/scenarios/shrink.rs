//! Address space that the zone reaches for, and that it gives up.

use super::super::fake::{Fake, Fault, pass};
use super::super::world::{World, config, holds, is_zero};
use super::{ANY, bytes};
use crate::block::{Block, Dirty};
use crate::policy::Throttle;
use crate::units::{HUGE, HUGE_PAGES, Order, PageId};
use crate::zone::resize::Grown;

const HUGES: u32 = 16;

fn is_unmapped(world: &World, page: u32) -> bool {
    world.zone.is_unmapped(PageId(page))
}

#[test]
fn retreat_leaves_what_is_in_use_and_the_lowest_of_what_is_free() {
    let mut world = World::new(HUGES as usize);
    let used = world.zero(3 * HUGE_PAGES);
    world.fill(used.first(), used.pages(), 7);
    // Idle, dirty and zero: a gone page counts with neither.
    world.soil(world.zero(9 * HUGE_PAGES));
    world.scrub();

    world.shrink(5 * HUGE);

    let left = (0..HUGES).filter(|huge| !is_unmapped(&world, huge * HUGE_PAGES)).count();
    assert_eq!(left, 5);
    assert!((0..used.pages()).all(|n| !is_unmapped(&world, used.first().0 + n)));
    assert!((0..used.pages()).all(|n| holds(&world.zone, used.first().plus(n), 7)));
    let gauges = world.zone.snapshot().gauges;
    assert_eq!(gauges.zone_bytes, bytes(5 * HUGE_PAGES));
    assert_eq!(gauges.allocated_bytes, bytes(used.pages()));
    assert_eq!(world.zone.pool.used(), used.pages());
    world.assert_sound();

    // The pages left serve on, and no others.
    let more = world.zero(2 * HUGE_PAGES);
    assert!(is_zero(&world.zone, &more) && !is_unmapped(&world, more.first().0));
    assert!(world.zone.zero(1, super::ANY).is_none(), "all that is left is in use");
    world.soil(more);
    world.soil(used);
    world.scrub();
    world.zone.reclaim();
    assert_eq!(world.zone.snapshot().gauges.allocated_bytes, 0);
    world.assert_sound();
    world.shrink(0);
    assert!((0..HUGES * HUGE_PAGES).all(|page| is_unmapped(&world, page)));
}

#[test]
fn gone_pages_are_none_of_the_foreign_ones() {
    let world = World::new(HUGES as usize);
    let used = world.plain(3 * HUGE_PAGES);
    world.mark_remapped(used.first().plus(5), 7);
    world.shrink(6 * HUGE);
    let mut remapped = Vec::new();
    world.zone.each_remapped(|first, pages| remapped.push((first, pages)));
    assert_eq!(remapped, [(used.first(), 16)]);
    world.zone.free(used);
    world.assert_sound();
}

#[test]
fn address_space_that_the_kernel_does_not_take_stays() {
    let world = World::new(HUGES as usize);
    world.fake().unmaps.refuse(Fault::Always);
    world.shrink(0);
    assert!((0..HUGES * HUGE_PAGES).all(|page| !is_unmapped(&world, page)));
    let all = world.zero(HUGES * HUGE_PAGES);
    assert!(is_zero(&world.zone, &all));
    world.soil(all);
    world.assert_sound();
}

/// A zone that has a number of its 64 huge blocks mapped.
fn growing(mapped: u32) -> World {
    let fake = Fake::growing(64 * HUGE, mapped as usize * HUGE);
    World::of(fake, &config(64, |_| {}))
}

fn mapped(world: &World) -> u64 {
    world.zone.snapshot().gauges.zone_bytes / HUGE as u64
}

#[test]
fn a_zone_reaches_as_far_as_requests_need_and_twice_as_far_each_time() {
    let world = growing(2);
    assert_eq!(mapped(&world), 2);
    let first = world.zero(2 * HUGE_PAGES);
    assert_eq!(mapped(&world), 2, "there was room");
    let second = world.zero(5);
    assert_eq!(mapped(&world), 4);
    let third = world.zero(20 * HUGE_PAGES);
    assert!(is_zero(&world.zone, &third));
    assert_eq!(mapped(&world), 24);
    for block in [first, second, third] {
        world.fill(block.first(), block.pages(), 0x77);
        world.zone.free(block);
    }
    let extends = world.fake().extends.made();
    let again = world.zero(20 * HUGE_PAGES);
    assert!(is_zero(&world.zone, &again));
    assert_eq!(world.fake().extends.made(), extends, "there is room");
    world.zone.free(again);
    world.assert_sound();
}

#[test]
fn an_aligned_block_is_reached_for() {
    let world = growing(1);
    let align = Order::new(13).unwrap();
    let block = world.zone.zero(16 * HUGE_PAGES, align).unwrap();
    assert!(block.first().is_aligned(align) && is_zero(&world.zone, &block));
    world.zone.free(block);
    world.assert_sound();
}

#[test]
fn what_others_have_mapped_is_left_alone_and_reached_past() {
    let world = growing(4);
    world.fake().occupy(10);
    let all = world.zero(4 * HUGE_PAGES);
    let next = world.zero(6 * HUGE_PAGES);
    assert_eq!(next.first(), PageId(4 * HUGE_PAGES), "as much as there is before it");
    assert!(world.zone.zero(54 * HUGE_PAGES, ANY).is_none(), "others have a part of it");
    assert!(is_unmapped(&world, 10 * HUGE_PAGES));
    [all, next].into_iter().for_each(|block| world.zone.free(block));
    world.assert_sound();
}

#[test]
fn a_zone_that_gets_no_more_address_space_asks_once() {
    let world = growing(4);
    world.fake().extends.refuse(Fault::Always);
    assert!(world.zone.zero(5 * HUGE_PAGES, ANY).is_none());
    let asked = world.fake().extends.made();
    assert!(world.zone.zero(6 * HUGE_PAGES, ANY).is_none());
    assert_eq!(world.fake().extends.made(), asked);
    let rest = world.zero(4 * HUGE_PAGES);
    world.zone.free(rest);
    world.assert_sound();
}

#[test]
fn a_zone_that_retreated_reaches_no_further() {
    let world = growing(4);
    world.shrink(4 * HUGE);
    assert!(world.zone.zero(5 * HUGE_PAGES, ANY).is_none());
    assert_eq!(mapped(&world), 4);
}

/// A zone of which a request had 40 huge blocks, one of which is still in use. What is free is absent.
fn after_a_peak() -> (World, Block<Dirty>) {
    let world = growing(4);
    let kept = world.plain(HUGE_PAGES);
    world.fill(kept.first(), kept.pages(), 7);
    let peak = world.zero(40 * HUGE_PAGES);
    world.fill(peak.first(), peak.pages(), 0x77);
    world.zone.free(peak);
    assert!(mapped(&world) > 40);
    (world, kept)
}

/// All that is free goes back to the kernel, by its age.
fn idle_for_long(world: &mut World) {
    for _ in 0..3 {
        pass(20_000_000_000);
        world.work(Throttle::Normal);
    }
}

#[test]
fn address_space_leaves_with_idle_memory_and_is_reached_for_again() {
    let (mut world, kept) = after_a_peak();
    world.zone.pool.trim();
    assert!(mapped(&world) > 40, "it holds something");
    for _ in 0..2 {
        idle_for_long(&mut world);
        assert_eq!(mapped(&world), 4);
        assert!(holds(&world.zone, kept.first(), 7));
        assert_eq!(world.zone.pool.used(), kept.pages());
        world.assert_sound();

        let again = world.zero(40 * HUGE_PAGES);
        assert!(is_zero(&world.zone, &again));
        assert!(!world.fake().is_hidden(again.first()));
        world.fill(again.first(), again.pages(), 0x55);
        world.zone.free(again);
    }
    world.zone.free(kept);
    world.assert_sound();
}

#[test]
fn address_space_stays_where_it_is_in_use_refused_or_watched() {
    let (mut world, kept) = after_a_peak();
    let high = world.zero(30 * HUGE_PAGES);
    idle_for_long(&mut world);
    let had = mapped(&world);
    assert!(had > 40, "half of it is in use");
    world.zone.free(high);

    world.zone.reclaim();
    world.fake().watch(true);
    world.zone.pool.trim();
    assert_eq!(mapped(&world), had, "others remember what lies there");
    world.fake().watch(false);
    world.fake().unmaps.refuse(Fault::Always);
    world.zone.pool.trim();
    assert_eq!(mapped(&world), had, "the kernel refused");
    let again = world.zero(40 * HUGE_PAGES);
    assert!(is_zero(&world.zone, &again));
    [again.into_dirty(), kept].into_iter().for_each(|block| world.zone.free(block));
    world.assert_sound();
}

#[test]
fn a_block_that_grows_gets_a_place_and_room_behind_it() {
    let world = growing(8);
    let mut block = world.plain(3 * HUGE_PAGES);
    let first = block.first();
    world.fill(first, block.pages(), 7);
    block = world.zone.grow_elsewhere(block, 4 * HUGE_PAGES, ANY).unwrap();
    let place = block.first();
    assert!(place.0 >= 32 * HUGE_PAGES, "in the upper half: {place:?}");
    for pages in [5, 6, 9, 20] {
        assert_eq!(world.zone.try_grow(&mut block, pages * HUGE_PAGES), Grown::Yes, "{pages}");
    }
    assert!((0..3 * HUGE_PAGES).all(|n| holds(&world.zone, place.plus(n), 7)));
    assert!(mapped(&world) < 64, "{}", mapped(&world));
    world.soil(block);
    world.assert_sound();
}

#[test]
fn a_zone_in_large_units_that_retreats_serves_what_it_kept() {
    for left in [2, 5] {
        let world = World::new(HUGES as usize).in_units(3);
        let used = world.plain(HUGE_PAGES);
        world.shrink(left * HUGE);
        let kept = mapped(&world) as u32 - 1;
        assert!(kept < HUGES - 3, "{kept}");
        let blocks: Vec<_> = (0..kept).map(|_| world.plain(HUGE_PAGES)).collect();
        assert!(blocks.iter().all(|block| !world.fake().is_hidden(block.first())));
        blocks.into_iter().chain([used]).for_each(|block| world.zone.free(block));
        world.assert_sound();
    }
}
