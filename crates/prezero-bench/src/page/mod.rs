//! The page: what a report's sheets show, with pictures, and the JSON as it was written.
//!
//! It needs no network and no script, follows the reader's choice of light or dark, and can be
//! printed. Each number names where in the embedded JSON it stands (`data-at`, a JSON pointer behind
//! the document's name), so that a test, or a reader, can look it up.

mod axis;
mod picture;
mod svg;

use std::collections::BTreeMap;

use anyhow::Result;
use picture::draw;
use svg::{Picture, WIDEST};

use crate::figure::{Cell, Kind, MARKS, Plot, Sheet};
use crate::machine::QUIET;
use crate::output::Taken;

/// One report that a benchmark wrote.
#[derive(Debug)]
pub struct Document {
    /// The benchmark, with a number if there are two of it.
    id: String,
    /// Date and commit, of one that was kept.
    origin: String,
    taken: Taken,
}

impl Document {
    /// One for each; no two have one `id`.
    pub fn all(taken: Vec<(String, Taken)>) -> Vec<Document> {
        let mut all: Vec<Document> = vec![];
        for (origin, taken) in taken {
            let name = &taken.report.benchmark;
            let same = all.iter().filter(|other| other.taken.report.benchmark == *name).count();
            let id = if same == 0 { name.clone() } else { format!("{name}-{}", same + 1) };
            all.push(Document { id, origin, taken });
        }
        all
    }

    fn sheets(&self) -> &[Sheet] {
        &self.taken.report.sheets
    }
}

const STYLE: &str = include_str!("page.css");

/// As HTML.
///
/// # Errors
/// A report cannot be written as JSON.
pub fn page(documents: &[Document]) -> Result<String> {
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <link rel=\"icon\" href=\"data:,\"><title>prezero: report</title>\n<style>{STYLE}</style></head><body>\n{}",
        head(documents)
    );
    for document in documents {
        for nth in 0..document.sheets().len() {
            html += &section(document, nth);
        }
    }
    html += &format!(
        "<section><h2>Everything, as it was measured</h2><p>In tables: {}. Each number in a table says in \
         its <code>data-at</code> attribute where in this JSON it stands.</p>\n",
        escaped(MARKS)
    );
    for document in documents {
        // A script ends at its end tag, wherever that stands.
        let json = serde_json::to_string(&document.taken)?.replace("</", "<\\/");
        html +=
            &format!("<script type=\"application/json\" id=\"{}\">{json}</script>\n", document.id);
    }
    Ok(html + "</section></body></html>\n")
}

/// What the page says first: a sentence for each sheet that comes to one, the machines, and behind a
/// click how each run was taken.
fn head(documents: &[Document]) -> String {
    let version = documents.first().map_or("", |each| &each.taken.prezero);
    let mut html = format!(
        "<h1>prezero {}: memory that is already zero when a program asks for it</h1>\n",
        escaped(version)
    );
    let partial: Vec<_> = documents
        .iter()
        .filter(|each| !each.taken.complete)
        .map(|each| escaped(&each.id))
        .collect();
    if !partial.is_empty() {
        html +=
            &format!("<p><strong>Interrupted: incomplete.</strong> ({})</p>\n", partial.join(", "));
    }
    html += "<p>Below, x is prezero's speed-up over the named other: above 1 is better.</p>\n";
    html +=
        &format!("<ul class=\"says\">\n{}</ul>\n", documents.iter().map(says).collect::<String>());
    let mut machines: Vec<(String, Vec<&str>)> = vec![];
    for document in documents {
        let machine = escaped(&document.taken.report.machine.named());
        match machines.iter_mut().find(|(known, _)| *known == machine) {
            Some((_, runs)) => runs.push(&document.id),
            None => machines.push((machine, vec![&document.id])),
        }
    }
    let several = machines.len() > 1;
    for (machine, runs) in machines {
        let runs = if several { format!("{}: ", escaped(&runs.join(", "))) } else { String::new() };
        html += &format!("<p><small>{runs}{machine}</small></p>\n");
    }
    html += "<details><summary>How each was taken: command, load, settings, versions</summary>\
             <div class=\"scroll\"><table class=\"runs\"><tr><th></th><th>command</th><th>load at the start</th>\
             <th>prezero</th><th>versions</th></tr>\n";
    html.extend(documents.iter().map(run));
    html + "</table></div></details>\n"
}

