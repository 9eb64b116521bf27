//! How a test in Rust waits for another thread, for a process or for the kernel. Each crate's tests include this
//! file by its path.

use std::fmt::Display;
use std::time::{Duration, Instant};

/// Longer than anything takes on a machine that starves: only a failure waits so long.
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

/// Looks until something is found; panics after [`PATIENCE`].
#[track_caller]
pub fn until<L: Look>(what: &str, mut look: impl FnMut() -> L) -> L::Found {
    let began = Instant::now();
    for nth in 0.. {
        match look().found() {
            Ok(found) => return found,
            Err(why) => {
                assert!(began.elapsed() < PATIENCE, "{what}: in vain for {PATIENCE:?}: {why}")
            }
        }
        if nth < IN_A_ROW {
            std::thread::yield_now();
        } else {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    unreachable!("it looks for ever")
}
