//! What is made next, what is let go, and what can be said about when.

use prezero_host::Size;
use prezero_host::pressure::Memory;

use super::release::alike;
use super::{Broker, Inode, Out, PAUSE_NS, Refusal};
use crate::demand::{self, Party, Rank, Target};
use crate::filler::pacer::{BusyLimit, Throttle};
use crate::filler::{LONGEST_SILENCE_NS, Priority};
use crate::inode::Kind;
use crate::protocol::{Answer, Page, Reason};
use crate::stock::{Need, matches};
use crate::tenant::Payer;

/// A client that waits leaves an inode to the filler of the stock, which works on it, if that takes
/// at most this part of the time that one made to order would take, as a divisor.
/// Moved by: counter `waste_bytes`.
const NEARLY: f64 = 2.0;
/// Fillers of a node that make to order at a time, each for another user: a lease of many pages holds up
/// its own user's, and no other's.
/// Moved by: `tests/system/beside.py`.
const LANES: u8 = 4;

/// An inode that is being made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Job {
    /// The broker's number for it.
    pub serial: u64,
    /// What it will be.
    pub kind: Kind,
    /// How large.
    pub bytes: u64,
    /// For stock or for a client that waits.
    pub priority: Priority,
    /// Which of the fillers of its node and pace.
    pub lane: u8,
    /// The most bytes a second.
    pub rate: Option<u64>,
    /// How much of it while others work on the node; `None`: a client waits.
    pub busy_limit: Option<BusyLimit>,
    /// What it was asked for as.
    pub(super) need: Need,
    /// Whose request it was begun for; `None`: the stock's.
    pub(super) user: Option<u32>,
    /// When it was begun, ns.
    pub(super) began: u64,
    /// When its filler was heard of last, ns, and what was left to make then.
    pub(super) heard: u64,
    pub(super) left: u64,
    /// What holds the filler back, and to how many bytes a second.
    pub(super) throttle: Option<Throttle>,
    pub(super) throttled_to: Option<u64>,
}

/// The filler of a job, and the user that it is for.
enum Lane {
    /// The filler of the stock.
    Stock,
    /// That one of those that make to order, for this user.
    Order { lane: u8, user: u32 },
}

/// What should happen now.
#[derive(Debug)]
pub struct Plan<I> {
    /// Jobs to hand to the filler of their node, pace and lane, which is free.
    pub jobs: Vec<Job>,
    /// Clients whose wait is in vain.
    pub outs: Vec<Out<I>>,
    /// Jobs to cancel.
    pub cancel: Vec<u64>,
    /// Jobs that a client waits for by now.
    pub promote: Vec<u64>,
}

impl<I: Inode> Broker<I> {
    /// Looks at everything: gives back what exceeds every target, says what to make.
    /// It is this `minute` of the day.
    pub fn plan(&mut self, now: u64, minute: u16, memory: Memory) -> Plan<I> {
        self.at(now);
        self.demand.turn(now, minute);
        let mut plan = Plan { jobs: vec![], outs: vec![], cancel: vec![], promote: vec![] };
        if memory == Memory::Tight {
            self.paused_until = now + PAUSE_NS;
            self.shrink();
            let idle = self.jobs.iter().filter(|job| job.priority == Priority::Idle);
            plan.cancel = idle.map(|job| job.serial).collect();
        }
        self.release_charged();
        let targets = self.targets();
        self.release_surplus(now, &targets);
        self.cancel_orders(&mut plan);
        self.cancel_promised(&mut plan);
        self.promote(&mut plan);
        self.plan_orders(now, &targets, &mut plan);
        self.plan_stock(now, &targets, &mut plan);
        plan
    }

    /// What was made for a client that gave up is not made on.
    fn cancel_orders(&self, plan: &mut Plan<I>) {
        let mut waited: Vec<Need> = self.waits.iter().map(|wait| wait.need).collect();
        for job in self.jobs.iter().filter(|job| job.priority == Priority::Urgent) {
            match waited.iter().position(|need| *need == job.need) {
                Some(known) => drop(waited.swap_remove(known)),
                None => plan.cancel.push(job.serial),
            }
        }
    }

    /// What is made for stock and wanted now is not made at the pace of what may be wanted.
    fn promote(&mut self, plan: &mut Plan<I>) {
        for job in self.jobs.iter_mut().filter(|job| job.busy_limit.is_some()) {
            let waits = self.waits.iter().any(|wait| alike(&wait.need, &job.kind, job.bytes));
            if waits || self.demand.has_backorder(&job.need) {
                job.busy_limit = None;
                plan.promote.push(job.serial);
            }
        }
    }

