//! What a CPU remembers of blocks that were freed, and what becomes of it.

use super::super::world::{World, is_zero};
use super::{ANY, SMALL};
use crate::count::counters::Counter;
use crate::map::state::PageState;
use crate::units::{HUGE_PAGES, PageId, Span};

/// A block that was freed last comes first, though another one lies lower.
#[test]
fn the_block_that_was_freed_last_is_taken_first() {
    let world = World::new(1);
    let blocks = [(); 3].map(|()| world.plain(SMALL));
    let at = blocks.each_ref().map(|block| block.first());
    blocks.into_iter().for_each(|block| world.soil(block));

    let again = [(); 3].map(|()| world.plain(SMALL));

    assert_eq!(again.each_ref().map(|block| block.first()), [at[2], at[1], at[0]]);
    again.into_iter().for_each(|block| world.zone.free(block));
    world.assert_sound();
}

/// The map has the block all the time: another request may take it, and a hint of it is skipped then.
#[test]
fn a_hint_of_a_block_that_is_in_use_is_skipped() {
    let world = World::new(1);
    let small = [(); 2].map(|()| world.plain(SMALL));
    small.into_iter().for_each(|block| world.soil(block));
    let both = world.plain(2 * SMALL);
    assert_eq!(both.first(), PageId(0), "what is resident");

    let another = world.plain(SMALL);

    assert_eq!(another.first(), PageId(2 * SMALL));
    [both, another].into_iter().for_each(|block| world.zone.free(block));
    world.assert_sound();
}

/// A block may become zero, dirty or absent after its hint was written.
#[test]
fn what_a_hint_says_of_a_block_is_looked_at_again() {
    let mut world = World::new(1);
    world.stock_zero(SMALL);
    let block = world.zone.only_zero(SMALL, ANY).unwrap();
    let at = Span::new(block.first(), SMALL);
    world.zone.free_zeroed(block);
    let run = world.zone.pool.map.take(at).unwrap();
    world.zone.pool.map.set(at, PageState::Dirty);
    world.zone.pool.map.put(run);
    world.fill(at.first, SMALL, 0xA5);

    assert!(world.zone.only_zero(SMALL, ANY).is_none(), "a zero hint of a dirty block");
    let block = world.zero(SMALL);
    assert!(is_zero(&world.zone, &block));
    world.zone.free(block);
    world.assert_sound();
}

#[test]
fn hints_that_no_row_has_room_for_lose_no_block() {
    let mut world = World::new(4);
    world.stock_zero(2 * HUGE_PAGES);
    let many = 2 * HUGE_PAGES / SMALL;
    let take =
        || -> Vec<_> { (0..many).map(|_| world.zone.only_zero(SMALL, ANY).unwrap()).collect() };
    take().into_iter().for_each(|block| world.zone.free_zeroed(block));

    let again = take();

    assert!(again.iter().all(|block| is_zero(&world.zone, block)));
    again.into_iter().for_each(|block| world.zone.free(block));
    assert_eq!(world.count(Counter::MissBytes), 0);
    world.assert_sound();
}
