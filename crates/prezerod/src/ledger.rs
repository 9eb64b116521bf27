//! The ledger: which client holds what, and which cgroup pays for it. Tenants, connections, leases that are out, debts.
//!
//! Contract: each sum is kept as it changes, and none is found by looking at all leases. The ledger knows no stock and
//! no plan: what a tenant is promised besides its leases its caller says. Told the time; reads no clock and no file.

pub mod debts;
pub mod leases;

use std::collections::BTreeMap;
use std::path::PathBuf;

use prezero_host::Size;

use crate::demand::Party;
use crate::host::accounts::Owners;
use crate::protocol::{Backing, Reason, Refusal};
use crate::tenant::{self, Charge, ClientId, Payer, Peer, Tenant};
use debts::{Debts, Pages};
pub use leases::{Ends, Lease, Leases};

/// See the module.
#[derive(Debug, Default)]
pub struct Ledger {
    /// Those that may lease.
    pub tenants: Vec<Tenant>,
    /// Names of tenants, in the order in which the broker learnt of them.
    pub names: Vec<String>,
    /// Charges by [`Payer`]; the first is the broker's own cgroup.
    pub charges: Vec<Charge>,
    /// Connections.
    pub clients: BTreeMap<ClientId, Peer>,
    /// Owners of subordinate users.
    pub owners: Owners,
    /// Connections by the user that owns theirs.
    pub users: BTreeMap<u32, usize>,
    /// Leases that are out.
    pub leases: Leases,
    /// What ended leases left in use.
    pub debts: Debts,
}

impl Ledger {
    /// Other tenants, from now on; `owner` and the superuser if there are none.
    pub fn reload(&mut self, tenants: &[Tenant], owner: u32, owners: Owners) {
        self.tenants = tenants.to_vec();
        if self.tenants.is_empty() {
            self.tenants.push(Tenant::only(owner));
        }
        self.owners = owners;
        self.users.clear();
        for peer in self.clients.values() {
            *self.users.entry(self.owners.of(peer.uid)).or_default() += 1;
        }
        if self.charges.is_empty() {
            self.charges.push(Charge::default());
        }
        for tenant in &self.tenants {
            if !self.names.contains(&tenant.name) {
                self.names.push(tenant.name.clone());
            }
            if !self.charges.contains(&tenant.charge) {
                self.charges.push(tenant.charge.clone());
            }
        }
    }

    /// What a tenant's memory is charged to.
    pub fn payer(&self, tenant: &Tenant) -> Payer {
        let at = self.charges.iter().position(|charge| *charge == tenant.charge).unwrap_or(0);
        Payer(u16::try_from(at).unwrap_or(0))
    }

    /// Whose demand a request of this client is.
    pub fn party(&self, client: ClientId, tenant: &Tenant) -> Party {
        let known = self.names.iter().position(|name| *name == tenant.name);
        let tenant = known.and_then(|at| u16::try_from(at).ok()).unwrap_or(u16::MAX);
        let uid = self.clients.get(&client).map_or(u32::MAX, |peer| self.owners.of(peer.uid));
        Party { tenant, uid }
    }

    /// The cgroup of a payer; `None`: the broker's own.
    pub fn charged(&self, payer: Payer) -> Option<&str> {
        self.charges.get(usize::from(payer.0))?.cgroup.as_deref()
    }

    /// The directories in which a payer's memory is files; none: its leases are descriptors.
    pub fn files(&self, payer: Payer) -> &[PathBuf] {
        self.charges.get(usize::from(payer.0)).map_or(&[], |charge| &charge.files)
    }

    /// All directories in which leases are files.
    pub fn dirs(&self) -> impl Iterator<Item = &PathBuf> {
        self.charges.iter().flat_map(|charge| &charge.files)
    }

    /// A connection is there.
    pub fn connect(&mut self, id: ClientId, peer: Peer) {
        *self.users.entry(self.owners.of(peer.uid)).or_default() += 1;
        self.clients.insert(id, peer);
    }

    /// A connection is gone.
    pub fn disconnect(&mut self, client: ClientId) {
        let Some(peer) = self.clients.remove(&client) else { return };
        let owner = self.owners.of(peer.uid);
        if let Some(count) = self.users.get_mut(&owner) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.users.remove(&owner);
            }
        }
    }

    /// The user of a client.
    pub fn uid(&self, client: ClientId) -> u32 {
        self.clients.get(&client).map_or(u32::MAX, |peer| peer.uid)
    }

    /// The tenant of a client.
    ///
    /// # Errors
    /// It has none.
    pub fn tenant(&self, client: ClientId) -> Result<Tenant, Refusal> {
        let peer = self.clients.get(&client).ok_or((Reason::Denied, String::new()))?;
        self.tenant_of(peer)
    }

    /// The tenant of a process.
    ///
    /// # Errors
    /// It has none.
    pub fn tenant_of(&self, peer: &Peer) -> Result<Tenant, Refusal> {
        tenant::of(&self.tenants, peer)
            .cloned()
            .ok_or_else(|| (Reason::Denied, format!("no tenant for {peer}; name it in [[tenant]]")))
    }

    /// Bytes that a tenant may still lease, besides `pending` ones that it waits for or has reserved.
    pub fn quota_left(&self, tenant: &Tenant, pending: u64) -> u64 {
        let Some(quota) = tenant.quota else { return u64::MAX };
        let leased = self.leases.of_tenant(&tenant.name) + self.debts.of(&tenant.name);
        quota.saturating_sub(leased + pending)
    }

    /// A lease is over: what it had should be free now.
    pub fn gave_back(&mut self, now: u64, lease: &Lease) {
        if let Some(pages) = self.counted(lease) {
            self.debts.ended(now, pages, &lease.tenant, lease.bytes);
            self.debts.is_behind = true;
        }
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
    ///
    /// # Errors
    /// It does, with the mend.
    pub fn check_debt(&self, tenant: &Tenant) -> Result<(), Refusal> {
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
    pub fn owed_text(&self, tenant: &Tenant) -> String {
        match self.debts.of(&tenant.name) {
            0 => String::new(),
            owed => format!(
                " ({} of leases that it gave back may still be pinned)",
                Size(owed as usize)
            ),
        }
    }
}
