//! What tenants owe: the kernel's numbers against what the broker knows to be in use.

use prezero_host::Size;

use super::debts::{Pages, Unaccounted};
use super::leases::Lease;
use super::{Broker, Inode, Refusal};
use crate::protocol::{Backing, Page, Reason};
use crate::tenant::Tenant;

/// The numbers are read this often while leases with a quota are out, ns, and at each end of one.
/// Moved by: `ps -o cputime` of the broker.
const RECONCILE_NS: u64 = 200_000_000;

impl<I: Inode> Broker<I> {
    /// A lease is over: what it had should be free now.
    pub(super) fn gave_back(&mut self, now: u64, lease: &Lease) {
        if let Some(pages) = self.counted(lease) {
            self.debts.ended(now, pages, &lease.tenant, lease.bytes);
            self.debts.is_behind = true;
        }
    }

    /// Compares what the kernel counts with what is known, if leases ended or it is time.
    pub fn reconcile(&mut self, now: u64) {
        let has_quota = self.tenants.iter().any(|tenant| tenant.quota.is_some());
        let is_due = now.saturating_sub(self.debts.reconciled_at) >= RECONCILE_NS
            || self.debts.reconciled_at == 0;
        if !has_quota || !(is_due || self.debts.is_behind) {
            return;
        }
        (self.debts.reconciled_at, self.debts.is_behind) = (now, false);
        self.changed();
        if let Some(unaccounted) = self.cgroups.unaccounted() {
            self.measured(
                now,
                Pages::Memory,
                Unaccounted { least: unaccounted, most: unaccounted },
            );
        }
        for page in Page::ALL {
            if self.nodes.iter().any(|&node| self.host.pool(node, page).total > 0) {
                let unaccounted = self.unaccounted(page);
                self.measured(now, Pages::Pool(page), unaccounted);
            }
        }
    }

    fn measured(&mut self, now: u64, pages: Pages, unaccounted: Unaccounted) {
        let holders = self.leases.tenants().map(|(tenant, _)| tenant);
        self.debts.measured(now, pages, unaccounted, holders);
    }

    /// Bytes of pools' pages that are in use, and neither leased nor in stock.
    fn unaccounted(&self, page: Page) -> Unaccounted {
        let own = self.cgroups.pooled(page);
        let used = own.unwrap_or_else(|| self.host.pooled(page));
        let counts = |kind: &crate::inode::Kind| {
            let pool = kind.backing == Backing::Hugetlb && kind.page == page;
            pool && (own.is_none() || self.charged(kind.payer).is_none())
        };
        let leased = self.leases.kinds().filter(|(kind, _)| counts(kind)).map(|(_, bytes)| bytes);
        let reserved =
            self.reserved.iter().map(|reserved| &reserved.inode).chain(self.stock.iter());
        let reserved = reserved.filter(|inode| counts(&inode.kind)).map(|inode| inode.bytes);
        let making = self.jobs.iter().filter(|job| counts(&job.kind)).map(|job| job.bytes);
        let most = used.saturating_sub(leased.chain(reserved).sum());
        Unaccounted { least: most.saturating_sub(making.sum()), most }
    }

    /// The pages that a lease's are counted with; `None`: another cgroup pays, and its limit holds.
    fn counted(&self, lease: &Lease) -> Option<Pages> {
        match lease.kind.backing {
            Backing::Hugetlb => Some(Pages::Pool(lease.kind.page)),
            Backing::Thp | Backing::Tmpfs => {
                self.charged(lease.kind.payer).is_none().then_some(Pages::Memory)
            }
        }
    }

    /// Whether a tenant keeps what it gave back.
    pub(super) fn check_debt(&self, tenant: &Tenant) -> Result<(), Refusal> {
        let owed = self.debts.owed_alone(&tenant.name);
        if owed == 0 || tenant.quota.is_none() {
            return Ok(());
        }
        let (name, owed) = (&tenant.name, Size(owed as usize));
        let text = format!(
            "tenant {name} gave leases back of which {owed} are still in use: pages are pinned by a \
             pipe, io_uring, RDMA or a device; end that first"
        );
        Err((Reason::Quota, text))
    }

    /// What a refusal for a quota adds where debts count.
    pub(super) fn owed_text(&self, tenant: &Tenant) -> String {
        match self.debts.of(&tenant.name) {
            0 => String::new(),
            owed => format!(
                " ({} of leases that it gave back may still be pinned)",
                Size(owed as usize)
            ),
        }
    }
}
