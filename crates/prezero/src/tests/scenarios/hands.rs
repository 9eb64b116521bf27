//! The block in the hand: who gets it, and who sees it.

use std::sync::atomic::Ordering::Relaxed;

use prezero_sys::thread;

use super::super::fake::pass;
use super::super::world::{RESTED_NS, World, is_zero};
use super::{ANY, SMALL, bytes};
use crate::clear::Use;
use crate::config::OnFree;
use crate::count::counters::Counter;
use crate::cpu::demand::BANDS;
use crate::cpu::hand_size::HandSize;
use crate::cpu::list::{BATCH, Class, Entry, Held};
use crate::mem::states::PageState;

#[test]
fn what_was_freed_last_comes_back_first_and_everything_is_counted() {
    let world = World::new(1);
    let first = world.plain(SMALL);
    let page = first.first();
    world.soil(first);
    let on_lists = |world: &World| {
        let lists = &world.zone.cpu().lists[Class::of(SMALL).unwrap().index()];
        lists.hot_cold.entries().count()
    };
    assert_eq!((world.zone.in_hand().count(), on_lists(&world)), (1, 0));

    let again = world.plain(SMALL);

    assert_eq!(again.first(), page);
    assert_eq!(world.zone.in_hand().count(), 0);
    let other = world.plain(SMALL);
    world.soil(again);
    world.soil(other);
    assert_eq!((world.zone.in_hand().count(), on_lists(&world)), (1, 1), "a hand holds one");
    let counted = |counter| world.count(counter);
    assert_eq!((counted(Counter::PlainRequests), counted(Counter::Frees)), (3, 3));
    assert_eq!(counted(Counter::FreeBytes), 3 * bytes(SMALL));
    world.assert_sound();
}

#[test]
fn a_request_for_zero_clears_what_is_in_hand() {
    let world = World::new(1);
    let block = world.zero(SMALL);
    let page = block.first();
    world.soil(block);
    assert_eq!(world.zone.in_hand().count(), 1);

    let again = world.zero(SMALL);

    assert_eq!(again.first(), page);
    assert!(is_zero(&world.zone, &again));
    assert_eq!(world.count(Counter::Misses), 1);
    world.zone.free(again);
    world.assert_sound();
}

#[test]
fn what_is_hot_in_hand_comes_before_zeroes_and_goes_back_as_it_is() {
    let mut world = World::new(1);
    let (hot, other) = (world.zero(SMALL), world.zero(SMALL));
    let page = hot.first();
    world.soil(other);
    world.scrub();
    let zeroes = world.tally().zero;
    assert!(zeroes >= SMALL, "{zeroes}");
    world.soil(hot);

    let again = world.zone.zero_front(SMALL, SMALL, ANY, Use::Unknown).unwrap();

    assert_eq!((again.is_from_hand(), world.count(Counter::Misses)), (true, 1));
    let again = again.into_dirty();
    assert_eq!(again.first(), page);
    assert!(is_zero(&world.zone, &again));
    assert!(world.zone.pool.states.all(page, SMALL, PageState::Dirty));
    assert_eq!(world.tally().zero, zeroes, "nobody took them");
    world.zone.free(again);
    assert_eq!(world.zone.in_hand().next().unwrap().0, page);
    world.assert_sound();
}

/// Demand, and returns of what was handed out zero, in pages.
fn account(world: &World) -> (u64, u64) {
    let demand = &world.zone.cpu().demand;
    let mut sums = [0; BANDS];
    demand.add_to(&mut sums);
    (sums.iter().sum(), demand.returned())
}

#[test]
fn what_is_lent_comes_back_to_the_hand_written_to_and_is_counted() {
    let mut world = World::new(1);
    let block = world.zero(SMALL);
    let page = block.first();
    world.soil(block);
    world.scrub();
    let size = HandSize::holding(bytes(SMALL) as usize).unwrap();
    let front = world.zone.zero_front(SMALL, SMALL, ANY, Use::Unknown).unwrap();
    assert_eq!((world.count(Counter::Hits), front.is_from_hand()), (1, false));
    let (wanted, returned) = account(&world);

    let block = world.zone.lend(front, size).unwrap();

    assert_eq!(block.first(), page);
    assert!(
        is_zero(&world.zone, &block) && world.zone.pool.states.all(page, SMALL, PageState::Dirty)
    );
    let (size, is_lent) = HandSize::remembered(size.lent_word()).unwrap();
    assert!(is_lent && HandSize::remembered_plainly(size.lent_word()).is_none());
    world.zone.note_returned(size);
    world.soil(block);
    assert_eq!(world.zone.in_hand().next().unwrap().0, page);
    assert_eq!(account(&world), (wanted, returned + u64::from(SMALL)), "once");
    world.assert_sound();
}

#[test]
fn what_was_cleared_in_line_is_not_lent() {
    let world = World::new(1);
    world.soil(world.zero(SMALL));
    grow_cold(&world);
    let size = HandSize::holding(bytes(SMALL) as usize).unwrap();

    let front = world.zone.zero_front(SMALL, SMALL, ANY, Use::Unknown).unwrap();

    let front = world.zone.lend(front, size).unwrap_err();
    assert!(world.zone.pool.states.all(front.into_dirty().first(), SMALL, PageState::Zero));
}

#[test]
fn what_is_to_be_cleared_when_it_is_freed_is_not_lent() {
    let world = World::with(1, |config| config.on_free = OnFree::Clear);
    world.soil(world.zero(SMALL));
    let size = HandSize::holding(bytes(SMALL) as usize).unwrap();

    let front = world.zone.zero_front(SMALL, SMALL, ANY, Use::Unknown).unwrap();

    assert_eq!(world.count(Counter::Hits), 1);
    assert!(world.zone.lend(front, size).is_err());
}

