//! Rules of stock: the broker's own, and simpler ones.

use std::collections::VecDeque;

use super::simulation::{Learnt, Rule};
use prezerod::demand::{Demand, Keep, Target};
use prezerod::stock::Need;

use super::arrivals::S;
use super::play::Setting;

/// The time for which "one of each" keeps one of a size.
/// Fixed: part of the rule that is compared with.
const ONE_NS: u64 = 600 * S;
/// The time that "most in 10 s" counts, and the time for which it remembers the count.
/// Fixed: part of the rule that is compared with.
const SPAN_NS: u64 = 10 * S;
const MOST_NS: u64 = 3600 * S;

/// A rule, and its name.
#[derive(Debug)]
pub struct Named {
    /// For tables.
    pub name: &'static str,
    /// A fresh one, for requests of these sizes.
    pub new: fn(&Setting, &[Need]) -> Box<dyn Rule>,
}

/// All of them, the broker's first.
pub const RULES: [Named; 4] = [
    Named { name: "prezerod", new: learnt },
    Named { name: "none", new: |_, _| Box::new(Plain { keeps: |_, _| 0, ..Plain::default() }) },
    Named { name: "one of each", new: |_, _| Box::new(Plain { keeps: one, ..Plain::default() }) },
    Named { name: "most in 10 s", new: |_, _| Box::new(Plain { keeps: most, ..Plain::default() }) },
];

fn learnt(setting: &Setting, sizes: &[Need]) -> Box<dyn Rule> {
    let forget = setting.forget.as_nanos() as u64;
    let mut demand = Demand::new(0, forget);
    let keep = |need: &Need| Keep { need: *need, keep: setting.keep, most: u64::MAX };
    let keeps: Vec<Keep> = sizes.iter().map(keep).collect();
    demand.set_keeps(forget, &keeps);
    Box::new(Learnt(demand))
}

fn one(size: &Size, now: u64) -> u64 {
    u64::from(now - size.asked_at < ONE_NS)
}

fn most(size: &Size, now: u64) -> u64 {
    size.most.front().filter(|(at, _)| now - at < MOST_NS).map_or(0, |(_, count)| *count)
}

/// One size.
#[derive(Debug)]
struct Size {
    need: Need,
    asked_at: u64,
    /// Requests of the last 10 s.
    span: VecDeque<u64>,
    /// How many those were at each request, without those that a later one reached, too.
    most: VecDeque<(u64, u64)>,
}

/// Keeps of each size what a function of its requests says.
#[derive(Debug)]
struct Plain {
    sizes: Vec<Size>,
    now: u64,
    keeps: fn(&Size, u64) -> u64,
}

impl Default for Plain {
    fn default() -> Plain {
        Plain { sizes: vec![], now: 0, keeps: |_, _| 0 }
    }
}

impl Rule for Plain {
    fn asked(&mut self, now_ns: u64, need: &Need, _: u64) {
        self.now = now_ns;
        let at = self.sizes.iter().position(|size| size.need == *need).unwrap_or_else(|| {
            let (span, most) = (VecDeque::new(), VecDeque::new());
            self.sizes.push(Size { need: *need, asked_at: 0, span, most });
            self.sizes.len() - 1
        });
        let size = &mut self.sizes[at];
        size.asked_at = now_ns;
        size.span.push_back(now_ns);
        while size.span.front().is_some_and(|at| now_ns - at >= SPAN_NS) {
            size.span.pop_front();
        }
        let count = size.span.len() as u64;
        while size.most.back().is_some_and(|(_, other)| *other <= count) {
            size.most.pop_back();
        }
        size.most.push_back((now_ns, count));
    }

    fn turn(&mut self, now_ns: u64, _: u16) {
        self.now = now_ns;
        for size in &mut self.sizes {
            while size.most.front().is_some_and(|(at, _)| now_ns - at >= MOST_NS) {
                size.most.pop_front();
            }
        }
    }

    fn next_turn(&self, now_ns: u64) -> u64 {
        let ends = self.sizes.iter().flat_map(|size| {
            let most = size.most.front().map(|(at, _)| at + MOST_NS);
            [Some(size.asked_at + ONE_NS), most].into_iter().flatten()
        });
        ends.filter(|at| *at > now_ns).min().unwrap_or(now_ns + MOST_NS)
    }

    fn targets(&self, limit: u64) -> Vec<Target> {
        let mut left = limit;
        let target = |size: &Size| {
            let learnt = (self.keeps)(size, self.now);
            let allotted = learnt.min(left / size.need.want.bytes);
            left -= allotted * size.need.want.bytes;
            let (need, asked_at) = (size.need, size.asked_at);
            Target { need, kept: 0, backorders: 0, learnt, allotted, asked_at }
        };
        self.sizes.iter().map(target).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::play::need;

    fn targets(keeps: fn(&Size, u64) -> u64, requests: &[u64], now: u64) -> u64 {
        let mut rule = Plain { keeps, ..Plain::default() };
        requests.iter().for_each(|at| rule.asked(at * S, &need(2 << 30), 0));
        rule.turn(now * S, 0);
        rule.targets(1 << 40)[0].learnt
    }

    #[test]
    fn one_of_each_is_kept_for_ten_minutes_and_the_most_in_ten_seconds_for_an_hour() {
        let requests = [0, 1, 2, 3, 30, 41];
        assert_eq!(targets(one, &requests, 640), 1);
        assert_eq!(targets(one, &requests, 641), 0);
        assert_eq!(targets(most, &requests, 3602), 4);
        assert_eq!(targets(most, &requests, 3604), 1, "of the four, the last is an hour ago");
        assert_eq!(targets(most, &requests, 3641), 0);
    }
}
