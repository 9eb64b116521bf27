//! Every counter and gauge: text for people, and JSON.
//!
//! Names, units and meanings come from the counters' and gauges' own tables, in their order; a counter added there
//! appears here by itself.

use std::fmt::{self, Write};

use prezero::{Counter, Definition, FreeState, Snapshot, Value};

use crate::figures::{Quoted, value};
use crate::processes::Processes;

/// Everything, aligned, under headings, in units for people.
pub fn write_text(of: &Snapshot, out: &mut impl Write) -> fmt::Result {
    let mut group = "";
    for (d, number) in values(of) {
        if d.group != group {
            group = d.group;
            writeln!(out, "{group}")?;
        }
        writeln!(out, "  {:<24} {:>14}  {}", d.name, value(d.unit, number).as_str(), d.help)?;
    }
    let (cached, bypassing) = (of.gauges.engine_cached, of.gauges.engine_bypassing);
    writeln!(out, "  {:<24} {cached:>14}  clears through the cache", "engine_cached")?;
    writeln!(out, "  {:<24} {bypassing:>14}  clears past the cache", "engine_bypassing")?;
    write!(out, "free blocks\n  order")?;
    for state in FreeState::ALL {
        write!(out, " {:>9}", state.name())?;
    }
    let some = |blocks: &[u64]| blocks.iter().any(|&count| count > 0);
    for (order, blocks) in of.gauges.free.iter().enumerate().filter(|(_, b)| some(&b[..])) {
        write!(out, "\n  {order:>5}")?;
        for count in blocks {
            write!(out, " {count:>9}")?;
        }
    }
    writeln!(out)
}

/// One JSON object, without a line break, with the names of several processes under `processes`. Keys are the names of
/// counters and gauges; `free_blocks` holds for each state an array by order. A value that is not a number is `null`.
pub fn write_json(of: &Snapshot, processes: &Processes<'_>, out: &mut impl Write) -> fmt::Result {
    let g = &of.gauges;
    out.write_char('{')?;
    processes.write_json(out)?;
    for (d, value) in values(of) {
        match value {
            Value::Int(n) => write!(out, "\"{}\":{n},", d.name)?,
            Value::Float(x) if x.is_finite() => write!(out, "\"{}\":{x},", d.name)?,
            Value::Float(_) => write!(out, "\"{}\":null,", d.name)?,
        }
    }
    write!(out, "\"engine_cached\":\"{}\",", Quoted(g.engine_cached))?;
    write!(out, "\"engine_bypassing\":\"{}\",", Quoted(g.engine_bypassing))?;
    out.write_str("\"free_blocks\":{")?;
    for (i, state) in FreeState::ALL.into_iter().enumerate() {
        write!(out, "{}\"{}\":[", if i == 0 { "" } else { "," }, state.name())?;
        for (order, blocks) in g.free.iter().enumerate() {
            write!(out, "{}{}", if order == 0 { "" } else { "," }, blocks[state as usize])?;
        }
        out.write_char(']')?;
    }
    out.write_str("}}")
}

fn values(of: &Snapshot) -> impl Iterator<Item = (&'static Definition, Value)> {
    let counters = Counter::ALL.iter().map(|&c| (c.definition(), Value::Int(of.get(c))));
    counters.chain(of.gauges.scalars())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::rendered;
    use prezero::Gauges;
    use prezero::internal::COUNT;

    const MIB: u64 = 1 << 20;

    fn json_of(snapshot: &Snapshot) -> String {
        rendered(|out| write_json(snapshot, &Processes::default(), out))
    }

    /// Every value different, so that a value under the wrong name shows.
    fn busy() -> Snapshot {
        let counters: [u64; COUNT] = std::array::from_fn(|i| 1_234_567_890 + 1_000 * i as u64);
        let mut gauges = Gauges {
            zone_bytes: 7 * MIB,
            allocated_bytes: 5 * MIB,
            clear_ns_per_page: 36.5,
            engine_cached: "rep-stosb",
            engine_bypassing: "a \"quoted\\\" name",
            ..Gauges::default()
        };
        gauges.free[9][FreeState::Mixed as usize] = 77;
        Snapshot { counters, gauges }
    }

    #[test]
    fn text_names_every_value_once_in_aligned_columns() {
        let text = rendered(|out| write_text(&busy(), out));

        for (d, number) in values(&busy()) {
            let named: Vec<&str> =
                text.lines().filter(|l| l.split_whitespace().next() == Some(d.name)).collect();
            assert_eq!(named.len(), 1, "{}", d.name);
            assert_eq!(named[0].find(d.help), Some(43), "{}", named[0]);
            assert!(named[0].contains(&value(d.unit, number).to_string()), "{}", named[0]);
        }
        assert!(text.contains("\n      9         0         0         0        77\n"), "{text}");
    }

    #[test]
    fn json_parses_and_holds_every_value_under_its_name() {
        let json = json_of(&busy());

        let parsed: serde_json::Value = serde_json::from_str(&json).unwrap();
        for (d, number) in values(&busy()) {
            assert_eq!(json.matches(&format!("\"{}\":", d.name)).count(), 1, "{}", d.name);
            match number {
                Value::Int(n) => assert_eq!(parsed[d.name].as_u64(), Some(n), "{}", d.name),
                Value::Float(x) => assert_eq!(parsed[d.name].as_f64(), Some(x), "{}", d.name),
            }
        }
        assert_eq!(parsed["free_blocks"]["mixed"][9], 77);
        assert_eq!(parsed["engine_bypassing"], "a \"quoted\\\" name");
    }

    #[test]
    fn json_of_a_gauge_that_is_no_number_is_null() {
        let mut snapshot = busy();
        snapshot.gauges.clear_ns_per_page = f64::NAN;

        let parsed: serde_json::Value = serde_json::from_str(&json_of(&snapshot)).unwrap();

        assert!(parsed["clear_ns_per_page"].is_null());
    }
}
