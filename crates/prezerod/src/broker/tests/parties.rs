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
    assert!(connect(&mut rig, 5000) && connect(&mut rig, 5000));
    assert!(!connect(&mut rig, 5001), "all places are taken");
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
    assert!((0..3).all(|_| connect(&mut rig, "/c", true)));
    assert!(!connect(&mut rig, "/c", true), "all places are taken");
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
