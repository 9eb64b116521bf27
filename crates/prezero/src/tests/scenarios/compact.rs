//! Large blocks out of free memory that lies in pieces.

use proptest::prelude::*;

use super::super::fake::{Fake, Fault, pass};
use super::super::world::{RESTED_NS, World, config, holds, is_zero};
use super::{ANY, bytes};
use crate::block::{Block, Dirty};
use crate::count::counters::Counter;
use crate::mem::states::PageState;
use crate::policy::Throttle;
use crate::sync::Ordering::Relaxed;
use crate::units::{HUGE, HUGE_PAGES, PageId};

const ZERO: PageState = PageState::Zero;
const DIRTY: PageState = PageState::Dirty;

/// `pieces` huge blocks that are free and zero, or dirty, between as many that are held.
fn in_pieces(world: &World, pieces: usize, kind: PageState) -> Vec<Block<Dirty>> {
    let all: Vec<_> = (0..2 * pieces).map(|_| world.zero(HUGE_PAGES)).collect();
    let (mut free, mut held) = (Vec::new(), Vec::new());
    for (n, block) in all.into_iter().enumerate() {
        world.fill(block.first(), HUGE_PAGES, 0);
        if n % 2 == 0 { free.push(block) } else { held.push(block.into_dirty()) }
    }
    for block in free {
        if kind == PageState::Zero { world.zone.free_zeroed(block) } else { world.soil(block) }
    }
    world.drain();
    held
}

fn end(world: &World, blocks: impl IntoIterator<Item = Block<Dirty>>) {
    blocks.into_iter().for_each(|block| world.zone.free(block));
    world.assert_sound();
}

#[test]
fn zeroes_that_lie_apart_serve_a_large_request() {
    let world = World::new(16);
    let held = in_pieces(&world, 4, ZERO);
    let misses = world.count(Counter::MissBytes);
    let absent = world.count(Counter::AbsentBytes);

    let block = world.zero(4 * HUGE_PAGES);

    assert!(is_zero(&world.zone, &block));
    assert_eq!(world.states(block.first(), 4 * HUGE_PAGES).zero, 4 * HUGE_PAGES);
    assert_eq!(world.count(Counter::AssembledBytes), bytes(4 * HUGE_PAGES));
    assert_eq!(world.count(Counter::Hits), 1);
    assert_eq!(
        [misses, absent],
        [Counter::MissBytes, Counter::AbsentBytes].map(|c| world.count(c))
    );
    assert_eq!(world.zone.pool.compaction.count(), 4);
    assert!(
        (0..4).all(|n| !world.fake().holds(PageId(2 * n * HUGE_PAGES))),
        "nothing stays behind"
    );
    world.assert_sound();
    end(&world, held.into_iter().chain([block.into_dirty()]));
}

#[test]
fn places_that_took_something_before_count_once() {
    let world = World::new(16);
    let held = in_pieces(&world, 4, ZERO);
    let first = world.zero(4 * HUGE_PAGES);
    let at = first.first();
    world.soil(first);
    world.zone.reclaim();
    end(&world, held);
    world.drain();
    let held = in_pieces(&world, 4, ZERO);
    let again = world.zero(4 * HUGE_PAGES);
    assert_eq!((again.first(), world.zone.pool.compaction.count()), (at, 4));
    end(&world, held.into_iter().chain([again.into_dirty()]));
}

/// Four huge blocks in a row between two that are held, all zero but for the first `dirty`; and four
/// that are zero and lie apart.
fn a_row_and_pieces(dirty: u32) -> (World, Vec<Block<Dirty>>) {
    let world = World::new(24);
    let mut row: Vec<_> = (0..6).map(|_| world.zero(HUGE_PAGES)).collect();
    let behind = row.pop();
    let before = row.remove(0);
    let mut held = in_pieces(&world, 4, ZERO);
    for (n, block) in (0..).zip(row) {
        world.fill(block.first(), HUGE_PAGES, 0);
        if n < dirty { world.soil(block) } else { world.zone.free_zeroed(block) }
    }
    world.drain();
    held.extend(behind.into_iter().chain([before]).map(Block::into_dirty));
    (world, held)
}

#[test]
fn a_row_that_is_resident_is_cleared_and_nothing_is_moved() {
    for dirty in [0, 1, 4] {
        let (world, held) = a_row_and_pieces(dirty);
        let block = world.zero(4 * HUGE_PAGES);
        assert!(is_zero(&world.zone, &block));
        assert_eq!(world.count(Counter::AssembledBytes), 0, "{dirty}");
        assert_eq!(world.count(Counter::MissBytes), bytes(dirty * HUGE_PAGES));
        end(&world, held.into_iter().chain([block.into_dirty()]));
    }
}

