//! What is leased and learnt, saved by one broker and read by the next.

use super::*;
use crate::broker::persist::{Moment, Restored, Saved};
use crate::ledger::Ends;

fn moment(boot: &str, s: u64) -> Moment {
    Moment { boot: boot.into(), monotonic_ns: s * S, wall_ns: 1000 * S + s * S }
}

fn tenant(name: &str) -> Tenant {
    Tenant { name: name.into(), quota: Some(64 * MIB), ..Tenant::only(1000) }
}

/// A broker that has leased 4 MiB of 64 and heard of three requests of 6, and what it saves at second 20.
fn saved() -> Saved {
    let mut rig = Rig::new(|settings| settings.tenants = vec![tenant("other"), tenant("t")]);
    rig.broker.ledger.tenants.remove(0);
    rig.stock(4, Fake::default());
    let client = rig.client(7, 1000);
    assert!(rig.lease(client, 4, 0).unwrap().inode.is_some());
    for _ in 0..3 {
        rig.now += S;
        rig.broker.planner.demand.sample(rig.now, party(&rig), &need(6), 0);
    }
    let text = serde_json::to_string(&rig.broker.saved(moment("boot", 20))).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn party(rig: &Rig) -> crate::demand::Party {
    let known = rig.broker.ledger.names.iter().position(|name| name == "t").unwrap();
    crate::demand::Party { tenant: known as u16, uid: 1000 }
}

fn need(mib: u64) -> Need {
    Need { want: want(mib), payer: Payer::BROKER }
}

fn next(tenants: &[&str]) -> Rig {
    Rig::new(|settings| settings.tenants = tenants.iter().map(|name| tenant(name)).collect())
}

fn learnt(rig: &Rig) -> u64 {
    let targets = rig.broker.targets();
    targets.iter().find(|target| target.need == need(6)).map_or(0, |target| target.learnt)
}

#[test]
fn a_lease_that_is_out_counts_against_its_quota_until_it_ends() {
    let mut rig = next(&["t"]);
    let restored = rig.broker.restore(&moment("boot", 21), saved(), |lease| {
        assert_eq!((lease.holder.pid, lease.inode, lease.ends), (7, 99, Ends::Process));
        Some(Ends::Memory)
    });
    assert_eq!(restored, Restored { leases: 1, ended: 0 });
    let client = rig.client(8, 1000);
    let quota_left = |rig: &mut Rig| match rig
        .answer(client, Request::Available { page: Page::Huge, node: None })
    {
        Answer::Available(available) => available.quota_left,
        other => panic!("{other:?}"),
    };
    assert_eq!(quota_left(&mut rig), 60 * MIB);
    let number = rig.broker.ledger.leases.from(0).next().unwrap().number;
    assert!(rig.broker.number() > number, "no number is given out twice");
    rig.broker.ended(21 * S, number);
    assert_eq!(quota_left(&mut rig), 64 * MIB);
}

#[test]
fn what_ended_meanwhile_another_boot_and_a_tenant_that_is_no_more_count_nothing() {
    for (boot, tenants, ends, expected) in [
        ("boot", ["t"], None, Restored { leases: 0, ended: 1 }),
        ("another", ["t"], Some(Ends::Memory), Restored::default()),
        ("", ["t"], Some(Ends::Memory), Restored::default()),
        ("boot", ["u"], Some(Ends::Memory), Restored::default()),
    ] {
        let mut rig = next(&tenants);
        let restored = rig.broker.restore(&moment(boot, 21), saved(), |_| ends);
        assert_eq!(restored, expected, "{boot} {tenants:?}");
        assert_eq!(rig.broker.ledger.leases.from(0).count(), 0);
    }
}

#[test]
fn what_was_learnt_comes_back_by_names_on_any_boot_and_is_forgotten_in_its_time() {
    for boot in ["boot", "another"] {
        // The tenant had another number before.
        let mut rig = next(&["first", "t"]);
        rig.broker.restore(&moment(boot, 30), saved(), |_| None);
        rig.now = 30 * S;
        assert_eq!(learnt(&rig), 3, "{boot}");
        let mut late = next(&["t"]);
        let hours = 3 * 3600;
        late.broker.restore(&moment(boot, hours), saved(), |_| None);
        late.broker.planner.demand.turn(hours * S, 180);
        assert!(learnt(&late) <= 2, "an hour of the day may need some: {}", learnt(&late));
        let mut gone = next(&["u"]);
        gone.broker.restore(&moment(boot, 30), saved(), |_| None);
        assert_eq!(learnt(&gone), 0);
    }
}

/// Debts of all bytes that there can be, many times.
const DEBTS: &str = concat!(
    r#""debts":[[0,{"foreign":18446744073709551615,"ended":[{"at":18446744073709551615,"tenant":"t","#,
    r#""bytes":18446744073709551615,"judged":false}],"claims":[{"since":0,"bytes":18446744073709551615,"#,
    r#""suspects":{"t":18446744073709551615}},{"since":0,"bytes":18446744073709551615,"suspects":{}}]}]"#
);

#[test]
fn a_lease_that_is_saved_twice_counts_once() {
    let mut text = serde_json::to_value(saved()).unwrap();
    let lease = text["leases"][0].clone();
    text["leases"] = vec![lease.clone(); 3].into();
    let mut rig = next(&["t"]);
    let saved = serde_json::from_value(text).unwrap();
    rig.broker.restore(&moment("boot", 21), saved, |_| Some(Ends::Memory));
    assert_eq!(rig.broker.ledger.leases.of_tenant("t"), 4 * MIB);
    rig.broker.ended(22 * S, lease["number"].as_u64().unwrap());
    assert_eq!(rig.broker.ledger.leases.of_tenant("t"), 0);
}

#[test]
fn a_drain_that_an_earlier_broker_saved_holds_and_one_with_a_file_of_its_own_is_not_read_here() {
    let mut before = next(&["t"]);
    before.broker.set_drained(true);
    let text = serde_json::to_string(&before.broker.saved(moment("boot", 20))).unwrap();
    let was_drained = |text: &str| serde_json::from_str::<Saved>(text).unwrap().was_drained();
    assert!(text.contains("\"drained\":true"), "an earlier broker reads it");
    assert!(!was_drained(&text));
    assert!(was_drained(&text.replace(",\"drained_apart\":true", "")));
}

/// A text that the release before wrote, with two leases, what it learnt of two sizes, an expectation and a drain.
const RELEASED: &str = include_str!("released");

fn released() -> serde_json::Value {
    serde_json::from_str(RELEASED.split_once('\n').unwrap().1).unwrap()
}

/// What came back of a text: leases, bytes learnt, pieces expected, a drain.
fn came_back(state: &serde_json::Value) -> (usize, u64, u64, bool) {
    let saved: Saved = serde_json::from_str(&state.to_string()).unwrap();
    let (mut rig, was_drained) = (next(&["t"]), saved.was_drained());
    let second = released()["moment"]["monotonic_ns"].as_u64().unwrap() / S;
    let leases =
        rig.broker.restore(&moment("fixture", second + 1), saved, |_| Some(Ends::Memory)).leases;
    let targets = rig.broker.targets();
    let learnt = targets.iter().map(|target| target.learnt * target.need.want.bytes).sum();
    let kept = targets.iter().map(|target| target.kept).sum();
    let last = rig.broker.ledger.leases.from(0).map(|lease| lease.number).max();
    assert!(last.is_none_or(|last| rig.broker.number() > last), "a number is given out twice");
    (leases, learnt, kept, was_drained)
}

#[test]
fn the_state_of_the_release_before_comes_back_whole() {
    assert_eq!(came_back(&released()), (2, 16 * MIB, 2, true));
}

/// Each value of a text in turn, in place of which another stands.
fn each_value(
    value: &mut serde_json::Value,
    path: &str,
    seen: &mut dyn FnMut(&mut serde_json::Value, &str),
) {
    seen(value, path);
    match value {
        serde_json::Value::Array(pieces) => {
            for (at, piece) in pieces.iter_mut().enumerate() {
                each_value(piece, &format!("{path}/{at}"), seen);
            }
        }
        serde_json::Value::Object(fields) => {
            for (name, field) in fields {
                each_value(field, &format!("{path}/{name}"), seen);
            }
        }
        _ => {}
    }
}

#[test]
fn a_field_that_cannot_be_read_takes_nothing_with_it_but_its_own_piece() {
    let mut paths = vec![];
    each_value(&mut released(), "", &mut |_, path| paths.push(path.to_owned()));
    assert!(paths.len() > 100, "{}", paths.len());
    for path in paths.iter().filter(|path| !path.is_empty()) {
        let wrong = [
            serde_json::json!({"x": []}),
            serde_json::json!(-1.5),
            serde_json::json!("x"),
            serde_json::Value::Null,
        ];
        for wrong in wrong {
            let mut state = released();
            *state.pointer_mut(path).unwrap() = wrong;
            let (leases, learnt, kept, drained) = came_back(&state);
            let part = path.split('/').nth(1).unwrap();
            let all_is_named = ["moment", "tenants", "charges"].contains(&part);
            assert!(all_is_named || part == "leases" || leases == 2, "{path}: {leases} leases");
            assert!(
                part != "leases" || path == "/leases" || leases >= 1,
                "{path}: {leases} leases"
            );
            assert!(
                all_is_named || part == "demand" || learnt == 16 * MIB,
                "{path}: {learnt} learnt"
            );
            assert!(all_is_named || part == "expected" || kept == 2, "{path}: {kept} expected");
            assert!(part == "drained" || drained, "{path}");
        }
    }
}

#[test]
fn a_tenant_with_any_number_of_leases_leaves_room_for_the_leases_of_others() {
    let mut rig = next(&["t", "u"]);
    let lease = |number, tenant: &str, cgroup: &str| {
        let kind = Kind { page: Page::Huge, backing: Backing::Thp, node: 0, payer: Payer::BROKER };
        let (tenant, ends) = (tenant.to_owned(), Ends::Memory);
        let cgroups = vec![cgroup.into()];
        let holder = crate::ledger::Holder {
            began: u64::MAX,
            ..(&Peer { cgroups, ..peer(i32::MAX, u32::MAX) }).into()
        };
        let (bytes, inode, device, since, cost_ns) =
            (2 * MIB, u64::MAX, u64::MAX, u64::MAX, u64::MAX);
        crate::ledger::Lease {
            number,
            holder,
            tenant,
            ends,
            kind,
            bytes,
            inode,
            device,
            since,
            cost_ns,
        }
    };
    let hostile = ["\u{1}", "\"", "\\", "\u{e0041}", "\u{7f}"].map(|text| text.repeat(4096));
    for number in 0..9000 {
        rig.broker.ledger.leases.insert(lease(
            number,
            "t",
            &hostile[number as usize % hostile.len()],
        ));
    }
    for number in 9000..9003 {
        rig.broker.ledger.leases.insert(lease(number, "u", "/u"));
    }
    let text = serde_json::to_string(&rig.broker.saved(moment("boot", 20))).unwrap();
    assert!(text.len() < crate::persist::MOST / 4 * 3, "{} bytes", text.len());
    let mut again = next(&["t", "u"]);
    let saved = serde_json::from_str(&text).unwrap();
    again.broker.restore(&moment("boot", 21), saved, |_| Some(Ends::Memory));
    assert_eq!(again.broker.ledger.leases.of_tenant("u"), 6 * MIB);
}

#[test]
fn numbers_that_no_broker_wrote_do_no_harm() {
    let text = serde_json::to_string(&saved()).unwrap();
    for (part, other) in [
        ("\"bytes\":6291456", "\"bytes\":0"),
        ("\"bytes\":6291456", "\"bytes\":5"),
        ("\"page\":2097152", "\"page\":4096"),
        ("\"part_age\":20000000000", "\"part_age\":18446744073709551615"),
        ("\"minute\":0", "\"minute\":65535"),
        ("\"level\":", "\"level\":9"),
        ("\"payer\":0", "\"payer\":77"),
        ("\"hours\":[0", "\"hours\":[18446744073709551615"),
        ("\"numbers\":", "\"numbers\":18446744073709551615,\"was\":"),
        ("\"bytes\":4194304", "\"bytes\":18446744073709551615"),
        ("\"pid\":", "\"pid\":-"),
        ("\"debts\":[", DEBTS),
    ] {
        assert!(text.contains(part), "{part} in {text}");
        let saved: Saved = serde_json::from_str(&text.replace(part, other)).unwrap();
        let mut rig = next(&["t"]);
        rig.broker.restore(&moment("boot", 21), saved, |_| Some(Ends::Process));
        rig.now = 22 * S;
        rig.plan(Memory::Fine);
        let client = rig.client(8, 1000);
        assert!(rig.report(client).is_object());
    }
}
