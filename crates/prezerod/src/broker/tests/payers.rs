//! Memory is charged where it was populated: what one cgroup paid for is no other's.

use super::*;

const V2: (&str, &str) = ("proc/mounts", "cgroup2 /cg cgroup2 rw 0 0\n");
const SHMEM: (&str, &str) = ("sys/kernel/mm/transparent_hugepage/shmem_enabled", "[never]");

fn tenant(name: &str, uid: u32, charge: Option<&str>) -> Tenant {
    let charge = charge.map(str::to_owned);
    Tenant {
        name: name.into(),
        uids: vec![uid],
        charge: Charge { cgroup: charge, files: vec![] },
        ..Tenant::only(0)
    }
}

/// Two tenants, of which the second pays by itself, below a limit of 64 MiB of which it uses
/// `used`.
fn rig(used_mib: u64) -> Rig {
    let used = (used_mib * MIB).to_string();
    let files = [
        V2,
        SHMEM,
        ("cg/cgroup.controllers", "memory\n"),
        ("cg/b/memory.max", "67108864\n"),
        ("cg/b/memory.current", &used),
    ];
    Rig::on(&files, |settings| {
        settings.tenants = vec![tenant("a", 1, None), tenant("b", 2, Some("/b"))];
    })
}

fn charged(out: Option<Out<Fake>>) -> Charged {
    match out.expect("an answer at once").answer {
        Answer::Lease(granted) => granted.charged,
        other => panic!("{other:?}"),
    }
}

#[test]
fn each_is_served_from_what_its_own_cgroup_paid_for() {
    let mut rig = rig(0);
    let (a, b) = (rig.client(1, 1), rig.client(2, 2));
    rig.stock(4, Fake::default());
    assert_eq!(reason(rig.lease(b, 4, 0)), Reason::Empty, "the broker paid for that one");
    let jobs = rig.plan(Memory::Fine).jobs;
    let [job] = &jobs[..] else { panic!("{jobs:?}") };
    assert_eq!(rig.broker.ledger.charged(job.kind.payer), Some("/b"));
    rig.made(job);
    let available = |answer| match answer {
        Answer::Available(available) => available.ready,
        other => panic!("{other:?}"),
    };
    let ask = Request::Available { page: Page::Huge, node: None };
    assert_eq!(available(rig.answer(a, ask)), 4 * MIB);
    assert_eq!(available(rig.answer(b, ask)), 4 * MIB);
    assert_eq!(charged(rig.lease(a, 4, 0)), Charged::Broker);
    assert_eq!(charged(rig.lease(b, 4, 0)), Charged::Tenant);
    assert_eq!(reason(rig.lease(a, 4, 0)), Reason::Empty);
}

#[test]
fn a_full_cgroup_is_refused_with_the_limit_and_others_are_served() {
    let mut rig = rig(62);
    let (a, b) = (rig.client(1, 1), rig.client(2, 2));
    let Answer::No(Reason::Quota, text) = rig.lease(b, 4, 1000).unwrap().answer else { panic!() };
    assert!(text.starts_with("4M asked, 2M left below "), "{text}");
    assert!(text.ends_with("cg/b/memory.max; raise that limit"), "{text}");
    assert!(rig.lease(a, 4, 1000).is_none(), "he waits, and it is made");
    assert_eq!(rig.plan(Memory::Fine).jobs.len(), 1);
}

/// `b`'s limit from now on.
fn lower(rig: &Rig, mib: u64) {
    std::fs::write(rig._root.path().join("cg/b/memory.max"), (mib * MIB).to_string()).unwrap();
}

