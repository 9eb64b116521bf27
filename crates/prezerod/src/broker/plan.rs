//! What is made next, what is let go, and what can be said about when.

use std::collections::{BTreeMap, BTreeSet};

use prezero_host::Size;
use prezero_host::pressure::Memory;

use super::{Broker, HOLD_OFF_NS, Inode, Out};
use crate::filler::Pace;
use crate::gait::Hold;
use crate::inode::Kind;
use crate::protocol::{Answer, Backing, Page, Reason};
use crate::stock::{Blank, Need};
use crate::tenant::Payer;

/// For so long an inode without demand is kept: a client that gave up waiting may come again.
/// Moved by: counter `waste_bytes`.
const SURPLUS_NS: u64 = 60_000_000_000;
/// Part of the reclaimable stock that goes at each look under memory pressure, as a divisor.
/// Moved by: counter `pressure_bytes`.
const SHRINK: u64 = 4;

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
    pub pace: Pace,
    /// At most so many bytes a second.
    pub rate: Option<u64>,
    /// At most so many for each CPU of the node while others work there.
    pub rate_busy: Option<u64>,
    /// What it was asked for as.
    pub(super) need: Need,
    /// When its filler was heard of last, ns, and what was left to make then.
    pub(super) heard: u64,
    pub(super) left: u64,
    /// What holds the filler back, and to how many bytes a second.
    pub(super) hold: Option<Hold>,
    pub(super) held_to: Option<u64>,
}

/// What should happen now.
#[derive(Debug)]
pub struct Plan<I> {
    /// Jobs to hand to the filler of their node and pace, which is free.
    pub jobs: Vec<Job>,
    /// Clients whose wait is in vain.
    pub outs: Vec<Out<I>>,
    /// Jobs to cancel.
    pub cancel: Vec<u64>,
    /// Jobs that somebody waits for by now.
    pub hurry: Vec<u64>,
}

impl<I: Inode> Broker<I> {
    /// Looks at everything: lets go what nobody needs, says what to make.
    /// It is this `minute` of the day.
    pub fn plan(&mut self, now: u64, minute: u16, memory: Memory) -> Plan<I> {
        self.demand.turn(now, minute);
        let mut plan = Plan { jobs: vec![], outs: vec![], cancel: vec![], hurry: vec![] };
        if memory == Memory::Tight {
            self.held_off_until = now + HOLD_OFF_NS;
            self.shrink();
            let idle = self.jobs.iter().filter(|job| job.pace == Pace::Idle);
            plan.cancel = idle.map(|job| job.serial).collect();
        }
        self.release_charged();
        self.release_surplus(now);
        self.cancel_orders(&mut plan);
        self.hurry(&mut plan);
        self.plan_orders(now, &mut plan);
        self.plan_stock(now, &mut plan);
        plan
    }

    /// What was made for somebody who gave up is not made on.
    fn cancel_orders(&self, plan: &mut Plan<I>) {
        let mut waited: Vec<Need> = self.waits.iter().map(|wait| wait.need).collect();
        for job in self.jobs.iter().filter(|job| job.pace == Pace::Urgent) {
            match waited.iter().position(|need| *need == job.need) {
                Some(known) => drop(waited.swap_remove(known)),
                None => plan.cancel.push(job.serial),
            }
        }
    }

    /// What is made for stock and wanted now is not made at the pace of what may be wanted.
    fn hurry(&mut self, plan: &mut Plan<I>) {
        for job in self.jobs.iter_mut().filter(|job| job.rate_busy.is_some()) {
            if self.demand.is_owed(&job.need) {
                job.rate_busy = None;
                plan.hurry.push(job.serial);
            }
        }
    }

