//! Many hosts in made-up time: what the broker's rule of stock does for their requests, beside simpler rules.
//!
//! No memory is made and no clock is read: each host is a [`simulation`], played from one request to the
//! next. All rules see the same requests, and the sums are the same in every run. For tests, and for `bench fleet`.
//!
//! A [`cluster`](Cluster) has what a host alone has not: leases that live and take room, a scheduler, busy CPUs. It
//! says how much to keep, and how many hosts. For `bench plan`.

mod arrivals;
mod cluster;
mod play;
mod rules;
pub mod simulation;
mod trace;

pub use arrivals::{Arrivals, PATTERNS, Pattern, Request};
pub use cluster::{Busy, Cluster, Found, Full, Time, least};
pub use play::{Setting, Tally, play};
pub use rules::{Named, RULES};
pub use trace::Trace;

/// Longest play, days: a time in ns fits 64 bits.
/// Fixed: a bound of the command line.
pub const MOST_DAYS: u32 = 366;

#[cfg(test)]
mod patterns;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use simulation::Machine;

    fn setting() -> Setting {
        let machine = Machine { pace: 8 << 30, limit: 64 << 30 };
        Setting { machine, forget: Duration::from_secs(4500), keep: 0 }
    }

    #[test]
    fn a_day_of_each_pattern_is_served_better_than_by_simpler_rules() {
        for pattern in &PATTERNS {
            let arrivals = Arrivals::of_pattern(pattern, 2, 7);
            let tallies: Vec<Tally> =
                RULES.iter().map(|rule| play(&arrivals, rule, &setting(), || false)).collect();
            let [ours, none, one, most] = &tallies[..] else { panic!() };
            let name = pattern.name;
            assert!(tallies.iter().all(|tally| tally.requests() == ours.requests()), "{name}");
            assert!(ours.requests() > 100, "{name}: {}", ours.requests());
            assert!(none.hits == 0 && none.ready == 0.0 && none.vain == 0, "{name}");
            assert!(ours.hits >= one.hits, "{name}: {} and {}", ours.hits, one.hits);
            let share = |tally: &Tally| tally.hits as f64 / tally.requests() as f64;
            assert!(share(ours) > share(most) - 0.01, "{name}: {} {}", share(ours), share(most));
            assert!(ours.wait_ns(0.99) <= none.wait_ns(0.99), "{name}");
        }
    }
}