/// What a document comes to, in a sentence for each sheet: with the load that it was taken at, and no verdict where
/// others kept CPUs busy.
fn says(document: &Document) -> String {
    let machine = &document.taken.report.machine;
    if !machine.is_quiet() {
        return format!(
            "<li><strong>{}</strong>: no verdict, because the load was {} when it began; \
             take it again at {QUIET} or less</li>\n",
            escaped(&document.id),
            machine.load
        );
    }
    let said = document.sheets().iter().filter_map(|sheet| {
        let first = sheet.verdicts().into_iter().chain(sheet.says.clone()).next()?;
        let name = sheet.title.split([':', '(']).next().unwrap_or_default().trim();
        Some(format!(
            "<li><strong>{}</strong> (load {}): {}</li>\n",
            escaped(name),
            machine.load,
            escaped(&first)
        ))
    });
    said.collect()
}

/// A row of what is said of a run.
fn run(Document { id, taken, .. }: &Document) -> String {
    let field = &taken.report.field;
    let names = field.allocators.iter().map(|each| format!("{} {}", each.name, each.version));
    let absent = field.absent.iter().map(|each| format!("without {} ({})", each.name, each.mend));
    let versions: Vec<_> = names.chain(absent).map(|each| escaped(each.trim())).collect();
    let turned = taken.turned.iter().map(|knob| {
        let value = taken.settings.get(knob).map_or("", String::as_str);
        escaped(&format!("{knob} {value}"))
    });
    let turned: Vec<_> = turned.collect();
    let settings =
        if turned.is_empty() { "knobs as they are by default".into() } else { turned.join(", ") };
    format!(
        "<tr><th scope=\"row\">{}</th><td><code>{}</code></td><td>{}</td><td>{settings}</td><td>{}</td></tr>\n",
        escaped(id),
        escaped(&taken.command),
        taken.report.machine.load,
        versions.join(", "),
    )
}

fn section(document: &Document, nth: usize) -> String {
    let sheet = &document.sheets()[nth];
    let mut html = format!("<section><h2>{}</h2>\n", escaped(&sheet.title));
    let quiet = document.taken.report.machine.is_quiet();
    let verdicts = if quiet { sheet.verdicts() } else { vec![] };
    for text in verdicts.iter().chain(&sheet.says) {
        html += &format!("<p class=\"verdict\">{}</p>\n", escaped(text));
    }
    for (kind, caption, picture) in drawn(sheet) {
        html += &format!(
            "<figure data-kind=\"{kind}\">{}<figcaption>{}</figcaption></figure>\n",
            picture.html(),
            escaped(&caption)
        );
    }
    if !document.origin.is_empty() {
        let machine = &document.taken.report.machine;
        let place = format!("{}, {} CPUs; {}", machine.cpu, machine.cpus, document.origin);
        html += &format!("<p><small>{}</small></p>\n", escaped(&place));
    }
    for text in &sheet.notes {
        html += &format!("<p><small>{}</small></p>\n", escaped(text));
    }
    let table = sheet.table();
    let heads: String =
        table.heads.iter().map(|head| format!("<th>{}</th>", escaped(head))).collect();
    html += &format!(
        "<details><summary>Figures</summary><div class=\"scroll\"><table><thead><tr>{heads}</tr></thead>\n"
    );
    for row in &table.rows {
        let cells: String = row.iter().map(|each| cell(document, nth, each)).collect();
        html += &format!("<tr>{cells}</tr>\n");
    }
    html + "</table></div></details>\n</section>\n"
}

/// A cell; numbers say where they stand.
fn cell(document: &Document, nth: usize, cell: &Cell) -> String {
    let text = escaped(cell.text());
    match cell {
        Cell::Word(_) => format!("<th scope=\"row\">{text}</th>"),
        Cell::Empty => format!("<td>{text}</td>"),
        Cell::Number(_, at) => {
            format!("<td data-at=\"{}#/sheets/{nth}/figures/{at}\">{text}</td>", document.id)
        }
    }
}

