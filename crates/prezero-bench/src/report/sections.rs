//! What each benchmark has to show.

use anyhow::Result;
use prezero::Size;

use super::document::{Document, Section, escaped, words};
use super::plot::{Bars, Heat, Lines};
use crate::grid_report::ModeReport;
use crate::peers::PREZERO;
use crate::seeds::KERNEL;

/// A benchmark's sections; one that has no pictures gets a table of all its medians.
pub fn of(document: &Document) -> Result<Vec<Section>> {
    match document.text("/benchmark").as_str() {
        "grid" => grid(document),
        "seeds" => seeds(document),
        "waste" => waste(document),
        "disturb" => disturb(document),
        _ => Ok(vec![super::plain::section(document)]),
    }
}

fn bytes(document: &Document, at: &str) -> String {
    Size(document.number(at).unwrap_or(0.0) as usize).to_string()
}

fn grid(document: &Document) -> Result<Vec<Section>> {
    let modes = 0..document.list("/modes").len();
    modes.map(|nth| grid_mode(document, &format!("/modes/{nth}"))).collect()
}

/// Where the medians of a cell stand: prezero's, and the fastest peer's.
fn against_best(document: &Document, cell: &str) -> Option<(String, String)> {
    let results = 0..document.list(&format!("{cell}/results")).len();
    let (mut ours, mut best) = (None, None::<(f64, String)>);
    for nth in results {
        let at = format!("{cell}/results/{nth}/ns/median");
        if document.text(&format!("{cell}/results/{nth}/allocator")) == PREZERO {
            ours = Some(at);
        } else if let Some(ns) = document.number(&at)
            && best.as_ref().is_none_or(|(least, _)| ns < *least)
        {
            best = Some((ns, at));
        }
    }
    Some((best?.1, ours?))
}

fn grid_mode(document: &Document, mode: &str) -> Result<Section> {
    let name = document.text(&format!("{mode}/mode"));
    let mut section = Section::new(&format!("Grid, {name}: allocate zeroed, touch, free"));
    section.text.push(
        match name.as_str() {
            "idle" => "A pause before each round, in which memory can be prepared.",
            "busy" => "No pause, and another process keeps each CPU busy.",
            _ => "No pause: nothing can be prepared, and nothing should be lost.",
        }
        .into(),
    );
    if let Some(says) = verdict(document, mode) {
        section.text.push(says.clone());
        section.says = Some(says);
    }
    let cells = document.list(&format!("{mode}/cells")).len();
    let (mut sizes, mut lines) = (vec![], vec![]);
    for nth in 0..cells {
        let (size, count) = (
            bytes(document, &format!("{mode}/cells/{nth}/bytes")),
            document.number(&format!("{mode}/cells/{nth}/lines")),
        );
        let count = count.unwrap_or(0.0);
        if !sizes.contains(&size) {
            sizes.push(size);
        }
        if !lines.contains(&count) {
            lines.push(count);
        }
    }
    let mut heat = Heat {
        columns: lines.iter().map(ToString::to_string).collect(),
        x: "cache lines touched of each page".into(),
        rows: sizes.iter().map(|size| (size.clone(), vec![None; lines.len()])).collect(),
    };
    let allocators: Vec<_> = (0..document.list("/allocators").len())
        .map(|nth| document.text(&format!("/allocators/{nth}/name")))
        .collect();
    let mut rows = vec![];
    for nth in 0..cells {
        let cell = format!("{mode}/cells/{nth}");
        let size = bytes(document, &format!("{cell}/bytes"));
        let count = document.number(&format!("{cell}/lines")).unwrap_or(0.0);
        let mut row = vec![words(&size), words(&count.to_string())];
        let results = 0..document.list(&format!("{cell}/results")).len();
        row.extend(
            results.map(|nth| document.cell(&format!("{cell}/results/{nth}/ns/median"), 1e3)),
        );
        if let Some((best, ours)) = against_best(document, &cell) {
            let value =
                document.number(&best).zip(document.number(&ours)).map(|(best, ours)| best / ours);
            let place = sizes
                .iter()
                .position(|each| *each == size)
                .zip(lines.iter().position(|each| *each == count));
            if let Some((row, column)) = place {
                heat.rows[row].1[column] = value;
            }
            row.push(document.ratio(&best, &ours));
        }
        rows.push(row);
    }
    section
        .plots
        .push((heat.draw()?, "heat", "Blocks by size and lines touched: the fastest peer's time over prezero's, blue where prezero is faster, red where it is slower.".into()));
    let curves: Vec<_> = heat
        .rows
        .iter()
        .map(|(size, values)| {
            let points =
                lines.iter().zip(values).filter_map(|(line, value)| Some((*line, (*value)?)));
            (size.clone(), points.collect::<Vec<_>>())
        })
        .filter(|(_, points)| points.len() > 1)
        .collect();
    if !curves.is_empty() {
        let plot = Lines {
            x: "cache lines touched of each page".into(),
            y: "speed-up over the best peer".into(),
            series: curves,
        };
        section.plots.push((
            plot.draw()?,
            "lines",
            "Lameter's curve: the more of a page is touched at once, the less there is to gain."
                .into(),
        ));
    }
    let heading = ["size", "lines"]
        .into_iter()
        .map(String::from)
        .chain(allocators)
        .chain(["x best".to_string()]);
    section.tables.push(("Times in microseconds, medians".into(), heading.collect(), rows));
    costs(document, mode, &mut section)?;
    Ok(section)
}

