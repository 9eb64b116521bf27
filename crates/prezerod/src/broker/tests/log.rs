//! What an operator reads of leases that were granted and refused.

use super::*;

fn tenant(name: &str, uid: u32, quota: u64) -> Tenant {
    Tenant { name: name.into(), uids: vec![uid], quota: Some(quota * MIB), ..Tenant::only(uid) }
}

fn operator() -> Tenant {
    Tenant { name: "op".into(), ..Tenant::only(0) }
}

/// What a client reads, the oldest first.
fn read(rig: &mut Rig, client: ClientId) -> Vec<serde_json::Value> {
    let text = rig.parts(client, Report::Log).concat();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn said(entry: &serde_json::Value) -> (&str, &str, u64, &str) {
    let text = |name: &str| entry[name].as_str().unwrap_or("");
    (text("tenant"), text("answer"), entry["times"].as_u64().unwrap(), text("reason"))
}

#[test]
fn it_tells_which_tenant_got_waited_or_was_refused_and_why() {
    let mut rig = Rig::new(|s| s.tenants = vec![tenant("a", 1, 8), tenant("b", 2, 8), operator()]);
    let (a, b, root) = (rig.client(1, 1), rig.client(2, 2), rig.client(3, 0));
    rig.stock(4, Fake::default());
    assert!(rig.lease(a, 4, 0).unwrap().inode.is_some());
    assert_eq!(reason(rig.lease(b, 16, 0)), Reason::Quota);
    assert_eq!(reason(rig.lease(b, 16, 0)), Reason::Quota);
    assert!(rig.lease(b, 4, 2000).is_none(), "it waits");
    rig.now += S;
    rig.stock(4, Fake::default());
    assert!(rig.broker.serve(rig.now)[0].inode.is_some());
    assert_eq!(reason(rig.lease(a, 2, 0)), Reason::Empty);
    assert!(rig.broker.connect(peer(4, 77)).is_err(), "a stranger");
    let all = read(&mut rig, root);
    let told: Vec<_> = all.iter().map(said).collect();
    assert_eq!(
        told,
        [
            ("a", "lease", 1, ""),
            ("b", "refused", 2, "quota"),
            ("b", "lease", 1, ""),
            ("a", "later", 1, "empty"),
            ("", "refused", 1, "denied")
        ]
    );
    assert!(all[1]["why"].as_str().unwrap().contains("tenant b has 8M left"), "{}", all[1]);
    assert_eq!(all[2]["waited_seconds"].as_f64(), Some(1.0));
    assert_eq!((all[0]["age_seconds"].as_f64(), all[4]["uid"].as_u64()), (Some(1.0), Some(77)));
    let own: Vec<_> = read(&mut rig, a);
    assert!(own.iter().all(|entry| entry["tenant"] == "a") && own.len() == 2, "{own:?}");
    let metrics = rig.parts(root, Report::Metrics).concat();
    assert!(metrics.contains("prezerod_tenant_refusals_total{tenant=\"b\"} 2\n"), "{metrics}");
}

#[test]
fn a_tenant_that_asks_without_end_pushes_out_no_entry_of_another() {
    let mut rig = Rig::new(|s| {
        s.tenants = vec![tenant("a", 1, 8), tenant("b", 2, 8), operator()];
        s.connections_per_user = 100_000;
        s.connections = 400_000;
    });
    let victim = rig.client(1, 1);
    assert_eq!(reason(rig.lease(victim, 16, 0)), Reason::Quota);
    for pid in 0..2000 {
        // Of many processes, of sizes each of its own, and strangers.
        let client = rig.client(10 + pid, 2);
        assert_eq!(reason(rig.lease(client, 10 + 2 * pid as u64, 0)), Reason::Quota);
        rig.broker.disconnect(client);
        assert!(rig.broker.may_connect(1000 + pid as u32).is_err());
    }
    let root = rig.client(3, 0);
    let all = read(&mut rig, root);
    assert!((400..=512).contains(&all.len()), "{}", all.len());
    assert_eq!(all.iter().filter(|entry| entry["tenant"] == "a").count(), 1);
    assert!(all.iter().any(|entry| entry["tenant"] == "b"), "strangers push out no tenant");
}

#[test]
fn any_number_is_a_place_to_go_on_from_and_no_text_ends_a_line_or_commands_a_terminal() {
    let hostile = Tenant { cgroups: vec!["/h".into()], ..tenant("h", 1, 8) };
    let mut rig = Rig::new(|s| s.tenants = vec![hostile, operator()]);
    for at in 0..40 {
        let cgroups = vec![format!("/h/{}\n\u{1b}[2J\u{202e}\"{at}", "\u{1}".repeat(4000))];
        let client = rig.broker.connect(Peer { cgroups, ..peer(10 + at, 1) }).unwrap();
        assert_eq!(reason(rig.lease(client, 16, 0)), Reason::Quota);
    }
    let root = rig.client(3, 0);
    assert_eq!(read(&mut rig, root).len(), 40);
    for from in [1, 7, 40, 41, 1 << 40, u64::MAX] {
        let answer = rig.answer(root, Request::Report { report: Report::Log, from });
        let Answer::Part { text, .. } = answer else { panic!("{answer:?}") };
        assert!(text.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()));
        assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text}");
    }
}