    /// For each request that waits one inode is made to order.
    fn plan_orders(&mut self, now: u64, plan: &mut Plan<I>) {
        let mut ordered: Vec<Need> =
            self.jobs.iter().filter(|job| job.pace == Pace::Urgent).map(|job| job.need).collect();
        let mut at = 0;
        while let Some(wait) = self.waits.get(at) {
            let need = wait.need;
            if let Some(known) = ordered.iter().position(|other| *other == need) {
                ordered.swap_remove(known);
                at += 1;
                continue;
            }
            match self.choose(&need) {
                Ok(kind) if self.is_free(kind.node, Pace::Urgent) => {
                    plan.jobs.push(self.job(now, need, kind, Pace::Urgent));
                    at += 1;
                }
                Ok(_) => at += 1,
                // A job in progress may still free what this one lacks.
                Err(_) if !self.jobs.is_empty() => at += 1,
                Err((reason, text)) => {
                    let wait = self.waits.remove(at);
                    let answer = self.no(reason, text);
                    let (client, tag) = (wait.client, wait.tag);
                    plan.outs.push(Out { client, tag, answer, inode: None, text: None });
                }
            }
        }
    }

    fn plan_stock(&mut self, now: u64, plan: &mut Plan<I>) {
        let targets: Vec<_> = self.demand.targets().collect();
        for (need, target) in targets {
            let making = self.jobs.iter().filter(|job| alike(&need, &job.kind, job.bytes)).count();
            if self.have(&need) + making as u64 >= target {
                continue;
            }
            if let Ok(kind) = self.may_stock(now, &need)
                && self.is_free(kind.node, Pace::Idle)
            {
                plan.jobs.push(self.job(now, need, kind, Pace::Idle));
            }
        }
    }

    fn is_free(&self, node: u16, pace: Pace) -> bool {
        !self.jobs.iter().any(|job| job.kind.node == node && job.pace == pace)
    }

    fn job(&mut self, now: u64, need: Need, kind: Kind, pace: Pace) -> Job {
        let rate = self.settings.rate.filter(|_| pace == Pace::Idle);
        let is_stock = pace == Pace::Idle && !self.demand.is_owed(&need);
        let rate_busy = Some(self.settings.rate_busy).filter(|_| is_stock);
        let (serial, bytes) = (self.number(), need.want.bytes);
        let (heard, left, hold, held_to) = (now, bytes, None, None);
        let job =
            Job { serial, kind, bytes, pace, rate, rate_busy, need, heard, left, hold, held_to };
        self.jobs.push(job);
        job
    }

    /// Inodes that lie ready and are just so.
    pub(super) fn have(&self, need: &Need) -> u64 {
        self.stock.iter().filter(|blank| alike(need, &blank.kind, blank.bytes)).count() as u64
    }

    /// Not now; when, at the current pace.
    pub(super) fn when(&mut self, now: u64, need: &Need) -> Answer {
        self.demand.owe(now, need);
        let (want, kind) = (need.want, self.choose(need).ok());
        let pace = kind.and_then(|kind| self.paces.get(&kind.unpaid())).copied().unwrap_or(0.0);
        let ahead: u64 = self.jobs.iter().map(|job| self.left(now, job)).sum();
        let waiting: u64 = self.waits.iter().map(|wait| wait.need.want.bytes).sum();
        let held_off = self.hold_off(now, need.payer);
        let held_ns = held_off.as_ref().map_or(0, |(left, _)| *left);
        let estimate_ns = if pace > 0.0 {
            held_ns + ((ahead + waiting + want.bytes) as f64 / pace * 1e9) as u64
        } else {
            u64::MAX
        };
        let (reason, text) = match held_off {
            None => (
                Reason::Empty,
                format!("no lease of {} ready; ask with a wait", Size(want.bytes as usize)),
            ),
            Some((_, (reason, text))) => (reason, format!("none ready: {text}")),
        };
        self.counters.refuse(reason);
        Answer::When { estimate_ns, reason, text }
    }

    /// Bytes that a job has still to make, if it goes as of late.
    pub(super) fn left(&self, now: u64, job: &Job) -> u64 {
        let pace = self.pace(job);
        let done = pace * now.saturating_sub(job.heard) as f64 / 1e9;
        job.left.saturating_sub(done as u64)
    }

    /// Bytes that are made of a job in a second; 0: not known.
    pub(super) fn pace(&self, job: &Job) -> f64 {
        match (job.hold, job.held_to) {
            (None, _) => self.paces.get(&job.kind.unpaid()).copied().unwrap_or(0.0),
            (Some(_), held_to) => held_to.map_or(0.0, |pace| pace as f64),
        }
    }

