//! The broker's CPU time that each user's requests take, against the share that is theirs.
//!
//! A user whose requests took more than their share is not heard for as long as the share needs to
//! make up for it. So the broker sleeps most of the time, and the kernel gives it a CPU at once when
//! another user asks. While one user alone asks there is nobody to protect, and nothing is held back.
//!
//! The share is kept by the virtual schedule of ATM's generic cell rate algorithm (ITU-T I.371): one
//! time a user. Told the time; reads no clock.

use std::collections::BTreeMap;

/// CPU time of the broker that a user may take at once, before its share counts, ns: some fifty claims.
/// Moved by: `tests/system/attack.py`.
const BURST_NS: u64 = 5_000_000;
/// For so long after its last request a user still asks, ns.
const ASKS_NS: u64 = 1_000_000_000;

/// See the module.
#[derive(Debug, Default)]
pub struct Allowances {
    users: BTreeMap<u32, Allowance>,
}

#[derive(Debug)]
struct Allowance {
    /// When it was heard last, ns.
    heard: u64,
    /// When its share has made up for all that it took, ns.
    even: u64,
    /// And when for all but what it may take at once.
    rests_until: u64,
}

impl Allowances {
    /// This user's requests took so much CPU time, up to now; `percent` of a CPU is its share.
    pub fn took(&mut self, now: u64, user: u32, took_ns: u64, percent: u32) {
        let of_share = |ns: u64| ns.saturating_mul(100) / u64::from(percent.max(1));
        self.users.retain(|_, other| other.even > now || other.asks(now));
        let user =
            self.users.entry(user).or_insert(Allowance { heard: 0, even: 0, rests_until: 0 });
        // What it took beyond its share while it was alone is nobody's loss, and forgotten.
        let burst = of_share(BURST_NS);
        let began = now.saturating_sub(took_ns);
        let before = user.even.clamp(began, began.saturating_add(burst));
        user.even = before.saturating_add(of_share(took_ns));
        user.rests_until = user.even.saturating_sub(burst);
        user.heard = now;
    }

    /// Users that are not heard now, and until when each.
    pub fn resting(&self, now: u64) -> BTreeMap<u32, u64> {
        if self.users.values().filter(|user| user.asks(now)).count() < 2 {
            return BTreeMap::new();
        }
        let rest = self.users.iter().filter(|(_, user)| user.rests_until > now);
        rest.map(|(&uid, user)| (uid, user.rests_until)).collect()
    }
}

impl Allowance {
    fn asks(&self, now: u64) -> bool {
        now.saturating_sub(self.heard) < ASKS_NS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const GREEDY: u32 = 7;
    const MODEST: u32 = 8;

    /// How long a greedy user was heard in so many ms beside one that asks for 0.1 ms each
    /// `every_ms`, and how often that one had to rest.
    fn heard(ms: u64, percent: u32, every_ms: u64) -> (u64, u64) {
        let (mut all, mut now, mut greedy, mut held) = (Allowances::default(), 1, 0, 0);
        let mut next = 0;
        while now < ms * MS {
            let resting = all.resting(now);
            if now >= next {
                held += u64::from(resting.contains_key(&MODEST));
                now += MS / 10;
                all.took(now, MODEST, MS / 10, percent);
                next = now + every_ms * MS;
            }
            match resting.get(&GREEDY) {
                Some(&until) => {
                    assert!(until > now - MS, "who may be heard rests");
                    now = until.min(next).max(now + 1);
                }
                None => {
                    now += MS;
                    greedy += MS;
                    all.took(now, GREEDY, MS, percent);
                }
            }
        }
        (greedy / MS, held)
    }

    #[test]
    fn a_greedy_user_gets_its_share_beside_others_and_who_asks_for_less_never_rests() {
        for percent in [1, 10, 50] {
            let (greedy, held) = heard(10_000, percent, 20);
            let share = u64::from(percent) * 100;
            assert!((share..=share + 10).contains(&greedy), "{percent} %: {greedy} ms of 10 s");
            assert_eq!(held, 0);
        }
    }

    #[test]
    fn nobody_rests_alone_or_where_the_share_is_everything() {
        // The other asks once, at the beginning: 1 s later the greedy one is alone.
        let (greedy, _) = heard(10_000, 10, 100_000);
        assert!((9_000..9_200).contains(&greedy), "{greedy}");
        let (greedy, held) = heard(1_000, 100, 20);
        assert!(greedy > 950 && held == 0, "{greedy} {held}");
    }

    #[test]
    fn what_was_taken_alone_is_not_held_against_a_user_and_who_has_gone_is_forgotten() {
        let mut all = Allowances::default();
        let mut now = 1;
        for _ in 0..10_000 {
            now += MS;
            all.took(now, GREEDY, MS, 10);
        }
        assert!(all.resting(now).is_empty());
        all.took(now, MODEST, MS / 10, 10);
        let until = all.resting(now)[&GREEDY];
        assert!((now + MS..now + 10 * MS).contains(&until), "{}", until - now);
        for uid in 100..1000 {
            all.took(now, uid, 1, 10);
        }
        now += ASKS_NS + MS;
        all.took(now, MODEST, 1, 10);
        assert_eq!(all.users.len(), 1, "{:?}", all.users);
    }
}