#[test]
fn a_limit_that_is_lowered_after_it_was_read_holds_for_what_is_begun() {
    let mut order = rig(0);
    let b = order.client(2, 2);
    assert!(order.lease(b, 16, 60_000).is_none(), "there is room, and it waits");
    lower(&order, 8);
    let plan = order.plan(Memory::Fine);
    assert!(plan.jobs.is_empty(), "{:?}", plan.jobs);
    assert_eq!(reason(plan.outs.into_iter().next()), Reason::Quota);

    let mut stock = rig(0);
    let b = stock.client(2, 2);
    assert_eq!(reason(stock.lease(b, 16, 0)), Reason::Empty);
    lower(&stock, 8);
    assert!(stock.plan(Memory::Fine).jobs.is_empty());
}

#[test]
fn a_job_that_a_lowered_limit_ended_is_answered_with_that_limit() {
    let mut rig = rig(0);
    let b = rig.client(2, 2);
    assert!(rig.lease(b, 16, 60_000).is_none());
    let job = rig.plan(Memory::Fine).jobs[0];
    lower(&rig, 8);
    let done = Done { serial: job.serial, outcome: Outcome::Exhausted };
    rig.broker.done(rig.now, done, None);
    let out = rig.broker.serve(rig.now).pop().unwrap();
    let Answer::No(Reason::Quota, text) = out.answer else { panic!("{:?}", out.answer) };
    assert!(text.starts_with("16M asked, 8M left below "), "{text}");
}

#[test]
fn stock_that_a_cgroup_needs_itself_goes_back_and_is_not_made_again() {
    let mut rig = rig(61);
    let b = rig.client(2, 2);
    assert_eq!(reason(rig.lease(b, 2, 0)), Reason::Empty);
    assert!(rig.plan(Memory::Fine).jobs.is_empty(), "a sixteenth stays free, and as much again");
    let kind = Kind { page: Page::Huge, backing: Backing::Thp, node: 0, payer: Payer(1) };
    let discarded = Rc::new(Cell::new(0));
    let inode = Fake { discarded: discarded.clone(), ..Fake::default() };
    rig.broker.stock.put(StockInode { file: inode, kind, bytes: 2 * MIB, made_ns: 0, cost_ns: 0 });
    rig.stock(2, Fake::default());
    rig.plan(Memory::Fine);
    assert_eq!(discarded.get(), 1, "the loop does not close it");
    let kept: Vec<Payer> = rig.broker.stock.iter().map(|inode| inode.kind.payer).collect();
    assert_eq!(kept, [Payer::BROKER]);
    assert_eq!(rig.broker.counters.pressure_bytes, 2 * MIB);
}

#[test]
fn what_cannot_be_made_for_one_payer_holds_up_no_other() {
    let mut rig = rig(0);
    let (a, b) = (rig.client(1, 1), rig.client(2, 2));
    assert_eq!(reason(rig.lease(b, 4, 0)), Reason::Empty);
    let job = rig.plan(Memory::Fine).jobs[0];
    let refused = Outcome::Refused("no".into());
    rig.broker.done(rig.now, Done { serial: job.serial, outcome: refused }, None);
    assert_eq!(reason(rig.lease(a, 4, 0)), Reason::Empty);
    let jobs = rig.plan(Memory::Fine).jobs;
    assert_eq!(jobs.iter().map(|job| job.kind.payer).collect::<Vec<_>>(), [Payer::BROKER]);
}

#[test]
fn stored_inodes_come_back_to_who_paid_for_them_or_to_nobody() {
    let mut rig = rig(0);
    let kind = Kind { page: Page::Huge, backing: Backing::Thp, node: 0, payer: Payer::BROKER };
    let inode =
        || StockInode { file: Fake::default(), kind, bytes: 4 * MIB, made_ns: 0, cost_ns: 0 };
    assert!(rig.broker.adopt(inode(), Some("/b")));
    assert!(!rig.broker.adopt(inode(), Some("/of a tenant that is no more")));
    let b = rig.client(2, 2);
    assert_eq!(charged(rig.lease(b, 4, 0)), Charged::Tenant);
}

