//! A host in made-up time: what a rule of stock does for requests, with counts instead of inodes.
//!
//! It makes what the broker would make, in the same order, one inode for stock and one for a
//! client that waits at a time, each at the pace it is given. Every request waits until it is
//! served. For tests, and for `bench fleet`.

use std::collections::VecDeque;

use prezerod::demand::start::Start;
use prezerod::demand::{self, Demand, Party, Rank, Target};
use prezerod::protocol::{Backing, Page};
use prezerod::stock::Need;

/// What decides how much lies ready.
pub trait Rule {
    /// A request, while stock is refilled at a rate in bytes a second.
    fn asked(&mut self, now_ns: u64, need: &Need, pace: u64);
    /// Time has passed; it is this minute of the day.
    fn turn(&mut self, now_ns: u64, minute: u16);
    /// When a target may change by itself next, ns.
    fn next_turn(&self, now_ns: u64) -> u64;
    /// What should lie ready, in no more than `limit` bytes.
    fn targets(&self, limit: u64) -> Vec<Target>;
}

impl<R: Rule + ?Sized> Rule for Box<R> {
    fn asked(&mut self, now_ns: u64, need: &Need, pace: u64) {
        (**self).asked(now_ns, need, pace);
    }

    fn turn(&mut self, now_ns: u64, minute: u16) {
        (**self).turn(now_ns, minute);
    }

    fn next_turn(&self, now_ns: u64) -> u64 {
        (**self).next_turn(now_ns)
    }

    fn targets(&self, limit: u64) -> Vec<Target> {
        (**self).targets(limit)
    }
}

/// The broker's own rule, for one user and one kind of page.
#[derive(Debug)]
pub struct Learnt(pub Demand);

impl Rule for Learnt {
    fn asked(&mut self, now_ns: u64, need: &Need, pace: u64) {
        self.0.asked(now_ns, Party::default(), need, pace);
    }

    fn turn(&mut self, now_ns: u64, minute: u16) {
        self.0.turn(now_ns, minute);
    }

    fn next_turn(&self, now_ns: u64) -> u64 {
        self.0.next_turn(now_ns)
    }

    fn targets(&self, limit: u64) -> Vec<Target> {
        self.0.targets(|_| Some(((Backing::Thp, Page::Huge), limit)))
    }
}