    pub(super) fn available(
        &self,
        tenant: &super::Tenant,
        page: Page,
        node: Option<u16>,
    ) -> Answer {
        let payer = self.payer(tenant);
        let of = |kind: &Kind| {
            kind.page == page && kind.payer == payer && node.is_none_or(|node| node == kind.node)
        };
        let jobs = self.jobs.iter().filter(|job| of(&job.kind));
        let paces = self.paces.iter().filter(|(kind, _)| of(&Kind { payer, ..**kind }));
        Answer::Available {
            ready: self.stock.ready(page, node, payer).saturating_sub(self.kept_back(tenant.rank)),
            largest: self.stock.largest(page, node, payer),
            making: jobs.map(|job| job.bytes).sum(),
            pace: paces.map(|(_, pace)| *pace as u64).max().unwrap_or(0),
            quota_left: self.quota_left(tenant),
        }
    }

    /// Memory is short: a part of what the kernel can use goes back, oldest first. Pages of a
    /// hugetlb pool would go back to the pool, which helps nobody.
    fn shrink(&mut self) {
        let reclaimable = |blank: &Blank<I>| blank.kind.backing != Backing::Hugetlb;
        let all: u64 = self.stock.iter().filter(|b| reclaimable(b)).map(|b| b.bytes).sum();
        let mut freed = 0;
        while freed < all.div_ceil(SHRINK) {
            let Some(blank) = self.stock.take_oldest(reclaimable) else { break };
            freed += blank.bytes;
        }
        self.counters.waste_bytes += freed;
        self.counters.pressure_bytes += freed;
    }

    /// A cgroup that is nearly full has a better use for what it paid for.
    fn release_charged(&mut self) {
        let paid: BTreeSet<Kind> = self.stock.iter().map(|blank| blank.kind).collect();
        for kind in paid.into_iter().filter(|kind| kind.payer != Payer::BROKER) {
            let room = self.room(kind);
            if room.left < room.spare()
                && let Some(blank) = self.stock.take_oldest(|blank| blank.kind == kind)
            {
                self.counters.waste_bytes += blank.bytes;
                self.counters.pressure_bytes += blank.bytes;
            }
        }
    }

    /// What is above every target, for so long that nobody comes back for it or above the limit.
    fn release_surplus(&mut self, now: u64) {
        let targets: Vec<_> = self.demand.targets().collect();
        let mut shelves: Vec<_> =
            targets.iter().map(|(need, target)| (need, *target, self.have(need))).collect();
        loop {
            let over = self.over_limit();
            let surplus = |blank: &Blank<I>| {
                let late = now.saturating_sub(blank.made_ns) > SURPLUS_NS;
                (late || over.contains(&(blank.kind.backing, blank.kind.page)))
                    && shelves.iter().all(|(need, target, have)| {
                        have > target || !alike(need, &blank.kind, blank.bytes)
                    })
            };
            let Some(blank) = self.stock.take_oldest(surplus) else { return };
            self.counters.waste_bytes += blank.bytes;
            for (need, _, have) in &mut shelves {
                *have -= u64::from(alike(need, &blank.kind, blank.bytes));
            }
        }
    }

    /// Of which pages there is more than the limit allows: what was made to order counts once its
    /// client is gone.
    fn over_limit(&self) -> BTreeSet<(Backing, Page)> {
        let mut ready: BTreeMap<(Backing, Page), (Kind, u64)> = BTreeMap::new();
        for blank in self.stock.iter() {
            let pages = (blank.kind.backing, blank.kind.page);
            ready.entry(pages).or_insert((blank.kind, 0)).1 += blank.bytes;
        }
        let over = ready.into_iter().filter(|(_, (kind, bytes))| *bytes > self.limit(*kind));
        over.map(|(pages, _)| pages).collect()
    }
}

/// Whether an inode is just what is wanted.
pub(super) fn alike(need: &Need, kind: &Kind, bytes: u64) -> bool {
    let Need { want, payer } = need;
    kind.payer == *payer
        && want.bytes == bytes
        && want.page == kind.page
        && want.node.is_none_or(|node| node == kind.node)
}
