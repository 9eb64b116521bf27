//! A broker that is drained for maintenance: nothing is ready, made or leased. What is leased stays.
//!
//! Contract: the operator begins and ends it, no restart of the broker or of the host does ([`saved`](super::saved)).

use super::plan::Plan;
use super::{Broker, ClientId, Inode, Refusal};
use crate::protocol::{Answer, Drain, Reason};

impl<I: Inode> Broker<I> {
    /// Leases no more, or leases again, from now on.
    pub(super) fn drains(&mut self, client: ClientId, drain: Drain) -> Result<Answer, Refusal> {
        if !self.is_operator(client) {
            let text = "root and the broker's own user drain it; ask as one of them";
            return Err((Reason::Denied, text.into()));
        }
        self.drained = drain == Drain::On;
        if self.drained {
            // A ticket is of a reservation that is over.
            self.stock.put_back(|_| true);
            self.give_all_back();
        }
        Ok(Answer::Done)
    }

    /// An earlier broker was drained, or not.
    pub fn set_drained(&mut self, is_drained: bool) {
        self.drained = is_drained;
    }

    /// Whether it leases nothing.
    pub fn is_drained(&self) -> bool {
        self.drained
    }

    /// What a client is told meanwhile.
    pub(super) fn check_drain(&self) -> Result<(), Refusal> {
        if !self.drained {
            return Ok(());
        }
        let text = "the operator drains this broker for maintenance; lease on another host, or \
                    later: prezero stock --undrain ends it";
        Err((Reason::Drained, text.into()))
    }

    /// Ends what is being made, and gives back what was made meanwhile.
    pub(super) fn plan_drained(&mut self, plan: &mut Plan<I>) {
        plan.cancel = self.planner.jobs.iter().map(|job| job.serial).collect();
        self.give_all_back();
    }

    fn give_all_back(&mut self) {
        while let Some(inode) = self.stock.take_oldest(|_| true) {
            self.counters.waste_bytes += inode.bytes;
            inode.file.discard();
        }
        // What was read of pools holds no longer.
        self.view.changed();
    }
}
