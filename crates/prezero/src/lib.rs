//! Memory that is already zero when a program asks for it.
//!
//! ```
//! use prezero::Global;
//!
//! #[global_allocator]
//! static ALLOCATOR: Global = Global::system();
//!
//! fn main() {
//!     for _ in 0..3 {
//!         let image = vec![0u8; 16 << 20]; // zero pages, where scrubd has cleared some
//!         assert!(image.iter().all(|&byte| byte == 0));
//!     } // scrubd clears them while a CPU idles
//!     println!("{} MiB were zero already", ALLOCATOR.hit_bytes() >> 20);
//! }
//! ```
//!
//! [`Global`] serves blocks of 128 KiB and more; smaller ones stay with the system's allocator. It gains nothing
//!
//! - for a program that never pauses, or on a machine without an idle CPU: scrubd has no time to clear;
//! - for a program that fills memory which it did not request as zero;
//! - where `mlockall` keeps all memory resident, because the free memory of the zone is then resident too.
//!
//! A program that manages its memory itself uses a [`Zone`], by the rest of this page.
//!
//! # A zone
//!
//! A [`Zone`] hands out blocks of pages and knows, page by page, which of its free
//! memory is zero. A thread, scrubd, makes more of it so while a CPU is idle; requests for zeroed
//! memory then take zero pages, and clear only pages that are not zero.
//!
//! # Glossary
//!
//! | word | meaning | from |
//! |---|---|---|
//! | page, slice, block | 4 KiB; 64 KiB, which free memory is counted in; a run of slices | Linux, `mm/page_alloc.c` |
//! | order | the power of two that a number of pages is ([`Order`] 0 to 18) | Linux, `mm/page_alloc.c` |
//! | huge block | order 9, 2 MiB, 32 slices | Linux, transparent huge pages |
//! | zone | one contiguous range of pages with one [`Backing`] | Linux, `struct zone` |
//! | map | which slices are free, and what each holds: one descriptor for each huge block | `LLFree`, 2023 |
//! | hint, row | where a CPU freed a block of a class; a hot-cold row in LRU order and a zero row | the lists of Arcangeli's `PG_zero`, 2004 |
//! | zero state | of a free slice: *dirty*, *zero* or *absent* ([`PageState`]); two bits, out of band | Arcangeli's `PG_zero`, 2004 |
//! | scrub, scrubd | dirty to zero, by a thread, while a CPU idles | Lameter's scrubd, 2004; Xen's `scrub_free_pages` |
//! | refile | scrub a block of a hot-cold row and move its hint to the zero row | Arcangeli's `PG_zero`, 2004 |
//! | clear engine | what writes zeroes: `rep stosb`, stores past the cache, a device | Lameter's zero drivers, 2004 |
//! | isolate | take a free run out of circulation, for scrubd; one word names it (`pool/scrubbing.rs`) | Linux, `mm/page_isolation.c` |
//! | classify | find what a block holds that comes back from its owner | here (`pool/classify.rs`) |
//! | purge, decay | give idle memory back to the kernel; the time for which it stays | jemalloc, `dirty_decay_ms` |
//! | lazy free, wipe on fork | `MADV_FREE`, `MADV_WIPEONFORK`: the kernel may take the page; a child reads zeroes | Linux 4.5, 4.14 |
//! | remapped | pages of a block over which its owner mapped something else | here (`heap/remapped.rs`) |
//! | hit, miss, waste | a ZERO request served by zero pages; one cleared in line; zero pages given to a plain request | here ([`Counter`]) |
//! | band, burst | sizes whose demand is counted together; their requests between two pauses | here (`class.rs`, `policy/governor.rs`) |
//! | look, rest | scrubd asks what there is to do; a freed block is left alone for 100 us | here (`scrubd/thread.rs`, `clock.rs`) |
//! | backoff, poll interval | how long scrubd waits while others need its CPU, and between two looks | here (`policy/pacer.rs`) |
//!
//! # Requests
//!
//! [`Zone::zero`] (`ZERO`), [`Zone::only_zero`] (`ONLY_ZERO`: at once or not at all),
//! [`Zone::plain`]; back by [`Zone::free`] or, still zero, by [`Zone::free_zeroed`]. A block's
//! type says what is known of it: a [`Block<Zero>`](Block) comes from a clear engine,
//! from the kernel, or from an owner that vouches for it ([`Block::assume_zero`]).
//!
//! ```
//! use prezero::{Anonymous, Config, Machine, Order, Zone};
//!
//! let config = Config::new(&Machine { memory: 64 << 20, ..Machine::here() });
//! let zone = Zone::new(Anonymous::reserve(config.limit)?, &config)?;
//! let block = zone.zero(16, Order::MIN).ok_or("the zone is full")?;
//! // SAFETY: the block is ours until it is freed.
//! let bytes = unsafe { std::slice::from_raw_parts(zone.address(&block), block.bytes()) };
//! assert!(bytes.iter().all(|&b| b == 0));
//!
//! let block = block.into_dirty(); // to write to it
//! // SAFETY: as above.
//! unsafe { zone.address(&block).write_bytes(7, block.bytes()) };
//! zone.free(block);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # As a program's allocator
//!
//! A [`Heap`] is a zone whose blocks are known by their addresses alone, as `malloc` and `free` have them. [`Global`]
//! is one, with an inner allocator for small blocks, behind `#[global_allocator]`.
//!
//! # A pool
//!
//! A [`Pool`] has slots of one size at addresses that stay, and makes zero in idle time what their owners wrote: for memories
//! of Wasm instances and of virtual machines. It is a crate of its own, `prezero-pool`, with its own contract.
//!
//! # What safe code cannot do
//!
//! Safe code cannot make a zone hand out a page twice, or a page as zero that is not:
//!
//! - A block goes back once, whole, and to its zone. It is no `Copy`, it keeps its length to itself, and a zone panics
//!   for a block of another. A block that outlives its zone fits no later one.
//! - A block that counts as zero has an address to read by. An owner that wants to write turns it dirty first.
//! - A call that relies on a promise is unsafe and names the promise: [`Zone::adopt`], [`Heap::take`], [`Zone::mark_remapped`],
//!   [`Zone::check`], [`Block::assume_zero`], [`clear::register`], and the three calls round a fork, of which
//!   [`Zone::before_fork`] is the first.
//!
//! All other calls may be made at any time and with any number. A request that no block serves gets `None`.
//!
//! # What may race with what
//!
//! Everything here may be called from any thread at any time, and from the child of a
//! fork. There is no lock: free blocks are bits of the map, and taking one is one atomic operation on its word. scrubd
//! works on a run that it has taken out of circulation the same way. An allocation can ask for that run, waits for
//! some microseconds, and takes other memory after that (`pool/scrubbing.rs`).
//! Accepted races are named where they occur: lost increments of statistics, a search
//! that misses a block in flight, LRU order blurred by preemption.
//!
//! # Folders
//!
//! A folder imports only itself and those before it in the line below; `make lint` checks it. `docs/contributor.md` names
//! the file that answers each question.
//!
//! | folder | holds |
//! |---|---|
//! | `inplace` | values that are built where they stay |
//! | `units`, `class`, `clock` | pages, orders, size classes, ticks |
//! | `ablation` | mechanisms that a measurement leaves out |
//! | `clear` | how bytes become zero: engines, and the choice among them |
//! | `config` | the knobs |
//! | `block` | blocks in their owners' hands |
//! | `count` | what is counted and traced, all of it at one moment, and the panel that shows it |
//! | `mem` | what memory is: the backing, every raw pointer |
//! | `map` | which slices are free and what each holds; the search |
//! | `pool` | free memory: how a run is taken, isolated for scrubd, and purged (`pool/purge`) |
//! | `cpu` | what one CPU remembers and counts |
//! | `policy` | which size classes are scrubbed and how much (`size`, `governor`), and when (`pacer`, `backoff`, `decay`) |
//! | `waker` | scrubd as frees see it: a word to wake it by, its start and end |
//! | `zone` | requests and frees: composes all above |
//! | `scrubd` | the thread and its work; what it may touch is `zone/isolate.rs` |
//! | `heap` | blocks that are known by their addresses |
//! | `global` | the heap of a Rust program, behind its global allocator |
//!
//! Layers: sync, inplace, units, class, clock, ablation, clear, config, block, count, mem, map, pool, cpu, policy, waker, zone, scrubd, heap, global
#![deny(unsafe_code)]
#![warn(missing_debug_implementations)]
// Loom builds what it models, without the code that uses the rest of it.
#![cfg_attr(loom, allow(dead_code))]

