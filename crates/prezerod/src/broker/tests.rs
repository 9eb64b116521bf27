//! The broker on a made-up host, with made-up inodes and time: who gets what, and why not.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use prezero::pressure::Memory;
use proptest::prelude::*;

use super::*;
use crate::filler::{Done, Outcome, Pace};
use crate::protocol::{Backing, Charged, Page, Report, Request, Want};
use crate::settings::Stocked;

mod payers;

const MIB: u64 = 1 << 20;
const S: u64 = 1_000_000_000;

/// Remembers what was done to it, also after it is gone.
#[derive(Debug, Default)]
struct Fake {
    sealed: Rc<Cell<u32>>,
    dirty: bool,
    stale: bool,
    bytes: Rc<RefCell<Vec<u64>>>,
}

impl Inode for Fake {
    fn is_fresh(&self, _: u64, _: Backing) -> bool {
        !self.stale && self.sealed.get() == 0
    }

    fn audit(&self, _: u64, _: Depth, pick: &mut dyn FnMut(u64) -> u64) -> Finding {
        assert!(pick(5) < 5);
        if self.dirty { Finding::Dirty(7) } else { Finding::Clean(4096) }
    }

    fn trim(&self, bytes: u64) -> bool {
        assert_eq!(self.sealed.get(), 0, "cut after it was sealed");
        self.bytes.borrow_mut().push(bytes);
        true
    }

    fn seal(&self, _: Backing) -> Option<u64> {
        self.sealed.set(self.sealed.get() + 1);
        (self.sealed.get() == 1).then_some(99)
    }
}

/// A host with transparent huge pages, 64 GiB of memory and two nodes.
struct Rig {
    broker: Broker<Fake>,
    now: u64,
    _root: tempfile::TempDir,
}

impl Rig {
    fn new(change: impl FnOnce(&mut Settings)) -> Rig {
        Rig::on(&[("sys/kernel/mm/transparent_hugepage/shmem_enabled", "[never]")], change)
    }

    fn on(files: &[(&str, &str)], change: impl FnOnce(&mut Settings)) -> Rig {
        let root = tempfile::tempdir().unwrap();
        let memory = "MemTotal: 67108864 kB\nMemAvailable: 60000000 kB\n";
        let common = [("proc/meminfo", memory), ("sys/devices/system/node/online", "0-1\n")];
        for (path, text) in files.iter().chain(&common) {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let mut settings = Settings::standard();
        change(&mut settings);
        let broker = Broker::new(0, Host::new(root.path()), settings, 1000);
        Rig { broker, now: 0, _root: root }
    }

    fn client(&mut self, pid: i32, uid: u32) -> ClientId {
        self.broker.connect(peer(pid, uid)).unwrap()
    }

    fn stock(&mut self, mib: u64, inode: Fake) {
        let kind = Kind { page: Page::Huge, backing: Backing::Thp, node: 0, payer: Payer::BROKER };
        let blank = Blank { inode, kind, bytes: mib * MIB, made_ns: self.now, cost_ns: 5 };
        self.broker.stock.put(blank);
    }

    fn ask(&mut self, client: ClientId, request: Request) -> Option<Out<Fake>> {
        self.broker.request(self.now, client, 1, request)
    }

    fn lease(&mut self, client: ClientId, mib: u64, wait_ms: u32) -> Option<Out<Fake>> {
        self.ask(client, Request::Lease { want: want(mib), wait_ms })
    }

    fn answer(&mut self, client: ClientId, request: Request) -> Answer {
        self.ask(client, request).expect("an answer at once").answer
    }

    fn plan(&mut self, memory: Memory) -> Plan<Fake> {
        self.broker.plan(self.now, 0, memory)
    }

    fn made(&mut self, job: &Job) {
        let outcome = Outcome::Made { cpu_ns: S, wall_ns: S };
        let done = Done { serial: job.serial, outcome };
        self.broker.done(self.now, done, Some(Fake::default()));
    }
}

fn peer(pid: i32, uid: u32) -> Peer {
    Peer { pid, uid, gid: uid, groups: vec![], cgroup: None }
}

fn want(mib: u64) -> Want {
    Want { bytes: mib * MIB, page: Page::Huge, node: None }
}

fn reason(out: Option<Out<Fake>>) -> Reason {
    let out = out.expect("an answer at once");
    assert!(out.inode.is_none(), "a refusal brings nothing");
    match out.answer {
        Answer::No(reason, text) | Answer::When { reason, text, .. } => {
            assert!(!text.is_empty() && !text.contains('\n'), "{text:?}");
            reason
        }
        other => panic!("{other:?}"),
    }
}

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
    assert_eq!(rig.broker.counters.trimmed_bytes, 4 * MIB);
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
    let blank = |inode| Blank { inode, kind, bytes: 4 * MIB, made_ns: 0, cost_ns: 0 };
    assert!(!rig.broker.adopt(blank(used()), None));
    assert!(rig.broker.adopt(blank(Fake::default()), None));
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
    assert_eq!(reason(rig.ask(client, Request::Redeem { ticket: 5 })), Reason::Ticket);
    assert_eq!(reason(rig.ask(client, Request::Cancel { ticket: 5 })), Reason::Ticket);
    let stranger = rig.broker.connect(peer(8, 1001));
    assert!(
        matches!(stranger, Err(Answer::No(Reason::Denied, text)) if text.contains("[[tenant]]"))
    );
    assert_eq!(rig.broker.counters.refused.values().sum::<u64>(), 9);
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

