//! What is wanted and does not lie ready has a reason, in the words in which claims are refused.

use super::*;
use crate::filler::pacer::Throttle;
use crate::filler::{LONGEST_SILENCE_NS, Progress};

fn keep(mib: u64, keep: u64) -> Stocked {
    Stocked { want: want(mib), tenant: None, keep, most: u64::MAX }
}

/// What the report says of everything that is wanted.
fn wanted(rig: &mut Rig) -> Vec<serde_json::Value> {
    let client = rig.client(9, 1000);
    let report = rig.report(client);
    rig.broker.disconnect(client);
    report["wanted"].as_array().unwrap().clone()
}

/// Reason and text of the only size that is wanted.
fn lack(rig: &mut Rig) -> (String, String) {
    let rows = wanted(rig);
    assert_eq!(rows.len(), 1, "{rows:?}");
    let text = |name: &str| rows[0]["shortage"][name].as_str().unwrap_or("nothing").to_owned();
    assert!(!text("why").contains('\n'));
    let (document, name) = (include_str!("../../../PROTOCOL.md"), text("reason"));
    assert!(
        document.contains(&format!("| `{name}` |")) || document.contains(&format!("| {name} |"))
    );
    (text("reason"), text("why"))
}

fn progress(rig: &mut Rig, job: &Job, left: u64, throttle: Option<Throttle>, pace: Option<u64>) {
    let progress = Progress { serial: job.serial, left: left * MIB, throttle, pace };
    rig.broker.progress(rig.now, progress);
}

#[test]
fn what_is_being_made_says_how_it_goes_and_when_it_will_be_there() {
    let mut rig = Rig::new(|s| s.stock = vec![keep(64, 3)]);
    let first = rig.plan(Memory::Fine).jobs[0];
    let rows = wanted(&mut rig);
    assert_eq!(
        rows[0]["shortage"]["ready_in_seconds"],
        serde_json::Value::Null,
        "no pace is known"
    );
    // 64 MiB a second.
    rig.made(&first);
    let job = rig.plan(Memory::Fine).jobs[0];
    let rows = wanted(&mut rig);
    assert_eq!((&rows[0]["target"], &rows[0]["ready"]), (&3.into(), &1.into()));
    let shortage = &rows[0]["shortage"];
    assert_eq!((&shortage["pieces"], &shortage["reason"]), (&2.into(), &"making".into()));
    assert_eq!(shortage["ready_in_seconds"], 2.0);
    for (throttle, pace, reason, seconds) in [
        (Some(Throttle::Rate), Some(32 * MIB), "rate", Some(3.0)),
        (Some(Throttle::Neighbours), Some(16 * MIB), "neighbours", Some(6.0)),
        (Some(Throttle::Cpu), None, "cpu", None),
        (None, None, "making", Some(1.5)),
    ] {
        progress(&mut rig, &job, 32, throttle, pace);
        let shortage = wanted(&mut rig)[0]["shortage"].clone();
        assert_eq!(shortage["reason"], reason);
        assert_eq!(shortage["ready_in_seconds"].as_f64(), seconds, "{shortage}");
        let why = shortage["why"].as_str().unwrap();
        assert_eq!(why.contains("raise rate"), pace.is_some(), "{why}");
    }
    rig.now += LONGEST_SILENCE_NS + S;
    let (reason, why) = lack(&mut rig);
    assert!(reason == "cpu" && why.contains("not been heard of for 2 s"), "{reason}: {why}");
    rig.made(&job);
    let job = rig.plan(Memory::Fine).jobs[0];
    rig.made(&job);
    assert_eq!(wanted(&mut rig)[0]["shortage"], serde_json::Value::Null);
    assert!(!rig.broker.metrics(rig.now).contains("prezerod_shortage_bytes{"));
}

#[test]
fn a_second_size_waits_for_its_turn_and_for_the_first() {
    let mut rig = Rig::new(|s| s.stock = vec![keep(64, 1), keep(32, 1)]);
    rig.broker.planner.paces.insert(
        Kind { page: Page::Huge, backing: Backing::Thp, node: 0, payer: Payer::BROKER },
        (64 * MIB) as f64,
    );
    rig.plan(Memory::Fine);
    let rows = wanted(&mut rig);
    let of = |row: &serde_json::Value| row["shortage"]["ready_in_seconds"].as_f64().unwrap();
    let reasons = rows.iter().map(|row| row["shortage"]["reason"].as_str().unwrap());
    assert_eq!(reasons.collect::<Vec<_>>(), ["making", "turn"]);
    assert_eq!(rows.iter().map(of).collect::<Vec<_>>(), [1.0, 1.5]);
}

