//! The knobs: what a user may set, how it is written, what it is unless set.
//!
//! [`KNOBS`] is the one table. The shim reads it from the environment, the command
//! from its options; both end in [`Config::read`]. Parsing uses no heap, does no I/O
//! and never panics, so the shim may call it before any malloc works; what only the
//! machine knows comes in as a [`Machine`]. Every value that [`Config::show`] prints is
//! one that the parser accepts and reads back the same.

use core::fmt::{self, Display};
use core::time::Duration;

use crate::page::{HUGE, MAX_ORDER, Order, PAGE};

/// The smallest threshold, and the default: below it a hot block that is cleared on
/// demand beats a zero block that is cold.
pub const MIN_THRESHOLD: usize = 64 << 10;
/// The largest limit: half of what a 32-bit page index spans, so that the end of a
/// block never overflows one.
pub const MAX_LIMIT: usize = PAGE << 30;
/// The longest decay: thirty years, "not while I live".
const MAX_DECAY: Duration = Duration::from_secs(1_000_000_000);
/// Bytes that the path of a statistics file may have: it is kept without a heap.
const MAX_PATH: usize = 1023;

/// All knobs, read and checked.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// Most memory the zone may hold; bytes, a multiple of [`HUGE`].
    pub limit: usize,
    /// Smallest request that the zone serves; bytes, a multiple of [`PAGE`].
    pub threshold: usize,
    /// A dirty free block of this order or above wakes scrubd. `None`: never scrub.
    pub scrub_start: Option<Order>,
    /// scrubd works on until every free block of this order or above is zero.
    pub scrub_stop: Order,
    /// One-minute load average above which scrubd rests. `None`: it never looks.
    pub scrub_load: Option<f32>,
    /// How bytes are cleared.
    pub engine: EngineChoice,
    /// How much of what is marked zero gets checked before it is handed out.
    pub verify: Verify,
    /// How long free memory above a small stock stays resident.
    pub decay: Duration,
    /// Where the statistics go when the program ends.
    pub stats: StatsSink,
}

/// Which clear engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EngineChoice {
    /// The one that a calibration at the start finds best for each size.
    Auto,
    /// This one, by the name that the registry knows it by.
    Named(&'static str),
}

/// How much of the memory that is marked zero is read back before it is handed out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verify {
    /// None.
    Off,
    /// A few words of a few blocks, always on.
    Sample,
    /// Every byte.
    Full,
}

/// Where the statistics go.
// The path lies inside: the shim reads its knobs before there is a heap.
#[expect(clippy::large_enum_variant, reason = "no heap to box it on; one per process")]
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StatsSink {
    /// One line on stderr.
    Summary,
    /// Nowhere.
    Off,
    /// Everything, on stderr (written `-`).
    Stderr,
    /// Everything, into this file.
    File(Text<MAX_PATH>),
}

/// What the parser cannot know by itself.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// Physical memory in bytes: the default limit.
    pub memory: usize,
    /// The registry's own name of an engine that runs here, if it knows the one asked for.
    pub engine: fn(&str) -> Option<&'static str>,
}