fn grow_cold(world: &World) {
    pass(10 * RESTED_NS);
    world.zone.pool.clock.turn();
}

#[test]
fn what_grew_cold_in_hand_serves_a_request_that_scrubd_might_have_served() {
    let world = World::new(1);
    let block = world.zero(SMALL);
    let page = block.first();
    world.soil(block);
    grow_cold(&world);
    let (wanted, returned) = account(&world);

    let again = world.zone.zero_front(SMALL, SMALL, ANY, Use::Unknown).unwrap();

    assert_eq!((again.is_from_hand(), world.count(Counter::Misses)), (false, 1));
    let again = again.into_dirty();
    assert_eq!(again.first(), page);
    assert!(is_zero(&world.zone, &again));
    assert!(world.zone.pool.states.all(page, SMALL, PageState::Zero));
    world.soil(again);
    let small = u64::from(SMALL);
    assert_eq!(account(&world), (wanted + small, returned + small));
    world.assert_sound();
}

#[test]
fn what_grew_cold_in_hand_is_laid_down_where_there_are_zeroes() {
    let mut world = World::new(1);
    let (cold, other) = (world.zero(SMALL), world.zero(SMALL));
    let page = cold.first();
    world.soil(other);
    world.scrub();
    world.soil(cold);
    grow_cold(&world);
    assert_eq!(world.zone.in_hand().count(), 1);

    let found = world.zero(SMALL);

    assert!(found.first() != page && is_zero(&world.zone, &found));
    assert_eq!((world.count(Counter::Misses), world.zone.in_hand().count()), (0, 0));
    assert_eq!(world.plain(SMALL).first(), page, "it is on the list");
    world.zone.free(found);
    world.assert_sound();
}

#[test]
fn what_rests_in_a_hand_is_scrubbed_where_zero_is_wanted() {
    let mut world = World::new(1);
    world.soil(world.zero(SMALL));
    assert_eq!(world.zone.in_hand().count(), 1);

    world.scrub();

    assert_eq!(world.zone.in_hand().count(), 0);
    let block = world.zone.only_zero(SMALL, ANY).expect("a zero block");
    assert!(is_zero(&world.zone, &block));
    world.zone.free(block);
    world.assert_sound();
}

#[test]
fn a_hand_stays_closed_without_a_scrubd_to_open_it() {
    let world = World::new(1);
    world.zone.daemon.after_fork_in_child(); // unborn
    world.soil(world.plain(SMALL));
    assert_eq!(world.zone.in_hand().count(), 0);
}

#[test]
fn what_the_owner_remapped_never_comes_to_hand() {
    let world = World::new(1);
    world.soil(world.plain(SMALL));
    let block = world.plain(SMALL);
    world.zone.mark_foreign(block.first(), 1);

    world.zone.free(block);

    assert_eq!(world.zone.in_hand().count(), 0);
    assert_eq!(world.tally().foreign, 0, "replaced");
    world.assert_sound();
}

#[test]
fn the_child_of_a_fork_finds_what_was_in_hand() {
    let world = World::new(1);
    world.soil(world.plain(SMALL));
    let page = world.zone.in_hand().next().unwrap().0;

    world.zone.before_fork();
    world.zone.after_fork_in_child();
    world.zone.take_over();

    assert_eq!(world.zone.in_hand().count(), 0);
    let block = world.plain(SMALL);
    assert_eq!(block.first(), page);
    assert_eq!((world.count(Counter::PlainRequests), world.count(Counter::Frees)), (1, 0));
    world.zone.free(block);
    world.assert_sound();
}

#[test]
fn what_another_cpu_has_on_its_lists_is_taken_before_memory_is_faulted_in() {
    let world = World::new(4);
    let class = Class::of(SMALL).unwrap();
    let other = (thread::current_cpu() + 1) % world.zone.cpus.len();
    if other == thread::current_cpu() {
        return; // a machine with one CPU
    }
    let blocks = [(); 3].map(|()| world.plain(SMALL));
    let there = blocks.map(|block| {
        world.fill(block.first(), SMALL, 1);
        world.zone.pool.states.set(block.first(), SMALL, PageState::Dirty);
        let entry = Entry::new(block.first(), Held::Mixed, world.zone.pool.clock.tick());
        world.zone.file(&world.zone.cpus[other], class, entry);
        block.first()
    });

    let plain = world.plain(SMALL);
    let zero = world.zero(SMALL);

    assert_eq!((plain.first(), zero.first()), (there[0], there[1]), "the coldest first");
    assert!(is_zero(&world.zone, &zero));
    world.zone.free(plain);
    world.zone.free(zero);
    world.assert_sound();
}

#[test]
fn what_overflows_goes_to_the_cpu_that_lacks_it() {
    let world = World::new(4);
    let class = Class::of(SMALL).unwrap();
    let here = thread::current_cpu();
    let other = (here + 1) % world.zone.cpus.len();
    if other == here {
        return; // a machine with one CPU
    }
    let blocks: Vec<_> = (0..class.slots() + 2).map(|_| world.plain(SMALL)).collect();
    world.zone.hungry[class.index()].store(other as u32 + 1, Relaxed);

    blocks.into_iter().for_each(|block| world.soil(block));

    let there = &world.zone.cpus[other].lists[class.index()];
    assert_eq!(there.hot_cold.entries().count(), BATCH);
    world.assert_sound();
}