// Under loom only what it models is built: it replaces the atomics by its own.
mod block;
mod class;
mod clock;
mod cpu;
#[cfg(not(loom))]
mod inplace;
mod map;
mod mem;
mod pool;
mod sync;
mod units;

#[cfg(not(loom))]
mod ablation;
#[cfg(not(loom))]
#[allow(unsafe_code)]
pub mod clear;
#[cfg(not(loom))]
mod config;
#[cfg(not(loom))]
mod count;
#[cfg(not(loom))]
#[allow(unsafe_code)]
mod global;
#[cfg(not(loom))]
#[allow(unsafe_code)]
mod heap;
#[cfg(not(loom))]
mod policy;
#[cfg(not(loom))]
mod scrubd;
#[cfg(all(test, not(loom)))]
mod tests;
#[cfg(not(loom))]
mod waker;
#[cfg(not(loom))]
mod zone;

pub use block::{Block, Content, Dirty, Zero, ZeroFront};
pub use map::state::{PageState, Tally};
pub use units::{HUGE, HUGE_ORDER, HUGE_PAGES, MAX_ORDER, Order, PAGE, PageId};

#[cfg(not(loom))]
pub use {
    clear::{Use, engine_named},
    config::value::Text,
    config::{
        Config, ConfigError, EngineChoice, Machine, NoMoveMode, OnFree, Origin, StatsSink, Verify,
    },
    count::counters::{Counter, Definition, Unit, Value},
    count::snapshot::{FreeState, Gauges, Snapshot},
    global::Global,
    heap::{Heap, InvalidPointer, Live, NoHeap, Resized},
    mem::backing::{Anonymous, Backing},
    prezero_host::{Size, Topology},
    prezero_pool::{Pool, PoolStats, Slot},
    scrubd::allow_scrubd,
    zone::{Zone, ZoneError, check::Flaw, resize::Grown},
};

/// What prezero's own commands and libraries share with it. No part of the API: it changes without notice.
#[doc(hidden)]
#[cfg(not(loom))]
pub mod internal {
    pub use crate::{
        ablation::{Ablation, Mechanism},
        config::knobs::{KNOBS, Knob, Turned},
        config::{DEFAULT_THRESHOLD, MAX_LIMIT, MIN_THRESHOLD},
        count::counters::{COUNT, Counters},
        count::panel,
        count::snapshot::ORDERS,
        heap::fit::{ADDRESS_SPACE_SHARE, MIN_LIMIT},
        heap::lazy::{LazyHeap, Made},
        scrubd::allow_scrubd_by,
        waker::{Change, START_BYTES},
    };
    pub use prezero_sys::thread::Spawner;
}
