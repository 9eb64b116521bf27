//! Quotas, pressure, limits; and what a report shows to which user.

use super::*;

#[test]
fn a_quota_counts_what_living_processes_hold_and_what_is_waited_for() {
    let tenant = Tenant { quota: Some(10 * MIB), ..Tenant::only(1000) };
    let mut rig = Rig::new(|settings| settings.tenants = vec![tenant]);
    (0..4).for_each(|_| rig.stock(4, Fake::default()));
    let (a, b) = (rig.client(7, 1000), rig.client(8, 1000));
    assert!(rig.lease(a, 4, 0).unwrap().inode.is_some());
    assert!(rig.lease(b, 4, 0).unwrap().inode.is_some());
    assert_eq!(reason(rig.lease(a, 4, 0)), Reason::Quota);
    assert!(rig.lease(a, 2, 0).is_some());
    rig.broker.exited(0, 7);
    assert!(rig.lease(a, 6, 60_000).is_none());
    assert_eq!(reason(rig.lease(b, 4, 60_000)), Reason::Quota, "what is waited for counts");
    rig.broker.disconnect(a);
    assert!(rig.lease(b, 4, 0).unwrap().inode.is_some());
}

#[test]
fn the_last_of_the_stock_is_for_the_hurried() {
    let fast =
        Tenant { name: "fast".into(), uids: vec![2], rank: Rank::Critical, ..Tenant::only(0) };
    let slow = Tenant { name: "slow".into(), uids: vec![1], ..Tenant::only(0) };
    let mut rig = Rig::new(|settings| {
        settings.tenants = vec![fast, slow];
        settings.reserve = 4 * MIB;
    });
    rig.stock(4, Fake::default());
    let (slow, fast) = (rig.client(1, 1), rig.client(2, 2));
    assert_eq!(reason(rig.lease(slow, 4, 0)), Reason::Empty);
    let available = |answer| match answer {
        Answer::Available(available) => available.ready,
        other => panic!("{other:?}"),
    };
    let ask = Request::Available { page: Page::Huge, node: None };
    assert_eq!(available(rig.answer(slow, ask)), 0);
    assert_eq!(available(rig.answer(fast, ask)), 4 * MIB);
    assert!(rig.lease(fast, 4, 0).unwrap().inode.is_some());
}

#[test]
fn under_pressure_the_oldest_goes_first_and_nothing_is_made_for_a_while() {
    let mut rig =
        Rig::new(|s| s.stock = vec![Stocked { want: want(4), tenant: None, keep: 8, most: 8 }]);
    let discarded = Rc::new(Cell::new(0));
    for at in 0..4 {
        rig.now = at;
        rig.stock(4, Fake { discarded: discarded.clone(), ..Fake::default() });
    }
    let jobs = rig.plan(Memory::Fine).jobs;
    assert_eq!(jobs.len(), 1);
    let plan = rig.plan(Memory::Tight);
    assert_eq!(plan.cancel, [jobs[0].serial]);
    let ages: Vec<u64> = rig.broker.stock.iter().map(|inode| inode.made_ns).collect();
    assert_eq!(ages, [1, 2, 3]);
    assert_eq!(rig.broker.counters.pressure_bytes, 4 * MIB);
    assert_eq!(discarded.get(), 1, "the loop does not close it");
    let stopped = Done { serial: jobs[0].serial, outcome: Outcome::Stopped };
    rig.broker.done(rig.now, stopped, None);
    assert!(rig.plan(Memory::Fine).jobs.is_empty());
    rig.now += 10 * S;
    assert_eq!(rig.plan(Memory::Fine).jobs.len(), 1);
}

#[test]
fn what_makes_way_is_closed_beside_the_loop_unless_its_pool_is_waited_for() {
    for (backing, elsewhere) in [(Backing::Thp, 1), (Backing::Tmpfs, 1), (Backing::Hugetlb, 0)] {
        let discarded = Rc::new(Cell::new(0));
        let file = Fake { discarded: discarded.clone(), ..Fake::default() };
        let kind = Kind { page: Page::Huge, backing, node: 0, payer: Payer::BROKER };
        let inode = StockInode { file, kind, bytes: MIB, made_ns: 0, cost_ns: 0 };
        Rig::new(|_| {}).broker.waste(inode, reclaim::Back::for_another(backing));
        assert_eq!(discarded.get(), elsewhere, "{backing:?}");
    }
}

