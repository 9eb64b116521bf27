//! What an allocator's processes used up beside the times that they took, and what a zone's statistics say.

use std::collections::BTreeMap;

use prezero_command::spent::Spent;

use crate::figure::{Across, Figure, Sheet};

/// The counters that say what was paid.
const COUNTERS: [&str; 5] =
    ["scrubbed_bytes", "waste_bytes", "unused_zero_bytes", "hits", "misses"];
/// The unit in which bytes are told.
pub const GIB: f64 = (1u64 << 30) as f64;

/// Of each way, uncounted samples included.
#[derive(Default, Debug)]
pub struct Costs(Vec<((Vec<String>, String), Cost)>);

#[derive(Default, Debug)]
struct Cost {
    spent: Spent,
    /// Of the CPU time, scrubd's; `None` where there is none.
    scrubd_ns: Option<u64>,
    /// Counters of the zones, summed; empty for others.
    counters: BTreeMap<&'static str, u64>,
}

impl Costs {
    /// Adds what a process used, and what its zone says of itself.
    pub fn add(&mut self, of: &[String], who: &str, spent: &Spent, stats: &serde_json::Value) {
        let key = (of.to_vec(), who.to_string());
        let place = self.0.iter().position(|(known, _)| *known == key);
        let place = place.unwrap_or_else(|| {
            self.0.push((key, Cost::default()));
            self.0.len() - 1
        });
        let cost = &mut self.0[place].1;
        cost.spent.user_s += spent.user_s;
        cost.spent.system_s += spent.system_s;
        cost.spent.faults += spent.faults;
        if let Some(ns) = number(stats, "scrubd_cpu_ns") {
            *cost.scrubd_ns.get_or_insert(0) += ns;
        }
        for (name, value) in counters(stats) {
            *cost.counters.entry(name).or_default() += value;
        }
    }

    /// All of them.
    pub fn sheet(&self, title: &str) -> Sheet {
        self.sheet_of(title, &[])
    }

    /// By case.
    pub fn sheet_of(&self, title: &str, labels: &[String]) -> Sheet {
        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        let mut sheet = Sheet::new(title, &labels, Across::Name);
        for ((of, who), Cost { spent, scrubd_ns, counters }) in &self.0 {
            let of: Vec<&str> = of.iter().map(String::as_str).collect();
            let figure = |name, unit, value| Figure::new(who, name, unit, value).case(&of);
            sheet.push(figure("user", "s", spent.user_s));
            sheet.push(figure("system", "s", spent.system_s));
            sheet.extend(scrubd_ns.map(|ns| figure("scrubd", "s", ns as f64 / 1e9)));
            sheet.push(figure("faults", "", spent.faults));
            sheet.extend(told(who, counters).into_iter().map(|figure| figure.case(&of)));
        }
        sheet
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
