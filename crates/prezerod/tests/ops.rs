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

/// When an alert fires for the instance `a`, and never for `b`: minutes, labels beside the instance's, and series, whose
/// `%` is the instance.
type Case =
    (&'static str, u32, &'static str, &'static [(&'static str, &'static str, &'static str)]);

/// A series, its values at `a`, its values at `b`, a minute each.
const CASES: &[Case] = &[
    (
        "PrezeroMemoryNotZero",
        15,
        "severity=critical",
        &[("prezerod_quarantined_kinds{%}", "0x9 1x99", "0x99")],
    ),
    (
        "PrezeroBrokerAway",
        20,
        "severity=warning,job=prezerod",
        &[("up{job=\"prezerod\",%}", "1x9 0x99", "1x9 0x2 1x99")],
    ),
    (
        "PrezeroStartsWait",
        120,
        "severity=warning",
        &[
            ("prezerod_lease_misses_total{%}", "0+1x200", "0+1x200"),
            ("prezerod_lease_hits_total{%}", "0+9x200", "0+99x200"),
        ],
    ),
    (
        "PrezeroWaitsAreLong",
        80,
        "severity=warning",
        &[
            ("prezerod_wait_seconds_bucket{le=\"10\",%}", "0+90x200", "0+100x200"),
            ("prezerod_wait_seconds_bucket{le=\"60\",%}", "0+100x200", "0+100x200"),
            ("prezerod_wait_seconds_bucket{le=\"+Inf\",%}", "0+100x200", "0+100x200"),
        ],
    ),
    (
        "PrezeroStockLacks",
        45,
        "severity=warning,reason=limit",
        &[
            ("prezerod_shortage_bytes{reason=\"limit\",tenant=\"t\",%}", "4096x99", "4096x20 0x99"),
            ("prezerod_shortage_bytes{reason=\"making\",tenant=\"t\",%}", "4096x99", "4096x99"),
        ],
    ),
    (
        "PrezeroFillersFail",
        60,
        "severity=warning",
        &[
            ("prezerod_filler_deaths_total{%}", "0+1x99", "0 1x99"),
            ("prezerod_make_failures_total{%}", "0x99", "0 9x99"),
        ],
    ),
    (
        "PrezeroMadeInVain",
        2900,
        "severity=info",
        &[
            ("prezerod_waste_bytes_total{%}", "0+1000000000x3000", "0+1000000000x3000"),
            ("prezerod_made_bytes_total{%}", "0+1500000000x3000", "0+3000000000x3000"),
        ],
    ),
    (
        "PrezeroTenantOwesPages",
        30,
        "severity=warning,tenant=t",
        &[("prezerod_tenant_owed_bytes{tenant=\"t\",%}", "2000000000x99", "2000000000x9 0x99")],
    ),
    (
        "PrezeroTenantStartsWait",
        180,
        "severity=info,tenant=t",
        &[
            ("prezerod_tenant_misses_total{tenant=\"t\",%}", "0+1x200", "0+1x200"),
            ("prezerod_tenant_hits_total{tenant=\"t\",%}", "0+2x200", "0+9x200"),
        ],
    ),
    (
        "PrezeroRefusals",
        30,
        "severity=info,reason=quota",
        &[
            ("prezerod_refusals_total{reason=\"quota\",%}", "0x20 1x99", "0x99"),
            ("prezerod_refusals_total{reason=\"empty\",%}", "0+1x99", "0+1x99"),
        ],
    ),
    (
        "PrezeroBrokerStaysDrained",
        1500,
        "severity=info",
        &[("prezerod_drained{%}", "1x2000", "1x900 0x9 1x2000")],
    ),
    (
        "PrezeroDriverHasNoBroker",
        20,
        "severity=warning",
        &[("prezero_dra_broker_up{%}", "1x9 0x99", "1x9 0x2 1x99")],
    ),
    (
        "PrezeroNodeStaysDrained",
        1500,
        "severity=info,taint=draining",
        &[("prezero_dra_tainted{taint=\"draining\",%}", "1x2000", "1x900 0x9 1x2000")],
    ),
    (
        "PrezeroNodeHasAnAudit",
        15,
        "severity=critical,taint=audit",
        &[
            ("prezero_dra_tainted{taint=\"audit\",%}", "0x9 1x99", "0x99"),
            ("prezero_dra_tainted{taint=\"broker\",%}", "0x99", "1x99"),
        ],
    ),
    (
        "PrezeroContainersLackTheLibrary",
        30,
        "severity=info",
        &[("prezero_dra_containers_without_library{%}", "2x99", "2x9 0x99")],
    ),
    (
        "PrezeroClaimsFail",
        60,
        "severity=warning",
        &[
            ("prezero_dra_prepare_seconds_count{result=\"error\",%}", "0+1x99", "0+1x99"),
            ("prezero_dra_prepare_seconds_count{result=\"ok\",%}", "0+9x99", "0+99x99"),
            ("prezero_dra_prepare_seconds_count{result=\"not-now\",%}", "0x99", "0+9x99"),
        ],
    ),
    (
        "PrezeroClaimsAreSlow",
        80,
        "severity=info",
        &[
            (
                "prezero_dra_prepare_seconds_bucket{result=\"ok\",le=\"2\",%}",
                "0+90x200",
                "0+100x200",
            ),
            (
                "prezero_dra_prepare_seconds_bucket{result=\"ok\",le=\"4\",%}",
                "0+100x200",
                "0+100x200",
            ),
            (
                "prezero_dra_prepare_seconds_bucket{result=\"ok\",le=\"+Inf\",%}",
                "0+100x200",
                "0+100x200",
            ),
        ],
    ),
];

#[test]
fn each_alert_fires_where_it_should_and_there_alone() {
    let alerts = fs::read_to_string(ALERTS).unwrap();
    let named: BTreeSet<&str> = between(&alerts, "- alert: ", "\n").into_iter().collect();
    let tried: BTreeSet<&str> = CASES.iter().map(|(alert, ..)| *alert).collect();
    assert_eq!(named, tried, "an alert without a case, or a case without an alert");
    let mut text = format!("rule_files: [{ALERTS}]\nevaluation_interval: 1m\ntests:\n");
    for (alert, minute, labels, series) in CASES {
        let label =
            |pair: &str| pair.split_once('=').map(|(name, value)| format!("{name}=\"{value}\""));
        let labels: Vec<String> = labels.split(',').filter_map(label).collect();
        text += "- interval: 1m\n  input_series:\n";
        for (instance, at) in [("a", 0), ("b", 1)] {
            for (name, bad, good) in *series {
                let name = name.replace('%', &format!("instance=\"{instance}\""));
                let values = [bad, good][at];
                text += &format!("  - series: '{name}'\n    values: '{values}'\n");
            }
        }
        let firing = format!("alertname=\"{alert}\",alertstate=\"firing\"");
        text += &format!(
            "  promql_expr_test:\n  - expr: 'ALERTS{{{firing}}}'\n    eval_time: 0m\n  - expr: 'ALERTS{{{firing}}}'\n    \
             eval_time: {minute}m\n    exp_samples:\n    - labels: 'ALERTS{{{firing},instance=\"a\",{}}}'\n      value: 1\n",
            labels.join(",")
        );
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), text).unwrap();
    match Command::new("promtool").args(["test", "rules"]).arg(file.path()).output() {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stdout));
        }
        Err(_) => prezero_sys::tell!("skipped: no promtool; apt-get install prometheus"),
    }
}