    let jobs = rig.plan(Memory::Fine).jobs;
    let [job] = &jobs[..] else { panic!("one at a time: {jobs:?}") };
    assert_eq!((job.pace, job.bytes), (Pace::Urgent, 8 * MIB));
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
        jobs.iter().map(|job| (job.pace, job.bytes)).collect::<Vec<_>>(),
        [(Pace::Idle, 8 * MIB)]
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
    assert_eq!(jobs.iter().map(|job| job.pace).collect::<Vec<_>>(), [Pace::Urgent]);
    rig.now += S / 5;
    assert_eq!(rig.plan(Memory::Fine).jobs.len(), 1);
    rig.broker.jobs.clear();
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
    let Answer::Reserved { .. } =
        rig.answer(client, Request::Reserve { want: want(4), hold_ms: 9 })
    else {
        panic!()
    };
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
fn a_reservation_is_kept_for_its_client_until_its_time_is_over() {
    let mut rig = Rig::new(|_| {});
    rig.stock(4, Fake::default());
    let (mine, other) = (rig.client(7, 1000), rig.client(8, 1000));
    let reserve = Request::Reserve { want: want(4), hold_ms: 10 };
    let Answer::Reserved { ticket, hold_ms: 10, .. } = rig.answer(mine, reserve) else { panic!() };
    assert_eq!(reason(rig.lease(other, 4, 0)), Reason::Empty);
    assert_eq!(reason(rig.ask(other, Request::Redeem { ticket })), Reason::Ticket);
    assert!(rig.ask(mine, Request::Redeem { ticket }).unwrap().inode.is_some());

    rig.stock(4, Fake::default());
    let Answer::Reserved { ticket, .. } = rig.answer(mine, reserve) else { panic!() };
    assert_eq!(rig.broker.deadline(), Some(rig.now + 10_000_000));
    rig.now += 10_000_000;
    assert!(rig.broker.serve(rig.now).is_empty());
    assert_eq!(reason(rig.ask(mine, Request::Redeem { ticket })), Reason::Ticket);
    assert!(rig.lease(other, 4, 0).unwrap().inode.is_some());
}

#[test]
fn a_quota_counts_what_living_processes_hold_and_what_is_reserved() {
    let tenant = Tenant { quota: Some(10 * MIB), ..Tenant::only(1000) };
    let mut rig = Rig::new(|settings| settings.tenants = vec![tenant]);
    (0..4).for_each(|_| rig.stock(4, Fake::default()));
    let (a, b) = (rig.client(7, 1000), rig.client(8, 1000));
    assert!(rig.lease(a, 4, 0).unwrap().inode.is_some());
    let reserve = Request::Reserve { want: want(4), hold_ms: 10_000 };
    let Answer::Reserved { ticket, .. } = rig.answer(b, reserve) else { panic!() };
    assert_eq!(reason(rig.lease(a, 4, 1000)), Reason::Quota);
    assert_eq!(rig.answer(b, Request::Cancel { ticket }), Answer::Done);
    assert!(rig.lease(b, 4, 0).unwrap().inode.is_some());
    assert_eq!(reason(rig.lease(a, 4, 0)), Reason::Quota);
    assert!(rig.lease(a, 2, 0).is_some());
    rig.broker.exited(7);
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
        Answer::Available { ready, .. } => ready,
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
    for at in 0..4 {
        rig.now = at;
        rig.stock(4, Fake::default());
    }
    let jobs = rig.plan(Memory::Fine).jobs;
    assert_eq!(jobs.len(), 1);
    let plan = rig.plan(Memory::Tight);
    assert_eq!(plan.cancel, [jobs[0].serial]);
    let ages: Vec<u64> = rig.broker.stock.iter().map(|blank| blank.made_ns).collect();
    assert_eq!(ages, [1, 2, 3]);
    assert_eq!(rig.broker.counters.pressure_bytes, 4 * MIB);
    let stopped = Done { serial: jobs[0].serial, outcome: Outcome::Stopped };
    rig.broker.done(rig.now, stopped, None);
    assert!(rig.plan(Memory::Fine).jobs.is_empty());
    rig.now += 10 * S;
    assert_eq!(rig.plan(Memory::Fine).jobs.len(), 1);
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
fn what_was_made_for_somebody_who_is_gone_does_not_stay_above_the_limit() {
    let mut rig = Rig::new(|s| s.limit = Some(9 * MIB));
    for (mib, kept) in [(8, 1), (16, 0)] {
        let client = rig.client(7, 1000);
        assert!(rig.lease(client, mib, 60_000).is_none());
        let job = rig.plan(Memory::Fine).jobs[0];
        rig.broker.disconnect(client);
        rig.made(&job);
        rig.plan(Memory::Fine);
        assert_eq!(rig.broker.stock.iter().count(), kept, "{mib} MiB");
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
            rig.broker.died(rig.now, job.kind.node, job.pace, job.kind.payer);
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
        let out = rig.ask(client, Request::Report(Report::Stock)).unwrap();
        let report: serde_json::Value = serde_json::from_str(&out.text.unwrap()).unwrap();
        let pids = report["leased"].as_array().unwrap().iter().map(|l| l["pid"].as_i64().unwrap());
        assert_eq!(pids.collect::<Vec<_>>(), seen, "uid {uid}");
    }
}

/// What may happen to a broker, in any order.
#[derive(Clone, Debug)]
enum Event {
    Lease(usize, u64, u32),
    Reserve(usize, u64),
    Redeem(usize),
    Cancel(usize),
    Leave(usize),
    Exit(usize),
    Made(bool),
    Tight,
    Pass(u64),
}

fn any_event() -> impl Strategy<Value = Event> {
    let (who, size) = (0..3usize, 1..6u64);
    prop_oneof![
        4 => (who.clone(), size.clone(), 0..3000u32).prop_map(|(w, s, ms)| Event::Lease(w, 2 * s, ms)),
        2 => (who.clone(), size).prop_map(|(w, s)| Event::Reserve(w, 2 * s)),
        2 => who.clone().prop_map(Event::Redeem),
        1 => who.clone().prop_map(Event::Cancel),
        1 => who.clone().prop_map(Event::Leave),
        1 => who.prop_map(Event::Exit),
        6 => prop::bool::weighted(0.9).prop_map(Event::Made),
        1 => Just(Event::Tight),
        2 => (0..20 * S).prop_map(Event::Pass),
    ]
}

proptest! {
    /// Whatever happens: what is leased was sealed once and is kept nowhere else, nobody gets
    /// less than he asked for, a quota holds, and no inode is lost.
    #[test]
    fn whatever_happens_each_inode_has_one_owner(events in prop::collection::vec(any_event(), 1..120)) {
        const QUOTA: u64 = 24 * MIB;
        let tenant = Tenant { quota: Some(QUOTA), ..Tenant::only(1000) };
        let mut rig = Rig::new(|s| s.tenants = vec![tenant]);
        let mut clients: Vec<ClientId> = (0..3).map(|at| rig.client(at + 1, 1000)).collect();
        let mut tickets = [0u64; 3];
        let (mut jobs, mut inodes) = (vec![], vec![]);
        for event in events {
            let mut outs = vec![];
            match event {
                Event::Lease(who, mib, ms) => outs.extend(rig.lease(clients[who], mib, ms)),
                Event::Reserve(who, mib) => {
                    let request = Request::Reserve { want: want(mib), hold_ms: 5000 };
                    let out = rig.ask(clients[who], request).unwrap();
                    if let Answer::Reserved { ticket, .. } = out.answer {
                        tickets[who] = ticket;
                    }
                    outs.push(out);
                }
                Event::Redeem(who) => {
                    outs.extend(rig.ask(clients[who], Request::Redeem { ticket: tickets[who] }));
                }
                Event::Cancel(who) => {
                    outs.extend(rig.ask(clients[who], Request::Cancel { ticket: tickets[who] }));
                }
                Event::Leave(who) => {
                    rig.broker.disconnect(clients[who]);
                    clients[who] = rig.client(who as i32 + 1, 1000);
                }
                Event::Exit(who) => rig.broker.exited(who as i32 + 1),
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
            let leased: u64 = rig.broker.leases.iter().map(|lease| lease.bytes).sum();
            let held: u64 = rig.broker.held.iter().map(|held| held.need.want.bytes).sum();
            prop_assert!(leased + held <= QUOTA, "{leased} leased, {held} held");
            // Each has one owner: this list and the stock, or this list alone.
            let kept = inodes.iter().filter(|sealed| Rc::strong_count(sealed) == 2);
            prop_assert!(kept.clone().all(|sealed| sealed.get() == 0), "a lease is kept");
            prop_assert_eq!(kept.count(), rig.broker.stock.iter().count() + rig.broker.held.len());
        }
    }
}
