//! How much of what should lie ready: the library's loop, for clients instead of requests.
//!
//! Each size that is asked for has a shelf. Leases come in bursts (a host starts its guests,
//! a batch its workers); a stock as large as the largest burst of late serves the next one
//! whole, and while one goes on, what is left of it. What nobody asks for fades, until half
//! an inode is expected: then it is let go. What an hour of the day used to ask for lies ready
//! from ten minutes before that hour. An operator's `keep` is the floor, `most` the
//! ceiling. Told the time and the minute of the day (UTC); reads no clock.

use prezero_host::Bursts;

use crate::stock::Need;

/// A burst is over after so long without a request: longer than a host takes between two guests
/// that it starts one after the other.
/// Moved by: counters `lease_hits`, `waste_bytes`.
const QUIET_NS: u64 = 10_000_000_000;
/// Windows after which a burst's memory is halved, by the fade of [`Bursts`].
/// Moved by: counters `lease_hits`, `waste_bytes`.
const WINDOWS_TO_HALF: u64 = 22;
/// For so long a lease is kept that a client was told to come back for; and how many of one size.
/// Moved by: counter `waste_bytes`.
const OWED_NS: u64 = 60_000_000_000;
const MOST_OWED: u64 = 8;
/// Most sizes that are remembered: a client that asks for all sizes must not fill the memory
/// of the broker nor the host's.
const MOST_SHELVES: usize = 64;

/// Minutes before an hour of the day in which its usual demand is made. A host fills much memory in
/// it.
/// Moved by: counter `lease_hits`.
const LEAD: u16 = 10;
const HOURS: usize = 24;
const DAY: u16 = 60 * HOURS as u16;

/// An operator's wish.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Keep {
    /// Inodes of this size, page and node (`None`: the one that the broker chooses), for this
    /// payer.
    pub need: Need,
    /// At least so many.
    pub keep: u64,
    /// At most so many.
    pub most: u64,
}

/// One size.
#[derive(Clone, Debug)]
struct Shelf {
    need: Need,
    keep: u64,
    most: u64,
    /// Bytes asked for since the beginning.
    asked: u64,
    asked_at: u64,
    bursts: Bursts,
    /// Inodes that clients were told to come back for, and until when they are expected, ns.
    owed: u64,
    owed_until: u64,
    /// What each hour of the day asked for at once, bytes: halfway between what it did before
    /// and the largest burst of the last time.
    hours: [u64; HOURS],
    /// The largest burst of this hour so far.
    this_hour: u64,
}

impl Shelf {
    fn new(need: Need) -> Shelf {
        Shelf {
            need,
            keep: 0,
            most: u64::MAX,
            asked: 0,
            asked_at: 0,
            bursts: Bursts::default(),
            owed: 0,
            owed_until: 0,
            hours: [0; HOURS],
            this_hour: 0,
        }
    }

    /// `minute` of the day.
    fn target(&self, minute: u16) -> u64 {
        let arrived = self.bursts.arrived(self.asked);
        let soon = self.hours[hour(minute)].max(self.hours[hour(minute + LEAD)]);
        let ahead = self.bursts.largest(self.asked).max(soon).saturating_sub(arrived);
        let inodes = (ahead + self.need.want.bytes / 2) / self.need.want.bytes;
        (inodes.max(self.keep) + self.owed).min(self.most)
    }
}

/// All sizes that are asked for.
#[derive(Debug)]
pub struct Demand {
    shelves: Vec<Shelf>,
    window_ns: u64,
    window_began: u64,
    minute: u16,
}

impl Demand {
    /// Nothing is known; half of what will be is forgotten in `half_ns`.
    pub fn new(now_ns: u64, half_ns: u64) -> Demand {
        let window_ns = window(half_ns);
        Demand { shelves: Vec::new(), window_ns, window_began: now_ns, minute: 0 }
    }

    /// The operator's wishes, in place of those before; what was learnt stays.
    pub fn wish(&mut self, half_ns: u64, wishes: &[Keep]) {
        self.window_ns = window(half_ns);
        for shelf in &mut self.shelves {
            (shelf.keep, shelf.most) = (0, u64::MAX);
        }
        for wish in wishes {
            let shelf = self.shelf(&wish.need);
            (shelf.keep, shelf.most) = (wish.keep, wish.most);
        }
    }

    /// Somebody asked for this: somebody new, or one who was told to come back, as far as
    /// anybody can tell. One who asks again and again is no burst.
    pub fn asked(&mut self, now_ns: u64, need: &Need) {
        let shelf = self.shelf(need);
        shelf.asked_at = now_ns;
        match shelf.owed.checked_sub(1) {
            Some(others) => shelf.owed = others,
            None => shelf.asked = shelf.asked.saturating_add(need.want.bytes),
        }
    }

