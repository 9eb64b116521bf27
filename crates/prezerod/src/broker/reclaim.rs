//! What goes back: to programs when memory is short, to others' leases when the limit is reached, to a pool that others
//! were promised, and all of it while the operator drains the broker.
//!
//! Contract: stock that goes is counted as waste, once, in [`give_back`](Broker::give_back). Leases that are out stay.
//! The operator begins and ends a drain, no restart of the broker or of the host does ([`persist`](super::persist)).
//!
//! A manager of containers promises pages of a hugetlb pool to programs that do not ask the broker. Until they take
//! them the pages are free, and stock would have them. The manager says how much is promised and not taken: stock goes
//! back to the pool at once, and none is made of what is promised. Leases are made all the same: the manager knows of
//! them, and has promised what they leave.

use std::collections::{BTreeMap, BTreeSet};

use super::renew::Plan;
use super::shortage::LIMIT;
use super::{Broker, ClientId, Inode, Job, Refusal};
use crate::demand::{Rank, SURPLUS_NS, Target};
use crate::filler::Priority;
use crate::inode::Kind;
use crate::protocol::{Answer, Backing, Drain, Page, Reason};
use crate::stock::{Need, StockInode, alike};
use crate::tenant::{Payer, may_operate};

/// Part of the reclaimable stock that goes at each look under memory pressure, as a divisor.
/// Moved by: counter `pressure_bytes`.
const SHRINK: u64 = 4;

/// When the kernel has the memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Back {
    /// Before anything else is done.
    AtOnce,
    /// Nothing waits for it.
    Soon,
}

impl Back {
    /// It goes for another piece, which may be made of its pages at once. So those of a pool are back at once: a filler
    /// that found none would fail.
    pub fn for_another(backing: Backing) -> Back {
        if backing == Backing::Hugetlb { Back::AtOnce } else { Back::Soon }
    }
}

impl<I: Inode> Broker<I> {
    /// Gives back stock that `which` accepts, oldest first, until that many bytes went. Returns how many did.
    pub(super) fn give_back(
        &mut self,
        bytes: u64,
        back: Back,
        which: impl Fn(&StockInode<I>) -> bool,
    ) -> u64 {
        let mut gone = 0;
        while gone < bytes
            && let Some(inode) = self.stock.take_oldest(&which)
        {
            gone += self.waste(inode, back);
        }
        gone
    }

    /// A piece of stock goes unused.
    pub(super) fn waste(&mut self, inode: StockInode<I>, back: Back) -> u64 {
        let bytes = inode.bytes;
        self.counters.waste_bytes += bytes;
        match back {
            Back::AtOnce => {
                drop(inode);
                // What was read of the pool holds no longer.
                self.view.changed();
            }
            Back::Soon => inode.file.discard(),
        }
        bytes
    }

    /// Memory is short: a part of what the kernel can use goes back, oldest first. Pages of a
    /// hugetlb pool would go back to the pool, where no other program takes them.
    pub(super) fn shrink(&mut self) {
        let reclaimable = |inode: &StockInode<I>| inode.kind.backing != Backing::Hugetlb;
        let all: u64 = self.stock.iter().filter(|b| reclaimable(b)).map(|b| b.bytes).sum();
        let freed = self.give_back(all.div_ceil(SHRINK), Back::Soon, reclaimable);
        self.counters.pressure_bytes += freed;
    }

    /// A cgroup that is nearly full has a better use for what it paid for.
    pub(super) fn release_charged(&mut self) {
        let paid: BTreeSet<Kind> = self.stock.iter().map(|inode| inode.kind).collect();
        for kind in paid.into_iter().filter(|kind| kind.payer != Payer::BROKER) {
            let room = self.room(kind);
            if room.left < room.spare() {
                let freed = self.give_back(1, Back::Soon, |inode| inode.kind == kind);
                self.counters.pressure_bytes += freed;
            }
        }
    }