/// A host, as far as its stock goes.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// Bytes that a filler makes in a second.
    pub pace: u64,
    /// Most bytes of stock.
    pub limit: u64,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Sums {
    /// Requests that were served at once.
    pub hits: u64,
    /// How long the others waited, ns.
    pub waits: Vec<u64>,
    /// Bytes made,
    pub made: u64,
    /// and of these, given back unused.
    pub vain: u64,
    /// Bytes that lay ready, times ns.
    pub ready: f64,
    /// The time, ns.
    pub length: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Simulation<R> {
    machine: Machine,
    rule: R,
    now: u64,
    turn_at: u64,
    start: Start,
    /// When each inode was made that lies ready, by its size.
    stock: Vec<(Need, VecDeque<u64>)>,
    ready: u64,
    /// What is being made, and when that is done.
    idle: Option<(Need, u64)>,
    urgent: Option<(Need, u64)>,
    waits: VecDeque<(Need, u64)>,
    /// What lies ready without need may go then.
    surplus_at: u64,
    sums: Sums,
}

impl<R: Rule> Simulation<R> {
    /// A host without stock, under that rule.
    pub fn new(machine: Machine, rule: R) -> Simulation<R> {
        Simulation {
            machine,
            rule,
            now: 0,
            turn_at: 0,
            start: Start::default(),
            stock: vec![],
            ready: 0,
            idle: None,
            urgent: None,
            waits: VecDeque::new(),
            surplus_at: u64::MAX,
            sums: Sums::default(),
        }
    }

    /// A request at this time, which no earlier one is after.
    pub fn ask(&mut self, at: u64, need: &Need) {
        self.pass(at);
        self.rule.asked(at, need, self.machine.pace);
        self.turn_at = self.turn_at.min(self.rule.next_turn(at));
        match self.ready_of(need).pop_back() {
            Some(_) => {
                self.sums.hits += 1;
                self.ready -= need.want.bytes;
                self.start.begins(at);
            }
            None => self.waits.push_back((*need, at)),
        }
        self.plan();
    }

    /// Everything that happens until then.
    pub fn pass(&mut self, until: u64) {
        while let Some(at) = self.next().filter(|&at| at <= until) {
            self.go(at);
            for (job, is_order) in [(self.urgent, true), (self.idle, false)] {
                if let Some((need, _)) = job.filter(|(_, done)| *done <= at) {
                    *(if is_order { &mut self.urgent } else { &mut self.idle }) = None;
                    self.made(need);
                }
            }
            if at >= self.turn_at {
                self.rule.turn(at, minute(at));
                self.turn_at = self.rule.next_turn(at);
            }
            self.plan();
        }
        self.go(until);
    }

    /// What came of it, with the stock that is left.
    pub fn sums(self) -> Sums {
        Sums { length: self.now, ..self.sums }
    }

    fn go(&mut self, at: u64) {
        self.sums.ready += self.ready as f64 * (at - self.now) as f64;
        self.now = at;
    }

    fn next(&self) -> Option<u64> {
        let jobs = [self.urgent, self.idle].into_iter().flatten().map(|(_, done)| done);
        let start = Some(self.start.until()).filter(|&at| at > self.now);
        jobs.chain(start).chain([self.turn_at, self.surplus_at]).min()
    }

    fn ready_of(&mut self, need: &Need) -> &mut VecDeque<u64> {
        let at = self.stock.iter().position(|(own, _)| own == need).unwrap_or_else(|| {
            self.stock.push((*need, VecDeque::new()));
            self.stock.len() - 1
        });
        &mut self.stock[at].1
    }

    fn made(&mut self, need: Need) {
        self.sums.made += need.want.bytes;
        match self.waits.iter().position(|(own, _)| *own == need) {
            Some(at) => {
                let since = self.waits.remove(at).map_or(self.now, |(_, since)| since);
                self.sums.waits.push(self.now - since);
                self.start.begins(self.now);
            }
            None => {
                let now = self.now;
                self.ready_of(&need).push_back(now);
                self.ready += need.want.bytes;
            }
        }
    }

    fn plan(&mut self) {
        let targets = self.rule.targets(self.machine.limit);
        self.release(&targets);
        let pace = u128::from(self.machine.pace);
        let takes = |need: &Need| (u128::from(need.want.bytes) * 1_000_000_000 / pace) as u64;
        let nearly = self.idle.filter(|(need, done)| done - self.now <= takes(need) / 2);
        let waits = |need: &Need| self.waits.iter().filter(|(own, _)| own == need).count();
        if let Some((need, _)) = self.urgent
            && waits(&need) == 0
        {
            self.urgent = None;
        }
        let spoken = |need: &Need| usize::from(nearly.is_some_and(|(own, _)| own == *need));
        if self.urgent.is_none()
            && let Some((need, _)) = self.waits.iter().find(|(need, _)| waits(need) > spoken(need))
        {
            self.urgent = Some((*need, self.now + takes(need)));
        }
        if self.idle.is_some() || self.now < self.start.until() {
            return;
        }
        let making = |need: &Need| u64::from(self.urgent.is_some_and(|(own, _)| own == *need));
        let order = demand::in_order(&targets, |need| self.have(need) + making(need));
        for (target, rank) in order {
            let need = target.need;
            let making = self.urgent.map_or(0, |(need, _)| need.want.bytes);
            let over = (self.ready + making + need.want.bytes).saturating_sub(self.machine.limit);
            if self.displace(&targets, rank, over) {
                let done = self.now + takes(&need);
                self.idle = Some((need, done));
                return;
            }
        }
    }

    fn have(&self, need: &Need) -> u64 {
        self.stock.iter().find(|(own, _)| own == need).map_or(0, |(_, made)| made.len() as u64)
    }

    /// Gives back what had no demand for a time after which it has none.
    fn release(&mut self, targets: &[Target]) {
        self.surplus_at = u64::MAX;
        for (need, made) in &mut self.stock {
            let wanted = targets.iter().find(|target| target.need == *need).map_or(0, Target::all);
            while made.len() as u64 > wanted
                && let Some(&oldest) = made.front()
            {
                let goes_at = oldest + demand::SURPLUS_NS + 1;
                if goes_at > self.now {
                    self.surplus_at = self.surplus_at.min(goes_at);
                    break;
                }
                made.pop_front();
                self.ready -= need.want.bytes;
                self.sums.vain += need.want.bytes;
            }
        }
    }

    /// Gives back `bytes` that make way for an inode of that rank; false: there are not as
    /// many.
    fn displace(&mut self, targets: &[Target], rank: Rank, bytes: u64) -> bool {
        let stays = |need: &Need| {
            targets
                .iter()
                .find(|target| target.need == *need)
                .map_or(0, |target| target.stays(rank))
        };
        let mut goes = 0;
        while goes < bytes {
            let surplus =
                self.stock.iter_mut().filter(|(need, made)| made.len() as u64 > stays(need));
            let Some((need, made)) = surplus.min_by_key(|(_, made)| made.front().copied()) else {
                return false;
            };
            made.pop_front();
            goes += need.want.bytes;
            self.ready -= need.want.bytes;
            self.sums.vain += need.want.bytes;
        }
        true
    }
}

/// Of the day, the first of which begins at 0.
fn minute(now_ns: u64) -> u16 {
    (now_ns / 60_000_000_000 % (24 * 60)) as u16
}
