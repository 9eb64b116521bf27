//! What is made next, what is let go, and what can be said about when.

use prezero::Size;
use prezero::pressure::Memory;

use super::grant::distrust_text;
use super::{Broker, Inode, Out, Refusal};
use crate::filler::{Done, Outcome, Pace};
use crate::inode::Kind;
use crate::protocol::{Answer, Backing, Page, Reason, Want};
use crate::settings::Source;
use crate::stock::Blank;

/// How long nothing is made for stock after memory was short, or after the kernel had no
/// page left, ns: reclaim and compaction need seconds.
const HOLD_OFF_NS: u64 = 10_000_000_000;
/// How long an inode that no demand asks for is kept, ns: somebody may have given up waiting
/// for it and come again.
const SURPLUS_NS: u64 = 60_000_000_000;
/// Of the stock that memory pressure can reclaim goes one part in this many at each look.
const SHRINK: u64 = 4;
/// Part of memory that stays available whatever a client waits for; at half of that scrubd
/// and the fillers call memory tight.
const SPARE: u64 = 16;
/// Part of memory that the stock may take unless told otherwise.
const SHARE_OF_MEMORY: u64 = 8;
/// Weight of the last inode in the pace.
const NEWEST: f64 = 0.25;

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
    /// What it was asked for as.
    want: Want,
    began: u64,
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
}

impl<I: Inode> Broker<I> {
    /// Looks at everything: lets go what nobody needs, says what to make.
    pub fn plan(&mut self, now: u64, memory: Memory) -> Plan<I> {
        self.demand.turn(now);
        let mut plan = Plan { jobs: vec![], outs: vec![], cancel: vec![] };
        if memory == Memory::Tight {
            self.held_off_until = now + HOLD_OFF_NS;
            self.shrink();
            let idle = self.jobs.iter().filter(|job| job.pace == Pace::Idle);
            plan.cancel = idle.map(|job| job.serial).collect();
        }
        self.release_surplus(now);
        self.cancel_orders(&mut plan);
        self.plan_orders(now, &mut plan);
        if now >= self.held_off_until {
            self.plan_stock(now, &mut plan);
        }
        plan
    }

    /// What was made for somebody who gave up is not made on.
    fn cancel_orders(&self, plan: &mut Plan<I>) {
        let mut waited: Vec<Want> = self.waits.iter().map(|wait| wait.want).collect();
        for job in self.jobs.iter().filter(|job| job.pace == Pace::Urgent) {
            match waited.iter().position(|want| *want == job.want) {
                Some(known) => drop(waited.swap_remove(known)),
                None => plan.cancel.push(job.serial),
            }
        }
    }

