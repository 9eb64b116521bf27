//! From the stock to a client: fresh, audited, cut to size, sealed, written down.

use super::leases::{Ends, Lease};
use super::{Broker, ClientId, Inode, Refusal};
use crate::audit::Finding;
use crate::inode::Kind;
use crate::protocol::{Answer, Charged, Granted, Reason, Want};
use crate::stock::{Blank, Need};
use crate::tenant::{Payer, Peer, Rank, Tenant};

impl<I: Inode> Broker<I> {
    pub(super) fn kept_back(&self, rank: Rank) -> u64 {
        match rank {
            Rank::Critical => 0,
            Rank::Normal => self.settings.reserve,
        }
    }

    /// The blank that fits, audited and cut to size.
    pub(super) fn take(&mut self, need: &Need, rank: Rank) -> Option<Blank<I>> {
        let reserve = self.kept_back(rank);
        while let Some(blank) = self.stock.take(need, reserve) {
            if let Some(ready) = self.ready(blank, &need.want) {
                return Some(ready);
            }
        }
        None
    }

    /// The blank, if it may be handed out for this; it is gone otherwise.
    pub(super) fn ready(&mut self, mut blank: Blank<I>, want: &Want) -> Option<Blank<I>> {
        let depth = self.settings.audit;
        let finding = match blank.inode.is_fresh(blank.bytes) {
            true => blank.inode.audit(blank.bytes, depth, &mut |below| fastrand::u64(..below)),
            false => Finding::Unreadable,
        };
        self.counters.audits += 1;
        let Finding::Clean(bytes) = finding else {
            self.distrust(blank.kind, blank.bytes, finding);
            return None;
        };
        self.counters.audited_bytes += bytes;
        let surplus = blank.bytes - want.bytes;
        if surplus > 0 {
            if !blank.inode.trim(want.bytes) {
                self.counters.waste_bytes += blank.bytes;
                return None;
            }
            self.counters.waste_bytes += surplus;
            self.counters.trimmed_bytes += surplus;
            blank.bytes = want.bytes;
        }
        Some(blank)
    }

    /// An inode was not what it should be: nothing of its kind is leased any more.
    fn distrust(&mut self, kind: Kind, bytes: u64, finding: Finding) {
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
        self.distrusted.insert(kind);
        while let Some(other) = self.stock.take_oldest(|other| other.kind.unpaid() == kind) {
            self.counters.waste_bytes += other.bytes;
        }
    }

    /// Seals the blank and writes the lease down.
    pub(super) fn grant(
        &mut self,
        now: u64,
        client: ClientId,
        tenant: &Tenant,
        blank: Blank<I>,
        waited_ns: u64,
    ) -> Result<(Granted, I), Answer> {
        let Blank { inode, kind, bytes, made_ns, cost_ns } = blank;
        let (Some(number_of_inode), Some(peer)) =
            (inode.seal(), self.clients.get(&client).map(holder))
        else {
            self.counters.waste_bytes += bytes;
            return Err(self.no(Reason::Kernel, "the kernel would not seal it; ask again".into()));
        };
        self.start.granted(now);
        let number = self.number();
        self.counters.leased_bytes += bytes;
        self.counters.waits.add(waited_ns);
        self.leases.insert(Lease {
            number,
            peer,
            tenant: tenant.name.clone(),
            kind,
            bytes,
            inode: number_of_inode,
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
            inode: number_of_inode,
            age_ns: now.saturating_sub(made_ns),
            cost_ns,
            waited_ns,
            charged: match kind.payer {
                Payer::BROKER => Charged::Broker,
                _ => Charged::Tenant,
            },
        };
        Ok((granted, inode))
    }
}

/// A process as its lease shows it: its groups do not.
fn holder(peer: &Peer) -> Peer {
    Peer { groups: vec![], cgroups: peer.cgroups.clone(), ..*peer }
}

/// What a client is told of it.
pub(super) fn distrust_text(want: &Want) -> Refusal {
    let text = format!(
        "an audit found memory of {} pages that was not zero; tell the operator",
        want.page
    );
    (Reason::Audit, text)
}
