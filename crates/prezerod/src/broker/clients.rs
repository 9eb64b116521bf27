//! The clients that are connected, and their tenants.

use std::collections::BTreeSet;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

use super::log::Asker;
use super::{Broker, ClientId, Inode};
use crate::demand::Party;
use crate::protocol::{Answer, Reason, Request};
use crate::tenant::{self, Peer};

/// Places besides `connections` that are the operator's: it looks when there are none left.
/// Moved by: `broker/tests/bounds.rs`.
const OPERATORS: usize = 16;
/// Of the last of `connections`, as a divisor, a user has no more than this part of what it leaves: a new one finds
/// places after others have taken as many as they may.
/// Moved by: `broker/tests/parties.rs`.
const LAST: usize = 4;

/// The parties of a tenant.
fn all_of(tenant: u16) -> std::ops::RangeInclusive<Party> {
    Party { tenant, uid: 0 }..=Party { tenant, uid: u32::MAX }
}

impl<I: Inode> Broker<I> {
    /// A process of this user wants to connect: what can be said before anything is read of it.
    /// A stranger, and a client above a limit, cost no more than that.
    ///
    /// # Errors
    /// There are too many already, or no tenant has such a user.
    pub fn may_connect(&mut self, uid: u32) -> Result<(), Answer> {
        let (of_user, parties) = self.ledger.connections(uid);
        let most = self.settings.connections_per_user.saturating_mul(parties.max(1));
        let has_place = tenant::may_operate(uid) || self.has_place(of_user / parties.max(1));
        let is_crowd = of_user >= most || !has_place;
        if self.is_full(tenant::may_operate(uid)) || is_crowd {
            return Err(self.crowded(Asker::of_user(uid)));
        }
        if parties == 0 {
            let text = format!("no tenant for uid {uid}; name it in [[tenant]]");
            return Err(self.turn_away(Asker::of_user(uid), (Reason::Denied, text)));
        }
        Ok(())
    }

    /// A client connected that [may](Broker::may_connect).
    ///
    /// # Errors
    /// There are too many already, or it may not lease: strangers take no client's place.
    pub fn connect(&mut self, peer: Peer) -> Result<ClientId, Answer> {
        self.may_connect(peer.uid)?;
        // What its user alone did not tell.
        let party = self.ledger.party_of(&peer);
        let of_party = self.ledger.parties.get(&party).copied().unwrap_or(0);
        let is_crowd =
            !self.has_place(of_party) || self.free() <= self.kept_for_others(party.tenant);
        if self.is_full(peer.is_operator())
            || of_party >= self.settings.connections_per_user
            || (is_crowd && !peer.is_operator())
        {
            return Err(self.crowded(self.asker(&peer)));
        }
        // Leases are told apart by processes that can be named.
        let unnamed = "a process of another PID namespace; run prezerod in that one";
        let named = match peer.pid {
            ..=0 => Err((Reason::Denied, unnamed.into())),
            _ => self.ledger.tenant_of(&peer),
        };
        if let Err(refusal) = named {
            return Err(self.turn_away(self.asker(&peer), refusal));
        }
        self.counters.connections += 1;
        let id = self.number();
        self.ledger.connect(id, peer);
        Ok(id)
    }

    fn free(&self) -> usize {
        self.settings.connections.saturating_sub(self.ledger.clients.len())
    }

    /// Whether there is a place for one more of a user that has this number of them.
    fn has_place(&self, taken: usize) -> bool {
        self.free() > self.settings.connections / LAST || taken * LAST < self.free()
    }

    /// Places that other tenants have not taken yet, of those that each is sure of.
    fn kept_for_others(&self, tenant: u16) -> usize {
        let all = self.ledger.tenants.iter().filter_map(|one| self.ledger.number(&one.name));
        let others = all.filter(|other| *other != tenant);
        let each = (self.settings.connections / LAST / self.ledger.tenants.len().max(1)).max(1);
        let taken =
            |tenant| self.ledger.parties.range(all_of(tenant)).map(|(_, count)| count).sum();
        others.map(|other| each.saturating_sub(taken(other))).sum()
    }

    /// Whether all places are taken, the operator's own included.
    fn is_full(&self, is_operator: bool) -> bool {
        let places = self.settings.connections + if is_operator { OPERATORS } else { 0 };
        self.ledger.clients.len() >= places
    }

    fn crowded(&mut self, asker: Asker) -> Answer {
        self.turn_away(asker, (Reason::Busy, "too many connections; close some".into()))
    }

    /// Another user's connection would leave the broker no descriptor.
    pub fn no_descriptor(&mut self) -> Answer {
        self.counters.turned_away += 1;
        self.no((Reason::Busy, "the broker has no descriptor left; ask again".into()))
    }

    /// A packet was no frame.
    pub fn malformed(&mut self, text: String) -> Answer {
        self.counters.malformed += 1;
        self.no((Reason::Malformed, text))
    }

    /// The directories of a client's tenant, in which its leases are files.
    pub fn files_of(&self, client: ClientId) -> Vec<PathBuf> {
        self.ledger.tenant(client).map(|tenant| tenant.charge.files).unwrap_or_default()
    }

    /// The tenant of a lease that is out.
    pub fn tenant_of_lease(&self, number: u64) -> Option<&str> {
        self.ledger.leases.get(number).map(|lease| lease.tenant.as_str())
    }

    /// The tenant whose quota a request exceeds, by what is known: some of its leases may be over.
    pub fn exceeded(&self, client: ClientId, request: &Request) -> Option<String> {
        let want = request.want()?;
        let tenant = self.ledger.tenant(client).ok()?;
        (want.bytes > self.quota_left(&tenant)).then_some(tenant.name)
    }

    /// Whether this client waits for something.
    pub fn waits(&self, client: ClientId) -> bool {
        self.planner.waits.iter().any(|wait| wait.client == client)
    }

    /// Whether a client is of the operator: root or the broker's own user, in no container.
    pub fn is_operator(&self, client: ClientId) -> bool {
        self.ledger.clients.get(&client).is_some_and(Peer::is_operator)
    }

    /// The cgroups of a process, and whether it lives in a container; `None`: there is no more to know of it.
    pub fn whereabouts(&self, pid: i32, process: Option<&OwnedFd>) -> (Vec<String>, bool) {
        let is_contained = |pidfd: &OwnedFd| self.view.host.is_contained(pidfd.as_raw_fd());
        (self.view.host.cgroups(pid), process.is_none_or(is_contained))
    }

    /// Reads a client's groups again, since new settings may name others. Returns the party that the client is of now.
    pub fn regroup(&mut self, client: ClientId, groups: impl FnOnce() -> Vec<u32>) -> Party {
        if let Some(mut peer) = self.ledger.clients.get(&client).cloned() {
            peer.groups = self.named_groups(groups);
            self.ledger.disconnect(client);
            self.ledger.connect(client, peer);
        }
        self.ledger.party(client)
    }

    /// Those of a client's groups that tenants name. A process may be in 65,536: where none is named none is read.
    pub fn named_groups(&self, groups: impl FnOnce() -> Vec<u32>) -> Vec<u32> {
        let tenants = self.ledger.tenants.iter();
        let named: BTreeSet<u32> = tenants.flat_map(|tenant| &tenant.gids).copied().collect();
        let mut groups = if named.is_empty() { vec![] } else { groups() };
        groups.retain(|gid| named.contains(gid));
        groups.shrink_to_fit();
        groups
    }
}
