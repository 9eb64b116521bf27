//! The table of knobs: fields of the configuration, their defaults, names, and what they do.
//!
//! Options, variables, manual, completions and panel come from a row. A knob that may be turned is a word of the zone
//! ([`Tuning`]) and of its panel.

use core::fmt;
use core::time::Duration;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::config::ablation::Ablation;
use crate::config::value::Setting;
use crate::config::{
    DEFAULT_THRESHOLD, EngineChoice, MAX_LIMIT, MIN_THRESHOLD, Machine, NoMoveMode, OnFree,
    StatsSink, Verify,
};
use crate::units::{HUGE, MAX_ORDER, Order, PAGE};

/// The smallest block that a threshold lets in.
const SMALLEST: Order = match Order::holding((MIN_THRESHOLD / PAGE) as u32) {
    Some(order) => order,
    None => MAX_ORDER,
};

/// One row of [`KNOBS`].
#[derive(Debug)]
pub struct Knob {
    /// Its name as an option, without the dashes.
    pub name: &'static str,
    /// Its name as an environment variable.
    pub variable: &'static str,
    /// How its value is written: a kind or words, with `|` between them. A kind that may be absent has the word for
    /// that last.
    pub value: &'static str,
    /// What it does, and its default, in as much of a line as a terminal leaves.
    pub help: &'static str,
    /// The same for a manual.
    pub detail: &'static str,
    /// When it may be set.
    pub turned: Turned,
    /// Reads a value, or says how to mend it.
    pub set: fn(&mut Config, &str, &Machine) -> Result<(), &'static str>,
    /// Writes the value as `set` reads it.
    pub show: fn(&Config, &mut fmt::Formatter<'_>) -> fmt::Result,
    /// The value as a word of the panel.
    pub word: fn(&Config) -> u64,
    /// Takes the value of a word, or the one next to it; refuses what `set` refuses.
    pub take: fn(&mut Config, u64) -> Result<(), &'static str>,
}

/// When a knob may be set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turned {
    /// At any time: the panel carries it to a zone in use.
    AnyTime,
    /// Before the zone is made, and never after.
    AtStart,
}

impl Knob {
    /// The knob of that name.
    pub fn named(name: &str) -> Option<&'static Knob> {
        KNOBS.iter().find(|knob| knob.name == name)
    }
}

