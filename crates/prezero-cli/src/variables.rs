//! The variables that are ours: one that nothing reads is told, with the name that may have been meant.

use std::ffi::OsString;
use std::fmt;

use prezero::internal::KNOBS;

use prezero_command::outcome;

/// What our names begin with.
const OURS: &str = "PREZERO_";

/// Those that are no knobs.
const OTHERS: [&str; 22] = [
    "PREZERO_BARE_THREAD",
    "PREZERO_DISABLE",
    "PREZERO_LEASE_BYTES",
    "PREZERO_LEASE_FD",
    "PREZERO_LEASE_INODE",
    "PREZERO_LEASE_PAGE",
    "PREZERO_LEASE_PID",
    "PREZERO_LEASE_RANKS",
    "PREZERO_LEASE_SHIM_LIB",
    "PREZERO_LIB",
    "PREZERO_PID",
    "PREZERO_PINNED_BOARD",
    "PREZERO_PINNED_INODE",
    "PREZERO_PINNED_LIB",
    "PREZERO_PINNED_PLAIN",
    "PREZERO_PINNED_THRESHOLD",
    "PREZERO_QEMU",
    "PREZERO_QEMU_WAIT",
    "PREZERO_SOCKET",
    "PREZERO_STDERR",
    "PREZERO_TREE",
    "PREZERO_TRIED",
];

/// What our own tests and packages set.
const TOOLS: [&str; 5] =
    ["PREZERO_BENCH_", "PREZERO_ROUNDS_", "PREZERO_TEST_", "PREZERO_WHEEL_", "PREZERO_ABLATE"];

/// Those with few values: all else would pass for the default.
const VALUES: [(&str, &[&str]); 2] =
    [("PREZERO_DISABLE", &["1", "0", ""]), ("PREZERO_BARE_THREAD", &["off", "on", ""])];

/// A variable has a value that it does not take.
#[derive(Debug)]
pub struct BadValue(&'static str, String, &'static [&'static str]);

impl fmt::Display for BadValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BadValue(name, value, values) = self;
        write!(f, "{name}={value}: no such value; give {}, or unset it", values[0])
    }
}

/// Tells of those that nothing reads.
///
/// # Errors
/// One that is read has a value that it does not take.
pub fn look() -> Result<(), BadValue> {
    for (name, value) in std::env::vars_os() {
        let Some(name) = name.to_str().filter(|name| is_unknown(name)) else {
            check(&name, &value)?;
            continue;
        };
        let meant = outcome::similar(name, known());
        let meant = meant.map_or_else(String::new, |meant| format!("; did you mean {meant}?"));
        prezero_sys::tell!("prezero: run: {name}: no such variable, nothing reads it{meant}");
    }
    Ok(())
}

fn check(name: &OsString, value: &OsString) -> Result<(), BadValue> {
    let row = VALUES.iter().find(|(each, _)| *each == name);
    match row {
        Some(&(name, values)) if !values.iter().any(|each| *each == value) => {
            Err(BadValue(name, value.to_string_lossy().into_owned(), values))
        }
        _ => Ok(()),
    }
}

fn known() -> impl Iterator<Item = &'static str> {
    KNOBS.iter().map(|knob| knob.variable).chain(OTHERS)
}

fn is_unknown(name: &str) -> bool {
    name.starts_with(OURS)
        && !known().any(|known| known == name)
        && !TOOLS.iter().any(|tool| name.starts_with(tool))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_nothing_reads_comes_with_the_one_that_may_be_meant() {
        assert!(!is_unknown("PREZERO_LIMIT") && !is_unknown("PREZERO_LIB") && !is_unknown("PATH"));
        for (slip, meant) in [
            ("PREZERO_LIMT", "PREZERO_LIMIT"),
            ("PREZERO_SCRUBRATE", "PREZERO_SCRUB_RATE"),
            ("PREZERO_DISABLED", "PREZERO_DISABLE"),
        ] {
            assert!(is_unknown(slip));
            assert_eq!(outcome::similar(slip, known()), Some(meant));
        }
    }

    /// Whatever the sources read by a name in quotes.
    #[test]
    fn every_variable_that_is_read_is_known() {
        fn sources(folder: &std::path::Path, found: &mut String) {
            for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
                let path = entry.path();
                if path.is_dir() && !path.ends_with("tests") && !path.ends_with("target") {
                    sources(&path, found);
                } else if path.extension().is_some_and(|end| end == "rs") {
                    let text = std::fs::read_to_string(&path).unwrap();
                    found.push_str(text.split("#[cfg(test)]").next().unwrap());
                }
            }
        }
        let mut text = String::new();
        sources(std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")), &mut text);
        let quoted = text.split('"').filter(|word| {
            word.strip_prefix(OURS).is_some_and(|rest| {
                !rest.is_empty()
                    && rest.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_')
            })
        });
        let unknown: Vec<&str> = quoted.filter(|name| is_unknown(name)).collect();
        assert_eq!(unknown, Vec::<&str>::new());
    }
}