/// What a mode of the grid comes to, as HTML; `None` without prezero or a peer.
fn verdict(document: &Document, mode: &str) -> Option<String> {
    let mode: ModeReport = serde_json::from_value(document.json.pointer(mode)?.clone()).ok()?;
    let verdict = mode.verdict()?;
    let (worst, cell) = verdict.worst;
    Some(format!(
        "By the geometric mean of {} cells prezero is <span data-verdict=\"mean\">{:.2}</span> times as fast as the fastest peer; \
         the worst, {}, <span data-verdict=\"worst\">{worst:.2}</span> times; \
         <span data-verdict=\"lost\">{}</span> lost",
        mode.cells.len(),
        verdict.mean,
        cell.name(),
        verdict.lost
    ))
}

/// What each allocator used up in a mode of the grid.
fn costs(document: &Document, mode: &str, section: &mut Section) -> Result<()> {
    let count = document.list(&format!("{mode}/costs")).len();
    let mut bars = Bars {
        x: "CPU seconds in this mode".into(),
        series: ["user", "system", "of both, scrubd"].map(String::from).to_vec(),
        groups: vec![],
    };
    let mut rows = vec![];
    for nth in 0..count {
        let at = |key: &str| format!("{mode}/costs/{nth}/{key}");
        let name = document.text(&at("allocator"));
        let keys = ["user_s", "system_s", "background_s"];
        bars.groups
            .push((name.clone(), keys.iter().map(|key| document.number(&at(key))).collect()));
        let mut row = vec![words(&name)];
        row.extend(keys.iter().map(|key| document.cell(&at(key), 1.0)));
        for key in ["scrubbed_bytes", "waste_bytes", "unused_zero_bytes"] {
            row.push(document.cell(&at(&format!("counters/{key}")), (1u64 << 30) as f64));
        }
        rows.push(row);
    }
    section.plots.push((
        bars.draw()?,
        "cost",
        "Cost beside gain: what the times above were paid with.".into(),
    ));
    let heading = [
        "",
        "user, s",
        "system, s",
        "scrubd, s",
        "scrubbed, GiB",
        "taken by others, GiB",
        "unused, GiB",
    ];
    section.tables.push(("Costs".into(), heading.map(String::from).to_vec(), rows));
    Ok(())
}

fn seeds(document: &Document) -> Result<Vec<Section>> {
    let mut sections = vec![];
    for nth in 0..document.list("/experiments").len() {
        let experiment = format!("/experiments/{nth}");
        let mut section = Section::new(&document.text(&format!("{experiment}/seed")));
        section
            .text
            .push(format!("Then: {}.", escaped(&document.text(&format!("{experiment}/then")))));
        let sentences = |name: &str| -> Vec<String> {
            let list = document.list(&format!("{experiment}/{name}"));
            list.iter().filter_map(|each| each.as_str()).map(escaped).collect()
        };
        let held = sentences("held");
        section.says = held.first().cloned();
        section.text.extend(held);
        let reasons = sentences("incomparable").join("; ");
        section.text.push(format!("<small>Not comparable: {reasons}.</small>"));
        for nth in 0..document.list(&format!("{experiment}/tables")).len() {
            seeds_table(document, &format!("{experiment}/tables/{nth}"), &mut section)?;
        }
        sections.push(section);
    }
    Ok(sections)
}

fn seeds_table(document: &Document, table: &str, section: &mut Section) -> Result<()> {
    let strings = |at: &str| -> Vec<String> {
        document.list(at).iter().filter_map(|each| each.as_str()).map(String::from).collect()
    };
    let columns: Vec<String> = (0..document.list(&format!("{table}/columns")).len())
        .map(|nth| document.text(&format!("{table}/columns/{nth}/name")))
        .collect();
    let labels = strings(&format!("{table}/labels"));
    let (mut rows, mut curves) = (vec![], Vec::<(String, Vec<(f64, f64)>)>::new());
    let rate = columns.iter().position(|column| column == "flt/cpu/s");
    for nth in 0..document.list(&format!("{table}/rows")).len() {
        let row = format!("{table}/rows/{nth}");
        let level = document.text(&format!("{row}/level"));
        let own = strings(&format!("{row}/labels"));
        let mut cells = vec![words(&level)];
        cells.extend(own.iter().map(|label| words(label)));
        for nth in 0..columns.len() {
            cells.push(document.cell(&format!("{row}/figures/{nth}/median"), 1.0));
        }
        rows.push(cells);
        // Lameter's second table, as the curve that it is.
        if let (["lines"], [lines], Some(rate)) =
            (&labels.iter().map(String::as_str).collect::<Vec<_>>()[..], &own[..], rate)
            && let (Ok(x), Some(y)) =
                (lines.parse(), document.number(&format!("{row}/figures/{rate}/median")))
        {
            match curves.iter_mut().find(|(name, _)| *name == level) {
                Some((_, points)) => points.push((x, y)),
                None => curves.push((level, vec![(x, y)])),
            }
        }
    }
    if curves.iter().any(|(name, _)| name == KERNEL) {
        let plot = Lines {
            x: "cache lines touched of each page".into(),
            y: "pages in a CPU second".into(),
            series: curves,
        };
        section.plots.push((
            plot.draw()?,
            "lines",
            "Lameter's curve: his figures of 2004 and today's levels.".into(),
        ));
    }
    let heading = [String::new()].into_iter().chain(labels).chain(columns).collect();
    section.tables.push((document.text(&format!("{table}/title")), heading, rows));
    Ok(())
}

