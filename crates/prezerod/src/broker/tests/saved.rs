//! What is leased and learnt, saved by one broker and read by the next.

use super::*;
use crate::broker::saved::{Moment, Restored, Saved};
use crate::ledger::Ends;
use crate::protocol::Drain;

fn moment(boot: &str, s: u64) -> Moment {
    Moment { boot: boot.into(), monotonic_ns: s * S, wall_ns: 1000 * S + s * S }
}

fn tenant(name: &str) -> Tenant {
    Tenant { name: name.into(), quota: Some(8 * MIB), ..Tenant::only(1000) }
}

/// A broker that has leased 4 MiB of 8 and heard of three requests of 6, and what it saves at second 20.
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
    let restored = rig.broker.restore(&moment("boot", 21), &saved(), |lease| {
        assert_eq!((lease.pid, lease.inode, lease.is_watched), (7, 99, false));
        Some(Ends::Memory)
    });
    assert_eq!(restored, Restored { leases: 1, ended: 0 });
    let client = rig.client(8, 1000);
    let quota_left = |rig: &mut Rig| match rig
        .answer(client, Request::Available { page: Page::Huge, node: None })
    {
        Answer::Available { quota_left, .. } => quota_left,
        other => panic!("{other:?}"),
    };
    assert_eq!(quota_left(&mut rig), 4 * MIB);
    let number = rig.broker.ledger.leases.from(0).next().unwrap().number;
    assert!(rig.broker.number() > number, "no number is given out twice");
    rig.broker.ended(21 * S, number);
    assert_eq!(quota_left(&mut rig), 8 * MIB);
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
        let restored = rig.broker.restore(&moment(boot, 21), &saved(), |_| ends);
        assert_eq!(restored, expected, "{boot} {tenants:?}");
        assert_eq!(rig.broker.ledger.leases.from(0).count(), 0);
    }
}

#[test]
fn what_was_learnt_comes_back_by_names_on_any_boot_and_is_forgotten_in_its_time() {
    for boot in ["boot", "another"] {
        // The tenant had another number before.
        let mut rig = next(&["first", "t"]);
        rig.broker.restore(&moment(boot, 30), &saved(), |_| None);
        rig.now = 30 * S;
        assert_eq!(learnt(&rig), 3, "{boot}");
        let mut late = next(&["t"]);
        let hours = 3 * 3600;
        late.broker.restore(&moment(boot, hours), &saved(), |_| None);
        late.broker.planner.demand.turn(hours * S, 180);
        assert!(learnt(&late) <= 2, "an hour of the day may need some: {}", learnt(&late));
        let mut gone = next(&["u"]);
        gone.broker.restore(&moment(boot, 30), &saved(), |_| None);
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
    rig.broker.restore(&moment("boot", 21), &saved, |_| Some(Ends::Memory));
    assert_eq!(rig.broker.ledger.leases.of_tenant("t"), 4 * MIB);
    rig.broker.ended(22 * S, lease["number"].as_u64().unwrap());
    assert_eq!(rig.broker.ledger.leases.of_tenant("t"), 0);
}

#[test]
fn a_drain_holds_on_any_boot_until_the_operator_ends_it() {
    let mut before = next(&["t"]);
    let root = before.client(1, 0);
    for (drain, is_drained) in [(Drain::On, true), (Drain::Off, false)] {
        assert_eq!(before.answer(root, Request::Drain(drain)), Answer::Done);
        let saved = before.broker.saved(moment("boot", 20));
        for boot in ["boot", "another", ""] {
            let mut rig = next(&["t"]);
            rig.broker.restore(&moment(boot, 21), &saved, |_| None);
            let client = rig.client(7, 1000);
            let refused = rig
                .lease(client, 4, 0)
                .is_some_and(|out| matches!(out.answer, Answer::No(Reason::Drained, _)));
            assert_eq!(refused, is_drained, "{boot}");
        }
    }
    // What an earlier broker wrote.
    let text = serde_json::to_string(&saved()).unwrap();
    let earlier = text.replace(",\"drained\":false", "");
    assert!(earlier.len() < text.len(), "{text}");
    assert!(!serde_json::from_str::<Saved>(&earlier).unwrap().is_drained());
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
        rig.broker.restore(&moment("boot", 21), &saved, |_| Some(Ends::Process));
        rig.now = 22 * S;
        rig.plan(Memory::Fine);
        let client = rig.client(8, 1000);
        assert!(rig.report(client).is_object());
    }
}
