//! The processes of a run, where it has several: how many there are, and which asked for most.

use std::fmt::{self, Write};

use crate::figures::{Quoted, bytes, grouped};

/// How many are told by name.
pub const LARGEST: usize = 3;

/// One of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Member<'a> {
    /// Its number.
    pub pid: u32,
    /// Its name.
    pub name: &'a str,
    /// What it asked for.
    pub requested_bytes: u64,
}

/// What a report says of them. By default there is one process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Processes<'a> {
    /// Processes that asked the zone for anything, the first among them.
    pub count: u64,
    /// Of these, those that run on: they are counted as far as they have told.
    pub running: u64,
    /// Of these, those that ended without telling all: killed, or another program since.
    pub cut_short: u64,
    /// Those that asked for most, the largest first.
    pub largest: &'a [Member<'a>],
}

impl Processes<'_> {
    /// A line of the summary; nothing of one process.
    pub(crate) fn write_line(&self, out: &mut impl Write) -> fmt::Result {
        if self.largest.is_empty() {
            return Ok(());
        }
        out.write_str("prezero: in all of ")?;
        let processes = if self.count == 1 { "process" } else { "processes" };
        write!(out, "{} {processes}, the largest: ", grouped(self.count))?;
        for (nth, Member { pid, name, requested_bytes }) in self.largest.iter().enumerate() {
            let comma = if nth == 0 { "" } else { ", " };
            write!(out, "{comma}{name} ({pid}) {}", bytes(*requested_bytes))?;
        }
        for (n, what) in [(self.running, "run on"), (self.cut_short, "ended without a last word")] {
            if n > 0 {
                write!(out, "; {} {what}", grouped(n))?;
            }
        }
        out.write_char('\n')
    }

    /// Members of a JSON object, each with a comma behind it.
    pub(crate) fn write_json(&self, out: &mut impl Write) -> fmt::Result {
        if self.largest.is_empty() {
            return Ok(());
        }
        let Processes { count, running, cut_short, largest } = self;
        write!(out, "\"processes\":{{\"count\":{count},\"running\":{running},")?;
        write!(out, "\"cut_short\":{cut_short},\"largest\":[")?;
        for (nth, Member { pid, name, requested_bytes }) in largest.iter().enumerate() {
            let comma = if nth == 0 { "" } else { "," };
            write!(out, "{comma}{{\"pid\":{pid},\"name\":\"{}\",", Quoted(name))?;
            write!(out, "\"requested_bytes\":{requested_bytes}}}")?;
        }
        out.write_str("]},")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::rendered;

    #[test]
    fn processes_are_told_by_size_and_one_is_not_told() {
        let one = rendered(|out| Processes::default().write_line(out));
        assert_eq!(one, "");
        let gcc = Member { pid: 7, name: "cc1", requested_bytes: 3 << 20 };
        let make = Member { pid: 5, name: "ma\"ke", requested_bytes: 1 << 20 };
        let all = Processes { count: 9, running: 1, cut_short: 2, largest: &[gcc, make] };
        let line = rendered(|out| all.write_line(out));
        assert_eq!(
            line,
            "prezero: in all of 9 processes, the largest: cc1 (7) 3.0 MiB, ma\"ke (5) 1.0 MiB; \
             1 run on; 2 ended without a last word\n"
        );
        let json = rendered(|out| all.write_json(out));
        let json = format!("{{{}}}", json.trim_end_matches(','));
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["processes"]["largest"][1]["name"], "ma\"ke");
        assert_eq!(json["processes"]["count"], 9);
    }
}
