//! The configuration: what the [`KNOBS`](knobs::KNOBS) set, and what it is unless set.
//!
//! Reading it uses no heap, does no I/O and never panics, so the shim may do it before any
//! malloc works; what only the machine knows comes in as a [`Machine`]. Every value that
//! [`Config::show`] prints is one that the parser accepts and reads back the same.

pub(crate) mod knobs;
pub(crate) mod value;

pub(crate) use crate::ablation;

use core::fmt;

use crate::clear::engine_named;
pub use crate::config::knobs::Config;
use crate::config::knobs::{ALL, DEFAULTS, Knob};
use crate::config::value::Text;
use crate::units::{HUGE, PAGE};

/// The smallest threshold: below it a hot block that is cleared on demand beats a zero block that is cold.
pub const MIN_THRESHOLD: usize = 64 << 10;
/// The default. A wake-up of scrubd costs more than smaller blocks spare, and the C library finds a small block in
/// fewer cache lines after a pause.
pub const DEFAULT_THRESHOLD: usize = 128 << 10;
/// The largest limit: half of what a 32-bit page index spans, so that the end of a
/// block never overflows one.
pub const MAX_LIMIT: usize = PAGE << 30;
/// Bytes that the path of a statistics file may have: its name is made up on the stack.
pub const MAX_PATH: usize = 1023;

/// Which clear engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EngineChoice {
    /// Through the cache or past it, each by the first engine of its kind that the CPU has.
    Auto,
    /// This one, by the name that the registry knows it by.
    Named(&'static str),
}

/// How much of the memory that is marked zero is read back before it is handed out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verify {
    /// None.
    Off,
    /// One page of one hit in 512.
    Sample,
    /// Every byte.
    Full,
}

/// Whether pages stay at their addresses: free ones are not given back, and none is moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoMoveMode {
    /// While others watch, or once the program asked for it.
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

/// What becomes of a block's content when it is freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnFree {
    /// It stays until the memory is cleared for the next owner, or handed out as it is.
    Keep,
    /// It is cleared before `free` returns.
    Clear,
}

/// Where the statistics go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StatsSink {
    /// One line on stderr.
    Summary,
    /// Nowhere.
    Off,
    /// Everything, on stderr (written `-`).
    Stderr,
    /// Everything, into this file. Its name lies in pages of its own: the knobs are read before there is a heap.
    File(&'static str),
}

/// What the parser cannot know by itself.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// Physical memory in bytes: the default limit.
    pub memory: usize,
    /// The registry's own name of an engine that runs here, if it knows the one asked for.
    pub engine: fn(&str) -> Option<&'static str>,
    /// Whether a hypervisor takes free memory away: new huge pages are dear then.
    pub reports_free: bool,
}

impl Machine {
    /// This machine. Uses no heap; looks into some files of the kernel's.
    pub fn here() -> Machine {
        Machine {
            memory: prezero_sys::process::physical_memory(),
            engine: engine_named,
            reports_free: prezero_sys::guest::reports_free_memory(),
        }
    }
}

impl EngineChoice {
    /// The engine's name, if one was chosen.
    pub(crate) fn name(self) -> Option<&'static str> {
        match self {
            EngineChoice::Named(name) => Some(name),
            EngineChoice::Auto => None,
        }
    }
}

impl Config {
    /// The defaults of the knobs.
    pub fn new(machine: &Machine) -> Config {
        let limit = (machine.memory - machine.memory % HUGE).clamp(HUGE, MAX_LIMIT);
        Config { limit, huge: !machine.reports_free, ..DEFAULTS }
    }

