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
pub use leases::{Ends, Holder, Lease, Leases};

/// Stands for the user of a container whose user outside would be the operator: they share nothing.
/// Fixed: no user has that number.
const CONTAINED_OPERATOR: u32 = u32::MAX - 1;

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
    /// Connections of each party.
    pub parties: BTreeMap<Party, usize>,
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
        self.parties.clear();
        for peer in self.clients.values() {
            *self.parties.entry(self.party_of(peer)).or_default() += 1;
        }
    }

    /// What a tenant's memory is charged to.
    pub fn payer(&self, tenant: &Tenant) -> Payer {
        let at = self.charges.iter().position(|charge| *charge == tenant.charge).unwrap_or(0);
        Payer(u16::try_from(at).unwrap_or(0))
    }

    /// Whose places, turns and demand a client's are. Users that two tenants share are two parties: containers of
    /// both may run as root.
    pub fn party(&self, client: ClientId) -> Party {
        let none = Party { tenant: u16::MAX, uid: u32::MAX };
        self.clients.get(&client).map_or(none, |peer| self.party_of(peer))
    }

    /// The number of the tenant of that name.
    pub fn number(&self, name: &str) -> Option<u16> {
        let at = self.names.iter().position(|known| known == name)?;
        u16::try_from(at).ok()
    }

    /// The same of a process.
    pub fn party_of(&self, peer: &Peer) -> Party {
        let tenant = tenant::of(&self.tenants, peer);
        let tenant = tenant.and_then(|tenant| self.number(&tenant.name)).unwrap_or(u16::MAX);
        let uid = match tenant::may_operate(peer.uid) && peer.contained {
            true => CONTAINED_OPERATOR,
            false => self.owners.of(peer.uid),
        };
        Party { tenant, uid }
    }

    /// Connections of processes of this user, as far as the user alone tells; and the parties that these may be.
    pub fn connections(&self, uid: u32) -> (usize, usize) {
        let (owner, may_operate) = (self.owners.of(uid), tenant::may_operate(uid));
        let is_of =
            |party: &Party| party.uid == owner || (may_operate && party.uid == CONTAINED_OPERATOR);
        let of_user = self.parties.iter().filter(|(party, _)| is_of(party));
        let tenants = tenant::may_be(&self.tenants, uid);
        (of_user.map(|(_, count)| count).sum(), tenants * (1 + usize::from(may_operate)))
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
        *self.parties.entry(self.party_of(&peer)).or_default() += 1;
        self.clients.insert(id, peer);
    }

    /// A connection is gone.
    pub fn disconnect(&mut self, client: ClientId) {
        let Some(peer) = self.clients.remove(&client) else { return };
        let party = self.party_of(&peer);
        if let Some(count) = self.parties.get_mut(&party) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.parties.remove(&party);
            }
        }
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

    /// Bytes that a tenant may still lease, besides `pending` ones that it waits for.
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
