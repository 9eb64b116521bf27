//! From the stock to a client: fresh, audited, cut to size, sealed, written down.

use super::{Broker, ClientId, Inode, Refusal};
use crate::inode::Kind;
use crate::inode::audit::Finding;
use crate::ledger::{Ends, Lease};
use crate::protocol::{Answer, Charged, Granted, Reason, Want};
use crate::stock::{Need, StockInode};
use crate::tenant::{Payer, Peer, Rank, Tenant};

impl<I: Inode> Broker<I> {
    pub(super) fn kept_back(&self, rank: Rank) -> u64 {
        match rank {
            Rank::Critical => 0,
            Rank::Normal => self.settings.reserve,
        }
    }

    /// The inode that fits, audited and cut to size.
    pub(super) fn take(&mut self, need: &Need, rank: Rank) -> Option<StockInode<I>> {
        let reserve = self.kept_back(rank);
        while let Some(inode) = self.stock.take(need, reserve) {
            if let Some(ready) = self.ready(inode, &need.want) {
                return Some(ready);
            }
        }
        None
    }

    /// The inode, if it may be handed out for this; it is gone otherwise.
    pub(super) fn ready(&mut self, mut inode: StockInode<I>, want: &Want) -> Option<StockInode<I>> {
        let depth = self.settings.audit;
        let finding = match inode.file.is_fresh(inode.bytes) {
            true => inode.file.audit(inode.bytes, depth, &mut |below| fastrand::u64(..below)),
            false => Finding::Unreadable,
        };
        self.counters.audits += 1;
        let Finding::Clean(bytes) = finding else {
            self.quarantine(inode.kind, inode.bytes, finding);
            return None;
        };
        self.counters.audited_bytes += bytes;
        let surplus = inode.bytes - want.bytes;
        if surplus > 0 {
            if !inode.file.truncate(want.bytes) {
                self.counters.waste_bytes += inode.bytes;
                return None;
            }
            self.counters.waste_bytes += surplus;
            self.counters.truncated_bytes += surplus;
            inode.bytes = want.bytes;
        }
        Some(inode)
    }

    /// An inode was not what it should be: nothing of its kind is leased any more.
    fn quarantine(&mut self, kind: Kind, bytes: u64, finding: Finding) {
        self.counters.audit_failures += 1;
        self.counters.waste_bytes += bytes;
        prezero_sys::log!(
            "prezerod: audit: {} pages of {} on node {}: {finding:?}; nothing of that kind is \
             leased any more; look at the kernel's log and the memory, then restart",
            kind.backing.name(),
            kind.page,
            kind.node
        );
        let kind = kind.unpaid();
        self.stock.quarantined.insert(kind);
        while let Some(other) = self.stock.take_oldest(|other| other.kind.unpaid() == kind) {
            self.counters.waste_bytes += other.bytes;
            other.file.discard();
        }
    }

    /// Seals the inode and writes the lease down.
    pub(super) fn grant(
        &mut self,
        now: u64,
        client: ClientId,
        tenant: &Tenant,
        inode: StockInode<I>,
        waited_ns: u64,
    ) -> Result<(Granted, I), Answer> {
        let StockInode { file, kind, bytes, made_ns, cost_ns } = inode;
        let (Some(number_in_fs), Some(peer)) =
            (file.seal(), self.ledger.clients.get(&client).map(holder))
        else {
            self.counters.waste_bytes += bytes;
            return Err(self.no(Reason::Kernel, "the kernel would not seal it; ask again".into()));
        };
        self.planner.start.begins(now);
        self.arrived(&kind, bytes);
        let number = self.number();
        self.counters.leased_bytes += bytes;
        self.counters.waited(&tenant.name, waited_ns);
        self.ledger.leases.insert(Lease {
            number,
            peer,
            tenant: tenant.name.clone(),
            kind,
            bytes,
            inode: number_in_fs,
            device: 0,
            since: now,
            cost_ns,
            ends: Ends::Process,
        });
        let granted = Granted {
            lease: number,
            bytes,
            page: kind.page,
            node: kind.node,
            backing: kind.backing,
            inode: number_in_fs,
            age_ns: now.saturating_sub(made_ns),
            cost_ns,
            waited_ns,
            charged: match kind.payer {
                Payer::BROKER => Charged::Broker,
                _ => Charged::Tenant,
            },
        };
        Ok((granted, file))
    }
}

/// A process as its lease shows it: its groups do not.
fn holder(peer: &Peer) -> Peer {
    Peer { groups: vec![], cgroups: peer.cgroups.clone(), ..*peer }
}

/// What a client is told of it.
pub(super) fn quarantine_text(want: &Want) -> Refusal {
    let text = format!(
        "an audit found memory of {} pages that was not zero; tell the operator",
        want.page
    );
    (Reason::Audit, text)
}
