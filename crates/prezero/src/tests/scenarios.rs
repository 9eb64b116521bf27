//! The zone's promises, one test each, on a thread and a clock of the test's own.
#![allow(unsafe_code)]

use std::time::Duration;

use super::fake::{Fake, Fault, now, pass};
use super::world::{RESTED_NS, WINDOW_NS, World, config, holds, is_zero};
use crate::claim::{Answer, Claimed, Work};
use crate::config::Verify;
use crate::page::{Block, Dirty, HUGE, HUGE_PAGES, Order, PAGE, PageId, Zero};
use crate::quicklist::{BATCH, Class, SLOTS};
use crate::scrub::{Mood, Step};
use crate::state::{PageState, Tally};
use crate::stats::Counter;
use crate::zone::{Grown, Zone, ZoneError};

const ANY: Order = Order::MIN;
/// Pages of a class that fills all slots of a list.
const SMALL: u32 = 16;

fn order(n: u32) -> Order {
    Order::new(n).unwrap()
}

fn bytes(pages: u32) -> u64 {
    u64::from(pages) * PAGE as u64
}

impl World {
    fn zero(&self, pages: u32) -> Block<Zero> {
        self.zone.zero(pages, ANY).expect("the zone has room")
    }

    fn plain(&self, pages: u32) -> Block<Dirty> {
        self.zone.plain(pages, ANY).expect("the zone has room")
    }

    fn states(&self, first: PageId, pages: u32) -> Tally {
        self.zone.states.tally(first, pages)
    }

    /// Every block of one size that the zone has, written to.
    fn dirty_all(&self, pages: u32) -> Vec<Block<Dirty>> {
        let mut all = Vec::new();
        while let Some(block) = self.zone.plain(pages, ANY) {
            self.fill(block.first(), pages, 0xA5);
            all.push(block);
        }
        all
    }

    /// Puts `pages` zero pages into the buddy: asked for, written, freed and scrubbed.
    fn stock_zero(&mut self, pages: u32) {
        self.soil(self.zero(pages));
        self.scrub();
        self.drain();
        assert_eq!(self.zone.stock.zero(), pages);
    }

    /// Empties all lists into the buddy.
    fn drain(&self) {
        for cpu in self.zone.cpus.iter() {
            Class::largest_first().for_each(|class| self.zone.drain(cpu, class, |_| true));
        }
    }

    /// A burst of demand in each of `n` windows of the governor.
    fn grow(&mut self, windows: u32, pages: u32) -> Vec<Block<Zero>> {
        (0..windows)
            .map(|_| {
                let block = self.zero(pages);
                pass(WINDOW_NS);
                self.scrubber.step(&self.zone, Mood::Normal);
                block
            })
            .collect()
    }
}

// Zero state, page by page.

#[test]
fn a_half_zero_block_is_cleared_only_in_its_dirty_half() {
    let world = World::new(1);
    let block = world.zero(HUGE_PAGES);
    world.fill(block.first(), HUGE_PAGES, 7);
    let front = world.zone.tail_to(block.into_dirty(), 200);
    // Zero by its owner's word, dirty behind it: then both merge.
    let (first, tail) = (front.first(), PageId(200));
    world.fill(first, 200, 0);
    // SAFETY: the front is ours, and was just cleared.
    let zero = unsafe { world.zone.adopt_zero(first, 200) };
    world.zone.states.set(first, 200, PageState::Zero);
    world.zone.free_zeroed(zero);
    assert_eq!(world.states(tail, 312).dirty, 312);

    let whole = world.zero(HUGE_PAGES);

    assert!(is_zero(&world.zone, &whole));
    assert_eq!(world.count(Counter::MissBytes), bytes(312));
    assert_eq!(world.count(Counter::HitBytes), bytes(200));
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
    world.drain();

    let whole = world.zone.only_zero(HUGE_PAGES, ANY).expect("all of it is zero still");
    assert!(is_zero(&world.zone, &whole));
    world.zone.free(whole);
}

