//! The broker: who gets what, and why not. No clock, no sockets, no memory of its own.
//!
//! It is told the time, what clients say, what fillers made, how pressed the machine is; it
//! answers with [`Out`]s to send and, in [`plan`](Broker::plan), with what to make. Inodes are
//! whatever implements [`Inode`], so that tests need no kernel.
//!
//! What it keeps to: an inode goes to one client, once; it is fresh, audited and sealed when
//! it goes; nothing of it stays here; all of what was asked for or nothing.

mod grant;
mod plan;
mod report;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};

use prezero::Size;

use crate::audit::{self, Depth, Finding};
use crate::counters::Counters;
use crate::demand::Demand;
use crate::host::Host;
use crate::inode::{self, Kind};
use crate::protocol::{Answer, Granted, Reason, Report, Request, Want};
use crate::settings::Settings;
use crate::stock::{Blank, Stock};
use crate::tenant::{self, Peer, Rank, Tenant};

use grant::distrust_text;
pub use plan::{Job, Plan};

/// What the broker needs of an inode.
pub trait Inode {
    /// Whether all `bytes` are populated and it was never handed out.
    fn is_fresh(&self, bytes: u64) -> bool;
    /// Reads it.
    fn audit(&self, bytes: u64, depth: Depth, pick: &mut dyn FnMut(u64) -> u64) -> Finding;
    /// Cuts it to `bytes`; false: it could not be.
    fn trim(&self, bytes: u64) -> bool;
    /// Makes it a lease, and tells its number; `None`: it cannot be.
    fn seal(&self) -> Option<u64>;
}

impl Inode for OwnedFd {
    fn is_fresh(&self, bytes: u64) -> bool {
        inode::is_fresh(self.as_fd(), bytes)
    }

    fn audit(&self, bytes: u64, depth: Depth, pick: &mut dyn FnMut(u64) -> u64) -> Finding {
        audit::audit(self.as_fd(), bytes, depth, pick)
    }

    fn trim(&self, bytes: u64) -> bool {
        inode::trim(self.as_fd(), bytes).is_ok()
    }

    fn seal(&self) -> Option<u64> {
        inode::seal(self.as_fd()).ok()
    }
}

/// Largest lease, bytes: more than any host has, and sums of many fit 64 bits.
const LARGEST: u64 = 1 << 44;

/// A connection's number; never used again.
pub type ClientId = u64;

/// An answer on its way.
#[derive(Debug)]
pub struct Out<I> {
    /// To this client.
    pub client: ClientId,
    /// About the request with this tag.
    pub tag: u32,
    /// Says this.
    pub answer: Answer,
    /// And brings this.
    pub inode: Option<I>,
    /// Or this text, as a file.
    pub text: Option<String>,
}

/// A request that waits.
#[derive(Debug)]
struct Wait {
    client: ClientId,
    tag: u32,
    tenant: String,
    want: Want,
    rank: Rank,
    since: u64,
    until: u64,
}

/// An inode that is kept for a client.
#[derive(Debug)]
struct Held<I> {
    ticket: u64,
    client: ClientId,
    tenant: String,
    want: Want,
    until: u64,
    blank: Blank<I>,
}

