//! Leases whose memory lives, in whichever process: what counts against a quota.
//!
//! The broker keeps nothing of a lease that would keep it alive. It keeps a mark for its inode
//! ([`Marks`]), which goes with the inode. So a lease is over when the last descriptor and mapping of
//! it are gone: not when the process ends that got it, and not while a program that the process
//! started, or passed the descriptor on to, has it.
//!
//! Marks lie in groups, each of one tenant: one tenant's leases cost another's requests nothing. Where
//! the kernel allows no more groups, tenants share the smallest.
//! Looking at a group costs about a microsecond for each lease in it. So groups are small, and one
//! that was just looked at rests for ten times as long.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Once;

use prezero_sys::marks::{InodeId, Marks};
use rustix::io::Errno;

use super::store::{Entry, MARKS, Store};

/// Leases of one group. The kernel allows a user 128 groups.
/// Moved by: counter `lease_hits` of a tenant at its quota.
const GROUP: usize = 512;
/// Groups that are looked at for a tenant that has reached its quota.
const GROUPS_AT_QUOTA: usize = 2;
/// A group is looked at once in this time for each of its leases, ns.
const SCAN_INTERVAL_NS: u64 = 10_000;
/// One group in this time for no tenant's sake.
const NEXT_GROUP_NS: u64 = 50_000_000;

#[derive(Debug)]
struct Group {
    /// Whose leases it has.
    tenants: BTreeSet<String>,
    marks: Marks,
    leases: BTreeMap<InodeId, u64>,
    looked: u64,
    /// The marks survive the broker, where a manager keeps them.
    entry: Option<Entry>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct LeaseTracker {
    store: Store,
    groups: Vec<Group>,
    turn: usize,
    turned: u64,
    /// Over, for their number is another inode's by now.
    replaced: Vec<u64>,
    /// What lives of an earlier broker's leases, by the group that has the mark.
    unclaimed: BTreeMap<InodeId, usize>,
}

impl LeaseTracker {
    /// Its marks lie in this store, too.
    pub fn new(store: Store) -> LeaseTracker {
        LeaseTracker { store, ..LeaseTracker::default() }
    }

    /// Marks that an earlier broker made. Its leases are to be [claimed](LeaseTracker::claim).
    pub fn restore(&mut self, marks: Marks, entry: Entry) {
        let (tenants, leases) = (BTreeSet::new(), BTreeMap::new());
        let at = self.groups.len();
        self.unclaimed.extend(marks.living().unwrap_or_default().into_iter().map(|id| (id, at)));
        self.groups.push(Group { tenants, marks, leases, looked: 0, entry: Some(entry) });
    }

    /// Whether marks of an earlier broker came back.
    pub fn is_restored(&self) -> bool {
        !self.groups.is_empty()
    }

    /// A lease of an earlier broker, by its inode: whether its memory lives, and is watched from now on.
    pub fn claim(&mut self, tenant: &str, lease: u64, inode: InodeId) -> bool {
        let at = self.unclaimed.remove(&inode);
        let Some(group) = at.and_then(|at| self.groups.get_mut(at)) else { return false };
        group.tenants.insert(tenant.to_owned());
        group.leases.insert(inode, lease);
        true
    }

    /// Has marks survive this broker, where that was not heard at first.
    pub fn keep(&mut self) {
        for group in self.groups.iter_mut().filter(|group| group.entry.is_none()) {
            group.entry = stored(&self.store, &group.marks);
        }
    }

    /// All leases of an earlier broker were claimed.
    pub fn claimed(&mut self) {
        self.unclaimed.clear();
    }

    /// From now on the lease with this number is over when its memory is gone.
    ///
    /// # Errors
    /// What the kernel answers where it has no such marks, or no more.
    pub fn watch(
        &mut self,
        tenant: &str,
        lease: u64,
        file: BorrowedFd<'_>,
    ) -> Result<InodeId, Errno> {
        let free = |group: &Group| group.tenants.contains(tenant) && group.leases.len() < GROUP;
        let at = match self.groups.iter().position(free) {
            Some(at) => at,
            None => match Marks::new() {
                Ok(marks) => {
                    let entry = stored(&self.store, &marks);
                    let (tenants, leases) = (BTreeSet::new(), BTreeMap::new());
                    self.groups.push(Group { tenants, marks, leases, looked: 0, entry });
                    self.groups.len() - 1
                }
                Err(error) => {
                    let smallest = self.smallest().ok_or(error)?;
                    static SAID: Once = Once::new();
                    SAID.call_once(|| {
                        prezero_sys::log!(
                            "prezerod: the kernel allows no more than {} groups of marks: tenants share them; \
                             raise fs.fanotify.max_user_groups",
                            self.groups.len()
                        );
                    });
                    smallest
                }
            },
        };
        self.groups[at].tenants.insert(tenant.to_owned());
        let group = &mut self.groups[at];
        let inode = group.marks.add(file)?;
        self.replaced.extend(group.leases.insert(inode, lease));
        Ok(inode)
    }

