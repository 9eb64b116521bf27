//! The broker: which client gets what, and why not. No clock, no sockets, no memory of its own.
//!
//! It is told the time, what clients say, what fillers made, how pressed the machine is; it
//! answers with [`Out`]s to send and, in [`plan`](Broker::plan), with what to make. Inodes are
//! whatever implements [`Inode`], so that tests need no kernel.
//!
//! What it keeps to: an inode goes to one client, once; it is fresh, audited and sealed when
//! it goes; nothing of it stays here; all of what was asked for or nothing.

mod choose;
mod clients;
pub mod counters;
pub mod debts;
mod grant;
mod leases;
mod made;
mod metrics;
mod owing;
mod plan;
mod release;
mod report;
mod requests;
mod room;
mod shortage;
#[cfg(test)]
mod tests;
mod trim;
mod yields;

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use crate::demand::start::Start;
use crate::demand::{Demand, Keep, Party, Sample};
use crate::host::Host;
use crate::host::accounts::Owners;
use crate::host::cgroup::Cgroups;
use crate::inode::audit::{self, Depth, Finding};
use crate::inode::mounted;
use crate::inode::{self, Kind};
use crate::protocol::{Answer, Name, Page, Reason};
use crate::settings::Settings;
use crate::stock::{Need, Stock, StockInode};
use crate::tenant::{Charge, Payer, Peer, Rank, Tenant};
use counters::Counters;
use debts::Debts;

use leases::Leases;
pub use plan::{Job, Plan};

/// What the broker needs of an inode.
pub trait Inode {
    /// Whether all `bytes` are populated and it was never handed out.
    fn is_fresh(&self, bytes: u64) -> bool;
    /// Reads it.
    fn audit(&self, bytes: u64, depth: Depth, pick: &mut dyn FnMut(u64) -> u64) -> Finding;
    /// Cuts it to `bytes`; false: it could not be.
    fn truncate(&self, bytes: u64) -> bool;
    /// Makes it a lease, and tells its number; `None`: it cannot be.
    fn seal(&self) -> Option<u64>;
}

impl Inode for OwnedFd {
    fn is_fresh(&self, bytes: u64) -> bool {
        inode::is_fresh(self.as_fd(), bytes)
    }

    fn audit(&self, bytes: u64, depth: Depth, pick: &mut dyn FnMut(u64) -> u64) -> Finding {
        let Ok(inside) = mounted::file(self.as_fd()) else { return Finding::Unreadable };
        audit::audit(inside.as_ref().unwrap_or(self).as_fd(), bytes, depth, pick)
    }

    fn truncate(&self, bytes: u64) -> bool {
        inode::truncate(self.as_fd(), bytes).is_ok()
    }

    fn seal(&self) -> Option<u64> {
        inode::seal(self.as_fd()).ok()
    }
}

/// Largest lease, bytes: more than any host has, and sums of many fit 64 bits.
const LARGEST: u64 = 1 << 44;

/// The time for which nothing is made for stock, ns, after memory was short, or after the kernel had no page
/// left. Reclaim and compaction need seconds.
/// Moved by: counter `pressure_bytes`.
const PAUSE_NS: u64 = 10_000_000_000;

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
    /// Under this name it becomes a file, rather than being sent.
    pub name: Option<Name>,
}

/// A request that waits.
#[derive(Debug)]
struct Wait {
    client: ClientId,
    tag: u32,
    name: Option<Name>,
    tenant: String,
    party: Party,
    need: Need,
    rank: Rank,
    /// Users take turns: see `turn`.
    turn: u64,
    since: u64,
    until: u64,
    /// What the stock learnt of it.
    sample: Option<Sample>,
}

/// An inode that is kept for a client.
#[derive(Debug)]
struct Reservation<I> {
    ticket: u64,
    client: ClientId,
    tenant: String,
    need: Need,
    until: u64,
    inode: StockInode<I>,
}

