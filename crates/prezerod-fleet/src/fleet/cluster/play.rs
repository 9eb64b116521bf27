//! One play of a cluster: its events in their order.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use fastrand::Rng;

use super::{Cluster, Found, Full};

/// Before any start is counted, such a part of them as a divisor: a cluster begins empty, and fills in some lives.
/// Fixed: the tests' closed forms are those of a cluster that has filled.
const WARM_UP: u64 = 4;
/// The same starts in every run.
/// Fixed: any number.
const SEED: u64 = 7;

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

/// Starts that are played.
#[derive(Debug)]
struct Starts {
    /// To come, and of these, those that are counted.
    left: u64,
    counted: u64,
    /// Counted starts that wait for something.
    waiting: u64,
}

/// Ready leases of all hosts.
#[derive(Debug, Default)]
struct Ready {
    leases: u64,
    /// Their sum over the time in which starts are counted, and that time.
    over_time: f64,
    from: u64,
    until: u64,
}

/// See the module.
pub struct Play {
    cluster: Cluster,
    random: Rng,
    now: u64,
    events: BinaryHeap<Reverse<(u64, Event)>>,
    hosts: Vec<Host>,
    /// Those with room.
    open: Vec<usize>,
    /// Starts that wait for room.
    queue: VecDeque<Waits>,
    starts: Starts,
    found: Found,
    ready: Ready,
}

impl Play {
    /// With that many starts to count.
    pub fn new(cluster: Cluster, starts: u64) -> Play {
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
            starts: Starts { left: starts + before, counted: starts, waiting: 0 },
            found: Found { starts, ..Found::default() },
            ready: Ready::default(),
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
        play.next_start();
        play
    }

    /// The next event; false: nothing more is to be counted.
    pub fn step(&mut self) -> bool {
        if self.starts.left == 0 && self.starts.waiting == 0 {
            return false;
        }
        let Some(Reverse((at, event))) = self.events.pop() else { return false };
        if self.starts.left > 0 {
            self.ready.over_time += self.ready.leases as f64 * (at - self.now) as f64;
            self.ready.until = at;
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

    /// What became of the starts.
    pub fn found(self) -> Found {
        let time = self.ready.until.saturating_sub(self.ready.from).max(1);
        let time = self.cluster.hosts as f64 * time as f64;
        Found { idle: self.ready.over_time / time, ..self.found }
    }

    fn after(&mut self, ns: f64, event: Event) {
        // One ns at least: time goes on.
        self.events.push(Reverse((self.now + (ns as u64).max(1), event)));
    }

    fn next_start(&mut self) {
        let gap = self.cluster.gap.draw(&mut self.random);
        self.after(gap, Event::Start);
    }

    fn turns(&mut self, host: usize) {
        let ns = self.cluster.busy.next(self.hosts[host].is_busy, &mut self.random);
        self.after(ns, Event::Turn(host));
    }

    fn start(&mut self) {
        if self.starts.left == 0 {
            return;
        }
        let is_counted = self.starts.left <= self.starts.counted;
        if self.starts.left == self.starts.counted {
            (self.ready.from, self.ready.over_time) = (self.now, 0.0);
        }
        self.starts.left -= 1;
        if self.starts.left > 0 {
            self.next_start();
        }
        let start = Waits { since: self.now, is_counted };
        if self.open.is_empty() {
            if self.cluster.full == Full::Waits {
                self.starts.waiting += u64::from(is_counted);
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
            self.ready.leases -= 1;
            self.found.ready += u64::from(start.is_counted && start.since == self.now);
            self.lives(host);
        } else {
            self.works(host);
            let wait = Waits { since: self.now, ..start };
            self.hosts[host].waits.push_back(wait);
            self.starts.waiting += u64::from(start.is_counted);
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
                    self.starts.waiting -= 1;
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
                    self.starts.waiting -= 1;
                    self.found.waited_for_lease += (self.now - start.since) as f64;
                }
                self.lives(host);
            }
            None => {
                it.ready += 1;
                self.ready.leases += 1;
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
