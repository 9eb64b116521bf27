//! What each request hands out, and that zero state survives what lies between.
#![allow(unsafe_code)]

use super::super::fake::{Fake, now};
use super::super::world::{World, config, holds, is_zero};
use super::{ANY, SMALL, bytes, order};
use crate::clear::Use;
use crate::count::counters::Counter;
use crate::map::state::PageState;
use crate::map::state::Tally;
use crate::units::{HUGE, HUGE_PAGES, PAGE, PageId, Span};
use crate::waker::Change;
use crate::zone::resize::Grown;
use crate::zone::{Zone, ZoneError};

#[test]
fn a_half_zero_block_is_cleared_only_in_its_dirty_half() {
    let world = World::new(1);
    let block = world.zero(HUGE_PAGES);
    world.fill(block.first(), HUGE_PAGES, 7);
    let front = world.zone.shorten_to(block.into_dirty(), 208);
    // Zero by its owner's word, dirty behind it: then both merge.
    let (first, tail) = (front.first(), PageId(208));
    world.fill(first, 208, 0);
    // SAFETY: it was just cleared.
    let zero = unsafe { front.assume_zero() };
    world.zone.pool.map.set(Span::new(first, 208), PageState::Zero);
    world.zone.free_zeroed(zero);
    assert_eq!(world.states(tail, 304).dirty, 304);

    let whole = world.zero(HUGE_PAGES);

    assert!(is_zero(&world.zone, &whole));
    assert_eq!(world.count(Counter::MissBytes), bytes(304));
    assert_eq!(world.count(Counter::HitBytes), bytes(208));
    world.zone.free(whole);
    world.assert_sound();
}

#[test]
fn zero_state_survives_split_and_merge() {
    let mut world = World::new(1);
    world.stock_zero(HUGE_PAGES);

    let blocks: Vec<_> =
        [1, 3, 100, 40].map(|pages| world.zone.only_zero(pages, ANY).unwrap()).into();
    blocks.into_iter().for_each(|block| world.zone.free_zeroed(block));
    world.forget();

    let whole = world.zone.only_zero(HUGE_PAGES, ANY).expect("all of it is zero still");
    assert!(is_zero(&world.zone, &whole));
    world.zone.free(whole);
}

#[test]
fn a_small_block_is_refiled_and_remembered_as_zero() {
    let mut world = World::new(1);
    world.soil(world.zero(SMALL));

    world.scrub();

    assert_eq!(world.count(Counter::Refiles), 1);
    let block = world.zone.only_zero(SMALL, ANY).unwrap();
    assert!(is_zero(&world.zone, &block));
    world.zone.free(block);
}

#[test]
fn requests_for_what_is_zero_already_are_seen() {
    let world = World::new(1);
    assert!(world.zone.only_zero(SMALL, ANY).is_none(), "nothing is zero yet");
    assert_eq!(world.zone.seen().demand.iter().sum::<u64>(), u64::from(SMALL));
}

#[test]
fn only_zero_neither_clears_nor_asks_the_kernel() {
    let world = World::new(1);
    assert!(world.zone.only_zero(1, ANY).is_none(), "absent is not zero");
    world.soil(world.zero(HUGE_PAGES));

    assert!(world.zone.only_zero(1, ANY).is_none(), "dirty is not zero");
    assert!(world.zone.only_zero(HUGE_PAGES, ANY).is_none());

    assert_eq!(world.fake().populates.made(), 0);
    assert_eq!(world.tally().dirty, HUGE_PAGES);
    assert_eq!((world.count(Counter::MissBytes), world.count(Counter::Refused)), (0, 0));
}

#[test]
fn plain_takes_zero_last_of_what_is_resident() {
    let mut world = World::new(2);
    let dirty = world.plain(SMALL);
    world.stock_zero(SMALL);
    world.soil(dirty);

    let one = world.plain(SMALL);
    assert_eq!(world.count(Counter::WasteBytes), 0, "the dirty one comes first");
    let two = world.plain(SMALL);

    assert_eq!(world.count(Counter::WasteBytes), bytes(SMALL), "zero comes before absent");
    assert_eq!(world.states(two.first(), SMALL).absent, 0);
    let three = world.plain(SMALL);
    assert_eq!(world.states(three.first(), SMALL).absent, SMALL);
    [one, two, three].into_iter().for_each(|block| world.zone.free(block));
}