    /// For each request that waits one inode is made to order, or one of the stock is nearly made.
    fn plan_orders(&mut self, now: u64, targets: &[Target], plan: &mut Plan<I>) {
        let comes = |job: &&Job| job.priority == Priority::Urgent || self.is_nearly_made(now, job);
        let mut coming: Vec<Job> = self.jobs.iter().filter(comes).copied().collect();
        let (mut asked, mut at) = (vec![], 0);
        while let Some(wait) = self.waits.get(at) {
            let need = wait.need;
            if let Some(known) = coming.iter().position(|job| serves(job, &need)) {
                coming.swap_remove(known);
                at += 1;
                continue;
            }
            // The host is asked once for each size and user: many may wait.
            let user = wait.party.uid;
            if asked.contains(&(user, need)) {
                at += 1;
                continue;
            }
            self.clear_place(&need, plan);
            let mut order = self.order(&need, user);
            let displaced = match &order {
                Err((reason, _)) if self.jobs.is_empty() => {
                    self.displace(targets, &need, Rank::Backorder, reason.name())
                }
                _ => false,
            };
            if displaced || matches!(order, Ok((_, Some(_)))) {
                // What gave way is free, and a limit may have been lowered since it was read.
                self.changed();
                order = self.order(&need, user);
            }
            match order {
                Ok((kind, Some(lane))) => {
                    plan.jobs.push(self.job(now, need, kind, Lane::Order { lane, user }));
                    at += 1;
                }
                // A job in progress may still free what this one lacks, and what gave way comes back soon.
                Err((reason, text)) if self.jobs.is_empty() && !displaced => {
                    let wait = self.waits.remove(at);
                    let answer = self.no(reason, text);
                    let (client, tag) = (wait.client, wait.tag);
                    plan.outs.push(Out { client, tag, answer, inode: None, name: None });
                }
                _ => {
                    asked.push((user, need));
                    at += 1;
                }
            }
        }
    }

    /// What lies ready in a payer's place makes way for a lease of the payer, oldest first.
    fn clear_place(&mut self, need: &Need, plan: &mut Plan<I>) {
        let Need { want, payer } = *need;
        if self.dir_shortage(need) == 0 || self.choose(need).is_err() {
            return;
        }
        let idle = self.making(want.page, None, payer).filter(|job| job.priority == Priority::Idle);
        plan.cancel.extend(idle.map(|job| job.serial));
        while self.dir_shortage(need) > 0 {
            let own = |inode: &crate::stock::StockInode<I>| {
                inode.kind.payer == payer && inode.kind.page == want.page
            };
            let Some(inode) = self.stock.take_oldest(own) else { return };
            self.counters.waste_bytes += inode.bytes;
        }
    }

    /// Whether a job of the stock serves a client before one made to order would. What holds it
    /// back beside neighbours, a client that waits takes away.
    fn is_nearly_made(&self, now: u64, job: &Job) -> bool {
        let share = match (job.throttle, self.paces.get(&job.kind.unpaid())) {
            (None | Some(Throttle::Neighbours), _) => 1.0,
            (Some(Throttle::Cpu | Throttle::Rate), Some(known)) => self.pace(job) / known,
            (Some(Throttle::Cpu | Throttle::Rate), None) => 0.0,
        };
        let heard = now.saturating_sub(job.heard) <= LONGEST_SILENCE_NS;
        heard && self.left(now, job) as f64 * NEARLY <= job.bytes as f64 * share
    }

    fn plan_stock(&mut self, now: u64, targets: &[Target], plan: &mut Plan<I>) {
        for (Target { need, .. }, rank) in demand::in_order(targets, |need| self.have_or_make(need))
        {
            let free = self.free(&need);
            if free.is_empty() {
                continue;
            }
            let mut kind = self.may_stock(now, &need);
            if let Err(shortage) = &kind
                && self.paused_by(now, &need).is_none()
                && self.displace(targets, &need, rank, shortage.reason)
            {
                kind = self.may_stock(now, &need);
            }
            if kind.as_ref().is_ok_and(|kind| free.contains(&kind.node)) {
                self.changed();
                kind = self.may_stock(now, &need);
            }
            if let Ok(kind) = kind
                && free.contains(&kind.node)
            {
                plan.jobs.push(self.job(now, need, kind, Lane::Stock));
            }
        }
    }

    /// Inodes that lie ready or are being made, and are just so.
    pub(super) fn have_or_make(&self, need: &Need) -> u64 {
        let making = self.jobs.iter().filter(|job| alike(need, &job.kind, job.bytes)).count();
        self.have(need) + making as u64
    }

    /// Nodes that would do, and whose filler of the stock has no job.
    fn free(&self, need: &Need) -> Vec<u16> {
        let nodes = self.nodes.iter().copied();
        let would_do = nodes.filter(|node| need.want.node.is_none_or(|wanted| wanted == *node));
        let is_free = |node: &u16| {
            !self.jobs.iter().any(|job| job.kind.node == *node && job.priority == Priority::Idle)
        };
        would_do.filter(is_free).collect()
    }

    /// What an order is made of, and the filler of that node which makes it.
    fn order(&self, need: &Need, user: u32) -> Result<(Kind, Option<u8>), Refusal> {
        let kind = self.choose(need)?;
        Ok((kind, self.lane(kind.node, user)))
    }