/// A lease that was handed out, for as long as the process lives that got it.
#[derive(Clone, Debug)]
struct Lease {
    number: u64,
    peer: Peer,
    tenant: String,
    kind: Kind,
    bytes: u64,
    inode: u64,
    since: u64,
    cost_ns: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Broker<I> {
    host: Host,
    nodes: Vec<u16>,
    settings: Settings,
    tenants: Vec<Tenant>,
    clients: BTreeMap<ClientId, Peer>,
    stock: Stock<I>,
    demand: Demand,
    waits: Vec<Wait>,
    held: Vec<Held<I>>,
    leases: Vec<Lease>,
    jobs: Vec<Job>,
    /// What could not be made for somebody who waits, and why.
    failed: Vec<(Want, String)>,
    /// Kinds of which an audit found one that was not zero.
    distrusted: BTreeSet<Kind>,
    /// Bytes a second at which a kind was made of late.
    paces: BTreeMap<Kind, f64>,
    /// Nothing is made for stock before this, ns.
    held_off_until: u64,
    numbers: u64,
    /// Sums since the start.
    pub counters: Counters,
}

type Refusal = (Reason, String);

impl<I: Inode> Broker<I> {
    /// A broker without stock; `owner` may lease if the settings name no tenants.
    pub fn new(now_ns: u64, host: Host, settings: Settings, owner: u32) -> Broker<I> {
        let forget = settings.forget.as_nanos() as u64;
        let mut broker = Broker {
            nodes: host.nodes(),
            host,
            tenants: vec![],
            clients: BTreeMap::new(),
            stock: Stock::new(),
            demand: Demand::new(now_ns, forget),
            waits: vec![],
            held: vec![],
            leases: vec![],
            jobs: vec![],
            failed: vec![],
            distrusted: BTreeSet::new(),
            paces: BTreeMap::new(),
            held_off_until: 0,
            numbers: 0,
            counters: Counters::default(),
            settings: settings.clone(),
        };
        broker.reload(settings, owner);
        broker
    }

    /// Other settings, from now on; what is there stays, and what was learnt.
    pub fn reload(&mut self, settings: Settings, owner: u32) {
        self.tenants = settings.tenants.clone();
        if self.tenants.is_empty() {
            self.tenants.push(Tenant::only(owner));
        }
        self.demand.wish(settings.forget.as_nanos() as u64, &settings.stock);
        self.settings = settings;
    }

    /// The settings that hold.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The nodes of this host.
    pub fn nodes(&self) -> &[u16] {
        &self.nodes
    }

    /// A number that was never given out.
    pub fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

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

    /// A client says this. `None`: the answer comes later.
    pub fn request(
        &mut self,
        now: u64,
        client: ClientId,
        tag: u32,
        request: Request,
    ) -> Option<Out<I>> {
        let mut out = Out { client, tag, answer: Answer::Done, inode: None, text: None };
        let answered = match self.tenant(client) {
            Err(refusal) => Err(refusal),
            Ok(tenant) => match request {
                Request::Lease { want, wait_ms } => {
                    match self.lease(now, client, tag, &tenant, want, wait_ms) {
                        Ok(Some((granted, inode))) => {
                            out.inode = Some(inode);
                            Ok(Answer::Lease(granted))
                        }
                        Ok(None) => return None,
                        Err(answer) => Ok(answer),
                    }
                }
                Request::Redeem { ticket } => {
                    self.redeem(now, client, ticket, &tenant).map(|lease| {
                        out.inode = Some(lease.1);
                        Answer::Lease(lease.0)
                    })
                }
                Request::Reserve { want, hold_ms } => {
                    Ok(self.reserve(now, client, &tenant, want, hold_ms))
                }
                Request::Cancel { ticket } => self.cancel(client, ticket),
                Request::Available { page, node } => Ok(self.available(&tenant, page, node)),
                Request::Report(report) => {
                    let text = match report {
                        Report::Stock => self.stock_report(now, client),
                        Report::Metrics => self.metrics(),
                    };
                    let bytes = text.len() as u64;
                    out.text = Some(text);
                    Ok(Answer::Report { bytes })
                }
            },
        };
        out.answer = answered.unwrap_or_else(|(reason, text)| self.no(reason, text));
        Some(out)
    }

    fn tenant(&self, client: ClientId) -> Result<Tenant, Refusal> {
        let peer = self.clients.get(&client).ok_or((Reason::Denied, String::new()))?;
        self.tenant_of(peer)
    }

    fn tenant_of(&self, peer: &Peer) -> Result<Tenant, Refusal> {
        tenant::of(&self.tenants, peer)
            .cloned()
            .ok_or_else(|| (Reason::Denied, format!("no tenant for {peer}; name it in [[tenant]]")))
    }

    /// A refusal, counted.
    pub fn no(&mut self, reason: Reason, text: String) -> Answer {
        self.counters.refuse(reason);
        Answer::No(reason, text)
    }

