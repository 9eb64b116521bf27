//! Forks, and the block in scrubd's hands.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::super::fake::{Fault, pass};
use super::super::world::{RESTED_NS, World, holds, is_zero};
use super::{ANY, SMALL, bytes};
use crate::block::Run;
use crate::clear::{Cache, ClearEngine};
use crate::count::counters::Counter;
use crate::cpu::cache::CpuCache;
use crate::map::state::PageState;
use crate::policy::Throttle;
use crate::pool::isolate::Isolated;
use crate::pool::scrubbing::Scrubbing;
use crate::units::{HUGE_PAGES, PageId, Span};
use crate::zone::isolate::Remembers;
use crate::zone::resize::Grown;

#[test]
fn a_block_cleared_while_a_fork_begins_is_not_called_zero() {
    let world = World::new(1);
    let block = world.zero(SMALL);
    world.fill(block.first(), SMALL, 1);
    let first = block.first();
    world.zone.free(block);
    let mark = world.zone.pool.scrubbing.mark();

    world.before_fork();
    assert_eq!(world.zone.pool.publish_zero(Span::new(first, SMALL), mark), 0, "under way");
    assert_eq!(
        world.zone.pool.publish_zero(Span::new(first, SMALL), world.zone.pool.scrubbing.mark()),
        0,
        "begun in it"
    );
    world.after_fork_in_parent();
    assert_eq!(world.zone.pool.publish_zero(Span::new(first, SMALL), mark), 0, "one came between");
    assert_eq!(world.tally().zero, 0);
}

#[test]
fn two_forks_at_once_are_both_seen() {
    let world = World::new(1);
    world.soil(world.zero(SMALL));
    let first = PageId(0);
    world.before_fork();
    world.before_fork();
    assert_eq!(
        world.zone.pool.publish_zero(Span::new(first, SMALL), world.zone.pool.scrubbing.mark()),
        0
    );
    world.after_fork_in_parent();
    assert_eq!(
        world.zone.pool.publish_zero(Span::new(first, SMALL), world.zone.pool.scrubbing.mark()),
        0
    );
    world.after_fork_in_parent();
    world.fill(first, SMALL, 0);
    assert_eq!(
        world.zone.pool.publish_zero(Span::new(first, SMALL), world.zone.pool.scrubbing.mark()),
        SMALL
    );
}

#[test]
fn while_a_fork_is_under_way_nothing_becomes_zero_and_afterwards_it_does() {
    let mut world = World::new(1);
    world.soil(world.zero(SMALL));
    pass(RESTED_NS);
    world.before_fork();
    for _ in 0..10 {
        world.scrubber.step(&world.zone, Throttle::Normal);
    }
    let block = world.zero(SMALL);
    world.zone.free_zeroed(block);
    assert_eq!(world.tally().zero, 0);

    world.after_fork_in_parent();
    world.scrub();

    assert_eq!(world.tally().zero, SMALL);
    world.assert_sound();
}

/// Huge blocks that no child would get.
fn hidden(world: &World) -> u32 {
    let all = 0..world.zone.pages() / HUGE_PAGES;
    all.filter(|huge| world.fake().is_hidden(PageId(huge * HUGE_PAGES))).count() as u32
}

/// A world of eight huge blocks that are free and hold something.
fn idle() -> World {
    let world = World::new(8);
    world.soil(world.plain(8 * HUGE_PAGES));
    world
}

#[test]
fn idle_memory_is_kept_from_the_child_and_comes_back_to_the_parent() {
    let world = idle();

    world.before_fork();
    assert_eq!(hidden(&world), 8);
    world.after_fork_in_parent();

    let small = world.zero(SMALL);
    assert_eq!(hidden(&world), 7, "what is handed out is shown");
    let large = world.plain(3 * HUGE_PAGES);
    assert_eq!(hidden(&world), 4);
    assert!((0..large.pages()).all(|n| !world.fake().is_hidden(large.first().plus(n))));
    world.before_fork();
    assert_eq!(hidden(&world), 4, "a run of no length is not worth it");
    world.after_fork_in_parent();
    let mut large = world.zone.shorten_to(large, HUGE_PAGES);
    world.before_fork();
    assert_eq!(hidden(&world), 6, "the tail joins what is hidden");
    world.after_fork_in_parent();
    assert_eq!(world.zone.try_grow(&mut large, 2 * HUGE_PAGES), Grown::Yes);
    assert_eq!(hidden(&world), 5);
    world.zone.free(small);
    world.zone.free(large);
    world.assert_sound();
}

