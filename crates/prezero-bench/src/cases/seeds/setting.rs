//! What all experiments are given.

use std::cell::OnceCell;

use anyhow::{Result, ensure};
use prezerod::protocol::Backing;

use super::level::{Elsewhere, Level};
use super::table::{Claim, Table, Times};
use crate::broker::Broker;

/// What all experiments are given.
pub struct Setting {
    /// Of this machine.
    pub levels: Vec<Level>,
    /// Brought from others.
    pub elsewhere: Vec<Elsewhere>,
    /// Whether leases can be made here.
    pub host: bool,
    /// Started when it is asked for.
    pub broker: OnceCell<Broker>,
    /// Memory of a test.
    pub mib: usize,
    /// Samples of what is measured by whole processes.
    pub runs: usize,
}

impl Setting {
    /// A broker with a lease for the experiment at hand; `None` where there can be none.
    pub fn broker(&self) -> Result<Option<&Broker>> {
        if !self.host {
            return Ok(None);
        }
        if self.broker.get().is_none() {
            let broker = Broker::start(Backing::Thp, (self.mib as u64) << 20, 1)?;
            ensure!(self.broker.set(broker).is_ok(), "two brokers at once");
        }
        Ok(self.broker.get())
    }

    /// That each level that was brought from elsewhere with its base gains at least so much on it.
    pub fn judge_elsewhere(
        &self,
        table: &mut Table,
        says: &str,
        heading: &str,
        of: &[&str],
        least: f64,
    ) {
        for each in &self.elsewhere {
            let Some(base) = &each.base else { continue };
            let says = format!("{}, {says}, against itself without the patches", each.name);
            let (own, other) = ((&*each.name, of), (&**base, of));
            let times = Times::AtLeast(least);
            table.judge(&[Claim { says: &says, heading, own, other, times, post: None }]);
        }
    }
}