/// Three zero ones in a row come to four places of which the second is taken: in two moves.
#[test]
fn pages_in_the_way_stay() {
    let world = World::new(24);
    let mut row: Vec<_> = (0..6).map(|_| world.zero(HUGE_PAGES)).collect();
    let source = world.zero(3 * HUGE_PAGES);
    let between = world.zero(HUGE_PAGES);
    let held = [row.pop().unwrap(), row.remove(0), between].map(Block::into_dirty);
    let at = row[0].first();
    for block in [row.remove(1), source] {
        world.fill(block.first(), block.pages(), 0);
        world.zone.free_zeroed(block);
    }
    row.into_iter().for_each(|block| world.zone.free(block));
    world.drain();
    assert_eq!(world.states(at, 4 * HUGE_PAGES).absent, 3 * HUGE_PAGES);

    let block = world.zero(4 * HUGE_PAGES);

    assert_eq!((block.first(), world.fake().moves.made()), (at, 2));
    assert_eq!(world.states(at, 4 * HUGE_PAGES).zero, 4 * HUGE_PAGES);
    assert!((0..4 * HUGE_PAGES).all(|n| world.fake().holds(at.plus(n))));
    end(&world, held.into_iter().chain([block.into_dirty()]));
}

#[test]
fn hidden_memory_is_shown_before_it_moves() {
    let world = World::new(24);
    let (source, behind) = (world.zero(4 * HUGE_PAGES), world.zero(HUGE_PAGES).into_dirty());
    let from = source.first();
    world.fill(from, 4 * HUGE_PAGES, 0);
    world.zone.free_zeroed(source);
    world.zone.pool.advise_idle();
    assert!(world.fake().is_hidden(from));

    let block = world.zero(6 * HUGE_PAGES);

    assert_eq!(world.count(Counter::AssembledBytes), bytes(4 * HUGE_PAGES));
    let hidden = |n: &u32| world.fake().is_hidden(block.first().plus(n * HUGE_PAGES));
    assert_eq!((0..6).find(hidden), None);
    end(&world, [behind, block.into_dirty()]);
}

#[test]
fn the_kind_of_page_moves_along() {
    let world = World::of(Fake::in_small(24 * HUGE, 4), &config(24, |_| {}));
    let held = in_pieces(&world, 2, ZERO);
    let block = world.zero(2 * HUGE_PAGES);
    assert_eq!(world.count(Counter::AssembledBytes), bytes(2 * HUGE_PAGES));
    let small = |huge: usize| world.zone.pool.fresh.in_small.has(huge as u32);
    let at = block.first().huge();
    assert!(at >= 4 && small(at) && small(at + 1) && !small(at + 2));
    end(&world, held.into_iter().chain([block.into_dirty()]));
}

#[test]
fn dirty_pages_are_moved_rather_than_new_ones_faulted_in() {
    for zero in [false, true] {
        let world = World::new(16);
        let held = in_pieces(&world, 4, DIRTY);

        let block = if zero {
            let block = world.zero(4 * HUGE_PAGES);
            assert!(is_zero(&world.zone, &block));
            block.into_dirty()
        } else {
            world.plain(4 * HUGE_PAGES)
        };

        assert_eq!(world.states(block.first(), 4 * HUGE_PAGES).absent, 0);
        assert_eq!(world.count(Counter::AssembledBytes), bytes(4 * HUGE_PAGES));
        assert_eq!(world.tally().dirty + world.tally().zero, 4 * HUGE_PAGES, "no larger for it");
        end(&world, held.into_iter().chain([block]));
    }
}

#[test]
fn a_plain_request_leaves_zeroes_where_they_are() {
    let world = World::new(24);
    let held = in_pieces(&world, 3, DIRTY);
    let taken: Vec<_> = (0..3).map(|_| world.plain(HUGE_PAGES)).collect();
    let more = in_pieces(&world, 3, ZERO);
    taken.into_iter().for_each(|block| world.zone.free(block));
    world.drain();
    let block = world.plain(4 * HUGE_PAGES);
    assert_eq!(world.count(Counter::AssembledBytes), bytes(3 * HUGE_PAGES));
    assert_eq!(world.count(Counter::WasteBytes), 0);
    assert_eq!(world.states(block.first(), 4 * HUGE_PAGES).absent, HUGE_PAGES);
    end(&world, held.into_iter().chain(more).chain([block]));
}