#[test]
fn the_child_finds_absent_what_was_hidden() {
    let world = idle();
    let small = world.plain(SMALL);
    world.fill(small.first(), SMALL, 0x77);

    world.before_fork();
    world.fake().fork();
    world.after_fork_in_child();
    assert_eq!(world.fake().releases.made(), 0, "a child that calls exec next waits for nothing");
    world.zone.take_over();

    assert!((0..SMALL).all(|n| holds(&world.zone, small.first().plus(n), 0x77)));
    assert_eq!(world.zone.pool.map.sums.resident(), HUGE_PAGES - SMALL, "what was split is copied");
    let block = world.zero(2 * HUGE_PAGES);
    assert!(is_zero(&world.zone, &block) && hidden(&world) == 5, "and its children get it");
    world.assert_sound();
    world.zone.free(block);
    world.zone.free(small);
}

#[test]
fn memory_that_the_kernel_will_not_show_is_not_handed_out() {
    let world = idle();
    world.before_fork();
    world.after_fork_in_parent();
    world.fake().shows.refuse(Fault::Always);

    assert!(world.zone.plain(2 * HUGE_PAGES, ANY).is_none());
    assert!(world.zone.zero(SMALL, ANY).is_none());

    world.fake().shows.refuse(Fault::Never);
    let block = world.zero(8 * HUGE_PAGES);
    assert_eq!(hidden(&world), 0);
    world.zone.free(block);
    world.assert_sound();
}

#[test]
fn where_hiding_fails_in_the_middle_it_is_undone() {
    let world = idle();
    world.fake().hides.refuse(Fault::Always);
    world.before_fork();
    assert_eq!(hidden(&world), 0);
    world.fake().fork();
    world.after_fork_in_child();
    world.assert_sound();
}

#[test]
fn where_hiding_cannot_be_undone_nothing_is_lost_or_taken_for_hidden() {
    let world = idle();
    world.fake().hides.refuse(Fault::Always);
    world.fake().shows.refuse(Fault::Nth(1));
    world.before_fork();
    assert_eq!(hidden(&world), 2, "of the half that was hidden a quarter was shown again");
    world.fake().fork();
    world.after_fork_in_child();
    world.assert_sound();

    let block = world.zero(8 * HUGE_PAGES);
    assert!(is_zero(&world.zone, &block) && hidden(&world) == 0);
    world.zone.free(block);
}

/// An engine whose clears a request interrupts: it asks for the block during the clear of this number.
struct Interrupted<'a> {
    scrubbing: &'a Scrubbing,
    clears: AtomicU32,
}

// SAFETY: writes zeroes to exactly the range.
#[allow(unsafe_code)]
unsafe impl ClearEngine for Interrupted<'_> {
    fn name(&self) -> &'static str {
        "interrupted"
    }
    fn cache(&self) -> Cache {
        Cache::Cached
    }
    unsafe fn clear(&self, dst: NonNull<u8>, len: usize) {
        // SAFETY: the caller owns the range.
        unsafe { dst.write_bytes(0, len) };
        if self.clears.fetch_sub(1, Relaxed) == 1 {
            assert!(!self.scrubbing.gives_way(self.scrubbing.moment()), "its thread is this one");
        }
    }
}

/// Isolates a dirty huge block as scrubd does, and clears it until a request interrupts the second piece.
fn isolated_half_cleared(world: &World) -> Isolated {
    world.soil(world.zero(HUGE_PAGES));
    world.zone.reclaim();
    let first = world.zone.plain(HUGE_PAGES, ANY).unwrap().first();
    world.fill(first, HUGE_PAGES, 0x11);
    let (span, pool) = (Span::new(first, HUGE_PAGES), &world.zone.pool);
    pool.map.set(span, PageState::Dirty);
    let mut isolated = pool.isolate_by(|| Some(Run::taken(span))).unwrap();
    let scrubbing = &pool.scrubbing;
    pool.clear_isolated(&mut isolated, &Interrupted { scrubbing, clears: AtomicU32::new(2) });
    isolated
}

fn publish(world: &World, isolated: Isolated) -> u32 {
    let pool = &world.zone.pool;
    pool.publish(isolated, |run| pool.put_as_it_was(run))
}

#[test]
fn the_child_of_a_fork_gets_the_isolated_block_and_believes_none_of_it() {
    let world = World::new(1);
    let _lost_with_the_thread = isolated_half_cleared(&world);
    world.before_fork();

    world.after_fork_in_child();
    world.zone.take_over();

    world.assert_sound();
    assert_eq!(world.tally().dirty, HUGE_PAGES);
    let block = world.zero(HUGE_PAGES);
    assert!(is_zero(&world.zone, &block));
    assert_eq!(world.count(Counter::ZeroRequests), 1, "its counters are its own");
    world.zone.free(block);
}

