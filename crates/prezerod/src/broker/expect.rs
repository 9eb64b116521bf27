//! What an operator expects back: a server ends, or moves in a roll-out, and starts again.
//!
//! Contract: what is expected is kept ready as `[[stock]]` is, whose pieces count for it. A lease of that size is one piece
//! less, and time ends the rest. It outlives the broker ([`persist`](super::persist)).

use serde::{Deserialize, Serialize};

use super::{Broker, ClientId, Inode, Refusal};
use crate::demand::Keep;
use crate::inode::Kind;
use crate::protocol::{Answer, Reason, Want};
use crate::stock::{Need, alike};
use crate::tenant::{Payer, Tenant};

/// The most sizes that are expected at a time.
/// Fixed: a bound of the broker's memory.
const MOST: usize = 64;

/// One size.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Expected {
    #[serde(flatten)]
    need: Need,
    pieces: u64,
    /// ns. What is left until then is saved.
    #[serde(rename = "left")]
    until: u64,
}

/// See the module.
#[derive(Default, Debug)]
pub(super) struct Expectations {
    all: Vec<Expected>,
    /// How often that changed.
    pub changes: u64,
}

impl Expectations {
    /// What is to be kept for it beside what is `kept`.
    pub fn keeps(&self, kept: impl Iterator<Item = Keep>) -> Vec<Keep> {
        let kept: Vec<Keep> = kept.collect();
        let beside = |need: &Need| {
            let such = kept.iter().filter(|keep| keep.need == *need).map(|keep| keep.keep);
            such.fold(0, u64::saturating_add)
        };
        let keep = |one: &Expected| {
            let keep = one.pieces.saturating_sub(beside(&one.need));
            (keep > 0).then_some(Keep { need: one.need, keep, most: u64::MAX })
        };
        self.all.iter().filter_map(keep).collect()
    }

    /// What is to be saved.
    pub fn saved(&self, now: u64) -> Vec<Expected> {
        let left = |one: &Expected| Expected { until: one.until.saturating_sub(now), ..*one };
        self.all.iter().map(left).collect()
    }
}

impl<I: Inode> Broker<I> {
    /// That number of pieces is expected from now on, for the client's own payer.
    pub(super) fn expects(
        &mut self,
        now: u64,
        client: ClientId,
        tenant: &Tenant,
        want: Want,
        (seconds, pieces): (u32, u32),
    ) -> Result<Answer, Refusal> {
        if !self.is_operator(client) {
            let text = "root and the broker's own user say what is expected; ask as one of them";
            return Err((Reason::Denied, text.into()));
        }
        self.check_size(&want)?;
        self.check_node(want.node)?;
        let need = Need { want, payer: self.ledger.payer(tenant) };
        self.expected.all.retain(|one| one.need != need);
        if self.expected.all.len() >= MOST {
            let text = format!("{MOST} sizes are expected already; end one with --each 0");
            return Err((Reason::Busy, text));
        }
        if pieces > 0 && seconds > 0 {
            let until = now.saturating_add(u64::from(seconds) * 1_000_000_000);
            self.expected.all.push(Expected { need, pieces: pieces.into(), until });
        }
        self.expectations_changed();
        Ok(Answer::Done)
    }

    fn expectations_changed(&mut self) {
        self.expected.changes += 1;
        self.set_keeps();
    }

    /// A lease was granted: it may be one that was expected.
    pub(super) fn arrived(&mut self, kind: &Kind, bytes: u64) {
        let such = |one: &&mut Expected| alike(&one.need, kind, bytes);
        let Some(one) = self.expected.all.iter_mut().find(such) else { return };
        one.pieces = one.pieces.saturating_sub(1);
        self.expected.all.retain(|one| one.pieces > 0);
        self.expectations_changed();
    }

    /// Ends what is over.
    pub(super) fn expect_no_more(&mut self, now: u64) {
        let before = self.expected.all.len();
        self.expected.all.retain(|one| one.until > now);
        if self.expected.all.len() != before {
            self.expectations_changed();
        }
    }

    /// What was saved `passed` ns ago comes back, as far as today's settings know its payer.
    pub(super) fn restore_expected(
        &mut self,
        now: u64,
        passed: u64,
        saved: Vec<Expected>,
        payer: impl Fn(Payer) -> Option<Payer>,
    ) {
        let again = |Expected { need: Need { want, payer: paid }, pieces, until: left }| {
            self.check_size(&want).ok()?;
            self.check_node(want.node).ok()?;
            let left = left.checked_sub(passed).filter(|&left| left > 0)?;
            let need = Need { want, payer: payer(paid)? };
            Some(Expected { need, pieces, until: now.saturating_add(left) })
        };
        self.expected.all = saved.into_iter().take(MOST).filter_map(again).collect();
        self.set_keeps();
    }
}
