//! Whatever happens, in any order: one owner for each inode, and what is promised is kept.

use proptest::prelude::*;

use super::*;

/// What may happen to a broker, in any order.
#[derive(Clone, Debug)]
enum Event {
    Lease(usize, u64, u32),
    Leave(usize),
    Exit(usize),
    Made(bool),
    Tight,
    Pass(u64),
}

fn any_event() -> impl Strategy<Value = Event> {
    let (who, size) = (0..3usize, 1..6u64);
    prop_oneof![
        4 => (who.clone(), size, 0..3000u32).prop_map(|(w, s, ms)| Event::Lease(w, 2 * s, ms)),
        1 => who.clone().prop_map(Event::Leave),
        1 => who.prop_map(Event::Exit),
        6 => prop::bool::weighted(0.9).prop_map(Event::Made),
        1 => Just(Event::Tight),
        2 => (0..20 * S).prop_map(Event::Pass),
    ]
}

proptest! {
    /// Whatever happens: what is leased was sealed once and is kept nowhere else, no client gets
    /// less than it asked for, a quota holds, and no inode is lost.
    #[test]
    fn whatever_happens_each_inode_has_one_owner(events in prop::collection::vec(any_event(), 1..120)) {
        const QUOTA: u64 = 24 * MIB;
        let tenant = Tenant { quota: Some(QUOTA), ..Tenant::only(1000) };
        let mut rig = Rig::new(|s| s.tenants = vec![tenant]);
        let mut clients: Vec<ClientId> = (0..3).map(|at| rig.client(at + 1, 1000)).collect();
        let (mut jobs, mut inodes) = (vec![], vec![]);
        for event in events {
            let mut outs = vec![];
            match event {
                Event::Lease(who, mib, ms) => outs.extend(rig.lease(clients[who], mib, ms)),
                Event::Leave(who) => {
                    rig.broker.disconnect(clients[who]);
                    clients[who] = rig.client(who as i32 + 1, 1000);
                }
                Event::Exit(who) => rig.broker.exited(0, who as i32 + 1),
                Event::Made(good) => {
                    if let Some(job) = jobs.pop() {
                        let job: Job = job;
                        let inode = Fake::default();
                        inodes.push(inode.sealed.clone());
                        let outcome = match good {
                            true => Outcome::Made { cpu_ns: 1, wall_ns: S },
                            false => Outcome::Exhausted,
                        };
                        let done = Done { serial: job.serial, outcome };
                        rig.broker.done(rig.now, done, good.then_some(inode));
                    }
                }
                Event::Tight => {
                    rig.plan(Memory::Tight);
                }
                Event::Pass(ns) => rig.now += ns,
            }
            outs.extend(rig.broker.serve(rig.now));
            let plan = rig.plan(Memory::Fine);
            outs.extend(plan.outs);
            jobs.extend(plan.jobs);
            for out in outs {
                match (&out.answer, &out.inode) {
                    (Answer::Lease(granted), Some(inode)) => {
                        prop_assert_eq!(inode.sealed.get(), 1);
                        prop_assert!(granted.bytes > 0 && granted.bytes <= QUOTA);
                    }
                    (Answer::Lease(_), None) | (_, Some(_)) => prop_assert!(false, "{:?}", out),
                    _ => {}
                }
            }
            let leased: u64 = rig.broker.ledger.leases.from(0).map(|lease| lease.bytes).sum();
            prop_assert!(leased <= QUOTA, "{leased} leased");
            // Each has one owner: this list and the stock, or this list alone.
            let kept = inodes.iter().filter(|sealed| Rc::strong_count(sealed) == 2);
            prop_assert!(kept.clone().all(|sealed| sealed.get() == 0), "a lease is kept");
            prop_assert_eq!(kept.count(), rig.broker.stock.iter().count());
        }
    }
}
