//! The table of knobs: names, how values are written, what they do.
//!
//! The shim reads it from the environment, the command from its options and its help.

use core::fmt::{self, Display};

use prezero_host::sizes::{Size, size};
use prezero_sys::meta;

use crate::config::ablation::Ablation;
use crate::config::value::{load, order, seconds};
use crate::config::{
    Config, EngineChoice, MAX_LIMIT, MAX_PATH, MIN_THRESHOLD, Machine, NoMoveMode, OnFree,
    StatsSink, Verify,
};
use crate::units::{HUGE, PAGE};

/// One row of [`KNOBS`].
#[derive(Debug)]
pub struct Knob {
    /// Its name as an option, without the dashes.
    pub name: &'static str,
    /// Its name as an environment variable.
    pub variable: &'static str,
    /// How its value is written.
    pub value: &'static str,
    /// What it does, and its default, in as much of a line as a terminal leaves.
    pub help: &'static str,
    /// The same for a manual.
    pub detail: &'static str,
    /// When it may be set.
    pub turned: Turned,
    /// Reads a value, or says how to mend it.
    pub(crate) set: fn(&mut Config, &str, &Machine) -> Result<(), &'static str>,
    pub(crate) show: fn(&Config, &mut fmt::Formatter<'_>) -> fmt::Result,
}

/// When a knob may be set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turned {
    /// At any time: [`Tuning`](crate::config::tuning::Tuning) or the choice of engines carries it to a zone in use.
    AnyTime,
    /// Before the zone is made, and never after.
    AtStart,
}

