//! A cluster that leases one size: how many of its starts find a lease that is ready, and how many find room at all.
//!
//! Starts come at random, and a scheduler puts each on any host with room. Its lease lives for a time, and takes room.
//! Each host keeps some leases ready, in room that no lease takes. One filler a host makes them, one after the other:
//! slower while the host's CPUs are busy and no start waits. A start that finds none ready waits for the next one.
//!
//! No memory is made and no clock is read; the figures are the same in every run. The closed forms of queueing theory
//! are in the tests.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use fastrand::Rng;

/// Before any start is counted, such a part of them as a divisor: a cluster begins empty, and fills in some lives.
/// Fixed: the tests' closed forms are those of a cluster that has filled.
const WARM_UP: u64 = 4;
/// The same starts in every run.
/// Fixed: any number.
const SEED: u64 = 7;

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

/// What happens next.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    Start,
    /// On this host: its filler is done with that job,
    Made(usize, u64),
    /// a lease ends,
    End(usize),
    /// its CPUs become busy, or idle.
    Turn(usize),
}

#[derive(Debug, Default)]
struct Host {
    /// Starts that were put here: those with a lease, and those that wait for theirs.
    taken: u64,
    ready: u64,
    waits: VecDeque<Waits>,
    is_busy: bool,
    /// Work that is left of what is being made, ns at full pace, and when that was so.
    job: Option<(f64, u64)>,
    /// Number of the job's last estimate: events of earlier ones are void.
    estimate: u64,
    /// Place in the list of hosts with room.
    place: Option<usize>,
}

/// A start that waits for its lease to be made.
#[derive(Clone, Copy, Debug)]
struct Waits {
    since: u64,
    is_counted: bool,
}

struct Play {
    cluster: Cluster,
    random: Rng,
    now: u64,
    events: BinaryHeap<Reverse<(u64, Event)>>,
    hosts: Vec<Host>,
    /// Those with room.
    open: Vec<usize>,
    /// Starts that wait for room.
    queue: VecDeque<Waits>,
    /// Starts to come, and of these, those that are counted.
    left: u64,
    counted: u64,
    /// Counted starts that wait for something.
    waiting: u64,
    found: Found,
    /// Ready leases of all hosts, and their sum over the time in which starts are counted.
    ready: u64,
    ready_time: f64,
    counted_from: u64,
    counted_until: u64,
}

impl Play {
    fn new(cluster: Cluster, starts: u64) -> Play {
        let hosts = (0..cluster.hosts).map(|_| Host::default()).collect();
        let before = starts / WARM_UP;
        let mut play = Play {
            cluster,
            random: Rng::with_seed(SEED),
            now: 0,
            events: BinaryHeap::new(),
            hosts,
            open: vec![],
            queue: VecDeque::new(),
            left: starts + before,
            counted: starts,
            waiting: 0,
            found: Found { starts, ..Found::default() },
            ready: 0,
            ready_time: 0.0,
            counted_from: 0,
            counted_until: 0,
        };
        for host in 0..cluster.hosts {
            play.opens(host);
            let share = cluster.busy.share;
            play.hosts[host].is_busy = play.random.f64() < share;
            if share > 0.0 && share < 1.0 {
                play.turns(host);
            }
            play.makes(host);
        }
        play.starts();
        play
    }

    /// Until nothing more is to be counted.
    fn step(&mut self) -> bool {
        if self.left == 0 && self.waiting == 0 {
            return false;
        }
        let Some(Reverse((at, event))) = self.events.pop() else { return false };
        if self.left > 0 {
            self.ready_time += self.ready as f64 * (at - self.now) as f64;
            self.counted_until = at;
        }
        self.now = at;
        match event {
            Event::Start => self.start(),
            Event::Made(host, estimate) if estimate == self.hosts[host].estimate => self.made(host),
            Event::Made(..) => {}
            Event::End(host) => self.end(host),
            Event::Turn(host) => {
                self.works(host);
                self.hosts[host].is_busy ^= true;
                self.estimates(host);
                self.turns(host);
            }
        }
        true
    }

    fn found(self) -> Found {
        let time = self.counted_until.saturating_sub(self.counted_from).max(1);
        let time = self.cluster.hosts as f64 * time as f64;
        Found { idle: self.ready_time / time, ..self.found }
    }

    fn after(&mut self, ns: f64, event: Event) {
        // One ns at least: time goes on.
        self.events.push(Reverse((self.now + (ns as u64).max(1), event)));
    }

    fn starts(&mut self) {
        let gap = self.cluster.gap.draw(&mut self.random);
        self.after(gap, Event::Start);
    }

