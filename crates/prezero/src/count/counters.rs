//! What the zone counts, defined once.
//!
//! [`Counter`] lists every counter with its name, unit and meaning; the panel and the
//! renderings of `prezero-report` walk that list and hold no other.
//!
//! **Accepted race.** [`Counters::add`] is a relaxed load and store: no locked
//! instruction on the allocation path. Where the compiler folds it into one `add` to
//! memory (x86-64) a preemption cannot split it, and an increment is lost only if a thread
//! migrated after it read its CPU number and two CPUs add to one counter at the same instant.
//! Elsewhere a thread preempted between load and store also takes back what others added
//! to that counter meanwhile. So counters are statistics, and a sum may even be seen to
//! step back; nothing is decided by an exact value. A count that must not be lost, a verification
//! failure, goes through [`Counters::add_exact`]. One counter is written by one of the two, never
//! both.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What a value counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Events.
    Count,
    /// Pages of 4 KiB.
    Pages,
    /// Bytes. The name ends in `_bytes`.
    Bytes,
    /// Nanoseconds. The name ends in `_ns`.
    Nanoseconds,
    /// Nanoseconds for each page of 4 KiB. The name ends in `_ns_per_page`.
    NanosecondsPerPage,
}

impl Unit {
    /// As it is written behind a value.
    pub const fn name(self) -> &'static str {
        match self {
            Unit::Count => "count",
            Unit::Pages => "pages",
            Unit::Bytes => "bytes",
            Unit::Nanoseconds => "ns",
            Unit::NanosecondsPerPage => "ns/page",
        }
    }
}

/// A value's name, unit and meaning: all that a rendering needs.
#[derive(Debug)]
pub struct Definition {
    /// Stable `snake_case` name, which is the JSON key.
    pub name: &'static str,
    /// What it counts.
    pub unit: Unit,
    /// The heading it stands under in the text rendering.
    pub group: &'static str,
    /// One line, no full stop.
    pub help: &'static str,
}

