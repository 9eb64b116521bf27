//! What the broker leaves to others in a hugetlb pool.
//!
//! A manager of containers promises pages of the pool to programs that do not ask the broker. Until they
//! take them the pages are free, and stock would have them. The manager says how much is promised and
//! not taken: stock goes back to the pool at once, and none is made of what is promised. Leases are made
//! all the same: the manager knows of them, and has promised what they leave.

use super::plan::Plan;
use super::{Broker, ClientId, Inode, Refusal};
use crate::filler::Priority;
use crate::inode::Kind;
use crate::protocol::{Answer, Backing, Page, Reason};
use crate::tenant::may_operate;

impl<I: Inode> Broker<I> {
    /// Others were promised so much, from now on.
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
        let filling = self
            .planner
            .jobs
            .iter()
            .filter(|job| job.priority == Priority::Idle && pooled(&job.kind));
        let filling = filling.map(|job| job.status.left).sum();
        let free = self.free_in_pools(page).saturating_sub(filling);
        let mut missing = bytes.saturating_sub(free);
        while missing > 0 {
            let Some(inode) = self.stock.take_oldest(|inode| pooled(&inode.kind)) else { break };
            missing = missing.saturating_sub(inode.bytes);
            self.counters.waste_bytes += inode.bytes;
            // Closed here: its pages are in the pool before the answer is.
            drop(inode);
            // What was read of the pool holds no longer.
            self.view.changed();
        }
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

    /// What is being made for stock and would take what others were promised is not made on.
    pub(super) fn cancel_promised(&self, plan: &mut Plan<I>) {
        let stock = self.planner.jobs.iter().filter(|job| job.priority == Priority::Idle);
        let over = stock.filter(|job| self.is_promised(job.kind, job.status.left));
        plan.cancel.extend(over.map(|job| job.serial));
    }

    /// Bytes of such pages that are free on all nodes.
    fn free_in_pools(&self, page: Page) -> u64 {
        let pools = self.view.nodes.iter().map(|&node| self.view.host.pool(node, page).free);
        pools.sum::<u64>() * page.bytes()
    }
}
