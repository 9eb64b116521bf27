//! Blocks that outgrow their place: where they go, and what they leave.

use super::super::fake::Fault;
use super::super::world::{World, config, holds};
use super::{ANY, SMALL, bytes};
use crate::block::{Block, Dirty};
use crate::count::counters::Counter;
use crate::map::state::Tally;
use crate::sync::Ordering::Relaxed;
use crate::tests::fake::Fake;
use crate::units::whole;
use crate::units::{HUGE, HUGE_PAGES, PageId, Span};
use crate::zone::resize::Grown;

impl World {
    /// A block whose pages hold 9, and a neighbour behind it.
    fn hemmed_in(&self, pages: u32) -> (Block<Dirty>, Block<Dirty>) {
        let block = self.plain(pages);
        self.fill(block.first(), pages, 9);
        let end = block.first().plus(pages);
        let neighbour = self.plain(if pages < HUGE_PAGES { pages } else { HUGE_PAGES });
        assert_eq!(neighbour.first(), end);
        (block, neighbour)
    }

    fn elsewhere(&self, block: Block<Dirty>, pages: u32) -> Block<Dirty> {
        let old = block.pages();
        let grown = self.zone.grow_elsewhere(block, pages, ANY).expect("the zone has room");
        assert_eq!(grown.pages(), whole(pages));
        self.assert_nines(grown.first(), old);
        grown
    }

    fn assert_nines(&self, first: PageId, pages: u32) {
        assert!((0..pages).all(|n| holds(&self.zone, first.plus(n), 9)));
    }

    fn free_all(&self, blocks: impl IntoIterator<Item = Block<Dirty>>) {
        blocks.into_iter().for_each(|block| self.zone.free(block));
        self.assert_sound();
    }
}

#[test]
fn a_block_that_outgrew_its_place_once_has_room_where_it_moves_to() {
    let world = World::new(256);
    let (block, neighbour) = world.hemmed_in(256);
    let (second, third) = world.hemmed_in(256);
    let (mut block, mut second) = (world.elsewhere(block, 257), world.elsewhere(second, 300));

    for pages in [512, 1024, 4096] {
        assert_eq!(world.zone.try_grow(&mut block, pages), Grown::Yes, "to {pages} pages");
    }
    assert_eq!(world.zone.try_grow(&mut second, 600), Grown::Yes);

    world.assert_nines(block.first(), 256);
    world.free_all([block, neighbour, second, third]);
}

#[test]
fn a_small_block_does_not_settle_behind_one_that_grows() {
    let world = World::new(256);
    let (block, neighbour) = world.hemmed_in(256);
    let mut block = world.elsewhere(block, 300);

    let small: Vec<_> = (0..40).map(|_| world.plain(SMALL)).collect();

    assert!(small.iter().all(|small| small.first() < world.zone.pool.places()));
    assert_eq!(world.zone.try_grow(&mut block, 2000), Grown::Yes);
    world.free_all(small.into_iter().chain([block, neighbour]));
}

#[test]
fn room_behind_blocks_that_grow_is_used_when_nothing_else_is_left() {
    let world = World::new(64);
    let (block, neighbour) = world.hemmed_in(256);
    let block = world.elsewhere(block, 300);
    let mut all = world.dirty_all(HUGE_PAGES);
    all.extend(world.dirty_all(SMALL));
    let behind = block.first().plus(304).0..block.first().plus(HUGE_PAGES).0;
    assert!(all.iter().any(|small| behind.contains(&small.first().0)));
    world.free_all(all.into_iter().chain([block, neighbour]));
}

#[test]
fn blocks_that_grow_side_by_side_halve_the_places_when_all_are_taken() {
    let world = World::new(256);
    let move_one = |_| world.zone.grow_elsewhere(world.plain(256), 257, ANY).unwrap();
    let mut blocks: Vec<_> = (0..40).map(move_one).collect();

    for pages in [400, 512] {
        for (n, block) in blocks.iter_mut().enumerate().take(32) {
            assert_eq!(world.zone.try_grow(block, pages), Grown::Yes, "{n} to {pages} pages");
        }
    }

    world.free_all(blocks);
}

#[test]
fn a_block_that_fits_nowhere_stays_as_it_is() {
    let world = World::new(2);
    let (block, neighbour) = world.hemmed_in(HUGE_PAGES);
    let first = block.first();
    let block = world.zone.grow_elsewhere(block, 900, ANY).expect_err("there is no room");
    assert_eq!((block.first(), block.pages()), (first, HUGE_PAGES));
    world.assert_nines(first, HUGE_PAGES);
    world.free_all([block, neighbour]);
}