    fn lease(
        &mut self,
        now: u64,
        client: ClientId,
        tag: u32,
        tenant: &Tenant,
        want: Want,
        wait_ms: u32,
    ) -> Result<Option<(Granted, I)>, Answer> {
        if self.waits.iter().any(|wait| wait.client == client) {
            let text = "this connection waits for another lease; open a second one";
            return Err(self.no(Reason::Busy, text.into()));
        }
        self.check(&want, tenant).map_err(|(reason, text)| self.no(reason, text))?;
        if let Some(blank) = self.take(&want, tenant.rank) {
            self.demand.asked(now, &want);
            self.counters.hits += 1;
            return Ok(Some(self.grant(now, client, tenant, blank, 0)?));
        }
        self.can_make(&want).map_err(|(reason, text)| self.no(reason, text))?;
        self.counters.misses += 1;
        self.demand.asked(now, &want);
        if wait_ms == 0 {
            return Err(self.when(now, &want));
        }
        let wait = u64::from(wait_ms).saturating_mul(1_000_000);
        let longest = self.settings.longest_wait.as_nanos() as u64;
        let until = now.saturating_add(wait.min(longest));
        let (tenant, rank) = (tenant.name.clone(), tenant.rank);
        self.waits.push(Wait { client, tag, tenant, want, rank, since: now, until });
        // First who is in a hurry, then who came first.
        self.waits.sort_by_key(|wait| (wait.rank, wait.since));
        Ok(None)
    }

    fn redeem(
        &mut self,
        now: u64,
        client: ClientId,
        ticket: u64,
        tenant: &Tenant,
    ) -> Result<(Granted, I), Refusal> {
        let unknown =
            || (Reason::Ticket, format!("no ticket {ticket}; it may be over: reserve again"));
        let mine = |held: &Held<I>| held.client == client && held.ticket == ticket;
        let at = self.held.iter().position(mine).ok_or_else(unknown)?;
        let Held { want, blank, .. } = self.held.remove(at);
        let blank = self.ready(blank, &want).ok_or_else(|| distrust_text(&want))?;
        self.counters.hits += 1;
        self.grant(now, client, tenant, blank, 0).map_err(|_| unknown())
    }

    fn reserve(
        &mut self,
        now: u64,
        client: ClientId,
        tenant: &Tenant,
        want: Want,
        hold_ms: u32,
    ) -> Answer {
        if let Err((reason, text)) = self.check(&want, tenant) {
            return self.no(reason, text);
        }
        let reserve = self.kept_back(tenant.rank);
        let Some(blank) = self.stock.take(&want, reserve) else {
            if let Err((reason, text)) = self.can_make(&want) {
                return self.no(reason, text);
            }
            self.counters.misses += 1;
            self.demand.asked(now, &want);
            return self.when(now, &want);
        };
        self.demand.asked(now, &want);
        let longest = self.settings.longest_hold.as_millis() as u64;
        let hold_ms = u64::from(hold_ms).min(longest);
        let ticket = self.number();
        let (tenant, until) = (tenant.name.clone(), now + hold_ms * 1_000_000);
        self.held.push(Held { ticket, client, tenant, want, until, blank });
        Answer::Reserved { ticket, bytes: want.bytes, hold_ms: hold_ms as u32 }
    }

    fn cancel(&mut self, client: ClientId, ticket: u64) -> Result<Answer, Refusal> {
        if ticket == 0 {
            self.waits.retain(|wait| wait.client != client);
            return Ok(Answer::Done);
        }
        let mine = |held: &Held<I>| held.client == client && held.ticket == ticket;
        let at = self.held.iter().position(mine);
        let at =
            at.ok_or_else(|| (Reason::Ticket, format!("no ticket {ticket}; it may be over")))?;
        self.stock.put(self.held.remove(at).blank);
        Ok(Answer::Done)
    }

