//! A cluster that leases one size: how many of its starts find a lease that is ready, and how many find room at all.
//!
//! Starts come at random, and a scheduler puts each on any host with room. Its lease lives for a time, and takes room.
//! Each host keeps some leases ready, in room that no lease takes. One filler a host makes them, one after the other:
//! slower while the host's CPUs are busy and no start waits. A start that finds none ready waits for the next one.
//!
//! No memory is made and no clock is read; the figures are the same in every run. The closed forms of queueing theory
//! are in the tests.

mod play;

use fastrand::Rng;

use play::Play;

/// How long something takes, ns.
#[derive(Clone, Copy, Debug)]
pub enum Time {
    /// As long each time.
    Fixed(f64),
    /// As long on average, independent of all others.
    Random(f64),
}

impl Time {
    fn draw(self, random: &mut Rng) -> f64 {
        match self {
            Time::Fixed(ns) => ns,
            Time::Random(mean) => -(1.0 - random.f64()).ln() * mean,
        }
    }
}

/// What a start does that finds no room on any host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Full {
    /// It goes elsewhere.
    Lost,
    /// It waits until a lease ends; the first that waits is the first that is served.
    Waits,
}

/// When a host's CPUs are busy.
#[derive(Clone, Copy, Debug)]
pub struct Busy {
    /// Part of the time, 0 to 1.
    pub share: f64,
    /// How long they are busy at a time, on average, ns.
    pub span: f64,
    /// Part of its pace that a filler keeps meanwhile, 0 to 1.
    pub pace: f64,
}

impl Busy {
    /// CPUs that idle.
    pub const NEVER: Busy = Busy { share: 0.0, span: 0.0, pace: 1.0 };

    fn next(self, is_busy: bool, random: &mut Rng) -> f64 {
        let idle = self.span * (1.0 - self.share) / self.share;
        Time::Random(if is_busy { self.span } else { idle }).draw(random)
    }
}

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct Cluster {
    /// Hosts.
    pub hosts: usize,
    /// Leases for which each has room.
    pub room: u64,
    /// Leases that each keeps ready.
    pub keep: u64,
    /// Between two starts in the whole cluster.
    pub gap: Time,
    /// For which a lease lives.
    pub life: Time,
    /// To make one while CPUs idle.
    pub making: Time,
    /// CPUs of each host.
    pub busy: Busy,
    /// Without room.
    pub full: Full,
}

/// What became of the starts.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub struct Found {
    /// All of them.
    pub starts: u64,
    /// Those that found room at once,
    pub room: u64,
    /// and of these, a lease that was ready.
    pub ready: u64,
    /// How long all of them waited for room, ns.
    pub waited_for_room: f64,
    /// How long all of them waited for their lease to be made, ns.
    pub waited_for_lease: f64,
    /// Leases that lay ready on a host, on average.
    pub idle: f64,
}

impl Found {
    /// Part of the starts that found room at once.
    pub fn room_share(&self) -> f64 {
        self.room as f64 / self.starts as f64
    }

    /// Part of the starts that found a lease ready.
    pub fn ready_share(&self) -> f64 {
        self.ready as f64 / self.starts as f64
    }
}

impl Cluster {
    /// Plays this number of starts.
    pub fn play(&self, starts: u64) -> Found {
        let mut play = Play::new(*self, starts);
        while play.step() {}
        play.found()
    }

    /// The least hosts, up to `most`, on which this share of `starts` finds room at once.
    pub fn hosts_for(&self, share: f64, starts: u64, most: u64) -> Option<u64> {
        let enough = |hosts| Cluster { hosts: hosts as usize, ..*self }.play(starts).room_share();
        least(most, |hosts| hosts > 0 && enough(hosts) >= share)
    }
}

/// The least number up to `most` that is enough, where all above it are, too.
pub fn least(most: u64, is_enough: impl Fn(u64) -> bool) -> Option<u64> {
    let mut above = 1;
    while !is_enough(above) {
        if above >= most {
            return None;
        }
        above = (2 * above).min(most);
    }
    let mut below = above / 2;
    if is_enough(below) {
        // Of one, that is none.
        return Some(below);
    }
    while above - below > 1 {
        let middle = below + (above - below) / 2;
        *(if is_enough(middle) { &mut above } else { &mut below }) = middle;
    }
    Some(above)
}

#[cfg(test)]
mod tests;
