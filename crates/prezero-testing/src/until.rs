//! How a test in Rust waits for another thread, for a process or for the kernel.

use std::fmt::Display;
use std::time::{Duration, Instant};

/// Longer than anything takes on a machine that starves: only a failure waits for all of it.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// How often it looks in a row, for what lasts for a moment only, before it lets a millisecond pass each time.
const IN_A_ROW: u32 = 1000;

/// What a look finds: `true`, something, or why not yet.
pub trait Look {
    /// What is found in the end.
    type Found;

    /// That, or why not yet.
    fn found(self) -> Result<Self::Found, String>;
}

impl Look for bool {
    type Found = ();

    fn found(self) -> Result<(), String> {
        if self { Ok(()) } else { Err("not so".into()) }
    }
}

impl<T> Look for Option<T> {
    type Found = T;

    fn found(self) -> Result<T, String> {
        self.ok_or_else(|| "nothing".into())
    }
}

impl<T, E: Display> Look for Result<T, E> {
    type Found = T;

    fn found(self) -> Result<T, String> {
        self.map_err(|error| error.to_string())
    }
}

/// Ticks that the CPUs spent idle since the machine started, and all their ticks.
fn idle_of_all() -> Option<(u64, u64)> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    let ticks = stat.lines().next()?.split_whitespace().skip(1).take(8).map(|word| word.parse());
    let ticks: Vec<u64> = ticks.collect::<Result<_, _>>().ok()?;
    Some((ticks.get(3)? + ticks.get(4)?, ticks.iter().sum()))
}

/// What a failure says where scrubd, which runs on idle CPUs alone, may have had none.
fn busy_since(began: Option<(u64, u64)>) -> String {
    let share = began
        .zip(idle_of_all())
        .map(|((idle, all), now)| 100.0 * (now.0 - idle) as f64 / (now.1 - all).max(1) as f64);
    match share {
        Some(share) if share < 5.0 => {
            format!(" (no CPU idled: {share:.1} % of the time; try again on an idle machine)")
        }
        _ => String::new(),
    }
}

/// Looks until something is found; panics after [`PATIENCE`], and says so if no CPU idled meanwhile.
#[track_caller]
pub fn until<L: Look>(what: &str, mut look: impl FnMut() -> L) -> L::Found {
    let (began, idle) = (Instant::now(), idle_of_all());
    for nth in 0.. {
        match look().found() {
            Ok(found) => return found,
            Err(why) if began.elapsed() < PATIENCE => drop(why),
            Err(why) => panic!("{what}: in vain for {PATIENCE:?}: {why}{}", busy_since(idle)),
        }
        if nth < IN_A_ROW {
            std::thread::yield_now();
        } else {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    unreachable!("it looks for ever")
}