#[test]
fn zero_blocks_overflow_to_hot_cold_and_to_the_buddy_and_stay_zero() {
    let mut world = World::new(4);
    let many = 3 * SLOTS as u32;
    world.stock_zero(many * SMALL);
    let blocks: Vec<_> = (0..many).map(|_| world.zone.only_zero(SMALL, ANY).unwrap()).collect();
    let before = world.zone.snapshot();

    blocks.into_iter().for_each(|block| world.zone.free_zeroed(block));

    let moved = world.zone.snapshot().delta(&before);
    assert_eq!(moved.get(Counter::Overflows), u64::from(many) - SLOTS as u64);
    let batches = moved.get(Counter::BuddyOverflows);
    assert!(batches >= SLOTS as u64 && batches % BATCH as u64 == 0, "{batches}");
    let again: Vec<_> = (0..many).map(|_| world.zone.only_zero(SMALL, ANY).unwrap()).collect();
    assert!(again.iter().all(|block| is_zero(&world.zone, block)));
    assert_eq!(world.count(Counter::MissBytes), before.get(Counter::MissBytes));
    again.into_iter().for_each(|block| world.zone.free(block));
    world.assert_sound();
}

#[test]
fn a_small_block_is_refiled_from_hot_cold_to_the_zero_list() {
    let mut world = World::new(1);
    world.soil(world.zero(SMALL));

    world.scrub();

    assert_eq!(world.count(Counter::Refiles), 1);
    let gauges = world.zone.snapshot().gauges;
    assert_eq!((gauges.quicklist_zero_bytes, gauges.quicklist_hot_cold_bytes), (bytes(SMALL), 0));
    let block = world.zone.only_zero(SMALL, ANY).unwrap();
    assert!(is_zero(&world.zone, &block));
    world.zone.free(block);
}

// Requests.

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
    let mut block = world.zero(10).into_dirty();
    world.fill(block.first(), 10, 9);

    assert_eq!(world.zone.try_grow(&mut block, 300), Grown::Yes);
    assert_eq!(block.pages(), 300);
    let behind = world.zone.plain(1, ANY).unwrap();
    let shorter = world.zone.tail_to(block, 20);

    assert!((0..10).all(|n| holds(&world.zone, shorter.first().plus(n), 9)));
    assert_eq!(world.zone.snapshot().gauges.allocated_bytes, bytes(20 + 1));
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

// scrubd: what, when and how far.

#[test]
fn the_highest_order_is_scrubbed_first() {
    let mut world = World::with(4, |config| config.scrub_stop = ANY);
    let blocks = world.dirty_all(HUGE_PAGES);
    let mut kept = Vec::new();
    for (n, block) in blocks.into_iter().enumerate() {
        if n == 0 {
            // A small dirty block at the lowest address, a huge one above.
            let block = world.zone.tail_to(block, HUGE_PAGES - 2);
            kept.push(block);
        } else if n == 2 {
            let (first, dirty) = (block.first(), HUGE_PAGES);
            world.zone.states.set(first, dirty, PageState::Dirty);
            world.zone.put_to_buddy(first, dirty, Tally { dirty, ..Tally::default() });
        } else {
            kept.push(block);
        }
    }
    world.zone.cpu().demand.note(8 * HUGE_PAGES);
    pass(RESTED_NS);

    assert_eq!(world.scrubber.step(&world.zone, Mood::Normal), Step::Worked);

    assert_eq!(world.states(PageId(2 * HUGE_PAGES), HUGE_PAGES).zero, HUGE_PAGES);
    assert_eq!(world.states(PageId(HUGE_PAGES - 2), 2).dirty, 2);
    kept.into_iter().for_each(|block| world.zone.free(block));
    world.assert_sound();
}

#[test]
fn nothing_is_scrubbed_for_a_program_that_wants_no_zero() {
    let mut world = World::new(1);
    world.soil(world.plain(HUGE_PAGES));
    world.scrub();
    assert_eq!(world.tally().dirty, HUGE_PAGES);
}

#[test]
fn scrub_start_never_scrubs_nothing_and_prefaults_nothing() {
    let mut world = World::with(2, |config| config.scrub_start = None);
    let blocks = world.grow(4, 64);
    blocks.into_iter().for_each(|block| world.soil(block));

    world.scrub();

    assert_eq!(world.tally().zero, 0);
    assert_eq!((world.count(Counter::ScrubbedBytes), world.fake().populates.made()), (0, 0));
}

