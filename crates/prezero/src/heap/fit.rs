//! A heap that fits into the address space that the process may use.

use std::mem::MaybeUninit;

use super::Heap;
use crate::config::Config;
use crate::units::HUGE;

/// The smallest reservation worth having: room for a few blocks of some megabytes.
pub const MIN_LIMIT: usize = 64 << 20;
/// Of a finite `RLIMIT_AS` or `RLIMIT_DATA`, the zone reserves at most this part, as a divisor: what it
/// reserves is lost to small blocks and to a request too large for it, and glibc alone
/// spends 64 MiB for each arena. Under less than this many times [`MIN_LIMIT`] there is
/// no zone.
pub const ADDRESS_SPACE_SHARE: usize = 8;

impl Heap {
    /// A heap of as many bytes as the configuration says, or of fewer where the address space or its limits hold no
    /// more, in a slot where it stays. `None`: they hold none that is worth it. The configuration then says how many
    /// it has.
    pub fn fitting<'a>(
        slot: &'a mut MaybeUninit<Heap>,
        config: &mut Config,
    ) -> Option<&'a mut Heap> {
        let room = prezero_sys::process::address_space() / ADDRESS_SPACE_SHARE;
        loop {
            if config.limit <= room && Heap::build(slot, config).is_ok() {
                // SAFETY: it was built.
                return Some(unsafe { slot.assume_init_mut() });
            }
            if config.limit <= MIN_LIMIT {
                return None;
            }
            config.limit = halved(config.limit);
        }
    }
}

/// Half of it, in whole huge blocks, but not less than the smallest reservation.
fn halved(limit: usize) -> usize {
    (limit / 2 / HUGE * HUGE).max(MIN_LIMIT)
}
