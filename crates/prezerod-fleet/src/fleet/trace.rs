//! Recorded requests: CSV, of which the first line names the columns.

use std::collections::BTreeMap;
use std::path::Path;

use prezero_host::Size;

use super::MOST_DAYS;
use super::arrivals::{DAY, Request, S};

/// Pages of leases, bytes.
const PAGE: u64 = 2 << 20;

/// See the module.
#[derive(Debug)]
pub struct Trace {
    /// Requests to each host, in order, from midnight of the first day.
    pub hosts: Vec<Vec<Request>>,
}

impl Trace {
    /// Reads a file.
    ///
    /// # Errors
    /// What is wrong, with its line.
    pub fn read(file: &Path) -> Result<Trace, String> {
        let named = |why: String| format!("{}: {why}", file.display());
        let text = std::fs::read_to_string(file).map_err(|why| named(why.to_string()))?;
        Trace::parse(&text).map_err(named)
    }

    /// When the day of the last request ends, ns.
    pub fn until(&self) -> u64 {
        let last = self.hosts.iter().filter_map(|host| host.last()).map(|it| it.0).max();
        last.map_or(DAY, |at| (at / DAY + 1) * DAY)
    }

    fn parse(text: &str) -> Result<Trace, String> {
        let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let heads: Vec<&str> =
            lines.next().map_or("", |(_, line)| line).split(',').map(str::trim).collect();
        let column = |name: &str| heads.iter().position(|head| *head == name);
        let (Some(host), Some(seconds), Some(size)) =
            (column("host"), column("seconds"), column("size"))
        else {
            return Err(format!("line 1 names {heads:?}: name the columns host, seconds and size"));
        };
        let mut hosts: BTreeMap<&str, Vec<(f64, u64)>> = BTreeMap::new();
        for (nth, line) in lines {
            let words: Vec<&str> = line.split(',').map(str::trim).collect();
            let word = |at: usize| words.get(at).copied().unwrap_or("");
            let bad = |name, word: &str, mend| format!("line {}: {name} {word:?}: {mend}", nth + 1);
            let at = word(seconds).parse::<f64>().ok().filter(|at| (0.0..1e12).contains(at));
            let at = at.ok_or_else(|| bad("seconds", word(seconds), "give seconds, 0 or more"))?;
            let bytes = word(size).parse::<Size>().map(|size| size.0 as u64).ok();
            let bytes = bytes
                .filter(|bytes| (1..=1 << 44).contains(bytes))
                .ok_or_else(|| bad("size", word(size), "give bytes, or a size such as 4G"))?;
            let bytes = bytes.next_multiple_of(PAGE);
            hosts.entry(word(host)).or_default().push((at, bytes));
        }
        if hosts.is_empty() {
            return Err("has no requests; give a line for each".into());
        }
        let first = hosts.values().flatten().map(|it| it.0).fold(f64::MAX, f64::min);
        let (day_s, most) = ((DAY / S) as f64, f64::from(MOST_DAYS));
        let from = (first / day_s).floor() * day_s;
        let last = hosts.values().flatten().map(|it| it.0).fold(0.0, f64::max);
        if last - from >= most * day_s {
            return Err(format!("spans more than {MOST_DAYS} days; give fewer"));
        }
        let of_host = |requests: Vec<(f64, u64)>| {
            let ns = |(at, bytes): (f64, u64)| (((at - from) * S as f64) as u64, bytes);
            let mut all: Vec<Request> = requests.into_iter().map(ns).collect();
            all.sort_by_key(|it| it.0);
            all
        };
        Ok(Trace { hosts: hosts.into_values().map(of_host).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_found_by_name_and_days_begin_at_midnight() {
        let text =
            "seconds, size, kind, host\n172801.5,4G,vm,b\n\n172800,3M,vm,a\n172800.5,2M,vm,b\n";
        let trace = Trace::parse(text).unwrap();
        let b = vec![(S / 2, 2 << 20), (3 * S / 2, 4 << 30)];
        assert_eq!(trace.hosts, [vec![(0, 4 << 20)], b]);
        assert_eq!(trace.until(), DAY);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (text, said) in [
            ("", "name the columns"),
            ("host,seconds\n", "name the columns host, seconds and size"),
            ("host,seconds,size\n", "has no requests"),
            ("host,seconds,size\na,-1,2M\n", "line 2: seconds \"-1\""),
            ("host,seconds,size\na,0,2M\na,1\n", "line 3: size \"\""),
            ("host,seconds,size\na,0,0\n", "line 2: size \"0\""),
            ("host,seconds,size\na,0,2M\na,1e9,2M\n", "more than 366 days"),
        ] {
            let error = Trace::parse(text).err().unwrap();
            assert!(error.contains(said) && !error.contains('\n'), "{error:?} lacks {said:?}");
        }
    }
}
