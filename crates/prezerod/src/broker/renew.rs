//! How stock is renewed: what is made next, what is let go, and what can be said about when.
//!
//! Contract: a client that starts with memory of its own where there is no lease waits for a piece of stock that is nearly
//! made, and for no other, for a part of the time in which a whole piece is made, which is what its own memory takes.
//! Nothing is made to order for it, and it is not expected back.

use std::collections::BTreeMap;

use prezero_host::Size;
use prezero_host::pressure::Memory;

use super::reclaim::Back;
use super::{Broker, Inode, Job, Out, PAUSE_NS, Refusal};
use crate::demand::{self, Party, Rank, Target};
use crate::filler::pacer::Throttle;
use crate::filler::{LONGEST_SILENCE_NS, Priority};
use crate::inode::Kind;
use crate::planner::LANES;
use crate::planner::job::Status;
use crate::protocol::{Answer, Available, Otherwise, Page, Reason};
use crate::stock::alike;
use crate::stock::{Need, matches};
use crate::tenant::Payer;

/// A client that waits leaves an inode to the filler of the stock, which works on it, if that takes
/// at most this part of the time that one made to order would take, as a divisor.
/// Moved by: counter `waste_bytes`.
const NEARLY: f64 = 2.0;

/// A filler in a tenant's cgroup that says nothing for this time is killed, ns: the tenant may have frozen it. It keeps
/// what its job needs of the stock's limit for no longer.
/// Moved by: counter `filler_deaths`.
pub(super) const SILENT_NS: u64 = 10 * LONGEST_SILENCE_NS;

/// The part of the time of a whole piece, as a divisor. A wait in vain delays the start by as much.
/// Moved by: `tests/system/busy.py --plain`.
const PART: f64 = 4.0;

/// The filler of a job, and the user that it is for.
enum Lane {
    /// The filler of the stock.
    Stock,
    /// That one of those that make to order, for this user.
    Order { lane: u8, party: Party },
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
    /// Jobs whose filler is to be killed.
    pub silent: Vec<u64>,
}

impl<I: Inode> Broker<I> {
    /// Looks at everything: gives back what exceeds every target, says what to make.
    /// It is this `minute` of the day.
    pub fn plan(&mut self, now: u64, minute: u16, memory: Memory) -> Plan<I> {
        self.at(now);
        self.planner.demand.turn(now, minute);
        self.expect_no_more(now);
        self.bound_backorders();
        let is_silent = |job: &&Job| {
            job.kind.payer != Payer::BROKER && now.saturating_sub(job.status.heard) > SILENT_NS
        };
        let silent = self.planner.jobs.iter().filter(is_silent).map(|job| job.serial).collect();
        let mut plan = Plan { jobs: vec![], outs: vec![], cancel: vec![], promote: vec![], silent };
        if self.drained {
            self.plan_drained(&mut plan);
            return plan;
        }
        if memory == Memory::Tight {
            self.planner.paused_until = now + PAUSE_NS;
            self.shrink();
            let idle = self.planner.jobs.iter().filter(|job| job.priority == Priority::Idle);
            plan.cancel = idle.map(|job| job.serial).collect();
        }
        self.release_charged();
        self.release_reserved();
        let targets = self.targets();
        self.release_surplus(now, &targets);
        plan.cancel.extend(self.planner.orders_in_vain());
        self.cancel_surplus(&mut plan);
        plan.promote = self.planner.promote();
        self.plan_orders(now, &targets, &mut plan);
        self.plan_stock(now, &targets, &mut plan);
        plan
    }

    fn bound_backorders(&mut self) {
        let tenants = self.ledger.tenants.iter();
        let left: BTreeMap<&str, u64> =
            tenants.map(|tenant| (tenant.name.as_str(), self.quota_left(tenant))).collect();
        let name = |number: u16| self.ledger.names.get(usize::from(number)).map(String::as_str);
        let may_hold = |number| name(number).and_then(|name| left.get(name)).copied().unwrap_or(0);
        self.planner.demand.bound_backorders(may_hold);
    }

