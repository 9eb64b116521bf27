//! A zone at one moment: the sum over all CPUs' counters, and gauges.

use crate::count::counters::{COUNT, Counter, Definition, Unit, Value};
use crate::units::MAX_ORDER;

/// What the pages of a free block in the map have in common.
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

/// Orders of free blocks that are counted.
pub const ORDERS: usize = MAX_ORDER.get() as usize + 1;

macro_rules! gauges {
    ($($name:ident: $type:ty, $value:ident $unit:ident $help:literal;)*) => {
        /// The zone at one moment. Read while it changes: the parts need not add up.
        #[derive(Clone, Copy, PartialEq, Debug, Default)]
        pub struct Gauges {
            $(#[doc = concat!($help, ".")] pub $name: $type,)*
            /// Free blocks by order and [`FreeState`].
            pub free: [[u64; FreeState::ALL.len()]; ORDERS],
            /// Whether scrubbing is switched off.
            pub never_scrubs: bool,
            /// The engine that clears through the cache.
            pub engine_cached: &'static str,
            /// The engine that clears past the cache.
            pub engine_bypassing: &'static str,
        }

        /// How many scalars there are.
        pub const GAUGES: usize = [$(stringify!($name),)*].len();

        impl Gauges {
            /// Every scalar gauge with its definition, in the order of definition.
            pub fn scalars(&self) -> impl Iterator<Item = (&'static Definition, Value)> {
                const DEFINITIONS: &[Definition] = &[$(Definition {
                    name: stringify!($name), unit: Unit::$unit, group: "zone", help: $help,
                },)*];
                DEFINITIONS.iter().zip([$(Value::$value(self.$name),)*])
            }
        }
    };
}

gauges! {
    zone_bytes: u64, Int Bytes "address space that the zone has mapped";
    allocated_bytes: u64, Int Bytes "in the program's hands";
    resident_zero_bytes: u64, Int Bytes "free, resident and zero";
    resident_dirty_bytes: u64, Int Bytes "free, resident, content unknown";
    absent_bytes: u64, Int Bytes "free and not resident";
    target_zero_bytes: u64, Int Bytes "that the governor wants zero";
    clear_ns_per_page: f64, Float NanosecondsPerPage "to clear inline; 0 if not measured";
}

/// All counters, summed over the CPUs, and the gauges of the same moment.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Snapshot {
    /// Every counter, in the order of definition.
    pub counters: [u64; COUNT],
    /// The zone as it stood.
    pub gauges: Gauges,
}

impl Default for Snapshot {
    /// Of nothing.
    fn default() -> Snapshot {
        Snapshot { counters: [0; COUNT], gauges: Gauges::default() }
    }
}

impl Snapshot {
    /// A counter's sum, in its unit.
    pub fn get(&self, counter: Counter) -> u64 {
        self.counters[counter as usize]
    }

    /// The counts since `earlier`, with the gauges of now. A counter that lost more than it gained
    /// reads 0.
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
    fn delta_subtracts_counters_and_keeps_the_later_gauges() {
        let seen = |frees, allocated_bytes| {
            let mut seen = Snapshot::default();
            seen.counters[Counter::Frees as usize] = frees;
            seen.gauges.allocated_bytes = allocated_bytes;
            seen
        };
        let (earlier, later) = (seen(5, 10), seen(12, 20));

        let delta = later.delta(&earlier);

        assert_eq!(delta.get(Counter::Frees), 7);
        assert_eq!(delta.gauges.allocated_bytes, 20);
        assert_eq!(earlier.delta(&later).get(Counter::Frees), 0, "a counter that stepped back");
    }
}
