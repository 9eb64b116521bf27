//! What lies ready when it is wanted: streams of requests, what makes way for what, and whose part is whose.

use std::collections::BTreeMap;

use super::*;

const GIB: u64 = 1 << 10;
/// MiB that a filler makes in a second.
const PACE: u64 = 8 * GIB;

impl Rig {
    /// Plays fillers until then: a job takes as long as its size, and the broker looks four times a
    /// second, more seldom when nothing has happened for long.
    fn play(&mut self, until: u64) {
        let mut moved = self.now;
        while self.now < until {
            let look = if self.now > moved + S { 10 * S } else { S / 4 };
            let plan = self.plan(Memory::Fine);
            let took = |job: &Job| job.bytes * S / (PACE * MIB);
            let done = self.broker.planner.jobs.iter().map(|job| (job.began + took(job), *job));
            let next = done.min_by_key(|(at, _)| *at).filter(|(at, _)| *at <= self.now + look);
            for serial in plan.cancel {
                self.broker.done(self.now, Done { serial, outcome: Outcome::Stopped }, None);
            }
            match next.filter(|(at, _)| *at <= until) {
                Some((at, job)) => {
                    self.now = self.now.max(at);
                    moved = self.now;
                    let outcome = Outcome::Made { cpu_ns: took(&job), wall_ns: took(&job) };
                    let done = Done { serial: job.serial, outcome };
                    self.broker.done(self.now, done, Some(Fake::default()));
                }
                None => self.now = until.min(self.now + look),
            }
        }
    }

    /// A claim that waits as long as it takes: how long that was, ns.
    fn claim(&mut self, client: ClientId, mib: u64) -> u64 {
        let began = self.now;
        if let Some(out) = self.lease(client, mib, 60_000) {
            assert!(out.inode.is_some(), "{out:?}");
            return 0;
        }
        loop {
            self.play(self.now + S / 100);
            let outs = self.broker.serve(self.now);
            if outs.iter().any(|out| out.client == client && out.inode.is_some()) {
                return self.now - began;
            }
            assert!(self.now < began + 60 * S, "never served: {outs:?}");
        }
    }

    /// As many clients of a user at once, served and gone.
    fn crowd(&mut self, uid: u32, clients: i32, mib: u64) {
        let clients: Vec<ClientId> = (0..clients).map(|pid| self.client(pid + 1, uid)).collect();
        let ask = |client: &ClientId| self.lease(*client, mib, 600_000).is_none();
        let mut waiting: Vec<ClientId> = clients.iter().copied().filter(ask).collect();
        while !waiting.is_empty() {
            self.play(self.now + S / 100);
            let outs = self.broker.serve(self.now);
            assert!(outs.iter().all(|out| out.inode.is_some()), "{outs:?}");
            waiting.retain(|client| outs.iter().all(|out| out.client != *client));
        }
        clients.into_iter().for_each(|client| self.broker.disconnect(client));
    }

    /// MiB of all that lies ready, by size.
    fn ready(&self) -> BTreeMap<u64, usize> {
        let mut sizes = BTreeMap::new();
        for inode in self.broker.stock.iter() {
            *sizes.entry(inode.bytes / MIB).or_insert(0) += 1;
        }
        sizes
    }
}

/// Tenants `a` and `b`, users 1 and 2, below a limit in MiB.
fn two(limit: u64) -> Rig {
    let of =
        |(name, uid): (&str, u32)| Tenant { name: name.into(), uids: vec![uid], ..Tenant::only(0) };
    Rig::new(|settings| {
        settings.tenants = [("a", 1), ("b", 2)].map(of).to_vec();
        settings.limit = Some(limit * MIB);
    })
}

