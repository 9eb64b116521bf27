//! What goes back to the kernel, and what owners did behind the zone's back.

use std::time::Duration;

use super::super::fake::{Fault, pass};
use super::super::world::{World, holds, is_zero};
use super::{ANY, SMALL, bytes};
use crate::count::counters::Counter;
use crate::map::state::Tally;
use crate::policy::Throttle;
use crate::pool::purge::age::{IDLE_LEAST, IDLE_SHARE};
use crate::pool::purge::lazy_free::Allowance;
use crate::units::{HUGE, HUGE_PAGES, PageId};

#[test]
fn decay_releases_what_idles_and_not_what_is_in_use() {
    let mut world = World::with(4, |config| config.decay = Duration::from_secs(1));
    let used = world.zero(7 * SMALL);
    world.fill(used.first(), 100, 3);
    // Idle: in the map, on a hot-cold list, and scrubbed.
    for pages in [700, SMALL, 17] {
        world.soil(world.zero(pages));
    }
    world.scrub();
    assert!(world.tally().zero > 0);

    for _ in 0..40 {
        pass(100_000_000);
        world.work(Throttle::Normal);
    }

    assert_eq!(world.zone.snapshot().gauges.absent_bytes, bytes(4 * HUGE_PAGES - 7 * SMALL));
    assert!((0..100).all(|n| holds(&world.zone, used.first().plus(n), 3)));
    assert!((0..100).all(|n| world.fake().holds(used.first().plus(n))));
    let held = (0..4 * HUGE_PAGES).filter(|&p| world.fake().holds(PageId(p))).count();
    assert_eq!(held, 100);
    world.zone.free(used);
    world.assert_sound();
}

#[test]
fn memory_beyond_the_allowance_is_offered_as_it_is_freed_and_as_it_is_cleared() {
    let mut world = World::new(8);
    assert_eq!(world.zone.pool.note_limit(Some(32 * HUGE as u64)), Allowance::Less);
    assert_eq!(world.zone.pool.allowance(), 2 * HUGE_PAGES);
    let blocks: Vec<_> = (0..4).map(|_| world.plain(HUGE_PAGES / 2)).collect();
    let large = world.plain(3 * HUGE_PAGES + 100);
    let in_use = world.zero(HUGE_PAGES - 100);
    world.fill(in_use.first(), in_use.pages(), 7);

    for block in blocks {
        world.soil(block);
    }
    assert_eq!(world.fake().lazily_freed(), [], "so much may idle");
    world.forget();
    world.soil(large);
    let lazily_freed = world.fake().lazily_freed();

    let sum: usize = lazily_freed.iter().map(|(_, n)| n).sum();
    assert!(sum >= 3, "{lazily_freed:?}");
    let used = in_use.first().huge();
    assert!(
        lazily_freed.iter().all(|&(first, n)| used < first || used >= first + n),
        "{lazily_freed:?}"
    );
    assert!((0..in_use.pages()).all(|n| holds(&world.zone, in_use.first().plus(n), 7)));
    world.wanted_before(4 * HUGE_PAGES);
    world.scrub();
    assert!(world.tally().zero > 0);
    assert!(
        world.fake().lazily_freed().len() > lazily_freed.len(),
        "what was cleared is lazily_freed again"
    );
    world.zone.free(in_use);
    world.assert_sound();
}

#[test]
fn a_lower_limit_counts_for_what_idles_already_and_none_for_nothing() {
    let world = World::new(4);
    world.soil(world.plain(3 * HUGE_PAGES));
    assert_eq!(world.fake().lazily_freed(), []);

    assert_eq!(world.zone.pool.note_limit(Some(64 * HUGE as u64)), Allowance::Less);
    world.zone.pool.lazy_free_all();
    assert_eq!(world.fake().lazily_freed(), [], "it may all idle");
    assert_eq!(world.zone.pool.note_limit(Some(16 * HUGE as u64)), Allowance::Less);
    world.zone.pool.lazy_free_all();
    assert_eq!(world.fake().lazily_freed(), [(0, 4)], "and what is absent beside it");

    assert_eq!(world.zone.pool.note_limit(None), Allowance::AsBefore);
    world.soil(world.plain(3 * HUGE_PAGES));
    assert_eq!(world.fake().lazily_freed().len(), 1);
}

/// What one burst left idle, out of a zone where nothing else is: pages.
fn idle_after(world: &mut World, pause_ns: u64) -> u64 {
    let block = world.plain(3 * HUGE_PAGES);
    world.soil(block);
    for _ in 0..8 {
        pass(pause_ns / 8);
        world.work(Throttle::Normal);
    }
    world.zone.snapshot().gauges.resident_dirty_bytes / bytes(1)
}