/// One row of [`KNOBS`].
#[derive(Debug)]
pub struct Knob {
    /// Its name as an option, without the dashes.
    pub name: &'static str,
    /// Its name as an environment variable.
    pub variable: &'static str,
    /// How its value is written.
    pub value: &'static str,
    /// What it does, in one line.
    pub help: &'static str,
    /// Reads a value, or says how to mend it.
    set: fn(&mut Config, &str, &Machine) -> Result<(), &'static str>,
    show: fn(&Config, &mut fmt::Formatter<'_>) -> fmt::Result,
}

/// Every knob there is.
pub static KNOBS: [Knob; 9] = [
    Knob {
        name: "scrub-start",
        variable: "PREZERO_SCRUB_START",
        value: "N|never",
        help: "Order (0-18) of a dirty free block that wakes scrubd; never: no scrubbing [4]",
        set: |c, v, _| {
            c.scrub_start = if v == "never" { None } else { Some(order(v)?) };
            Ok(())
        },
        show: |c, f| match c.scrub_start {
            Some(order) => order.fmt(f),
            None => f.write_str("never"),
        },
    },
    Knob {
        name: "scrub-stop",
        variable: "PREZERO_SCRUB_STOP",
        value: "N",
        help: "scrubd stops when all free blocks of this order (0-18) and above are zero [4]",
        set: |c, v, _| order(v).map(|order| c.scrub_stop = order),
        show: |c, f| c.scrub_stop.fmt(f),
    },
    Knob {
        name: "scrub-load",
        variable: "PREZERO_SCRUB_LOAD",
        value: "X|off",
        help: "One-minute load average above which scrubd rests; off: no such limit [off]",
        set: |c, v, _| {
            c.scrub_load = if v == "off" { None } else { Some(load(v)?) };
            Ok(())
        },
        show: |c, f| match c.scrub_load {
            Some(load) => load.fmt(f),
            None => f.write_str("off"),
        },
    },
    Knob {
        name: "engine",
        variable: "PREZERO_ENGINE",
        value: "NAME",
        help: "Clear engine, one of `prezero engines`; auto: chosen by calibration [auto]",
        set: |c, v, machine| {
            c.engine = if v == "auto" {
                EngineChoice::Auto
            } else {
                let name = (machine.engine)(v).ok_or(
                    "no such clear engine on this machine; give auto, or one that `prezero engines` lists",
                )?;
                EngineChoice::Named(name)
            };
            Ok(())
        },
        show: |c, f| match c.engine {
            EngineChoice::Auto => f.write_str("auto"),
            EngineChoice::Named(name) => f.write_str(name),
        },
    },
    Knob {
        name: "limit",
        variable: "PREZERO_LIMIT",
        value: "SIZE",
        help: "Most memory the zone may hold, 2M or more [physical memory]",
        set: |c, v, _| {
            let bytes = size(v)?;
            c.limit = bytes - bytes % HUGE;
            match bytes {
                0..HUGE => Err("less than one huge block; give 2M or more"),
                HUGE..=MAX_LIMIT => Ok(()),
                _ => Err("more than a zone can span; give 8T or less"),
            }
        },
        show: |c, f| Size(c.limit).fmt(f),
    },
    Knob {
        name: "threshold",
        variable: "PREZERO_THRESHOLD",
        value: "SIZE",
        help: "Smallest request that the zone serves, 64K or more, whole pages [64K]",
        set: |c, v, _| {
            c.threshold = size(v)?;
            match c.threshold {
                0..MIN_THRESHOLD => Err("smaller blocks do not gain; give 64K or more"),
                bytes if bytes % PAGE != 0 => Err("not whole pages; give a multiple of 4K"),
                _ => Ok(()),
            }
        },
        show: |c, f| Size(c.threshold).fmt(f),
    },
    Knob {
        name: "verify",
        variable: "PREZERO_VERIFY",
        value: "off|sample|full",
        help: "How much of the zero memory is read back before it is handed out [sample]",
        set: |c, v, _| {
            c.verify = match v {
                "off" => Verify::Off,
                "sample" => Verify::Sample,
                "full" => Verify::Full,
                _ => return Err("no such mode; give off, sample or full"),
            };
            Ok(())
        },
        show: |c, f| {
            f.write_str(match c.verify {
                Verify::Off => "off",
                Verify::Sample => "sample",
                Verify::Full => "full",
            })
        },
    },
    Knob {
        name: "decay",
        variable: "PREZERO_DECAY",
        value: "SECONDS",
        help: "How long idle free memory above a small stock stays before the kernel gets it [10]",
        set: |c, v, _| seconds(v).map(|decay| c.decay = decay),
        show: |c, f| {
            write!(f, "{}", c.decay.as_secs())?;
            match c.decay.subsec_nanos() {
                0 => Ok(()),
                nanos => write!(f, ".{nanos:09}"),
            }
        },
    },
    Knob {
        name: "stats",
        variable: "PREZERO_STATS",
        value: "FILE|-|summary|off",
        help: "Where the statistics go at exit; -: all on stderr; summary: one line there [summary]",
        set: |c, v, _| {
            c.stats = match v {
                "summary" => StatsSink::Summary,
                "off" => StatsSink::Off,
                "-" => StatsSink::Stderr,
                path => StatsSink::File(
                    Text::new(path)
                        .ok_or("the path is too long; give one of 1023 bytes or less")?,
                ),
            };
            Ok(())
        },
        show: |c, f| {
            f.write_str(match &c.stats {
                StatsSink::Summary => "summary",
                StatsSink::Off => "off",
                StatsSink::Stderr => "-",
                StatsSink::File(path) => path.as_str(),
            })
        },
    },
];

impl Knob {
    /// The knob of that name.
    pub fn named(name: &str) -> Option<&'static Knob> {
        KNOBS.iter().find(|knob| knob.name == name)
    }
}