    /// Reads every knob from the environment that `get` looks into. A variable that
    /// is empty counts as not set.
    pub fn from_env<'a>(
        machine: &Machine,
        get: impl Fn(&str) -> Option<&'a str>,
    ) -> Result<Config, ConfigError> {
        Config::read(machine, |knob| get(knob.variable).map(|value| (Origin::Variable, value)))
    }

    /// Reads every knob for which `get` has a value that is not empty.
    pub fn read<'a>(
        machine: &Machine,
        get: impl Fn(&'static Knob) -> Option<(Origin, &'a str)>,
    ) -> Result<Config, ConfigError> {
        let mut config = Config::new(machine);
        for knob in ALL {
            let Some((origin, value)) = get(knob).filter(|(_, value)| !value.is_empty()) else {
                continue;
            };
            let error = |mend| ConfigError { knob, origin, value: Text::head(value), mend };
            (knob.set)(&mut config, value, machine).map_err(error)?;
        }
        Ok(config)
    }

    /// A knob's value as the parser reads it.
    pub fn show(&self, knob: &'static Knob) -> impl fmt::Display + '_ {
        Shown(self, knob)
    }
}

struct Shown<'a>(&'a Config, &'static Knob);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (self.1.show)(self.0, f)
    }
}

/// Where a value was given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// As an environment variable.
    Variable,
    /// As an option of the command.
    Option,
}

