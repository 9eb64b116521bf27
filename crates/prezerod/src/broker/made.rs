//! What became of a job: made, stopped, or not to be had.

use super::reclaim::Back;
use super::renew::SILENT_NS;
use super::{Broker, Inode, Job, Out, PAUSE_NS, Refusal, Wait};
use prezero_sys::escape::escape;

use crate::filler::{Done, Outcome, Priority};
use crate::inode::Kind;
use crate::protocol::{Backing, Reason};
use crate::stock::StockInode;
use crate::tenant::Payer;

/// The time for which nothing is made for a payer whose filler fell silent, ns.
/// Moved by: counter `filler_deaths`.
const SILENT_PAUSE_NS: u64 = 6 * PAUSE_NS;

impl<I: Inode> Broker<I> {
    /// A filler is done, one way or another.
    pub fn done(&mut self, now: u64, done: Done, inode: Option<I>) {
        let Some(at) = self.planner.jobs.iter().position(|job| job.serial == done.serial) else {
            return;
        };
        let job = self.planner.jobs.remove(at);
        self.view.changed();
        match (done.outcome, inode) {
            (Outcome::Made { cpu_ns, wall_ns }, Some(inode)) => {
                self.counters.made_bytes += job.bytes;
                self.counters.made_cpu_ns += cpu_ns;
                self.planner.learn(&job, wall_ns, now.saturating_sub(job.began));
                let Job { kind, bytes, .. } = job;
                self.enter(StockInode { file: inode, kind, bytes, made_ns: now, cost_ns: cpu_ns });
            }
            (Outcome::Stopped, _) if job.priority == Priority::Urgent => {}
            (Outcome::Stopped, _) => {
                let until = now + PAUSE_NS / 10;
                // A filler in a tenant's cgroup judges by that, too, which its tenant may fill.
                match job.kind.payer {
                    Payer::BROKER => {
                        self.planner.paused_until = self.planner.paused_until.max(until)
                    }
                    payer => {
                        let cgroup = escape(self.ledger.charged(payer).unwrap_or("/"));
                        let text = format!("memory is short in cgroup {cgroup}: raise its limit");
                        self.planner.paused.insert(payer, (until, (Reason::Pressure, text)));
                    }
                }
            }
            (outcome, _) => {
                self.counters.failures += 1;
                // A filler that was killed, or that the kernel refused, lacked no room.
                let has_room = outcome == Outcome::Exhausted && self.make_room(&job);
                let said = self.said(&job, outcome);
                // One cgroup's limit is not the others' business.
                self.planner.paused.insert(job.kind.payer, (now + PAUSE_NS, said.clone()));
                // A client waits in vain for what cannot be made.
                if job.priority == Priority::Urgent && !has_room {
                    self.planner.failed.push((job.need, said));
                }
            }
        }
    }

    /// A filler died, and its last job with it, unless that was done.
    pub fn died(&mut self, now: u64, serial: u64) {
        self.failed(now, serial, "the filler was killed; is memory short?".into());
    }

    /// A filler said nothing for too long, and is killed: nothing is made for its payer for a time. Returns why, if its
    /// job was not done by then.
    pub fn fell_silent(&mut self, now: u64, serial: u64) -> Option<String> {
        let payer = self.planner.jobs.iter().find(|job| job.serial == serial)?.kind.payer;
        let cgroup = escape(self.ledger.charged(payer).unwrap_or("/"));
        let why = format!(
            "the filler in cgroup {cgroup} said nothing for {} s, and is killed: thaw that cgroup, or give it CPU time",
            SILENT_NS / 1_000_000_000
        );
        self.failed(now, serial, why.clone());
        let paused = (now + SILENT_PAUSE_NS, (Reason::Kernel, why.clone()));
        self.planner.paused.insert(payer, paused);
        Some(why)
    }

    /// A job cannot be done, for this reason.
    pub fn failed(&mut self, now: u64, serial: u64, why: String) {
        self.counters.filler_deaths += 1;
        self.done(now, Done { serial, outcome: Outcome::Refused(why) }, None);
    }

    /// The kernel had no page: what lies in the stock in other sizes may be in the way. False: nothing is.
    fn make_room(&mut self, job: &Job) -> bool {
        let kind = job.kind;
        let in_the_way = |other: &StockInode<I>| other.kind == kind && other.bytes != job.bytes;
        self.give_back(1, Back::for_another(kind.backing), in_the_way) > 0
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
                let free = self.view.host.pool(node, page).free;
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
    pub(super) fn failures(&mut self, now: u64) -> Vec<Out<I>> {
        let mut outs = vec![];
        for (need, refusal) in std::mem::take(&mut self.planner.failed) {
            if let Some(at) = self.planner.waits.iter().position(|wait| wait.need == need) {
                let wait = self.planner.waits.remove(at);
                outs.push(self.refuse_wait(now, &wait, refusal));
            }
        }
        outs
    }

    /// A request waited in vain.
    pub(super) fn refuse_wait(&mut self, now: u64, wait: &Wait, refusal: Refusal) -> Out<I> {
        let answer = self.no(refusal);
        let waited = now.saturating_sub(wait.since);
        self.log(wait.client, Some(wait.need.want), waited, &answer);
        Out::new(wait.client, wait.tag, answer)
    }
}