impl Config {
    /// What holds unless a knob says otherwise.
    pub fn new(machine: &Machine) -> Config {
        // Order 4 is 64 KiB: where prezeroing starts to pay, and the smallest block
        // that the threshold lets in.
        let worth_it = Order::holding((MIN_THRESHOLD / PAGE) as u32).unwrap_or(MAX_ORDER);
        let limit = machine.memory - machine.memory % HUGE;
        Config {
            limit: limit.clamp(HUGE, MAX_LIMIT),
            threshold: MIN_THRESHOLD,
            scrub_start: Some(worth_it),
            scrub_stop: worth_it,
            scrub_load: None,
            engine: EngineChoice::Auto,
            verify: Verify::Sample,
            decay: Duration::from_secs(10),
            stats: StatsSink::Summary,
        }
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
        let mut stop = None;
        for knob in &KNOBS {
            let Some((origin, value)) = get(knob).filter(|(_, value)| !value.is_empty()) else {
                continue;
            };
            let error = |mend| ConfigError { knob, origin, value: Text::head(value), mend };
            (knob.set)(&mut config, value, machine).map_err(error)?;
            if knob.name == "scrub-stop" {
                stop = Some(error(
                    "above scrub-start, so some blocks would wake scrubd in vain; give scrub-start or less",
                ));
            }
        }
        if let Some(start) = config.scrub_start.filter(|&start| start < config.scrub_stop) {
            match stop {
                Some(error) => return Err(error),
                None => config.scrub_stop = start,
            }
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

/// Bytes, shown in the largest binary unit that divides them: `64K`, `1536M`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size(pub usize);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (shift, unit) in [(40, "T"), (30, "G"), (20, "M"), (10, "K")] {
            if self.0 != 0 && self.0.trailing_zeros() >= shift {
                return write!(f, "{}{unit}", self.0 >> shift);
            }
        }
        self.0.fmt(f)
    }
}

impl core::str::FromStr for Size {
    type Err = &'static str;

    /// Bytes, or a number with a binary unit: `65536`, `64K`, `1.5G`, `512MiB`.
    fn from_str(text: &str) -> Result<Size, &'static str> {
        size(text).map(Size)
    }
}

fn size(text: &str) -> Result<usize, &'static str> {
    const MEND: &str = "not a size; give bytes or a number with a unit: 64K, 1.5G, 512MiB";
    let digits = text.find(|c: char| c != '.' && !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let powers = ["", "k", "m", "g", "t"];
    let shift = powers
        .iter()
        .position(|power| {
            let tail = unit.get(power.len()..).unwrap_or("?");
            let (prefixed, plain) = (["", "b", "ib"], ["", "b"]);
            let tails: &[&str] = if power.is_empty() { &plain } else { &prefixed };
            unit.get(..power.len()).is_some_and(|head| head.eq_ignore_ascii_case(power))
                && tails.iter().any(|known| tail.eq_ignore_ascii_case(known))
        })
        .ok_or(MEND)?
        * 10;
    let (whole, nanos) = decimal(number).ok_or(MEND)?;
    let bytes = (u128::from(whole) << shift) + ((u128::from(nanos) << shift) / 1_000_000_000);
    usize::try_from(bytes).map_err(|_| "too large a size; give 8T or less")
}

/// A decimal number as its whole part and its billionths (digits beyond are cut).
fn decimal(text: &str) -> Option<(u64, u32)> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let all_digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    if !all_digits(whole) || !all_digits(fraction) {
        return None;
    }
    let nanos = fraction.bytes().chain(core::iter::repeat(b'0')).take(9);
    Some((whole.parse().ok()?, nanos.fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0'))))
}

fn order(text: &str) -> Result<Order, &'static str> {
    let number = text.parse().ok().filter(|_| !text.starts_with('+'));
    number.and_then(Order::new).ok_or("not an order; give 0 (4K) to 18 (1G)")
}

fn load(text: &str) -> Result<f32, &'static str> {
    let number =
        text.parse().ok().filter(|load: &f32| load.is_finite() && !load.is_sign_negative());
    number.ok_or("not a load average; give a number from 0 up, or off")
}

fn seconds(text: &str) -> Result<Duration, &'static str> {
    let (whole, nanos) = decimal(text).ok_or("not a time; give seconds: 10, 0.5")?;
    Some(Duration::new(whole, nanos))
        .filter(|&decay| decay <= MAX_DECAY)
        .ok_or("too long a time; give 1000000000 seconds or less")
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

/// A string of at most `N` bytes that lies where it is, not on a heap.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Text<const N: usize> {
    len: usize,
    bytes: [u8; N],
}

impl<const N: usize> Text<N> {
    /// `text`, if it fits.
    pub fn new(text: &str) -> Option<Self> {
        (text.len() <= N).then(|| Text::head(text))
    }

    /// As many whole characters of `text` as fit.
    pub fn head(text: &str) -> Self {
        let len = (0..=N.min(text.len())).rev().find(|&len| text.is_char_boundary(len));
        let mut head = Text { len: len.unwrap_or(0), bytes: [0; N] };
        head.bytes[..head.len].copy_from_slice(&text.as_bytes()[..head.len]);
        head
    }

    /// The string.
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(&self.bytes[..self.len]).unwrap_or("")
    }
}

impl<const N: usize> fmt::Display for Text<N> {
    /// On one line: control characters are escaped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().escape_debug().fmt(f)
    }
}