/// What is begun for `a`, the broker's own payer, at each of some looks, while `b`'s fillers do as `b` likes.
fn made_for_a(is_frozen: bool) -> Vec<(u64, Priority)> {
    let mut rig = rig(0);
    let (a, bs) = (rig.client(1, 1), (2..7).map(|pid| rig.client(pid, 2)).collect::<Vec<_>>());
    let mut begun = vec![];
    for (at, b) in (0..).zip(bs) {
        if is_frozen {
            assert!(rig.lease(b, 2 + 2 * at, 60_000).is_none() || at > 3);
            let _ = rig.ask(b, Request::LeaseOrPlain { want: want(8), wait_ms: 0 });
        }
        rig.plan(Memory::Fine);
        rig.now += S;
    }
    for at in 0..6 {
        let _ = rig.lease(a, 4 + 2 * at, 0);
        if at == 3 {
            assert!(rig.lease(a, 32, 600_000).is_none());
        }
        let jobs = rig.plan(Memory::Fine).jobs;
        for job in jobs.into_iter().filter(|job| job.kind.payer == Payer::BROKER) {
            begun.push((job.bytes, job.priority));
            rig.made(&job);
        }
        rig.broker.serve(rig.now);
        rig.now += S;
    }
    begun
}

#[test]
fn fillers_that_a_tenant_freezes_hold_up_nothing_of_other_payers() {
    let alone = made_for_a(false);
    assert!(alone.len() > 4 && alone.iter().any(|(_, priority)| *priority == Priority::Urgent));
    assert_eq!(made_for_a(true), alone);
}

#[test]
fn a_filler_that_falls_silent_in_a_tenants_cgroup_is_killed_and_its_payer_pauses() {
    let mut rig = rig(0);
    let (a, b) = (rig.client(1, 1), rig.client(2, 2));
    assert_eq!(reason(rig.lease(b, 4, 0)), Reason::Empty);
    assert_eq!(reason(rig.lease(a, 4, 0)), Reason::Empty);
    let jobs = rig.plan(Memory::Fine).jobs;
    let [own, other] = &jobs[..] else { panic!("{jobs:?}") };
    let (broker, tenant) =
        if own.kind.payer == Payer::BROKER { (own, other) } else { (other, own) };
    let mut silent_at = |after: u64| {
        rig.now += after;
        rig.plan(Memory::Fine).silent
    };
    assert_eq!(silent_at(10 * S), Vec::<u64>::new());
    assert_eq!(silent_at(1), [tenant.serial], "not {}, which no tenant freezes", broker.serial);
    let why = rig.broker.fell_silent(rig.now, tenant.serial).unwrap();
    assert!(why.contains("cgroup /b") && why.contains("thaw"), "{why}");
    assert_eq!(rig.broker.fell_silent(rig.now, tenant.serial), None, "it is over");
    assert!(rig.plan(Memory::Fine).jobs.is_empty(), "nothing for b, and a's is being made");
    let wanted = rig.report(b)["wanted"].clone();
    let of_b = |row: &&serde_json::Value| row["charged"] == "/b";
    let row = wanted.as_array().unwrap().iter().find(of_b).unwrap();
    assert!(row["shortage"]["why"].as_str().unwrap().contains("cgroup /b"), "{row}");
    rig.now += 61 * S;
    let jobs = rig.plan(Memory::Fine).jobs;
    assert_eq!(jobs.iter().map(|job| job.kind.payer).collect::<Vec<_>>(), [tenant.kind.payer]);
}

#[test]
fn fillers_beside_each_other_share_the_rate() {
    let mut rig = rig(0);
    rig.broker.settings.rate = Some(64 * MIB);
    let (a, b) = (rig.client(1, 1), rig.client(2, 2));
    assert_eq!(reason(rig.lease(b, 4, 0)), Reason::Empty);
    assert_eq!(reason(rig.lease(a, 4, 0)), Reason::Empty);
    let rates: Vec<_> = rig.plan(Memory::Fine).jobs.iter().map(|job| job.rate).collect();
    assert_eq!(rates, [Some(64 * MIB), Some(32 * MIB)]);
}

