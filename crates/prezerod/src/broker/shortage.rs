//! Why what is wanted does not lie ready, with the mend.
//!
//! What keeps a piece from being begun is what `plan` asks, too: what is told is what is done.

use std::collections::BTreeMap;

use prezero_host::Size;
use prezero_sys::escape::escape;

use super::{Broker, Inode, Job, Refusal};
use crate::demand::{self, Target};
use crate::filler::pacer::Throttle;
use crate::filler::{LONGEST_SILENCE_NS, Priority};
use crate::inode::Kind;
use crate::protocol::{Page, Reason};
use crate::stock::Need;
use crate::stock::alike;
use crate::tenant::Payer;

/// Reason of a piece for which the stock has no room.
pub(super) const LIMIT: &str = "limit";

/// See the module.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Shortage {
    /// A word for programs; `PROTOCOL.md` has all.
    pub reason: &'static str,
    /// The same for people, with the mend where there is one.
    pub why: String,
    /// When the target will be met, at the present pace, ns; `None`: not known.
    pub ready_ns: Option<u64>,
}

impl Shortage {
    fn new(reason: &'static str, why: String) -> Shortage {
        Shortage { reason, why, ready_ns: None }
    }

    fn turn() -> Shortage {
        Shortage::new("turn", "its turn comes: others are made first".into())
    }
}

impl From<Refusal> for Shortage {
    fn from((reason, text): Refusal) -> Shortage {
        Shortage::new(reason.name(), text)
    }
}

/// One size that is wanted.
#[derive(Debug)]
pub(super) struct Wanted {
    pub need: Need,
    /// The number that should lie ready.
    pub target: u64,
    /// The number that does.
    pub ready: u64,
    /// Why not as many; `None`: they do.
    pub shortage: Option<Shortage>,
}

impl Wanted {
    /// How many do not lie ready.
    pub fn missing(&self) -> u64 {
        self.target.saturating_sub(self.ready)
    }
}

impl<I: Inode> Broker<I> {
    /// For how long nothing is made for this payer's stock, ns, and why.
    pub(super) fn pause(&self, now: u64, payer: Payer) -> Option<(u64, Refusal)> {
        let short = self.planner.paused_until.saturating_sub(now);
        let failed = self.planner.paused.get(&payer);
        match failed.map(|(until, said)| (until.saturating_sub(now), said)) {
            Some((left, said)) if left > short => Some((left, said.clone())),
            _ if short > 0 => {
                let text = "memory is short (by PSI, a cgroup's limit, or less than 3 % are \
                            available): give back some, or stop something";
                Some((short, (Reason::Pressure, text.into())))
            }
            _ => None,
        }
    }

    /// Why no stock at all is made for this payer now.
    pub(super) fn paused_by(&self, now: u64, need: &Need) -> Option<Shortage> {
        if let Err(refusal) = self.check_drain() {
            return Some(refusal.into());
        }
        if let Some((left, (reason, text))) = self.pause(now, need.payer) {
            let seconds = left.div_ceil(1_000_000_000);
            return Some(Shortage::new(
                match reason {
                    Reason::Busy => "verifying",
                    reason => reason.name(),
                },
                format!("{text}; tried again in {seconds} s"),
            ));
        }
        if now < self.planner.start.until() {
            let why = "a client has just got a lease, and is left to start".into();
            return Some(Shortage::new("starting", why));
        }
        None
    }

    /// What a piece of stock would be made of now, or why none is.
    pub(super) fn may_stock(&self, now: u64, need: &Need) -> Result<Kind, Shortage> {
        if let Some(shortage) = self.paused_by(now, need) {
            return Err(shortage);
        }
        let kind = self.choose_for_stock(need)?;
        if let Some(text) = self.room(kind).refuses_stock(need.want.bytes) {
            return Err((Reason::Quota, text).into());
        }
        if self.taken(kind) + need.want.bytes > self.limit(kind) {
            return Err(self.no_room(kind));
        }
        if self.is_promised(kind, need.want.bytes) {
            return Err(self.yielded(kind.page));
        }
        Ok(kind)
    }

    /// Bytes of such pages that lie ready or are being made. What another tenant's cgroup pays for and a client waits for
    /// takes no room of the stock: that tenant may freeze its filler.
    pub(super) fn taken(&self, kind: Kind) -> u64 {
        let inodes = self.stock.iter().map(|inode| (inode.kind, inode.bytes));
        let counts = |job: &&Job| {
            job.priority == Priority::Idle || [Payer::BROKER, kind.payer].contains(&job.kind.payer)
        };
        let jobs = self.planner.jobs.iter().filter(counts).map(|job| (job.kind, job.bytes));
        let such = inodes
            .chain(jobs)
            .filter(|(other, _)| other.backing == kind.backing && other.page == kind.page);
        such.map(|(_, bytes)| bytes).sum()
    }

