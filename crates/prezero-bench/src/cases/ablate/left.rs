//! Mechanisms that are left out together.

use anyhow::{Result, bail};
use prezero::internal::Mechanism;

use super::workload::Workload;
use crate::peers::Allocator;

const KNOB: &str = "PREZERO_ABLATE";

/// One or more. Two that stand in for each other show what they are worth only when both are left out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Left(Vec<Mechanism>);

impl Left {
    /// Each by itself.
    pub fn each() -> Vec<Left> {
        Mechanism::ALL.iter().map(|&mechanism| Left(vec![mechanism])).collect()
    }

    /// By their names, with `+` between those that are left out together.
    ///
    /// # Errors
    /// There is no such name.
    pub fn read(names: &str) -> Result<Left> {
        let find = |name| Mechanism::ALL.iter().copied().find(|each| each.name() == name);
        let found: Option<Vec<_>> = names.split('+').map(find).collect();
        let Some(found) = found else {
            bail!("--only {names}: no such mechanism; --plan has them");
        };
        Ok(Left(found))
    }

    /// As [`Left::read`] reads it.
    pub fn name(&self) -> String {
        self.names("+")
    }

    fn names(&self, between: &str) -> String {
        self.0.iter().map(|each| each.name()).collect::<Vec<_>>().join(between)
    }

    /// What each does, in a line.
    pub fn does(&self) -> String {
        self.0.iter().map(|each| each.does()).collect::<Vec<_>>().join(" ")
    }

    /// Whether one of them may matter for a workload.
    pub fn suits(&self, workload: &Workload) -> bool {
        self.0.iter().any(|&mechanism| workload.suits(mechanism))
    }

    /// The same allocator without them. A mechanism that the environment leaves out stays out.
    pub fn under(&self, ours: &Allocator) -> Allocator {
        let too = std::env::var(KNOB).unwrap_or_default();
        let names = format!("{too},{}", self.names(","));
        let mut allocator = ours.clone();
        allocator.environment.push((KNOB.into(), names.trim_start_matches(',').into()));
        allocator
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_are_left_out_together_by_the_knob() {
        let left = Left::read("backoff+gather").unwrap();
        assert_eq!(left.name(), "backoff+gather");
        let under = left.under(&Allocator::plain());
        let (knob, names) = &under.environment[0];
        assert!(knob == KNOB && names.ends_with("backoff,gather"), "{names}");
        assert!(Left::read("backoff+foot").unwrap_err().to_string().contains("--plan"));
    }

    #[test]
    fn each_can_be_left_out_by_its_name() {
        for left in Left::each() {
            assert_eq!(Left::read(&left.name()).unwrap(), left);
        }
    }
}
