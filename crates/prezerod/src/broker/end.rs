//! How leases and connections end, and what tenants owe then: the kernel's numbers against what the broker knows to be in
//! use.

use super::{Broker, ClientId, Inode};
use crate::ledger::debts::{OTHERS, Pages, Unaccounted};
use crate::protocol::{Backing, Page};

/// The numbers are read this often while leases with a quota are out, ns, and at each end of one.
/// Moved by: `ps -o cputime` of the broker.
const RECONCILE_NS: u64 = 200_000_000;

impl<I: Inode> Broker<I> {
    /// A connection is gone, and what it waited for.
    pub fn disconnect(&mut self, client: ClientId) {
        self.ledger.disconnect(client);
        self.withdraw(client);
    }

    /// A connection is heard no more, and has its place still.
    pub fn withdraw(&mut self, client: ClientId) {
        self.planner.withdraw(client);
    }

    /// A process is gone, and with it those of its leases that are known by nothing else.
    pub fn exited(&mut self, now: u64, pid: i32) {
        for lease in self.ledger.leases.exited(pid) {
            self.ledger.gave_back(now, &lease);
        }
    }

    /// The memory of a lease is watched: [`ended`](Broker::ended) will tell when it is gone.
    pub fn ends_with_memory(&mut self, number: u64, device: u64) {
        self.ledger.leases.ends_with_memory(number, device);
    }

    /// The memory of a lease is gone.
    pub fn ended(&mut self, now: u64, number: u64) {
        if let Some(lease) = self.ledger.leases.remove(number) {
            self.ledger.gave_back(now, &lease);
        }
    }

    /// The lease did not reach its client; the inode must be dropped.
    pub fn undelivered(&mut self, number: u64) {
        self.counters.lost += 1;
        self.ledger.leases.remove(number);
    }

    /// Compares what the kernel counts with what is known, if leases ended or it is time.
    pub fn reconcile(&mut self, now: u64) {
        let has_quota = self.ledger.tenants.iter().any(|tenant| tenant.quota.is_some());
        let is_due = now.saturating_sub(self.ledger.debts.reconciled_at) >= RECONCILE_NS
            || self.ledger.debts.reconciled_at == 0;
        if !has_quota || !(is_due || self.ledger.debts.is_behind) {
            return;
        }
        (self.ledger.debts.reconciled_at, self.ledger.debts.is_behind) = (now, false);
        self.view.changed();
        if let Some(unaccounted) = self.view.cgroups.unaccounted() {
            self.measured(
                now,
                Pages::Memory,
                Unaccounted { least: unaccounted, most: unaccounted },
            );
        }
        for page in Page::ALL {
            if self.view.nodes.iter().any(|&node| self.view.host.pool(node, page).total > 0) {
                let unaccounted = self.unaccounted(page);
                self.measured(now, Pages::Pool(page), unaccounted);
            }
        }
    }

    fn measured(&mut self, now: u64, pages: Pages, unaccounted: Unaccounted) {
        let holders: Vec<&str> = match pages {
            Pages::Memory => self.ledger.leases.tenants().map(|(tenant, _)| tenant).collect(),
            // Without a count of the broker's cgroup the number is the host's.
            Pages::Pool(page) if self.view.cgroups.pooled(page).is_none() => vec![OTHERS],
            Pages::Pool(_) => vec![],
        };
        self.ledger.debts.measured(now, pages, unaccounted, holders.into_iter());
    }

    /// Bytes of pools' pages that are in use, and neither leased nor in stock.
    fn unaccounted(&self, page: Page) -> Unaccounted {
        let own = self.view.cgroups.pooled(page);
        let used = own.unwrap_or_else(|| self.view.host.pooled(page));
        let counts = |kind: &crate::inode::Kind| {
            let pool = kind.backing == Backing::Hugetlb && kind.page == page;
            pool && (own.is_none() || self.ledger.charged(kind.payer).is_none())
        };
        let leased =
            self.ledger.leases.kinds().filter(|(kind, _)| counts(kind)).map(|(_, bytes)| bytes);
        let ready = self.stock.iter().filter(|inode| counts(&inode.kind)).map(|inode| inode.bytes);
        let making = self.planner.jobs.iter().filter(|job| counts(&job.kind)).map(|job| job.bytes);
        let most = used.saturating_sub(leased.chain(ready).sum());
        Unaccounted { least: most.saturating_sub(making.sum()), most }
    }
}