#[test]
fn a_move_that_the_kernel_refuses_is_not_tried_again() {
    for refused in 1..=2 {
        let world = World::new(16);
        world.fake().together.store(u64::from(HUGE_PAGES), Relaxed);
        world.fake().moves.refuse(Fault::Nth(refused));
        let held = in_pieces(&world, 3, ZERO);

        let block = world.zero(3 * HUGE_PAGES);

        assert!(is_zero(&world.zone, &block));
        assert_eq!(world.count(Counter::AssembledBytes), bytes((refused - 1) * HUGE_PAGES));
        world.assert_sound();
        let again = world.zero(4 * HUGE_PAGES);
        assert_eq!(world.fake().moves.made(), u64::from(refused));
        end(&world, held.into_iter().chain([block, again].map(Block::into_dirty)));
    }
}

#[test]
fn moves_that_take_as_long_as_faults_rest_and_are_tried_again() {
    let world = World::new(128);
    let mut held = in_pieces(&world, 24, ZERO);
    let mut moves = |slow: bool| {
        let moved = world.count(Counter::AssembledBytes);
        world.fake().move_ns.store(if slow { 200_000 } else { 10_000 }, Relaxed);
        held.push(world.zero(2 * HUGE_PAGES).into_dirty());
        world.count(Counter::AssembledBytes) > moved
    };
    // The row is ended by one that is not slow, four make it full.
    for slow in [true, true, true, false, true, true, true, true] {
        assert!(moves(slow));
    }
    assert!(!moves(false));
    // A request looks once or twice.
    let rests = || (0..).take_while(|_| !world.zone.pool.compaction.may_try()).count();
    assert!((60..64).contains(&rests()));
    // One more that is slow and they rest again, one that is not and all are made.
    assert!(moves(true) && !moves(false));
    assert!((60..64).contains(&rests()));
    assert!(moves(false) && moves(true) && moves(false));
    end(&world, held);
}

#[test]
fn nothing_is_moved_where_mappings_must_stay_as_they_are() {
    let world = World::new(16);
    world.zone.never_move();
    let held = in_pieces(&world, 4, ZERO);
    let block = world.zero(4 * HUGE_PAGES);
    assert!(is_zero(&world.zone, &block));
    assert_eq!(world.fake().moves.made(), 0);
    end(&world, held.into_iter().chain([block.into_dirty()]));
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Zero(u32),
    Plain(u32),
    Free(usize),
    Scrub,
    Fork,
    Reclaim,
}

fn op() -> impl Strategy<Value = Op> {
    let pages = || (1..6 * HUGE_PAGES).prop_map(|n| n.next_multiple_of(HUGE_PAGES / 4));
    prop_oneof![
        4 => pages().prop_map(Op::Zero),
        2 => pages().prop_map(Op::Plain),
        5 => any::<usize>().prop_map(Op::Free),
        2 => Just(Op::Scrub),
        1 => Just(Op::Fork),
        1 => Just(Op::Reclaim),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// Every block keeps what its owner wrote, every zero one is zero, whatever moves about.
    #[test]
    fn owned_pages_stay_as_they_are(ops in prop::collection::vec(op(), 20..60), limit in 1..2000u64) {
        let mut world = World::new(20);
        world.fake().together.store(limit, Relaxed);
        let mut owned: Vec<(Block<Dirty>, u8)> = Vec::new();
        let mut forking = false;
        for (n, op) in ops.into_iter().enumerate() {
            let byte = n as u8 + 1;
            let taken = match op {
                Op::Zero(pages) => world.zone.zero(pages, ANY).map(|block| {
                    assert!(is_zero(&world.zone, &block));
                    block.into_dirty()
                }),
                Op::Plain(pages) => world.zone.plain(pages, ANY),
                Op::Free(which) if !owned.is_empty() => {
                    let (block, byte) = owned.swap_remove(which % owned.len());
                    let (first, pages) = (block.first(), block.pages());
                    assert!((0..pages).all(|n| holds(&world.zone, first.plus(n), byte)));
                    world.zone.free(block);
                    None
                }
                Op::Scrub => {
                    pass(RESTED_NS);
                    world.work(Throttle::Normal);
                    None
                }
                Op::Fork => {
                    if forking { world.after_fork_in_parent() } else { world.before_fork() }
                    forking = !forking;
                    None
                }
                Op::Reclaim => {
                    world.zone.reclaim();
                    None
                }
                Op::Free(_) => None,
            };
            if let Some(block) = taken {
                world.fill(block.first(), block.pages(), byte);
                owned.push((block, byte));
            }
            world.assert_sound();
        }
        for (block, byte) in owned {
            let (first, pages) = (block.first(), block.pages());
            assert!((0..pages).all(|n| holds(&world.zone, first.plus(n), byte)));
            world.zone.free(block);
        }
        world.assert_sound();
    }
}