    /// Somebody was told to ask for this again.
    pub fn owe(&mut self, now_ns: u64, need: &Need) {
        let shelf = self.shelf(need);
        shelf.owed = (shelf.owed + 1).min(MOST_OWED);
        shelf.owed_until = now_ns.saturating_add(OWED_NS);
    }

    /// Whether somebody was told so and has not come yet.
    pub fn is_owed(&self, need: &Need) -> bool {
        self.shelves.iter().any(|shelf| shelf.need == *need && shelf.owed > 0)
    }

    /// Ends bursts, windows and hours that are over. It is this `minute` of the day.
    pub fn turn(&mut self, now_ns: u64, minute: u16) {
        let (before, minute) = (hour(self.minute), minute % DAY);
        self.minute = minute;
        for shelf in &mut self.shelves {
            shelf.this_hour = shelf.this_hour.max(shelf.bursts.arrived(shelf.asked));
            if before != hour(minute) {
                let seen = std::mem::take(&mut shelf.this_hour);
                shelf.hours[before] = shelf.hours[before].midpoint(seen);
            }
            let quiet = now_ns.saturating_sub(shelf.asked_at) > QUIET_NS;
            if quiet && shelf.bursts.arrived(shelf.asked) > 0 {
                shelf.bursts.end(shelf.asked);
            }
            if now_ns > shelf.owed_until {
                shelf.owed = 0;
            }
        }
        let passed = now_ns.saturating_sub(self.window_began) / self.window_ns;
        self.window_began += passed * self.window_ns;
        // After forty halvings nothing is left.
        for _ in 0..passed.min(40 * WINDOWS_TO_HALF) {
            self.shelves.iter_mut().for_each(|shelf| shelf.bursts.fade());
        }
    }

    /// Each size and how many inodes of it should lie ready, the one asked for last first.
    pub fn targets(&self) -> impl Iterator<Item = (Need, u64)> {
        let mut shelves: Vec<_> = self.shelves.iter().collect();
        shelves.sort_by_key(|shelf| std::cmp::Reverse(shelf.asked_at));
        shelves.into_iter().map(|shelf| (shelf.need, shelf.target(self.minute)))
    }

    /// How many inodes of exactly this should lie ready.
    pub fn target(&self, need: &Need) -> u64 {
        self.shelves.iter().find(|shelf| shelf.need == *need).map_or(0, |s| s.target(self.minute))
    }

    fn shelf(&mut self, need: &Need) -> &mut Shelf {
        let found = self.shelves.iter().position(|shelf| shelf.need == *need);
        let at = found.unwrap_or_else(|| {
            if self.shelves.len() >= MOST_SHELVES {
                let learnt = self.shelves.iter().enumerate().filter(|(_, shelf)| shelf.keep == 0);
                if let Some((oldest, _)) = learnt.min_by_key(|(_, shelf)| shelf.asked_at) {
                    self.shelves.swap_remove(oldest);
                }
            }
            self.shelves.push(Shelf::new(*need));
            self.shelves.len() - 1
        });
        &mut self.shelves[at]
    }
}

fn hour(minute: u16) -> usize {
    usize::from(minute % DAY / 60)
}

