//! A report's JSON, and the cells of HTML that show its numbers.
//!
//! Each number that is shown names where in the embedded JSON it stands (`data-at`, a JSON
//! pointer behind the document's name), what it was divided by (`data-over`, `data-scale`), so
//! that a test, or a reader, can look it up.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use super::plot::{Picture, short};

/// One file that a benchmark wrote.
#[derive(Debug)]
pub struct Document {
    /// The benchmark, with a number if there are two of it.
    pub id: String,
    /// What the file holds.
    pub json: Value,
}

impl Document {
    /// Reads one; `id`s that are taken are not given again.
    pub fn read(path: &Path, others: &[Document]) -> Result<Document> {
        let named = || path.display().to_string();
        let text = std::fs::read_to_string(path).with_context(named)?;
        let json: Value = serde_json::from_str(&text).with_context(named)?;
        let benchmark = json["benchmark"].as_str();
        let benchmark =
            benchmark.with_context(|| format!("{}: not what bench --json writes", named()))?;
        let same = others.iter().filter(|other| other.json["benchmark"] == benchmark).count();
        let id = if same == 0 { benchmark.into() } else { format!("{benchmark}-{}", same + 1) };
        Ok(Document { id, json })
    }

    /// The number at a pointer.
    pub fn number(&self, at: &str) -> Option<f64> {
        self.json.pointer(at)?.as_f64()
    }

    /// The text at a pointer; empty if there is none.
    pub fn text(&self, at: &str) -> String {
        self.json.pointer(at).and_then(Value::as_str).unwrap_or_default().into()
    }

    /// The list at a pointer.
    pub fn list(&self, at: &str) -> &[Value] {
        self.json.pointer(at).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// A cell with the number at a pointer, over `scale`.
    pub fn cell(&self, at: &str, scale: f64) -> String {
        let Some(number) = self.number(at) else { return "<td>-</td>".into() };
        let shown = short(number / scale);
        format!("<td data-at=\"{}#{at}\" data-scale=\"{scale}\">{shown}</td>", self.id)
    }

    /// A cell with the ratio of two numbers.
    pub fn ratio(&self, at: &str, over: &str) -> String {
        let Some((number, over_number)) = self.number(at).zip(self.number(over)) else {
            return "<td>-</td>".into();
        };
        let shown = super::plot::ratio(number / over_number);
        format!("<td data-at=\"{0}#{at}\" data-over=\"{0}#{over}\">{shown}</td>", self.id)
    }
}

/// A part of the page.
#[derive(Debug)]
pub struct Section {
    /// Its heading.
    pub title: String,
    /// What it comes to, in a sentence, as HTML.
    pub says: Option<String>,
    /// Paragraphs, as HTML.
    pub text: Vec<String>,
    /// Plots, each with its kind and a caption.
    pub plots: Vec<(Picture, &'static str, String)>,
    /// Tables: caption, heading cells, rows of cells that are HTML already.
    pub tables: Vec<(String, Vec<String>, Vec<Vec<String>>)>,
}

impl Section {
    /// With nothing in it.
    pub fn new(title: &str) -> Section {
        Section { title: title.into(), says: None, text: vec![], plots: vec![], tables: vec![] }
    }

    /// As HTML.
    pub fn html(&self) -> String {
        let mut html = format!("<section><h2>{}</h2>\n", escaped(&self.title));
        for text in &self.text {
            html += &format!("<p>{text}</p>\n");
        }
        for (picture, kind, caption) in &self.plots {
            html += &format!(
                "<figure data-kind=\"{kind}\">{}<figcaption>{}</figcaption></figure>\n",
                picture.html(),
                escaped(caption)
            );
        }
        for (caption, heading, rows) in &self.tables {
            let heading: String =
                heading.iter().map(|each| format!("<th>{}</th>", escaped(each))).collect();
            html += &format!(
                "<details><summary>{}</summary><div class=\"scroll\"><table><thead><tr>{heading}</tr></thead>\n",
                escaped(caption)
            );
            for row in rows {
                html += &format!("<tr>{}</tr>\n", row.concat());
            }
            html += "</table></div></details>\n";
        }
        html + "</section>\n"
    }
}

impl Section {
    /// What the file of a plot is called: of the first words of the heading, its kind, and its width
    /// where that is not the widest.
    pub fn file(&self, kind: &str, width: &str) -> String {
        let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { ' ' };
        let head = self.title.split([':', '(']).next().unwrap_or_default();
        let words: String = head.chars().map(letter).collect();
        let words: Vec<_> = words.split_whitespace().collect();
        let width = if width == super::plot::WIDEST { String::new() } else { format!("-{width}") };
        format!("{}-{kind}{width}.svg", words.join("-"))
    }
}

/// A cell with words.
pub fn words(text: &str) -> String {
    format!("<th scope=\"row\">{}</th>", escaped(text))
}

/// Text as HTML.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_says_where_its_number_stands() {
        let json = serde_json::json!({"benchmark": "x", "a": [{"b": 3000.0}, {"b": 1500.0}]});
        let document = Document { id: "x".into(), json };
        let cell = document.cell("/a/0/b", 1000.0);
        assert_eq!(cell, "<td data-at=\"x#/a/0/b\" data-scale=\"1000\">3</td>");
        assert!(document.ratio("/a/0/b", "/a/1/b").ends_with(">2.00</td>"));
        assert_eq!(document.cell("/nowhere", 1.0), "<td>-</td>");
    }

    #[test]
    fn a_file_is_called_as_its_section() {
        let name = |title: &str, width: &str| Section::new(title).file("heat", width);
        let wide = name("Grid, back-to-back: allocate zeroed", "wide");
        assert_eq!(wide, "grid-back-to-back-heat.svg");
        assert_eq!(name("Lameter, V2: Why (2004)", "narrow"), "lameter-v2-heat-narrow.svg");
    }

    #[test]
    fn text_cannot_become_markup() {
        let mut section = Section::new("<b>");
        section.tables.push(("&".into(), vec!["\"".into()], vec![vec![words("<i>")]]));
        let html = section.html();
        assert!(!html.contains("<b>") && !html.contains("<i>") && html.contains("&amp;"), "{html}");
    }
}
