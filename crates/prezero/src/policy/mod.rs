//! How much is made zero, and when.
//!
//! Times are nanoseconds, and ticks stay outside. A module that counts pages as well names a span `_ns`, and a point
//! in time `now`, `_at`, `_until` or `_began`.

pub(crate) mod backoff;
pub(crate) mod decay;
pub(crate) mod governor;
pub(crate) mod hot;
pub(crate) mod pacer;
pub(crate) mod sample;
pub(crate) mod size;

use crate::clock::REST_NS;

/// What a step came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Something was done: there may be more.
    Worked,
    /// Something was done, and a nap comes before the next step. An allocation wanted the isolated
    /// block and needs a moment to take it; or the kernel was asked for something, which is done
    /// only while a CPU is idle, as a nap that ends in time shows.
    Nap,
    /// The time until more may be cleared, ns: `scrub_rate` bounds it.
    Paced(u64),
    /// There is nothing to do now.
    Nothing,
}

/// Circumstances that change scrubd's routine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Throttle {
    /// Clear and give back by the book.
    Normal,
    /// Some CPU is busy: clear, but ask nothing of the kernel while the program works. A thread that loses its CPU inside
    /// a fault or a `madvise` keeps locks of the whole process, and the program's `mmap` waits
    /// for it, for seconds.
    Unsure,
    /// Every CPU has another thread: nothing, but to give back what a program that idles has left. A thread that wakes up need not be the one that replaces scrubd:
    /// the kernel may choose the thread that scrubd had replaced, and the other waits out a time slice.
    Crowded,
    /// The kernel refused `SCHED_IDLE`: give back only.
    Resting,
    /// Memory is short: give back everything that is idle, now.
    Pressed,
}

/// What ends a wait before its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WokenBy {
    /// No free.
    Nothing,
    /// A free of a very large block.
    LargeFrees,
    /// Any free.
    AnyFree,
}

/// The shortest poll interval. A block that was freed just before has rested at its end.
/// Moved by: `bench grid --idle on`.
pub(crate) const POLL_MIN_NS: u64 = REST_NS + REST_NS / 8;
/// After this interval a block that was freed before it has rested, however ticks were rounded. It ends sooner than a
/// wake-up call of a large free pays.
/// Moved by: `bench grid --idle on`.
pub(crate) const POLL_RESTED_NS: u64 = 2 * REST_NS - REST_NS / 32;
/// The longest interval right after an event.
/// Moved by: `bench grid --idle on`.
pub(crate) const POLL_MAX_NS: u64 = 500_000;
/// Later the interval is at most one part in this many of the time since the event. scrubd finds work
/// that comes with a period late by that part of the period.
/// Moved by: tests of `pacer`, counter `scrubd_wakeups`.
pub(crate) const POLL_SHARE: u64 = 8;
/// The longest interval while the program frees and scrubd finds no work.
/// Moved by: tests of `pacer`, counter `scrubd_wakeups`.
pub(crate) const POLL_LAZY_NS: u64 = 20_000_000;
/// The time after the last free at which scrubd parks, ns. Parked it costs nothing. It is also the longest interval
/// while nothing may be cleared: scrubd notices the next request for zero at most this late.
/// Moved by: counters `scrubd_wakeups`, `scrubd_cpu_ns` in `bench real --only sqlite,g++`.
pub(crate) const PARK_NS: u64 = 100_000_000;
/// A parked scrubd looks this often at memory pressure and at idle memory. It is also the longest
/// rest in a crowd, and the longest time in which a tool waits for an answer.
/// Moved by: counters `scrubd_wakeups`, `scrubd_cpu_ns`.
pub(crate) const WATCH_NS: u64 = 250_000_000;
/// The time without a request or a free after which a program idles, ns. scrubd stops waiting for its next request,
/// and its free memory is left out of core dumps. A request pays to take such memory back, so no pause at work lasts as
/// long.
/// Moved by: `bench waste --only once`, `cargo test -p prezero-preload --test shim mappings`.
pub(crate) const IDLE_NS: u64 = 1_000_000_000;
/// Another thread took scrubd's CPU if a step took this much longer than its CPU time.
/// Moved by: `bench grid --idle busy`.
pub(crate) const DISTURBED_NS: u64 = 200_000;
/// A wait that ended this much late ended behind another thread's work.
/// Moved by: `bench disturb --scenes ticks-busy`.
pub(crate) const LATE_NS: u64 = 1_000_000;
/// The first backoff after another thread took scrubd's CPU, and the longest. Each one is twice as
/// long as the one before.
/// Moved by: `bench disturb --scenes ticks-busy`.
pub(crate) const BACKOFF_MIN_NS: u64 = 4_000_000;
pub(crate) const BACKOFF_MAX_NS: u64 = 128_000_000;
