//! Who is connected, and for which tenant.

use std::path::PathBuf;

use super::{Broker, ClientId, Inode, Refusal};
use crate::protocol::{Answer, Reason, Request};
use crate::tenant::{self, Peer, Tenant};

/// Places besides `connections` that are the operator's: it looks when there are none left.
/// Moved by: `broker/tests/bounds.rs`.
const OPERATORS: usize = 16;

/// Root, or the broker's own user.
fn is_operator(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::getuid().as_raw()
}

impl<I: Inode> Broker<I> {
    /// A process of this user wants to connect: what can be said before anything is read of it.
    /// A stranger, and a client above a limit, cost no more than that.
    ///
    /// # Errors
    /// There are too many already, or no tenant has such a user.
    pub fn may_connect(&mut self, uid: u32) -> Result<(), Answer> {
        let of_user = self.users.get(&self.owners.of(uid)).copied().unwrap_or(0);
        let places = self.settings.connections + if is_operator(uid) { OPERATORS } else { 0 };
        if self.clients.len() >= places || of_user >= self.settings.connections_per_user {
            self.counters.turned_away += 1;
            return Err(self.no(Reason::Busy, "too many connections; close some".into()));
        }
        if !tenant::may_be(&self.tenants, uid) {
            self.counters.turned_away += 1;
            let text = format!("no tenant for uid {uid}; name it in [[tenant]]");
            return Err(self.no(Reason::Denied, text));
        }
        Ok(())
    }

    /// A client connected that [may](Broker::may_connect).
    ///
    /// # Errors
    /// There are too many already, or it may not lease: strangers take no client's place.
    pub fn connect(&mut self, mut peer: Peer) -> Result<ClientId, Answer> {
        self.may_connect(peer.uid)?;
        if peer.pid <= 0 {
            // Leases are told apart by processes that can be named.
            self.counters.turned_away += 1;
            let text = "a process of another PID namespace; run prezerod in that one";
            return Err(self.no(Reason::Denied, text.into()));
        }
        if let Err((reason, text)) = self.tenant_of(&peer) {
            self.counters.turned_away += 1;
            return Err(self.no(reason, text));
        }
        // A process may be in 65,536 groups, and the broker remembers it for each of its leases.
        let named = |gid: &u32| self.tenants.iter().any(|tenant| tenant.gids.contains(gid));
        peer.groups.retain(named);
        peer.groups.shrink_to_fit();
        self.counters.connections += 1;
        let id = self.number();
        *self.users.entry(self.owners.of(peer.uid)).or_default() += 1;
        self.clients.insert(id, peer);
        Ok(id)
    }

    /// A connection is gone, and what it waited for.
    pub fn disconnect(&mut self, client: ClientId) {
        if let Some(peer) = self.clients.remove(&client)
            && let owner = self.owners.of(peer.uid)
            && let Some(count) = self.users.get_mut(&owner)
        {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.users.remove(&owner);
            }
        }
        self.withdraw(client);
        while let Some(at) = self.reserved.iter().position(|reserved| reserved.client == client) {
            self.stock.put(self.reserved.remove(at).inode);
        }
    }

    /// A process is gone, and with it those of its leases that are known by nothing else.
    pub fn exited(&mut self, now: u64, pid: i32) {
        for lease in self.leases.exited(pid) {
            self.gave_back(now, &lease);
        }
    }

    /// The memory of a lease is watched: [`ended`](Broker::ended) will tell when it is gone.
    pub fn ends_with_memory(&mut self, number: u64) {
        self.leases.ends_with_memory(number);
    }

    /// The memory of a lease is gone.
    pub fn ended(&mut self, now: u64, number: u64) {
        if let Some(lease) = self.leases.remove(number) {
            self.gave_back(now, &lease);
        }
    }

    /// The directories of a client's tenant, in which its leases are files.
    pub fn files_of(&self, client: ClientId) -> Vec<PathBuf> {
        self.tenant(client).map(|tenant| tenant.charge.files).unwrap_or_default()
    }

    /// The tenant of a lease that is out.
    pub fn tenant_of_lease(&self, number: u64) -> Option<&str> {
        self.leases.get(number).map(|lease| lease.tenant.as_str())
    }

    /// The tenant whose quota a request exceeds, by what is known: some of its leases may be over.
    pub fn exceeded(&self, client: ClientId, request: &Request) -> Option<String> {
        let (Request::Lease { want, .. }
        | Request::LeaseNamed { want, .. }
        | Request::Reserve { want, .. }) = request
        else {
            return None;
        };
        let tenant = self.tenant(client).ok()?;
        (want.bytes > self.quota_left(&tenant)).then_some(tenant.name)
    }

    /// The lease did not reach its client; the inode must be dropped.
    pub fn undelivered(&mut self, number: u64) {
        self.counters.lost += 1;
        self.leases.remove(number);
    }

    /// Whether this client waits for something, or keeps something.
    pub fn is_served(&self, client: ClientId) -> bool {
        self.waits.iter().any(|wait| wait.client == client)
            || self.reserved.iter().any(|reserved| reserved.client == client)
    }

    /// The user of a client.
    pub(super) fn uid(&self, client: ClientId) -> u32 {
        self.clients.get(&client).map_or(u32::MAX, |peer| peer.uid)
    }

    /// Whether a client is of the operator: root, or the broker's own user.
    pub(super) fn is_operator(&self, client: ClientId) -> bool {
        is_operator(self.uid(client))
    }

    /// The user whose places and turns a user takes.
    pub fn owner(&self, uid: u32) -> u32 {
        self.owners.of(uid)
    }

    pub(super) fn tenant(&self, client: ClientId) -> Result<Tenant, Refusal> {
        let peer = self.clients.get(&client).ok_or((Reason::Denied, String::new()))?;
        self.tenant_of(peer)
    }

    pub(super) fn tenant_of(&self, peer: &Peer) -> Result<Tenant, Refusal> {
        tenant::of(&self.tenants, peer)
            .cloned()
            .ok_or_else(|| (Reason::Denied, format!("no tenant for {peer}; name it in [[tenant]]")))
    }

    /// The cgroups of a process.
    pub fn cgroups(&self, pid: i32) -> Vec<String> {
        self.host.cgroups(pid)
    }
}
