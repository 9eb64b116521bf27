//! What the tests of a real scrubd share.
#![allow(dead_code, reason = "no test uses all of it")]

use std::time::Duration;

use prezero::{Anonymous, Block, Config, Machine, Order, Zone};
use prezero_report::panel::{Panel, Refusal};
use prezero_sys::panel::Mapped;

pub use prezero_testing::until;

/// Pages of the blocks that [`use_and_free`] takes.
pub const BLOCK: u32 = 1024;

/// Neither what zeroes repay in a build for tests nor whether a CPU idles keeps scrubd from clearing: on a machine that
/// is busy it would wait for as long.
pub fn config(memory: usize) -> Config {
    let machine = Machine { memory, engine: prezero::engine_named, reports_free: false };
    let left_out = |variable: &str| (variable == "PREZERO_ABLATE").then_some("backoff,cost-model");
    Config::from_env(&machine, left_out).unwrap()
}

/// A zone that is never dropped, as scrubd wants it.
pub fn zone(config: &Config) -> &'static Zone<Anonymous> {
    let zone = Zone::new(Anonymous::reserve(config.limit).unwrap(), config).unwrap();
    Box::leak(Box::new(zone))
}

/// Asks the panel of `zone` until scrubd answers, and frees memory meanwhile so that it looks around.
pub fn ask(zone: &Zone<Anonymous>, panel: &Panel<Mapped>, request: &str) -> Result<(), String> {
    until(request, || {
        use_and_free(zone);
        match panel.ask(request, Duration::from_millis(500)) {
            Err(Refusal::Pending) => None,
            answer => Some(answer.map_err(|refusal| refusal.to_string())),
        }
    })
}

/// Takes four zero blocks, writes all of them and gives them back.
pub fn use_and_free(zone: &Zone<Anonymous>) {
    let blocks: Vec<_> = (0..4).filter_map(|_| zone.zero(BLOCK, Order::MIN)).collect();
    assert_eq!(blocks.len(), 4);
    for block in blocks.into_iter().map(Block::into_dirty) {
        // SAFETY: the block is ours until it is freed.
        unsafe { zone.address(&block).as_ptr().write_bytes(1, block.bytes()) };
        zone.free(block);
    }
}
