//! Idle memory of the whole zone goes back to the kernel: by age, under pressure, on request.
//!
//! The pool releases it ([`pool::purge::age`](crate::pool::purge::age)).

use crate::clock::{Tick, Ticks};
use crate::map::state::PageState;
use crate::mem::backing::Backing;
use crate::policy::decay::Idle;
use crate::pool::purge::age::{IDLE_LEAST, RESIDENT};
use crate::units::HUGE_PAGES;
use crate::zone::Zone;

/// Pages given back in one look. It bounds the time in the kernel between two naps.
/// Moved by: counter `released_bytes`.
const MOST: u32 = 8 * HUGE_PAGES;

impl<B: Backing> Zone<B> {
    /// Gives every idle free page back to the kernel, now; false if there was none.
    pub fn reclaim(&self) -> bool {
        self.purge_all()
    }

    /// Whether the zone holds resident free memory, at a glance.
    pub(crate) fn holds_idle_memory(&self) -> bool {
        self.pool.map.sums.resident() > 0
    }

    /// Gives every idle free page back to the kernel; false if there was none.
    pub(crate) fn purge_all(&self) -> bool {
        self.take_over();
        self.pool.purge(u32::MAX, &RESIDENT, |_| true)
    }

    /// Gives back idle memory that is old enough: whether there may be more.
    pub(crate) fn purge_idle(&self, idle: Idle, now: Tick) -> bool {
        let older_than = |ns| {
            let stays = Ticks::rounded_down(ns);
            move |freed| now.since(freed) >= stays
        };
        // Dirty memory goes earlier: it costs no clear to make again. A little may stay for blocks that come and go.
        let has_much = || self.pool.map.sums.resident() > IDLE_LEAST;
        let more = has_much()
            && self.pool.purge(MOST, &[PageState::Dirty], older_than(idle.dirty_ns))
            || self.pool.purge(MOST, &RESIDENT, older_than(idle.any_ns));
        if !more && !has_much() {
            self.pool.trim();
        }
        more
    }
}
