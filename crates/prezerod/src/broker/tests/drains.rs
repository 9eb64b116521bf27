//! A broker that is drained leases nothing, keeps nothing ready, and leaves leases alone.

use super::*;
use crate::protocol::Drain;

fn kept(settings: &mut Settings) {
    settings.stock = vec![Stocked { want: want(8), tenant: None, keep: 2, most: 2 }];
}

#[test]
fn a_drained_broker_gives_all_back_and_leases_nothing_until_it_is_told() {
    let mut rig = Rig::new(kept);
    let (user, root) = (rig.client(1, 1000), rig.client(2, 0));
    rig.stock(8, Fake::default());
    rig.stock(8, Fake::default());
    let out = rig.lease(user, 8, 0).unwrap();
    assert!(matches!(out.answer, Answer::Lease(_)));
    assert!(rig.lease(user, 4, 5000).is_none(), "it waits");
    // The client of the last lease has started.
    rig.now += S;
    let jobs = rig.plan(Memory::Fine).jobs;
    assert_eq!(jobs.len(), 2, "{jobs:?}");

    assert_eq!(rig.answer(root, Request::Drain(Drain::On)), Answer::Done);
    assert_eq!(rig.broker.stock.iter().count(), 0);
    // The client that waits hears of it, and what is being made for it ends.
    let outs = rig.broker.serve(rig.now);
    assert_eq!(outs.len(), 1);
    assert_eq!(reason(outs.into_iter().next()), Reason::Drained);
    let plan = rig.plan(Memory::Fine);
    assert!(plan.jobs.is_empty() && plan.cancel.len() == 2, "{plan:?}");
    // What its filler had made before it heard.
    jobs.iter().for_each(|job| rig.made(job));
    assert!(rig.plan(Memory::Fine).jobs.is_empty());
    assert_eq!(rig.broker.stock.iter().count(), 0);
    for request in [
        Request::Lease { want: want(8), wait_ms: 5000 },
        Request::Lease { want: want(8), wait_ms: 0 },
        Request::LeaseOrPlain { want: want(8), wait_ms: 1 },
    ] {
        assert_eq!(reason(rig.ask(user, request)), Reason::Drained);
    }
    let report = rig.report(root);
    assert_eq!(report["drained"], true);
    assert_eq!(report["wanted"][0]["shortage"]["reason"], "drained", "{report}");
    assert_eq!(report["leased"].as_array().unwrap().len(), 1, "it lives on");
    let metrics = rig.parts(root, Report::Metrics).concat();
    assert!(metrics.contains("\nprezerod_drained 1\n"), "{metrics}");

    assert_eq!(rig.answer(root, Request::Drain(Drain::Off)), Answer::Done);
    assert!(!rig.plan(Memory::Fine).jobs.is_empty());
    assert!(rig.lease(user, 8, 5000).is_none(), "it waits again");
}

#[test]
fn only_the_operator_drains() {
    let own = rustix::process::getuid().as_raw();
    let other = if own == 1000 { 1001 } else { 1000 };
    let mut rig = Rig::new(|settings| {
        let tenant = crate::tenant::Tenant { uids: vec![], ..crate::tenant::Tenant::only(0) };
        settings.tenants = vec![tenant];
    });
    rig.stock(8, Fake::default());
    let client = rig.client(1, other);
    let container = crate::tenant::Peer { contained: true, ..peer(2, 0) };
    let root = rig.broker.connect(container).unwrap();
    for drain in [Drain::On, Drain::Off] {
        assert_eq!(reason(rig.ask(client, Request::Drain(drain))), Reason::Denied);
        assert_eq!(reason(rig.ask(root, Request::Drain(drain))), Reason::Denied);
    }
    assert!(matches!(rig.lease(client, 8, 0).unwrap().answer, Answer::Lease(_)));
}

#[test]
fn hits_misses_and_waits_are_counted_by_tenant() {
    let mut rig = Rig::new(|settings| {
        let named = |name: &str, uid| crate::tenant::Tenant {
            name: name.into(),
            uids: vec![uid],
            ..crate::tenant::Tenant::only(uid)
        };
        settings.tenants = vec![named("a", 1000), named("b", 1001), named("idle", 1002)];
    });
    let (a, b) = (rig.client(1, 1000), rig.client(2, 1001));
    rig.stock(8, Fake::default());
    assert!(matches!(rig.lease(a, 8, 0).unwrap().answer, Answer::Lease(_)));
    assert!(rig.lease(b, 8, 5000).is_none(), "it waits");
    let job = rig.plan(Memory::Fine).jobs.remove(0);
    rig.now += 2 * S;
    rig.made(&job);
    assert_eq!(rig.broker.serve(rig.now).len(), 1);
    let metrics = rig.parts(a, Report::Metrics).concat();
    for line in [
        "tenant_hits_total{tenant=\"a\"} 1",
        "tenant_hits_total{tenant=\"b\"} 0",
        "tenant_misses_total{tenant=\"b\"} 1",
        "tenant_misses_total{tenant=\"idle\"} 0",
        "tenant_wait_seconds_total{tenant=\"a\"} 0.000000000",
        "tenant_wait_seconds_total{tenant=\"b\"} 2.000000000",
    ] {
        assert!(metrics.contains(&format!("\nprezerod_{line}\n")), "{line}: {metrics}");
    }
}