/// Every knob there is.
pub static KNOBS: [Knob; 15] = [
    Knob {
        name: "scrub-start",
        variable: "PREZERO_SCRUB_START",
        value: "N|never",
        help: "Smallest order that sets scrubd to work [4]",
        detail: "Smallest order, 0 to 18, of a freed block that sets scrubd to work; never: nothing is scrubbed. Default 4, which is 64 KiB",
        turned: Turned::AnyTime,
        set: |c, v, _| unless("never", v, order).map(|order| c.scrub_start = order),
        show: |c, f| show_unless("never", c.scrub_start, f),
    },
    Knob {
        name: "scrub-stop",
        variable: "PREZERO_SCRUB_STOP",
        value: "N",
        help: "Smallest order that scrubd clears [4]",
        detail: "scrubd clears free blocks of this order, 0 to 18, and above. Default 4",
        turned: Turned::AnyTime,
        set: |c, v, _| order(v).map(|order| c.scrub_stop = order),
        show: |c, f| c.scrub_stop.fmt(f),
    },
    Knob {
        name: "scrub-load",
        variable: "PREZERO_SCRUB_LOAD",
        value: "X|off",
        help: "1-minute load above which scrubd rests [off]",
        detail: "One-minute load average above which scrubd rests. Default off",
        turned: Turned::AnyTime,
        set: |c, v, _| unless("off", v, load).map(|load| c.scrub_load = load),
        show: |c, f| show_unless("off", c.scrub_load, f),
    },
    Knob {
        name: "scrub-rate",
        variable: "PREZERO_SCRUB_RATE",
        value: "SIZE|off",
        help: "Most bytes scrubd clears in a second [off]",
        detail: "Most bytes that scrubd clears in a second, 2M or more. Default off: as fast as it can",
        turned: Turned::AnyTime,
        set: |c, v, _| {
            c.scrub_rate = unless("off", v, size)?;
            match c.scrub_rate {
                Some(0..HUGE) => Err("less than scrubd clears at a time; give 2M or more, or off"),
                _ => Ok(()),
            }
        },
        show: |c, f| show_unless("off", c.scrub_rate.map(Size), f),
    },
    Knob {
        name: "scrub-cache",
        variable: "PREZERO_SCRUB_CACHE",
        value: "SIZE|auto",
        help: "Zeroes in the shared cache [auto: 20 L2s]",
        detail: "Zeroes that may lie in the shared cache; more are cleared past it. Default auto: twenty private caches' worth, at most three quarters of it",
        turned: Turned::AnyTime,
        set: |c, v, _| unless("auto", v, size).map(|bytes| c.scrub_cache = bytes),
        show: |c, f| show_unless("auto", c.scrub_cache.map(Size), f),
    },
    Knob {
        name: "stock",
        variable: "PREZERO_STOCK",
        value: "SIZE|off",
        help: "Most bytes ready ahead of requests [off]",
        detail: "Most memory that scrubd makes zero ahead of requests. Default off: as much as demand calls for",
        turned: Turned::AnyTime,
        set: |c, v, _| unless("off", v, size).map(|bytes| c.stock = bytes),
        show: |c, f| show_unless("off", c.stock.map(Size), f),
    },
    Knob {
        name: "engine",
        variable: "PREZERO_ENGINE",
        value: "NAME",
        help: "See `prezero engines` [auto: by size and cost]",
        detail: "How memory is cleared, one of those that `prezero engines` lists. Default auto: through the cache or past it, by size and by what that costs",
        turned: Turned::AnyTime,
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
        help: "Most memory of the zone [all of the machine]",
        detail: "Most memory the zone may hold, 2M or more. Default: as much as the machine has",
        turned: Turned::AtStart,
        set: |c, v, _| {
            let bytes = size(v)?;
            c.limit = bytes - bytes % HUGE;
            match bytes {
                0..HUGE => Err("less than one huge block; give 2M or more"),
                HUGE..=MAX_LIMIT => Ok(()),
                _ => Err("more than a zone can span; give 4T or less"),
            }
        },
        show: |c, f| Size(c.limit).fmt(f),
    },
    Knob {
        name: "threshold",
        variable: "PREZERO_THRESHOLD",
        value: "SIZE",
        help: "Smallest request that prezero serves [128K]",
        detail: "Smallest request that prezero serves, 64K or more; smaller ones go to the C library. Default 128K",
        turned: Turned::AtStart,
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
        help: "Zero memory that is read back first [sample]",
        detail: "Zero memory that is read before it is handed out: off; sample, random pages; full, all of it. Default sample",
        turned: Turned::AnyTime,
        set: |c, v, _| {
            c.verify = named(&VERIFY, v).ok_or("no such mode; give off, sample or full")?;
            Ok(())
        },
        show: |c, f| f.write_str(name(&VERIFY, c.verify)),
    },
    Knob {
        name: "decay",
        variable: "PREZERO_DECAY",
        value: "SECONDS",
        help: "Until idle memory goes to the kernel [10]",
        detail: "How long idle memory stays before the kernel gets it, s. Default 10",
        turned: Turned::AnyTime,
        set: |c, v, _| seconds(v).map(|decay| c.decay = decay),
        show: |c, f| {
            write!(f, "{}", c.decay.as_secs())?;
            let (mut part, mut digits) = (c.decay.subsec_nanos(), 9);
            if part == 0 {
                return Ok(());
            }
            while part.is_multiple_of(10) {
                (part, digits) = (part / 10, digits - 1);
            }
            write!(f, ".{part:0digits$}")
        },
    },
    Knob {
        name: "huge",
        variable: "PREZERO_HUGE",
        value: "on|off",
        help: "Huge pages for large blocks [on, see manual]",
        detail: "Whether large blocks come in huge pages, fresh or scrubbed. Default on; off in a guest that reports free memory to its hypervisor",
        turned: Turned::AtStart,
        set: |c, v, _| named(&SWITCH, v).ok_or(NO_SWITCH).map(|on| c.huge = on),
        show: |c, f| f.write_str(name(&SWITCH, c.huge)),
    },
    Knob {
        name: "no-move",
        variable: "PREZERO_NO_MOVE",
        value: "auto|on|off",
        help: "No free page leaves its address [auto]",
        detail: "on: free pages keep their addresses, as caches of registered memory need it, and the kernel takes them only when memory is short. Default auto: while UCX or Open MPI hooks libc, or after mallopt told glibc to keep its memory",
        turned: Turned::AtStart,
        set: |c, v, _| {
            c.no_move = named(&NO_MOVE, v).ok_or("no such mode; give auto, on or off")?;
            Ok(())
        },
        show: |c, f| f.write_str(name(&NO_MOVE, c.no_move)),
    },
    Knob {
        name: "zero-on-free",
        variable: "PREZERO_ZERO_ON_FREE",
        value: "on|off",
        help: "Clear a block before free returns [off]",
        detail: "on: blocks are cleared before free returns. Default off",
        turned: Turned::AtStart,
        set: |c, v, _| named(&ON_FREE, v).ok_or(NO_SWITCH).map(|on_free| c.on_free = on_free),
        show: |c, f| f.write_str(name(&ON_FREE, c.on_free)),
    },
    Knob {
        name: "stats",
        variable: "PREZERO_STATS",
        value: "WHERE",
        help: "FILE, - (stderr), summary or off [summary]",
        detail: "Where statistics go at exit: a FILE, in whose name %p becomes the pid; - for all of them on standard error; summary for a line there; off. Default summary",
        turned: Turned::AtStart,
        set: |c, v, _| {
            c.stats = match v {
                "summary" => StatsSink::Summary,
                "off" => StatsSink::Off,
                "-" => StatsSink::Stderr,
                path if path.len() > MAX_PATH => {
                    return Err("the path is too long; give one of 1023 bytes or less");
                }
                path => StatsSink::File(meta::keep(path).map_err(|_| "no memory to keep it")?),
            };
            Ok(())
        },
        show: |c, f| {
            f.write_str(match &c.stats {
                StatsSink::Summary => "summary",
                StatsSink::Off => "off",
                StatsSink::Stderr => "-",
                StatsSink::File(path) => path,
            })
        },
    },
];