macro_rules! counters {
    ($($group:literal { $($variant:ident $name:literal $unit:ident $help:literal;)* })*) => {
        /// Everything that is counted. The discriminant is the index in [`Counters`].
        #[repr(usize)]
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Counter {
            $($(#[doc = concat!($help, ".")] $variant,)*)*
        }

        impl Counter {
            /// Every counter, in the order of definition.
            pub const ALL: &[Counter] = &[$($(Counter::$variant,)*)*];

            /// Name, unit, group and meaning.
            pub const fn definition(self) -> &'static Definition {
                const DEFINITIONS: &[Definition] = &[$($(Definition {
                    name: $name, unit: Unit::$unit, group: $group, help: $help,
                },)*)*];
                &DEFINITIONS[self as usize]
            }
        }
    };
}

// The first eight share a cache line: what a hit and its return count.
counters! {
    "requests" {
        ZeroRequests "zero_requests" Count "requests for zeroed memory";
        PlainRequests "plain_requests" Count "requests that take memory as it is";
        PlainBytes "plain_bytes" Bytes "bytes handed out as they are";
        Hits "hits" Count "ZERO requests served wholly by resident zero pages";
        HitBytes "hit_bytes" Bytes "bytes of ZERO requests that were resident and zero already";
        Frees "frees" Count "blocks given back";
        FreeBytes "free_bytes" Bytes "bytes given back";
        Misses "misses" Count "ZERO requests of which some page was cleared inline";
        MissBytes "miss_bytes" Bytes "bytes of ZERO requests cleared inline";
        OnlyZeroRequests "only_zero_requests" Count "requests for zeroed memory at once or not at all";
        TimedClearBytes "timed_clear_bytes" Bytes "of the bytes cleared inline, those in blocks large enough to be timed";
        TimedClearNs "timed_clear_ns" Nanoseconds "time that clearing those took";
        AbsentBytes "served_absent_bytes" Bytes "bytes of ZERO requests that the kernel zero-fills when touched";
        Wastes "wastes" Count "zero blocks given to plain requests";
        WasteBytes "waste_bytes" Bytes "zero bytes given to plain requests";
        Refused "refused" Count "requests that the zone could not serve and that went elsewhere";
        FreesZeroed "frees_zeroed" Count "blocks given back with proof that they are zero";
        MovedBytes "moved_bytes" Bytes "bytes of growing blocks that changed their address without a copy";
        PlainAbsentBytes "plain_absent_bytes" Bytes "of the bytes handed out as they are, those that the kernel faults in when touched";
        FreedClearedBytes "freed_cleared_bytes" Bytes "bytes cleared because they were freed (zero-on-free)";
    }
    "scrubd" {
        Refiles "refiles" Count "blocks that it cleared for the CPU that freed them";
        ScrubbedBytes "scrubbed_bytes" Bytes "bytes that scrubd cleared";
        BypassedBytes "bypassed_bytes" Bytes "of these, bytes written past the cache";
        ScrubCpuNs "scrub_cpu_ns" Nanoseconds "CPU time that clearing took in scrubd";
        LookCpuNs "look_cpu_ns" Nanoseconds "CPU time that scrubd took to wake and look for what to clear";
        ScrubdCpuNs "scrubd_cpu_ns" Nanoseconds "CPU time of scrubd, all of it";
        ScrubdWakeups "scrubd_wakeups" Count "times scrubd woke up";
        BusyLooks "busy_looks" Count "times scrubd found the CPUs busy, and did less or nothing";
        Aborts "aborts" Count "blocks that scrubd gave up to an allocation";
        Asides "asides" Count "times scrubd stepped aside because it spent more than it spared";
    }
    "give-back" {
        ReleasedBytes "released_bytes" Bytes "bytes given back to the kernel";
        UnusedZeroBytes "unused_zero_bytes" Bytes "bytes scrubbed and given back to the kernel unused";
        BackingErrors "backing_errors" Count "calls that the kernel refused";
    }
    "verification" {
        VerifiedPages "verified_pages" Pages "pages checked to be zero";
        VerifyFailures "verify_failures" Pages "pages said to be zero that were not";
    }
}

/// How many there are.
pub const COUNT: usize = Counter::ALL.len();

/// One CPU's counters, on cache lines of their own. All-zero bytes are a valid empty value.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Counters([AtomicU64; COUNT]);

impl Counters {
    /// All zero.
    pub const fn new() -> Counters {
        Counters([const { AtomicU64::new(0) }; COUNT])
    }

    /// Adds `n`, in the counter's unit. May lose increments (see the module's accepted race).
    #[inline]
    pub fn add(&self, counter: Counter, n: u64) {
        let cell = &self.0[counter as usize];
        cell.store(cell.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// Adds one, as [`Counters::add`] does.
    #[inline]
    pub fn bump(&self, counter: Counter) {
        self.add(counter, 1);
    }

    /// Adds `n` and loses nothing, at the price of a locked instruction.
    pub fn add_exact(&self, counter: Counter, n: u64) {
        self.0[counter as usize].fetch_add(n, Relaxed);
    }

    /// Every counter's value, in the order of definition.
    pub fn all(&self) -> impl Iterator<Item = u64> {
        self.0.iter().map(|cell| cell.load(Relaxed))
    }

    /// The sums of several, in the order of definition.
    pub fn sums<'a>(all: impl IntoIterator<Item = &'a Counters>) -> [u64; COUNT] {
        let mut sums = [0u64; COUNT];
        for counters in all {
            for (sum, n) in sums.iter_mut().zip(counters.all()) {
                *sum = sum.wrapping_add(n);
            }
        }
        sums
    }

    /// The value now.
    pub fn get(&self, counter: Counter) -> u64 {
        self.0[counter as usize].load(Relaxed)
    }

    /// Takes these values, in the order of definition. What has its value is not written: no page becomes resident for it.
    pub fn set(&self, values: &[u64; COUNT]) {
        let others =
            self.0.iter().zip(values).filter(|(cell, value)| cell.load(Relaxed) != **value);
        others.for_each(|(cell, value)| cell.store(*value, Relaxed));
    }
}

impl Default for Counters {
    fn default() -> Self {
        Counters::new()
    }
}

/// The value of a counter or a gauge.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Value {
    /// A whole number.
    Int(u64),
    /// A measured rate.
    Float(f64),
}

impl Value {
    /// As a word.
    pub fn bits(self) -> u64 {
        match self {
            Value::Int(n) => n,
            Value::Float(x) => x.to_bits(),
        }
    }

    /// As a float, for arithmetic.
    pub fn as_f64(self) -> f64 {
        match self {
            Value::Int(n) => n as f64,
            Value::Float(x) => x,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_is_counted_in_its_own_cell() {
        let cpu = Counters::new();

        for (i, &counter) in Counter::ALL.iter().enumerate() {
            cpu.add(counter, 1000 + i as u64);
        }

        for (i, &counter) in Counter::ALL.iter().enumerate() {
            assert_eq!(counter as usize, i);
            assert_eq!(cpu.get(counter), 1000 + i as u64, "{counter:?}");
        }
    }

    #[test]
    fn sums_are_those_of_all_cpus() {
        let cpus = [Counters::new(), Counters::new(), Counters::new()];
        cpus[0].bump(Counter::Hits);
        cpus[2].add(Counter::Hits, 41);

        let sums = Counters::sums(&cpus);

        assert_eq!(sums[Counter::Hits as usize], 42);
        assert_eq!(sums.iter().sum::<u64>(), 42);
    }

    #[test]
    fn exact_increments_survive_contention() {
        let cpu = Counters::new();

        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| (0..10_000).for_each(|_| cpu.add_exact(Counter::VerifyFailures, 1)));
            }
        });

        assert_eq!(cpu.get(Counter::VerifyFailures), 40_000);
    }
}