macro_rules! knobs {
    ($(
        $(#[$doc:meta])* $field:ident: $type:ty = $default:expr, $check:path;
        $turned:ident $name:literal $variable:literal $value:literal
        $help:literal
        $detail:literal;
    )*) => {
        /// All knobs, read and checked. Copied about while the stack may be short, so it is small.
        #[derive(Clone, Copy, PartialEq, Debug)]
        pub struct Config {
            $($(#[$doc])* pub $field: $type,)*
        }

        /// On a machine of any size.
        pub(crate) const DEFAULTS: Config = Config { $($field: $default,)* };

        /// The table, and behind it what is for measurements alone: no help names that.
        pub(crate) static ALL: &[Knob] = &[$(Knob {
            name: $name,
            variable: $variable,
            value: $value,
            help: $help,
            detail: $detail,
            turned: Turned::$turned,
            set: |config, text, machine| {
                let read: $type = (<$type>::KIND.read)(text, $value, machine)?;
                $check(read).map(|value| config.$field = value)
            },
            show: |config, f| (<$type>::KIND.show)(&config.$field, $value, f),
            word: |config| (<$type>::KIND.word)(&config.$field),
            take: |config, word| {
                $check((<$type>::KIND.of)(word)).map(|value: $type| config.$field = value)
            },
        },)*];

        #[allow(non_camel_case_types, reason = "fields by their names")]
        enum Place { $($field,)* }

        /// The knobs as scrubd and requests read them while the program runs. Each is a word of its own, so that no
        /// reader waits for a writer. Two that are read together may be of different moments.
        #[derive(Debug)]
        pub(crate) struct Tuning([AtomicU64; [$($name,)*].len()]);

        #[allow(dead_code, reason = "those that are read at the start alone")]
        impl Tuning {
            $(#[inline] pub(crate) fn $field(&self) -> $type {
                (<$type>::KIND.of)(self.0[Place::$field as usize].load(Relaxed))
            })*
        }
    };
}

knobs! {
    /// Smallest order of a free block that scrubd clears. `None`: never scrub.
    scrub_start: Option<Order> = Some(SMALLEST), Ok;
    AnyTime "scrub-start" "PREZERO_SCRUB_START" "N|never"
        "Smallest free block cleared ahead, 4K<<N [4]"
        "Smallest order, 0 to 18, of a free block (4 KiB times 2 to the N) that scrubd, the thread that clears ahead, clears; never: nothing is scrubbed. Default 4, which is 64 KiB";

    /// Most bytes that scrubd clears in a second. `None`: as fast as it can.
    scrub_rate: Option<usize> = None, rate;
    AnyTime "scrub-rate" "PREZERO_SCRUB_RATE" "SIZE|off"
        "Most bytes cleared ahead in a second [off]"
        "Most bytes that scrubd clears in a second, 2M or more. Default off: as fast as it can";

    /// Bytes of zeroes that may lie in the cache that the cores share; larger sets are
    /// cleared past it. `None`: as many as [`Topology::set`](prezero_host::Topology::set) says.
    scrub_cache: Option<usize> = None, Ok;
    AnyTime "scrub-cache" "PREZERO_SCRUB_CACHE" "SIZE|auto"
        "Zeroes in the shared cache [auto: 20 L2s]"
        "Zeroes that may lie in the shared cache; more are cleared past it. Default auto: twenty private caches' worth, at most three quarters of it";

    /// Most bytes that scrubd makes zero ahead of requests. `None`: as demand has it.
    stock: Option<usize> = None, Ok;
    AnyTime "stock" "PREZERO_STOCK" "SIZE|off"
        "Most bytes ready ahead of requests [off]"
        "Most memory that scrubd makes zero ahead of requests. Default off: as much as demand calls for";

    /// How bytes are cleared.
    engine: EngineChoice = EngineChoice::Auto, Ok;
    AnyTime "engine" "PREZERO_ENGINE" "NAME"
        "See `prezero engines` [auto: by size, cost]"
        "How memory is cleared, one of those that `prezero engines` lists. Default auto: through the cache or past it, by size and by what that costs";

    /// Most memory the zone may hold; bytes, a multiple of [`HUGE`].
    limit: usize = MAX_LIMIT, limit;
    AtStart "limit" "PREZERO_LIMIT" "SIZE"
        "Most memory of the zone [all of the machine]"
        "Most memory the zone may hold, 2M or more. Default: as much as the machine has";

    /// Smallest request that the zone serves; bytes, a multiple of [`PAGE`].
    threshold: usize = DEFAULT_THRESHOLD, threshold;
    AtStart "threshold" "PREZERO_THRESHOLD" "SIZE"
        "Smallest request that prezero serves [128K]"
        "Smallest request that prezero serves, 64K or more; smaller ones go to the C library. Default 128K";

    /// How many of the pages marked zero are checked before they are handed out.
    verify: Verify = Verify::Sample, Ok;
    AnyTime "verify" "PREZERO_VERIFY" "off|sample|full"
        "Zero memory that is read back first [sample]"
        "Zero memory that is read before it is handed out: off; sample, random pages; full, all of it. Default sample";

    /// How long idle memory stays resident, at most.
    decay: Duration = Duration::from_secs(10), Ok;
    AnyTime "decay" "PREZERO_DECAY" "TIME"
        "Until idle memory goes to the kernel [10s]"
        "How long idle memory stays before the kernel gets it, in seconds or with a unit: 500ms, 2m. Default 10";

    /// Whether the kernel makes huge pages for large blocks: of fresh memory, and of small pages that scrubd scrubs.
    huge: bool = true, Ok;
    AtStart "huge" "PREZERO_HUGE" "on|off"
        "Huge pages for large blocks [on, see manual]"
        "Whether large blocks come in huge pages, fresh or scrubbed. Default on; off in a guest that reports free memory to its hypervisor";

    /// Whether pages stay at their addresses.
    no_move: NoMoveMode = NoMoveMode::Auto, Ok;
    AtStart "no-move" "PREZERO_NO_MOVE" "auto|on|off"
        "No free page leaves its address [auto]"
        "on: free pages keep their addresses, as caches of registered memory need it, and the kernel takes them only when memory is short. Default auto: while UCX or Open MPI hooks libc, or after mallopt told glibc to keep its memory";

    /// What becomes of a block's content when it is freed.
    on_free: OnFree = OnFree::Keep, Ok;
    AtStart "zero-on-free" "PREZERO_ZERO_ON_FREE" "on|off"
        "Clear a block before free returns [off]"
        "on: blocks are cleared before free returns. Default off";

    /// Where the statistics go when the program ends.
    stats: StatsSink = StatsSink::Summary, Ok;
    AtStart "stats" "PREZERO_STATS" "WHERE"
        "FILE, - (stderr), summary or off [summary]"
        "Where statistics go at exit: a FILE, in whose name %p becomes the pid; - for all of them on standard error; summary for a line there; off. Default summary";

    /// Mechanisms that are left out.
    without: Ablation = Ablation::NONE, Ok;
    AtStart "without" "PREZERO_ABLATE" "NAMES"
        "Mechanisms to leave out [none]"
        "Mechanisms to leave out, with commas between them. Default none";
}

fn rate(rate: Option<usize>) -> Result<Option<usize>, &'static str> {
    match rate {
        Some(0..HUGE) => Err("less than scrubd clears at a time; give 2M or more, or off"),
        rate => Ok(rate),
    }
}

fn limit(bytes: usize) -> Result<usize, &'static str> {
    match bytes {
        0..HUGE => Err("less than one huge block; give 2M or more"),
        HUGE..=MAX_LIMIT => Ok(bytes - bytes % HUGE),
        _ => Err("more than a zone can span; give 4T or less"),
    }
}