impl<const N: usize> fmt::Debug for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MACHINE: Machine = Machine {
        memory: (6 << 30) + 12345,
        engine: |name| ["rep-stosb", "avx512-nt"].into_iter().find(|known| *known == name),
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
    fn sizes_in_every_spelling() {
        for (text, bytes) in [
            ("65536", 65536),
            ("64K", 65536),
            ("64kb", 65536),
            ("64KiB", 65536),
            ("2M", 2 << 20),
            ("1.5G", 3 << 29),
            ("512MiB", 512 << 20),
            ("1t", 1 << 40),
            ("0.0000001K", 0),
            ("7B", 7),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in ["", "K", "1.G", ".5G", "1..5G", "-1", "+1", "1 G", "1KK", "1iB", "1.5.2M", "é"]
        {
            assert!(size(text).is_err(), "{text}");
        }
        assert!(size("99999999999T").is_err());
    }

    #[test]
    fn errors_name_the_variable_the_value_and_the_mend() {
        for (variable, value, mend) in [
            ("PREZERO_LIMIT", "1M", "give 2M or more"),
            ("PREZERO_LIMIT", "16T", "give 8T or less"),
            ("PREZERO_LIMIT", "lots", "64K, 1.5G, 512MiB"),
            ("PREZERO_THRESHOLD", "32K", "give 64K or more"),
            ("PREZERO_THRESHOLD", "65537", "a multiple of 4K"),
            ("PREZERO_SCRUB_START", "19", "give 0 (4K) to 18 (1G)"),
            ("PREZERO_SCRUB_STOP", "never", "give 0 (4K) to 18 (1G)"),
            ("PREZERO_SCRUB_STOP", "5", "give scrub-start or less"),
            ("PREZERO_SCRUB_LOAD", "nan", "or off"),
            ("PREZERO_ENGINE", "warp", "one that `prezero engines` lists"),
            ("PREZERO_VERIFY", "yes", "give off, sample or full"),
            ("PREZERO_DECAY", "10s", "give seconds: 10, 0.5"),
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
    fn scrub_stop_follows_a_lower_start_unless_it_was_given() {
        let config = read(&[("PREZERO_SCRUB_START", "2")]).unwrap();
        assert_eq!(config.scrub_stop, Order::new(2).unwrap());
        let config = read(&[("PREZERO_SCRUB_START", "never"), ("PREZERO_SCRUB_STOP", "9")]);
        assert_eq!(config.unwrap().scrub_stop, Order::new(9).unwrap());
    }

    #[test]
    fn every_knob_has_its_own_name_and_variable_and_one_line_of_help() {
        for knob in &KNOBS {
            let variable = format!("PREZERO_{}", knob.name.to_uppercase().replace('-', "_"));
            assert_eq!(knob.variable, variable);
            assert!(knob.help.len() <= 90 && !knob.help.contains('\n'), "{}", knob.name);
            assert!(core::ptr::eq(Knob::named(knob.name).unwrap(), knob));
        }
    }

    fn any_config() -> impl Strategy<Value = Config> {
        let order = || (0u32..=18).prop_map(|order| Order::new(order).unwrap());
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
            "/[a-z \u{e9}/.]{0,200}".prop_map(|path| StatsSink::File(Text::new(&path).unwrap())),
        ];
        let decay = (0u64..1_000_000_000, 0u32..1_000_000_000);
        let sizes = (1usize..=MAX_LIMIT / HUGE, 16usize..1 << 30);
        let scrub = (proptest::option::of(order()), order(), proptest::option::of(0f32..1e9));
        (sizes, scrub, engine, verify, decay, stats).prop_map(
            |((huge, pages), (start, stop, load), engine, verify, (secs, nanos), stats)| Config {
                limit: huge * HUGE,
                threshold: pages * PAGE,
                scrub_start: start,
                scrub_stop: start.map_or(stop, |start| stop.min(start)),
                scrub_load: load,
                engine,
                verify,
                decay: Duration::new(secs, nanos),
                stats,
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_shown_reads_back_the_same(config in any_config()) {
            let shown: Vec<_> = KNOBS.iter().map(|k| (k.variable, config.show(k).to_string())).collect();
            let pairs: Vec<_> = shown.iter().map(|(k, v)| (*k, v.as_str())).collect();
            prop_assert_eq!(read(&pairs).unwrap(), config);
        }

        #[test]
        fn no_value_makes_a_parser_panic(value in "\\PC{0,80}|[0-9.]{0,30}[kKmMgGtTiIbB]{0,3}") {
            for knob in &KNOBS {
                if let Err(error) = read(&[(knob.variable, &value)]) {
                    prop_assert!(!error.to_string().contains('\n'));
                }
            }
        }
    }
}