/// See the module.
#[derive(Debug)]
pub struct Broker<I> {
    host: Host,
    cgroups: Cgroups,
    nodes: Vec<u16>,
    settings: Settings,
    tenants: Vec<Tenant>,
    /// Names of tenants, in the order in which the broker learnt of them.
    names: Vec<String>,
    /// Who pays; the first is the broker's own cgroup.
    payers: Vec<Charge>,
    clients: BTreeMap<ClientId, Peer>,
    /// Who stands behind subordinate users, and connections by those.
    owners: Owners,
    users: BTreeMap<u32, usize>,
    stock: Stock<I>,
    demand: Demand,
    waits: Vec<Wait>,
    reserved: Vec<Reservation<I>>,
    leases: Leases,
    /// What ended leases left in use.
    debts: Debts,
    jobs: Vec<Job>,
    /// What could not be made for a client that waits, and why.
    failed: Vec<(Need, Refusal)>,
    /// Kinds of which an audit found one that was not zero.
    quarantined: BTreeSet<Kind>,
    /// Bytes a second at which a kind was made recently, rests left out.
    paces: BTreeMap<Kind, f64>,
    /// The same for stock, with all that held a filler back.
    refills: BTreeMap<Kind, f64>,
    /// Nothing is made for stock before this, ns.
    paused_until: u64,
    start: Start,
    /// Bytes of the pools of a size that others on this host were promised and have not taken.
    promised: BTreeMap<Page, u64>,
    /// Nothing is made for this payer's stock before this, ns, and what the kernel said.
    paused: BTreeMap<Payer, (u64, Refusal)>,
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
            cgroups: Cgroups::new(host.as_ref()),
            host,
            tenants: vec![],
            names: vec![],
            payers: vec![Charge::default()],
            clients: BTreeMap::new(),
            owners: Owners::default(),
            users: BTreeMap::new(),
            stock: Stock::new(),
            demand: Demand::new(now_ns, forget),
            waits: vec![],
            reserved: vec![],
            leases: Leases::default(),
            debts: Debts::default(),
            jobs: vec![],
            failed: vec![],
            quarantined: BTreeSet::new(),
            paces: BTreeMap::new(),
            refills: BTreeMap::new(),
            paused_until: 0,
            start: Start::default(),
            promised: BTreeMap::new(),
            paused: BTreeMap::new(),
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
        self.owners = Owners::read(self.host.as_ref());
        self.users.clear();
        for peer in self.clients.values() {
            *self.users.entry(self.owners.of(peer.uid)).or_default() += 1;
        }
        if self.tenants.is_empty() {
            self.tenants.push(Tenant::only(owner));
        }
        for tenant in &self.tenants {
            if !self.names.contains(&tenant.name) {
                self.names.push(tenant.name.clone());
            }
        }
        for tenant in &self.tenants {
            if !self.payers.contains(&tenant.charge) {
                self.payers.push(tenant.charge.clone());
            }
        }
        self.settings = settings;
        let keeps: Vec<Keep> = self.keeps().collect();
        self.demand.set_keeps(self.settings.forget.as_nanos() as u64, &keeps);
    }

    /// What operators keep ready.
    fn keeps(&self) -> impl Iterator<Item = Keep> {
        self.settings.stock.iter().map(|stocked| {
            let of = |tenant: &&Tenant| Some(&tenant.name) == stocked.tenant.as_ref();
            let payer = self.tenants.iter().find(of).map(|tenant| self.payer(tenant));
            let need = Need { want: stocked.want, payer: payer.unwrap_or_default() };
            Keep { need, keep: stocked.keep, most: stocked.most }
        })
    }

    /// Who pays for what is made for a tenant.
    fn payer(&self, tenant: &Tenant) -> Payer {
        let at = self.payers.iter().position(|payer| *payer == tenant.charge).unwrap_or(0);
        Payer(u16::try_from(at).unwrap_or(0))
    }

    /// Whose demand it is when this client of a tenant asks.
    fn party(&self, client: ClientId, tenant: &Tenant) -> Party {
        let known = self.names.iter().position(|name| *name == tenant.name);
        let tenant = known.and_then(|at| u16::try_from(at).ok()).unwrap_or(u16::MAX);
        let uid = self.clients.get(&client).map_or(u32::MAX, |peer| self.owners.of(peer.uid));
        Party { tenant, uid }
    }

    /// The cgroup of a payer; `None`: the broker's own.
    pub fn charged(&self, payer: Payer) -> Option<&str> {
        self.payers.get(usize::from(payer.0))?.cgroup.as_deref()
    }

    /// The directories in which a payer's memory is files; none: its leases are descriptors.
    pub fn files(&self, payer: Payer) -> &[PathBuf] {
        self.payers.get(usize::from(payer.0)).map_or(&[], |charge| &charge.files)
    }

    /// All directories in which leases are files.
    pub fn places(&self) -> impl Iterator<Item = &PathBuf> {
        self.payers.iter().flat_map(|charge| &charge.files)
    }

    /// The settings that hold.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The nodes of this host.
    pub fn nodes(&self) -> &[u16] {
        &self.nodes
    }

    /// It is this time: what the host said a moment ago holds.
    pub(super) fn at(&self, now: u64) {
        self.host.at(now);
        self.cgroups.at(now);
    }

    /// A filler took memory, or a job is about to begin: what was read holds no longer.
    pub(super) fn changed(&self) {
        self.host.forget();
        self.cgroups.forget();
    }

    /// A number that was never given out.
    pub fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// A refusal, counted.
    pub fn no(&mut self, reason: Reason, text: String) -> Answer {
        self.counters.refuse(reason);
        Answer::No(reason, text)
    }

    /// Answers waiting requests that can be answered, and ends what is over.
    pub fn serve(&mut self, now: u64) -> Vec<Out<I>> {
        self.at(now);
        while let Some(at) = self.reserved.iter().position(|reserved| reserved.until <= now) {
            self.stock.put(self.reserved.remove(at).inode);
        }
        let mut outs = self.failures();
        for wait in std::mem::take(&mut self.waits) {
            let (client, tag) = (wait.client, wait.tag);
            let name = wait.name;
            let mut out = Out { client, tag, answer: Answer::Done, inode: None, name };
            let tenant = self.tenant(client);
            let checked =
                tenant.and_then(|tenant| self.check(&wait.need.want, &tenant).map(|()| tenant));
            out.answer = match checked {
                Err((reason, text)) => self.no(reason, text),
                Ok(tenant) => match self.take(&wait.need, tenant.rank) {
                    Some(inode) => {
                        let waited = now.saturating_sub(wait.since);
                        match self.grant(now, client, &tenant, inode, waited) {
                            Ok((granted, inode)) => {
                                out.inode = Some(inode);
                                Answer::Lease(granted)
                            }
                            Err(answer) => answer,
                        }
                    }
                    None if wait.until <= now => self.when(now, wait.party, &wait.need),
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
        let idle = self.jobs.is_empty() && self.waits.is_empty() && self.reserved.is_empty();
        !idle || self.stock.iter().next().is_some() || self.demand.is_any()
    }

    /// When the broker must be asked again at the latest, ns; `None`: no client waits.
    pub fn deadline(&self) -> Option<u64> {
        let waits = self.waits.iter().map(|wait| wait.until);
        waits.chain(self.reserved.iter().map(|reserved| reserved.until)).min()
    }

    /// Takes all that is ready, to keep it elsewhere or to give it back.
    pub fn drain(&mut self) -> Vec<StockInode<I>> {
        let reserved = self.reserved.drain(..).map(|reserved| reserved.inode);
        reserved.chain(self.stock.drain()).collect()
    }

    /// Takes in what an earlier broker made, and `charged` to that cgroup (`None`: its own).
    /// What is not fresh is dropped, and what no tenant pays for any more.
    pub fn adopt(&mut self, mut inode: StockInode<I>, charged: Option<&str>) -> bool {
        let of = |charge: &Charge| charge.cgroup.as_deref() == charged && charge.files.is_empty();
        let payer = self.payers.iter().position(of);
        let Some(payer) = payer.and_then(|at| u16::try_from(at).ok()) else { return false };
        inode.kind.payer = Payer(payer);
        let fresh = inode.file.is_fresh(inode.bytes) && self.nodes.contains(&inode.kind.node);
        if fresh {
            self.stock.put(inode);
        }
        fresh
    }
}
