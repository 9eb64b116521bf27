//! Memory that is already zero when somebody asks for it.
//!
//! A [`Zone`] hands out blocks of pages and knows, page by page, which of its free
//! memory is zero. A thread, scrubd, makes more of it so while a CPU is idle; requests
//! for zeroed memory then take what is ready and clear only what is not.
//!
//! # Vocabulary
//!
//! | word | meaning |
//! |---|---|
//! | page | 4 KiB |
//! | block | a run of pages; one of 2^order pages is aligned to its size ([`Order`] 0 to 18) |
//! | huge block | order 9, 2 MiB |
//! | zone | one contiguous range of pages with one [`Backing`] |
//! | zero state | of a free page: *dirty*, *zero* or *absent* ([`PageState`]); two bits, out of band |
//! | quicklist | per CPU and size: one hot-cold list in LRU order, one zero list |
//! | hand | per CPU and size: the dirty block freed last, taken and put without an atomic operation |
//! | scrub, prefault | dirty to zero, absent to zero; both done by scrubd |
//! | refile | scrub a block of a hot-cold list and move it to the zero list |
//! | hit, miss, waste | a ZERO request served by zero pages; one cleared inline; zero pages given to somebody who did not ask |
//!
//! # Requests
//!
//! [`Zone::zero`] (`ZERO`), [`Zone::only_zero`] (`ONLY_ZERO`: at once or not at all),
//! [`Zone::plain`]; back by [`Zone::free`] or, with proof, [`Zone::free_zeroed`]. What is
//! known of a block is in its type: a [`Block<Zero>`](Block) comes from a clear engine,
//! from the kernel, or from an owner who returns it untouched.
//!
//! ```
//! use prezero::{Anonymous, Config, Machine, Order, Zone};
//!
//! let config = Config::new(&Machine { memory: 64 << 20, engine: prezero::engine_named, reports_free: false });
//! let zone = Zone::new(Anonymous::reserve(config.limit)?, &config)?;
//! let block = zone.zero(16, Order::MIN).ok_or("the zone is full")?;
//! // SAFETY: the block is ours until it is freed, and nobody else reads it.
//! let bytes = unsafe { std::slice::from_raw_parts(zone.address(&block).as_ptr(), block.bytes()) };
//! assert!(bytes.iter().all(|&b| b == 0));
//! zone.free(block);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What may race with what
//!
//! Everything here may be called from any thread at any time, and from the child of a
//! fork. There is no lock: free blocks are bits of the buddy's bitmaps and words of the
//! quicklists, and taking one is one atomic operation on the word that names it. scrubd
//! works on blocks that it has taken out of circulation the same way, and an allocation
//! can take such a block from it without waiting (`claim.rs`, the heart of the matter).
//! Accepted races are named where they occur: lost increments of statistics, a search
//! that misses a block in flight, LRU order blurred by preemption.
//!
//! # Files, in the order in which memory flows
//!
//! `backing` (the kernel), `huge` (in which pages), `state` and `buddy` (what is free, and what it holds),
//! `stock`, `quicklist`, `hand_size`, `hand`, `zone` with `search`, `assemble`, `grow` and `trust` (requests), `settle`,
//! `put_back`, `fork` and `hidden` (what comes back, what a child gets), `claim`, `scrub`,
//! `give_back`, `governor`, `reserve`, `purse`, `deference`, `choice`, `reach` and `clear` (scrubd's work), `daemon` (its thread),
//! `tuning` and `panel` (knobs and figures of a running process),
//! `stats`, `report`, `summary`, `probes` and `check` (what people see).
#![deny(unsafe_code)]
#![warn(missing_debug_implementations)]
// Loom is given what it models, without those who use the rest of it.
#![cfg_attr(loom, allow(dead_code))]

// Under loom only what it models is built: it replaces the atomics by its own.
mod bits;
mod buddy;
mod claim;
mod page;
mod quicklist;
mod state;
mod sync;

#[cfg(not(loom))]
mod assemble;
#[cfg(not(loom))]
mod backing;
#[cfg(not(loom))]
mod check;
#[cfg(not(loom))]
mod choice;
#[cfg(not(loom))]
mod chunk;
#[cfg(not(loom))]
#[allow(unsafe_code)]
pub mod clear;
#[cfg(not(loom))]
mod clock;
#[cfg(not(loom))]
mod config;
#[cfg(not(loom))]
mod daemon;
#[cfg(not(loom))]
mod decay;
#[cfg(not(loom))]
mod deference;
#[cfg(not(loom))]
mod demand;
#[cfg(not(loom))]
mod fork;
#[cfg(not(loom))]
mod gather;
#[cfg(not(loom))]
mod give_back;
#[cfg(not(loom))]
mod governor;
#[cfg(not(loom))]
mod grow;
#[cfg(not(loom))]
mod hand;
#[cfg(not(loom))]
mod hand_size;
#[cfg(not(loom))]
mod hidden;
#[cfg(not(loom))]
mod huge;
#[cfg(not(loom))]
mod inline;
#[cfg(not(loom))]
mod knobs;
#[cfg(not(loom))]
mod latest;
#[cfg(not(loom))]
mod offer;
#[cfg(not(loom))]
pub mod panel;
#[cfg(not(loom))]
mod probes;
#[cfg(not(loom))]
mod purse;
#[cfg(not(loom))]
mod put_back;
#[cfg(not(loom))]
mod reach;
#[cfg(not(loom))]
mod report;
#[cfg(not(loom))]
mod request;
#[cfg(not(loom))]
mod reserve;
#[cfg(not(loom))]
mod retreat;
#[cfg(not(loom))]
mod runs;
#[cfg(not(loom))]
mod scrub;
#[cfg(not(loom))]
mod search;
#[cfg(not(loom))]
mod seen;
#[cfg(not(loom))]
mod settle;
#[cfg(not(loom))]
mod stats;
#[cfg(not(loom))]
mod stock;
#[cfg(not(loom))]
mod summary;
#[cfg(all(test, not(loom)))]
mod tests;
#[cfg(not(loom))]
mod trust;
#[cfg(not(loom))]
mod tuning;
#[cfg(not(loom))]
mod value;
#[cfg(not(loom))]
mod zone;

pub use page::{
    Block, Content, Dirty, HUGE, HUGE_ORDER, HUGE_PAGES, MAX_ORDER, Order, PAGE, PageId, Zero,
    ZeroFront,
};
pub use state::{PageState, Tally};

#[cfg(not(loom))]
pub use {
    backing::{Anonymous, Backing, Hide},
    check::Flaw,
    clear::Use,
    config::*,
    daemon::Change,
    grow::Grown,
    hand::HandBlock,
    hand_size::HandSize,
    knobs::{KNOBS, Knob},
    prezero_host::{Size, Topology},
    prezero_sys::thread::Spawner,
    stats::*,
    value::Text,
    zone::{Zone, ZoneError},
};

/// The registry's own name of an engine that runs on this CPU: what
/// [`Machine::engine`] asks.
#[cfg(not(loom))]
pub fn engine_named(name: &str) -> Option<&'static str> {
    clear::by_name(name).map(|engine| engine.name())
}
