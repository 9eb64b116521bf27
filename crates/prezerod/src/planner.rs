//! The planner: what is wanted, what is being made for it, and how fast that goes.
//!
//! Contract: it knows requests, jobs and the pace of fillers, and neither inodes nor tenants: what a plan may take, its
//! caller says. Told the time; reads no clock and no file.

pub mod job;

use std::collections::BTreeMap;

use crate::demand::start::Start;
use crate::demand::{Demand, Party, Sample};
use crate::filler::{Priority, Progress};
use crate::inode::Kind;
use crate::protocol::{Name, Otherwise, Page, Refusal, Want};
use crate::stock::{Need, alike, matches};
use crate::tenant::{ClientId, Payer, Rank};
pub use job::Job;

/// Weight of the last inode in the pace.
const NEWEST: f64 = 0.25;
/// Fillers of a node and payer that make to order at a time, each for another user: a lease of many pages holds
/// up its own user's, and no other's. A payer's fillers live in its cgroup, which its tenant may freeze: no other
/// payer waits for them.
/// Moved by: `tests/system/beside.py`.
pub const LANES: u8 = 4;
/// And those with which a tenant finds one whose orders have none: users of another may have large orders in all others.
/// Fixed: a bound of processes.
const MOST_LANES: u8 = 16;

/// A request that waits.
#[derive(Debug)]
pub struct Wait {
    /// Of this client.
    pub client: ClientId,
    /// With this tag.
    pub tag: u32,
    /// For a file under this name.
    pub name: Option<Name>,
    /// Of this tenant.
    pub tenant: String,
    /// Whose demand it is.
    pub party: Party,
    /// What is wanted.
    pub need: Need,
    /// What its client has without it.
    pub otherwise: Otherwise,
    /// Before or behind others.
    pub rank: Rank,
    /// Users take turns: see [`Planner::turn`].
    pub turn: u64,
    /// When it came, ns.
    pub since: u64,
    /// When it is answered at the latest, ns.
    pub until: u64,
    /// What the stock learnt of it.
    pub sample: Option<Sample>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Planner {
    /// What should lie ready.
    pub demand: Demand,
    /// Requests that wait, in the order in which they are served.
    pub waits: Vec<Wait>,
    /// What is being made.
    pub jobs: Vec<Job>,
    /// What could not be made for a client that waits, and why.
    pub failed: Vec<(Need, Refusal)>,
    /// Bytes a second at which a kind was made recently, without what held a filler back.
    pub paces: BTreeMap<Kind, f64>,
    /// The same for stock, with all that held a filler back.
    pub refills: BTreeMap<Kind, f64>,
    /// Nothing is made for stock before this, ns.
    pub paused_until: u64,
    /// Nothing is made for this payer's stock before this, ns, and what the kernel said.
    pub paused: BTreeMap<Payer, (u64, Refusal)>,
    /// The client of the last lease is left to start.
    pub start: Start,
    /// Bytes of the pools of a size that others on this host were promised and have not taken.
    pub promised: BTreeMap<Page, u64>,
}

impl Planner {
    /// Nothing is known; what will be learnt is forgotten after `forget` ns.
    pub fn new(now: u64, forget: u64) -> Planner {
        Planner { demand: Demand::new(now, forget), ..Planner::default() }
    }

    /// Bytes that requests of a tenant wait for.
    pub fn waited(&self, tenant: &str) -> u64 {
        let waits = self.waits.iter().filter(|wait| wait.tenant == tenant);
        waits.map(|wait| wait.need.want.bytes).sum()
    }

    /// A request begins to wait.
    pub fn wait(&mut self, wait: Wait) {
        self.waits.push(wait);
        // First by rank, then by turn, then by age.
        self.waits.sort_by_key(|wait| (wait.rank, wait.turn, wait.since));
    }

    /// The turn of a request that begins to wait: the present one, or the one after its party's last.
    /// So a party that waits for much lets others pass.
    pub fn turn(&self, party: Party) -> u64 {
        let own = self.waits.iter().filter(|wait| wait.party == party);
        match own.map(|wait| wait.turn).max() {
            Some(last) => last + 1,
            None => self.waits.iter().map(|wait| wait.turn).min().unwrap_or(0),
        }
    }

    /// A client does not wait any more: its request is no demand.
    pub fn withdraw(&mut self, client: ClientId) {
        while let Some(at) = self.waits.iter().position(|wait| wait.client == client) {
            let wait = self.waits.remove(at);
            if let Some(sample) = wait.sample {
                self.demand.withdraw(wait.party, &wait.need, sample);
            }
        }
    }

    /// Jobs for requests that wait no more.
    pub fn orders_in_vain(&self) -> Vec<u64> {
        let mut waited: Vec<Need> = self.waits.iter().map(|wait| wait.need).collect();
        let orders = self.jobs.iter().filter(|job| job.priority == Priority::Urgent);
        let in_vain = orders.filter(|job| match waited.iter().position(|need| *need == job.need) {
            Some(known) => {
                waited.swap_remove(known);
                false
            }
            None => true,
        });
        in_vain.map(|job| job.serial).collect()
    }