    /// A pool that was made smaller gets back what the stock has of it beyond what is left.
    pub(super) fn release_reserved(&mut self) {
        let of_pool = |inode: &&StockInode<I>| inode.kind.backing == Backing::Hugetlb;
        let kinds: BTreeSet<_> =
            self.stock.iter().filter(of_pool).map(|inode| inode.kind).collect();
        for kind in kinds {
            let surplus = self.view.host.pool(kind.node, kind.page).surplus * kind.page.bytes();
            self.give_back(surplus, Back::AtOnce, |inode| inode.kind == kind);
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
            for (target, have) in &mut counts {
                *have -= u64::from(alike(&target.need, &inode.kind, inode.bytes));
            }
            self.waste(inode, Back::Soon);
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
        for inode in self.stock.take_all(|_| at.next().is_some_and(|at| goes.contains(&at))) {
            let back = Back::for_another(inode.kind.backing);
            self.waste(inode, back);
        }
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

    /// Others were promised so much of a pool, from now on.
    pub(super) fn yields(
        &mut self,
        client: ClientId,
        page: Page,
        bytes: u64,
    ) -> Result<Answer, Refusal> {
        if !self.is_manager(client) {
            let text = "stock yields to root and the broker's own user; ask as one of them";
            return Err((Reason::Denied, text.into()));
        }
        self.planner.promised.insert(page, bytes);
        let pooled = |kind: &Kind| kind.backing == Backing::Hugetlb && kind.page == page;
        // Pages of a piece that is being made are free until its filler has them. It takes some before it
        // hears that it should stop.
        let stock = self.planner.jobs.iter().filter(|job| job.priority == Priority::Idle);
        let filling = stock.filter(|job| pooled(&job.kind)).map(|job| job.status.left).sum();
        let missing = bytes.saturating_sub(self.free_in_pools(page).saturating_sub(filling));
        // Its pages are in the pool before the answer is.
        self.give_back(missing, Back::AtOnce, |inode| pooled(&inode.kind));
        Ok(Answer::Done)
    }

    /// Whether a client may promise others pages: the operator, or its manager of containers, which may run in one
    /// and leases under names.
    fn is_manager(&self, client: ClientId) -> bool {
        let peer = self.ledger.clients.get(&client);
        let names =
            || self.ledger.tenant(client).is_ok_and(|tenant| !tenant.charge.files.is_empty());
        self.is_operator(client) || (peer.is_some_and(|peer| may_operate(peer.uid)) && names())
    }

    /// Whether a piece of stock of that kind would take what others were promised.
    pub(super) fn is_promised(&self, kind: Kind, bytes: u64) -> bool {
        let promised = self.planner.promised.get(&kind.page).copied().unwrap_or(0);
        let left = || self.free_in_pools(kind.page).saturating_sub(bytes);
        kind.backing == Backing::Hugetlb && promised > 0 && left() < promised
    }

    /// What is being made for stock is not made on where it would take what others were promised, or lie above a limit
    /// that was lowered.
    pub(super) fn cancel_surplus(&self, plan: &mut Plan<I>) {
        let stock = || self.planner.jobs.iter().filter(|job| job.priority == Priority::Idle);
        let is_over = |kind: Kind| {
            let alike = |other: &Kind| (other.backing, other.page) == (kind.backing, kind.page);
            let ready =
                self.stock.iter().filter(|inode| alike(&inode.kind)).map(|inode| inode.bytes);
            let making = stock().filter(|job| alike(&job.kind)).map(|job| job.bytes);
            ready.chain(making).sum::<u64>() > self.limit(kind)
        };
        let goes = |job: &&Job| self.is_promised(job.kind, job.status.left) || is_over(job.kind);
        plan.cancel.extend(stock().filter(goes).map(|job| job.serial));
    }

    /// Bytes of such pages that are free on all nodes.
    fn free_in_pools(&self, page: Page) -> u64 {
        let pools = self.view.nodes.iter().map(|&node| self.view.host.pool(node, page).free);
        pools.sum::<u64>() * page.bytes()
    }

    /// Leases no more, or leases again, from now on.
    pub(super) fn drains(&mut self, client: ClientId, drain: Drain) -> Result<Answer, Refusal> {
        if !self.is_operator(client) {
            let text = "root and the broker's own user drain it; ask as one of them";
            return Err((Reason::Denied, text.into()));
        }
        self.drained = drain == Drain::On;
        if self.drained {
            self.give_all_back();
        }
        Ok(Answer::Done)
    }

    /// An earlier broker was drained, or not.
    pub fn set_drained(&mut self, is_drained: bool) {
        self.drained = is_drained;
    }

    /// Whether it leases nothing.
    pub fn is_drained(&self) -> bool {
        self.drained
    }

    /// What a client is told meanwhile.
    pub(super) fn check_drain(&self) -> Result<(), Refusal> {
        if !self.drained {
            return Ok(());
        }
        let text = "the operator drains this broker for maintenance; lease on another host, or \
                    later: prezero stock --undrain ends it";
        Err((Reason::Drained, text.into()))
    }

    /// Ends what is being made, and gives back what was made meanwhile.
    pub(super) fn plan_drained(&mut self, plan: &mut Plan<I>) {
        plan.cancel = self.planner.jobs.iter().map(|job| job.serial).collect();
        self.give_all_back();
    }

    fn give_all_back(&mut self) {
        self.give_back(u64::MAX, Back::Soon, |_| true);
        // What was read of pools holds no longer.
        self.view.changed();
    }
}