#[test]
fn blocks_below_scrub_stop_are_left_alone() {
    let mut world = World::with(1, |config| config.scrub_stop = order(6));
    let all = world.dirty_all(16);
    // Every second block stays in use: nothing merges beyond order 4.
    let (keep, give): (Vec<_>, Vec<_>) = all.into_iter().partition(|b| b.first().0 / 16 % 2 == 0);
    give.into_iter().for_each(|block| world.zone.free(block));
    world.zone.cpu().demand.note(HUGE_PAGES);

    world.scrub();
    assert_eq!(world.tally().zero, 0, "order 4 is below scrub_stop");

    keep.into_iter().for_each(|block| world.zone.free(block));
    world.scrub();
    assert!(world.tally().zero > 0, "merged they are above it");
    world.assert_sound();
}

#[test]
fn what_was_freed_just_now_is_not_touched() {
    let mut world = World::new(1);
    // One block on a quicklist, one in the buddy.
    for pages in [SMALL, SMALL + 1] {
        world.soil(world.zero(pages));
    }

    pass(50_000);
    assert_eq!(world.work(Mood::Normal), 0);
    assert_eq!((world.tally().zero, world.count(Counter::ScrubbedBytes)), (0, 0));

    world.scrub();
    assert_eq!(world.tally().zero, 2 * SMALL + 1);
}

#[test]
fn a_resting_scrubd_clears_nothing() {
    let mut world = World::new(1);
    world.soil(world.zero(HUGE_PAGES));
    pass(RESTED_NS);
    assert_eq!(world.work(Mood::Resting), 0);
    assert_eq!(world.tally().zero, 0);
}

#[test]
fn an_unsure_scrubd_clears_and_asks_nothing_of_the_kernel() {
    let mut world = World::with(2, |config| config.decay = Duration::ZERO);
    let blocks = world.grow(3, 32);
    let (populates, releases) = (world.fake().populates.made(), world.fake().releases.made());
    blocks.into_iter().for_each(|block| world.soil(block));
    pass(RESTED_NS);

    let scrubbed = world.count(Counter::ScrubbedBytes);

    assert!(world.work(Mood::Unsure) > 0);

    assert!(world.count(Counter::ScrubbedBytes) > scrubbed);
    assert_eq!(world.fake().populates.made(), populates);
    assert_eq!(world.fake().releases.made(), releases);
}

// Prefault.

#[test]
fn prefault_waits_for_two_growing_windows() {
    let mut world = World::new(4);
    let mut held = world.grow(1, 64);
    assert_eq!(world.fake().populates.made(), 0, "once is no trend");

    held.extend(world.grow(2, 64));
    world.work(Mood::Normal);

    assert!(world.fake().populates.made() > 0);
    let block = world.zone.only_zero(64, ANY).expect("it lies ready");
    assert!(is_zero(&world.zone, &block));
    held.push(block);
    held.into_iter().for_each(|block| world.zone.free(block));
    world.assert_sound();
}

#[test]
fn prefault_stops_when_it_was_wasted() {
    let mut world = World::new(8);
    let mut held = world.grow(3, 64);
    world.work(Mood::Normal);
    assert!(world.count(Counter::PrefaultedBytes) > 0);
    world.work(Mood::Pressed);
    let populates = world.fake().populates.made();

    held.extend(world.grow(3, 64));
    world.work(Mood::Normal);

    assert_eq!(world.fake().populates.made(), populates);
    held.into_iter().for_each(|block| world.zone.free(block));
}

#[test]
fn a_refused_populate_makes_nothing_zero() {
    let mut world = World::new(4);
    world.fake().populates.refuse(Fault::Always);
    let held = world.grow(4, 64);

    world.work(Mood::Normal);

    assert!(world.fake().populates.made() > 0);
    assert_eq!(world.zone.stock.zero(), 0);
    assert!(world.count(Counter::BackingErrors) > 0);
    assert!(world.zone.only_zero(1, ANY).is_none());
    held.into_iter().for_each(|block| world.zone.free(block));
    world.assert_sound();
}

