//! A [`Snapshot`] for people and for machines: text, JSON, and the few lines that end `prezero run`.
//!
//! Names, units and meanings come from `stats`, in its order; a counter added there appears
//! here by itself. Each `write_*` writes into any [`fmt::Write`] and allocates nothing, for
//! a caller that must not; the `to_*` do the same into a `String`.

use crate::config::value::Text;
use crate::count::counters::{Counter, Definition, Unit, Value};
use crate::observe::processes::Processes;
use crate::observe::snapshot::{FreeState, Snapshot};
use std::fmt::{self, Display, Write};

impl Snapshot {
    /// Everything, aligned, under headings, in units for people.
    pub fn write_text(&self, out: &mut impl Write) -> fmt::Result {
        let mut group = "";
        for (d, value) in self.values() {
            if d.group != group {
                group = d.group;
                writeln!(out, "{group}")?;
            }
            writeln!(out, "  {:<24} {:>14}  {}", d.name, human(d.unit, value).as_str(), d.help)?;
        }
        let (cached, bypassing) = (self.gauges.engine_cached, self.gauges.engine_bypassing);
        writeln!(out, "  {:<24} {cached:>14}  clears through the cache", "engine_cached")?;
        writeln!(out, "  {:<24} {bypassing:>14}  clears past the cache", "engine_bypassing")?;
        write!(out, "free blocks\n  order")?;
        for state in FreeState::ALL {
            write!(out, " {:>9}", state.name())?;
        }
        let some = |blocks: &[u64]| blocks.iter().any(|&count| count > 0);
        for (order, blocks) in self.gauges.free.iter().enumerate().filter(|(_, b)| some(&b[..])) {
            write!(out, "\n  {order:>5}")?;
            for count in blocks {
                write!(out, " {count:>9}")?;
            }
        }
        writeln!(out)
    }

    /// One JSON object, without a line break. Keys are the names of `stats`; `free_blocks`
    /// holds for each state an array by order. A value that is not a number is `null`.
    pub fn write_json(&self, out: &mut impl Write) -> fmt::Result {
        self.write_json_of(&Processes::default(), out)
    }

    /// The same of several processes, with their names under `processes`.
    pub fn write_json_of(&self, processes: &Processes<'_>, out: &mut impl Write) -> fmt::Result {
        let g = &self.gauges;
        out.write_char('{')?;
        processes.write_json(out)?;
        for (d, value) in self.values() {
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

    /// [`Snapshot::write_text`] as a string.
    pub fn to_text(&self) -> String {
        rendered(|out| self.write_text(out))
    }

    /// [`Snapshot::write_json`] as a string.
    pub fn to_json(&self) -> String {
        rendered(|out| self.write_json(out))
    }

    fn values(&self) -> impl Iterator<Item = (&'static Definition, Value)> {
        let counters = Counter::ALL.iter().map(|&c| (c.definition(), Value::Int(self.get(c))));
        counters.chain(self.gauges.scalars())
    }
}

pub(crate) fn rendered(write: impl FnOnce(&mut String) -> fmt::Result) -> String {
    let mut out = String::new();
    write(&mut out).expect("writing to a String does not fail");
    out
}

/// `part` of `whole`, 0 to 1; 0 if there is no whole.
pub(crate) fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { (part / whole).clamp(0.0, 1.0) } else { 0.0 }
}

/// A string as JSON wants it between quotes.
pub(crate) struct Quoted<'a>(pub(crate) &'a str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '"' | '\\' => write!(f, "\\{c}"),
            '\n' => f.write_str("\\n"),
            // No engine is named so.
            c if c.is_control() => f.write_char(' '),
            c => f.write_char(c),
        })
    }
}

/// A short rendered value. A longer one is cut.
type Short = Text<32>;

fn short(text: fmt::Arguments<'_>) -> Short {
    let mut short = Text::empty();
    // An error says that it was cut, which is the documented behaviour.
    let _ = short.write_fmt(text);
    short
}

fn human(unit: Unit, value: Value) -> Short {
    match (unit, value) {
        (Unit::Bytes, Value::Int(n)) => bytes(n),
        (Unit::Nanoseconds | Unit::NanosecondsPerPage, Value::Int(n)) => time(n as f64),
        (Unit::Nanoseconds | Unit::NanosecondsPerPage, Value::Float(ns)) => time(ns),
        (_, Value::Int(n)) => grouped(n),
        (_, Value::Float(x)) => short(format_args!("{x:.2}")),
    }
}