    /// The group with the fewest leases.
    fn smallest(&self) -> Option<usize> {
        let each = self.groups.iter().enumerate();
        each.min_by_key(|(_, group)| group.leases.len()).map(|(at, _)| at)
    }

    /// Leases of one group that are over: of the next one, if its time has come.
    pub fn over(&mut self, now: u64) -> Vec<u64> {
        let mut over = std::mem::take(&mut self.replaced);
        if self.groups.is_empty() || now.saturating_sub(self.turned) < NEXT_GROUP_NS {
            return over;
        }
        self.turned = now;
        self.turn = (self.turn + 1) % self.groups.len();
        over.extend(self.groups[self.turn].over(now));
        if self.groups[self.turn].leases.is_empty() {
            self.groups.swap_remove(self.turn);
        }
        over
    }

    /// Leases of this tenant that are over, as far as can be told in a moment.
    pub fn over_of(&mut self, now: u64, tenant: &str) -> Vec<u64> {
        let due = |group: &&mut Group| {
            let rest = SCAN_INTERVAL_NS * group.leases.len() as u64;
            group.tenants.contains(tenant) && now.saturating_sub(group.looked) >= rest
        };
        self.groups
            .iter_mut()
            .filter(due)
            .take(GROUPS_AT_QUOTA)
            .flat_map(|group| group.over(now))
            .collect()
    }
}

/// Marks in the store, under a name of their own.
fn stored(store: &Store, marks: &Marks) -> Option<Entry> {
    store.put(format!("{MARKS}.{:x}", fastrand::u64(..)), marks.as_fd())
}

impl Group {
    fn over(&mut self, now: u64) -> Vec<u64> {
        self.looked = now;
        // What cannot be read is taken to live.
        let Ok(alive) = self.marks.living() else { return vec![] };
        let alive: BTreeSet<InodeId> = alive.into_iter().collect();
        let mut over = vec![];
        self.leases.retain(|inode, lease| {
            let lives = alive.contains(inode);
            if !lives {
                over.push(*lease);
            }
            lives
        });
        over
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prezero_sys::shared::memfd;
    use prezero_testing::alone;
    use rustix::fs::MemfdFlags;
    use std::os::fd::{AsFd, OwnedFd};

    fn file() -> OwnedFd {
        memfd("lease", MemfdFlags::empty()).unwrap()
    }

    #[test]
    fn leases_are_over_by_their_memory_each_for_its_tenant() {
        let _alone = alone();
        let mut tracker = LeaseTracker::default();
        let files: Vec<OwnedFd> = (0..2 * GROUP).map(|_| file()).collect();
        for (lease, file) in (0..).zip(&files) {
            let tenant = if lease % 2 == 0 { "even" } else { "odd" };
            if tracker.watch(tenant, lease, file.as_fd()).is_err() {
                return;
            }
        }
        assert_eq!(tracker.groups.len(), 2);
        let rest = SCAN_INTERVAL_NS * GROUP as u64;
        assert!(tracker.over_of(rest, "even").is_empty());
        let kept = files.into_iter().enumerate().filter(|(lease, _)| lease % 4 > 1);
        let kept: Vec<OwnedFd> = kept.map(|(_, file)| file).collect();
        assert!(tracker.over_of(rest, "even").is_empty(), "it was just looked at");
        let mut over = tracker.over_of(2 * rest, "even");
        over.sort_unstable();
        assert_eq!(over, (0..2 * GROUP as u64).step_by(4).collect::<Vec<_>>());
        let over: Vec<u64> = (1..=2).flat_map(|turn| tracker.over(turn * NEXT_GROUP_NS)).collect();
        assert_eq!(over.len(), GROUP / 2, "{over:?}");
        assert!(over.iter().all(|lease| lease % 4 == 1));
        drop(kept);
        for turn in 3..=5 {
            tracker.over(turn * NEXT_GROUP_NS);
        }
        assert!(tracker.groups.is_empty(), "an empty group is given back");
    }

    #[test]
    fn more_tenants_than_the_kernel_has_groups_are_watched_all_the_same() {
        let _alone = alone();
        let mut tracker = LeaseTracker::default();
        let files: Vec<OwnedFd> = (0..300).map(|_| file()).collect();
        for (lease, file) in (0..).zip(&files) {
            let watched = tracker.watch(&format!("tenant {lease}"), lease, file.as_fd());
            if lease == 0 && watched.is_err() {
                return;
            }
            assert!(watched.is_ok(), "{lease}");
        }
        drop(files);
        let mut over = tracker.over_of(SCAN_INTERVAL_NS * 300, "tenant 299");
        over.extend((1..=300).flat_map(|turn| tracker.over(turn * NEXT_GROUP_NS)));
        over.sort_unstable();
        assert_eq!(over, (0..300).collect::<Vec<_>>());
    }
}
