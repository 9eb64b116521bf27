//! Pages that stay where they are while others watch them. The backing panics where one leaves unheard.

use std::time::Duration;

use super::super::fake::pass;
use super::super::world::{World, holds};
use super::ANY;
use crate::config::NoMoveMode;
use crate::count::counters::Counter;
use crate::policy::Throttle;
use crate::units::{HUGE_PAGES, PageId};

/// Pages that are resident.
fn held(world: &World) -> u32 {
    (0..world.zone.pages()).filter(|&page| world.fake().holds(PageId(page))).count() as u32
}

/// A world whose first `huge` huge blocks are resident and free.
fn idle(no_move: NoMoveMode, huge: u32) -> World {
    let world = World::with(32, |config| {
        config.no_move = no_move;
        config.decay = Duration::from_secs(1);
    });
    world.soil(world.plain(huge * HUGE_PAGES));
    world
}

/// All that would make pages leave: memory is short, it idles for long, a block grows, a large one is brought together.
fn tempt(world: &mut World) {
    world.zone.reclaim();
    for _ in 0..40 {
        pass(100_000_000);
        world.work(Throttle::Normal);
    }
    world.work(Throttle::Pressed);
}

#[test]
fn watched_pages_are_not_given_back_and_then_they_are() {
    let mut world = idle(NoMoveMode::Auto, 4);
    world.fake().watch(true);
    tempt(&mut world);
    assert_eq!((held(&world), world.count(Counter::BackingErrors)), (4 * HUGE_PAGES, 0));
    world.zone.pool.hide_idle();
    assert_eq!(
        world.fake().lazily_freed(),
        [(0, 4)],
        "the kernel may have what no device was told of"
    );

    world.fake().watch(false);
    tempt(&mut world);
    assert_eq!(held(&world), 0);
    world.assert_sound();
}

#[test]
fn watched_blocks_are_copied_when_they_grow() {
    let world = idle(NoMoveMode::Auto, 2);
    world.fake().watch(true);
    let block = world.plain(2 * HUGE_PAGES);
    let behind = world.plain(HUGE_PAGES);
    world.fill(block.first(), 2 * HUGE_PAGES, 9);

    let grown = world.zone.grow_elsewhere(block, 3 * HUGE_PAGES, ANY).unwrap();

    assert!((0..2 * HUGE_PAGES).all(|n| holds(&world.zone, grown.first().plus(n), 9)));
    assert_eq!(world.fake().moves.made(), 0);
    [grown, behind].into_iter().for_each(|block| world.zone.free(block));
    world.assert_sound();
}

#[test]
fn who_knows_better_is_heeded() {
    for (stay, asks, watched, stays) in [
        (NoMoveMode::Auto, false, false, false),
        (NoMoveMode::Auto, true, false, true),
        (NoMoveMode::On, false, false, true),
        (NoMoveMode::Off, true, false, false),
    ] {
        let mut world = idle(stay, 4);
        world.fake().watch(watched);
        if asks {
            world.zone.no_move();
        }
        tempt(&mut world);
        assert_eq!(held(&world) > 0, stays, "{stay:?}, asks: {asks}");
    }
    let world = idle(NoMoveMode::Off, 4);
    assert!(!world.zone.pool.must_not_move());
    world.fake().watch(true);
    assert!(!world.zone.pool.must_not_move(), "at the user's own risk");
}
