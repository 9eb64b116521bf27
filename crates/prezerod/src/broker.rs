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
mod end;
mod expect;
mod grant;
mod log;
mod made;
mod metrics;
pub mod persist;
mod reclaim;
mod renew;
mod report;
mod shortage;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crate::demand::Keep;
use crate::filler::Progress;
use crate::host::Host;
use crate::host::accounts::Owners;
use crate::host::view::View;
use crate::inode::Kind;
use crate::inode::audit::{Depth, Finding};
use crate::ledger::Ledger;
use crate::planner::{Job, Planner, Wait};
use crate::protocol::{Answer, Name, Reason, Refusal};
use crate::settings::Settings;
use crate::stock::{Need, Stock, StockInode};
use crate::tenant::{Charge, ClientId, Payer, Tenant};

use counters::Counters;
pub use renew::Plan;

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
    /// It enters the stock, and is to survive the broker; `charged` is the cgroup that pays, `None` the broker's own.
    fn keep(&self, _kind: Kind, _charged: Option<&str>) {}
    /// It goes, and nothing waits for its memory.
    fn discard(self)
    where
        Self: Sized,
    {
    }
}

/// Largest lease, bytes: more than any host has, and sums of many fit 64 bits.
const LARGEST: u64 = 1 << 44;

/// The time for which nothing is made for stock, ns, after memory was short, or after the kernel had no page
/// left. Reclaim and compaction need seconds.
/// Moved by: counter `pressure_bytes`.
const PAUSE_NS: u64 = 10_000_000_000;

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