#[test]
fn stock_keeps_to_its_limit_and_surplus_goes_after_a_minute() {
    let keep = |keep| vec![Stocked { want: want(4), tenant: None, keep, most: u64::MAX }];
    let mut rig = Rig::new(|s| {
        s.stock = keep(8);
        s.limit = Some(9 * MIB);
    });
    for _ in 0..2 {
        let jobs = rig.plan(Memory::Fine).jobs;
        rig.made(&jobs[0]);
    }
    assert!(rig.plan(Memory::Fine).jobs.is_empty());
    let mut settings = rig.broker.settings().clone();
    settings.stock = keep(1);
    rig.broker.reload(settings, 1000);
    rig.plan(Memory::Fine);
    assert_eq!(rig.broker.stock.iter().count(), 2);
    rig.now += 61 * S;
    rig.plan(Memory::Fine);
    assert_eq!(rig.broker.stock.iter().count(), 1);
    assert_eq!(rig.broker.counters.waste_bytes, 4 * MIB);
}

#[test]
fn stock_that_cannot_be_is_said_and_not_made() {
    let keep = |mib, keep| Stocked { want: want(mib), tenant: None, keep, most: u64::MAX };
    let away = Stocked { want: Want { node: Some(7), ..want(2) }, ..keep(2, 1) };
    let giant = Want { bytes: 1 << 30, page: Page::Giant, node: None };
    let mut rig = Rig::new(|s| {
        s.stock = vec![
            away,
            keep(4, 2),
            Stocked { want: giant, ..keep(2, 1) },
            keep(16, 1),
            keep(8, 1),
            keep(32, 0),
        ];
        s.limit = Some(16 * MIB);
    });
    let [node, pool, limit] = &rig.broker.unmet()[..] else { panic!("{:?}", rig.broker.unmet()) };
    assert_eq!(node, "stock of 2M in 2M pages: no node 7 here; give 0, 1, or any");
    assert!(
        pool.starts_with("stock of 1G in 1G pages: ") && pool.contains("nr_hugepages"),
        "{pool}"
    );
    assert!(
        limit.starts_with("stock of 16M in 2M pages: ")
            && limit.contains("its limit is 16M; raise limit"),
        "{limit}"
    );
    // What can be had is made, whatever is unmet with the rest.
    let mut made = vec![];
    while let Some(job) = rig.plan(Memory::Fine).jobs.first().copied() {
        made.push(job.bytes);
        rig.made(&job);
        assert!(made.len() <= 3, "{made:?}");
    }
    made.sort_unstable();
    assert_eq!(made, [4 * MIB, 4 * MIB, 8 * MIB]);
}

#[test]
fn a_node_that_is_not_there_has_nothing_to_ask_for() {
    let mut rig = Rig::new(|_| ());
    let client = rig.client(7, 1000);
    let ask = Request::Available { page: Page::Huge, node: Some(7) };
    assert_eq!(reason(rig.ask(client, ask)), Reason::Node);
}

#[test]
fn what_was_made_for_a_client_that_is_gone_does_not_stay_above_the_limit() {
    let mut rig = Rig::new(|s| s.limit = Some(9 * MIB));
    // No client wishes for either any more: above the limit the oldest goes first.
    for (mib, stays) in [(8, &[8][..]), (16, &[])] {
        let client = rig.client(7, 1000);
        assert!(rig.lease(client, mib, 60_000).is_none());
        let job = rig.plan(Memory::Fine).jobs[0];
        rig.broker.disconnect(client);
        rig.made(&job);
        rig.plan(Memory::Fine);
        let ready: Vec<u64> = rig.broker.stock.iter().map(|inode| inode.bytes / MIB).collect();
        assert_eq!(ready, stays, "after {mib}");
    }
    assert_eq!(rig.broker.counters.waste_bytes, 24 * MIB);
}

