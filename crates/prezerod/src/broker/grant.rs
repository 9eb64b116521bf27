//! What clients ask for, and what they are answered at once: from the stock to a client, fresh, audited, cut to size,
//! sealed, written down.

use prezero_host::Size;

use super::reclaim::Back;
use super::{Broker, ClientId, Inode, LARGEST, Out, Refusal, Wait};
use crate::demand::{Party, Sample};
use crate::inode::Kind;
use crate::inode::audit::Finding;
use crate::ledger::{Ends, Holder, Lease};
use crate::protocol::{Answer, Charged, Granted, Name, Otherwise, Reason, Report, Request, Want};
use crate::stock::{Need, StockInode};
use crate::tenant::{Payer, Rank, Tenant};

/// A lease that is asked for.
#[derive(Clone, Copy)]
struct LeaseRequest {
    want: Want,
    wait_ms: u32,
    otherwise: Otherwise,
    /// As a file under this name.
    name: Option<Name>,
}

impl<I: Inode> Broker<I> {
    /// A client says this. `None`: the answer comes later.
    pub fn request(
        &mut self,
        now: u64,
        client: ClientId,
        tag: u32,
        request: Request,
    ) -> Option<Out<I>> {
        self.at(now);
        let name = match request {
            Request::LeaseNamed { name, .. } => Some(name),
            _ => None,
        };
        let mut out = Out { client, tag, answer: Answer::Done, inode: None, name };
        let tenant = self.ledger.tenant(client);
        let answered = match tenant.and_then(|tenant| by_name(&tenant, &request).map(|()| tenant)) {
            Err(refusal) => Err(refusal),
            Ok(tenant) => match request {
                Request::Lease { want, wait_ms }
                | Request::LeaseOrPlain { want, wait_ms }
                | Request::LeaseNamed { want, wait_ms, .. } => {
                    let otherwise = match request {
                        Request::LeaseOrPlain { .. } => Otherwise::Plain,
                        _ => Otherwise::ComesBack,
                    };
                    let asked = LeaseRequest { want, wait_ms, otherwise, name };
                    match self.lease(now, client, tag, &tenant, asked) {
                        Ok(Some((granted, inode))) => {
                            out.inode = Some(inode);
                            Ok(Answer::Lease(granted))
                        }
                        Ok(None) => return None,
                        Err(answer) => Ok(answer),
                    }
                }
                Request::Available { page, node } => {
                    self.check_node(node).map(|()| self.available(&tenant, page, node))
                }
                Request::Report { report, from } => Ok(match report {
                    Report::Stock => self.stock_part(now, client, from),
                    Report::Metrics => self.metrics_part(now, from),
                    Report::Log => self.log_part(now, client, from),
                }),
                Request::Yield { page, bytes } => self.yields(client, page, bytes),
                Request::Drain(drain) => self.drains(client, drain),
                Request::Expect { want, seconds, pieces } => {
                    self.expects(now, client, &tenant, want, (seconds, pieces))
                }
            },
        };
        out.answer = answered.unwrap_or_else(|refusal| self.no(refusal));
        if let Some(want) = request.want() {
            self.log(client, Some(want), 0, &out.answer);
        }
        Some(out)
    }

    fn lease(
        &mut self,
        now: u64,
        client: ClientId,
        tag: u32,
        tenant: &Tenant,
        asked: LeaseRequest,
    ) -> Result<Option<(Granted, I)>, Answer> {
        let LeaseRequest { want, wait_ms, otherwise, name } = asked;
        if self.planner.waits.iter().any(|wait| wait.client == client) {
            let text = "this connection waits for another lease; open a second one";
            return Err(self.no((Reason::Busy, text.into())));
        }
        self.check(&want, tenant).map_err(|refusal| self.no(refusal))?;
        let need = Need { want, payer: self.ledger.payer(tenant) };
        let party = self.ledger.party(client);
        if let Some(inode) = self.take(&need, tenant.rank) {
            self.asked(now, party, &need);
            self.counters.hit(&tenant.name);
            return Ok(Some(self.grant(now, client, tenant, inode, 0)?));
        }
        self.can_make(&need).map_err(|refusal| self.no(refusal))?;
        self.counters.miss(&tenant.name);
        let sample = self.asked(now, party, &need);
        let longest = match otherwise {
            Otherwise::ComesBack => self.settings.longest_wait.as_nanos() as u64,
            Otherwise::Plain => self.patience(now, &need),
        };
        let wait = u64::from(wait_ms).saturating_mul(1_000_000).min(longest);
        if wait == 0 {
            return Err(self.when(now, party, &need, otherwise));
        }
        let until = now.saturating_add(wait);
        let (tenant, rank) = (tenant.name.clone(), tenant.rank);
        let turn = self.planner.turn(party);
        let since = now;
        self.planner.wait(Wait {
            client,
            tag,
            name,
            tenant,
            party,
            need,
            otherwise,
            rank,
            turn,
            since,
            until,
            sample,
        });
        Ok(None)
    }