    /// The filler of a node that makes this user's next order; `None`: one has an order of its, or all
    /// have others'.
    fn lane(&self, node: u16, user: u32) -> Option<u8> {
        let orders = || {
            self.jobs.iter().filter(|job| job.kind.node == node && job.priority == Priority::Urgent)
        };
        let has_one = orders().any(|job| job.user == Some(user));
        (0..LANES).find(|lane| !has_one && orders().all(|job| job.lane != *lane))
    }

    fn job(&mut self, now: u64, need: Need, kind: Kind, lane: Lane) -> Job {
        let (priority, lane, user) = match lane {
            Lane::Stock => (Priority::Idle, 0, None),
            Lane::Order { lane, user } => (Priority::Urgent, lane, Some(user)),
        };
        let rate = self.settings.rate.filter(|_| priority == Priority::Idle);
        let is_stock = priority == Priority::Idle && !self.demand.has_backorder(&need);
        let busy_limit = Some(self.settings.busy_limit).filter(|_| is_stock);
        let (serial, bytes) = (self.number(), need.want.bytes);
        let (began, heard, left, throttle, throttled_to) = (now, now, bytes, None, None);
        let job = Job {
            serial,
            kind,
            bytes,
            priority,
            lane,
            rate,
            busy_limit,
            need,
            user,
            began,
            heard,
            left,
            throttle,
            throttled_to,
        };
        self.jobs.push(job);
        job
    }

    /// Inodes that lie ready and are just so.
    pub(super) fn have(&self, need: &Need) -> u64 {
        self.stock.iter().filter(|inode| alike(need, &inode.kind, inode.bytes)).count() as u64
    }

    /// Not now; when, at the current pace.
    pub(super) fn when(&mut self, now: u64, party: Party, need: &Need) -> Answer {
        self.demand.backorder(now, party, need);
        let (want, kind) = (need.want, self.choose(need).ok());
        let pace = kind.and_then(|kind| self.paces.get(&kind.unpaid())).copied().unwrap_or(0.0);
        let ahead: u64 = self.jobs.iter().map(|job| self.left(now, job)).sum();
        let waiting: u64 = self.waits.iter().map(|wait| wait.need.want.bytes).sum();
        let paused = self.pause(now, need.payer);
        let pause_ns = paused.as_ref().map_or(0, |(left, _)| *left);
        let target = self.targets().into_iter().find(|target| target.need == *need);
        let fits = target.is_none_or(|target| self.have(need) < target.allotted);
        let estimate_ns = if pace > 0.0 && fits {
            pause_ns + ((ahead + waiting + want.bytes) as f64 / pace * 1e9) as u64
        } else {
            u64::MAX
        };
        let (reason, text) = match paused {
            None => {
                let size = Size(want.bytes as usize);
                let room = match fits {
                    true => "",
                    false => ", and the stock's limit leaves no room for it",
                };
                (Reason::Empty, format!("no lease of {size} ready{room}; ask with a wait"))
            }
            Some((_, (reason, text))) => (reason, format!("none ready: {text}")),
        };
        self.counters.refuse(reason);
        Answer::When { estimate_ns, reason, text }
    }

    /// Bytes that a job has still to make, at its recent rate.
    pub(super) fn left(&self, now: u64, job: &Job) -> u64 {
        let pace = self.pace(job);
        let done = pace * now.saturating_sub(job.heard) as f64 / 1e9;
        job.left.saturating_sub(done as u64)
    }

    /// Bytes that are made of a job in a second; 0: not known.
    pub(super) fn pace(&self, job: &Job) -> f64 {
        match (job.throttle, job.throttled_to) {
            (None, _) => self.paces.get(&job.kind.unpaid()).copied().unwrap_or(0.0),
            (Some(_), throttled_to) => throttled_to.map_or(0.0, |pace| pace as f64),
        }
    }

    /// Jobs that make such pages, on that node and paid for so.
    pub(super) fn making(
        &self,
        page: Page,
        node: Option<u16>,
        payer: Payer,
    ) -> impl Iterator<Item = &Job> {
        self.jobs.iter().filter(move |job| matches(&job.kind, page, node, payer))
    }

    pub(super) fn available(
        &self,
        tenant: &super::Tenant,
        page: Page,
        node: Option<u16>,
    ) -> Answer {
        let payer = self.payer(tenant);
        let such = |kind: &Kind| matches(&Kind { payer, ..*kind }, page, node, payer);
        let paces = self.paces.iter().filter(|(kind, _)| such(kind));
        Answer::Available {
            ready: self.stock.ready(page, node, payer).saturating_sub(self.kept_back(tenant.rank)),
            largest: self.stock.largest(page, node, payer),
            making: self.making(page, node, payer).map(|job| job.bytes).sum(),
            pace: paces.map(|(_, pace)| *pace as u64).max().unwrap_or(0),
            quota_left: self.quota_left(tenant),
        }
    }
}

/// Whether a job makes what is wanted: to order, or just so.
fn serves(job: &Job, need: &Need) -> bool {
    job.need == *need || alike(need, &job.kind, job.bytes)
}