#[test]
fn a_stream_of_claims_finds_all_but_its_first_lease_ready() {
    for seconds in [3, 8, 2400] {
        let mut rig = Rig::new(|_| {});
        let client = rig.client(7, 1000);
        let mut ready = 0;
        for claim in 0..12 {
            rig.play(claim * seconds * S);
            rig.claim(client, 2 * GIB);
            ready += rig.ready().values().sum::<usize>();
        }
        let hits = rig.broker.counters.hits;
        assert!(hits >= 11, "{hits} hits of 12, {seconds} s apart");
        assert!(ready <= 12, "{ready} lay ready beside 12 that were claimed");
    }
}

#[test]
fn a_crowd_an_hour_ago_is_served_at_once_when_it_comes_again() {
    let mut rig = Rig::new(|s| s.limit = Some(64 * GIB * MIB));
    for hour in 0..2 {
        rig.play(hour * 3600 * S);
        rig.broker.counters.hits = 0;
        rig.crowd(1000, 10, 2 * GIB);
    }
    assert!(rig.broker.counters.hits >= 9, "{} hits of 10", rig.broker.counters.hits);
}

#[test]
fn what_a_client_was_told_to_come_back_for_displaces_what_is_learnt_of_others() {
    let mut rig = two(64);
    let b = rig.client(2, 2);
    rig.crowd(1, 40, 2);
    rig.play(10 * S);
    assert_eq!(rig.ready(), BTreeMap::from([(2, 32)]));
    // Half of the limit is another tenant's.
    let beyond = rig.lease(b, 40, 0).unwrap().answer;
    assert!(matches!(beyond, Answer::When { estimate_ns: u64::MAX, .. }), "{beyond:?}");
    rig.broker.planner.demand.bound_backorders(|_| 0);
    for mib in [24, 32] {
        let Answer::When { estimate_ns, .. } = rig.lease(b, mib, 0).unwrap().answer else {
            panic!()
        };
        assert!(estimate_ns < S, "{estimate_ns} ns");
        rig.play(rig.now + S);
        let out = rig.lease(b, mib, 0).unwrap();
        assert!(out.inode.is_some(), "{mib} MiB: {:?} beside {:?}", out.answer, rig.ready());
    }
}

#[test]
fn what_an_operator_keeps_displaces_what_is_learnt_and_is_displaced_by_nothing() {
    let mut rig = two(64);
    let b = rig.client(2, 2);
    rig.crowd(1, 40, 2);
    rig.play(rig.now + 10 * S);
    let mut settings = rig.broker.settings().clone();
    settings.stock = vec![Stocked { want: want(24), tenant: None, keep: 2, most: 2 }];
    rig.broker.reload(settings, 1000);
    rig.play(rig.now + 10 * S);
    assert_eq!(rig.ready()[&24], 2, "{:?}", rig.ready());
    let Answer::When { estimate_ns, text, .. } = rig.lease(b, 32, 0).unwrap().answer else {
        panic!()
    };
    assert_eq!(estimate_ns, u64::MAX, "{text}");
    assert_eq!(
        text,
        "no lease of 32M ready, and the stock's limit leaves no room for it; ask with a wait"
    );
    rig.play(rig.now + 10 * S);
    assert_eq!(rig.ready()[&24], 2, "{:?}", rig.ready());
    assert!(rig.claim(b, 32) > 0, "made to order above the limit");
}

#[test]
fn a_tenant_has_its_part_of_the_stock_whatever_another_asks_for() {
    let mut rig = two(256);
    let (a, b) = (rig.client(1, 1), rig.client(2, 2));
    rig.claim(b, 64);
    for _ in 0..3 {
        // Sizes without end, and much of one.
        rig.crowd(1, 200, 2);
        (3..80).for_each(|size| drop(rig.lease(a, 2 * size, 0)));
        rig.play(rig.now + S);
    }
    // What the first was told to come back for is over.
    rig.play(rig.now + 180 * S);
    assert_eq!(rig.ready().get(&64), Some(&1), "{:?}", rig.ready());
    assert_eq!(rig.claim(b, 64), 0);
}

