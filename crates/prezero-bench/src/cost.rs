//! What an allocator's processes used up beside the times that they took, and what a zone's statistics say.

use std::collections::BTreeMap;

use anyhow::Result;

use crate::figure::{Across, Figure, Kind, Sheet};
use crate::peers::Allocator;
use crate::worker::Worker;

/// The counters that say what was paid.
const COUNTERS: [&str; 5] =
    ["scrubbed_bytes", "waste_bytes", "unused_zero_bytes", "hits", "misses"];
/// The unit in which bytes are told.
pub const GIB: f64 = (1u64 << 30) as f64;

/// Of one allocator, uncounted samples included.
#[derive(Clone, Default, Debug)]
pub struct Cost {
    /// Which.
    pub allocator: String,
    user_s: f64,
    system_s: f64,
    /// Of both, the scrubbing thread's; `None` where there is none.
    background_s: Option<f64>,
    minor_faults: u64,
    /// Counters of the zone, summed over the workers; empty for others.
    counters: BTreeMap<&'static str, u64>,
}

impl Cost {
    /// None yet.
    pub fn of(allocator: &Allocator) -> Cost {
        Cost { allocator: allocator.name.clone(), ..Cost::default() }
    }

    /// Adds what a worker used, and ends it.
    ///
    /// # Errors
    /// The worker does not answer, or ends badly.
    pub fn add(&mut self, mut worker: Worker) -> Result<()> {
        let (usage, background) = (worker.usage()?, worker.background_ns());
        self.user_s += usage.user_ns as f64 / 1e9;
        self.system_s += usage.system_ns as f64 / 1e9;
        self.minor_faults += usage.minor_faults;
        if let Some(ns) = background {
            *self.background_s.get_or_insert(0.0) += ns as f64 / 1e9;
        }
        let stats = worker.finish()?;
        for (name, value) in stats.iter().flat_map(counters) {
            *self.counters.entry(name).or_default() += value;
        }
        Ok(())
    }

    fn figures(&self) -> impl Iterator<Item = Figure> {
        let times = [
            ("user", Some(self.user_s)),
            ("system", Some(self.system_s)),
            ("scrubd", self.background_s),
        ];
        let times = times
            .into_iter()
            .filter_map(|(name, seconds)| Some(Figure::new(&self.allocator, name, "s", seconds?)));
        let faults = Figure::new(&self.allocator, "minor faults", "", self.minor_faults as f64);
        times.chain([faults]).chain(told(&self.allocator, &self.counters))
    }
}

/// Counters as figures.
pub fn told(who: &str, counters: &BTreeMap<&'static str, u64>) -> Vec<Figure> {
    let figure = |(name, value): (&&str, &u64)| match name.strip_suffix("_bytes") {
        Some(stem) => Figure::new(who, stem, "GiB", *value as f64 / GIB),
        None => Figure::new(who, name, "", *value as f64),
    };
    counters.iter().map(figure).collect()
}

/// All of them.
pub fn sheet(title: &str, costs: &[Cost]) -> Sheet {
    let times = ["user", "system", "scrubd"].map(String::from).to_vec();
    let mut sheet = Sheet::new(title, &[], Across::Name).plot(
        Kind::Bars(times),
        ["CPU seconds, scrubd's in the other two", ""],
        "Cost beside gain: what the times were paid with.",
    );
    sheet.extend(costs.iter().flat_map(Cost::figures));
    sheet
}

/// What a zone's statistics say that bears on cost.
pub fn counters(stats: &serde_json::Value) -> BTreeMap<&'static str, u64> {
    COUNTERS.into_iter().filter_map(|name| Some((name, number(stats, name)?))).collect()
}

/// The number called `name`, however deep it lies.
pub fn number(json: &serde_json::Value, name: &str) -> Option<u64> {
    let object = json.as_object()?;
    let here = object.get(name).and_then(serde_json::Value::as_u64);
    here.or_else(|| object.values().find_map(|inner| number(inner, name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_wherever_they_lie() {
        let json = serde_json::json!({"pid": 1, "counters": {"scrubd": {"scrubbed_bytes": 7}}});
        assert_eq!(number(&json, "scrubbed_bytes"), Some(7));
        assert_eq!(number(&json, "waste_bytes"), None);
        assert_eq!(counters(&json).into_iter().collect::<Vec<_>>(), [("scrubbed_bytes", 7)]);
    }
}