#[test]
fn an_order_whose_filler_its_tenant_froze_takes_no_room_of_others_stock() {
    let mut rig = rig(0);
    let stocked = Stocked { want: want(4), tenant: None, keep: 2, most: u64::MAX };
    let mut settings = rig.broker.settings().clone();
    (settings.stock, settings.limit) = (vec![stocked], Some(16 * MIB));
    rig.broker.reload(settings, 1000);
    let b = rig.client(2, 2);
    assert!(rig.lease(b, 16, 60_000).is_none(), "it waits");
    let jobs = rig.plan(Memory::Fine).jobs;
    assert_eq!(jobs.len(), 2, "the order and the stock: {jobs:?}");
    rig.made(jobs.iter().find(|job| job.priority == Priority::Idle).unwrap());
    rig.now += 9 * S;
    let jobs = rig.plan(Memory::Fine).jobs;
    let [job] = &jobs[..] else { panic!("{jobs:?}") };
    assert_eq!((job.priority, job.kind.payer), (Priority::Idle, Payer::BROKER));
}

#[test]
fn a_cgroup_that_its_tenant_fills_pauses_the_stock_of_its_tenant_alone() {
    let mut rig = rig(0);
    let (a, b) = (rig.client(1, 1), rig.client(2, 2));
    assert_eq!(reason(rig.lease(b, 2, 0)), Reason::Empty);
    let job = rig.plan(Memory::Fine).jobs[0];
    let stopped = Done { serial: job.serial, outcome: Outcome::Stopped };
    rig.broker.done(rig.now, stopped, None);
    assert_eq!(reason(rig.lease(a, 4, 0)), Reason::Empty);
    let jobs = rig.plan(Memory::Fine).jobs;
    let [job] = &jobs[..] else { panic!("{jobs:?}") };
    assert_eq!(job.kind.payer, Payer::BROKER);
    let report = rig.report(b);
    let of_b = report["wanted"].as_array().unwrap().iter().find(|row| row["charged"] == "/b");
    let why = of_b.unwrap()["shortage"]["why"].as_str().unwrap();
    assert!(why.contains("memory is short in cgroup /b"), "{why}");
    rig.now += 2 * S;
    assert_eq!(rig.plan(Memory::Fine).jobs.len(), 1, "tried again");
}

#[test]
fn a_tenant_finds_a_filler_whatever_number_of_users_another_has() {
    let users = |name: &str, uids: std::ops::Range<u32>| Tenant {
        name: name.into(),
        uids: uids.collect(),
        ..Tenant::only(0)
    };
    let mut rig = Rig::new(|s| s.tenants = vec![users("a", 10..20), users("b", 20..30)]);
    for uid in 10..20 {
        let client = rig.client(uid as i32, uid);
        assert!(rig.lease(client, 2 * u64::from(uid), 60_000).is_none(), "it waits");
    }
    let orders = |plan: Plan<Fake>| {
        plan.jobs.into_iter().filter(|job| job.priority == Priority::Urgent).count()
    };
    assert_eq!(orders(rig.plan(Memory::Fine)), 4, "four of a's");
    let planner = &mut rig.broker.planner;
    planner.jobs.sort_by_key(|job| job.party.is_none());
    let rest = planner.jobs.split_off(1);
    let party = planner.jobs[0].party.unwrap();
    assert_eq!(planner.lane(0, Payer::BROKER, party, 1), None, "a user's second");
    assert_eq!(
        planner.lane(0, Payer::BROKER, party, 2),
        Some(1),
        "a manager's, for another program"
    );
    planner.jobs.extend(rest);
    for (uid, more) in [(20, 1), (21, 0)] {
        let client = rig.client(uid as i32, uid);
        assert!(rig.lease(client, 8, 60_000).is_none());
        assert_eq!(orders(rig.plan(Memory::Fine)), more, "{uid}");
    }
}