#[test]
fn the_pages_of_a_large_block_move_and_leave_nothing_behind() {
    let world = World::new(64);
    let (block, neighbour) = world.hemmed_in(2 * HUGE_PAGES);
    let from = block.first();
    let freed = world.count(Counter::FreeBytes);

    let block = world.elsewhere(block, 3 * HUGE_PAGES);

    assert_eq!(world.count(Counter::MovedBytes), bytes(2 * HUGE_PAGES));
    assert_eq!(world.count(Counter::FreeBytes), freed, "it is the same block");
    let absent = Tally { absent: 2 * HUGE_PAGES, ..Tally::default() };
    assert_eq!(world.fake().replaces.made(), 1);
    assert_eq!(world.states(from, 2 * HUGE_PAGES), absent);
    assert!((0..2 * HUGE_PAGES).all(|n| !world.fake().holds(from.plus(n))));
    assert_eq!(world.zone.snapshot().gauges.allocated_bytes, bytes(4 * HUGE_PAGES));
    world.assert_sound();

    let at = block.first();
    world.zone.free(block);
    assert_eq!(world.fake().replaces.made(), 2, "its mapping is made as the zone's");
    assert_eq!(world.states(at, 3 * HUGE_PAGES).absent, 3 * HUGE_PAGES);
    world.free_all([neighbour]);
}

#[test]
fn pages_that_lie_in_several_mappings_move_in_several_calls() {
    let world = World::new(64);
    world.fake().together.store(100, Relaxed);
    let (block, neighbour) = world.hemmed_in(2 * HUGE_PAGES);
    let block = world.elsewhere(block, 3 * HUGE_PAGES);
    assert_eq!(world.fake().moves.made(), u64::from(2 * HUGE_PAGES).div_ceil(100));
    world.free_all([block, neighbour]);
}

#[test]
fn a_block_that_the_kernel_does_not_move_is_copied() {
    for refused in 1..=3 {
        let world = World::new(64);
        world.fake().together.store(u64::from(HUGE_PAGES), Relaxed);
        world.fake().moves.refuse(Fault::Nth(refused));
        let (block, neighbour) = world.hemmed_in(3 * HUGE_PAGES);
        let block = world.elsewhere(block, 4 * HUGE_PAGES);
        assert_eq!(world.count(Counter::MovedBytes), bytes((refused - 1) * HUGE_PAGES));
        assert_eq!(world.zone.snapshot().gauges.allocated_bytes, bytes(5 * HUGE_PAGES));
        (0..3 * HUGE_PAGES).for_each(|n| world.fake().touch(block.first().plus(n)));
        world.free_all([block, neighbour]);
    }
}

#[test]
fn a_block_moves_again_and_what_it_left_is_made_as_the_zones_at_once() {
    let world = World::new(64);
    let (block, neighbour) = world.hemmed_in(2 * HUGE_PAGES);
    let block = world.elsewhere(block, 3 * HUGE_PAGES);
    world.fill(block.first(), 3 * HUGE_PAGES, 9);
    let between = block.first();
    let block = world.elsewhere(block, 4 * HUGE_PAGES);
    assert_eq!(world.fake().replaces.made(), 2, "once for each place that it left");
    assert_eq!(world.states(between, 3 * HUGE_PAGES).absent, 3 * HUGE_PAGES);
    world.free_all([block, neighbour]);
    assert_eq!(world.fake().replaces.made(), 3);
}

#[test]
fn memory_that_is_resident_is_copied_to_and_stays_for_the_next() {
    let world = World::new(64);
    let resident = world.plain(3 * HUGE_PAGES);
    let (block, neighbour) = world.hemmed_in(2 * HUGE_PAGES);
    let at = resident.first();
    world.soil(resident);
    // Places come first, and are absent.
    let places = world.zone.pool.places();
    let taken = world.zone.pages() - places.0;
    let beyond = world.zone.pool.map.take(Span::new(places, taken)).unwrap();

    let block = world.elsewhere(block, 3 * HUGE_PAGES);

    assert_eq!((block.first(), world.fake().moves.made()), (at, 0));
    world.zone.pool.map.put(beyond);
    (0..2 * HUGE_PAGES).for_each(|n| world.fake().touch(at.plus(n)));
    world.free_all([block, neighbour]);
    assert!(world.tally().dirty >= 3 * HUGE_PAGES);
}

