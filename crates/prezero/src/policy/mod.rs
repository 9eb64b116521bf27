//! How much is made zero, and when.

pub(crate) mod decay;
pub(crate) mod deference;
pub(crate) mod governor;
pub(crate) mod late;
pub(crate) mod naps;
pub(crate) mod purse;
pub(crate) mod reserve;
pub(crate) mod rests;
pub(crate) mod rhythm;

use crate::clock::REST_NS;

/// What a step came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Something was done: there may be more.
    Worked,
    /// Something was done, and a nap comes before the next step: because an allocation
    /// wanted the block in hand and needs a moment to take what it came for, or because
    /// the kernel was asked for something, which is done only while a CPU is idle, as a
    /// nap that ends in time shows.
    Nap,
    /// So many ns until more may be cleared: `scrub_rate` bounds it.
    Paced(u64),
    /// There is nothing to do now.
    Nothing,
}

/// What is asked of scrubd beyond its routine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mood {
    /// Clear and give back by the book.
    Normal,
    /// Some CPU is busy: clear, but ask nothing of the kernel. A thread that is kept from
    /// its CPU inside a fault or a `madvise` keeps locks of the whole process: measured, a
    /// program's `mmap` then waits up to 4 s for it.
    Unsure,
    /// Every CPU has somebody else: nothing. Whoever replaces a thread of the idle class need not be who has
    /// just woken up: it may be who was there before, and the other waits out a time slice of his.
    Crowded,
    /// Load is above `scrub_load`: give back only.
    Resting,
    /// Memory is short: give back everything that is idle, now.
    Pressed,
}

/// What ends a nap before its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WokenBy {
    /// No free.
    Nothing,
    /// A free of a very large block.
    LargeFrees,
    /// Any free.
    AnyFree,
}

/// Shortest nap, ns.
pub(crate) const NAP_MIN_NS: u64 = REST_NS + REST_NS / 8;
/// After so long what was freed before a look has rested whatever the ticks say, ns.
pub(crate) const NAP_RESTED_NS: u64 = 2 * REST_NS - REST_NS / 32;
/// Longest nap of a scrubd that waits for something, ns: how late a block is found then.
pub(crate) const NAP_MAX_NS: u64 = 500_000;
/// Beyond that a nap may be one part in this many of the time since the last work, and any length
/// where a free ends it: work that comes with some period is found late by that part of the
/// period at most.
pub(crate) const LATE_SHARE: u64 = 8;
/// Longest nap of a scrubd that finds nothing to do although the program frees, ns.
pub(crate) const NAP_LAZY_NS: u64 = 20_000_000;
/// Longest nap of one that may clear nothing, since nobody asks for zero or none would pay, ns: one part in
/// [`LATE_SHARE`] of the time for which that is so, and who begins to ask is found so late.
pub(crate) const NAP_BARRED_NS: u64 = 100_000_000;
/// Time without any free after which scrubd parks, ns.
pub(crate) const PARK_NS: u64 = 100_000_000;
/// A parked scrubd that still holds idle memory looks for pressure and decay, ns. The longest rest in a crowd,
/// too: how late its end is seen, and what a tool asks for.
pub(crate) const WATCH_NS: u64 = 250_000_000;
/// What has been idle for so long is left out of core dumps, ns. Longer than any pause that a
/// program makes at work: to take it costs 3 us more then.
pub(crate) const HIDE_NS: u64 = 1_000_000_000;
/// scrubd was kept from its CPU if a step took this much longer than its CPU time, ns.
pub(crate) const DISTURBED_NS: u64 = 200_000;
/// A nap that ended this much late ended behind somebody else's work, ns.
pub(crate) const LATE_NS: u64 = 1_000_000;
/// First rest of a scrubd that was kept from its CPU, ns; doubled each time, to the last.
pub(crate) const REST_MIN_NS: u64 = 4_000_000;
pub(crate) const REST_MAX_NS: u64 = 128_000_000;
/// From this nap on a large free wakes scrubd, ns.
pub(crate) const DOZE_NS: u64 = 200_000;