/// Leaves mechanisms out. For measurements alone, so no help names it.
pub static WITHOUT: Knob = Knob {
    name: "without",
    variable: "PREZERO_ABLATE",
    value: "NAMES",
    help: "Mechanisms to leave out [none]",
    detail: "Mechanisms to leave out, with commas between them. Default none",
    turned: Turned::AtStart,
    set: |c, v, _| Ablation::read(v).map(|without| c.without = without),
    show: |c, f| c.without.fmt(f),
};

/// Values that are words.
const SWITCH: [(&str, bool); 2] = [("on", true), ("off", false)];
const ON_FREE: [(&str, OnFree); 2] = [("on", OnFree::Clear), ("off", OnFree::Keep)];
const NO_SWITCH: &str = "neither; give on or off";
const VERIFY: [(&str, Verify); 3] =
    [("off", Verify::Off), ("sample", Verify::Sample), ("full", Verify::Full)];
const NO_MOVE: [(&str, NoMoveMode); 3] =
    [("auto", NoMoveMode::Auto), ("on", NoMoveMode::On), ("off", NoMoveMode::Off)];

fn named<T: Copy>(words: &[(&str, T)], text: &str) -> Option<T> {
    words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value)
}

fn name<T: PartialEq>(words: &[(&'static str, T)], value: T) -> &'static str {
    words.iter().find(|(_, each)| *each == value).map_or("", |(word, _)| *word)
}

/// A value, or the word for its absence.
fn unless<T>(
    none: &str,
    text: &str,
    read: impl FnOnce(&str) -> Result<T, &'static str>,
) -> Result<Option<T>, &'static str> {
    if text == none { Ok(None) } else { read(text).map(Some) }
}

fn show_unless(none: &str, value: Option<impl Display>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match value {
        Some(value) => value.fmt(f),
        None => f.write_str(none),
    }
}

impl Knob {
    /// The knob of that name.
    pub fn named(name: &str) -> Option<&'static Knob> {
        KNOBS.iter().find(|knob| knob.name == name)
    }
}
