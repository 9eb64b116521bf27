//! What a turn is, how long turns take, and when they end. Reads no clock.

use std::time::Duration;

use super::turns::Taken;
use super::way::{WAYS, Way};

/// When turns end.
#[derive(Clone, Copy, Debug)]
pub enum Bound {
    /// After this number.
    Turns(usize),
    /// When the next turn would end after it, or the difference is known.
    Time(Duration),
}

/// Why turns ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// As many were asked for.
    Counted,
    /// The difference is known well enough.
    Known,
    /// The time was over.
    Time,
    /// By a signal.
    Interrupted,
}

impl Ended {
    /// For people, behind the number of turns.
    pub fn why(self) -> &'static str {
        match self {
            Ended::Counted => "as told",
            Ended::Known => "until the difference was known",
            Ended::Time => "until the time was over",
            Ended::Interrupted => "until a signal came",
        }
    }
}

/// As many turns say what ranks can say ([`Taken::times`]); a program that leaves time for fewer of four has turns of two.
pub const FEW: usize = 8;

/// How a trial goes on, from its first run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    bound: Bound,
    first_s: f64,
}

impl Plan {
    /// For a program whose first run took this.
    pub fn of(bound: Bound, first_s: f64) -> Plan {
        Plan { bound, first_s }
    }

    /// How long all four ways take, for as many turns as there should be.
    fn whole_s(&self) -> f64 {
        self.first_s * (WAYS.len() * (FEW + 1)) as f64
    }

    /// The ways of a turn: the first of all, if the program runs long.
    pub fn ways(&self) -> &'static [Way] {
        match self.bound {
            Bound::Time(time) if self.whole_s() > time.as_secs_f64() => &WAYS[..2],
            _ => &WAYS,
        }
    }

    /// A turn that is not counted comes first, but for a program that runs long: its first run is enough.
    pub fn warms(&self) -> bool {
        self.ways().len() == WAYS.len()
    }

    /// How long all takes, as the end of a sentence about the program.
    pub fn says(&self) -> String {
        let ways = self.ways().len();
        let turn_s = self.first_s * ways as f64;
        let run = time(self.first_s);
        match self.bound {
            Bound::Turns(turns) => {
                let s = if turns == 1 { "" } else { "s" };
                let all = time(turn_s * (turns as f64 + 1.0));
                format!("a run takes {run}: {turns} turn{s} of {ways} runs, some {all} in all")
            }
            Bound::Time(bound) if self.warms() => {
                let bound = time(bound.as_secs_f64());
                format!("a run takes {run}: turns of {ways} runs, for {bound} at most")
            }
            Bound::Time(bound) => {
                let all = time(bound.as_secs_f64().max(self.first_s + turn_s));
                let whole = (self.whole_s() / 60.0).ceil();
                format!(
                    "a run takes {run}: turns of 2 runs, plain and prezero, for some {all}; --for {whole}m has all four ways"
                )
            }
        }
    }

    /// Why turns end, if they do: `taken` has those that count, `passed` is from the first run on.
    pub fn ended(&self, taken: &Taken, passed: Duration) -> Option<Ended> {
        let turns = taken.runs[0].len();
        match self.bound {
            Bound::Turns(most) => (turns >= most).then_some(Ended::Counted),
            Bound::Time(_) if turns == 0 => None,
            Bound::Time(_) if taken.is_known() => Some(Ended::Known),
            Bound::Time(time) => {
                let uncounted = if self.warms() { 1.0 } else { 1.0 / self.ways().len() as f64 };
                let turn_s = passed.as_secs_f64() / (turns as f64 + uncounted);
                let next_s = passed.as_secs_f64() + turn_s;
                (next_s > time.as_secs_f64()).then_some(Ended::Time)
            }
        }
    }
}

/// `12 ms`, `1.5 s`, `12 min`.
fn time(seconds: f64) -> String {
    match seconds {
        s if s < 1.0 => format!("{:.0} ms", (1e3 * s).max(1.0)),
        s if s < 10.0 => format!("{s:.1} s"),
        s if s <= 120.0 => format!("{s:.0} s"),
        s => format!("{:.0} min", s / 60.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_says_how_long_it_takes() {
        let minute = Bound::Time(Duration::from_secs(60));
        let says = |bound, first_s| Plan::of(bound, first_s).says();
        assert_eq!(says(minute, 0.002), "a run takes 2 ms: turns of 4 runs, for 60 s at most");
        assert_eq!(
            says(minute, 5.0),
            "a run takes 5.0 s: turns of 2 runs, plain and prezero, for some 60 s; --for 3m has all four ways"
        );
        assert!(says(minute, 40.0).contains("for some 120 s; --for 24m"));
        assert_eq!(
            says(Bound::Turns(4), 1.5),
            "a run takes 1.5 s: 4 turns of 4 runs, some 30 s in all"
        );
    }

    #[test]
    fn turns_keep_to_their_time_and_there_is_one_at_least() {
        for (first_s, ways, turns) in
            [(0.5, 4, 29), (1.6, 4, 8), (5.0, 2, 5), (20.0, 2, 1), (300.0, 2, 1)]
        {
            let plan = Plan::of(Bound::Time(Duration::from_secs(60)), first_s);
            assert_eq!(plan.ways().len(), ways, "{first_s}");
            let mut taken = Taken::nothing(&[]);
            let mut passed_s = if plan.warms() { 4.0 * first_s } else { first_s };
            let mut wall = [1.0, 1.2].into_iter().cycle();
            while plan.ended(&taken, Duration::from_secs_f64(passed_s)).is_none() {
                taken.runs[0].push(super::super::turns::run(wall.next().unwrap()));
                passed_s += first_s * ways as f64;
            }
            assert_eq!(taken.runs[0].len(), turns, "{first_s}");
        }
    }
}
