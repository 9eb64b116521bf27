//! What the zone counts, defined once.
//!
//! [`Counter`] lists every counter with its name, unit and meaning; the three
//! renderings in `report` walk that list and hold none of their own. A [`Snapshot`] is
//! the sum over all CPUs plus the [`Gauges`] of the moment.
//!
//! **Accepted race.** [`Counters::add`] is a relaxed load and store: no locked
//! instruction on the allocation path. Where the compiler folds it into one `add` to
//! memory (x86-64) a preemption cannot split it, and an increment is lost only if a thread
//! migrated after it read its CPU number and two CPUs add to one counter at the same instant.
//! Elsewhere a thread preempted between load and store also takes back what others added
//! to that counter meanwhile. So counters are statistics, and a sum may even be seen to
//! step back; nothing is decided by an exact value. What must not be lost, a verification
//! failure, goes through [`Counters::add_exact`]. One counter is written by one of the two,
//! never both.

use crate::units::{MAX_ORDER, Order};
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

/// A value's name, unit and meaning: all that a rendering needs.
#[derive(Debug)]
pub struct Definition {
    /// Stable `snake_case` name: the JSON key, and the stem of the Prometheus name.
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
        AssembledBytes "assembled_bytes" Bytes "free bytes that lay apart and were moved together for a large request";
        MovedBytes "moved_bytes" Bytes "bytes of growing blocks that changed their address without a copy";
        FreedClearedBytes "freed_cleared_bytes" Bytes "bytes cleared because they were freed (zero-on-free)";
    }
    "lists" {
        Overflows "overflows" Count "blocks moved from a full zero list to hot-cold";
        BuddyOverflows "buddy_overflows" Count "blocks moved from a full hot-cold list to the buddy";
        Refiles "refiles" Count "blocks that scrubd moved from hot-cold to the zero list";
    }
    "scrubd" {
        ScrubbedBytes "scrubbed_bytes" Bytes "bytes that scrubd cleared";
        BypassedBytes "bypassed_bytes" Bytes "of these, bytes written past the cache";
        ScrubCpuNs "scrub_cpu_ns" Nanoseconds "CPU time that clearing took in scrubd";
        PrefaultedBytes "prefaulted_bytes" Bytes "bytes that scrubd made resident before anyone touched them";
        PrefaultCpuNs "prefault_cpu_ns" Nanoseconds "CPU time that prefaulting took in scrubd";
        LateCpuNs "late_cpu_ns" Nanoseconds "CPU time beyond a millisecond for 2 MiB: the memory had to be found first, by a hypervisor or the kernel";
        LookCpuNs "look_cpu_ns" Nanoseconds "CPU time that scrubd took to wake and look for what to clear";
        DaemonCpuNs "daemon_cpu_ns" Nanoseconds "CPU time of scrubd, all of it";
        DaemonWakeups "daemon_wakeups" Count "times scrubd woke up";
        Aborts "aborts" Count "blocks that scrubd gave up to an allocation";
        Asides "asides" Count "times scrubd stepped aside because it spent more than it spared";
    }
    "give-back" {
        ReleasedBytes "released_bytes" Bytes "bytes given back to the kernel";
        UnusedZeroBytes "unused_zero_bytes" Bytes "bytes scrubbed or prefaulted and given back to the kernel unused";
        BackingErrors "backing_errors" Count "calls that the kernel refused";
    }
    "verification" {
        VerifiedPages "verified_pages" Pages "pages checked to be zero";
        VerifyFailures "verify_failures" Pages "pages said to be zero that were not";
    }
}

const COUNT: usize = Counter::ALL.len();

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

    /// The value now.
    pub fn get(&self, counter: Counter) -> u64 {
        self.0[counter as usize].load(Relaxed)
    }

    /// Back to zero: a forked child starts its own account.
    pub fn reset(&self) {
        for cell in &self.0 {
            cell.store(0, Relaxed);
        }
    }
}

impl Default for Counters {
    fn default() -> Self {
        Counters::new()
    }
}

/// What the pages of a free block in the buddy have in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FreeState {
    /// Resident, content unknown.
    Dirty,
    /// Resident, all zero.
    Zero,
    /// Not resident.
    Absent,
    /// The pages differ: state survives merge at page grain.
    Mixed,
}

impl FreeState {
    /// All four, in the order of the columns of [`Gauges::free`].
    pub const ALL: [FreeState; 4] =
        [FreeState::Dirty, FreeState::Zero, FreeState::Absent, FreeState::Mixed];

    /// The name in every rendering.
    pub const fn name(self) -> &'static str {
        match self {
            FreeState::Dirty => "dirty",
            FreeState::Zero => "zero",
            FreeState::Absent => "absent",
            FreeState::Mixed => "mixed",
        }
    }
}

/// How many orders the buddy keeps.
pub const ORDERS: usize = MAX_ORDER.get() as usize + 1;

/// A gauge's value.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Value {
    /// A whole number.
    Int(u64),
    /// A measured rate.
    Float(f64),
}