    fn turns(&mut self, host: usize) {
        let ns = self.cluster.busy.next(self.hosts[host].is_busy, &mut self.random);
        self.after(ns, Event::Turn(host));
    }

    fn start(&mut self) {
        if self.left == 0 {
            return;
        }
        let is_counted = self.left <= self.counted;
        if self.left == self.counted {
            (self.counted_from, self.ready_time) = (self.now, 0.0);
        }
        self.left -= 1;
        if self.left > 0 {
            self.starts();
        }
        let start = Waits { since: self.now, is_counted };
        if self.open.is_empty() {
            if self.cluster.full == Full::Waits {
                self.waiting += u64::from(is_counted);
                self.queue.push_back(start);
            }
            return;
        }
        self.found.room += u64::from(is_counted);
        let host = self.open[self.random.usize(..self.open.len())];
        self.put(host, start);
    }

    /// A start that found room here, now or after a wait.
    fn put(&mut self, host: usize, start: Waits) {
        let it = &mut self.hosts[host];
        it.taken += 1;
        if it.taken == self.cluster.room {
            self.closes(host);
        }
        let it = &mut self.hosts[host];
        if it.ready > 0 {
            it.ready -= 1;
            self.ready -= 1;
            self.found.ready += u64::from(start.is_counted && start.since == self.now);
            self.lives(host);
        } else {
            self.works(host);
            let wait = Waits { since: self.now, ..start };
            self.hosts[host].waits.push_back(wait);
            self.waiting += u64::from(start.is_counted);
            self.estimates(host);
        }
        self.makes(host);
    }

    fn lives(&mut self, host: usize) {
        let life = self.cluster.life.draw(&mut self.random);
        self.after(life, Event::End(host));
    }

    fn end(&mut self, host: usize) {
        let it = &mut self.hosts[host];
        let was_full = it.taken == self.cluster.room;
        it.taken -= 1;
        match self.queue.pop_front() {
            Some(start) => {
                if start.is_counted {
                    self.waiting -= 1;
                    self.found.waited_for_room += (self.now - start.since) as f64;
                }
                // It closes the host again, which was never opened.
                self.put(host, start);
            }
            None => {
                if was_full {
                    self.opens(host);
                }
                self.makes(host);
            }
        }
    }

    /// Has the filler make what waits or is missing, if it makes nothing.
    fn makes(&mut self, host: usize) {
        let Cluster { room, keep, .. } = self.cluster;
        let it = &self.hosts[host];
        let stock = it.ready < keep && it.taken + it.ready < room;
        if it.job.is_none() && (stock || !it.waits.is_empty()) {
            let work = self.cluster.making.draw(&mut self.random);
            self.hosts[host].job = Some((work, self.now));
            self.estimates(host);
        }
    }

    /// A client that waits has the filler at full pace.
    fn pace(&self, host: usize) -> f64 {
        let it = &self.hosts[host];
        if it.is_busy && it.waits.is_empty() { self.cluster.busy.pace } else { 1.0 }
    }

    /// Takes from a job what was done until now: its pace is about to change.
    fn works(&mut self, host: usize) {
        let pace = self.pace(host);
        let now = self.now;
        if let Some((left, since)) = &mut self.hosts[host].job {
            *left = (*left - (now - *since) as f64 * pace).max(0.0);
            *since = now;
        }
    }

    /// Says when the job will be done.
    fn estimates(&mut self, host: usize) {
        let pace = self.pace(host);
        let it = &mut self.hosts[host];
        it.estimate += 1;
        let estimate = it.estimate;
        if let Some((left, _)) = it.job
            && pace > 0.0
        {
            self.after(left / pace, Event::Made(host, estimate));
        }
    }

    fn made(&mut self, host: usize) {
        let it = &mut self.hosts[host];
        it.job = None;
        match it.waits.pop_front() {
            Some(start) => {
                if start.is_counted {
                    self.waiting -= 1;
                    self.found.waited_for_lease += (self.now - start.since) as f64;
                }
                self.lives(host);
            }
            None => {
                it.ready += 1;
                self.ready += 1;
            }
        }
        self.makes(host);
    }

    fn opens(&mut self, host: usize) {
        self.hosts[host].place = Some(self.open.len());
        self.open.push(host);
    }

    fn closes(&mut self, host: usize) {
        if let Some(place) = self.hosts[host].place.take() {
            self.open.swap_remove(place);
            if let Some(&moved) = self.open.get(place) {
                self.hosts[moved].place = Some(place);
            }
        }
    }
}

#[cfg(test)]
mod tests;