#[test]
fn dirty_memory_goes_soon() {
    let mut world = World::new(4);
    assert_eq!(idle_after(&mut world, 30_000_000), u64::from(3 * HUGE_PAGES));
    let idle: Vec<u64> = (0..6).map(|_| idle_after(&mut world, 120_000_000)).collect();
    assert_eq!(idle, [0; 6]);
}

/// On busy CPUs a thread that loses its CPU in a call keeps locks of the kernel's that the program may want.
#[test]
fn where_no_cpu_idles_memory_goes_once_the_program_is_quiet() {
    for mood in [Throttle::Crowded, Throttle::Unsure] {
        let mut world = World::new(8);
        world.zone.pool.clock.turn();
        let idle = |world: &World| world.zone.snapshot().gauges.resident_dirty_bytes / bytes(1);
        for _ in 0..30 {
            world.soil(world.plain(4 * HUGE_PAGES));
            pass(100_000_000);
            world.work(mood);
            assert_eq!(idle(&world), u64::from(4 * HUGE_PAGES), "it works, {mood:?}");
        }
        for _ in 0..30 {
            pass(100_000_000);
            world.work(mood);
        }
        assert_eq!(idle(&world), 0, "{mood:?}");
        world.assert_sound();
    }
}

#[test]
fn zeroes_stay_their_whole_time() {
    let mut world = World::with(4, |config| config.decay = Duration::from_secs(1));
    let pages = 2 * HUGE_PAGES;
    world.soil(world.zero(pages));
    world.scrub();
    assert_eq!(world.tally().zero, pages);
    pass(500_000_000);
    world.work(Throttle::Normal);
    assert_eq!(world.tally().zero, pages);
    pass(600_000_000);
    world.work(Throttle::Normal);
    assert_eq!(world.tally().zero, 0);
}

/// A stock of zeroes that is no longer wanted whole has dirty pages among the zero ones.
#[test]
fn a_dirty_page_does_not_take_the_zero_ones_with_it() {
    let mut world = World::new(4);
    let pages = 2 * HUGE_PAGES;
    world.soil(world.zero(pages));
    world.scrub();
    let block = world.zone.only_zero(SMALL, super::order(0)).unwrap();
    world.soil(block);
    assert_eq!(world.tally().zero, pages - SMALL);
    pass(200_000_000);
    world.work(Throttle::Resting);
    assert_eq!(world.tally().zero, pages - SMALL);
}

#[test]
fn idle_memory_makes_way_for_what_is_faulted_in() {
    let world = World::new(32);
    world.zone.never_move();
    let idle = world.plain(8 * HUGE_PAGES);
    let between = world.plain(1);
    world.soil(idle);

    let larger = world.plain(16 * HUGE_PAGES);

    let used = u64::from(16 * HUGE_PAGES + 1);
    let most = used / u64::from(IDLE_SHARE) + u64::from(IDLE_LEAST);
    let resident = world.zone.snapshot().gauges.resident_dirty_bytes / bytes(1);
    assert!(resident <= most, "{resident} pages");
    assert!(resident >= most - u64::from(HUGE_PAGES), "no more than must: {resident}");
    [between, larger].into_iter().for_each(|block| world.zone.free(block));
    world.assert_sound();
}

#[test]
fn as_much_makes_way_where_it_lies_in_pieces() {
    let world = World::new(64);
    world.soil(world.plain(16 * HUGE_PAGES));
    let halves: Vec<_> = (0..32).map(|_| world.plain(HUGE_PAGES / 2)).collect();
    let (held, idle): (Vec<_>, Vec<_>) =
        halves.into_iter().partition(|half| half.first().0.is_multiple_of(HUGE_PAGES));
    idle.into_iter().for_each(|half| world.soil(half));
    world.forget();
    assert_eq!((held.len(), world.zone.pool.map.sums.dirty()), (16, 8 * HUGE_PAGES));

    let larger = world.plain(24 * HUGE_PAGES);

    let most = 32 * HUGE_PAGES / IDLE_SHARE + IDLE_LEAST;
    let resident = world.zone.pool.map.sums.dirty();
    assert!(resident <= most, "{resident} pages, where {most} may be");
    held.into_iter().chain([larger]).for_each(|block| world.zone.free(block));
    world.assert_sound();
}

#[test]
fn memory_that_is_used_again_and_again_does_not_decay() {
    let mut world = World::with(1, |config| config.decay = Duration::from_secs(1));
    for _ in 0..100 {
        world.soil(world.zero(SMALL));
        pass(100_000_000);
        world.work(Throttle::Resting);
    }
    assert_eq!(world.count(Counter::ReleasedBytes), 0);
}