/// `1,234,567`.
pub(crate) fn grouped(n: u64) -> Short {
    let (mut grouped, digits) = (Short::empty(), short(format_args!("{n}")));
    for (at, digit) in digits.as_str().char_indices() {
        if at > 0 && (digits.as_str().len() - at).is_multiple_of(3) {
            let _ = grouped.write_char(',');
        }
        let _ = grouped.write_char(digit);
    }
    grouped
}

/// `512 B`, `1.5 GiB`.
pub(crate) fn bytes(n: u64) -> Short {
    let (mut value, mut unit) = (n as f64, "B");
    for larger in ["KiB", "MiB", "GiB", "TiB", "PiB"] {
        if value < 1023.95 {
            break;
        }
        (value, unit) = (value / 1024.0, larger);
    }
    match unit {
        "B" => short(format_args!("{n} B")),
        _ => short(format_args!("{value:.1} {unit}")),
    }
}

/// `36 ns`, `1.4 us`, `2.3 ms`, `1.24 s`.
pub(crate) fn time(ns: f64) -> Short {
    match ns {
        ns if ns < 1e3 => short(format_args!("{ns:.0} ns")),
        ns if ns < 1e6 => short(format_args!("{:.1} us", ns / 1e3)),
        ns if ns < 1e9 => short(format_args!("{:.1} ms", ns / 1e6)),
        ns => short(format_args!("{:.2} s", ns / 1e9)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::count::counters::Counters;
    use crate::observe::snapshot::Gauges;

    const MIB: u64 = 1 << 20;

    /// Every value different, so that a value under the wrong name shows.
    fn busy() -> Snapshot {
        let cpu = Counters::new();
        for (i, &counter) in Counter::ALL.iter().enumerate() {
            cpu.add(counter, 1_234_567_890 + 1_000 * i as u64);
        }
        let mut gauges = Gauges {
            zone_bytes: 7 * MIB,
            allocated_bytes: 5 * MIB,
            clear_ns_per_page: 36.5,
            engine_cached: "rep-stosb",
            engine_bypassing: "a \"quoted\\\" name",
            ..Gauges::default()
        };
        gauges.free[9][FreeState::Mixed as usize] = 77;
        Snapshot::gather([&cpu], gauges)
    }

    #[test]
    fn text_names_every_value_once_in_aligned_columns() {
        let text = busy().to_text();

        for (d, value) in busy().values() {
            let named: Vec<&str> =
                text.lines().filter(|l| l.split_whitespace().next() == Some(d.name)).collect();
            assert_eq!(named.len(), 1, "{}", d.name);
            assert_eq!(named[0].find(d.help), Some(43), "{}", named[0]);
            assert!(named[0].contains(&human(d.unit, value).to_string()), "{}", named[0]);
        }
        assert!(text.contains("\n      9         0         0         0        77\n"), "{text}");
    }

    #[test]
    fn json_parses_and_holds_every_value_under_its_name() {
        let json = busy().to_json();

        let parsed: serde_json::Value = serde_json::from_str(&json).unwrap();
        for (d, value) in busy().values() {
            assert_eq!(json.matches(&format!("\"{}\":", d.name)).count(), 1, "{}", d.name);
            match value {
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

        let parsed: serde_json::Value = serde_json::from_str(&snapshot.to_json()).unwrap();

        assert!(parsed["clear_ns_per_page"].is_null());
    }

    #[test]
    fn units_for_people() {
        let shown = [bytes(0), bytes(1023), bytes(1024), bytes(MIB - 1), bytes(u64::MAX)];
        assert_eq!(
            shown.map(|s| s.to_string()),
            ["0 B", "1023 B", "1.0 KiB", "1.0 MiB", "16384.0 PiB"]
        );
        let shown = [time(36.4), time(1_400.0), time(2.3e6), time(1.236e9)];
        assert_eq!(shown.map(|s| s.to_string()), ["36 ns", "1.4 us", "2.3 ms", "1.24 s"]);
        let shown = [grouped(7), grouped(1_000), grouped(u64::MAX)];
        assert_eq!(shown.map(|s| s.to_string()), ["7", "1,000", "18,446,744,073,709,551,615"]);
    }
}