    /// For each request that waits one inode is made to order, or one of the stock is nearly made.
    fn plan_orders(&mut self, now: u64, targets: &[Target], plan: &mut Plan<I>) {
        let comes = |job: &&Job| job.priority == Priority::Urgent || self.is_nearly_made(now, job);
        let mut coming: Vec<Job> = self.planner.jobs.iter().filter(comes).copied().collect();
        let (mut asked, mut at) = (vec![], 0);
        while let Some(wait) = self.planner.waits.get(at) {
            let need = wait.need;
            if let Some(known) = coming.iter().position(|job| serves(job, &need)) {
                coming.swap_remove(known);
                at += 1;
                continue;
            }
            // A client with memory of its own has nothing made for it.
            if wait.otherwise == Otherwise::Plain {
                at += 1;
                continue;
            }
            // The host is asked once for each size and party: many may wait.
            let party = wait.party;
            if asked.contains(&(party, need)) {
                at += 1;
                continue;
            }
            self.clear_place(&need, plan);
            let mut order = self.order(&need, party);
            let displaced = match &order {
                Err((reason, _)) if self.planner.jobs.is_empty() => {
                    self.displace(targets, &need, Rank::Backorder, reason.name())
                }
                _ => false,
            };
            if displaced || matches!(order, Ok((_, Some(_)))) {
                // What gave way is free, and a limit may have been lowered since it was read.
                self.view.changed();
                order = self.order(&need, party);
            }
            match order {
                Ok((kind, Some(lane))) => {
                    plan.jobs.push(self.job(now, need, kind, Lane::Order { lane, party }));
                    at += 1;
                }
                // A job in progress may still free what this one lacks, and what gave way comes back soon.
                Err(refusal) if self.planner.jobs.is_empty() && !displaced => {
                    let wait = self.planner.waits.remove(at);
                    plan.outs.push(self.refuse_wait(now, &wait, refusal));
                }
                _ => {
                    asked.push((party, need));
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
        let idle = self
            .planner
            .making(want.page, None, payer)
            .filter(|job| job.priority == Priority::Idle);
        plan.cancel.extend(idle.map(|job| job.serial));
        while self.dir_shortage(need) > 0 {
            let own = |inode: &crate::stock::StockInode<I>| {
                inode.kind.payer == payer && inode.kind.page == want.page
            };
            // Its room is counted before the next one goes.
            if self.give_back(1, Back::AtOnce, own) == 0 {
                return;
            }
        }
    }

    /// Whether a job of the stock serves a client before one made to order would. What holds it
    /// back beside neighbours, a client that waits takes away.
    fn is_nearly_made(&self, now: u64, job: &Job) -> bool {
        let share = match (job.status.throttle, self.full_pace(job)) {
            (None | Some(Throttle::Neighbours), _) => 1.0,
            (Some(Throttle::Cpu | Throttle::Rate), Some(known)) => self.planner.pace(job) / known,
            (Some(Throttle::Cpu | Throttle::Rate), None) => 0.0,
        };
        self.is_heard(now, job)
            && self.planner.left(now, job) as f64 * NEARLY <= job.bytes as f64 * share
    }

    /// Seconds in which a job of the stock is done once a client waits for it; `None`: not known.
    pub(super) fn left_for_a_client(&self, now: u64, job: &Job) -> Option<f64> {
        let pace = match job.status.throttle {
            None | Some(Throttle::Neighbours) => self.full_pace(job)?,
            Some(Throttle::Cpu | Throttle::Rate) => self.planner.pace(job),
        };
        let is_known = self.is_heard(now, job) && pace > 0.0;
        is_known.then(|| self.planner.left(now, job) as f64 / pace)
    }

    /// Bytes of a job's kind that are made in a second where nothing holds a filler back; `None`: not known.
    pub(super) fn full_pace(&self, job: &Job) -> Option<f64> {
        self.planner.paces.get(&job.kind.unpaid()).copied().filter(|pace| *pace > 0.0)
    }

    fn is_heard(&self, now: u64, job: &Job) -> bool {
        now.saturating_sub(job.status.heard) <= LONGEST_SILENCE_NS
    }

    fn plan_stock(&mut self, now: u64, targets: &[Target], plan: &mut Plan<I>) {
        for (Target { need, .. }, rank) in demand::in_order(targets, |need| self.have_or_make(need))
        {
            let free = self.planner.free(&self.view.nodes, &need);
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
                self.view.changed();
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
        let making =
            self.planner.jobs.iter().filter(|job| alike(need, &job.kind, job.bytes)).count();
        self.stock.have(need) + making as u64
    }

    /// What an order is made of, and the filler of that node which makes it.
    fn order(&self, need: &Need, party: Party) -> Result<(Kind, Option<u8>), Refusal> {
        let kind = self.choose(need)?;
        // A manager of containers asks for programs that know nothing of each other.
        let each = if self.ledger.files(kind.payer).is_empty() { 1 } else { LANES };
        Ok((kind, self.planner.lane(kind.node, kind.payer, party, each)))
    }

    fn job(&mut self, now: u64, need: Need, kind: Kind, lane: Lane) -> Job {
        let (priority, lane, party) = match lane {
            Lane::Stock => (Priority::Idle, 0, None),
            Lane::Order { lane, party } => (Priority::Urgent, lane, Some(party)),
        };
        // Fillers of several payers share what the settings give to one. One that is frozen has no part.
        let is_beside = |job: &&Job| {
            (job.priority, job.kind.node) == (Priority::Idle, kind.node) && self.is_heard(now, job)
        };
        let beside = self.planner.jobs.iter().filter(is_beside);
        let fillers = 1 + beside.count() as u64;
        let rate = self.settings.rate.filter(|_| priority == Priority::Idle);
        let rate = rate.map(|rate| rate / fillers);
        let is_stock = priority == Priority::Idle && !self.planner.demand.has_backorder(&need);
        let busy_limit = is_stock.then(|| self.settings.busy_limit().shared(fillers));
        let (serial, bytes) = (self.number(), need.want.bytes);
        let (began, left) = (now, bytes);
        let status = Status { heard: now, left, throttle: None, throttled_to: None };
        let job = Job {
            serial,
            kind,
            bytes,
            priority,
            lane,
            rate,
            busy_limit,
            need,
            party,
            began,
            status,
        };
        self.planner.jobs.push(job);
        job
    }

    /// Not now; when, at the current pace.
    pub(super) fn when(
        &mut self,
        now: u64,
        party: Party,
        need: &Need,
        otherwise: Otherwise,
    ) -> Answer {
        let mend = match otherwise {
            Otherwise::ComesBack => {
                self.planner.demand.backorder(now, party, need);
                self.bound_backorders();
                "ask with a wait"
            }
            Otherwise::Plain => {
                self.planner.start.begins(now);
                "one made to order comes no sooner than plain memory"
            }
        };
        let (want, kind) = (need.want, self.choose(need).ok());
        let mut pace =
            kind.and_then(|kind| self.planner.paces.get(&kind.unpaid())).copied().unwrap_or(0.0);
        // A piece of stock that is being made, and that no client waits for, is this client's when it asks again.
        let is_stock = |job: &&Job| job.priority == Priority::Idle && serves(job, need);
        let such = self.planner.jobs.iter().filter(is_stock);
        let such = such.filter(|job| self.planner.left(now, job) > 0);
        let waited = self.planner.waits.iter().filter(|wait| wait.need == *need).count();
        let coming = such.clone().nth(waited).and(such.min_by_key(|job| job.status.left));
        if let Some(job) = coming {
            pace = self.planner.pace(job);
        }
        let ahead: u64 = self.planner.jobs.iter().map(|job| self.planner.left(now, job)).sum();
        let waiting: u64 = self.planner.waits.iter().map(|wait| wait.need.want.bytes).sum();
        let paused = self.pause(now, need.payer);
        let pause_ns = paused.as_ref().map_or(0, |(left, _)| *left);
        let target = self.targets().into_iter().find(|target| target.need == *need);
        let fits = target.is_none_or(|target| self.stock.have(need) < target.allotted);
        let bytes = match coming {
            Some(job) => self.planner.left(now, job),
            None => ahead + waiting + want.bytes,
        };
        let estimate_ns = if pace > 0.0 && fits {
            pause_ns + (bytes as f64 / pace * 1e9) as u64
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
                (Reason::Empty, format!("no lease of {size} ready{room}; {mend}"))
            }
            Some((_, (reason, text))) => (reason, format!("none ready: {text}")),
        };
        self.counters.refuse(reason);
        Answer::When { estimate_ns, reason, text }
    }

    /// The longest wait of a client with memory of its own, ns; 0: it starts at once.
    pub(super) fn patience(&self, now: u64, need: &Need) -> u64 {
        let has_client = |job| self.planner.waits.iter().any(|wait| serves(job, &wait.need));
        let coming = self.planner.jobs.iter().filter(|job| serves(job, need) && !has_client(job));
        let patience = |job| {
            let (left, pace) = (self.left_for_a_client(now, job)?, self.full_pace(job)?);
            let most = need.want.bytes as f64 / pace / PART;
            (left <= most).then_some((most * 1e9) as u64)
        };
        coming.filter_map(patience).max().unwrap_or(0)
    }

    pub(super) fn available(
        &self,
        tenant: &super::Tenant,
        page: Page,
        node: Option<u16>,
    ) -> Answer {
        let payer = self.ledger.payer(tenant);
        let such = |kind: &Kind| matches(&Kind { payer, ..*kind }, page, node, payer);
        let paces = self.planner.paces.iter().filter(|(kind, _)| such(kind));
        Answer::Available(Available {
            ready: self.stock.ready(page, node, payer).saturating_sub(self.kept_back(tenant.rank)),
            largest: self.stock.largest(page, node, payer),
            making: self.planner.making(page, node, payer).map(|job| job.bytes).sum(),
            pace: paces.map(|(_, pace)| *pace as u64).max().unwrap_or(0),
            quota_left: self.quota_left(tenant),
        })
    }
}

/// Whether a job makes what is wanted: to order, or just so.
pub(super) fn serves(job: &Job, need: &Need) -> bool {
    job.need == *need || alike(need, &job.kind, job.bytes)
}
