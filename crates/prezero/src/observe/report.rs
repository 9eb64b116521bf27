//! A [`Snapshot`] for people and for machines: text, JSON, `OpenMetrics`, and the few lines
//! that end `prezero run`.
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

    /// `OpenMetrics` text, which Prometheus reads: base units (bytes, seconds), `# EOF` last.
    pub fn write_prometheus(&self, out: &mut impl Write) -> fmt::Result {
        for &counter in Counter::ALL {
            let d = counter.definition();
            let family = Family::of(d);
            family.write_head(out, "counter", d.help)?;
            writeln!(out, "{family}_total {}", BaseUnit(d.unit, Value::Int(self.get(counter))))?;
        }
        for (d, value) in self.gauges.scalars() {
            let family = Family::of(d);
            family.write_head(out, "gauge", d.help)?;
            writeln!(out, "{family} {}", BaseUnit(d.unit, value))?;
        }
        let blocks = Family { stem: "free_blocks", unit: "" };
        blocks.write_head(out, "gauge", "free blocks in the buddy")?;
        for (order, counts) in self.gauges.free.iter().enumerate() {
            for state in FreeState::ALL {
                let (name, count) = (state.name(), counts[state as usize]);
                writeln!(out, "{blocks}{{order=\"{order}\",state=\"{name}\"}} {count}")?;
            }
        }
        let engine = Family { stem: "engine", unit: "" };
        engine.write_head(out, "info", "clear engines in use")?;
        let cached = Quoted(self.gauges.engine_cached);
        let bypassing = Quoted(self.gauges.engine_bypassing);
        writeln!(out, "{engine}_info{{cached=\"{cached}\",bypassing=\"{bypassing}\"}} 1")?;
        out.write_str("# EOF\n")
    }

    /// [`Snapshot::write_text`] as a string.
    pub fn to_text(&self) -> String {
        rendered(|out| self.write_text(out))
    }

    /// [`Snapshot::write_json`] as a string.
    pub fn to_json(&self) -> String {
        rendered(|out| self.write_json(out))
    }

    /// [`Snapshot::write_prometheus`] as a string.
    pub fn to_prometheus(&self) -> String {
        rendered(|out| self.write_prometheus(out))
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

/// A metric family's name: `prezero_<stem>`, ending in its unit where it has one.
struct Family {
    stem: &'static str,
    unit: &'static str,
}

impl Family {
    fn of(d: &Definition) -> Family {
        let (ours, unit) = match d.unit {
            Unit::Count | Unit::Pages => return Family { stem: d.name, unit: "" },
            Unit::Bytes => ("_bytes", "bytes"),
            Unit::Nanoseconds => ("_ns", "seconds"),
            Unit::NanosecondsPerPage => ("_ns_per_page", "seconds_per_page"),
        };
        Family { stem: d.name.strip_suffix(ours).unwrap_or(d.name), unit }
    }

    fn write_head(&self, out: &mut impl Write, kind: &str, help: &str) -> fmt::Result {
        writeln!(out, "# TYPE {self} {kind}")?;
        if !self.unit.is_empty() {
            writeln!(out, "# UNIT {self} {}", self.unit)?;
        }
        writeln!(out, "# HELP {self} {help}")
    }
}

impl Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let joint = if self.unit.is_empty() { "" } else { "_" };
        write!(f, "prezero_{}{joint}{}", self.stem, self.unit)
    }
}

/// A value in the unit that its metric family is named for.
struct BaseUnit(Unit, Value);

impl Display for BaseUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SECOND_NS: u64 = 1_000_000_000;
        match (self.0, self.1) {
            (Unit::Nanoseconds | Unit::NanosecondsPerPage, Value::Int(ns)) => {
                write!(f, "{}.{:09}", ns / SECOND_NS, ns % SECOND_NS)
            }
            (Unit::Nanoseconds | Unit::NanosecondsPerPage, Value::Float(ns)) => {
                write!(f, "{:e}", ns / SECOND_NS as f64)
            }
            (_, Value::Int(n)) => n.fmt(f),
            (_, Value::Float(x)) => x.fmt(f),
        }
    }
}

/// A string as both JSON and `OpenMetrics` want it between quotes.
pub(crate) struct Quoted<'a>(pub(crate) &'a str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '"' | '\\' => write!(f, "\\{c}"),
            '\n' => f.write_str("\\n"),
            // Neither format agrees with the other on these, and no engine is named so.
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
    fn prometheus_has_each_family_once_with_type_unit_and_help() {
        let text = busy().to_prometheus();

        for &counter in Counter::ALL {
            let family = Family::of(counter.definition()).to_string();
            let samples = text.lines().filter(|l| l.starts_with(&format!("{family}_total ")));
            assert_eq!(samples.count(), 1, "{family}");
            for head in ["TYPE", "HELP"] {
                let head = format!("# {head} {family} ");
                assert_eq!(text.matches(&head).count(), 1, "{head}");
            }
        }
        assert!(text.contains("# TYPE prezero_scrub_cpu_seconds counter\n"));
        assert!(text.contains("# UNIT prezero_scrub_cpu_seconds seconds\n"));
        assert!(text.contains("\nprezero_scrub_cpu_seconds_total 1.234"));
        assert!(text.contains("\nprezero_clear_seconds_per_page 3.65e-8\n"));
        assert!(text.ends_with("\n# EOF\n"));
    }

    #[test]
    fn prometheus_samples_are_well_formed() {
        for line in busy().to_prometheus().lines().filter(|l| !l.starts_with('#')) {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let name = series.split('{').next().unwrap();
            assert!(name.starts_with("prezero_"), "{line}");
            assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{line}");
            assert_eq!(series.contains('{'), series.ends_with('}'), "{line}");
            assert!(value.parse::<f64>().is_ok_and(f64::is_finite), "{line}");
        }
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
