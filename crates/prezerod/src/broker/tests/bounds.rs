//! What one client costs the others is bounded, and what counts against a quota is memory that lives.

use super::*;

const SHMEM: &str = "sys/kernel/mm/transparent_hugepage/shmem_enabled";
const POOL: &str = "sys/kernel/mm/hugepages/hugepages-2048kB";

pub fn anybody(name: &str) -> Tenant {
    Tenant { name: name.into(), uids: vec![], ..Tenant::only(0) }
}

/// The number of a lease that was just got.
pub fn leased(rig: &mut Rig, client: ClientId, mib: u64) -> u64 {
    rig.stock(mib, Fake::default());
    match rig.lease(client, mib, 0).unwrap().answer {
        Answer::Lease(granted) => granted.lease,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_report_of_thousands_of_leases_comes_in_short_parts_that_are_one_object() {
    let mut rig = Rig::new(|settings| settings.tenants = vec![anybody("all")]);
    let (mine, others) = (rig.client(7, 4001), rig.client(8, 4002));
    for lease in 0..3000 {
        leased(&mut rig, if lease % 100 == 0 { mine } else { others }, 2);
    }
    (0..300).for_each(|_| rig.stock(4, Fake::default()));
    let root = rig.client(9, 0);

    let parts = rig.parts(root, Report::Stock);
    assert!(parts.len() > 30, "{} parts", parts.len());
    let report = rig.report(root);
    assert_eq!(report["leased"].as_array().unwrap().len(), 3000);
    assert_eq!(report["ready"].as_array().unwrap().len(), 300);
    assert_eq!(report["hits"], 3000);
    let leases = report["leased"].as_array().unwrap().iter().map(|l| l["lease"].as_u64().unwrap());
    assert!(leases.is_sorted(), "each is there once");
    // Another user's are passed by, a number for each part.
    assert_eq!(rig.report(mine)["leased"].as_array().unwrap().len(), 30);
    let metrics = rig.parts(root, Report::Metrics).concat();
    assert!(metrics.ends_with("# EOF\n"));
    assert!(metrics.contains("prezerod_tenant_bytes{tenant=\"all\"} 6291456000\n"), "{metrics}");
}

#[test]
fn any_place_in_a_report_is_answered_and_what_ends_between_parts_breaks_nothing() {
    let mut rig = Rig::new(|_| {});
    let client = rig.client(7, 1000);
    let leases: Vec<u64> = (0..300).map(|_| leased(&mut rig, client, 2)).collect();
    let ask =
        |rig: &mut Rig, report, from| match rig.answer(client, Request::Report { report, from }) {
            Answer::Part { next, text } => (next, text),
            other => panic!("{other:?}"),
        };
    let (mut next, mut whole) = ask(&mut rig, Report::Stock, 0);
    leases.into_iter().for_each(|lease| rig.broker.ended(0, lease));
    while next != 0 {
        let (then, text) = ask(&mut rig, Report::Stock, next);
        (next, whole) = (then, whole + &text);
    }
    assert!(serde_json::from_str::<serde_json::Value>(&whole).is_ok(), "{whole}");
    let mut random = fastrand::Rng::with_seed(3);
    for _ in 0..1000 {
        for report in [Report::Stock, Report::Metrics] {
            let from = random.u64(..) >> random.u32(..64);
            let (_, text) = ask(&mut rig, report, from);
            assert!(text.len() <= MAX_PART);
        }
    }
}

#[test]
fn a_row_that_is_too_long_for_a_part_is_left_out_and_the_rest_is_there() {
    let mut rig = Rig::new(|settings| settings.tenants = vec![anybody("all")]);
    let odd = Peer { cgroups: vec!["/\u{1}".repeat(4000)], ..peer(7, 4001) };
    let odd = rig.broker.connect(odd).unwrap();
    leased(&mut rig, odd, 2);
    let root = rig.client(9, 0);
    leased(&mut rig, root, 2);
    assert_eq!(rig.report(root)["leased"].as_array().unwrap().len(), 2, "its path is cut");
}

#[test]
fn a_lease_whose_memory_is_watched_outlives_its_process_and_ends_with_its_memory() {
    let tenant = Tenant { quota: Some(10 * MIB), ..Tenant::only(1000) };
    let mut rig = Rig::new(|settings| settings.tenants = vec![tenant]);
    let client = rig.client(7, 1000);
    let (watched, other) = (leased(&mut rig, client, 4), leased(&mut rig, client, 4));
    rig.broker.ends_with_memory(watched, 1);

    rig.broker.disconnect(client);
    rig.broker.exited(0, 7);

    let next = rig.client(8, 1000);
    let lease = Request::Lease { want: want(8), wait_ms: 0 };
    assert_eq!(rig.broker.exceeded(next, &lease).as_deref(), Some("self"));
    let report = rig.report(next);
    assert_eq!(report["leased"][0]["ends_with"], "memory", "{report}");
    assert_eq!(report["leased"][0]["lease"], watched);
    assert!(report["leased"][1].is_null(), "{other} ended with its process");
    assert_eq!(reason(rig.lease(next, 8, 0)), Reason::Quota);

    rig.broker.ended(0, watched);

    assert_eq!(rig.broker.exceeded(next, &lease), None);
    rig.stock(8, Fake::default());
    assert!(rig.lease(next, 8, 0).unwrap().inode.is_some());
}

#[test]
fn strangers_and_a_crowd_are_told_before_anything_is_read_of_them() {
    let mut rig = Rig::new(|settings| settings.connections_per_user = 2);
    assert!(
        matches!(rig.broker.may_connect(7), Err(Answer::No(Reason::Denied, text)) if text.contains("uid 7"))
    );
    let first = rig.client(1, 1000);
    rig.client(2, 1000);
    assert!(matches!(rig.broker.may_connect(1000), Err(Answer::No(Reason::Busy, _))));
    rig.broker.may_connect(0).unwrap();
    rig.broker.disconnect(first);
    rig.broker.may_connect(1000).unwrap();
    assert_eq!(rig.broker.counters.turned_away, 2);
}

#[test]
fn a_lower_limit_gives_back_at_the_next_look_what_lies_above_it() {
    let mut rig = Rig::new(|settings| {
        settings.limit = Some(512 * MIB);
        settings.stock = vec![Stocked { want: want(64), tenant: None, keep: 8, most: 8 }];
    });
    (0..7).for_each(|_| rig.stock(64, Fake::default()));
    let job = rig.plan(Memory::Fine).jobs.pop().unwrap();
    let mut settings = rig.broker.settings().clone();
    settings.limit = Some(128 * MIB);

    rig.broker.reload(settings, 1000);
    let plan = rig.plan(Memory::Fine);

    assert_eq!(rig.broker.stock.iter().map(|inode| inode.bytes).sum::<u64>(), 128 * MIB);
    assert_eq!(plan.cancel, [job.serial]);
    assert_eq!(rig.broker.counters.waste_bytes, 320 * MIB);
}

/// What the client hears whose page the kernel had not.
fn exhausted(rig: &mut Rig) -> String {
    let client = rig.client(7, 1000);
    assert!(rig.lease(client, 4, 60_000).is_none());
    let job = rig.plan(Memory::Fine).jobs.pop().unwrap();
    let done = Done { serial: job.serial, outcome: Outcome::Exhausted };
    rig.broker.done(rig.now, done, None);
    let out = rig.broker.serve(rig.now).pop().unwrap();
    match out.answer {
        Answer::No(Reason::Kernel, text) => text,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_pool_that_runs_out_is_not_compacted_but_made_larger() {
    let (all, free) = (format!("{POOL}/nr_hugepages"), format!("{POOL}/free_hugepages"));
    let mut rig = Rig::on(&[(&all, "8"), (&free, "8")], |_| {});
    let text = exhausted(&mut rig);
    assert!(text.contains("pool") && text.contains("nr_hugepages"), "{text}");
    assert!(!text.contains("compact"), "{text}");

    let mut rig = Rig::new(|_| {});
    assert!(exhausted(&mut rig).contains("compact_memory"));
}

#[test]
fn transparent_pages_that_are_denied_are_to_be_allowed() {
    use crate::settings::Source;
    for source in [Source::Thp, Source::Auto, Source::Tmpfs] {
        let mut rig = Rig::on(&[(SHMEM, "always never [deny] force")], |s| s.backing = source);
        let client = rig.client(7, 1000);
        let out = rig.lease(client, 4, 0).unwrap();
        let Answer::No(Reason::Host, text) = out.answer else { panic!("{:?}", out.answer) };
        assert!(text.contains("echo advise > /sys/kernel/mm/transparent_hugepage/"), "{text}");
    }
}

#[test]
fn a_user_that_waits_for_much_lets_others_pass() {
    let mut rig = Rig::new(|settings| settings.tenants = vec![anybody("all")]);
    let greedy: Vec<ClientId> = (0..5).map(|pid| rig.client(10 + pid, 4001)).collect();
    for client in &greedy {
        rig.now += 1;
        assert!(rig.lease(*client, 6, 60_000).is_none());
    }
    let other = rig.client(20, 4002);
    rig.now += 1;
    assert!(rig.lease(other, 2, 60_000).is_none());
    let mut served = vec![];
    while served.len() < 6 {
        for job in rig.plan(Memory::Fine).jobs {
            rig.made(&job);
        }
        for out in rig.broker.serve(rig.now) {
            served.push(out.client);
            // It asks again at once, and has its turn after its others.
            if greedy.contains(&out.client) {
                rig.now += 1;
                assert!(rig.lease(out.client, 6, 60_000).is_none());
            }
        }
    }
    let at = served.iter().position(|client| *client == other);
    assert!(at.is_some_and(|at| at <= 1), "{served:?}");
    assert_eq!(served[..2].iter().filter(|client| **client == greedy[0]).count(), 1);
}

#[test]
fn an_order_of_many_pages_holds_up_its_own_user_and_no_other() {
    let mut rig = Rig::new(|settings| settings.tenants = vec![anybody("all")]);
    let ask = |rig: &mut Rig, pid: i32, uid: u32, mib: u64| {
        let client = rig.client(pid, uid);
        rig.now += 1;
        assert!(rig.lease(client, mib, 60_000).is_none());
    };
    for pid in 1..=3 {
        ask(&mut rig, pid, 4001, 64);
    }
    let sizes = |rig: &mut Rig| -> Vec<(u64, u8)> {
        let jobs = rig.plan(Memory::Fine).jobs.into_iter();
        let orders = jobs.filter(|job| job.priority == Priority::Urgent);
        orders.map(|job| (job.bytes / MIB, job.lane)).collect()
    };
    assert_eq!(sizes(&mut rig), [(64, 0)]);
    ask(&mut rig, 4, 4002, 2);
    ask(&mut rig, 5, 4002, 2);
    assert_eq!(sizes(&mut rig), [(2, 1)]);
    // A crowd of users shares a number of them, and the same size is made for each of them.
    for user in 4003..4010 {
        ask(&mut rig, user, user as u32, 2);
    }
    assert_eq!(sizes(&mut rig), [(2, 2), (2, 3)]);
    let first = rig.broker.planner.jobs.iter().find(|job| job.lane == 1).copied().unwrap();
    rig.made(&first);
    assert_eq!(rig.broker.serve(rig.now).len(), 1);
    assert_eq!(sizes(&mut rig), [(2, 1)]);
}

#[test]
fn an_order_whose_node_changed_since_it_was_read_takes_a_free_filler_of_the_new_one() {
    let file = |node, name| {
        format!("sys/devices/system/node/node{node}/hugepages/hugepages-2048kB/{name}")
    };
    let files: Vec<_> = [0, 1]
        .into_iter()
        .flat_map(|node| [(file(node, "nr_hugepages"), "16"), (file(node, "free_hugepages"), "9")])
        .collect();
    let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
    let mut rig = Rig::on(&files, |settings| {
        settings.backing = crate::settings::Source::Hugetlb;
        settings.tenants = vec![Tenant { uids: vec![], ..Tenant::only(0) }];
    });
    let free = |rig: &Rig, node, pages: &str| {
        std::fs::write(rig._root.path().join(file(node, "free_hugepages")), pages).unwrap();
    };
    let (a, b) = (rig.client(1, 1), rig.client(2, 2));
    let on = Want { node: Some(1), ..want(8) };
    assert!(rig.ask(a, Request::Lease { want: on, wait_ms: 60_000 }).is_none());
    let first = rig.plan(Memory::Fine).jobs[0];
    assert_eq!(first.kind.node, 1);
    rig.now += S;
    free(&rig, 1, "5");
    assert!(rig.lease(b, 8, 60_000).is_none(), "node 0 has more, as it was read");
    free(&rig, 0, "4");
    free(&rig, 1, "9");
    let second = rig.plan(Memory::Fine).jobs[0];
    assert_eq!(second.kind.node, 1);
    assert_ne!(second.lane, first.lane);
}

#[test]
fn a_report_parses_wherever_its_parts_end() {
    let mut random = fastrand::Rng::with_seed(52);
    for round in 0..60 {
        let mut rig = Rig::new(|settings| {
            settings.tenants = vec![anybody("all")];
            let one = |mib| Stocked { want: want(mib), tenant: None, keep: 1, most: 1 };
            settings.stock = (1..=random.u64(0..60)).map(|nth| one(2 * nth)).collect();
        });
        let root = rig.client(9, 0);
        let (ready, leases) = (random.usize(0..150), random.usize(0..80));
        for pid in 0..leases {
            let cgroups = vec![format!("/{}", "x".repeat(random.usize(0..300)))];
            let uid = random.u32(0..2);
            let peer = Peer { cgroups, ..peer(pid as i32 + 10, uid) };
            let client = rig.broker.connect(peer).unwrap();
            leased(&mut rig, client, 2);
        }
        (0..ready).for_each(|_| rig.stock(1 << random.u32(1..20), Fake::default()));
        let report = rig.report(root);
        let count = |name: &str| report[name].as_array().unwrap().len();
        assert_eq!((count("ready"), count("leased")), (ready, leases), "round {round}");
    }
}

#[test]
fn a_seam_that_falls_on_the_end_of_a_part_breaks_nothing() {
    // One more letter each time: the end of a part passes over each seam.
    for letters in 0..200 {
        let mut rig = Rig::new(|settings| settings.tenants = vec![anybody("all")]);
        let root = rig.client(9, 0);
        let ready = 108 + letters / 20;
        (0..ready).for_each(|_| rig.stock(2, Fake::default()));
        let long = Peer { cgroups: vec![format!("/{}", "x".repeat(letters))], ..peer(7, 4001) };
        let long = rig.broker.connect(long).unwrap();
        for _ in 0..45 {
            leased(&mut rig, long, 2);
        }
        let report = rig.report(root);
        assert_eq!(report["ready"].as_array().unwrap().len(), ready, "{letters}");
        assert_eq!(report["leased"].as_array().unwrap().len(), 45, "{letters}");
    }
}

#[test]
fn a_cgroup_that_commands_a_terminal_is_shown_as_escapes() {
    let mut rig = Rig::new(|settings| settings.tenants = vec![anybody("all")]);
    let cgroups = vec!["/a\u{1b}]0;owned\u{7}\u{1b}[2J\u{202e}b".to_owned()];
    let client = rig.broker.connect(Peer { cgroups: cgroups.clone(), ..peer(7, 4001) }).unwrap();
    leased(&mut rig, client, 2);
    let report = rig.report(client);
    let shown = report["leased"][0]["cgroup"].as_str().unwrap();
    assert_eq!(shown, "/a\\u{1b}]0;owned\\u{7}\\u{1b}[2J\\u{202e}b");
    let mut strict = Rig::new(|settings| {
        settings.tenants = vec![Tenant { cgroups: vec!["/b".into()], ..anybody("b") }];
    });
    let refused = strict.broker.connect(Peer { cgroups, ..peer(7, 4001) }).unwrap_err();
    assert!(
        matches!(&refused, Answer::No(_, text) if !text.contains('\u{1b}') && text.contains("owned"))
    );
}

#[test]
fn groups_that_no_tenant_names_are_neither_read_nor_remembered() {
    let group = Tenant { gids: vec![77], ..anybody("group") };
    let rig = Rig::new(|settings| settings.tenants = vec![group]);
    let groups = rig.broker.named_groups(|| (0..65_536).collect());
    assert_eq!((&groups[..], groups.capacity()), (&[77][..], 1));
    let rig = Rig::new(|settings| settings.tenants = vec![anybody("a")]);
    assert!(rig.broker.named_groups(|| panic!("they are read")).is_empty());
}

#[test]
fn a_tenant_by_group_that_a_reload_names_has_the_clients_that_were_there_before_it() {
    let mut rig = Rig::new(|settings| settings.tenants = vec![anybody("all")]);
    let client = rig.client(7, 4001);
    let mut settings = rig.broker.settings().clone();
    let bounded = Tenant { gids: vec![77], quota: Some(2 * MIB), ..anybody("bounded") };
    settings.tenants.insert(0, bounded);

    rig.broker.reload(settings, 1000);
    let party = rig.broker.regroup(client, || vec![5, 77]);

    assert_eq!(Some(party.tenant), rig.broker.ledger.number("bounded"));
    assert_eq!(rig.broker.ledger.parties.get(&party), Some(&1), "its place is counted there");
    assert_eq!(rig.broker.ledger.parties.len(), 1);
    assert_eq!(reason(rig.lease(client, 4, 0)), Reason::Quota);
}

#[test]
fn a_client_that_goes_takes_its_wish_with_it() {
    let mut rig = Rig::new(|_| {});
    for pid in 0..5 {
        let client = rig.client(pid + 1, 1000);
        assert!(rig.lease(client, 2048, 60_000).is_none());
        rig.now += S;
        rig.broker.disconnect(client);
    }
    let client = rig.client(9, 1000);
    assert!(rig.lease(client, 4096, 60_000).is_none());
    rig.broker.disconnect(client);
    let client = rig.client(9, 1000);
    let report = rig.report(client);
    assert_eq!(report["wanted"].as_array().unwrap().len(), 0, "{report}");
    assert!(rig.plan(Memory::Fine).jobs.is_empty());
}
