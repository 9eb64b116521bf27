//! Tenants: which peers may lease, and how much, by what the kernel says of them.

use std::fmt;
use std::path::PathBuf;

use prezero_sys::escape::escape;
use serde::{Deserialize, Serialize};

/// A connection's number; never used again.
pub type ClientId = u64;

/// The process at the other end of a connection, as the kernel knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Process.
    pub pid: i32,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Its cgroups, such as `/machine.slice/a.scope`: one, or several where hierarchies of both
    /// versions tell it apart. Empty: unknown.
    pub cgroups: Vec<String>,
    /// When the process began, in ticks since the boot: its number may come back. 0: not known.
    pub began: u64,
    /// It lives in a PID namespace below the broker's: a container, whose root is no operator.
    pub contained: bool,
}

impl Peer {
    /// Whether the process is of the operator: of a user that [may operate](may_operate), and in no container.
    pub fn is_operator(&self) -> bool {
        may_operate(self.uid) && !self.contained
    }
}

/// Whether processes of this user are the operator's: root's, or the broker's own user's.
pub fn may_operate(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::getuid().as_raw()
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pid {}, uid {}, gid {}", self.pid, self.uid, self.gid)?;
        match &self.cgroups[..] {
            [] => Ok(()),
            cgroups => write!(f, ", cgroup {}", escape(&cgroups.join(" or "))),
        }
    }
}

/// Which tenants may take the last of the stock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rank {
    /// Served before others, and from the reserve.
    Critical,
    /// All others.
    #[default]
    Normal,
}

/// The cgroup that pays for memory: 0 is the broker's own cgroup, others are those that tenants name ([`Charge`]),
/// in the order in which the broker learnt of them.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Payer(pub u16);

impl Payer {
    /// The cgroup of the broker's fillers.
    pub const BROKER: Payer = Payer(0);
}

/// A tenant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tenant {
    /// Its name in reports and metrics.
    pub name: String,
    /// Users; empty: any.
    pub uids: Vec<u32>,
    /// Groups, a process's own or supplementary; empty: any.
    pub gids: Vec<u32>,
    /// Cgroups and all below them; empty: any.
    pub cgroups: Vec<String>,
    /// Most bytes that its processes may hold; `None`: no bound.
    pub quota: Option<u64>,
    /// See there.
    pub rank: Rank,
    /// See there.
    pub charge: Charge,
}

/// What keeps memory of one payer apart from that of others.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Charge {
    /// The cgroup that is charged; `None`: the broker's.
    pub cgroup: Option<String>,
    /// The directories in which its memory is files, which lie under names; none: its leases
    /// are descriptors.
    pub files: Vec<PathBuf>,
}

impl Tenant {
    /// All processes of one user, and of the superuser.
    pub fn only(uid: u32) -> Tenant {
        let uids = if uid == 0 { vec![0] } else { vec![uid, 0] };
        Tenant {
            name: "self".into(),
            uids,
            gids: vec![],
            cgroups: vec![],
            quota: None,
            rank: Rank::Normal,
            charge: Charge::default(),
        }
    }

    fn has(&self, peer: &Peer) -> bool {
        let below = |own: &String, path: &String| {
            let rest = own.strip_prefix(path.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || path.ends_with('/'))
        };
        let in_cgroup = |path: &String| peer.cgroups.iter().any(|own| below(own, path));
        let in_group = |gid: &u32| peer.gid == *gid || peer.groups.contains(gid);
        (self.uids.is_empty() || self.uids.contains(&peer.uid))
            && (self.gids.is_empty() || self.gids.iter().any(in_group))
            && (self.cgroups.is_empty() || self.cgroups.iter().any(in_cgroup))
    }
}

/// To how many tenants a process of this user may belong, by its user alone.
pub fn may_be(tenants: &[Tenant], uid: u32) -> usize {
    let may = |tenant: &&Tenant| tenant.uids.is_empty() || tenant.uids.contains(&uid);
    tenants.iter().filter(may).count()
}

/// The first tenant that the peer belongs to.
pub fn of<'a>(tenants: &'a [Tenant], peer: &Peer) -> Option<&'a Tenant> {
    tenants.iter().find(|tenant| tenant.has(peer))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(uid: u32, cgroup: Option<&str>) -> Peer {
        let cgroups = cgroup.into_iter().map(str::to_owned).collect();
        Peer { pid: 1, uid, gid: uid, groups: vec![], cgroups, began: 0, contained: false }
    }

    #[test]
    fn a_process_of_several_hierarchies_belongs_where_any_of_them_puts_it() {
        let vms = Tenant { uids: vec![], cgroups: vec!["/machine".into()], ..Tenant::only(0) };
        let both = |paths: [&str; 2]| {
            let cgroups = paths.map(str::to_owned).into();
            of(std::slice::from_ref(&vms), &Peer { cgroups, ..peer(5, None) }).is_some()
        };
        assert!(both(["/", "/machine/qemu"]) && both(["/machine", "/user"]));
        assert!(!both(["/", "/user"]));
    }

    #[test]
    fn a_user_that_no_tenant_names_is_known_before_anything_else_is() {
        let named = Tenant { uids: vec![5], ..Tenant::only(0) };
        let any = Tenant { uids: vec![], gids: vec![9], ..Tenant::only(0) };
        assert_eq!(may_be(std::slice::from_ref(&named), 5), 1);
        assert_eq!(may_be(std::slice::from_ref(&named), 6), 0);
        assert_eq!(may_be(&[named.clone(), any.clone()], 6), 1, "by its group, perhaps");
        assert_eq!(may_be(&[named, any], 5), 2);
    }

    #[test]
    fn everything_that_a_tenant_names_must_fit() {
        let vms = Tenant {
            name: "vms".into(),
            uids: vec![107, 108],
            cgroups: vec!["/machine.slice".into()],
            ..Tenant::only(0)
        };
        let fits = |uid, cgroup| of(std::slice::from_ref(&vms), &peer(uid, cgroup)).is_some();
        assert!(fits(107, Some("/machine.slice")) && fits(108, Some("/machine.slice/a/b")));
        assert!(!fits(109, Some("/machine.slice")), "another user");
        assert!(!fits(107, Some("/machine.slices")), "another group with the same beginning");
        assert!(!fits(107, None), "a group that is not known is not this one");
    }

    #[test]
    fn the_first_that_fits_counts_and_nobody_is_let_in_by_default() {
        let tenants = [
            Tenant { name: "a".into(), uids: vec![5], ..Tenant::only(0) },
            Tenant { name: "b".into(), uids: vec![], gids: vec![5], ..Tenant::only(0) },
        ];
        assert_eq!(of(&tenants, &peer(5, None)).unwrap().name, "a");
        assert_eq!(of(&tenants[1..], &peer(5, None)).unwrap().name, "b");
        assert!(of(&tenants, &peer(6, None)).is_none());
        let member = Peer { groups: vec![9, 5], ..peer(6, None) };
        assert_eq!(of(&tenants, &member).unwrap().name, "b", "by a supplementary group");
        assert!(of(&[Tenant::only(6)], &peer(6, None)).is_some());
        assert!(of(&[Tenant::only(6)], &peer(0, None)).is_some());
        assert!(of(&[Tenant::only(6)], &peer(7, None)).is_none());
    }
}