impl<I> Out<I> {
    /// An answer alone.
    pub fn new(client: ClientId, tag: u32, answer: Answer) -> Out<I> {
        Out { client, tag, answer, inode: None, name: None }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Broker<I> {
    view: View,
    settings: Settings,
    /// Which client holds what.
    ledger: Ledger,
    /// What is wanted and made.
    planner: Planner,
    /// What lies ready.
    stock: Stock<I>,
    numbers: u64,
    /// What an operator expects back.
    expected: expect::Expectations,
    /// It leases nothing, for maintenance.
    drained: bool,
    /// Sums since the start.
    counters: Counters,
    /// The last answers.
    log: log::Log,
}

impl<I: Inode> Broker<I> {
    /// A broker without stock; `owner` may lease if the settings name no tenants.
    pub fn new(now_ns: u64, host: Host, settings: Settings, owner: u32) -> Broker<I> {
        let forget = settings.forget.as_nanos() as u64;
        let mut broker = Broker {
            view: View::new(host),
            ledger: Ledger::default(),
            planner: Planner::new(now_ns, forget),
            stock: Stock::default(),
            numbers: 0,
            expected: expect::Expectations::default(),
            drained: false,
            counters: Counters::default(),
            log: log::Log::default(),
            settings: settings.clone(),
        };
        broker.reload(settings, owner);
        broker
    }

    /// Other settings, from now on; what is there stays, and what was learnt.
    pub fn reload(&mut self, settings: Settings, owner: u32) {
        let owners = Owners::read(self.view.host.as_ref());
        self.ledger.reload(&settings.tenants, owner, owners);
        let mut quotas = BTreeMap::new();
        for tenant in &self.ledger.tenants {
            self.counters.of_tenant(&tenant.name);
            quotas.extend(self.ledger.number(&tenant.name).zip(tenant.quota));
        }
        self.planner.demand.set_quotas(quotas);
        self.settings = settings;
        self.set_keeps();
    }

    /// What operators keep ready or expect has changed.
    fn set_keeps(&mut self) {
        let keeps: Vec<Keep> = self.keeps().chain(self.expected.keeps(self.keeps())).collect();
        self.planner.demand.set_keeps(self.settings.forget.as_nanos() as u64, &keeps);
    }

    /// What operators keep ready.
    fn keeps(&self) -> impl Iterator<Item = Keep> {
        self.settings.stock.iter().map(|stocked| {
            let of = |tenant: &&Tenant| Some(&tenant.name) == stocked.tenant.as_ref();
            let payer = self.ledger.tenants.iter().find(of).map(|tenant| self.ledger.payer(tenant));
            let need = Need { want: stocked.want, payer: payer.unwrap_or_default() };
            Keep { need, keep: stocked.keep, most: stocked.most }
        })
    }

    /// It is this time.
    fn at(&mut self, now: u64) {
        self.view.at(now);
        self.log.now = now;
    }

    /// Which client holds what.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The settings that hold.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// A filler says how far its job is.
    pub fn progress(&mut self, now: u64, progress: Progress) {
        self.planner.progress(now, progress);
    }

    /// A number that was never given out.
    pub fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// A refusal, counted.
    pub fn no(&mut self, (reason, text): Refusal) -> Answer {
        self.counters.refuse(reason);
        Answer::No(reason, text)
    }

    /// Answers waiting requests that can be answered, and ends what is over.
    pub fn serve(&mut self, now: u64) -> Vec<Out<I>> {
        self.at(now);
        let mut outs = self.failures(now);
        for wait in std::mem::take(&mut self.planner.waits) {
            let (client, tag) = (wait.client, wait.tag);
            let (name, waited) = (wait.name, now.saturating_sub(wait.since));
            let mut out = Out { client, tag, answer: Answer::Done, inode: None, name };
            let tenant = self.ledger.tenant(client);
            let checked =
                tenant.and_then(|tenant| self.check(&wait.need.want, &tenant).map(|()| tenant));
            out.answer = match checked {
                Err(refusal) => self.no(refusal),
                Ok(tenant) => match self.take(&wait.need, tenant.rank) {
                    Some(inode) => match self.grant(now, client, &tenant, inode, waited) {
                        Ok((granted, inode)) => {
                            out.inode = Some(inode);
                            Answer::Lease(granted)
                        }
                        Err(answer) => answer,
                    },
                    None if wait.until <= now => {
                        self.when(now, wait.party, &wait.need, wait.otherwise)
                    }
                    None => {
                        self.planner.waits.push(wait);
                        continue;
                    }
                },
            };
            self.log(client, Some(wait.need.want), waited, &out.answer);
            outs.push(out);
        }
        outs
    }

    /// Whether there is anything to look after.
    pub fn is_busy(&self) -> bool {
        let idle = self.planner.jobs.is_empty() && self.planner.waits.is_empty();
        !idle || self.stock.iter().next().is_some() || self.planner.demand.is_any()
    }

    /// When the broker must be asked again at the latest, ns; `None`: no client waits.
    pub fn deadline(&self) -> Option<u64> {
        self.planner.waits.iter().map(|wait| wait.until).min()
    }

    /// Takes in what an earlier broker made, and `charged` to that cgroup (`None`: its own).
    /// What is not fresh is dropped, and what no tenant pays for any more.
    pub fn adopt(&mut self, mut inode: StockInode<I>, charged: Option<&str>) -> bool {
        let of = |charge: &Charge| charge.cgroup.as_deref() == charged && charge.files.is_empty();
        let payer = self.ledger.charges.iter().position(of);
        let Some(payer) = payer.and_then(|at| u16::try_from(at).ok()) else { return false };
        inode.kind.payer = Payer(payer);
        let fresh = inode.file.is_fresh(inode.bytes) && self.view.nodes.contains(&inode.kind.node);
        if fresh {
            self.enter(inode);
        }
        fresh
    }

    /// An inode enters the stock. A file belongs to a mount, which may be another for the next broker.
    fn enter(&mut self, inode: StockInode<I>) {
        self.keep_one(&inode);
        self.stock.put(inode);
    }

    /// Has the stock survive this broker, where that was not heard at first.
    pub fn keep(&self) {
        for inode in self.stock.iter() {
            self.keep_one(inode);
        }
    }

    fn keep_one(&self, inode: &StockInode<I>) {
        let payer = inode.kind.payer;
        if self.ledger.files(payer).is_empty() {
            inode.file.keep(inode.kind, self.ledger.charged(payer));
        }
    }

    /// Stock of an earlier broker is being verified until then at most: none is made meanwhile.
    pub fn verifies(&mut self, until: u64) {
        let why = "stock of an earlier broker is being read";
        for payer in (0..self.ledger.charges.len()).filter_map(|at| u16::try_from(at).ok()) {
            let paused = (until, (Reason::Busy, why.to_owned()));
            self.planner.paused.insert(Payer(payer), paused);
        }
    }

    /// It was verified.
    pub fn verified(&mut self) {
        self.planner.paused.retain(|_, (_, (reason, _))| *reason != Reason::Busy);
    }
}
