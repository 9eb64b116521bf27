//! What safe code cannot do with a zone, because the zone refuses it. The rest does not compile (`ui.rs`).

use prezero::{Anonymous, Block, Config, Grown, Heap, Machine, Order, Use, Zone};

const BYTES: usize = 8 << 20;
/// A slice.
const PAGES: u32 = 16;

fn zone() -> Zone<Anonymous> {
    let machine = Machine { memory: BYTES, engine: prezero::engine_named, reports_free: false };
    Zone::new(Anonymous::reserve(BYTES).unwrap(), &Config::new(&machine)).unwrap()
}

fn heap() -> Heap {
    let machine = Machine { memory: BYTES, engine: prezero::engine_named, reports_free: false };
    Heap::new(&Config { limit: BYTES, ..Config::new(&machine) }).unwrap()
}

/// A zone, and a block of another.
macro_rules! refused {
    ($($name:ident: $zone:ident, $block:ident => $call:expr;)*) => {
        $(
            #[test]
            #[should_panic(expected = "another zone")]
            fn $name() {
                let (mine, $zone) = (zone(), zone());
                let $block = mine.zero(PAGES, Order::MIN).unwrap();
                let _ = $call;
            }
        )*
    };
}

refused! {
    a_block_of_another_zone_is_not_freed: zone, block => zone.free(block);
    it_is_not_freed_as_zero: zone, block => zone.free_zeroed(block);
    it_is_not_shortened: zone, block => zone.shorten_to(block.into_dirty(), PAGES - 1);
    it_does_not_grow: zone, block => zone.try_grow(&mut block.into_dirty(), 2 * PAGES);
    it_does_not_grow_elsewhere: zone, block => zone.grow_elsewhere(block.into_dirty(), 2 * PAGES, Order::MIN);
    it_has_no_address: zone, block => zone.address(&block);
}

#[test]
#[should_panic(expected = "another zone")]
fn a_block_that_outlives_its_zone_fits_no_later_one() {
    let first = zone();
    let block = first.plain(PAGES, Order::MIN).unwrap();
    drop(first);
    zone().free(block);
}

#[test]
fn a_zone_goes_on_after_it_refused_a_block() {
    let (mine, other) = (zone(), zone());
    let block = mine.zero(PAGES, Order::MIN).unwrap();
    let first = block.first();
    let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| other.free(block)));
    assert!(refused.is_err());

    let mut held = Vec::new();
    while let Some(block) = other.plain(PAGES, Order::MIN) {
        held.push(block);
    }
    held.sort_by_key(|block| block.first());

    assert_eq!(held.iter().filter(|block| block.first() == first).count(), 1);
    assert!(held.windows(2).all(|two| two[0].first() < two[1].first()), "a page twice");
    held.into_iter().for_each(|block| other.free(block));
}

#[test]
fn a_request_that_no_block_serves_gets_none() {
    let zone = zone();
    for pages in [0, zone.pages() + 1, u32::MAX] {
        assert!(zone.zero(pages, Order::MIN).is_none());
        assert!(zone.plain(pages, Order::MIN).is_none());
        assert!(zone.only_zero(pages, Order::MIN).is_none());
    }
}

#[test]
fn a_front_that_is_no_part_of_its_block_gets_none() {
    let zone = zone();
    for front in [0, PAGES + 1, u32::MAX] {
        assert!(zone.zero_front(front, PAGES, Order::MIN, Use::Unknown).is_none());
    }
}

#[test]
fn a_block_does_not_move_to_where_it_has_no_room() {
    let zone = zone();
    let mut block = zone.plain(PAGES, Order::MIN).unwrap();
    let first = block.first();
    for pages in [0, 1, PAGES, zone.pages() + 1, u32::MAX] {
        assert_eq!(zone.try_grow(&mut block, pages), Grown::No);
        block = zone.grow_elsewhere(block, pages, Order::MIN).expect_err("no room");
        assert_eq!((block.first(), block.pages()), (first, PAGES));
    }
    zone.free(block);
}

/// A heap knows one block for each slice. A second one that begins there would take its place.
#[test]
fn a_block_has_its_slices_for_itself_however_little_was_asked_for() {
    let heap = heap();
    let blocks = [(); 2].map(|()| heap.zone().plain(1, Order::MIN).unwrap());
    assert_eq!(blocks.each_ref().map(Block::pages), [PAGES; 2]);
    let [one, other] = blocks.map(|block| heap.hand_out(block));
    assert_eq!(one.addr().get().abs_diff(other.addr().get()), PAGES as usize * prezero::PAGE);
    for block in [one, other] {
        assert_eq!(heap.usable(block.as_ptr()), PAGES as usize * prezero::PAGE);
        // SAFETY: each was handed out just now.
        heap.free(unsafe { heap.take(block.as_ptr()) }.unwrap());
    }
}

/// The word of a block has no room for more pages: it would say another length.
#[test]
#[should_panic(expected = "shorter than 64 GiB")]
fn a_heap_hands_out_no_block_whose_length_it_cannot_remember() {
    let machine = Machine { memory: 1 << 38, engine: prezero::engine_named, reports_free: false };
    let heap = Heap::new(&Config { limit: 1 << 38, ..Config::new(&machine) }).unwrap();
    let block = heap.zone().plain(1 << 24, Order::new(4).unwrap()).unwrap();
    heap.hand_out(block);
}

/// What a parent counted stays counted, whichever of its threads says that it is a child.
#[test]
fn a_process_that_is_no_child_keeps_its_counts() {
    let zone = zone();
    zone.free_zeroed(zone.zero(PAGES, Order::MIN).unwrap());
    let counted = zone.snapshot().get(prezero::Counter::ZeroRequests);
    zone.begins_its_stats();
    assert_eq!(zone.snapshot().get(prezero::Counter::ZeroRequests), counted);
}

/// A block of which no byte is the program's would come back as zero in whole.
#[test]
fn a_block_that_is_handed_out_has_a_page_of_the_programs_at_least() {
    let heap = heap();
    let block = heap.zone().plain(16, Order::new(4).unwrap()).unwrap();
    let first = heap.hand_out_to(block, 0);
    assert_eq!(heap.usable(first.as_ptr()), 4096);
}

#[test]
fn advice_for_pages_that_the_zone_does_not_have_is_for_those_that_it_has() {
    let zone = zone();
    let block = zone.plain(PAGES, Order::MIN).unwrap();
    for pages in [0, PAGES, zone.pages(), zone.pages() + 1, u32::MAX] {
        zone.fault_in_whole(block.first(), pages);
    }
    zone.free(block);
}