fn threshold(bytes: usize) -> Result<usize, &'static str> {
    match bytes {
        0..MIN_THRESHOLD => Err("smaller blocks do not gain; give 64K or more"),
        bytes if bytes % PAGE != 0 => Err("not whole pages; give a multiple of 4K"),
        bytes => Ok(bytes),
    }
}

/// Every knob there is.
pub static KNOBS: &[Knob] = ALL.split_last().expect("the last is hidden").1;

impl Tuning {
    pub(crate) fn new(config: &Config) -> Tuning {
        let tuning = Tuning([const { AtomicU64::new(0) }; ALL.len()]);
        tuning.set(config);
        tuning
    }

    /// From now on as in `config`.
    pub(crate) fn set(&self, config: &Config) {
        self.0.iter().zip(ALL).for_each(|(word, knob)| word.store((knob.word)(config), Relaxed));
    }

    /// Pages that may lie ready, at most.
    pub(crate) fn stock_pages(&self) -> u64 {
        self.stock().map_or(u64::MAX, |bytes| (bytes / PAGE) as u64)
    }

    pub(crate) fn decay_ns(&self) -> u64 {
        (Duration::KIND.word)(&self.decay())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MACHINE: Machine =
        Machine { memory: 1 << 30, engine: crate::clear::engine_named, reports_free: false };

    #[test]
    fn a_knob_that_may_be_turned_changes_what_a_zone_in_use_reads() {
        let before = Config::new(&MACHINE);
        let seen = |config: &Config| format!("{:?}", Tuning::new(config));
        let values = ["0", "9", "0.5", "64M", "never", "off", "full", "memset"];
        for knob in KNOBS.iter().filter(|knob| knob.turned == Turned::AnyTime) {
            let changes = values.iter().any(|value| {
                let mut after = before;
                (knob.set)(&mut after, value, &MACHINE).is_ok() && seen(&after) != seen(&before)
            });
            assert!(changes, "{}", knob.name);
        }
    }

    #[test]
    fn a_value_that_is_set_is_read() {
        let mut config = Config::new(&MACHINE);
        let tuning = Tuning::new(&config);
        assert_eq!(tuning.scrub_start(), config.scrub_start);
        assert_eq!(tuning.scrub_rate(), None);
        assert_eq!(tuning.stock_pages(), u64::MAX);
        assert_eq!(tuning.verify(), Verify::Sample);

        config.scrub_start = None;
        config.scrub_rate = Some(1 << 21);
        config.stock = Some(1 << 20);
        config.decay = Duration::MAX;
        for verify in [Verify::Off, Verify::Full, Verify::Sample] {
            config.verify = verify;
            tuning.set(&config);
            assert_eq!(tuning.verify(), verify);
        }
        assert_eq!((tuning.scrub_start(), tuning.scrub_rate()), (None, Some(1 << 21)));
        assert_eq!((tuning.stock_pages(), tuning.decay_ns()), (256, 1_000_000_000_000_000_000));
    }

    proptest! {
        /// Another process may write anything into a word.
        #[test]
        fn any_word_is_refused_or_a_value_that_can_be_given(
            word in prop_oneof![any::<u64>(), 0u64..20, Just(u64::MAX)]
        ) {
            for knob in KNOBS {
                let mut taken = Config::new(&MACHINE);
                if (knob.take)(&mut taken, word).is_ok() {
                    let shown = taken.show(knob).to_string();
                    let mut given = Config::new(&MACHINE);
                    let read = (knob.set)(&mut given, &shown, &MACHINE);
                    prop_assert_eq!((read, given), (Ok(()), taken), "{} {}", knob.name, shown);
                    let again = (knob.word)(&taken);
                    prop_assert_eq!(((knob.take)(&mut given, again), given), (Ok(()), taken));
                }
            }
        }
    }
}