#[test]
fn a_block_among_absent_neighbours_is_found_wherever_it_begins() {
    let world = World::new(128);
    let below = world.plain(32 * HUGE_PAGES);
    let untouched = world.plain(5 * HUGE_PAGES);
    let block = world.plain(32 * HUGE_PAGES);
    let at = block.first();
    assert_eq!(at.huge(), 37);
    world.zone.free(untouched);
    world.soil(block);

    let again = world.zero(32 * HUGE_PAGES);
    assert_eq!(again.first(), at, "what is resident, though it begins at no step");
    assert_eq!(world.count(Counter::AbsentBytes), 0);
    world.zone.free(again);
    world.zone.free(below);
    world.assert_sound();
}

#[test]
fn pages_that_round_a_request_up_are_not_cleared_and_not_called_zero() {
    let world = World::new(1);
    for pages in [2 * SMALL, HUGE_PAGES] {
        let front = pages - SMALL + 1;
        for block in world.dirty_all(pages) {
            world.zone.free(block);
        }
        let before = world.count(Counter::MissBytes);

        let block = world.zone.zero_front(front, pages, ANY, Use::Unknown).unwrap();

        assert_eq!(world.count(Counter::MissBytes) - before, bytes(front));
        assert_eq!(block.zero_pages(), front);
        let block = block.into_dirty();
        let first = block.first();
        assert!((0..front).all(|n| holds(&world.zone, first.plus(n), 0)));
        assert!((front..pages).all(|n| holds(&world.zone, first.plus(n), 0xA5)));
        let front = front / SMALL * SMALL;
        assert_eq!(world.states(first.plus(front), pages - front).zero, 0, "nor in part");
        world.zone.free(block);
        assert_eq!(world.states(first, pages).dirty, pages, "nothing of it is known any more");
        let whole = world.zero(pages);
        assert!(is_zero(&world.zone, &whole));
        world.zone.free(whole);
        world.forget();
    }
    world.assert_sound();
}

#[test]
fn a_full_zone_returns_none_and_counts_it() {
    let world = World::new(1);
    let all = world.zero(HUGE_PAGES);

    assert!(world.zone.zero(1, ANY).is_none());
    assert!(world.zone.plain(1, ANY).is_none());
    assert!(world.zone.only_zero(1, ANY).is_none());

    assert_eq!(world.count(Counter::Refused), 2);
    world.zone.free(all);
    assert!(world.zone.zero(HUGE_PAGES + 1, ANY).is_none(), "more than there is");
    assert!(world.zone.zero(0, ANY).is_none());
    world.assert_sound();
}

#[test]
fn a_zone_has_whole_huge_blocks() {
    let config = config(1, |_| {});
    for bytes in [PAGE, HUGE + PAGE] {
        let made = Zone::with_clock(Fake::new(bytes), &config, now);
        assert!(matches!(made, Err(ZoneError::Size(n)) if n == bytes));
    }
}

#[test]
fn blocks_begin_where_they_are_asked_to() {
    let world = World::new(2);
    let odd = world.zero(1);
    let aligned = world.zone.zero(3, order(8)).unwrap();
    assert_eq!(aligned.first().0 % 256, 0);
    assert_ne!(aligned.first(), odd.first());
    world.zone.free(odd);
    world.zone.free(aligned);
    world.assert_sound();
}

#[test]
fn a_block_grows_and_shrinks_where_it_is() {
    let world = World::new(1);
    let mut block = world.zero(SMALL).into_dirty();
    world.fill(block.first(), SMALL, 9);

    assert_eq!(world.zone.try_grow(&mut block, 300), Grown::Yes);
    assert_eq!(block.pages(), 304, "whole slices");
    let behind = world.zone.plain(1, ANY).unwrap();
    let shorter = world.zone.shorten_to(block, 20);

    assert!((0..SMALL).all(|n| holds(&world.zone, shorter.first().plus(n), 9)));
    assert_eq!(world.zone.snapshot().gauges.allocated_bytes, bytes(3 * SMALL));
    let mut blocked = shorter;
    assert_eq!(world.zone.try_grow(&mut blocked, HUGE_PAGES + 1), Grown::No, "past the end");
    world.fill(behind.first(), 1, 1);
    world.zone.free(blocked);
    world.zone.free(behind);
    world.assert_sound();
}

#[test]
fn growth_stops_at_the_next_owner_and_changes_nothing() {
    let world = World::new(1);
    let mut block = world.plain(16);
    let next = world.plain(16);
    assert_eq!(next.first(), block.first().plus(16), "the lowest address that is free");

    assert_eq!(world.zone.try_grow(&mut block, 17), Grown::No);

    assert_eq!(block.pages(), 16);
    world.assert_sound();
    world.zone.free(block);
    world.zone.free(next);
}

// Very large zones.