impl From<u64> for Value {
    fn from(value: u64) -> Value {
        Value::Int(value)
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Value {
        Value::Float(value)
    }
}

macro_rules! gauges {
    ($($name:ident: $type:ty, $unit:ident, $help:literal;)*) => {
        /// The zone at one moment. Read while it changes: the parts need not add up.
        #[derive(Clone, Copy, PartialEq, Debug, Default)]
        pub struct Gauges {
            $(#[doc = concat!($help, ".")] pub $name: $type,)*
            /// Free blocks in the buddy (not those on quicklists) by order and [`FreeState`].
            pub free: [[u64; FreeState::ALL.len()]; ORDERS],
            /// The engine that clears through the cache.
            pub engine_cached: &'static str,
            /// The engine that clears past the cache.
            pub engine_bypassing: &'static str,
        }

        impl Gauges {
            /// Every scalar gauge with its definition, in the order of definition.
            pub fn scalars(&self) -> impl Iterator<Item = (&'static Definition, Value)> {
                const DEFINITIONS: &[Definition] = &[$(Definition {
                    name: stringify!($name), unit: Unit::$unit, group: "zone", help: $help,
                },)*];
                DEFINITIONS.iter().zip([$(Value::from(self.$name),)*])
            }
        }
    };
}

gauges! {
    zone_bytes: u64, Bytes, "address range of the zone, its limit";
    allocated_bytes: u64, Bytes, "in the program's hands";
    resident_zero_bytes: u64, Bytes, "free, resident and zero";
    resident_dirty_bytes: u64, Bytes, "free, resident, content unknown";
    absent_bytes: u64, Bytes, "free and not resident";
    target_zero_bytes: u64, Bytes, "that the governor wants zero, beside the quicklists";
    quicklist_zero_bytes: u64, Bytes, "of the free bytes, on the zero quicklists";
    quicklist_hot_cold_bytes: u64, Bytes, "of the free bytes, on the hot-cold quicklists";
    clear_ns_per_page: f64, NanosecondsPerPage, "to clear inline, calibrated; 0 if not measured";
    hot_border_bytes: u64, Bytes, "below it a hot block is cleared rather than a cold zero one used; 0: never, or not measured";
    fault_ns_per_page: f64, NanosecondsPerPage, "to fault a page in, measured; 0 if not measured";
}

impl Gauges {
    /// The count of free blocks of one order in one state, to read or to set.
    pub fn free_mut(&mut self, order: Order, state: FreeState) -> &mut u64 {
        &mut self.free[order.get() as usize][state as usize]
    }
}

/// All counters, summed over the CPUs, and the gauges of the same moment.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Snapshot {
    counters: [u64; COUNT],
    /// The zone as it stood.
    pub gauges: Gauges,
}

impl Snapshot {
    /// Sums the counters of all CPUs.
    pub fn gather<'a>(
        counters: impl IntoIterator<Item = &'a Counters>,
        gauges: Gauges,
    ) -> Snapshot {
        let mut sums = [0u64; COUNT];
        for cpu in counters {
            for (sum, cell) in sums.iter_mut().zip(&cpu.0) {
                *sum = sum.wrapping_add(cell.load(Relaxed));
            }
        }
        Snapshot { counters: sums, gauges }
    }

    /// A counter's sum, in its unit.
    pub fn get(&self, counter: Counter) -> u64 {
        self.counters[counter as usize]
    }

    /// What was counted since `earlier`, with the gauges of now. A counter that lost more
    /// than it gained reads 0.
    #[must_use]
    pub fn delta(&self, earlier: &Snapshot) -> Snapshot {
        let mut delta = *self;
        for (now, then) in delta.counters.iter_mut().zip(earlier.counters) {
            *now = now.saturating_sub(then);
        }
        delta
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_snake_case_and_end_in_their_unit() {
        let gauges = Gauges::default();
        let counters = Counter::ALL.iter().map(|c| c.definition());
        let mut seen = HashSet::new();

        for d in counters.chain(gauges.scalars().map(|(d, _)| d)) {
            assert!(seen.insert(d.name), "{} is defined twice", d.name);
            assert!(d.name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{}", d.name);
            let suffix = match d.unit {
                Unit::Bytes => d.name.ends_with("_bytes"),
                Unit::Nanoseconds => d.name.ends_with("_ns"),
                Unit::NanosecondsPerPage => d.name.ends_with("_ns_per_page"),
                Unit::Count | Unit::Pages => true,
            };
            assert!(suffix, "{} does not name its unit {:?}", d.name, d.unit);
            assert!(!d.help.ends_with('.') && !d.help.contains(['\n', '\\', '"']), "{}", d.help);
        }
    }

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
    fn a_snapshot_sums_the_cpus() {
        let cpus = [Counters::new(), Counters::new(), Counters::new()];
        cpus[0].bump(Counter::Hits);
        cpus[2].add(Counter::Hits, 41);

        let snapshot = Snapshot::gather(&cpus, Gauges::default());

        assert_eq!(snapshot.get(Counter::Hits), 42);
        assert_eq!(snapshot.get(Counter::Misses), 0);
    }

    #[test]
    fn delta_subtracts_counters_and_keeps_the_later_gauges() {
        let cpu = Counters::new();
        cpu.add(Counter::Frees, 5);
        let earlier = Snapshot::gather([&cpu], Gauges { allocated_bytes: 10, ..Gauges::default() });
        cpu.add(Counter::Frees, 7);
        let later = Snapshot::gather([&cpu], Gauges { allocated_bytes: 20, ..Gauges::default() });

        let delta = later.delta(&earlier);

        assert_eq!(delta.get(Counter::Frees), 7);
        assert_eq!(delta.gauges.allocated_bytes, 20);
        assert_eq!(earlier.delta(&later).get(Counter::Frees), 0, "a counter that stepped back");
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

    #[test]
    fn reset_leaves_nothing() {
        let cpu = Counters::new();
        Counter::ALL.iter().for_each(|&c| cpu.add(c, 3));

        cpu.reset();

        assert!(Counter::ALL.iter().all(|&c| cpu.get(c) == 0));
    }
}
