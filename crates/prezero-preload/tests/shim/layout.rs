//! Where the library's own code and data lie.

use std::path::{Path, PathBuf};

use crate::run::{bare, build, run, shim};

/// The library without any optimisation: each function has its name there.
fn unoptimised() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("unoptimised");
    let levels = ["prezero", "prezero-host", "prezero-sys"]
        .map(|name| format!("profile.dev.package.{name}.opt-level=0"));
    let options: Vec<_> = levels.iter().flat_map(|level| ["--config", level.as_str()]).collect();
    build(&options, &target);
    target.join("debug/libprezero.so")
}

/// The first call of a function that is not bound yet takes the dynamic linker's lock, also in a request.
#[test]
fn each_function_is_bound_when_the_library_is_loaded() {
    assert!(run(bare("readelf").arg("-dW").arg(shim())).contains("BIND_NOW"));
}

/// A header says what a program may count on: the threshold as it is, and counters that there are.
#[test]
fn the_header_names_the_threshold_and_counters_that_exist() {
    let header = include_str!("../../include/prezero.h");
    let threshold =
        format!("({} KiB unless set otherwise)", prezero_core::internal::DEFAULT_THRESHOLD >> 10);
    assert!(header.contains(&threshold), "not {threshold}");
    let words = header.split(|c: char| !c.is_ascii_lowercase() && c != '_');
    for word in words.filter(|word| word.ends_with("_bytes") || word.ends_with("_ns")) {
        let known =
            prezero_core::Counter::ALL.iter().any(|counter| counter.definition().name == word);
        assert!(known, "{word} is no counter");
    }
}

/// `hot.ld` names what a hit runs through; after a function is renamed it would say nothing of it.
#[test]
fn what_a_hit_runs_through_lies_together() {
    let listed = run(bare("objdump").arg("--syms").arg(unoptimised()));
    let together = [" .text.hit\t", " .data.hit\t"];
    let there = listed.lines().filter(|line| together.iter().any(|section| line.contains(section)));
    let names: Vec<&str> = there.filter_map(|line| line.rsplit(' ').next()).collect();
    let script = include_str!("../../link/hot.ld");
    let places =
        script.lines().filter_map(|line| line.trim().strip_prefix("*(")?.strip_suffix(')'));
    let patterns: Vec<_> = places.flat_map(str::split_whitespace).collect();
    assert!(patterns.len() > 20, "{patterns:?}");
    for pattern in patterns {
        let (_, name) = pattern[1..].split_once('.').expect("a section has a name");
        let (begin, parts) = name.split_once('*').unwrap_or((name, ""));
        let matches = |of: &str| {
            let mut rest = of.strip_prefix(begin);
            for part in parts.split('*') {
                rest = rest.and_then(|rest| Some(rest.split_once(part)?.1));
            }
            rest.is_some()
        };
        let is_there = names.iter().any(|name| matches(name));
        assert!(is_there, "{pattern}: nothing that lies there has such a name");
    }
}