// Give-back.

#[test]
fn decay_releases_what_idles_and_not_what_is_in_use() {
    let mut world = World::with(4, |config| config.decay = Duration::from_secs(1));
    let used = world.zero(100);
    world.fill(used.first(), 100, 3);
    // Idle: in the buddy, on a hot-cold list, and scrubbed.
    for pages in [700, SMALL, 17] {
        world.soil(world.zero(pages));
    }
    world.scrub();
    assert!(world.tally().zero > 0);

    for _ in 0..40 {
        pass(100_000_000);
        world.work(Mood::Normal);
    }

    assert_eq!(world.zone.snapshot().gauges.absent_bytes, bytes(4 * HUGE_PAGES - 100));
    assert!((0..100).all(|n| holds(&world.zone, used.first().plus(n), 3)));
    assert!((0..100).all(|n| world.fake().holds(used.first().plus(n))));
    let held = (0..4 * HUGE_PAGES).filter(|&p| world.fake().holds(PageId(p))).count();
    assert_eq!(held, 100);
    world.zone.free(used);
    world.assert_sound();
}

#[test]
fn memory_that_is_used_again_and_again_does_not_decay() {
    let mut world = World::with(1, |config| config.decay = Duration::from_secs(1));
    for _ in 0..100 {
        world.soil(world.zero(SMALL));
        pass(100_000_000);
        world.work(Mood::Resting);
    }
    assert_eq!(world.count(Counter::ReleasedBytes), 0);
}

#[test]
fn under_pressure_everything_idle_goes_back_at_once() {
    let mut world = World::new(4);
    for pages in [1, SMALL, 17, 600] {
        world.soil(world.zero(pages));
    }

    world.work(Mood::Pressed);

    assert_eq!(world.tally().absent, 4 * HUGE_PAGES);
    assert!((0..4 * HUGE_PAGES).all(|p| !world.fake().holds(PageId(p))));
    assert_eq!(world.count(Counter::ReleasedBytes), bytes(1 + SMALL + 17 + 600));
    world.assert_sound();
}

#[test]
fn reclaim_gives_back_what_lies_on_quicklists() {
    let world = World::new(1);
    world.soil(world.zero(SMALL));
    world.zone.reclaim();
    assert_eq!(world.tally().absent, HUGE_PAGES);
}

#[test]
fn a_refused_release_keeps_the_memory_and_brings_scrubd_to_rest() {
    let mut world = World::new(2);
    world.soil(world.zero(700));
    world.fake().releases.refuse(Fault::Always);

    world.work(Mood::Pressed);

    assert!(world.count(Counter::BackingErrors) > 0);
    assert_eq!(world.count(Counter::ReleasedBytes), 0);
    world.assert_sound();
    let again = world.zero(700);
    assert!(is_zero(&world.zone, &again));
    world.zone.free(again);
}

// What owners do behind the zone's back.

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
    assert_eq!(world.tally(), Tally { dirty: 3, absent: HUGE_PAGES - 3, ..Tally::default() });
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
    world.zone.mark_foreign(first.plus(8), 4);

    world.zone.free(block);

    assert_eq!(world.fake().replaces.made(), 1);
    assert_eq!(world.tally(), Tally { dirty: 60, absent: 452, ..Tally::default() });
    assert!((8..12).all(|n| holds(&world.zone, first.plus(n), 0)));
    world.assert_sound();
}

#[test]
fn foreign_pages_that_cannot_be_replaced_are_never_used_again() {
    let world = World::new(1);
    let block = world.zero(64);
    world.fill(block.first(), 64, 0x77);
    world.zone.mark_foreign(block.first().plus(8), 4);
    world.fake().replaces.refuse(Fault::Always);

    world.zone.free(block);

    world.assert_sound();
    assert_eq!(world.tally().foreign, 4);
    assert_eq!(world.count(Counter::BackingErrors), 1);
    let mut all = Vec::new();
    while let Some(page) = world.zone.zero(1, ANY) {
        assert!(is_zero(&world.zone, &page));
        all.push(page);
    }
    assert_eq!(all.len() as u32, HUGE_PAGES - 4);
    all.into_iter().for_each(|page| world.zone.free(page));
}