fn waste(document: &Document) -> Result<Vec<Section>> {
    let mut section = Section::new("Waste: what was cleared in vain");
    let mut bars = Bars {
        x: "GiB".into(),
        series: ["used as zero", "taken by who wanted none", "given back unused"]
            .map(String::from)
            .to_vec(),
        groups: vec![],
    };
    let (mut rows, gib) = (vec![], (1u64 << 30) as f64);
    let patterns = document.list("/patterns");
    let met = patterns.iter().filter(|each| each["verdict"]["met"] == true).count();
    section.says =
        Some(format!("{met} of {} patterns of demand reached what was wanted", patterns.len()));
    for nth in 0..patterns.len() {
        let at = |key: &str| format!("/patterns/{nth}/{key}");
        let name = document.text(&at("pattern"));
        let keys = ["bytes/hit", "bytes/plain", "bytes/unused"];
        let values = keys.iter().map(|key| Some(document.number(&at(key))? / gib));
        bars.groups.push((name.clone(), values.collect()));
        let mut row = vec![words(&name), words(&document.text(&at("about")))];
        row.push(document.cell(&at("bytes/made"), gib));
        row.extend(keys.iter().map(|key| document.cell(&at(key), gib)));
        row.push(words(&document.text(&at("verdict/target"))));
        row.push(words(&document.text(&at("verdict/reached"))));
        rows.push(row);
    }
    section.plots.push((
        bars.draw()?,
        "waste",
        "What became of the memory that scrubd cleared, by pattern of demand.".into(),
    ));
    let heading = [
        "",
        "what it does",
        "cleared, GiB",
        "used, GiB",
        "taken, GiB",
        "unused, GiB",
        "wanted",
        "reached",
    ];
    section.tables.push(("Patterns".into(), heading.map(String::from).to_vec(), rows));
    Ok(vec![section])
}

fn disturb(document: &Document) -> Result<Vec<Section>> {
    let mut sections = vec![];
    for nth in 0..document.list("/scenes").len() {
        let scene = format!("/scenes/{nth}");
        let name = document.text(&format!("{scene}/scene"));
        let mut section = Section::new(&format!("Disturb, {name}: what neighbours feel"));
        let (mut variants, mut groups, mut rows) = (Vec::<String>::new(), vec![], vec![]);
        for nth in 0..document.list(&format!("{scene}/rows")).len() {
            let row = format!("{scene}/rows/{nth}");
            let label =
                format!("{}, {}", load(document, &row), document.text(&format!("{row}/metric")));
            let mut bars = vec![];
            for nth in 0..document.list(&format!("{row}/results")).len() {
                let result = format!("{row}/results/{nth}");
                let variant = document.text(&format!("{result}/variant"));
                let at = format!("{result}/change/change");
                let Some(change) = document.number(&at) else { continue };
                let place =
                    variants.iter().position(|each| *each == variant).unwrap_or_else(|| {
                        variants.push(variant.clone());
                        variants.len() - 1
                    });
                bars.resize(bars.len().max(place + 1), None);
                bars[place] = Some(change * 100.0);
                rows.push(vec![
                    words(&label),
                    words(&variant),
                    document.cell(&at, 0.01),
                    document.cell(&format!("{result}/change/noise"), 0.01),
                ]);
            }
            groups.push((label, bars));
        }
        let plot =
            Bars { x: "% against prezero, never scrubbing".into(), series: variants, groups };
        section.plots.push((
            plot.draw()?,
            "bars",
            "Time of the neighbours' work, or lateness of their wake-ups. A change below its noise, which the table has, says nothing.".into(),
        ));
        let heading = ["", "beside", "change, %", "noise, %"];
        section.tables.push(("Changes".into(), heading.map(String::from).to_vec(), rows));
        sections.push(section);
    }
    Ok(sections)
}

/// A load: a word, or a word with its parameter.
fn load(document: &Document, row: &str) -> String {
    let Some(load) = document.json.pointer(&format!("{row}/load")) else { return String::new() };
    if let Some(word) = load.as_str() {
        return word.into();
    }
    let Some((name, parameter)) = load.as_object().and_then(|load| load.iter().next()) else {
        return String::new();
    };
    match parameter.as_u64() {
        Some(bytes) => format!("{name} {}", Size(bytes as usize)),
        None => format!("{name} {}", parameter.as_str().unwrap_or_default()),
    }
}
