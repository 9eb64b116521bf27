//! Time, injected: ages are counted in ticks of a clock that scrubd turns.
//!
//! The fast path stamps a free block with [`Clock::tick`], one relaxed load; scrubd turns the clock at each look.
//! While scrubd sleeps for long the clock stands, so a thread that wakes scrubd turns it first. Otherwise a block
//! freed now would look as old as the sleep was long.
//!
//! A [`Tick`] is a point in time, [`Ticks`] are a span, and neither is a number elsewhere. Nanoseconds stay a `u64`:
//! the kernel, the knobs and the counters speak of them, and no other unit of time is beside them there.

use crate::sync::{AtomicU32, Ordering::Relaxed};

/// Nanoseconds of a tick, as a shift: 65.5 us. Short against the shortest rest that
/// matters (a hot block's), long enough that 32 bits last three days.
const TICK_SHIFT: u32 = 16;

/// The time for which a free block rests before scrubd touches it, ns: many times a hot clear of a small
/// block. A program that frees and allocates in a loop never meets scrubd.
/// Moved by: `bench grid --idle off`.
pub(crate) const REST_NS: u64 = 100_000;

/// A point in time, modulo 2^32 ticks. Without an order: a later tick may have a smaller number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tick(u32);

impl Tick {
    /// The tick in which this many nanoseconds have passed.
    pub(crate) const fn at(ns: u64) -> Tick {
        Tick((ns >> TICK_SHIFT) as u32)
    }

    /// How long ago `then` is. No time at all if `then` is the later one, as for a block that is
    /// freed after the clock was read.
    #[inline]
    pub(crate) const fn since(self, then: Tick) -> Ticks {
        let age = self.0.wrapping_sub(then.0);
        if age > i32::MAX as u32 { Ticks(0) } else { Ticks(age) }
    }

    /// The low half: what the word of a hint has room for.
    #[inline]
    pub(crate) const fn low(self) -> u16 {
        self.0 as u16
    }
}

/// A span of time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Ticks(u32);

impl Ticks {
    /// A number of ticks.
    #[inline]
    pub(crate) const fn new(ticks: u32) -> Ticks {
        Ticks(ticks)
    }

    /// A rest in ns, rounded up: an older block has rested.
    #[inline]
    pub(crate) const fn rounded_up(ns: u64) -> Ticks {
        Ticks(ns.div_ceil(1 << TICK_SHIFT) as u32)
    }

    /// A time to stay in ns, rounded down: a block as old has had it.
    pub(crate) fn rounded_down(ns: u64) -> Ticks {
        Ticks(u32::try_from(ns >> TICK_SHIFT).unwrap_or(u32::MAX))
    }
}

/// The tick at which something was done last, if it ever was. All-zero bytes: never.
#[derive(Default)]
pub(crate) struct LastTick(AtomicU32);

// SAFETY: one atomic for which all-zero bytes are a valid value, and which has no destructor.
#[cfg(not(loom))]
#[allow(unsafe_code)]
unsafe impl prezero_sys::meta::Zeroable for LastTick {}

impl LastTick {
    #[inline]
    pub(crate) fn get(&self) -> Option<Tick> {
        match self.0.load(Relaxed) {
            0 => None,
            tick => Some(Tick(tick)),
        }
    }

    /// Tick 0 is kept as the next one.
    #[inline]
    pub(crate) fn set(&self, tick: Tick) {
        self.0.store(tick.0.max(1), Relaxed);
    }

    /// Never, from now on: an old tick would look new once the count wraps.
    #[inline]
    pub(crate) fn clear(&self) {
        self.0.store(0, Relaxed);
    }
}

/// One moment, in both units.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    pub(crate) ns: u64,
    pub(crate) tick: Tick,
}

/// The current tick and the source of time behind it.
pub(crate) struct Clock {
    tick: AtomicU32,
    now_ns: fn() -> u64,
}

impl Clock {
    pub(crate) fn new(now_ns: fn() -> u64) -> Clock {
        Clock { tick: AtomicU32::new(Tick::at(now_ns()).0), now_ns }
    }

    /// The tick as it was last turned to.
    #[inline]
    pub(crate) fn tick(&self) -> Tick {
        Tick(self.tick.load(Relaxed))
    }

    /// Turns the clock to the present.
    pub(crate) fn turn(&self) -> Now {
        let ns = self.now_ns();
        let tick = Tick::at(ns);
        self.tick.store(tick.0, Relaxed);
        Now { ns, tick }
    }

    /// Nanoseconds now, without turning the clock.
    pub(crate) fn now_ns(&self) -> u64 {
        (self.now_ns)()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const LAST: Tick = Tick(u32::MAX);

    #[test]
    fn an_age_survives_the_wrap_of_the_tick() {
        assert_eq!(Tick(2).since(LAST), Ticks(3));
    }

    #[test]
    fn a_later_tick_is_no_time_ago() {
        assert_eq!(LAST.since(Tick(2)), Ticks(0));
    }

    #[test]
    fn the_first_tick_is_kept_apart_from_never() {
        let last = LastTick::default();
        assert_eq!(last.get(), None);
        last.set(Tick(0));
        assert_eq!(last.get(), Some(Tick(1)));
    }

    #[test]
    fn a_rest_is_rounded_up_and_a_time_to_stay_down() {
        let ns = (1 << TICK_SHIFT) + 1;
        assert_eq!((Ticks::rounded_up(ns), Ticks::rounded_down(ns)), (Ticks(2), Ticks(1)));
        assert_eq!(Ticks::rounded_down(u64::MAX), Ticks(u32::MAX), "a decay of never");
    }
}
