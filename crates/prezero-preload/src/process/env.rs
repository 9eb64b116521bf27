//! What the environment says: on or off, the knobs, and which process reports.
//!
//! | variable | meaning |
//! |---|---|
//! | `PREZERO_DISABLE=1` | no zone: every call goes to the next allocator |
//! | `PREZERO_BARE_THREAD=off` | scrubd is a thread that libc knows of |
//! | `PREZERO_PID=N:BEGAN:NAMESPACE` | process N writes the statistics when it ends, if it began then in that namespace (set by `prezero run`); or `N` alone |
//! | `PREZERO_TRIED=N` | the first N filters of system calls let a zone live (set by `prezero run`) |
//! | `PREZERO_TREE=FILE` | where its children tell it what they did (set by `prezero run`) |
//! | the rest | the knobs of [`Config`] |
//!
//! Reads with libc's `getenv`, which needs no heap.

use prezero_core::{Config, ConfigError, Machine};
use prezero_sys::birth::{self, Identity};
use prezero_sys::process;
use prezero_sys::process::environment as get;

/// Whether valgrind runs the program: it knows neither restartable sequences nor the idle class,
/// and wants to see every block. Its own preloaded part is there for every tool of it.
pub fn is_valgrind() -> bool {
    preloaded().is_some_and(|libraries| libraries.contains("/vgpreload_"))
}

/// The libraries in front of each program, with spaces and colons between.
pub fn preloaded() -> Option<&'static str> {
    get("LD_PRELOAD")
}

/// Whether the user wants no zone.
pub fn disabled() -> bool {
    get("PREZERO_DISABLE") == Some("1")
}

/// Whether scrubd may be a thread that libc does not know of.
pub fn wants_bare_thread() -> bool {
    get("PREZERO_BARE_THREAD") != Some("off")
}

/// The process that writes the statistics.
#[derive(Clone, Copy, Default)]
pub struct Reporter {
    /// Its number; 0: none writes them.
    pub number: libc::pid_t,
    /// What else is known of it.
    pub identity: Option<Identity>,
    /// Whether it is this process.
    pub is_here: bool,
}

/// The process that writes the statistics. Another may have its number: the first of a container, or one that came
/// later. Without `/proc` the number alone decides.
pub fn reporter() -> Option<Reporter> {
    let text = get("PREZERO_PID")?;
    let (number, rest) = text.split_once(':').unwrap_or((text, ""));
    let number = number.parse().ok()?;
    let identity = rest.parse().ok();
    let same = || identity.is_none() || birth::identity().is_none_or(|own| identity == Some(own));
    let is_here = process::id().cast_signed() == number && same();
    Some(Reporter { number, identity, is_here })
}

/// Where children tell the process that writes the statistics what they did.
pub fn tree() -> Option<&'static str> {
    get("PREZERO_TREE").filter(|name| name.starts_with('/'))
}

/// The number of filters of system calls that `prezero run` tried.
pub fn tried_filters() -> Option<u32> {
    get("PREZERO_TRIED")?.parse().ok()
}

/// The knobs.
///
/// # Errors
/// Names the variable, its value and the mend.
#[inline(never)]
pub fn config() -> Result<Config, ConfigError> {
    Config::from_env(&Machine::here(), get)
}
