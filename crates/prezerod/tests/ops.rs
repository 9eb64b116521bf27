//! Files for operators: alerts and a dashboard name metrics, labels and reasons that the broker has.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use common::Daemon;
use prezerod::protocol::{Reason, Report};

const ALERTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/ops/alerts.yaml");
const DASHBOARD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/ops/dashboard.json");

/// Names of metrics of this program in a text.
fn names<'a>(text: &'a str, program: &str) -> BTreeSet<&'a str> {
    let is_part = |byte: char| byte.is_ascii_lowercase() || byte == '_';
    let words = text.split(|byte| !is_part(byte));
    words.filter(|word| word.starts_with(program) && *word != program).collect()
}

/// The metric that a name belongs to, as its `# TYPE` line names it.
fn family(name: &str) -> &str {
    ["_total", "_bucket", "_sum", "_count"]
        .iter()
        .find_map(|end| name.strip_suffix(end))
        .unwrap_or(name)
}

/// What stands between two texts, each time.
fn between<'a>(text: &'a str, from: &str, to: &str) -> Vec<&'a str> {
    text.split(from).skip(1).filter_map(|rest| rest.split(to).next()).collect()
}

#[test]
fn alerts_and_dashboard_name_what_the_broker_tells() {
    let daemon = Daemon::start("");
    let told = daemon.client().report(Report::Metrics).unwrap();
    let families: BTreeSet<&str> =
        told.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let alerts = fs::read_to_string(ALERTS).unwrap();
    let dashboard = fs::read_to_string(DASHBOARD).unwrap();
    for (file, text) in [("alerts.yaml", &alerts), ("dashboard.json", &dashboard)] {
        let all = names(text, "prezerod_");
        assert!(all.len() > 10, "{file}: {all:?}");
        for name in all {
            assert!(families.contains(family(name)), "{file}: no metric {name}");
            let counts = name.ends_with("_total");
            let is_counter = told.contains(&format!("# TYPE {} counter\n", family(name)));
            assert_eq!(counts, is_counter, "{file}: {name} is another kind of metric");
        }
    }
    let known: BTreeSet<&str> = Reason::ALL.iter().map(|reason| reason.name()).collect();
    let protocol = include_str!("../PROTOCOL.md");
    let reasons = between(&alerts, "reason=~\"", "\"").into_iter();
    for reason in reasons.chain(between(&alerts, "reason!~\"", "\"")).flat_map(|all| all.split('|'))
    {
        let has_row = protocol.contains(&format!("| `{reason}` |"));
        assert!(known.contains(reason) || has_row, "alerts.yaml: no reason {reason}");
    }
}

#[test]
fn the_dashboard_is_whole_and_each_alert_says_what_to_do() {
    let text = fs::read_to_string(DASHBOARD).unwrap();
    let dashboard: serde_json::Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let numbers: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(numbers.len(), panels.len(), "two panels have one number");
    // Its queries as rules, which promtool reads.
    let mut rules = String::from("groups:\n- name: panels\n  rules:\n");
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        for target in panel["targets"].as_array().unwrap() {
            let query = target["expr"].as_str().unwrap();
            assert!(query.contains("$instance"), "{}: {query}", panel["title"]);
            let plain = query.replace("$instance", ".*").replace("$__rate_interval", "5m");
            let plain = plain.replace("$__range", "1h");
            rules += &format!("  - record: panel_{}\n    expr: '{plain}'\n", rules.len());
        }
    }
    let alerts = fs::read_to_string(ALERTS).unwrap();
    let of = |what: &str| alerts.matches(what).count();
    let all = of("  - alert: ");
    let words = ["    expr: ", "severity: ", "      summary: ", "      action: "];
    assert!(all > 10 && words.iter().all(|what| of(what) == all), "{all} alerts");
    let panels = tempfile::NamedTempFile::new().unwrap();
    fs::write(panels.path(), rules).unwrap();
    // As Prometheus reads them.
    match Command::new("promtool").args(["check", "rules", ALERTS]).arg(panels.path()).output() {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{said}");
        }
        Err(_) => prezero_sys::tell!("skipped: no promtool; apt-get install prometheus"),
    }
}
