//! What makes way: for programs when memory is short, for others' leases when the limit is reached.

use std::collections::{BTreeMap, BTreeSet};

use super::shortage::LIMIT;
use super::{Broker, Inode};
use crate::demand::{Rank, SURPLUS_NS, Target};
use crate::inode::Kind;
use crate::protocol::{Backing, Page, Reason};
use crate::stock::{Need, StockInode, alike};
use crate::tenant::Payer;

/// Part of the reclaimable stock that goes at each look under memory pressure, as a divisor.
/// Moved by: counter `pressure_bytes`.
const SHRINK: u64 = 4;

/// It goes for another piece, which may be made of its pages at once. So those of a pool are back at once:
/// a filler that found none would fail.
pub(super) fn make_way<I: Inode>(inode: StockInode<I>) {
    match inode.kind.backing {
        Backing::Hugetlb => drop(inode),
        Backing::Thp | Backing::Tmpfs => inode.file.discard(),
    }
}

impl<I: Inode> Broker<I> {
    /// Memory is short: a part of what the kernel can use goes back, oldest first. Pages of a
    /// hugetlb pool would go back to the pool, where no other program takes them.
    pub(super) fn shrink(&mut self) {
        let reclaimable = |inode: &StockInode<I>| inode.kind.backing != Backing::Hugetlb;
        let all: u64 = self.stock.iter().filter(|b| reclaimable(b)).map(|b| b.bytes).sum();
        let mut freed = 0;
        while freed < all.div_ceil(SHRINK) {
            let Some(inode) = self.stock.take_oldest(reclaimable) else { break };
            freed += inode.bytes;
            inode.file.discard();
        }
        self.counters.waste_bytes += freed;
        self.counters.pressure_bytes += freed;
    }

    /// A cgroup that is nearly full has a better use for what it paid for.
    pub(super) fn release_charged(&mut self) {
        let paid: BTreeSet<Kind> = self.stock.iter().map(|inode| inode.kind).collect();
        for kind in paid.into_iter().filter(|kind| kind.payer != Payer::BROKER) {
            let room = self.room(kind);
            if room.left < room.spare()
                && let Some(inode) = self.stock.take_oldest(|inode| inode.kind == kind)
            {
                self.counters.waste_bytes += inode.bytes;
                self.counters.pressure_bytes += inode.bytes;
                inode.file.discard();
            }
        }
    }

    /// A pool that was made smaller gets back what the stock has of it beyond what is left.
    pub(super) fn release_reserved(&mut self) {
        let of_pool = |inode: &&StockInode<I>| inode.kind.backing == Backing::Hugetlb;
        let kinds: BTreeSet<_> =
            self.stock.iter().filter(of_pool).map(|inode| inode.kind).collect();
        for kind in kinds {
            let Kind { page, node, .. } = kind;
            let mut surplus = self.view.host.pool(node, page).surplus * page.bytes();
            while surplus > 0
                && let Some(inode) = self.stock.take_oldest(|inode| inode.kind == kind)
            {
                surplus = surplus.saturating_sub(inode.bytes);
                self.counters.waste_bytes += inode.bytes;
                make_way(inode);
                self.view.changed();
            }
        }
    }

    /// What is above every target, after the time in which a client may come back for it; above the limit, what
    /// is above its part of it.
    pub(super) fn release_surplus(&mut self, now: u64, targets: &[Target]) {
        let mut counts: Vec<_> =
            targets.iter().map(|target| (target, self.stock.have(&target.need))).collect();
        loop {
            let over = self.over_limit();
            let surplus = |inode: &StockInode<I>| {
                let over = over.contains(&(inode.kind.backing, inode.kind.page));
                let late = now.saturating_sub(inode.made_ns) > SURPLUS_NS;
                (late || over)
                    && counts.iter().all(|(target, have)| {
                        let stays = if over { target.allotted } else { target.all() };
                        *have > stays || !alike(&target.need, &inode.kind, inode.bytes)
                    })
            };
            let Some(inode) = self.stock.take_oldest(surplus) else { return };
            self.counters.waste_bytes += inode.bytes;
            for (target, have) in &mut counts {
                *have -= u64::from(alike(&target.need, &inode.kind, inode.bytes));
            }
            inode.file.discard();
        }
    }

    /// Makes room for an inode of that rank which lacks it for this reason: what others have beyond
    /// their part goes, oldest first. False: that would not be enough, and nothing goes.
    pub(super) fn displace(
        &mut self,
        targets: &[Target],
        need: &Need,
        rank: Rank,
        reason: &str,
    ) -> bool {
        let (page, kind) = (need.want.page, self.choose_for_stock(need));
        let bytes = match &kind {
            Ok(kind) if reason == LIMIT => {
                let limit = self.limit(*kind);
                (self.taken(*kind) + need.want.bytes).saturating_sub(limit)
            }
            // What is learnt pushes nothing out of a pool or a cgroup that others use, too.
            _ if rank < Rank::Learnt => need.want.bytes,
            _ => return false,
        };
        let in_the_way = |inode: &StockInode<I>| {
            let Kind { page: other, backing, payer, .. } = inode.kind;
            let own = payer == need.payer;
            let lacks = |lack: Reason| lack.name() == reason;
            other == page
                && match &kind {
                    Ok(kind) if reason == LIMIT => kind.backing == backing,
                    _ if lacks(Reason::Quota) => own,
                    _ if lacks(Reason::Host) => own || backing == Backing::Hugetlb,
                    _ if lacks(Reason::Pressure) => backing != Backing::Hugetlb,
                    _ => false,
                }
        };
        let mut counts: Vec<_> =
            targets.iter().map(|target| (target, self.stock.have(&target.need))).collect();
        let (mut goes, mut freed) = (BTreeSet::new(), 0);
        for (at, inode) in self.stock.iter().enumerate().filter(|(_, inode)| in_the_way(inode)) {
            let alike = |target: &Target| alike(&target.need, &inode.kind, inode.bytes);
            let stays =
                |(target, have): &(&Target, u64)| alike(target) && *have <= target.stays(rank);
            if freed >= bytes || counts.iter().any(stays) {
                continue;
            }
            goes.insert(at);
            freed += inode.bytes;
            for (target, have) in &mut counts {
                *have -= u64::from(alike(target));
            }
        }
        if freed < bytes {
            return false;
        }
        let mut at = 0..;
        let goes = self.stock.take_all(|_| at.next().is_some_and(|at| goes.contains(&at)));
        goes.into_iter().for_each(make_way);
        self.counters.waste_bytes += freed;
        true
    }

    /// Of which pages there is more than the limit allows: what was made to order counts once its
    /// client is gone.
    fn over_limit(&self) -> BTreeSet<(Backing, Page)> {
        let mut ready: BTreeMap<(Backing, Page), (Kind, u64)> = BTreeMap::new();
        for inode in self.stock.iter() {
            let pages = (inode.kind.backing, inode.kind.page);
            ready.entry(pages).or_insert((inode.kind, 0)).1 += inode.bytes;
        }
        let over = ready.into_iter().filter(|(_, (kind, bytes))| *bytes > self.limit(*kind));
        over.map(|(pages, _)| pages).collect()
    }
}