#[test]
fn memory_that_is_short_and_a_kernel_that_refuses_are_said_to_operators_and_clients() {
    let mut rig = Rig::new(|s| s.stock = vec![keep(4, 1)]);
    let client = rig.client(7, 1000);
    rig.plan(Memory::Tight);
    let (reason, why) = lack(&mut rig);
    assert!(reason == "pressure" && why.ends_with("tried again in 10 s"), "{reason}: {why}");
    let metrics = rig.broker.metrics(rig.now);
    let gauge =
        "prezerod_shortage_bytes{page=\"2M\",node=\"any\",charged=\"broker\",reason=\"pressure\"}";
    assert!(metrics.contains(&format!("{gauge} {}\n", 4 * MIB)), "{metrics}");
    let when = |rig: &mut Rig| match rig.lease(client, 4, 0).unwrap().answer {
        Answer::When { reason, text, .. } => (reason, text),
        other => panic!("{other:?}"),
    };
    let (reason, text) = when(&mut rig);
    assert!(reason == Reason::Pressure && why.contains(&text["none ready: ".len()..]), "{text}");

    rig.now += 10 * S;
    let job = rig.plan(Memory::Fine).jobs[0];
    let refused = Outcome::Refused("no such pages; mend it".into());
    rig.broker.done(rig.now, Done { serial: job.serial, outcome: refused }, None);
    let expected = "no such pages; mend it; tried again in 10 s";
    assert_eq!(lack(&mut rig), ("kernel".into(), expected.into()));
    assert_eq!(when(&mut rig), (Reason::Kernel, "none ready: no such pages; mend it".into()));
    rig.now += 10 * S;
    assert_eq!(rig.plan(Memory::Fine).jobs.len(), 1);
    assert_eq!(lack(&mut rig).0, "making");
}

#[test]
fn what_the_host_or_the_configuration_has_not_is_said_as_a_claim_hears_it() {
    let dir = "sys/kernel/mm/hugepages/hugepages-2048kB";
    let files = [(format!("{dir}/nr_hugepages"), "4"), (format!("{dir}/free_hugepages"), "1")];
    let files = files.each_ref().map(|(path, text)| (path.as_str(), *text));
    let mut rig = Rig::on(&files, |s| {
        s.stock = vec![keep(4, 1)];
        s.backing = crate::settings::Source::Hugetlb;
    });
    let client = rig.client(7, 1000);
    let Answer::No(Reason::Host, no) = rig.lease(client, 4, 9).unwrap().answer else { panic!() };
    assert_eq!(lack(&mut rig), ("host".into(), no));

    let mut rig = Rig::new(|s| {
        s.stock = vec![keep(4, 3)];
        s.limit = Some(9 * MIB);
    });
    for _ in 0..2 {
        let job = rig.plan(Memory::Fine).jobs[0];
        rig.made(&job);
    }
    let (reason, why) = lack(&mut rig);
    assert_eq!(reason, "limit");
    assert!(why.contains("has 8M") && why.contains("limit is 9M; raise limit"), "{why}");
}

#[test]
fn who_pays_and_has_no_room_left_is_told_which_limit() {
    let files = [
        ("proc/mounts", "cgroup2 /cg cgroup2 rw 0 0\n"),
        ("sys/kernel/mm/transparent_hugepage/shmem_enabled", "[never]"),
        ("cg/cgroup.controllers", "memory\n"),
        ("cg/b/memory.max", "67108864\n"),
        ("cg/b/memory.current", "60817408\n"),
    ];
    let mut rig = Rig::on(&files, |s| {
        let tenant = Tenant {
            charge: Charge { cgroup: Some("/b".into()), files: vec![] },
            ..Tenant::only(1000)
        };
        s.stock = vec![Stocked { tenant: Some(tenant.name.clone()), ..keep(4, 1) }];
        s.tenants = vec![tenant];
    });
    let (reason, why) = lack(&mut rig);
    assert!(rig.plan(Memory::Fine).jobs.is_empty());
    assert_eq!(reason, "quota");
    assert!(
        why.starts_with("6M left below ") && why.ends_with("leaves 8M; raise that limit"),
        "{why}"
    );
}

#[test]
fn what_it_could_make_at_once_waits_while_a_client_starts() {
    let mut rig = Rig::new(|s| s.stock = vec![keep(4, 1)]);
    rig.stock(4, Fake::default());
    let client = rig.client(7, 1000);
    assert!(rig.lease(client, 4, 0).unwrap().inode.is_some());
    assert_eq!(lack(&mut rig).0, "starting");
    assert!(rig.plan(Memory::Fine).jobs.is_empty());
    rig.now += S;
    assert_eq!(lack(&mut rig).0, "turn");
    assert_eq!(rig.plan(Memory::Fine).jobs.len(), 1);
}
