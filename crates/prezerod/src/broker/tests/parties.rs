//! Places by tenant and user, and the rows of a report that each party sees.

use super::bounds::{anybody, leased};
use super::*;
use crate::tenant::Tenant;

#[test]
fn subordinate_users_share_their_owners_places_and_an_operator_has_some_of_his_own() {
    let files = [("etc/subuid", "1000:100000:65536\n")];
    let mut rig = Rig::on(&files, |settings| {
        (settings.connections, settings.connections_per_user) = (6, 4);
        settings.tenants = vec![anybody("all")];
    });
    let connect = |rig: &mut Rig, uid| rig.broker.connect(peer(1, uid)).is_ok();
    assert!((100_000..100_004).all(|uid| connect(&mut rig, uid)));
    assert!(!connect(&mut rig, 100_005) && !connect(&mut rig, 1000), "the owner's places");
    assert!(connect(&mut rig, 5000) && !connect(&mut rig, 5000), "the last place is a new user's");
    assert!(connect(&mut rig, 5001) && !connect(&mut rig, 5002), "all places are taken");
    assert!((0..4).all(|_| connect(&mut rig, 0)), "but those of the operator");
    assert!(!connect(&mut rig, 0));
}

#[test]
fn root_of_a_container_takes_no_place_of_root_nor_of_another_tenants_containers() {
    let tenant =
        |name: &str, cgroup: &str| Tenant { cgroups: vec![cgroup.into()], ..anybody(name) };
    let mut rig = Rig::new(|settings| {
        (settings.connections, settings.connections_per_user) = (11, 4);
        settings.tenants = vec![tenant("a", "/a"), tenant("b", "/b"), anybody("all")];
    });
    let connect = |rig: &mut Rig, cgroup: &str, contained| {
        let peer = Peer { cgroups: vec![cgroup.into()], contained, ..peer(1, 0) };
        rig.broker.connect(peer).is_ok()
    };
    assert!((0..4).all(|_| connect(&mut rig, "/a/x", true)));
    assert!(!connect(&mut rig, "/a/y", true), "the tenant's containers have theirs");
    assert!((0..4).all(|_| connect(&mut rig, "/b/x", true)), "the other tenant's have theirs");
    assert!(connect(&mut rig, "/c", true));
    assert!(!connect(&mut rig, "/c", true), "the last places are new users'");
    assert!((0..4).all(|_| connect(&mut rig, "/", false)), "but those of the operator");
}

#[test]
fn root_of_a_container_sees_its_tenants_containers_and_root_sees_all() {
    let tenant =
        |name: &str, cgroup: &str| Tenant { cgroups: vec![cgroup.into()], ..anybody(name) };
    let mut rig = Rig::new(|settings| {
        settings.tenants = vec![tenant("a", "/a"), tenant("b", "/b"), anybody("all")];
    });
    for (pid, cgroup, contained, sees) in
        [(1, "/a", true, 1), (2, "/b", true, 1), (3, "/a", true, 2), (4, "/", false, 4)]
    {
        let peer = Peer { cgroups: vec![cgroup.into()], contained, ..peer(pid, 0) };
        let client = rig.broker.connect(peer).unwrap();
        leased(&mut rig, client, 2);
        let report = rig.report(client);
        assert_eq!(report["leased"].as_array().unwrap().len(), sees, "{pid}: {report}");
    }
}

#[test]
fn a_new_user_and_a_new_tenant_find_a_place_however_many_others_take_as_many_as_they_may() {
    for (tenants, users) in [(1, 1), (1, 4), (1, 40), (5, 1), (5, 8), (60, 1)] {
        let mut rig = Rig::new(|settings| {
            (settings.connections, settings.connections_per_user) = (256, 64);
            let named = |tenant: u32| Tenant {
                cgroups: vec![format!("/{tenant}")],
                ..anybody(&format!("t{tenant}"))
            };
            settings.tenants = (0..=tenants).map(named).collect();
        });
        let connect = |rig: &mut Rig, tenant: u32, uid| {
            let peer = Peer { cgroups: vec![format!("/{tenant}")], ..peer(1, uid) };
            rig.broker.connect(peer).is_ok()
        };
        // Each takes as many as it gets, all of them in turn and one after the other.
        for _ in 0..3 {
            for uid in 0..users {
                (0..tenants).for_each(|tenant| while connect(&mut rig, tenant, 2000 + uid) {});
            }
        }
        assert!(rig.broker.ledger.clients.len() > 60, "{tenants} {users}: places stay unused");
        assert!(connect(&mut rig, tenants, 5000), "{tenants} {users}: a new tenant");
        assert!(tenants > 1 || users > 4 || connect(&mut rig, 0, 5001), "{users}: a new user");
    }
}