    /// For each request that waits one inode is made to order.
    fn plan_orders(&mut self, now: u64, plan: &mut Plan<I>) {
        let mut ordered: Vec<Want> =
            self.jobs.iter().filter(|job| job.pace == Pace::Urgent).map(|job| job.want).collect();
        let mut at = 0;
        while let Some(wait) = self.waits.get(at) {
            let want = wait.want;
            if let Some(known) = ordered.iter().position(|other| *other == want) {
                ordered.swap_remove(known);
                at += 1;
                continue;
            }
            match self.choose(&want) {
                Ok(kind) if self.is_free(kind.node, Pace::Urgent) => {
                    plan.jobs.push(self.job(now, want, kind, Pace::Urgent));
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
        for (want, target) in targets {
            let making = self.jobs.iter().filter(|job| alike(&want, &job.kind, job.bytes)).count();
            let have = self.have(&want) + making as u64;
            if have >= target {
                continue;
            }
            let Ok(kind) = self.choose(&want) else { continue };
            let taken: u64 = self
                .stock
                .iter()
                .map(|blank| (blank.kind, blank.bytes))
                .chain(self.jobs.iter().map(|job| (job.kind, job.bytes)))
                .filter(|(other, _)| other.backing == kind.backing && other.page == kind.page)
                .map(|(_, bytes)| bytes)
                .sum();
            if taken + want.bytes <= self.limit(kind) && self.is_free(kind.node, Pace::Idle) {
                plan.jobs.push(self.job(now, want, kind, Pace::Idle));
            }
        }
    }

    fn is_free(&self, node: u16, pace: Pace) -> bool {
        !self.jobs.iter().any(|job| job.kind.node == node && job.pace == pace)
    }

    fn job(&mut self, now: u64, want: Want, kind: Kind, pace: Pace) -> Job {
        let rate = self.settings.rate.filter(|_| pace == Pace::Idle);
        let serial = self.number();
        let job = Job { serial, kind, bytes: want.bytes, pace, rate, want, began: now };
        self.jobs.push(job);
        job
    }

    /// Inodes that lie ready and are just so.
    fn have(&self, want: &Want) -> u64 {
        self.stock.iter().filter(|blank| alike(want, &blank.kind, blank.bytes)).count() as u64
    }

    /// Most bytes of stock of such pages.
    fn limit(&self, kind: Kind) -> u64 {
        self.settings.limit.unwrap_or_else(|| match kind.backing {
            Backing::Thp => self.host.memory().0 / SHARE_OF_MEMORY,
            Backing::Hugetlb => {
                let pages: u64 =
                    self.nodes.iter().map(|&node| self.host.pool(node, kind.page).total).sum();
                pages * kind.page.bytes() / 4 * 3
            }
        })
    }

    /// What such an inode would be made of now.
    pub(super) fn choose(&self, want: &Want) -> Result<Kind, Refusal> {
        let (page, size) = (want.page, Size(want.bytes as usize));
        let source = self.settings.backing;
        let nodes: Vec<u16> = want.node.map_or_else(|| self.nodes.clone(), |node| vec![node]);
        let trusted = |kind: &Kind| !self.distrusted.contains(kind);
        let room = |node: u16| self.host.pool(node, page).free * page.bytes();
        if source != Source::Thp {
            let pool = nodes.iter().map(|&node| Kind { page, backing: Backing::Hugetlb, node });
            let best = pool.filter(trusted).max_by_key(|kind| room(kind.node));
            if let Some(kind) = best.filter(|kind| room(kind.node) >= want.bytes) {
                return Ok(kind);
            }
        }
        let thp = source != Source::Hugetlb && page == Page::Huge && self.host.thp();
        if thp {
            let kinds = nodes.iter().map(|&node| Kind { page, backing: Backing::Thp, node });
            let Some(kind) = kinds.into_iter().find(trusted) else {
                return Err(distrust_text(want));
            };
            let (total, available) = self.host.memory();
            if available >= want.bytes.saturating_add(total / SPARE) {
                return Ok(kind);
            }
            let available = Size((available >> 20 << 20) as usize);
            let text = format!(
                "{size} asked, {available} of memory available; ask for less, or stop something"
            );
            return Err((Reason::Pressure, text));
        }
        if nodes.iter().any(|&node| !trusted(&Kind { page, backing: Backing::Hugetlb, node })) {
            return Err(distrust_text(want));
        }
        let free = Size(nodes.iter().map(|&node| room(node)).max().unwrap_or(0) as usize);
        let pages = want.bytes / page.bytes();
        let kib = page.bytes() >> 10;
        let text = format!(
            "{size} asked, {free} free in the pool of {page} pages; reserve more: echo {pages} > \
             /sys/kernel/mm/hugepages/hugepages-{kib}kB/nr_hugepages"
        );
        Err((Reason::Host, text))
    }

    /// Whether it can be made at all: now, or from what lies in the stock in other sizes.
    pub(super) fn can_make(&self, want: &Want) -> Result<(), Refusal> {
        match self.choose(want) {
            Ok(_) => Ok(()),
            Err((Reason::Host | Reason::Pressure, _))
                if self.stock.ready(want.page, want.node) >= want.bytes
                    && self.distrusted.is_empty() =>
            {
                Ok(())
            }
            Err(refusal) => Err(refusal),
        }
    }

    /// Not now; when, at the current pace.
    pub(super) fn when(&mut self, now: u64, want: &Want) -> Answer {
        self.demand.owe(now, want);
        let kind = self.choose(want).ok();
        let pace = kind.and_then(|kind| self.paces.get(&kind)).copied().unwrap_or(0.0);
        let ahead: u64 = self.jobs.iter().map(|job| self.left(now, job)).sum();
        let waiting: u64 = self.waits.iter().map(|wait| wait.want.bytes).sum();
        let held_off = self.held_off_until.saturating_sub(now);
        let estimate_ns = if pace > 0.0 {
            held_off + ((ahead + waiting + want.bytes) as f64 / pace * 1e9) as u64
        } else {
            u64::MAX
        };
        let (reason, text) = match held_off {
            0 => (
                Reason::Empty,
                format!("no lease of {} ready; ask with a wait", Size(want.bytes as usize)),
            ),
            _ => (Reason::Pressure, "memory is short, nothing is made now; ask again later".into()),
        };
        self.counters.refuse(reason);
        Answer::When { estimate_ns, reason, text }
    }

    /// Bytes that a job has still to make, if it goes as of late.
    fn left(&self, now: u64, job: &Job) -> u64 {
        let pace = self.paces.get(&job.kind).copied().unwrap_or(0.0);
        let done = pace * now.saturating_sub(job.began) as f64 / 1e9;
        job.bytes.saturating_sub(done as u64)
    }

    pub(super) fn available(
        &self,
        tenant: &super::Tenant,
        page: Page,
        node: Option<u16>,
    ) -> Answer {
        let of = |kind: &Kind| kind.page == page && node.is_none_or(|node| node == kind.node);
        let jobs = self.jobs.iter().filter(|job| of(&job.kind));
        let paces = self.paces.iter().filter(|(kind, _)| of(kind));
        Answer::Available {
            ready: self.stock.ready(page, node).saturating_sub(self.kept_back(tenant.rank)),
            largest: self.stock.largest(page, node),
            making: jobs.map(|job| job.bytes).sum(),
            pace: paces.map(|(_, pace)| *pace as u64).max().unwrap_or(0),
            quota_left: self.quota_left(tenant),
        }
    }

    /// A filler is done, one way or another.
    pub fn done(&mut self, now: u64, done: Done, inode: Option<I>) {
        let Some(at) = self.jobs.iter().position(|job| job.serial == done.serial) else { return };
        let job = self.jobs.remove(at);
        match (done.outcome, inode) {
            (Outcome::Made { cpu_ns, wall_ns }, Some(inode)) => {
                self.counters.made_bytes += job.bytes;
                self.counters.made_cpu_ns += cpu_ns;
                let pace = job.bytes as f64 * 1e9 / wall_ns.max(1) as f64;
                let known = self.paces.entry(job.kind).or_insert(pace);
                *known += NEWEST * (pace - *known);
                let Job { kind, bytes, .. } = job;
                self.stock.put(Blank { inode, kind, bytes, made_ns: now, cost_ns: cpu_ns });
            }
            (Outcome::Stopped, _) if job.pace == Pace::Urgent => {}
            (Outcome::Stopped, _) => {
                self.held_off_until = self.held_off_until.max(now + HOLD_OFF_NS / 10)
            }
            (outcome, _) => {
                self.counters.failures += 1;
                self.held_off_until = self.held_off_until.max(now + HOLD_OFF_NS);
                if job.pace == Pace::Idle {
                    self.make_room(&job);
                } else {
                    self.fail(&job, &outcome);
                }
            }
        }
    }

    /// A filler died, and its job with it.
    pub fn died(&mut self, now: u64, node: u16, pace: Pace) {
        self.counters.filler_deaths += 1;
        let own = |job: &&Job| job.kind.node == node && job.pace == pace;
        if let Some(serial) = self.jobs.iter().find(own).map(|job| job.serial) {
            let outcome = Outcome::Refused("the filler was killed; is memory short?".into());
            self.done(now, Done { serial, outcome }, None);
        }
    }

    /// The kernel had no page: what lies in the stock in other sizes may be in the way.
    fn make_room(&mut self, job: &Job) {
        let kind = job.kind;
        if let Some(other) =
            self.stock.take_oldest(|other| other.kind == kind && other.bytes != job.bytes)
        {
            self.counters.waste_bytes += other.bytes;
        }
    }

    /// Whoever waits for what cannot be made waits in vain.
    fn fail(&mut self, job: &Job, outcome: &Outcome) {
        let before = self.stock.iter().count();
        self.make_room(job);
        if self.stock.iter().count() < before {
            return;
        }
        let text = match outcome {
            Outcome::Refused(text) => text.clone(),
            _ => format!(
                "the kernel has no {} page left on node {}; free some memory or compact it: \
                 echo 1 > /proc/sys/vm/compact_memory",
                job.kind.page, job.kind.node
            ),
        };
        self.failed.push((job.want, text));
    }

    /// Ends the waits that a failed job was for.
    pub(super) fn failures(&mut self) -> Vec<Out<I>> {
        let mut outs = vec![];
        for (want, text) in std::mem::take(&mut self.failed) {
            if let Some(at) = self.waits.iter().position(|wait| wait.want == want) {
                let wait = self.waits.remove(at);
                let answer = self.no(Reason::Kernel, text);
                let (client, tag) = (wait.client, wait.tag);
                outs.push(Out { client, tag, answer, inode: None, text: None });
            }
        }
        outs
    }

    /// Memory is short: a part of what the kernel can use goes back, oldest first. Pages of a
    /// hugetlb pool would go back to the pool, which helps nobody.
    fn shrink(&mut self) {
        let reclaimable = |blank: &Blank<I>| blank.kind.backing == Backing::Thp;
        let all: u64 = self.stock.iter().filter(|b| reclaimable(b)).map(|b| b.bytes).sum();
        let mut freed = 0;
        while freed < all.div_ceil(SHRINK) {
            let Some(blank) = self.stock.take_oldest(reclaimable) else { break };
            freed += blank.bytes;
        }
        self.counters.waste_bytes += freed;
        self.counters.pressure_bytes += freed;
    }

    /// What is above every target for so long that nobody comes back for it.
    fn release_surplus(&mut self, now: u64) {
        let targets: Vec<_> = self.demand.targets().collect();
        let mut shelves: Vec<_> =
            targets.iter().map(|(want, target)| (want, *target, self.have(want))).collect();
        loop {
            let surplus = |blank: &Blank<I>| {
                now.saturating_sub(blank.made_ns) > SURPLUS_NS
                    && shelves.iter().all(|(want, target, have)| {
                        have > target || !alike(want, &blank.kind, blank.bytes)
                    })
            };
            let Some(blank) = self.stock.take_oldest(surplus) else { return };
            self.counters.waste_bytes += blank.bytes;
            for (want, _, have) in &mut shelves {
                *have -= u64::from(alike(want, &blank.kind, blank.bytes));
            }
        }
    }
}

/// Whether an inode is just what is wanted.
fn alike(want: &Want, kind: &Kind, bytes: u64) -> bool {
    want.bytes == bytes && want.page == kind.page && want.node.is_none_or(|node| node == kind.node)
}