    /// Jobs of the stock that are wanted by now: they are not made at the pace of what may be wanted.
    pub fn promote(&mut self) -> Vec<u64> {
        let (waits, demand) = (&self.waits, &self.demand);
        let calm = self.jobs.iter_mut().filter(|job| job.busy_limit.is_some());
        let wanted = calm.filter(|job| {
            waits.iter().any(|wait| alike(&wait.need, &job.kind, job.bytes))
                || demand.has_backorder(&job.need)
        });
        wanted
            .map(|job| {
                job.busy_limit = None;
                job.serial
            })
            .collect()
    }

    /// Nodes that would do, and whose filler of this payer's stock has no job.
    pub fn free(&self, nodes: &[u16], need: &Need) -> Vec<u16> {
        let would_do =
            nodes.iter().filter(|node| need.want.node.is_none_or(|wanted| wanted == **node));
        let is_free = |node: &&u16| {
            let mut stock = self.jobs.iter().filter(|job| job.priority == Priority::Idle);
            !stock.any(|job| (job.kind.node, job.kind.payer) == (**node, need.payer))
        };
        would_do.filter(is_free).copied().collect()
    }

    /// The filler of a node and payer that makes this party's next order; `None`: `each` have orders of its, or all have
    /// others'.
    pub fn lane(&self, node: u16, payer: Payer, party: Party, each: u8) -> Option<u8> {
        let orders = || {
            let orders = self.jobs.iter().filter(|job| job.priority == Priority::Urgent);
            orders.filter(|job| (job.kind.node, job.kind.payer) == (node, payer))
        };
        let own = orders().filter(|job| job.party == Some(party)).count();
        let of_tenant = |job: &Job| job.party.is_some_and(|other| other.tenant == party.tenant);
        let lanes = if orders().any(of_tenant) { LANES } else { MOST_LANES };
        let mut free = (0..lanes).filter(|lane| orders().all(|job| job.lane != *lane));
        free.next().filter(|_| own < usize::from(each))
    }

    /// A filler says how far its job is.
    pub fn progress(&mut self, now: u64, progress: Progress) {
        if let Some(job) = self.jobs.iter_mut().find(|job| job.serial == progress.serial) {
            (job.status.heard, job.status.left) = (now, progress.left);
            (job.status.throttle, job.status.throttled_to) = (progress.throttle, progress.pace);
        }
    }

    /// A job took this long, and its making this long of that, ns.
    pub fn learn(&mut self, job: &Job, making_ns: u64, took_ns: u64) {
        let pace = |ns: u64| job.bytes as f64 * 1e9 / ns.max(1) as f64;
        learn(&mut self.paces, job.kind, pace(making_ns));
        if job.priority == Priority::Idle {
            learn(&mut self.refills, job.kind, pace(took_ns));
        }
    }

    /// Bytes a second at which such stock is refilled, by the slowest kind that would do; 0: not
    /// known.
    pub fn refill(&self, need: &Need, rate: Option<u64>) -> u64 {
        let Want { page, node, .. } = need.want;
        let would_do = |kind: &Kind| kind.page == page && node.is_none_or(|node| node == kind.node);
        let slowest = |paces: &BTreeMap<Kind, f64>| {
            let paces =
                paces.iter().filter(|(kind, _)| would_do(kind)).map(|(_, pace)| *pace as u64);
            paces.min()
        };
        let known = slowest(&self.refills).or_else(|| slowest(&self.paces)).unwrap_or(0);
        known.min(rate.unwrap_or(u64::MAX))
    }

    /// Bytes that a job has still to make, at its recent rate.
    pub fn left(&self, now: u64, job: &Job) -> u64 {
        let pace = self.pace(job);
        let done = pace * now.saturating_sub(job.status.heard) as f64 / 1e9;
        job.status.left.saturating_sub(done as u64)
    }

    /// Bytes that are made of a job in a second; 0: not known. What no job made before has the pace of this one so far.
    pub fn pace(&self, job: &Job) -> f64 {
        let so_far = || {
            let (done, ns) = (
                job.bytes.saturating_sub(job.status.left),
                job.status.heard.saturating_sub(job.began),
            );
            if ns == 0 { 0.0 } else { done as f64 * 1e9 / ns as f64 }
        };
        match (job.status.throttle, job.status.throttled_to) {
            (None, _) => self.paces.get(&job.kind.unpaid()).copied().unwrap_or_else(so_far),
            (Some(_), throttled_to) => throttled_to.map_or(0.0, |pace| pace as f64),
        }
    }

    /// Jobs that make such pages, on that node and paid for so.
    pub fn making(
        &self,
        page: Page,
        node: Option<u16>,
        payer: Payer,
    ) -> impl Iterator<Item = &Job> {
        self.jobs.iter().filter(move |job| matches(&job.kind, page, node, payer))
    }
}

fn learn(paces: &mut BTreeMap<Kind, f64>, kind: Kind, pace: f64) {
    let known = paces.entry(kind.unpaid()).or_insert(pace);
    *known += NEWEST * (pace - *known);
}
