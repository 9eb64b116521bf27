//! The head of the page: what it says, in a sentence for each part that comes to one; the machine;
//! and, behind a click, how each run was taken.

use super::document::{Document, Section, escaped};

/// As HTML.
pub fn html(documents: &[Document], sections: &[Section]) -> String {
    let version = documents.first().map(|each| each.text("/prezero")).unwrap_or_default();
    let mut html = format!(
        "<h1>prezero {}: memory that is already zero when somebody asks for it</h1>\n",
        escaped(&version)
    );
    let partial: Vec<_> = documents
        .iter()
        .filter(|each| each.json["complete"] == false)
        .map(|each| escaped(&each.id))
        .collect();
    if !partial.is_empty() {
        html +=
            &format!("<p><strong>Interrupted: incomplete.</strong> ({})</p>\n", partial.join(", "));
    }
    let said = |section: &Section| -> Option<String> {
        let name = section.title.split([':', '(']).next().unwrap_or_default().trim();
        Some(format!("<li><strong>{}</strong>: {}</li>\n", escaped(name), section.says.as_ref()?))
    };
    let said: String = sections.iter().filter_map(said).collect();
    if !said.is_empty() {
        html += &format!("<ul class=\"says\">\n{said}</ul>\n");
    }
    html += &machines(documents);
    html += "<details><summary>How each was taken: command, load, settings, versions</summary>\
             <div class=\"scroll\"><table class=\"runs\"><tr><th></th><th>command</th><th>load at the start</th>\
             <th>prezero</th><th>versions</th></tr>\n";
    html.extend(documents.iter().map(run));
    html + "</table></div></details>\n"
}

/// Each machine once; with the runs that were taken on it, if there are several.
fn machines(documents: &[Document]) -> String {
    let mut machines: Vec<(String, Vec<String>)> = vec![];
    for document in documents {
        let (machine, id) = (machine(document), escaped(&document.id));
        match machines.iter_mut().find(|(known, _)| *known == machine) {
            Some((_, runs)) => runs.push(id),
            None => machines.push((machine, vec![id])),
        }
    }
    let several = machines.len() > 1;
    let paragraph = |(machine, runs): (String, Vec<String>)| {
        let runs = if several { format!("{}: ", runs.join(", ")) } else { String::new() };
        format!("<p><small>{runs}{machine}</small></p>\n")
    };
    machines.into_iter().map(paragraph).collect()
}

fn machine(document: &Document) -> String {
    let text = |key: &str| escaped(&document.text(&format!("/machine/{key}")));
    let number = |key: &str| document.number(&format!("/machine/{key}")).unwrap_or(0.0);
    format!(
        "{}, {} CPUs, L2 {}, L3 {}, {:.1} GiB; Linux {}, THP {}, {}",
        text("cpu"),
        number("cpus"),
        text("l2"),
        text("l3"),
        number("memory_bytes") / (1u64 << 30) as f64,
        text("kernel"),
        text("thp"),
        text("libc"),
    )
}

/// A row of what is said of a run.
fn run(document: &Document) -> String {
    let names = document.list("/allocators").iter().map(|each| {
        let part = |key: &str| each[key].as_str().unwrap_or_default().to_string();
        escaped(format!("{} {}", part("name"), part("version")).trim())
    });
    let absent = document.list("/absent").iter().map(|each| {
        let part = |key: &str| each[key].as_str().unwrap_or_default().to_string();
        escaped(&format!("without {} ({})", part("name"), part("mend")))
    });
    let turned = document.list("/turned").iter().filter_map(|each| each.as_str());
    let turned: Vec<_> = turned
        .map(|knob| escaped(&format!("{knob} {}", document.text(&format!("/settings/{knob}")))))
        .collect();
    let settings =
        if turned.is_empty() { "knobs as they are by default".into() } else { turned.join(", ") };
    format!(
        "<tr><th scope=\"row\">{}</th><td><code>{}</code></td><td>{}</td><td>{settings}</td><td>{}</td></tr>\n",
        escaped(&document.id),
        escaped(&document.text("/command")),
        document.number("/machine/load").unwrap_or(0.0),
        names.chain(absent).collect::<Vec<_>>().join(", "),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_told_once_and_what_is_partial_is_said() {
        let run = |id: &str, cpu: &str, load: f64, complete: bool| Document {
            id: id.into(),
            json: serde_json::json!({"machine": {"cpu": cpu, "load": load}, "complete": complete}),
        };
        let one = html(&[run("grid", "A<B", 1.0, true), run("pair", "A<B", 2.0, true)], &[]);
        assert_eq!(one.matches("A&lt;B").count(), 1, "{one}");
        assert!(!one.contains("Interrupted") && !one.contains("<ul"), "{one}");
        let two = html(&[run("grid", "A", 1.0, true), run("pair", "C", 1.0, false)], &[]);
        assert!(two.contains("grid: A,") && two.contains("pair: C,"), "{two}");
        assert!(two.contains("incomplete.</strong> (pair)"), "{two}");
    }
}
