//! What others were promised of a pool is theirs.

use super::*;

const POOL: &str = "sys/devices/system/node/node0/hugepages/hugepages-2048kB";

/// A pool of 16 pages, of which `free` are free, and a stock of two pieces of 8 MiB that should lie ready.
fn rig(free: u64) -> Rig {
    let files = [
        (format!("{POOL}/nr_hugepages"), "16".into()),
        (format!("{POOL}/free_hugepages"), free.to_string()),
    ];
    let files: Vec<_> = files
        .iter()
        .map(|(path, text): &(String, String)| (path.as_str(), text.as_str()))
        .collect();
    Rig::on(&files, |settings| {
        settings.backing = crate::settings::Source::Hugetlb;
        settings.stock = vec![Stocked { want: want(8), tenant: None, keep: 2, most: 2 }];
    })
}

fn pieces(rig: &mut Rig, number: u64) {
    for _ in 0..number {
        let kind =
            Kind { page: Page::Huge, backing: Backing::Hugetlb, node: 0, payer: Payer::BROKER };
        let inode = Fake::default();
        rig.broker.stock.put(StockInode {
            file: inode,
            kind,
            bytes: 8 * MIB,
            made_ns: rig.now,
            cost_ns: 5,
        });
    }
}

fn promise(rig: &mut Rig, uid: u32, mib: u64) -> Answer {
    let client = rig.client(1, uid);
    rig.answer(client, Request::Yield { page: Page::Huge, bytes: mib * MIB })
}

#[test]
fn stock_goes_back_to_the_pool_as_far_as_others_lack_it_and_is_not_made_again() {
    let mut rig = rig(8);
    pieces(&mut rig, 2);
    assert_eq!(promise(&mut rig, 0, 16), Answer::Done);
    assert_eq!(rig.broker.stock.iter().count(), 2, "8 pages are free, and no more are promised");
    assert_eq!(promise(&mut rig, 0, 18), Answer::Done);
    assert_eq!(rig.broker.stock.iter().count(), 1);
    // The kernel tells of it.
    std::fs::write(rig._root.path().join(format!("{POOL}/free_hugepages")), "12").unwrap();
    rig.now += S;
    let client = rig.client(2, 0);
    assert!(rig.plan(Memory::Fine).jobs.is_empty());
    let report = rig.report(client);
    assert_eq!(report["wanted"][0]["shortage"]["reason"], "yielded", "{report}");
    assert_eq!(promise(&mut rig, 0, 0), Answer::Done);
    assert_eq!(rig.plan(Memory::Fine).jobs.len(), 1);
}

#[test]
fn what_is_being_made_is_not_made_on_and_a_client_is_served_all_the_same() {
    let mut rig = rig(16);
    let jobs = rig.plan(Memory::Fine).jobs;
    assert_eq!(jobs.len(), 1);
    promise(&mut rig, 0, 32);
    assert_eq!(rig.plan(Memory::Fine).cancel, [jobs[0].serial]);
    let client = rig.client(9, 1000);
    assert!(rig.lease(client, 4, 1000).is_none(), "it waits");
    let jobs = rig.plan(Memory::Fine).jobs;
    assert!(
        jobs.iter().any(|job| job.priority == Priority::Urgent && job.bytes == 4 * MIB),
        "{jobs:?}"
    );
}

#[test]
fn pages_that_a_filler_is_about_to_take_are_not_counted_as_free() {
    let mut rig = rig(8);
    pieces(&mut rig, 1);
    let job = rig.plan(Memory::Fine).jobs.remove(0);
    assert_eq!((job.priority, job.bytes), (Priority::Idle, 8 * MIB));
    // Eight pages are free now. The filler takes four of them, and four are left.
    promise(&mut rig, 0, 16);
    assert_eq!(rig.broker.stock.iter().count(), 0);
}

#[test]
fn only_the_operator_has_stock_yielded() {
    let mut rig = rig(0);
    pieces(&mut rig, 2);
    let own = rustix::process::getuid().as_raw();
    let other = if own == 1000 { return } else { 1000 };
    let client = rig.client(1, other);
    let request = Request::Yield { page: Page::Huge, bytes: 32 * MIB };
    assert_eq!(reason(rig.ask(client, request)), Reason::Denied);
    let container = Peer { contained: true, ..peer(2, 0) };
    let root = rig.broker.connect(container.clone()).unwrap();
    let request = Request::Yield { page: Page::Huge, bytes: 32 * MIB };
    assert_eq!(reason(rig.ask(root, request)), Reason::Denied, "root of a container");
    assert_eq!(rig.broker.stock.iter().count(), 2);

    // A manager of containers runs in one, too, and is known by its leases, which have names.
    let mut settings = rig.broker.settings().clone();
    let charge = Charge { files: vec!["/nowhere".into()], ..Charge::default() };
    settings.tenants = vec![Tenant { charge, ..Tenant::only(0) }];
    rig.broker.reload(settings, 1000);
    let manager = rig.broker.connect(container).unwrap();
    let request = Request::Yield { page: Page::Huge, bytes: 32 * MIB };
    assert_eq!(rig.answer(manager, request), Answer::Done);
}

#[test]
fn who_waits_for_pages_gets_those_of_stock_that_is_neither_kept_nor_owed() {
    for (kept, gives_way) in [(0, true), (2, false)] {
        let mut rig = rig(0);
        let mut settings = rig.broker.settings().clone();
        (settings.stock[0].keep, settings.stock[0].most) = (kept, 2);
        rig.broker.reload(settings, 1000);
        pieces(&mut rig, 2);
        let client = rig.client(1, 0);
        assert!(rig.lease(client, 16, 60_000).is_none(), "16 MiB lie ready, in other sizes");
        let plan = rig.plan(Memory::Fine);
        assert!(plan.jobs.is_empty());
        assert_eq!(plan.outs.len(), usize::from(!gives_way), "{:?}", plan.outs);
        assert_eq!(rig.broker.stock.iter().count(), if gives_way { 0 } else { 2 });
        if gives_way {
            // The kernel has them back.
            std::fs::write(rig._root.path().join(format!("{POOL}/free_hugepages")), "8").unwrap();
            rig.now += S;
            assert_eq!(rig.plan(Memory::Fine).jobs[0].bytes, 16 * MIB);
        }
    }
}

#[test]
fn who_asks_for_the_pages_of_which_stock_is_being_made_waits_for_them() {
    let mut rig = rig(6);
    let job = rig.plan(Memory::Fine).jobs[0];
    assert_eq!((job.priority, job.bytes), (Priority::Idle, 8 * MIB));
    // The filler has most of the pages.
    std::fs::write(rig._root.path().join(format!("{POOL}/free_hugepages")), "3").unwrap();
    rig.now += S;
    let client = rig.client(1, 0);
    assert_eq!(reason(rig.lease(client, 8, 0)), Reason::Empty, "not never, but not now");
    assert!(rig.lease(client, 8, 60_000).is_none(), "it waits");
    let plan = rig.plan(Memory::Fine);
    assert!(plan.outs.is_empty() && plan.jobs.is_empty(), "{plan:?}");
    rig.made(&job);
    assert!(rig.broker.serve(rig.now).pop().unwrap().inode.is_some());
    // More than the pool has is refused at once.
    assert_eq!(reason(rig.lease(client, 16, 60_000)), Reason::Host);
}