#[test]
fn moved_pages_are_of_the_kind_that_they_were() {
    let world = World::of(Fake::in_small(64 * HUGE, 64), &config(64, |_| {}));
    let (block, neighbour) = world.hemmed_in(16 * HUGE_PAGES);
    assert_eq!(world.fake().made_huge(), [(0, 16)]);
    let block = world.elsewhere(block, 17 * HUGE_PAGES);
    let at = block.first().huge() as u32;
    assert!(
        (at..at + 16).all(|huge| !world.zone.pool.fresh.in_small.has(huge)),
        "huge, where small were"
    );
    world.zone.free(block);
    assert!(
        (at..at + 16).all(|huge| world.zone.pool.fresh.in_small.has(huge)),
        "a fresh mapping is small"
    );
    world.free_all([neighbour]);
}

#[test]
fn a_fresh_mapping_is_huge_where_all_are() {
    let world = World::of(Fake::in_small(64 * HUGE, 16), &config(64, |_| {}));
    let (block, neighbour) = world.hemmed_in(2 * HUGE_PAGES);
    let block = world.elsewhere(block, 4 * HUGE_PAGES);
    let at = block.first().huge();
    assert!(
        at >= 16 && world.zone.pool.fresh.in_small.has(at as u32),
        "small pages went where huge ones are"
    );
    world.zone.free(block);
    assert!(!world.zone.pool.fresh.in_small.has(at as u32));
    assert_eq!(world.fake().made_huge(), [(at, 2)]);
    world.free_all([neighbour]);
}

#[test]
fn a_part_of_a_huge_block_that_is_mapped_afresh_is_as_the_rest_of_it() {
    let world = World::of(Fake::in_small(64 * HUGE, 16), &config(64, |_| {}));
    let block = world.plain(2 * HUGE_PAGES + SMALL);
    world.fill(block.first(), block.pages(), 9);
    let block = world.elsewhere(block, 4 * HUGE_PAGES);
    let at = block.first().huge();
    world.zone.free(block);
    assert_eq!(world.fake().made_huge(), [(at, 2), (at + 2, 0)], "the last in part");
    world.assert_sound();
}

#[test]
fn a_block_that_moves_counts_once_in_the_peak_in_use() {
    let world = World::new(64);
    let (block, neighbour) = world.hemmed_in(8 * HUGE_PAGES);
    let block = world.elsewhere(block, 12 * HUGE_PAGES);
    assert_eq!(world.zone.pool.purge.peak.load(Relaxed), 13 * HUGE_PAGES);
    world.free_all([block, neighbour]);
}

#[test]
fn memory_stays_with_a_program_that_grows_and_frees_again_and_again() {
    let world = World::new(64);
    for round in 0..8 {
        let block = world.plain(2 * HUGE_PAGES);
        world.fill(block.first(), 2 * HUGE_PAGES, 9);
        let block = world.elsewhere(block, 3 * HUGE_PAGES);
        assert_eq!(world.count(Counter::MovedBytes), bytes(2 * HUGE_PAGES) * (round + 1).min(4));
        world.fill(block.first(), 3 * HUGE_PAGES, 1);
        world.free_all([block]);
    }
    assert!(world.tally().dirty >= 3 * HUGE_PAGES);
}

#[test]
fn nothing_moves_where_mappings_must_stay_as_they_are() {
    let world = World::new(64);
    world.zone.never_move();
    let (block, neighbour) = world.hemmed_in(2 * HUGE_PAGES);
    let block = world.elsewhere(block, 3 * HUGE_PAGES);
    assert_eq!(world.fake().moves.made(), 0);
    world.zone.pool.came_back.note();
    world.fill(block.first(), block.pages(), 9);
    let block = world.elsewhere(block, 40 * HUGE_PAGES);
    assert_eq!(world.fake().moves.made(), 0, "whatever comes back later");
    world.free_all([block, neighbour]);
}

#[test]
fn a_block_that_moved_and_is_filled_does_not_count_as_untouched() {
    let world = World::of(Fake::in_small(64 * HUGE, 64), &config(64, |_| {}));
    for round in 1..=6 {
        let block = world.plain(16 * HUGE_PAGES);
        world.fill(block.first(), 16 * HUGE_PAGES, 9);
        let block = world.elsewhere(block, 17 * HUGE_PAGES);
        world.fill(block.first(), 17 * HUGE_PAGES, 1);
        world.free_all([block]);
        assert_eq!(world.fake().moves.made(), round);
    }
    assert_eq!(world.fake().made_small(), []);
}
