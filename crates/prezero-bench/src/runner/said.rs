//! What a program says of itself: numbers, JSON, or a line for each row.

use anyhow::{Context, Result, bail};
use prezero_command::spent::Spent;
use serde_json::Value;

use super::contest::Run;
use crate::table::Named;

/// What one run said: a label where it speaks of several rows, and its values.
pub type Said = (Option<String>, Value);

/// Numbers are the figures in their order, JSON is as it is, an array of numbers is samples of the first figure. A line with
/// a tab is a row: its label, and JSON.
pub fn read(said: &str) -> Result<Vec<Said>> {
    let said = said.trim();
    if said.lines().next().is_some_and(|line| line.contains('\t')) {
        let row = |line: &str| -> Result<Said> {
            let (label, json) = line.split_once('\t').context("a line without a tab")?;
            Ok((Some(label.into()), serde_json::from_str(json)?))
        };
        return said.lines().map(row).collect();
    }
    let value = match said.chars().next() {
        Some('{') => serde_json::from_str(said)?,
        Some('[') => Value::Array(vec![serde_json::from_str(said)?]),
        _ => {
            let numbers: Result<Vec<f64>, _> = said.split_whitespace().map(str::parse).collect();
            numbers.with_context(|| format!("it said {said}"))?.into()
        }
    };
    Ok(vec![(None, value)])
}

/// The samples of the `nth` figure.
pub fn samples(
    value: &Value,
    spent: &Spent,
    figure: &Named,
    nth: usize,
    skip: usize,
) -> Result<Vec<f64>> {
    let key = figure.key.clone().unwrap_or_else(|| nth.to_string());
    let samples: Vec<f64> = match value.pointer(&format!("/{key}")) {
        Some(Value::Array(all)) => {
            let skip = if all.len() > skip { skip } else { 0 };
            all.iter().skip(skip).filter_map(Value::as_f64).collect()
        }
        Some(value) => value.as_f64().into_iter().collect(),
        None => vec![match key.as_str() {
            "wall_s" => spent.wall_s,
            "cpu_s" => spent.cpu_s(),
            "peak_mib" => spent.peak_mib,
            "faults" => spent.faults,
            _ => bail!("it says nothing of {}", figure.name),
        }],
    };
    Ok(samples.into_iter().map(|sample| sample / figure.by).collect())
}

/// Whether runs that say a checksum say the same one: sums of floats differ in their last digits.
pub fn agree(runs: &[Run], others: &[Run]) -> bool {
    let sum = |run: &Run| read(&run.said).ok()?.first()?.1["checksum"].as_f64();
    let sums: Vec<f64> = runs.iter().chain(others).filter_map(sum).collect();
    sums.iter().all(|sum| (sum - sums[0]).abs() <= 1e-4 * sums[0].abs())
}

/// Whether the kernel alone is asked.
pub fn is_spent(figure: &Named) -> bool {
    matches!(figure.key.as_deref(), Some("wall_s" | "cpu_s" | "peak_mib" | "faults"))
}

/// Of a row: its label, where the program speaks of several, and what each run said and used.
pub type RowSaid = (Option<String>, Vec<(Value, Spent)>);

/// What runs said, by row.
pub fn by_row(runs: &[Run], prints: bool) -> Result<Vec<RowSaid>> {
    let mut rows: Vec<RowSaid> = vec![];
    for run in runs {
        let said = if prints { read(&run.said)? } else { vec![(None, Value::Null)] };
        for (label, value) in said {
            match rows.iter_mut().find(|(known, _)| *known == label) {
                Some((_, values)) => values.push((value, run.spent)),
                None => rows.push((label, vec![(value, run.spent)])),
            }
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(said: &str, figures: &[&str], skip: usize) -> Vec<Vec<f64>> {
        let figures: Vec<_> = figures.iter().map(|text| Named::read(text).unwrap()).collect();
        let spent = Spent { wall_s: 2.0, ..Spent::default() };
        let (_, value) = read(said).unwrap().remove(0);
        let each = figures.iter().enumerate();
        each.map(|(nth, figure)| samples(&value, &spent, figure, nth, skip).unwrap()).collect()
    }

    #[test]
    fn each_form_is_read() {
        assert_eq!(told("3 4.5\n", &["a", "b, us"], 0), [[3.0], [4.5]]);
        let json = r#"{"us":{"median":8},"ns":[1000,2000,4000]}"#;
        assert_eq!(told(json, &["a = us/median", "b = ns / 1000"], 1), [vec![8.0], vec![2.0, 4.0]]);
        assert_eq!(told(json, &["b = ns"], 20)[0].len(), 3, "a short list counts whole");
        assert_eq!(told("[1,2]", &["a", "wall, s = wall_s"], 0), [vec![1.0, 2.0], vec![2.0]]);
        let rows = read("zeros\t[[1,2]]\na + a\t[[3]]\n").unwrap();
        assert_eq!((rows.len(), rows[1].0.as_deref()), (2, Some("a + a")));
        assert!(read("what is this").is_err());
    }
}
