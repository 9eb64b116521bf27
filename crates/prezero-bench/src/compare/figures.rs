//! The figures of a benchmark's file: medians, by what they are of.

use std::collections::BTreeMap;

use prezero::Size;
use serde_json::Value;

/// What tells one element of a list from another, in the order in which it is told.
const NAMES: [&str; 22] = [
    "benchmark",
    "mode",
    "scene",
    "name",
    "title",
    "pattern",
    "program",
    "case",
    "backing",
    "pages",
    "threads",
    "ring",
    "bytes",
    "lines",
    "load",
    "metric",
    "phase",
    "level",
    "labels",
    "variant",
    "allocator",
    "way",
];
/// Of a normal distribution: between the first and last tenth, in standard deviations; and the
/// standard error of a median over that of a mean.
const TENTHS_APART: f64 = 2.563;
const OF_A_MEDIAN: f64 = 1.2533;

/// By their names; `None`: several have that one.
pub type Figures = BTreeMap<String, Option<Figure>>;

/// A median, and what one knows of it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Figure {
    pub median: f64,
    /// Standard error over the median; `None`: unknown.
    pub error: Option<f64>,
}

/// Every object with a median, by what it is of; `None` where several are of the same, which
/// nobody can tell apart.
pub fn collect(json: &Value, path: &str, all: &mut Figures) {
    if let Some(median) = json.get("median").and_then(Value::as_f64) {
        let figure = Some(Figure::of(json, median));
        all.entry(path.into()).and_modify(|known| *known = None).or_insert(figure);
        return;
    }
    for (path, _, inner) in inside(json, path) {
        collect(inner, &path, all);
    }
}

/// What lies in an object or a list: what each is of, below `path`, and where it stands there, as
/// JSON pointers have it (RFC 6901).
pub fn inside<'a>(json: &'a Value, path: &str) -> Vec<(String, String, &'a Value)> {
    let join = |part: &str| if path.is_empty() { part.into() } else { format!("{path} / {part}") };
    match json {
        Value::Object(object) if object.contains_key("columns") && object.contains_key("rows") => {
            of_a_table(json, &join)
        }
        Value::Object(object) => {
            let each = object.iter().map(|(key, inner)| {
                // The elements of a list say what they are of; those of pairs have a name alone.
                let says = inner.as_array().is_some_and(|list| !list.iter().any(is_pair));
                let path = if says { path.into() } else { join(key) };
                (path, key.replace('~', "~0").replace('/', "~1"), inner)
            });
            each.collect()
        }
        Value::Array(list) => {
            let each = list.iter().enumerate().map(|(nth, inner)| match inner.as_array() {
                Some(pair) if is_pair(inner) => {
                    (join(pair[0].as_str().unwrap_or_default()), format!("{nth}/1"), &pair[1])
                }
                _ => {
                    let name = identity(inner).unwrap_or_else(|| format!("#{}", nth + 1));
                    (join(&name), nth.to_string(), inner)
                }
            });
            each.collect()
        }
        _ => vec![],
    }
}

/// The figures of rows, each by its row and the heading of its column, which the table has once for all of them.
fn of_a_table<'a>(
    table: &'a Value,
    join: &dyn Fn(&str) -> String,
) -> Vec<(String, String, &'a Value)> {
    let list = |json: &'a Value, key: &str| json[key].as_array().map_or(&[][..], Vec::as_slice);
    let columns: Vec<_> = list(table, "columns").iter().map(identity).collect();
    let nth = |what: Option<String>, nth: usize| what.unwrap_or_else(|| format!("#{}", nth + 1));
    let rows = list(table, "rows").iter().enumerate().flat_map(|(row, json)| {
        let name = nth(identity(json), row);
        let figures = list(json, "figures").iter().enumerate();
        let each = figures.map(move |(column, figure)| (name.clone(), row, column, figure));
        each.collect::<Vec<_>>()
    });
    let each = rows.map(|(name, row, column, figure)| {
        let heading = nth(columns.get(column).cloned().flatten(), column);
        (join(&format!("{name} / {heading}")), format!("rows/{row}/figures/{column}"), figure)
    });
    each.collect()
}

/// A name and what bears it.
fn is_pair(json: &Value) -> bool {
    matches!(json.as_array().map(Vec::as_slice), Some([Value::String(_), Value::Object(_)]))
}

/// What an element is of; `None` if it does not say.
fn identity(element: &Value) -> Option<String> {
    let words = NAMES.iter().filter_map(|name| match element.get(name)? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(match number.as_u64().filter(|_| *name == "bytes") {
            Some(bytes) => Size(bytes as usize).to_string(),
            None => format!("{name} {number}"),
        }),
        Value::Array(list) => {
            let words: Vec<_> = list.iter().filter_map(Value::as_str).collect();
            (!words.is_empty()).then(|| words.join(", "))
        }
        // A word with its parameter; anything longer is no name, but figures that differ from run to run.
        Value::Object(object) if object.len() == 1 => {
            let (word, parameter) = object.iter().next()?;
            Some(format!(
                "{word} {}",
                parameter.as_str().map_or_else(|| parameter.to_string(), String::from)
            ))
        }
        Value::Bool(is) => Some(format!("{name} {is}")),
        Value::Null | Value::Object(_) => None,
    });
    let words: Vec<_> = words.collect();
    (!words.is_empty()).then(|| words.join(" "))
}

impl Figure {
    fn of(json: &Value, median: f64) -> Figure {
        let number = |name: &str| json[name].as_f64();
        // What keeps no samples was taken three times or so.
        let count = json["samples"].as_array().map_or(1, Vec::len) as f64;
        let spread = number("p90").zip(number("p10")).map(|(high, low)| high - low);
        let known = spread.filter(|spread| count > 1.0 || *spread > 0.0);
        let error =
            known.map(|spread| OF_A_MEDIAN * spread / TENTHS_APART / count.sqrt() / median.abs());
        Figure { median, error }
    }
}