#[test]
fn the_waits_of_its_parent_bring_the_child_of_a_fork_no_scrubd() {
    let world = World::new(1);
    world.soil(world.zero(SMALL));
    world.soil(world.zero(SMALL));
    assert_eq!(world.zone.own_misses(), 1, "the second was cleared in line");

    world.before_fork();
    world.after_fork_in_child();
    assert_eq!(world.zone.own_misses(), 0);
    world.zone.take_over();
    assert_eq!(world.zone.own_misses(), 0);
    world.soil(world.zero(SMALL));
    assert_eq!(world.zone.own_misses(), 1, "its own");
}

#[test]
fn the_child_of_a_fork_does_not_put_back_what_was_being_put_back() {
    let world = World::new(1);
    let isolated = isolated_half_cleared(&world);

    world.zone.pool.publish(isolated, |run| {
        world.zone.pool.put_as_it_was(run);
        // The fork comes before scrubd says so.
        world.before_fork();
        world.after_fork_in_child();
    });

    world.assert_sound();
    let block = world.zero(HUGE_PAGES);
    assert!(world.zone.zero(1, ANY).is_none(), "one owner");
    world.zone.free(block);
}

#[test]
fn a_block_that_a_request_asked_for_is_zero_as_far_as_scrubd_came() {
    let world = World::new(1);
    let cleared = publish(&world, isolated_half_cleared(&world));

    let block = world.zero(HUGE_PAGES);

    assert_eq!(cleared, 64, "two pieces");
    assert!(is_zero(&world.zone, &block));
    assert_eq!(world.count(Counter::MissBytes), bytes(HUGE_PAGES - cleared));
    world.zone.free(block);
    world.assert_sound();
}

#[test]
fn a_block_whose_clearing_met_a_fork_is_cleared_again() {
    let world = World::new(1);
    let isolated = isolated_half_cleared(&world);
    world.before_fork();
    world.after_fork_in_parent();
    assert_eq!(publish(&world, isolated), 0);

    let block = world.zero(HUGE_PAGES);

    assert_eq!(world.count(Counter::MissBytes), bytes(HUGE_PAGES));
    assert!(is_zero(&world.zone, &block));
    world.zone.free(block);
}

#[test]
fn the_child_makes_what_was_hidden_absent_in_as_few_calls_as_there_are_runs() {
    let world = World::new(32);
    let (low, kept) = (world.plain(8 * HUGE_PAGES), world.plain(HUGE_PAGES));
    let high = world.plain(16 * HUGE_PAGES);
    [low, high].into_iter().for_each(|block| world.soil(block));
    world.before_fork();
    world.fake().fork();
    world.after_fork_in_child();
    let before = world.fake().releases.made();
    world.zone.take_over();
    assert_eq!(world.fake().releases.made() - before, 2, "one on each side of what is in use");
    assert_eq!(world.tally().dirty, 0);
    world.zone.free(kept);
    world.assert_sound();
}

#[test]
fn the_child_of_a_fork_counts_losses_of_its_own_alone() {
    let world = World::new(1);
    world.zone.cpu().counters.add(Counter::UnusedZeroBytes, 1 << 20);
    world.before_fork();
    world.after_fork_in_child();
    world.zone.take_over();
    world.zone.pool.counters.add_exact(Counter::UnusedZeroBytes, 10 * 4096);
    assert_eq!(world.zone.seen().lost, 10);
}

#[test]
fn the_child_of_a_fork_clears_for_no_cpu_that_its_parent_alone_used() {
    let world = World::new(1);
    world.zone.cpus.iter().for_each(|cpu| cpu.counters.bump(Counter::Frees));
    world.before_fork();
    world.after_fork_in_child();
    world.zone.take_over();
    assert!(!world.zone.cpus.iter().any(CpuCache::was_used));
    assert!(!world.zone.lacks_zero_hints(|_| 1));
}

#[test]
fn a_process_has_stats_of_its_own_unless_they_are_its_parents() {
    let world = World::new(1);
    assert!(world.zone.has_own_stats(), "of no request, too: that is its last word");
    world.zone.cpu().counters.bump(Counter::Frees);
    world.before_fork();
    world.after_fork_in_child();
    assert!(!world.zone.has_own_stats(), "what its parent counted is no word of the child");
    world.zone.take_over();
    assert!(world.zone.has_own_stats());
}

/// Fresh memory is made resident without being shown, also where the last unit has fewer huge blocks than others.
#[test]
fn the_child_of_a_fork_finds_absent_what_was_made_resident_for_no_block() {
    for huge in 0..4 {
        let world = World::new(4).in_units(3);
        let pool = &world.zone.pool;
        let span = Span::new(PageId(huge * HUGE_PAGES), SMALL);
        let isolated = pool.isolate(span).unwrap();
        assert_eq!(pool.populate_isolated(&isolated), SMALL);
        world.zone.publish(isolated, Remembers::Nobody);
        world.before_fork();
        world.fake().fork();
        world.after_fork_in_child();
        assert!(world.zone.only_zero(SMALL, ANY).is_none(), "{huge}");
        world.assert_sound();
    }
}