    /// What can be said of a request without looking into the stock.
    fn check(&self, want: &Want, tenant: &Tenant) -> Result<(), Refusal> {
        if want.bytes == 0 || !want.bytes.is_multiple_of(want.page.bytes()) {
            let (size, page) = (Size(want.bytes as usize), want.page);
            return Err((
                Reason::Size,
                format!("{size} is no multiple of the page; round up to {page}"),
            ));
        }
        if want.bytes > LARGEST {
            let (size, most) = (Size(want.bytes as usize), Size(LARGEST as usize));
            return Err((
                Reason::Size,
                format!("{size} is too large a lease; give {most} or less"),
            ));
        }
        if let Some(node) = want.node.filter(|node| !self.nodes.contains(node)) {
            let (first, last) = (self.nodes[0], self.nodes[self.nodes.len() - 1]);
            return Err((
                Reason::Node,
                format!("no node {node} here; give {first} to {last}, or any"),
            ));
        }
        let left = self.quota_left(tenant);
        if want.bytes > left {
            let (name, left) = (&tenant.name, Size(left as usize));
            let text = format!(
                "tenant {name} has {left} left; end a process that holds a lease, or raise its quota"
            );
            return Err((Reason::Quota, text));
        }
        Ok(())
    }

    fn quota_left(&self, tenant: &Tenant) -> u64 {
        let Some(quota) = tenant.quota else { return u64::MAX };
        let leased =
            self.leases.iter().filter(|lease| lease.tenant == tenant.name).map(|l| l.bytes);
        let held = self.held.iter().filter(|held| held.tenant == tenant.name).map(|h| h.want.bytes);
        let waits = self.waits.iter().filter(|wait| wait.tenant == tenant.name);
        quota.saturating_sub(leased.chain(held).chain(waits.map(|wait| wait.want.bytes)).sum())
    }

    /// Answers waiting requests that can be answered, and ends what is over.
    pub fn serve(&mut self, now: u64) -> Vec<Out<I>> {
        while let Some(at) = self.held.iter().position(|held| held.until <= now) {
            self.stock.put(self.held.remove(at).blank);
        }
        let mut outs = self.failures();
        for wait in std::mem::take(&mut self.waits) {
            let (client, tag) = (wait.client, wait.tag);
            let mut out = Out { client, tag, answer: Answer::Done, inode: None, text: None };
            let tenant = self.tenant(client);
            let checked =
                tenant.and_then(|tenant| self.check(&wait.want, &tenant).map(|()| tenant));
            out.answer = match checked {
                Err((reason, text)) => self.no(reason, text),
                Ok(tenant) => match self.take(&wait.want, tenant.rank) {
                    Some(blank) => {
                        let waited = now.saturating_sub(wait.since);
                        match self.grant(now, client, &tenant, blank, waited) {
                            Ok((granted, inode)) => {
                                out.inode = Some(inode);
                                Answer::Lease(granted)
                            }
                            Err(answer) => answer,
                        }
                    }
                    None if wait.until <= now => self.when(now, &wait.want),
                    None => {
                        self.waits.push(wait);
                        continue;
                    }
                },
            };
            outs.push(out);
        }
        outs
    }

    /// Whether there is anything to look after.
    pub fn is_busy(&self) -> bool {
        let idle = self.jobs.is_empty() && self.waits.is_empty() && self.held.is_empty();
        !idle || self.stock.iter().next().is_some() || self.demand.targets().any(|(_, n)| n > 0)
    }

    /// The cgroup of a process.
    pub fn cgroup(&self, pid: i32) -> Option<String> {
        self.host.cgroup(pid)
    }

    /// When the broker must be asked again at the latest, ns; `None`: nobody waits.
    pub fn deadline(&self) -> Option<u64> {
        let waits = self.waits.iter().map(|wait| wait.until);
        waits.chain(self.held.iter().map(|held| held.until)).min()
    }

    /// Takes all that is ready, to keep it elsewhere or to give it back.
    pub fn drain(&mut self) -> Vec<Blank<I>> {
        let held = self.held.drain(..).map(|held| held.blank);
        held.chain(self.stock.drain()).collect()
    }

    /// Takes in what an earlier broker made. What is not fresh is dropped.
    pub fn adopt(&mut self, blank: Blank<I>) -> bool {
        let fresh = blank.inode.is_fresh(blank.bytes) && self.nodes.contains(&blank.kind.node);
        if fresh {
            self.stock.put(blank);
        }
        fresh
    }
}
