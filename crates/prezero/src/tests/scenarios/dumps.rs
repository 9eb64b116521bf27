//! What a core dump has.

use super::super::fake::{Fake, Fault};
use super::super::world::{World, config, holds};
use super::ANY;
use crate::units::{HUGE, HUGE_PAGES, PageId};

/// Huge blocks that no dump has.
fn hidden(world: &World) -> u32 {
    let all = 0..world.zone.pages() / HUGE_PAGES;
    all.filter(|huge| world.fake().is_hidden(PageId(huge * HUGE_PAGES))).count() as u32
}

#[test]
fn a_dump_has_what_was_handed_out_and_no_more() {
    let world = World::new(16);
    assert_eq!(hidden(&world), 16);

    let (small, large) = (world.zero(16), world.plain(3 * HUGE_PAGES));

    assert_eq!(hidden(&world), 12);
    for block in [small.into_dirty(), large] {
        assert!(!world.fake().is_hidden(block.first()));
        world.zone.free(block);
    }
    world.assert_sound();
}

#[test]
fn idle_memory_is_hidden_until_it_is_used_again() {
    let world = World::new(16);
    world.soil(world.plain(8 * HUGE_PAGES));
    assert_eq!(hidden(&world), 8);

    world.zone.pool.hide_idle();
    assert_eq!(hidden(&world), 16);

    let block = world.plain(2 * HUGE_PAGES);
    assert_eq!(hidden(&world), 14);
    world.zone.free(block);
}

#[test]
fn memory_that_came_back_untouched_is_hidden_too() {
    let world = World::new(16);
    let (small, untouched) = (world.plain(16), world.plain(15 * HUGE_PAGES));
    world.zone.free(untouched);

    world.zone.pool.hide_idle();

    assert_eq!(hidden(&world), 15);
    world.zone.free(small);
}

#[test]
fn where_no_mapping_can_be_split_all_is_dumped() {
    let world = World::new(16);
    world.fake().shows.refuse(Fault::Nth(1));

    let block = world.plain(HUGE_PAGES);
    assert_eq!(hidden(&world), 0);

    world.soil(world.plain(8 * HUGE_PAGES));
    world.zone.pool.hide_idle();
    assert_eq!(hidden(&world), 0);
    world.zone.free(block);
    world.assert_sound();
}

#[test]
fn where_no_mapping_can_be_split_what_the_zone_reaches_for_is_dumped_too() {
    let world = World::of(Fake::growing(16 * HUGE, 2 * HUGE), &config(16, |_| {}));
    world.fake().shows.refuse(Fault::Nth(1));
    let blocks = [world.plain(HUGE_PAGES), world.plain(4 * HUGE_PAGES)];
    assert_eq!(hidden(&world), 0);
    blocks.into_iter().for_each(|block| world.zone.free(block));
}

#[test]
fn a_kernel_that_hides_nothing_is_asked_once() {
    let fake = Fake::new(16 * HUGE);
    fake.hides.refuse(Fault::Always);
    let world = World::of(fake, &config(16, |_| {}));
    let (hides, shows) = (world.fake().hides.made(), world.fake().shows.made());
    for _ in 0..3 {
        world.soil(world.plain(8 * HUGE_PAGES));
        world.before_fork();
        world.after_fork_in_parent();
        world.zone.pool.hide_idle();
    }
    assert_eq!((world.fake().hides.made(), world.fake().shows.made()), (hides, shows));
}

#[test]
fn memory_that_the_kernel_would_leave_out_is_not_handed_out() {
    let world = World::new(16);
    world.fake().shows.refuse(Fault::Always);
    assert!(world.zone.plain(HUGE_PAGES, ANY).is_none());

    world.fake().shows.refuse(Fault::Never);
    let block = world.plain(HUGE_PAGES);
    world.fill(block.first(), HUGE_PAGES, 7);
    assert!(holds(&world.zone, block.first(), 7) && !world.fake().is_hidden(block.first()));
    world.zone.free(block);
}

#[test]
fn a_child_whose_pages_must_stay_gives_none_of_them_back() {
    let world = World::new(16);
    let (kept, soiled) = (world.plain(HUGE_PAGES), world.plain(8 * HUGE_PAGES));
    world.soil(soiled);
    world.zone.pool.hide_idle();
    // All is shown from then on, and bits stay.
    world.fake().shows.refuse(Fault::Nth(1));
    let block = world.plain(HUGE_PAGES);
    world.fake().watch(true);

    world.before_fork();
    world.fake().fork();
    world.after_fork_in_child();
    world.zone.take_over();

    assert_eq!(world.fake().releases.made(), 0);
    world.assert_sound();
    [kept, block].into_iter().for_each(|block| world.zone.free(block));
}