/// A value that its knob cannot take: one line with the knob, the value and the mend.
#[derive(Clone, Debug, thiserror::Error)]
pub struct ConfigError {
    knob: &'static Knob,
    origin: Origin,
    value: Text<64>,
    mend: &'static str,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.origin {
            Origin::Variable => write!(f, "{}={}", self.knob.variable, self.value)?,
            Origin::Option => write!(f, "--{} {}", self.knob.name, self.value)?,
        }
        write!(f, ": {}", self.mend)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ablation::Ablation;
    use crate::config::knobs::KNOBS;
    use crate::units::Order;
    use core::time::Duration;
    use proptest::prelude::*;

    const MACHINE: Machine = Machine {
        memory: (6 << 30) + 12345,
        engine: |name| ["rep-stosb", "avx512-nt"].into_iter().find(|known| *known == name),
        reports_free: false,
    };

    fn read(pairs: &[(&'static str, &str)]) -> Result<Config, ConfigError> {
        Config::from_env(&MACHINE, |name| {
            pairs.iter().find(|(variable, _)| *variable == name).map(|(_, value)| *value)
        })
    }

    #[test]
    fn defaults_when_nothing_is_set_or_all_is_empty() {
        let config = read(&[]).unwrap();
        assert_eq!(config.limit, 6 << 30);
        assert_eq!(config.scrub_start, Order::new(4));
        assert_eq!(config.verify, Verify::Sample);
        let empty: Vec<_> = KNOBS.iter().map(|knob| (knob.variable, "")).collect();
        assert_eq!(read(&empty).unwrap(), config);
    }

    #[test]
    fn errors_name_the_variable_the_value_and_the_mend() {
        for (variable, value, mend) in [
            ("PREZERO_LIMIT", "1M", "give 2M or more"),
            ("PREZERO_LIMIT", "4097G", "give 4T or less"),
            ("PREZERO_LIMIT", "lots", "64K, 1.5G, 512MiB"),
            ("PREZERO_THRESHOLD", "32K", "give 64K or more"),
            ("PREZERO_THRESHOLD", "65537", "a multiple of 4K"),
            ("PREZERO_SCRUB_START", "19", "give 0 (4K) to 18 (1G)"),
            ("PREZERO_SCRUB_RATE", "1M", "give 2M or more, or off"),
            ("PREZERO_SCRUB_CACHE", "most", "64K, 1.5G, 512MiB"),
            ("PREZERO_STOCK", "-1", "64K, 1.5G, 512MiB"),
            ("PREZERO_ENGINE", "warp", "one that `prezero engines` lists"),
            ("PREZERO_VERIFY", "yes", "give off, sample or full"),
            ("PREZERO_HUGE", "always", "give on or off"),
            ("PREZERO_NO_MOVE", "yes", "give auto, on or off"),
            ("PREZERO_ZERO_ON_FREE", "1", "give on or off"),
            ("PREZERO_DECAY", "10 s", "give 10, 500ms or 2m"),
            ("PREZERO_DECAY", "1000000001", "1000000000 seconds or less"),
        ] {
            let message = read(&[(variable, value)]).unwrap_err().to_string();
            assert!(message.starts_with(&format!("{variable}={value}: ")), "{message}");
            assert!(message.ends_with(mend), "{message}");
        }
        let long = "x".repeat(1024);
        assert!(read(&[("PREZERO_STATS", &long)]).is_err());
    }

    #[test]
    fn an_error_stays_on_one_line_and_names_the_option_when_it_was_one() {
        let value = "2\n3é".repeat(40);
        let error = Config::read(&MACHINE, |knob| {
            (knob.name == "limit").then_some((Origin::Option, value.as_str()))
        });
        let message = error.unwrap_err().to_string();
        assert!(message.starts_with("--limit 2\\n3é"), "{message}");
        assert!(!message.contains('\n') && message.len() < 250);
    }

    #[test]
    fn every_knob_has_its_own_name_and_variable_and_one_line_of_help() {
        for knob in KNOBS {
            let variable = format!("PREZERO_{}", knob.name.to_uppercase().replace('-', "_"));
            assert_eq!(knob.variable, variable);
            assert!(knob.help.len() <= 44 && !knob.help.contains('\n'), "{}", knob.name);
            assert!(core::ptr::eq(Knob::named(knob.name).unwrap(), knob));
        }
    }

    fn any_config() -> impl Strategy<Value = Config> {
        let engine = prop_oneof![
            Just(EngineChoice::Auto),
            Just(EngineChoice::Named("rep-stosb")),
            Just(EngineChoice::Named("avx512-nt")),
        ];
        let verify = prop_oneof![Just(Verify::Off), Just(Verify::Sample), Just(Verify::Full)];
        let stats = prop_oneof![
            Just(StatsSink::Summary),
            Just(StatsSink::Off),
            Just(StatsSink::Stderr),
            "/[a-z \u{e9}/.]{0,200}".prop_map(|path| StatsSink::File(path.leak())),
        ];
        let on_free = prop_oneof![Just(OnFree::Keep), Just(OnFree::Clear)];
        let size = || proptest::option::of(0usize..1 << 40);
        let limits = (proptest::option::of(HUGE..1 << 40), size(), size());
        let decay = (0u64..1_000_000_000, 0u32..1_000_000_000);
        let no_move =
            prop_oneof![Just(NoMoveMode::Auto), Just(NoMoveMode::On), Just(NoMoveMode::Off)];
        let switches = (any::<bool>(), no_move, on_free);
        let sizes = (1usize..=MAX_LIMIT / HUGE, 16usize..1 << 30);
        let start = (0u32..=18).prop_map(|order| Order::new(order).unwrap());
        let scrub = proptest::option::of(start);
        (sizes, scrub, limits, engine, verify, decay, switches, stats).prop_map(
            |(
                (huge, pages),
                start,
                (rate, cache, stock),
                engine,
                verify,
                (secs, nanos),
                (huge_pages, no_move, on_free),
                stats,
            )| Config {
                limit: huge * HUGE,
                threshold: pages * PAGE,
                scrub_start: start,
                scrub_rate: rate,
                scrub_cache: cache,
                stock,
                engine,
                verify,
                decay: Duration::new(secs, nanos),
                huge: huge_pages,
                no_move,
                on_free,
                stats,
                without: Ablation::default(),
            },
        )
    }

    proptest! {
        #[test]
        fn a_shown_value_reads_back_the_same(config in any_config()) {
            let shown: Vec<_> = KNOBS.iter().map(|k| (k.variable, config.show(k).to_string())).collect();
            let pairs: Vec<_> = shown.iter().map(|(k, v)| (*k, v.as_str())).collect();
            prop_assert_eq!(read(&pairs).unwrap(), config);
        }

        #[test]
        fn no_value_makes_a_parser_panic(value in "\\PC{0,80}|[0-9.]{0,30}[kKmMgGtTiIbB]{0,3}") {
            for knob in KNOBS {
                if let Err(error) = read(&[(knob.variable, &value)]) {
                    prop_assert!(!error.to_string().contains('\n'));
                }
            }
        }
    }
}