#[test]
fn under_pressure_everything_idle_goes_back_at_once() {
    let mut world = World::new(4);
    for pages in [1, SMALL, 17, 600] {
        world.soil(world.zero(pages));
    }
    let resident = world.tally().dirty;

    world.work(Throttle::Pressed);

    assert_eq!(world.tally().absent, 4 * HUGE_PAGES);
    assert!((0..4 * HUGE_PAGES).all(|p| !world.fake().holds(PageId(p))));
    assert_eq!(world.count(Counter::ReleasedBytes), bytes(resident));
    world.assert_sound();
}

#[test]
fn reclaim_gives_back_what_cpus_remember() {
    let world = World::new(1);
    world.soil(world.zero(SMALL));
    assert!(world.zone.reclaim());
    assert_eq!(world.tally().absent, HUGE_PAGES);
    assert!(!world.zone.reclaim(), "there is nothing left");
}

#[test]
fn a_refused_release_keeps_the_memory_and_brings_scrubd_to_rest() {
    let mut world = World::new(2);
    world.soil(world.zero(700));
    world.fake().releases.refuse(Fault::Always);

    world.work(Throttle::Pressed);

    assert!(world.count(Counter::BackingErrors) > 0);
    assert_eq!(world.count(Counter::ReleasedBytes), 0);
    world.assert_sound();
    let again = world.zero(700);
    assert!(is_zero(&world.zone, &again));
    world.zone.free(again);
}

#[test]
fn a_page_that_was_swapped_out_is_not_taken_for_untouched() {
    let world = World::new(1);
    let block = world.zero(64);
    let first = block.first();
    world.fill(first, 64, 0x5A);
    (0..64).for_each(|n| world.fake().swap_out(first.plus(n)));
    world.zone.free(block);
    world.assert_sound();

    let block = world.zero(HUGE_PAGES);

    assert!(is_zero(&world.zone, &block), "the kernel brought back what was swapped out");
    world.zone.free(block);
}

#[test]
fn pages_that_were_never_touched_stay_absent() {
    let world = World::new(1);
    let block = world.zero(64);
    world.fill(block.first(), 3, 1);
    world.zone.free(block);
    let absent = HUGE_PAGES - SMALL;
    assert_eq!(
        world.tally(),
        Tally { dirty: SMALL, absent, ..Tally::default() },
        "but for their slice"
    );
}

#[test]
fn if_the_kernel_will_not_tell_everything_counts_as_written() {
    let world = World::new(1);
    world.fake().residencies.refuse(Fault::Always);
    let block = world.zero(64);
    world.fill(block.first(), 64, 1);
    world.zone.free(block);
    let block = world.zero(64);
    assert!(is_zero(&world.zone, &block));
    world.zone.free(block);
    world.assert_sound();
}

#[test]
fn foreign_pages_are_replaced_when_their_block_comes_back() {
    let world = World::new(1);
    let block = world.zero(64);
    let first = block.first();
    world.fill(first, 64, 0x77);
    world.mark_remapped(first.plus(8), 4);

    world.zone.free(block);

    assert_eq!(world.fake().replaces.made(), 1);
    assert_eq!(world.tally(), Tally { dirty: 48, absent: 464, ..Tally::default() });
    assert!((0..SMALL).all(|n| holds(&world.zone, first.plus(n), 0)));
    world.assert_sound();
}

#[test]
fn foreign_pages_that_cannot_be_replaced_are_never_used_again() {
    let world = World::new(1);
    let block = world.zero(64);
    world.fill(block.first(), 64, 0x77);
    world.mark_remapped(block.first().plus(8), 4);
    world.fake().replaces.refuse(Fault::Always);

    world.zone.free(block);

    world.assert_sound();
    assert_eq!(world.tally().remapped, SMALL);
    assert_eq!(world.count(Counter::BackingErrors), 1);
    let mut all = Vec::new();
    while let Some(page) = world.zone.zero(1, ANY) {
        assert!(is_zero(&world.zone, &page));
        all.push(page);
    }
    assert_eq!(all.len() as u32 * SMALL, HUGE_PAGES - SMALL);
    all.into_iter().for_each(|page| world.zone.free(page));
}

#[test]
fn a_zero_block_with_foreign_pages_comes_back_as_zero_and_absent() {
    let world = World::new(1);
    let block = world.zero(64);
    world.mark_remapped(block.first(), 4);
    world.zone.free_zeroed(block);
    assert_eq!(world.fake().replaces.made(), 1);
    assert_eq!(world.tally().absent, HUGE_PAGES);
    world.assert_sound();
}

#[cfg(debug_assertions)]
#[test]
#[should_panic(expected = "free_zeroed")]
fn a_false_proof_is_caught_in_debug_builds() {
    let world = World::new(1);
    let block = world.zero(4);
    world.fill(block.first().plus(2), 1, 1);
    world.zone.free_zeroed(block);
}
