//! Clients that start with memory of their own where there is no lease: for how long they wait.
//!
//! Contract: such a client waits for a piece of stock that is nearly made, and for no other. It waits for a part of the
//! time in which a whole piece is made, which is what its own memory takes. Nothing is made to order for it, and it is
//! not expected back.

use super::plan::serves;
use super::{Broker, Inode};
use crate::stock::Need;

/// The part of the time of a whole piece, as a divisor. A wait in vain delays the start by as much.
/// Moved by: `tests/system/busy.py --plain`.
const PART: f64 = 4.0;

impl<I: Inode> Broker<I> {
    /// The longest wait of a client with memory of its own, ns; 0: it starts at once.
    pub(super) fn patience(&self, now: u64, need: &Need) -> u64 {
        let has_client = |job| self.planner.waits.iter().any(|wait| serves(job, &wait.need));
        let coming = self.planner.jobs.iter().filter(|job| serves(job, need) && !has_client(job));
        let patience = |job| {
            let (left, pace) = (self.left_for_a_client(now, job)?, self.full_pace(job)?);
            let most = need.want.bytes as f64 / pace / PART;
            (left <= most).then_some((most * 1e9) as u64)
        };
        coming.filter_map(patience).max().unwrap_or(0)
    }
}