fn window(half_ns: u64) -> u64 {
    (half_ns / WINDOWS_TO_HALF).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Page, Want};
    use crate::tenant::Payer;

    const S: u64 = 1_000_000_000;
    const HOUR: u64 = 3600 * S;

    fn want(mib: u64) -> Need {
        let want = Want { bytes: mib << 20, page: Page::Huge, node: Some(0) };
        Need { want, payer: Payer::BROKER }
    }

    #[test]
    fn nothing_is_kept_that_nobody_asked_for() {
        let mut demand = Demand::new(0, HOUR);
        demand.turn(HOUR, 0);
        assert_eq!(demand.targets().count(), 0);
        assert_eq!(demand.target(&want(4)), 0);
    }

    #[test]
    fn the_next_burst_finds_the_last_one_ready_and_during_it_what_is_left() {
        let mut demand = Demand::new(0, HOUR);
        for second in 0..4 {
            demand.asked(second * S, &want(4096));
            demand.turn(second * S, 0);
        }
        assert_eq!(demand.target(&want(4096)), 0, "the first burst may go on, but how long?");
        demand.turn(20 * S, 0);
        assert_eq!(demand.target(&want(4096)), 4);
        demand.asked(21 * S, &want(4096));
        demand.turn(21 * S, 0);
        assert_eq!(demand.target(&want(4096)), 3);
    }

    #[test]
    fn what_is_no_longer_asked_for_is_let_go() {
        let mut demand = Demand::new(0, HOUR);
        (0..4).for_each(|_| demand.asked(0, &want(64)));
        demand.turn(11 * S, 0);
        let mut kept = vec![];
        for hour in 1..=5 {
            // Its own window does not count.
            demand.turn(hour * HOUR + window(HOUR), 0);
            kept.push(demand.target(&want(64)));
        }
        assert_eq!(kept, [2, 1, 0, 0, 0]);
    }

    #[test]
    fn a_wish_is_floor_and_ceiling_and_can_be_withdrawn() {
        let mut demand = Demand::new(0, HOUR);
        demand.wish(HOUR, &[Keep { need: want(2), keep: 1, most: 2 }]);
        assert_eq!(demand.target(&want(2)), 1);
        (0..9).for_each(|_| demand.asked(0, &want(2)));
        demand.turn(11 * S, 0);
        assert_eq!(demand.target(&want(2)), 2);
        demand.wish(HOUR, &[]);
        assert_eq!(demand.target(&want(2)), 9);
    }

    #[test]
    fn what_a_client_was_told_to_come_back_for_is_made_but_not_for_ever() {
        let mut demand = Demand::new(0, HOUR);
        demand.asked(0, &want(64));
        demand.owe(0, &want(64));
        assert_eq!(demand.target(&want(64)), 1);
        demand.asked(S, &want(64));
        assert_eq!(demand.target(&want(64)), 0);
        demand.owe(S, &want(64));
        demand.turn(2 * S + OWED_NS, 0);
        assert_eq!(demand.target(&want(64)), 1, "what one asked for, and nobody is expected");
    }

    #[test]
    fn who_asks_again_and_again_is_one_client() {
        let mut demand = Demand::new(0, HOUR);
        for poll in 0..1000 {
            demand.asked(poll * S / 100, &want(64));
            demand.owe(poll * S / 100, &want(64));
        }
        assert_eq!(demand.target(&want(64)), 1);
        demand.asked(10 * S, &want(64));
        demand.turn(2 * OWED_NS, 0);
        assert_eq!(demand.target(&want(64)), 1, "and the next burst will be as large");
    }

    #[test]
    fn who_asks_for_every_size_fills_no_memory_and_drives_out_no_wish() {
        let mut demand = Demand::new(0, HOUR);
        demand.wish(HOUR, &[Keep { need: want(2), keep: 1, most: 2 }]);
        for size in 1..1000 {
            demand.asked(size, &want(2 + 2 * size));
        }
        assert_eq!(demand.targets().count(), MOST_SHELVES);
        assert_eq!(demand.target(&want(2)), 1);
    }

    #[test]
    fn what_an_hour_used_to_ask_for_lies_ready_before_it_and_only_then() {
        const MINUTE: u64 = 60 * S;
        let mut demand = Demand::new(0, HOUR);
        let minutes = 5 * u64::from(DAY);
        let mut targets = vec![];
        for at in 0..minutes {
            let (day, minute) = (at / u64::from(DAY), (at % u64::from(DAY)) as u16);
            // Each day but the last, at 9:05, four at once.
            if minute == 9 * 60 + 5 && day < 4 {
                (0..4).for_each(|_| demand.asked(at * MINUTE, &want(64)));
            }
            demand.turn(at * MINUTE, minute);
            if [8 * 60, 8 * 60 + 50, 9 * 60 + 4, 9 * 60 + 6, 20 * 60].contains(&minute) {
                targets.push(demand.target(&want(64)));
            }
        }
        let days: Vec<_> = targets.chunks(5).collect();
        // 8:00, 8:50, 9:04, after the burst, evening.
        assert_eq!(days[0], [0, 0, 0, 4, 0], "nothing is known on the first day");
        assert_eq!(days[1], [0, 2, 2, 4, 0]);
        assert_eq!(days[2], [0, 3, 3, 4, 0]);
        assert_eq!(days[3], [0, 4, 4, 4, 0]);
        assert_eq!(days[4], [0, 4, 4, 4, 0], "nobody came");
        for at in minutes..minutes + 4 * u64::from(DAY) {
            demand.turn(at * MINUTE, (at % u64::from(DAY)) as u16);
        }
        demand.turn((minutes + 4 * u64::from(DAY)) * MINUTE, 9 * 60);
        assert_eq!(demand.target(&want(64)), 0, "nor since, and it is forgotten");
    }
}
