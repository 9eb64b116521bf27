//! Address space that is given up.

use super::super::fake::Fault;
use super::super::world::{World, holds, is_zero};
use super::bytes;
use crate::units::{HUGE, HUGE_PAGES, PageId};

const HUGES: u32 = 16;

fn is_gone(world: &World, page: u32) -> bool {
    world.zone.is_gone(PageId(page))
}

#[test]
fn retreat_leaves_what_is_in_use_and_the_lowest_of_what_is_free() {
    let mut world = World::new(HUGES as usize);
    let used = world.zero(3 * HUGE_PAGES);
    world.fill(used.first(), used.pages(), 7);
    // Idle, dirty and zero: a gone page counts with neither.
    world.soil(world.zero(9 * HUGE_PAGES));
    world.scrub();

    world.zone.retreat(5 * HUGE);

    let left = (0..HUGES).filter(|huge| !is_gone(&world, huge * HUGE_PAGES)).count();
    assert_eq!(left, 5);
    assert!((0..used.pages()).all(|n| !is_gone(&world, used.first().0 + n)));
    assert!((0..used.pages()).all(|n| holds(&world.zone, used.first().plus(n), 7)));
    let gauges = world.zone.snapshot().gauges;
    assert_eq!(gauges.zone_bytes, bytes(5 * HUGE_PAGES));
    assert_eq!(gauges.allocated_bytes, bytes(used.pages()));
    assert_eq!(world.zone.pool.used(), used.pages());
    world.assert_sound();

    // The pages left serve on, and no others.
    let more = world.zero(2 * HUGE_PAGES);
    assert!(is_zero(&world.zone, &more) && !is_gone(&world, more.first().0));
    assert!(world.zone.zero(1, super::ANY).is_none(), "all that is left is in use");
    world.soil(more);
    world.soil(used);
    world.scrub();
    world.zone.reclaim();
    assert_eq!(world.zone.snapshot().gauges.allocated_bytes, 0);
    world.assert_sound();
    world.zone.retreat(0);
    assert!((0..HUGES * HUGE_PAGES).all(|page| is_gone(&world, page)));
}

#[test]
fn gone_pages_are_none_of_the_foreign_ones() {
    let world = World::new(HUGES as usize);
    let used = world.plain(3 * HUGE_PAGES);
    world.mark_foreign(used.first().plus(5), 7);
    world.zone.retreat(6 * HUGE);
    let mut foreign = Vec::new();
    world.zone.each_foreign(|first, pages| foreign.push((first, pages)));
    assert_eq!(foreign, [(used.first().plus(5), 7)]);
    world.zone.free(used);
    world.assert_sound();
}

#[test]
fn address_space_that_the_kernel_does_not_take_stays() {
    let world = World::new(HUGES as usize);
    world.fake().give_ups.refuse(Fault::Always);
    world.zone.retreat(0);
    assert!((0..HUGES * HUGE_PAGES).all(|page| !is_gone(&world, page)));
    let all = world.zero(HUGES * HUGE_PAGES);
    assert!(is_zero(&world.zone, &all));
    world.soil(all);
    world.assert_sound();
}
