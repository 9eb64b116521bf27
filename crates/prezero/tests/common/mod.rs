//! What the tests of a real scrubd share.
#![allow(dead_code, reason = "no test uses all of it")]

use std::time::{Duration, Instant};

use prezero::{Anonymous, Config, Order, Zone};

/// Pages of the blocks that [`use_and_free`] takes.
pub const BLOCK: u32 = 1024;

/// A zone that lives for ever, as scrubd wants it.
pub fn zone(config: &Config) -> &'static Zone<Anonymous> {
    let zone = Zone::new(Anonymous::reserve(config.limit).unwrap(), config).unwrap();
    Box::leak(Box::new(zone))
}

/// Waits for what `done` finds.
pub fn until<T>(patience: Duration, what: &str, mut done: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = done() {
            return found;
        }
        assert!(began.elapsed() < patience, "{what}: not within {patience:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Takes four zero blocks, writes all of them and gives them back.
pub fn use_and_free(zone: &Zone<Anonymous>) {
    let blocks: Vec<_> = (0..4).filter_map(|_| zone.zero(BLOCK, Order::MIN)).collect();
    assert_eq!(blocks.len(), 4);
    for block in blocks {
        // SAFETY: the block is ours until it is freed.
        unsafe { zone.address(&block).as_ptr().write_bytes(1, block.bytes()) };
        zone.free(block.into_dirty());
    }
}