/// The pictures of a sheet, each with its kind and its caption.
fn drawn(sheet: &Sheet) -> Vec<(&'static str, String, Picture)> {
    let mut all: Vec<_> = sheet.plots.iter().map(|plot| (sheet.clone(), plot.clone())).collect();
    if all.is_empty() {
        all.extend(beyond_noise(sheet));
    }
    let each = all.into_iter().filter_map(|(sheet, plot)| {
        let (kind, picture) = draw(&sheet, &plot)?;
        Some((kind, plot.caption, picture))
    });
    each.collect()
}

/// Of a sheet that names no picture: what of its first comparison differs beyond noise.
fn beyond_noise(sheet: &Sheet) -> Option<(Sheet, Plot)> {
    let first = sheet.figures.iter().find(|figure| !figure.against.is_empty())?;
    let (name, what) = (first.name.clone(), first.against[0].what.clone());
    let mut some = sheet.clone();
    some.figures.retain(|figure| {
        let mut against = figure.against.iter().filter(|against| against.what == what);
        let known =
            |noise: Option<f64>, times: f64| noise.is_some_and(|it| (times - 1.0).abs() > it);
        figure.name == name && against.any(|it| known(it.noise, it.times))
    });
    let x = format!("% better than {what}");
    let caption = format!("What differs beyond noise: {name}.");
    Some((some, Plot { kind: Kind::Changes(what), x, y: String::new(), caption }))
}

/// What the file of a picture is called: of the first words of the title, its kind, and its width where
/// that is not the widest.
fn file_name(title: &str, kind: &str, width: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { ' ' };
    let head = title.split([':', '(']).next().unwrap_or_default();
    let words: String = head.chars().map(letter).collect();
    let words: Vec<_> = words.split_whitespace().collect();
    let width = if width == WIDEST { String::new() } else { format!("-{width}") };
    format!("{}-{kind}{width}.svg", words.join("-"))
}

/// Each picture by the name of its file, in each width; of two sheets of one title the second is called by its
/// document, too.
pub fn pictures(documents: &[Document]) -> Vec<(String, String)> {
    let mut all = BTreeMap::new();
    for document in documents {
        for sheet in document.sheets() {
            for (kind, _, picture) in drawn(sheet) {
                for (width, svg) in picture.alone() {
                    let name = file_name(&sheet.title, kind, width);
                    let known = all.contains_key(&name);
                    all.insert(if known { format!("{}-{name}", document.id) } else { name }, svg);
                }
            }
        }
    }
    all.into_iter().collect()
}

