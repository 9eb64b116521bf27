//! What is leased, to which client first, and what happens to a client that waits or vanishes.

use super::*;
use crate::filler::pacer::BusyLimit;

#[test]
fn what_is_ready_is_leased_at_once_cut_to_size_sealed_once_and_not_kept() {
    let mut rig = Rig::new(|_| {});
    let inode = Fake::default();
    let (sealed, bytes) = (inode.sealed.clone(), inode.bytes.clone());
    rig.stock(64, inode);
    let client = rig.client(7, 1000);

    let out = rig.lease(client, 60, 0).unwrap();

    let Answer::Lease(granted) = &out.answer else { panic!("{:?}", out.answer) };
    assert_eq!((granted.bytes, granted.inode, granted.node), (60 * MIB, 99, 0));
    assert_eq!((sealed.get(), &bytes.borrow()[..]), (1, &[60 * MIB][..]));
    drop(out);
    assert_eq!(Rc::strong_count(&sealed), 1, "the broker kept the inode");
    assert_eq!(rig.broker.counters.hits, 1);
    assert_eq!(rig.broker.counters.truncated_bytes, 4 * MIB);
}

#[test]
fn no_inode_is_leased_twice() {
    let mut rig = Rig::new(|_| {});
    rig.stock(4, Fake::default());
    let client = rig.client(7, 1000);
    assert!(rig.lease(client, 4, 0).unwrap().inode.is_some());
    assert_eq!(reason(rig.lease(client, 4, 0)), Reason::Empty);
}

#[test]
fn what_was_sealed_before_is_never_leased_nor_adopted() {
    let mut rig = Rig::new(|_| {});
    let used = || Fake { sealed: Rc::new(Cell::new(1)), ..Fake::default() };
    rig.stock(4, used());
    let client = rig.client(7, 1000);
    assert!(rig.lease(client, 4, 0).unwrap().inode.is_none());
    let kind = Kind { page: Page::Huge, backing: Backing::Thp, node: 0, payer: Payer::BROKER };
    let inode = |inode| StockInode { file: inode, kind, bytes: 4 * MIB, made_ns: 0, cost_ns: 0 };
    assert!(!rig.broker.adopt(inode(used()), None));
    assert!(rig.broker.adopt(inode(Fake::default()), None));
}

#[test]
fn a_dirty_inode_stops_its_kind_and_is_counted() {
    let mut rig = Rig::new(|_| {});
    rig.stock(4, Fake::default());
    rig.stock(4, Fake { dirty: true, ..Fake::default() });
    let client = rig.client(7, 1000);
    let request = Request::Lease { want: Want { node: Some(0), ..want(4) }, wait_ms: 0 };

    assert_eq!(reason(rig.ask(client, request)), Reason::Audit);

    assert_eq!(rig.broker.counters.audit_failures, 1);
    assert_eq!(rig.broker.stock.iter().count(), 0, "the rest of its kind is given back");
    assert_eq!(reason(rig.ask(client, request)), Reason::Audit, "and no more of it is made");
    assert!(rig.plan(Memory::Fine).jobs.iter().all(|job| job.kind.node != 0));
}

#[test]
fn bad_requests_are_refused_with_reason() {
    let mut rig = Rig::new(|_| {});
    let client = rig.client(7, 1000);
    let ask = |want| Request::Lease { want, wait_ms: 1000 };
    let good = want(2);
    for (want, expected) in [
        (Want { bytes: 0, ..good }, Reason::Size),
        (Want { bytes: 2 * MIB + 1, ..good }, Reason::Size),
        (Want { bytes: u64::MAX - u64::MAX % (2 * MIB), ..good }, Reason::Size),
        (Want { bytes: LARGEST, ..good }, Reason::Pressure),
        (Want { node: Some(2), ..good }, Reason::Node),
        (Want { bytes: 1 << 30, page: Page::Giant, ..good }, Reason::Host),
    ] {
        assert_eq!(reason(rig.ask(client, ask(want))), expected, "{want:?}");
    }
    let stranger = rig.broker.connect(peer(8, 1001));
    assert!(
        matches!(stranger, Err(Answer::No(Reason::Denied, text)) if text.contains("[[tenant]]"))
    );
    assert_eq!(rig.broker.counters.refused.values().sum::<u64>(), 7);
}

#[test]
fn who_waits_is_served_when_it_is_made_and_the_hurried_before_others() {
    let tenants = ["slow", "fast"].map(|name| Tenant {
        name: name.into(),
        uids: vec![if name == "fast" { 2 } else { 1 }],
        rank: if name == "fast" { Rank::Critical } else { Rank::Normal },
        ..Tenant::only(0)
    });
    let mut rig = Rig::new(|settings| settings.tenants = tenants.to_vec());
    let (slow, fast) = (rig.client(1, 1), rig.client(2, 2));
    assert!(rig.lease(slow, 8, 5000).is_none());
    rig.now = 1;
    assert!(rig.lease(fast, 8, 5000).is_none());
    assert_eq!(reason(rig.lease(fast, 8, 5000)), Reason::Busy, "one wait a connection");

    let mut jobs = rig.plan(Memory::Fine).jobs;
    jobs.retain(|job| job.priority == Priority::Urgent);
    let [job, _] = &jobs[..] else { panic!("one for each user: {jobs:?}") };
    assert_eq!(job.bytes, 8 * MIB);
    rig.now = S;
    rig.made(job);
    let served = rig.broker.serve(rig.now);
    assert_eq!(served.iter().map(|out| out.client).collect::<Vec<_>>(), [fast]);
    let Answer::Lease(granted) = &served[0].answer else { panic!() };
    assert_eq!(granted.waited_ns, S - 1);

    rig.now = 5 * S;
    let late = rig.broker.serve(rig.now);
    assert_eq!(late.len(), 1);
    let Answer::When { estimate_ns, .. } = late[0].answer else { panic!("{:?}", late[0].answer) };
    assert_eq!(estimate_ns, S, "the pace is known by now");
}

