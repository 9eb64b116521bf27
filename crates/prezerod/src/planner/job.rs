//! One inode that is being made: what it will be, for which demand, and how far it is.

use crate::demand::Party;
use crate::filler::Priority;
use crate::filler::pacer::{BusyLimit, Throttle};
use crate::inode::Kind;
use crate::stock::Need;

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Job {
    /// The broker's number for it.
    pub serial: u64,
    /// What it will be.
    pub kind: Kind,
    /// How large.
    pub bytes: u64,
    /// For stock or for a client that waits.
    pub priority: Priority,
    /// Which of the fillers of its node and priority.
    pub lane: u8,
    /// The most bytes a second.
    pub rate: Option<u64>,
    /// How much of it while others work on the node; `None`: a client waits.
    pub busy_limit: Option<BusyLimit>,
    /// What it was asked for as.
    pub need: Need,
    /// Whose request it was begun for; `None`: the stock's.
    pub party: Option<Party>,
    /// When it was begun, ns.
    pub began: u64,
    /// How far it is.
    pub status: Status,
}

/// What a filler said last of its job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status {
    /// When that was, ns.
    pub heard: u64,
    /// What was left to make then, bytes.
    pub left: u64,
    /// What holds the filler back,
    pub throttle: Option<Throttle>,
    /// and to how many bytes a second.
    pub throttled_to: Option<u64>,
}
