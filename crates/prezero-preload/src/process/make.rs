//! The heap's making: what the environment and the limits of the process leave room for.

use std::fmt::Write;

use prezero_core::HUGE;

use super::heap::Heap;
use super::{Process, confine, env};
use crate::compat::message::Line;

/// The smallest reservation worth having: room for a few blocks of some megabytes.
pub(super) const MIN_LIMIT: usize = 64 << 20;
/// Of a finite `RLIMIT_AS` or `RLIMIT_DATA`, the zone reserves at most one part in so many: what it
/// reserves is lost to small blocks and to a request too large for it, and glibc alone
/// spends 64 MiB for each arena. Under less than this many times [`MIN_LIMIT`] there is
/// no zone.
pub(super) const ADDRESS_SPACE_SHARE: usize = 8;

/// What came of making a heap.
#[expect(clippy::large_enum_variant, reason = "no heap to box it on; one per process")]
pub(super) enum Made {
    /// It is there.
    Heap(Process),
    /// The request is below the threshold that the user set: bytes.
    NotYet(usize),
    /// There is to be none.
    Nothing,
}

/// The heap for a request of so many bytes, if there is to be one.
pub(super) fn make(bytes: usize) -> Made {
    // Before all that looks at the machine.
    if env::disabled() || !confine::may_live() || env::overcommits_never() {
        return Made::Nothing;
    }
    let mut config = match env::config() {
        Ok(config) => config,
        Err(error) => {
            let _ = writeln!(Line::to_stderr(), "prezero: {error} (running without a zone)");
            return Made::Nothing;
        }
    };
    if bytes < config.threshold {
        return Made::NotYet(config.threshold);
    }
    let room = address_space() / ADDRESS_SPACE_SHARE;
    while config.limit > room {
        if config.limit <= MIN_LIMIT {
            return Made::Nothing;
        }
        config.limit = halved(config.limit);
    }
    loop {
        if let Ok(heap) = Heap::new(&config) {
            return Made::Heap(Process { heap, config });
        }
        if config.limit <= MIN_LIMIT {
            return Made::Nothing;
        }
        config.limit = halved(config.limit);
    }
}

/// Half of it, in whole huge blocks, but not less than the smallest reservation.
fn halved(limit: usize) -> usize {
    (limit / 2 / HUGE * HUGE).max(MIN_LIMIT)
}

/// Bytes of address space that the process may use for private memory, untouched or not;
/// `usize::MAX`: no limit.
fn address_space() -> usize {
    let limits = [libc::RLIMIT_AS, libc::RLIMIT_DATA].map(|which| {
        let none = libc::RLIM_INFINITY;
        let mut limit = libc::rlimit { rlim_cur: none, rlim_max: none };
        // SAFETY: the struct is there for the call to fill; if it fails, it says "no limit".
        unsafe { libc::getrlimit(which, &mut limit) };
        limit.rlim_cur.try_into().unwrap_or(usize::MAX)
    });
    limits[0].min(limits[1])
}