    fn yielded(&self, page: Page) -> Shortage {
        let promised = Size(self.planner.promised.get(&page).copied().unwrap_or(0) as usize);
        let why = format!(
            "others were promised {promised} of the pool of {page} pages; make the pool larger"
        );
        Shortage::new("yielded", why)
    }

    pub(super) fn no_room(&self, kind: Kind) -> Shortage {
        let size = |bytes: u64| Size((bytes >> 20 << 20) as usize);
        let (taken, limit) = (size(self.taken(kind)), size(self.limit(kind)));
        let why = format!(
            "the stock has {taken} of such pages, and its limit is {limit}; raise limit, or keep less"
        );
        Shortage::new(LIMIT, why)
    }

    /// All that is wanted, in the order in which it is made.
    pub(super) fn wanted(&self, now: u64) -> Vec<Wanted> {
        // Bytes that are to be made before, by the node whose filler makes them.
        let mut ahead: BTreeMap<u16, u64> = BTreeMap::new();
        for job in &self.planner.jobs {
            *ahead.entry(job.kind.node).or_default() += self.planner.left(now, job);
        }
        let mut targets = self.targets();
        targets.retain(|target| target.all() > 0);
        let order = demand::in_order(&targets, |need| self.stock.have(need));
        let place = |target: &Target| order.iter().position(|(other, _)| other.need == target.need);
        targets.sort_by_key(|target| place(target).unwrap_or(usize::MAX));
        let wanted = targets.into_iter().map(|target| {
            let (need, ready) = (target.need, self.stock.have(&target.need));
            let mut wanted = Wanted { need, target: target.all(), ready, shortage: None };
            if wanted.missing() > 0 {
                wanted.shortage = Some(self.shortage_of(now, &target, &wanted, &mut ahead));
            }
            wanted
        });
        wanted.collect()
    }

    fn shortage_of(
        &self,
        now: u64,
        target: &Target,
        wanted: &Wanted,
        ahead: &mut BTreeMap<u16, u64>,
    ) -> Shortage {
        let need = &wanted.need;
        let fits = self.have_or_make(need) < target.allotted;
        let making = || self.planner.jobs.iter().filter(|job| alike(need, &job.kind, job.bytes));
        let (mut shortage, kind, pace) = match making().next() {
            Some(job) => (self.made(now, job), job.kind, self.planner.pace(job)),
            None => match self.may_stock(now, need) {
                // Others make way when its turn comes.
                Err(shortage) if shortage.reason == LIMIT && fits => {
                    (Shortage::turn(), self.usual(need), 0.0)
                }
                Err(shortage) => return shortage,
                Ok(kind) if !fits => return self.no_room(kind),
                Ok(kind) => {
                    let pace = self.planner.paces.get(&kind.unpaid()).copied().unwrap_or(0.0);
                    (Shortage::turn(), kind, pace)
                }
            },
        };
        let ahead = ahead.entry(kind.node).or_default();
        *ahead += wanted.missing().saturating_sub(making().count() as u64) * need.want.bytes;
        shortage.ready_ns = (pace > 0.0).then(|| (*ahead as f64 / pace * 1e9) as u64);
        shortage
    }

    /// How the making of a piece goes.
    fn made(&self, now: u64, job: &Job) -> Shortage {
        let node = job.kind.node;
        let pace = job
            .status
            .throttled_to
            .map_or("less".into(), |pace| format!("{}/s", Size(pace as usize)));
        let silent = now.saturating_sub(job.status.heard);
        let (reason, why) = match job.status.throttle {
            _ if silent > LONGEST_SILENCE_NS => {
                let frozen = self
                    .ledger
                    .charged(job.kind.payer)
                    .map(|cgroup| format!(", or its cgroup {} is frozen", escape(cgroup)));
                (
                    "cpu",
                    format!(
                        "its filler has not been heard of for {} s: the CPUs of node {node} are busy, \
                         or the kernel looks for pages{}",
                        silent / 1_000_000_000,
                        frozen.unwrap_or_default()
                    ),
                )
            }
            Some(Throttle::Cpu) => (
                "cpu",
                format!(
                    "the CPUs of node {node} are busy, and its filler steps aside; a claim with a \
                     wait is served all the same"
                ),
            ),
            Some(Throttle::Rate) => ("rate", format!("rate holds it back to {pace}; raise rate")),
            Some(Throttle::Neighbours) => (
                "neighbours",
                format!(
                    "others keep CPUs of node {node} busy, and it is held back to {pace} for their \
                     sake; raise rate-busy or cpu-busy"
                ),
            ),
            None => ("making", "it is being made, and nothing holds it back".into()),
        };
        Shortage::new(reason, why)
    }
}
