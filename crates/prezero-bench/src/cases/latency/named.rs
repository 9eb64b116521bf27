//! Names that `bench steady --only` takes: those of `bench/programs/ablate.c`, with a size behind them and without.

use anyhow::{Result, bail};
use prezero::Size;

const SIZED: [&str; 11] = [
    "steady",
    "fill",
    "busy",
    "busy-fill",
    "spare",
    "batch",
    "sparse",
    "sparse-plain",
    "neighbour",
    "neighbour-busy",
    "crowd",
];
const UNSIZED: [&str; 11] = [
    "handler",
    "handler-2",
    "phases",
    "frames",
    "any",
    "growing",
    "passing",
    "fork",
    "limit",
    "bursts",
    "mosaic",
];

/// Before anything is measured.
///
/// # Errors
/// No program has one of the names.
pub fn check(names: &[String]) -> Result<()> {
    if let Some(unknown) = names.iter().find(|name| !is_program(name)) {
        let (sized, unsized_) = (SIZED.join("-SIZE, "), UNSIZED.join(", "));
        bail!("--only {unknown}: no such program; give some of {sized}-SIZE, {unsized_}");
    }
    Ok(())
}

fn is_program(name: &str) -> bool {
    let sized = name.rsplit_once('-').is_some_and(|(kind, size)| {
        SIZED.contains(&kind)
            && size.ends_with(['K', 'M'])
            && size.parse::<Size>().is_ok_and(|size| size.0 > 0)
    });
    sized || UNSIZED.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_are_those_of_the_program() {
        let source = include_str!("../../../../../bench/programs/ablate.c");
        let table = source.split_once("workloads[] = {").unwrap().1.split_once("};").unwrap().0;
        let rows = table.lines().filter_map(|line| line.trim().strip_prefix("{ \""));
        let rows: Vec<_> = rows.filter_map(|row| row.split_once('"')).collect();
        for (name, rest) in &rows {
            let names: &[&str] = if rest.contains(", 1 }") { &SIZED } else { &UNSIZED };
            assert!(names.contains(name), "{name}");
        }
        assert_eq!(rows.len(), SIZED.len() + UNSIZED.len());
    }

    #[test]
    fn a_name_of_no_program_is_refused_with_those_there_are() {
        let of = |names: &[&str]| check(&names.iter().map(ToString::to_string).collect::<Vec<_>>());
        of(&["steady-512K", "sparse-plain-1M", "handler-2"]).unwrap();
        for name in ["nosuch", "steady", "steady-0K", "handler-1M", "steady-512", ""] {
            let said = of(&["handler", name]).unwrap_err().to_string();
            assert!(said.starts_with(&format!(
                "--only {name}: no such program; give some of steady-SIZE, "
            )));
        }
    }
}
