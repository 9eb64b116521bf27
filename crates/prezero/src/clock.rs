//! Time, injected: ages are counted in ticks of a clock that scrubd turns.
//!
//! The fast path stamps a free block with [`Clock::tick`], one relaxed load; scrubd turns the clock at each look.
//! While scrubd sleeps for long the clock stands, so a thread that wakes scrubd turns it first. Otherwise a block
//! freed now would look as old as the sleep was long.

use crate::sync::{AtomicU32, Ordering::Relaxed};

/// Nanoseconds of a tick, as a shift: 65.5 us. Short against the shortest rest that
/// matters (a hot block's), long enough that 32 bits last three days.
const TICK_SHIFT: u32 = 16;

/// A free block rests for so long before scrubd touches it: many times a hot clear of a small
/// block. A program that frees and allocates in a loop never meets scrubd.
/// Moved by: `bench grid --idle off`.
pub(crate) const REST_NS: u64 = 100_000;

/// The current tick and the source of time behind it.
pub(crate) struct Clock {
    tick: AtomicU32,
    now_ns: fn() -> u64,
}

impl Clock {
    pub(crate) fn new(now_ns: fn() -> u64) -> Clock {
        Clock { tick: AtomicU32::new((now_ns() >> TICK_SHIFT) as u32), now_ns }
    }

    /// The tick as it was last turned to.
    #[inline]
    pub(crate) fn tick(&self) -> u32 {
        self.tick.load(Relaxed)
    }

    /// Turns the clock to the present; returns nanoseconds and the tick.
    pub(crate) fn turn(&self) -> (u64, u32) {
        let now = (self.now_ns)();
        let tick = (now >> TICK_SHIFT) as u32;
        self.tick.store(tick, Relaxed);
        (now, tick)
    }

    /// A tick that is older than any age that matters; never 0.
    pub(crate) fn long_ago(&self) -> u32 {
        self.tick().wrapping_sub(1 << 30).max(1)
    }

    /// Nanoseconds now, without turning the clock.
    pub(crate) fn now_ns(&self) -> u64 {
        (self.now_ns)()
    }
}

/// Ticks from `then` to `now`; 0 if `then` is the later one, as it is for what is freed
/// after the clock was read.
pub(crate) const fn age(now: u32, then: u32) -> u32 {
    let age = now.wrapping_sub(then);
    if age > i32::MAX as u32 { 0 } else { age }
}

/// Ticks in a span of nanoseconds, rounded up.
pub(crate) const fn ticks(ns: u64) -> u32 {
    ((ns + (1 << TICK_SHIFT) - 1) >> TICK_SHIFT) as u32
}
