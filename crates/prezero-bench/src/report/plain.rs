//! A benchmark without pictures of its own: every median that it wrote, by what it is of.

use serde_json::Value;

use super::document::{Document, Section, words};
use crate::compare::inside;

/// Its section.
pub fn section(document: &Document) -> Section {
    let mut section = Section::new(&document.text("/benchmark"));
    let mut rows = vec![];
    collect(document, &document.json, "", "", &mut rows);
    section.text.push(format!("{} medians, in the units of their names.", rows.len()));
    let heading = ["", "median", "a tenth below", "a tenth above"].map(String::from).to_vec();
    section.tables.push(("All of it".into(), heading, rows));
    section
}

/// A row for each object with a median; `at` is where `json` stands, `name` what it is of.
fn collect(document: &Document, json: &Value, at: &str, name: &str, rows: &mut Vec<Vec<String>>) {
    if json.get("median").is_some_and(Value::is_number) {
        let cell = |key: &str| document.cell(&format!("{at}/{key}"), 1.0);
        rows.push(vec![words(name), cell("median"), cell("p10"), cell("p90")]);
        return;
    }
    for (name, place, inner) in inside(json, name) {
        collect(document, inner, &format!("{at}/{place}"), &name, rows);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_median_has_a_row_that_says_what_it_is_of() {
        let ns = |median: f64| serde_json::json!({"median": median, "p10": 1.0});
        let json = serde_json::json!({"benchmark": "pair", "cells": [
            {"threads": 1, "results": [{"allocator": "glibc", "ns": ns(26.0)}]},
            {"threads": 2, "results": [{"allocator": "a<b", "ns": ns(5.0)}]},
        ]});
        let html = section(&Document { id: "pair".into(), json }).html();
        assert!(html.contains("threads 1 / glibc / ns") && html.contains("a&lt;b"), "{html}");
        assert!(
            html.contains("data-at=\"pair#/cells/1/results/0/ns/median\" data-scale=\"1\">5</td>")
        );
        assert!(html.contains("2 medians"));
    }
}