#[test]
fn a_pool_that_is_too_small_says_how_to_make_it_larger() {
    let dir = "sys/kernel/mm/hugepages/hugepages-2048kB";
    let (total, free) = (format!("{dir}/nr_hugepages"), format!("{dir}/free_hugepages"));
    let mut rig = Rig::on(&[(&total, "4"), (&free, "1")], |_| {});
    let client = rig.client(7, 1000);
    let Answer::No(Reason::Host, text) = rig.lease(client, 4, 9).unwrap().answer else { panic!() };
    assert!(text.starts_with("4M asked, 2M free"), "{text}");
    // One page is lacking, and the kernel gives every second one to the other node.
    let all = "echo 6 > /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
    assert!(text.ends_with(all), "{text}");
    let on = Want { node: Some(1), ..want(4) };
    let request = Request::Lease { want: on, wait_ms: 9 };
    let Answer::No(Reason::Host, text) = rig.ask(client, request).unwrap().answer else { panic!() };
    let one = "echo 5 > /sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages";
    assert!(text.ends_with(one), "{text}");
    assert!(rig.lease(client, 2, 9).is_none());
    assert_eq!(rig.plan(Memory::Fine).jobs[0].kind.backing, Backing::Hugetlb);
}

#[test]
fn what_cannot_be_made_is_said_to_who_waits_and_a_dead_filler_too() {
    let mut rig = Rig::new(|_| {});
    let client = rig.client(7, 1000);
    for death in [false, true] {
        assert!(rig.lease(client, 8, 60_000).is_none());
        let job = rig.plan(Memory::Fine).jobs[0];
        if death {
            rig.broker.died(rig.now, job.serial);
        } else {
            let done = Done { serial: job.serial, outcome: Outcome::Exhausted };
            rig.broker.done(rig.now, done, None);
        }
        let mut outs = rig.broker.serve(rig.now);
        assert_eq!(outs.len(), 1);
        assert_eq!(reason(outs.pop()), Reason::Kernel);
    }
    assert_eq!(rig.broker.counters.filler_deaths, 1);
}

#[test]
fn a_filler_that_dies_takes_nothing_of_the_stock_with_it() {
    let kept = |mib| Stocked { want: want(mib), tenant: None, keep: 1, most: 1 };
    let mut rig = Rig::new(|settings| settings.stock = vec![kept(4), kept(8)]);
    rig.stock(4, Fake::default());
    let job = rig.plan(Memory::Fine).jobs[0];
    assert_eq!((job.bytes, job.priority), (8 * MIB, Priority::Idle));
    // The service manager ends it beside the broker, which hears of it first.
    rig.broker.died(rig.now, job.serial);
    assert_eq!(rig.broker.stock.take_all(|_| true).len(), 1);
}

#[test]
fn connections_are_bounded_in_all_and_by_user() {
    let everybody = Tenant { uids: vec![], ..Tenant::only(0) };
    let mut rig = Rig::new(|s| {
        (s.connections, s.connections_per_user) = (3, 2);
        s.tenants = vec![everybody];
    });
    let connect = |rig: &mut Rig, uid| rig.broker.connect(peer(1, uid));
    let first = connect(&mut rig, 1).unwrap();
    connect(&mut rig, 1).unwrap();
    assert!(matches!(connect(&mut rig, 1), Err(Answer::No(Reason::Busy, _))));
    connect(&mut rig, 2).unwrap();
    assert!(connect(&mut rig, 2).is_err());
    rig.broker.disconnect(first);
    connect(&mut rig, 2).unwrap();
    assert_eq!(rig.broker.counters.turned_away, 2);
}

#[test]
fn a_user_sees_his_own_leases_and_root_all() {
    let everybody = Tenant { uids: vec![], gids: vec![], ..Tenant::only(0) };
    let mut rig = Rig::new(|s| s.tenants = vec![everybody]);
    (0..2).for_each(|_| rig.stock(4, Fake::default()));
    for (pid, uid) in [(7, 4001), (8, 4002)] {
        let client = rig.client(pid, uid);
        assert!(rig.lease(client, 4, 0).unwrap().inode.is_some());
    }
    for (uid, seen) in [(4001, vec![7]), (4003, vec![]), (0, vec![7, 8])] {
        let client = rig.client(9, uid);
        let report = rig.report(client);
        let pids = report["leased"].as_array().unwrap().iter().map(|l| l["pid"].as_i64().unwrap());
        assert_eq!(pids.collect::<Vec<_>>(), seen, "uid {uid}");
    }
}