/// Text as HTML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::{Across, Figure, Kind, Report};
    use crate::peers::{Field, PREZERO};

    fn document(title: &str) -> Document {
        let mut sheet = Sheet::new(title, &["size", "lines"], Across::Who).note("<b> & how").plot(
            Kind::Heat("best".into()),
            ["lines", ""],
            "caption",
        );
        for (lines, glibc) in [("1", 1.2), ("64", 0.075)] {
            sheet.push(Figure::new("glibc", "round", "us", glibc).case(&["1M", lines]));
            sheet.push(Figure::new(PREZERO, "round", "us", 0.15).case(&["1M", lines]));
        }
        sheet.compare_with_best("round", Some(1.0));
        let mut report = Report::here("grid", Field::none());
        (report.machine.cpu, report.machine.load) = ("Some <CPU>".into(), 0.25);
        report.sheets.push(sheet);
        Document { id: "grid".into(), origin: String::new(), taken: Taken::now(report) }
    }

    #[test]
    fn a_report_becomes_a_page_without_network_or_script() {
        let html = page(&[document("Grid, idle: x")]).unwrap();
        for forbidden in ["http://", "https://", "src=", "@import", "<b>"] {
            // In the JSON markup is text.
            let shown = html.split("<script").next().unwrap();
            let without_names = shown.replace("http://www.w3.org/", "");
            assert!(!without_names.contains(forbidden), "{forbidden}");
        }
        let cell = "data-at=\"grid#/sheets/0/figures/1/against/0/times\">8.000</td>";
        assert!(html.contains(cell) && html.contains(">8.00<"), "the table and the plot: {html}");
        assert!(html.contains("data-at=\"grid#/sheets/0/figures/3/value\">0.15</td>"), "{html}");
        let said = "x best: mean 2.00, 1 of 2 below 1, worst 0.500 (1M, 64, glibc); wanted at least 1: missed in 1 of 2";
        assert_eq!(html.matches(said).count(), 2, "above, and where it is shown: {html}");
        assert_eq!(html.matches("Some &lt;CPU&gt;").count(), 1, "the machine is told once");
    }

    #[test]
    fn the_load_is_told_first_and_above_it_there_is_no_verdict() {
        let mut document = document("Grid, idle: x");
        assert!(
            head(std::slice::from_ref(&document))
                .contains("<strong>Grid, idle</strong> (load 0.25): x best")
        );
        document.taken.report.machine.load = 1.67;
        let html = page(&[document]).unwrap();
        let shown = html.split("<script").next().unwrap();
        assert!(shown.contains("grid</strong>: no verdict, because the load was 1.67"), "{shown}");
        assert!(!shown.contains("wanted at least"), "{shown}");
        assert!(shown.contains("data-at=\"grid#/sheets/0/figures/3/value\""), "figures stay");
    }

    #[test]
    fn an_embedded_file_cannot_end_its_script() {
        let mut document = document("x");
        document.taken.command = "</script><b>".into();
        assert!(!page(&[document]).unwrap().contains("</script><b>"));
    }

    #[test]
    fn a_file_is_called_as_its_sheet() {
        assert_eq!(
            file_name("Grid, back-to-back: a (b)", "heat", WIDEST),
            "grid-back-to-back-heat.svg"
        );
        assert_eq!(
            file_name("Lameter, V2 (2004)", "lines", "narrow"),
            "lameter-v2-lines-narrow.svg"
        );
        let names = pictures(&[document("Grid, idle: x")]);
        assert_eq!(names[0].0, "grid-idle-heat-narrow.svg");
        assert!(names[1].0 == "grid-idle-heat.svg" && names[1].1.contains("</svg>"));
        let twice = Document { id: "grid-2".into(), ..document("Grid, idle: x") };
        let names = pictures(&[document("Grid, idle: x"), twice]);
        assert_eq!(names.len(), 4);
        assert!(names.iter().any(|(name, _)| name == "grid-2-grid-idle-heat.svg"));
    }

    #[test]
    fn machines_are_told_with_their_runs_and_what_is_partial_is_said() {
        let (one, mut other) = (document("x"), document("y"));
        (other.id, other.taken.complete) = ("pair".into(), false);
        other.taken.report.machine.cpu = "Another".into();
        let html = head(&[one, other]);
        assert!(html.contains("grid: Some") && html.contains("pair: Another"), "{html}");
        assert!(html.contains("incomplete.</strong> (pair)"), "{html}");
    }

    #[test]
    fn what_was_kept_says_when_and_of_a_sheet_without_a_picture_what_differs_is_drawn() {
        let mut sheet = Sheet::new("steady: x", &["program"], Across::Name);
        for (program, times) in [("handler", 2.0), ("phases", 1.1)] {
            let against = crate::figure::Against::new("glibc", "glibc", times);
            let against = crate::figure::Against { noise: Some(0.2), ..against };
            let figure = Figure::new(PREZERO, "median", "us", 1.0).case(&[program]);
            sheet.push(figure.and([against]));
        }
        let mut report = Report::here("steady", Field::none());
        report.machine.load = 0.25;
        report.sheets.push(sheet);
        let kept = ("2026-11-27, 032b8bb".to_string(), Taken::now(report));
        let html = page(&Document::all(vec![kept])).unwrap();
        assert!(html.contains("CPUs; 2026-11-27, 032b8bb</small>"), "{html}");
        let wide = html.split("class=\"wide\"").nth(1).unwrap().split("</svg>").next().unwrap();
        assert!(wide.contains(">handler, prezero<") && !wide.contains("phases"), "{wide}");
        assert!(wide.contains(">100<"), "{wide}");
    }
}