    /// A request that the stock is to learn from.
    fn asked(&mut self, now: u64, party: Party, need: &Need) -> Option<Sample> {
        let pace = self.planner.refill(need, self.settings.rate);
        self.planner.demand.sample(now, party, need, pace)
    }

    /// Whether such a lease can be at all.
    pub(super) fn check_size(&self, want: &Want) -> Result<(), Refusal> {
        if want.bytes == 0 || !want.bytes.is_multiple_of(want.page.bytes()) {
            let (size, page) = (Size(want.bytes as usize), want.page);
            let next = want.bytes.max(1).checked_next_multiple_of(page.bytes());
            let next = Size(next.unwrap_or(LARGEST) as usize);
            return Err((
                Reason::Size,
                format!("{size} is no multiple of the page, {page}; round up to {next}"),
            ));
        }
        if want.bytes > LARGEST {
            let (size, most) = (Size(want.bytes as usize), Size(LARGEST as usize));
            return Err((
                Reason::Size,
                format!("{size} is too large a lease; give {most} or less"),
            ));
        }
        Ok(())
    }

    /// What can be said of a request without looking into the stock.
    pub(super) fn check(&self, want: &Want, tenant: &Tenant) -> Result<(), Refusal> {
        self.check_size(want)?;
        self.check_node(want.node)?;
        self.check_drain()?;
        self.ledger.check_debt(tenant)?;
        let left = self.quota_left(tenant);
        if want.bytes > left {
            let (name, left, owed) =
                (&tenant.name, Size(left as usize), self.ledger.owed_text(tenant));
            let text = format!(
                "tenant {name} has {left} left{owed}; close and unmap leases, or raise its quota"
            );
            return Err((Reason::Quota, text));
        }
        Ok(())
    }

    pub(super) fn quota_left(&self, tenant: &Tenant) -> u64 {
        self.ledger.quota_left(tenant, self.planner.waited(&tenant.name))
    }

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
        self.give_back(u64::MAX, Back::Soon, |other| other.kind.unpaid() == kind);
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
        let (Some(number_in_fs), Some(peer)) = (file.seal(), self.ledger.clients.get(&client))
        else {
            self.counters.waste_bytes += bytes;
            return Err(self.no((Reason::Kernel, "the kernel would not seal it; ask again".into())));
        };
        let holder = Holder::from(peer);
        self.planner.start.begins(now);
        self.arrived(&kind, bytes);
        let number = self.number();
        self.counters.leased_bytes += bytes;
        self.counters.waited(&tenant.name, waited_ns);
        let (tenant, ends) = (tenant.name.clone(), Ends::Process);
        let (inode, device, since) = (number_in_fs, 0, now);
        self.ledger.leases.insert(Lease {
            number,
            holder,
            tenant,
            ends,
            kind,
            bytes,
            inode,
            device,
            since,
            cost_ns,
        });
        let granted = Granted {
            lease: number,
            bytes,
            page: kind.page,
            node: kind.node,
            backing: kind.backing,
            inode,
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

/// What a client is told of it.
pub(super) fn quarantine_text(want: &Want) -> Refusal {
    let text = format!(
        "an audit found memory of {} pages that was not zero; tell the operator",
        want.page
    );
    (Reason::Audit, text)
}

/// Whether the tenant leases in this way: files by their names, which seals do not protect, and
/// descriptors without.
fn by_name(tenant: &Tenant, request: &Request) -> Result<(), Refusal> {
    let wrong = match request {
        Request::LeaseNamed { .. } if tenant.charge.files.is_empty() => {
            "has no directory for files; name one in `files`"
        }
        Request::Lease { .. } | Request::LeaseOrPlain { .. } if !tenant.charge.files.is_empty() => {
            "has files, which are asked for by name; let another tenant lease descriptors"
        }
        _ => return Ok(()),
    };
    Err((Reason::Denied, format!("tenant {} {wrong}", tenant.name)))
}
