//! What became of a job: made, stopped, or not to be had.

use std::collections::BTreeMap;

use super::{Broker, Inode, Job, Out, PAUSE_NS, Refusal};
use crate::filler::{Done, Outcome, Priority, Progress};
use crate::inode::Kind;
use crate::protocol::{Backing, Reason};
use crate::stock::StockInode;

/// Weight of the last inode in the pace.
const NEWEST: f64 = 0.25;

impl<I: Inode> Broker<I> {
    /// A filler says how far its job is.
    pub fn progress(&mut self, now: u64, progress: Progress) {
        if let Some(job) = self.jobs.iter_mut().find(|job| job.serial == progress.serial) {
            (job.heard, job.left) = (now, progress.left);
            (job.throttle, job.throttled_to) = (progress.throttle, progress.pace);
        }
    }

    /// A filler is done, one way or another.
    pub fn done(&mut self, now: u64, done: Done, inode: Option<I>) {
        let Some(at) = self.jobs.iter().position(|job| job.serial == done.serial) else { return };
        let job = self.jobs.remove(at);
        self.changed();
        match (done.outcome, inode) {
            (Outcome::Made { cpu_ns, wall_ns }, Some(inode)) => {
                self.counters.made_bytes += job.bytes;
                self.counters.made_cpu_ns += cpu_ns;
                let pace = job.bytes as f64 * 1e9 / wall_ns.max(1) as f64;
                learn(&mut self.paces, job.kind, pace);
                if job.priority == Priority::Idle {
                    let took = now.saturating_sub(job.began).max(1);
                    learn(&mut self.refills, job.kind, job.bytes as f64 * 1e9 / took as f64);
                }
                let Job { kind, bytes, .. } = job;
                self.stock.put(StockInode {
                    file: inode,
                    kind,
                    bytes,
                    made_ns: now,
                    cost_ns: cpu_ns,
                });
            }
            (Outcome::Stopped, _) if job.priority == Priority::Urgent => {}
            (Outcome::Stopped, _) => self.paused_until = self.paused_until.max(now + PAUSE_NS / 10),
            (outcome, _) => {
                self.counters.failures += 1;
                // A filler that was killed, or that the kernel refused, lacked no room.
                let has_room = outcome == Outcome::Exhausted && self.make_room(&job);
                let said = self.said(&job, outcome);
                // One cgroup's limit is not the others' business.
                self.paused.insert(job.kind.payer, (now + PAUSE_NS, said.clone()));
                // A client waits in vain for what cannot be made.
                if job.priority == Priority::Urgent && !has_room {
                    self.failed.push((job.need, said));
                }
            }
        }
    }

    /// A filler died, and its last job with it, unless that was done.
    pub fn died(&mut self, now: u64, serial: u64) {
        self.counters.filler_deaths += 1;
        let outcome = Outcome::Refused("the filler was killed; is memory short?".into());
        self.done(now, Done { serial, outcome }, None);
    }

    /// The kernel had no page: what lies in the stock in other sizes may be in the way. False: nothing is.
    fn make_room(&mut self, job: &Job) -> bool {
        let kind = job.kind;
        let in_the_way = |other: &StockInode<I>| other.kind == kind && other.bytes != job.bytes;
        let Some(other) = self.stock.take_oldest(in_the_way) else { return false };
        self.counters.waste_bytes += other.bytes;
        true
    }

    /// Why the kernel did not make it, with the mend.
    fn said(&self, job: &Job, outcome: Outcome) -> Refusal {
        let Kind { page, backing, node, .. } = job.kind;
        // A cgroup's limit may have been lowered, or its processes may have grown, meanwhile.
        if outcome == Outcome::Exhausted
            && let Some(text) = self.room(job.kind).refuses(job.bytes)
        {
            return (Reason::Quota, text);
        }
        let text = match (outcome, backing) {
            (Outcome::Refused(text), _) => text,
            (_, Backing::Hugetlb) => {
                let free = self.host.pool(node, page).free;
                let missing = (job.bytes / page.bytes()).saturating_sub(free).max(1);
                let enough = self.enough(&job.need, missing);
                format!("the pool of node {node} ran out of {page} pages; reserve more: {enough}")
            }
            (_, Backing::Thp | Backing::Tmpfs) => format!(
                "the kernel has no {page} page left on node {node}; free some memory or compact it: \
                 echo 1 > /proc/sys/vm/compact_memory"
            ),
        };
        (Reason::Kernel, text)
    }

    /// Ends the waits that a failed job was for.
    pub(super) fn failures(&mut self) -> Vec<Out<I>> {
        let mut outs = vec![];
        for (need, (reason, text)) in std::mem::take(&mut self.failed) {
            if let Some(at) = self.waits.iter().position(|wait| wait.need == need) {
                let wait = self.waits.remove(at);
                let answer = self.no(reason, text);
                let (client, tag) = (wait.client, wait.tag);
                outs.push(Out { client, tag, answer, inode: None, name: None });
            }
        }
        outs
    }
}

fn learn(paces: &mut BTreeMap<Kind, f64>, kind: Kind, pace: f64) {
    let known = paces.entry(kind.unpaid()).or_insert(pace);
    *known += NEWEST * (pace - *known);
}