#[test]
fn a_client_that_waits_orders_no_second_inode_when_one_is_nearly_made() {
    let keep = Stocked { want: want(64), tenant: None, keep: 1, most: 9 };
    for (left, orders) in [(64, 1), (40, 1), (30, 0), (2, 0)] {
        let mut rig = Rig::new(|settings| settings.stock = vec![keep.clone()]);
        let kind = Kind { page: Page::Huge, backing: Backing::Thp, node: 0, payer: Payer::BROKER };
        // 64 MiB a second.
        rig.broker.planner.paces.insert(kind, (64 * MIB) as f64);
        let job = rig.plan(Memory::Fine).jobs[0];
        let progress = |throttle| crate::filler::Progress {
            serial: job.serial,
            left: left * MIB,
            throttle,
            pace: Some(MIB),
        };
        rig.broker.progress(rig.now, progress(Some(crate::filler::pacer::Throttle::Neighbours)));
        let client = rig.client(7, 1000);
        assert!(rig.lease(client, 64, 60_000).is_none());
        let plan = rig.plan(Memory::Fine);
        let urgent = |plan: &Plan<Fake>| {
            plan.jobs.iter().filter(|job| job.priority == Priority::Urgent).count()
        };
        assert_eq!(urgent(&plan), orders, "{left} MiB left: {plan:?}");
        assert_eq!(plan.promote, [job.serial], "neighbours come second now");
        if orders > 0 {
            continue;
        }
        // It is kept from its CPU: one is made to order after all.
        rig.broker.progress(rig.now, progress(Some(crate::filler::pacer::Throttle::Cpu)));
        assert_eq!(urgent(&rig.plan(Memory::Fine)), 1);
    }
}

#[test]
fn a_filler_that_says_nothing_is_not_waited_for() {
    let keep = Stocked { want: want(64), tenant: None, keep: 1, most: 9 };
    let mut rig = Rig::new(|settings| settings.stock = vec![keep]);
    let job = rig.plan(Memory::Fine).jobs[0];
    let progress =
        crate::filler::Progress { serial: job.serial, left: 2 * MIB, throttle: None, pace: None };
    rig.broker.planner.paces.insert(job.kind, (64 * MIB) as f64);
    rig.broker.progress(rig.now, progress);
    let client = rig.client(7, 1000);
    assert!(rig.lease(client, 64, 60_000).is_none());
    assert!(rig.plan(Memory::Fine).jobs.is_empty());
    rig.now += crate::filler::LONGEST_SILENCE_NS + 1;
    assert_eq!(rig.plan(Memory::Fine).jobs.len(), 1);
}

#[test]
fn a_size_above_the_limit_takes_no_room_from_those_that_fit() {
    let mut rig = Rig::new(|settings| settings.limit = Some(96 * MIB));
    for _ in 0..3 {
        rig.crowd(1000, 3, 32);
        rig.crowd(1000, 1, 64);
        rig.play(rig.now + 5 * S);
    }
    let hits = |rig: &mut Rig| -> Vec<bool> {
        let hit = |_| {
            let client = rig.client(9, 1000);
            let waited = rig.claim(client, 64);
            rig.broker.disconnect(client);
            rig.broker.exited(rig.now, 9);
            rig.play(rig.now + 2 * S);
            waited == 0
        };
        (0..5).map(hit).collect()
    };
    assert_eq!(hits(&mut rig), [true; 5]);

    rig.crowd(1000, 1, 128);

    rig.play(rig.now + 2 * S);
    assert_eq!(hits(&mut rig), [true; 5]);
    let client = rig.client(9, 1000);
    let report = rig.report(client);
    let rows = report["wanted"].as_array().unwrap();
    let large = rows.iter().find(|row| row["bytes"] == 128 * MIB).expect("it is told");
    assert_eq!(large["shortage"]["reason"], "limit", "{report}");
}