#[test]
fn who_was_told_when_finds_it_made() {
    let mut rig = Rig::new(|_| {});
    let client = rig.client(7, 1000);
    assert_eq!(reason(rig.lease(client, 8, 0)), Reason::Empty);
    let jobs = rig.plan(Memory::Fine).jobs;
    assert_eq!(
        jobs.iter().map(|job| (job.priority, job.bytes)).collect::<Vec<_>>(),
        [(Priority::Idle, 8 * MIB)]
    );
    rig.made(&jobs[0]);
    assert!(rig.lease(client, 8, 0).unwrap().inode.is_some());
}

#[test]
fn who_got_a_lease_is_left_to_start_but_a_stream_of_leases_holds_nothing_up() {
    let stock = vec![Stocked { want: want(4), tenant: None, keep: 9, most: 9 }];
    let mut rig = Rig::new(|settings| settings.stock = stock);
    let client = rig.client(7, 1000);
    (0..2).for_each(|_| rig.stock(4, Fake::default()));
    rig.now = 5 * S;
    assert!(rig.lease(client, 4, 0).unwrap().inode.is_some());
    assert!(rig.plan(Memory::Fine).jobs.is_empty());
    assert!(rig.lease(client, 64, 5000).is_none());
    let jobs = rig.plan(Memory::Fine).jobs;
    assert_eq!(jobs.iter().map(|job| job.priority).collect::<Vec<_>>(), [Priority::Urgent]);
    rig.now += S / 5;
    assert_eq!(rig.plan(Memory::Fine).jobs.len(), 1);
    rig.broker.planner.jobs.clear();
    rig.broker.disconnect(client);
    let client = rig.client(7, 1000);
    assert!(rig.lease(client, 4, 0).unwrap().inode.is_some());
    assert_eq!(rig.plan(Memory::Fine).jobs.len(), 1);
}

#[test]
fn a_vanished_client_costs_nobody_anything() {
    let mut rig = Rig::new(|_| {});
    rig.stock(4, Fake::default());
    let client = rig.client(7, 1000);
    assert!(rig.lease(client, 64, 5000).is_none());
    let jobs = rig.plan(Memory::Fine).jobs;

    rig.broker.disconnect(client);

    let plan = rig.plan(Memory::Fine);
    assert!(plan.jobs.is_empty(), "{plan:?}");
    assert_eq!(plan.cancel, [jobs[0].serial]);
    let stopped = Done { serial: jobs[0].serial, outcome: Outcome::Stopped };
    rig.broker.done(rig.now, stopped, None);
    assert_eq!(rig.broker.stock.ready(Page::Huge, None, Payer::BROKER), 4 * MIB);
    let other = rig.client(8, 1000);
    assert!(rig.lease(other, 4, 0).unwrap().inode.is_some());
}

#[test]
fn stock_is_made_with_regard_for_others_until_a_client_was_told_to_come_back() {
    let keep = Stocked { want: want(64), tenant: None, keep: 1, most: 9 };
    let mut rig = Rig::new(|settings| settings.stock = vec![keep]);
    let plan = rig.plan(Memory::Fine);
    let [job] = plan.jobs[..] else { panic!("{plan:?}") };
    assert_eq!((job.priority, job.busy_limit), (Priority::Idle, Some(BusyLimit::Cpu(5))));
    assert!(rig.plan(Memory::Fine).promote.is_empty());

    let client = rig.client(7, 1000);
    assert_eq!(reason(rig.lease(client, 64, 0)), Reason::Empty);

    assert_eq!(rig.plan(Memory::Fine).promote, [job.serial]);
    assert!(rig.plan(Memory::Fine).promote.is_empty(), "told once");
    // What is begun now is for the client that was told; what comes after that client's lease is stock again.
    rig.made(&job);
    let plan = rig.plan(Memory::Fine);
    let [job] = plan.jobs[..] else { panic!("{plan:?}") };
    assert_eq!((job.priority, job.busy_limit), (Priority::Idle, None));
    assert!(rig.lease(client, 64, 0).unwrap().inode.is_some());
    rig.made(&job);
    assert!(rig.lease(client, 64, 0).unwrap().inode.is_some());
    // Not while the clients start.
    rig.now = 60 * S;
    let plan = rig.plan(Memory::Fine);
    assert_eq!(plan.jobs[0].busy_limit, Some(BusyLimit::Cpu(5)));
}

#[test]
fn who_waits_is_served_without_regard_for_others() {
    let mut rig = Rig::new(|settings| settings.rate = Some(2 * MIB));
    let client = rig.client(7, 1000);
    assert!(rig.lease(client, 64, 1000).is_none());
    let plan = rig.plan(Memory::Fine);
    let urgent = plan.jobs.iter().find(|job| job.priority == Priority::Urgent).unwrap();
    assert_eq!((urgent.rate, urgent.busy_limit), (None, None));
}
