//! Who is connected, and for which tenant.

use super::{Broker, ClientId, Inode, Refusal};
use crate::protocol::{Answer, Reason};
use crate::tenant::{self, Peer, Tenant};

impl<I: Inode> Broker<I> {
    /// Somebody connected.
    ///
    /// # Errors
    /// There are too many already, or he may not lease: strangers take nobody's place.
    pub fn connect(&mut self, peer: Peer) -> Result<ClientId, Answer> {
        let of_user = self.clients.values().filter(|other| other.uid == peer.uid).count();
        if self.clients.len() >= self.settings.connections
            || of_user >= self.settings.connections_per_user
        {
            self.counters.turned_away += 1;
            return Err(self.no(Reason::Busy, "too many connections; close some".into()));
        }
        if peer.pid <= 0 {
            // Leases end with a process that can be named.
            self.counters.turned_away += 1;
            let text = "a process of another PID namespace; run prezerod in that one";
            return Err(self.no(Reason::Denied, text.into()));
        }
        if let Err((reason, text)) = self.tenant_of(&peer) {
            self.counters.turned_away += 1;
            return Err(self.no(reason, text));
        }
        self.counters.connections += 1;
        let id = self.number();
        self.clients.insert(id, peer);
        Ok(id)
    }

    /// A connection is gone, and what it waited for.
    pub fn disconnect(&mut self, client: ClientId) {
        self.clients.remove(&client);
        self.waits.retain(|wait| wait.client != client);
        while let Some(at) = self.held.iter().position(|held| held.client == client) {
            self.stock.put(self.held.remove(at).blank);
        }
    }

    /// A process is gone, and with it what it had leased.
    pub fn exited(&mut self, pid: i32) {
        self.leases.retain(|lease| lease.peer.pid != pid);
    }

    /// The lease did not reach its client; the inode must be dropped.
    pub fn undelivered(&mut self, number: u64) {
        self.counters.lost += 1;
        self.leases.retain(|lease| lease.number != number);
    }

    /// Whether this client waits for something, or keeps something.
    pub fn is_served(&self, client: ClientId) -> bool {
        self.waits.iter().any(|wait| wait.client == client)
            || self.held.iter().any(|held| held.client == client)
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

    /// The cgroup of a process.
    pub fn cgroup(&self, pid: i32) -> Option<String> {
        self.host.cgroup(pid)
    }
}
