//! A number as people read it, and a string as JSON takes it. Nothing here allocates.

use std::fmt::{self, Display, Write};

use prezero::{Text, Unit, Value};

/// A short rendered value. A longer one is cut.
pub type Short = Text<32>;

fn short(text: fmt::Arguments<'_>) -> Short {
    let mut short = Text::empty();
    // An error says that it was cut, which is the documented behaviour.
    let _ = short.write_fmt(text);
    short
}

/// A value in its unit.
pub fn value(unit: Unit, value: Value) -> Short {
    match (unit, value) {
        (Unit::Bytes, Value::Int(n)) => bytes(n),
        (Unit::Nanoseconds | Unit::NanosecondsPerPage, ns) => time(ns.as_f64()),
        (_, Value::Int(n)) => grouped(n),
        (_, Value::Float(x)) => short(format_args!("{x:.2}")),
    }
}

/// `1,234,567`.
pub fn grouped(n: u64) -> Short {
    let (mut grouped, digits) = (Short::empty(), short(format_args!("{n}")));
    for (at, digit) in digits.as_str().char_indices() {
        if at > 0 && (digits.as_str().len() - at).is_multiple_of(3) {
            let _ = grouped.write_char(',');
        }
        let _ = grouped.write_char(digit);
    }
    grouped
}

/// `1 request`, `4,000 requests`.
pub fn write_counted(n: u64, what: &str, out: &mut impl Write) -> fmt::Result {
    write!(out, "{} {what}{}", grouped(n), if n == 1 { "" } else { "s" })
}

/// `512 B`, `1.5 GiB`.
pub fn bytes(n: u64) -> Short {
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
pub fn time(ns: f64) -> Short {
    match ns {
        ns if ns < 1e3 => short(format_args!("{ns:.0} ns")),
        ns if ns < 1e6 => short(format_args!("{:.1} us", ns / 1e3)),
        ns if ns < 1e9 => short(format_args!("{:.1} ms", ns / 1e6)),
        ns => short(format_args!("{:.2} s", ns / 1e9)),
    }
}

/// `part` of `whole`, 0 to 1; 0 if there is no whole.
pub fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { (part / whole).clamp(0.0, 1.0) } else { 0.0 }
}

/// A string as JSON wants it between quotes.
#[derive(Debug)]
pub struct Quoted<'a>(pub &'a str);

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

#[cfg(test)]
pub(crate) fn rendered(write: impl FnOnce(&mut String) -> fmt::Result) -> String {
    let mut out = String::new();
    write(&mut out).expect("writing to a String does not fail");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_for_people() {
        let shown = [bytes(0), bytes(1023), bytes(1024), bytes((1 << 20) - 1), bytes(u64::MAX)];
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