#[test]
fn what_the_pool_may_not_hold_of_the_stock_is_made_of_ordinary_memory() {
    const POOL: &str = "sys/devices/system/node/node0/hugepages/hugepages-2048kB";
    let (total, free) = (format!("{POOL}/nr_hugepages"), format!("{POOL}/free_hugepages"));
    let files = [
        ("sys/kernel/mm/transparent_hugepage/shmem_enabled", "[never]"),
        (&total, "16"),
        (&free, "16"),
    ];
    let kept = Stocked { want: want(4), tenant: None, keep: 10, most: 10 };
    let mut rig = Rig::on(&files, |settings| settings.stock = vec![kept]);
    assert!(rig.broker.unmet().is_empty(), "{:?}", rig.broker.unmet());
    let mut made = vec![];
    while let [job] = rig.plan(Memory::Fine).jobs[..] {
        made.push(job.kind.backing);
        rig.made(&job);
        let pooled = made.iter().filter(|backing| **backing == Backing::Hugetlb).count();
        std::fs::write(rig._root.path().join(&free), (16 - 2 * pooled).to_string()).unwrap();
        rig.now += S;
    }
    // Three quarters of 16 pages are six pieces of two.
    let expected = [[Backing::Hugetlb; 6].as_slice(), &[Backing::Thp; 4]].concat();
    assert_eq!(made, expected);
}

#[test]
fn the_one_page_of_a_pool_may_be_stock() {
    let pool = "sys/devices/system/node/node0/hugepages/hugepages-1048576kB";
    let files = ["nr_hugepages", "free_hugepages"].map(|name| (format!("{pool}/{name}"), "1"));
    let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
    let giant = Want { bytes: 1 << 30, page: Page::Giant, node: None };
    let mut rig = Rig::on(&files, |settings| {
        settings.stock = vec![Stocked { want: giant, tenant: None, keep: 1, most: 1 }];
    });
    assert_eq!(rig.broker.unmet(), [""; 0]);
    let jobs = rig.plan(Memory::Fine).jobs;
    assert_eq!(
        jobs.iter().map(|job| (job.bytes, job.kind.page)).collect::<Vec<_>>(),
        [(1 << 30, Page::Giant)]
    );
}

#[test]
fn what_a_tenant_is_told_to_come_back_for_is_no_more_than_it_may_still_hold() {
    let mut rig = Rig::new(|settings| {
        let grp = Tenant { name: "grp".into(), quota: Some(64 * MIB), ..Tenant::only(7) };
        settings.tenants = vec![grp];
    });
    let clients: Vec<_> = (0..4).map(|pid| rig.client(pid + 1, 7)).collect();
    rig.stock(16, Fake::default());
    assert!(rig.lease(clients[0], 16, 0).unwrap().inode.is_some());
    for size in 1..=24 {
        let _ = rig.lease(clients[size as usize % 4], 2 * size, 0);
        let owed: u64 =
            rig.broker.targets().iter().map(|it| it.backorders * it.need.want.bytes).sum();
        assert!(owed > 0 && owed <= 48 * MIB, "{owed} after {size}");
    }
}

#[test]
fn stock_of_a_pool_that_is_made_smaller_goes_back_to_it() {
    const POOL: &str = "sys/kernel/mm/hugepages/hugepages-2048kB";
    let file = |name: &str| format!("{POOL}/{name}");
    let (total, surplus) = (file("nr_hugepages"), file("surplus_hugepages"));
    let files = [(&*total, "8"), (&*surplus, "0")];
    let mut rig = Rig::on(&files, |settings| {
        settings.limit = Some(16 * MIB);
        settings.stock = vec![Stocked { want: want(4), tenant: None, keep: 3, most: 3 }];
    });
    let kind = Kind { page: Page::Huge, backing: Backing::Hugetlb, node: 0, payer: Payer::BROKER };
    for _ in 0..3 {
        let (file, made_ns) = (Fake::default(), 0);
        rig.broker.stock.put(StockInode { file, kind, bytes: 4 * MIB, made_ns, cost_ns: 0 });
    }
    rig.plan(Memory::Fine);
    assert_eq!(rig.broker.stock.iter().count(), 3);
    rig.now += S;
    std::fs::write(rig._root.path().join(&surplus), "3").unwrap();
    rig.plan(Memory::Fine);
    assert_eq!(rig.broker.stock.iter().count(), 1, "3 pages are two pieces");
}