#[test]
fn a_zero_block_with_foreign_pages_comes_back_as_zero_and_absent() {
    let world = World::new(1);
    let block = world.zero(64);
    world.zone.mark_foreign(block.first(), 4);
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

// Verification.

#[test]
fn a_scribbled_zero_page_ends_all_trust() {
    let mut world = World::with(2, |config| config.verify = Verify::Full);
    world.stock_zero(600);
    let victim = (0..1024).map(PageId).find(|&p| world.zone.states.get(p) == PageState::Zero);
    world.fill(victim.unwrap(), 1, 0x66);

    let block = world.zero(600);

    assert!(is_zero(&world.zone, &block), "what is handed out is zero all the same");
    assert_eq!(world.count(Counter::VerifyFailures), 1);
    assert!(!world.zone.trust.is_whole());
    world.zone.free(block);
    // From now on nothing is believed, cleared ahead, or served as ready.
    let scrubbed = world.count(Counter::ScrubbedBytes);
    world.scrub();
    assert_eq!(world.count(Counter::ScrubbedBytes), scrubbed);
    assert!(world.zone.only_zero(1, ANY).is_none());
    let misses = world.count(Counter::MissBytes);
    let block = world.zero(600);
    assert!(is_zero(&world.zone, &block));
    assert_eq!(world.count(Counter::MissBytes), misses + bytes(600));
    assert_eq!(world.count(Counter::VerifyFailures), 1, "said once");
    world.zone.free(block);
}

#[test]
fn after_trust_is_lost_what_lies_on_the_zero_lists_is_cleared_too() {
    let mut world = World::with(1, |config| config.verify = Verify::Full);
    for _ in 0..3 {
        let blocks = [(); 3].map(|()| world.zero(SMALL));
        blocks.into_iter().for_each(|block| world.soil(block));
    }
    world.scrub();
    assert_eq!(world.zone.snapshot().gauges.quicklist_zero_bytes, bytes(3 * SMALL));
    (0..HUGE_PAGES)
        .map(PageId)
        .filter(|&p| world.zone.states.get(p) == PageState::Zero)
        .for_each(|page| world.fill(page, 1, 0x66));

    let blocks = [(); 3].map(|()| world.zero(SMALL));

    assert!(blocks.iter().all(|block| is_zero(&world.zone, block)));
    blocks.into_iter().for_each(|block| world.zone.free(block));
    world.assert_sound();
}

#[test]
fn a_sample_finds_a_scribbler_sooner_or_later() {
    let mut world = World::with(1, |config| config.verify = Verify::Sample);
    world.stock_zero(SMALL);
    for _ in 0..100_000 {
        if !world.zone.trust.is_whole() {
            break;
        }
        let block = world.zone.only_zero(SMALL, ANY).unwrap();
        let first = block.first();
        world.zone.free_zeroed(block);
        world.fill(first, SMALL, 0x66);
        // Undone before the next owner looks, unless the sample came first.
        if let Some(block) = world.zone.only_zero(SMALL, ANY) {
            world.fill(first, SMALL, 0);
            world.zone.free_zeroed(block);
        }
    }
    assert!(world.count(Counter::VerifyFailures) > 0);
}

// Fork.

#[test]
fn what_is_cleared_while_a_fork_begins_is_not_called_zero() {
    let world = World::new(1);
    let block = world.zero(SMALL);
    world.fill(block.first(), SMALL, 1);
    let first = block.first();
    world.zone.free(block);
    let mark = world.zone.fork_mark();

    world.zone.before_fork();
    assert_eq!(world.zone.publish_zero(first, SMALL, mark), 0, "under way");
    assert_eq!(world.zone.publish_zero(first, SMALL, world.zone.fork_mark()), 0, "begun in it");
    world.zone.after_fork_in_parent();
    assert_eq!(world.zone.publish_zero(first, SMALL, mark), 0, "one came between");
    assert_eq!(world.tally().zero, 0);
}

#[test]
fn two_forks_at_once_are_both_seen() {
    let world = World::new(1);
    world.soil(world.zero(SMALL));
    let first = PageId(0);
    world.zone.before_fork();
    world.zone.before_fork();
    assert_eq!(world.zone.publish_zero(first, SMALL, world.zone.fork_mark()), 0);
    world.zone.after_fork_in_parent();
    assert_eq!(world.zone.publish_zero(first, SMALL, world.zone.fork_mark()), 0);
    world.zone.after_fork_in_parent();
    world.fill(first, SMALL, 0);
    assert_eq!(world.zone.publish_zero(first, SMALL, world.zone.fork_mark()), SMALL);
}

#[test]
fn while_a_fork_is_under_way_nothing_becomes_zero_and_afterwards_it_does() {
    let mut world = World::new(1);
    world.soil(world.zero(SMALL));
    pass(RESTED_NS);
    world.zone.before_fork();
    for _ in 0..10 {
        world.scrubber.step(&world.zone, Mood::Normal);
    }
    let block = world.zero(SMALL);
    world.zone.free_zeroed(block);
    assert_eq!(world.tally().zero, 0);

    world.zone.after_fork_in_parent();
    world.scrub();

    assert_eq!(world.tally().zero, SMALL);
    world.assert_sound();
}

/// Takes a dirty block out of the buddy as scrubd does, half cleared.
fn claim_half(world: &World) -> (PageId, u64) {
    world.soil(world.zero(HUGE_PAGES));
    world.zone.reclaim();
    let first = world.zone.plain(HUGE_PAGES, ANY).unwrap().first();
    world.fill(first, HUGE_PAGES, 0x11);
    world.zone.states.set(first, HUGE_PAGES, PageState::Dirty);
    let session = world.zone.claim.begin(first, HUGE_PAGES, Work::Scrub, world.zone.fork_mark());
    world.fill(first, 256, 0);
    session.progress().store(256, std::sync::atomic::Ordering::Release);
    (first, session.busy())
}

#[test]
fn the_child_of_a_fork_gets_the_claimed_block_and_believes_none_of_it() {
    let world = World::new(1);
    claim_half(&world);
    world.zone.before_fork();

    world.zone.after_fork_in_child();

    world.assert_sound();
    assert_eq!(world.tally().dirty, HUGE_PAGES);
    let block = world.zero(HUGE_PAGES);
    assert!(is_zero(&world.zone, &block));
    assert_eq!(world.count(Counter::ZeroRequests), 1, "its account is its own");
    world.zone.free(block);
}

#[test]
fn the_child_of_a_fork_does_not_put_back_what_was_being_put_back() {
    let world = World::new(1);
    let (first, _) = claim_half(&world);
    let Answer::Seized(seized) = world.zone.claim.seize(|| true) else {
        panic!("nobody answers");
    };
    let Claimed { pages, done, .. } = seized.block;
    assert_eq!((pages, done), (HUGE_PAGES, 256));
    world.zone.return_to_buddy(first, pages);
    // The fork comes before the release.
    std::mem::forget(seized);
    world.zone.before_fork();

    world.zone.after_fork_in_child();

    world.assert_sound();
    let block = world.zero(HUGE_PAGES);
    assert!(world.zone.zero(1, ANY).is_none(), "one owner");
    world.zone.free(block);
}

// Taking a block out of scrubd's hands.

#[test]
fn a_seized_block_is_zero_as_far_as_scrubd_came() {
    let world = World::new(1);
    claim_half(&world);

    let block = world.zero(HUGE_PAGES);

    assert!(is_zero(&world.zone, &block));
    assert_eq!(world.count(Counter::MissBytes), bytes(256));
    world.zone.free(block);
    world.assert_sound();
}

#[test]
fn a_seized_block_whose_clearing_met_a_fork_is_cleared_again() {
    let world = World::new(1);
    claim_half(&world);
    world.zone.before_fork();
    world.zone.after_fork_in_parent();

    let block = world.zero(HUGE_PAGES);

    assert_eq!(world.count(Counter::MissBytes), bytes(HUGE_PAGES));
    assert!(is_zero(&world.zone, &block));
    world.zone.free(block);
}