#[test]
fn the_last_slice_of_the_largest_zone_is_remembered() {
    use crate::config::MAX_LIMIT;
    use crate::mem::backing::Anonymous;
    // Address space only: nothing but the last huge block is ever touched.
    let Ok(backing) = Anonymous::reserve(MAX_LIMIT) else {
        eprintln!("skipped: no address space for {MAX_LIMIT} bytes");
        return;
    };
    let zone = Zone::new(backing, &config(1, |_| {})).unwrap();
    let last = PageId((MAX_LIMIT / PAGE) as u32 - SMALL);
    zone.pool.map.take(Span::new(last, SMALL)).unwrap().into_span();
    zone.pool.map.set(Span::new(last, SMALL), PageState::Dirty);
    // SAFETY: the slice was just taken.
    zone.free(unsafe { zone.adopt(last, SMALL) });

    let again = zone.plain(SMALL, ANY).expect("all that is resident");

    assert_eq!(again.first(), last);
}

#[test]
fn remembered_blocks_serve_requests_of_all_sizes() {
    let world = World::new(1);
    world.soil(world.zero(HUGE_PAGES));

    let block = world.zone.zero(HUGE_PAGES / 2, ANY).expect("the zone is empty");

    assert!(is_zero(&world.zone, &block));
    world.zone.free(block);
    world.assert_sound();
}

#[test]
fn pages_that_round_a_request_up_are_asked_about_once() {
    for (touched, asked, states) in [(138, 1, (160, 0)), (60, 2, (64, 96))] {
        let world = World::new(1);
        for _ in 0..2 {
            let block = world.plain(160);
            assert_eq!(block.first().0, 0);
            world.fill(block.first(), touched, 1);
            world.zone.free(block);
        }
        assert_eq!(world.fake().residencies.made(), asked, "{touched} pages touched of 160");
        let tally = world.states(PageId(0), 160);
        assert_eq!((tally.dirty, tally.absent), states);
    }
}

#[test]
fn a_buffer_whose_owner_uses_little_of_it_is_asked_about_once() {
    let world = World::new(2);
    let use_little = |pages| {
        let block = world.plain(pages);
        world.fill(block.first(), 1, 1);
        let first = block.first();
        world.zone.free(block);
        first
    };
    for (pages, asked) in [(64, 2), (1024, 6)] {
        let before = world.fake().residencies.made();
        let first = use_little(pages);
        (0..5).for_each(|_| assert_eq!(use_little(pages), first));
        let asked_now = world.fake().residencies.made() - before;
        assert_eq!(asked_now, asked, "{pages} pages; no list keeps 1024");
        world.zone.reclaim();
    }
    // Untouched pages of a block that was requested zero come back zero.
    for _ in 0..5 {
        let block = world.zero(64);
        assert!(is_zero(&world.zone, &block));
        world.fill(block.first(), 1, 1);
        world.zone.free(block);
        assert_eq!(world.tally().dirty, SMALL);
    }
    world.assert_sound();
}

/// A block of 34 MiB, of which a page in every `step` is written.
fn touch_every(world: &World, step: usize) -> Tally {
    let block = world.zero(17 * HUGE_PAGES);
    for n in (0..block.pages()).step_by(step) {
        world.fill(block.first().plus(n), 1, 7);
    }
    world.zone.free(block);
    world.tally()
}

#[test]
fn of_a_large_block_the_kernel_gets_back_what_is_dearer_to_clear_than_to_fault_in() {
    let world = World::new(20);
    assert_eq!(touch_every(&world, 9).dirty, 0);
    world.assert_sound();
    // Beyond an eighth, and as it is in smaller blocks: too scattered to tell apart.
    assert_eq!(touch_every(&world, 7).dirty, 17 * HUGE_PAGES);
    world.zone.reclaim();
    let block = world.zero(16 * HUGE_PAGES);
    world.fill(block.first(), 1, 7);
    world.zone.free(block);
    assert_eq!(world.tally().dirty, SMALL, "here each slice counts");
    world.assert_sound();
}

#[test]
fn blocks_that_stay_all_but_untouched_are_looked_at_now_and_then() {
    let world = World::new(20);
    (0..4).for_each(|_| assert_eq!(touch_every(&world, 100).dirty, 0));
    let asked = world.fake().residencies.made();
    (0..3).for_each(|_| assert_eq!(touch_every(&world, 100).dirty, 0));
    assert_eq!(world.fake().residencies.made(), asked);
    world.assert_sound();
    let filled = (0..8).position(|_| touch_every(&world, 1).dirty > 0);
    assert!(filled.is_some(), "a look finds that they are filled now");
    world.assert_sound();
}

#[test]
fn a_call_without_scrubd_that_panics_leaves_a_zone_that_may_have_one() {
    let world = World::new(1);
    let call = || world.zone.without_scrubd(Change::Rights, || panic!("the call"));
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).is_err());
    assert!(!world.zone.waker.is_unwanted());
}
