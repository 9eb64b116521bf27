//! The real scrubd on real memory: it starts by itself, clears while the program idles,
//! and gives back idle memory.

use std::time::Duration;

use prezero::{Anonymous, Block, Config, Counter, Dirty, Order, Verify, Zone};

mod common;
use common::until;

const ZONE: usize = 64 << 20;
/// Pages of 1 MiB, a size of a class, and of 5 MiB, which is of none.
const SIZES: [u32; 2] = [256, 1280];

fn zone(knobs: impl FnOnce(&mut Config)) -> &'static Zone<Anonymous> {
    let mut config = common::config(ZONE);
    knobs(&mut config);
    let zone = Zone::new(Anonymous::reserve(ZONE).unwrap(), &config).unwrap();
    let zone = Box::leak(Box::new(zone));
    prezero::allow_scrubd(zone);
    zone
}

fn bytes<'a>(zone: &Zone<Anonymous>, block: &'a mut Block<Dirty>) -> &'a mut [u8] {
    // SAFETY: the block is mapped, and the caller's alone.
    unsafe { std::slice::from_raw_parts_mut(zone.address(block).as_ptr(), block.bytes()) }
}

/// Asks for zeroed blocks of every size, finds them zero, writes and frees them.
fn use_and_free(zone: &Zone<Anonymous>, byte: u8) {
    let blocks: Vec<_> = (0..8)
        .map(|n| {
            let mut block = zone.zero(SIZES[n % 2], Order::MIN).unwrap().into_dirty();
            let bytes = bytes(zone, &mut block);
            assert!(bytes.iter().all(|&b| b == 0), "not zero");
            bytes.fill(byte);
            block
        })
        .collect();
    for mut block in blocks {
        assert!(bytes(zone, &mut block).iter().all(|&b| b == byte), "another owner wrote");
        zone.free(block);
    }
}

#[test]
fn scrubd_starts_by_itself_and_makes_misses_into_hits() {
    let zone = zone(|config| config.verify = Verify::Full);
    use_and_free(zone, 0xAB);

    until("scrubd clears", || {
        let misses = zone.snapshot().get(Counter::MissBytes);
        use_and_free(zone, 0xCD);
        let now = zone.snapshot();
        now.get(Counter::Refiles) > 0
            && now.get(Counter::ScrubbedBytes) > 0
            && now.get(Counter::HitBytes) > now.get(Counter::MissBytes) - misses
    });

    assert_eq!(zone.snapshot().get(Counter::VerifyFailures), 0);
    assert!(zone.snapshot().get(Counter::ScrubdCpuNs) > 0, "its cost is counted");
}

#[test]
fn scrubd_gives_back_idle_memory() {
    let zone = zone(|config| config.decay = Duration::from_millis(50));
    use_and_free(zone, 1);
    let all = zone.snapshot().gauges.zone_bytes;

    until("everything is given back", || zone.snapshot().gauges.absent_bytes == all);

    assert!(zone.snapshot().get(Counter::ReleasedBytes) > 0);
    use_and_free(zone, 2);
}

#[test]
fn scrubd_that_must_not_scrub_still_gives_back() {
    let zone = zone(|config| {
        config.scrub_start = None;
        config.decay = Duration::from_millis(50);
    });
    use_and_free(zone, 1);
    let all = zone.snapshot().gauges.zone_bytes;

    until("everything is given back", || zone.snapshot().gauges.absent_bytes == all);

    assert_eq!(zone.snapshot().get(Counter::ScrubbedBytes), 0);
}
