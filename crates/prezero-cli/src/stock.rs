//! `prezero stock`: what prezerod has ready, and which process holds what.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use comfy_table::{CellAlignment, Table, presets::UTF8_BORDERS_ONLY};
use prezero::Size;
use prezero_sys::escape::{self, escape};
use prezerod::client::{Client, Door};
use prezerod::protocol::{Drain, Page, Report, Want};
use serde_json::Value;

use crate::claim::Wait;
use crate::letters;

/// A broker that says nothing for this time is stopped.
/// Fixed: a person who waits at a terminal.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// The command line of `prezero stock`.
#[derive(clap::Args)]
#[command(after_help = "Example: prezero stock --json | jq .ready")]
pub struct Stock {
    /// Print everything as JSON instead of tables
    #[arg(long, conflicts_with = "metrics")]
    json: bool,
    /// Print the counters as Prometheus reads them
    #[arg(long)]
    metrics: bool,
    /// Lease no more, and give back what lies ready: for maintenance. Leases stay (root)
    #[arg(long, conflicts_with_all = ["metrics", "undrain"])]
    drain: bool,
    /// Lease again (root)
    #[arg(long, conflicts_with = "metrics")]
    undrain: bool,
    #[command(flatten)]
    expect: Expect,
    /// Socket of prezerod [the user's own, or /run/prezero/prezerod.sock]
    #[arg(long, value_name = "PATH", env = "PREZERO_SOCKET", hide_env_values = true)]
    socket: Option<PathBuf>,
}

/// What is expected back.
#[derive(clap::Args)]
struct Expect {
    /// Keep SIZE ready until it is leased: a server starts again (root)
    #[arg(long, value_name = "SIZE", conflicts_with_all = ["metrics", "drain"])]
    expect: Option<Size>,
    /// As many pieces of that size; 0: expect no more
    #[arg(long, value_name = "N", default_value_t = 1, requires = "expect")]
    each: u32,
    /// Size of the pages of --expect
    #[arg(long, value_name = "2M|1G", default_value = "2M", requires = "expect")]
    page_size: Size,
    /// NUMA node of --expect [any]
    #[arg(long, value_name = "N", requires = "expect")]
    node: Option<u16>,
    /// How long to expect it: 10m, 2h
    #[arg(long = "for", value_name = "TIME", default_value = "1h", requires = "expect")]
    time: Wait,
}

impl Expect {
    /// What is asked for; `None`: nothing is.
    fn asked(&self) -> Result<Option<(Want, u32, Duration)>> {
        let Some(size) = self.expect else { return Ok(None) };
        let page = Page::of(self.page_size.0 as u64);
        ensure!(page.is_some(), "--page-size {}: give 2M or 1G", self.page_size);
        let want = |page| Want { bytes: size.0 as u64, page, node: self.node };
        Ok(page.map(|page| (want(page), self.each, self.time.0)))
    }
}

impl Stock {
    /// Asks and prints.
    pub fn run(&self) -> Result<()> {
        let expected = self.expect.asked()?;
        let door = Door::find(self.socket.as_deref());
        let mut client = Client::enter_within(&door, PATIENCE)?;
        if self.drain {
            client.drain(Drain::On)?;
        } else if self.undrain {
            client.drain(Drain::Off)?;
        }
        if let Some((want, pieces, time)) = expected {
            client.expect(want, pieces, time)?;
        }
        let report = if self.metrics { Report::Metrics } else { Report::Stock };
        let text = client.report(report)?;
        if self.metrics {
            prezero_sys::print!("{}", escape::lines(&text))?;
        } else if self.json {
            prezero_sys::print!("{}\n", escape::json(&text))?;
        } else {
            prezero_sys::print!("{}", letters::shown(render(&serde_json::from_str(&text)?)))?;
        }
        Ok(())
    }
}

fn render(report: &Value) -> String {
    let number = |name: &str| report[name].as_u64().unwrap_or(0);
    let of = |row: &Value, name: &str| row[name].as_u64().unwrap_or(0);
    let bytes = |row: &Value, name: &str| Size(of(row, name) as usize).to_string();
    let seconds = |row: &Value, name: &str| format!("{:.1}", row[name].as_f64().unwrap_or(0.0));
    let text = |row: &Value, name: &str| escape(row[name].as_str().unwrap_or("-"));
    let payer = |row: &Value| escape(row["charged"].as_str().unwrap_or("broker"));
    let rows = |name: &str| report[name].as_array().cloned().unwrap_or_default();

    let mut ready =
        table(&["bytes", "pages", "backing", "node", "ready for, s", "CPU, s", "charged"], 2);
    for row in rows("ready") {
        let (size, page) = (bytes(&row, "bytes"), bytes(&row, "page_bytes"));
        let node = of(&row, "node").to_string();
        let (age, cost) = (seconds(&row, "age_seconds"), seconds(&row, "cpu_seconds"));
        ready.add_row([size, page, text(&row, "backing"), node, age, cost, payer(&row)]);
    }
    let headings = [
        "bytes",
        "pages",
        "backing",
        "node",
        "held for, s",
        "CPU, s",
        "pid",
        "uid",
        "tenant",
        "cgroup",
        "charged",
    ];
    let mut leased = table(&headings, 2);
    for row in rows("leased") {
        let (size, page) = (bytes(&row, "bytes"), bytes(&row, "page_bytes"));
        let node = of(&row, "node").to_string();
        let (age, cost) = (seconds(&row, "age_seconds"), seconds(&row, "cpu_seconds"));
        let (pid, uid) = (of(&row, "pid").to_string(), of(&row, "uid").to_string());
        let (tenant, cgroup) = (text(&row, "tenant"), text(&row, "cgroup"));
        leased.add_row([
            size,
            page,
            text(&row, "backing"),
            node,
            age,
            cost,
            pid,
            uid,
            tenant,
            cgroup,
            payer(&row),
        ]);
    }
    let shown = |name: &str, table: Table, none: &str| {
        let empty = table.row_iter().next().is_none();
        if empty { format!("{name}: {none}\n") } else { format!("{name}\n{table}\n") }
    };
    let mut wanted: String = rows("wanted").iter().map(|row| wanted(row) + "\n").collect();
    if wanted.is_empty() {
        wanted = "wanted: nothing\n".into();
    }
    let owed = match number("owed_bytes") {
        0 => String::new(),
        owed => format!(
            "{} of leases that were given back are still in use: pages are pinned; \
             prezero stock --metrics tells the tenants\n",
            Size(owed as usize)
        ),
    };
    let drained = match report["drained"].as_bool() {
        Some(true) => "drained: nothing is leased; prezero stock --undrain ends that\n",
        _ => "",
    };
    format!(
        "{drained}{}{wanted}{}{owed}making {}, {} waiting; {} hits, {} misses; made {} for {:.1} s of CPU time, \
         {} of it in vain\n",
        shown("ready", ready, "nothing"),
        shown("leased, by processes that live", leased, "nothing"),
        Size(number("making_bytes") as usize),
        number("waiting"),
        number("hits"),
        number("misses"),
        Size(number("made_bytes") as usize),
        report["made_cpu_seconds"].as_f64().unwrap_or(0.0),
        Size(number("waste_bytes") as usize),
    )
}

/// A size that should lie ready, and why it does not.
fn wanted(row: &Value) -> String {
    let bytes = |name: &str| Size(row[name].as_u64().unwrap_or(0) as usize);
    let mut line =
        format!("wanted: {} of {} in {} pages", row["target"], bytes("bytes"), bytes("page_bytes"));
    if let Some(node) = row["node"].as_u64() {
        line += &format!(" on node {node}");
    }
    if let Some(payer) = row["charged"].as_str() {
        line += &format!(" for {}", escape(payer));
    }
    match (shortage(&row["shortage"]), row["ready"].as_u64()) {
        (Some(shortage), ready) => line += &format!(", {} ready: {shortage}", ready.unwrap_or(0)),
        // Another broker than this command's does not say.
        (None, None) => {}
        (None, Some(_)) => line += ", all ready",
    }
    line
}

/// Why something that is wanted does not lie ready, and when it will.
pub fn shortage(shortage: &Value) -> Option<String> {
    let why = escape(shortage["why"].as_str()?);
    let ready = shortage["ready_in_seconds"].as_f64();
    Some(ready.map_or(why.clone(), |seconds| format!("{why}; ready in about {seconds:.1} s")))
}

fn table(headings: &[&str], right: usize) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY).set_header(headings);
    for column in table.column_iter_mut().take(right) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_shown_with_units() {
        let report = serde_json::json!({
            "ready": [{"page_bytes": 2 << 20, "backing": "thp", "node": 0, "bytes": 1u64 << 30,
                       "age_seconds": 12.34, "cpu_seconds": 0.25, "charged": "/vms"}],
            "wanted": [
                {"page_bytes": 2 << 20, "node": null, "charged": null, "bytes": 4 << 20, "target": 8,
                 "ready": 3, "shortage": {"pieces": 5, "reason": "limit", "why": "too many; raise limit",
                                       "ready_in_seconds": null}},
                {"page_bytes": 1 << 30, "node": 1, "charged": "/vms", "bytes": 1 << 30, "target": 2,
                 "ready": 0, "shortage": {"pieces": 2, "reason": "making", "why": "it is being made",
                                       "ready_in_seconds": 0.25}},
                {"page_bytes": 2 << 20, "bytes": 2 << 20, "target": 1, "ready": 1, "shortage": null},
                {"page_bytes": 2 << 20, "bytes": 6 << 20, "target": 1},
            ],
            "leased": [], "making_bytes": 4 << 20, "waiting": 1, "hits": 3,
            "misses": 2, "made_bytes": 6 << 20, "made_cpu_seconds": 1.26, "waste_bytes": 2 << 20
        });
        let text = render(&report);
        assert!(
            text.contains("12.3")
                && text.contains("/vms")
                && text.contains("1G")
                && text.contains("2M"),
            "{text}"
        );
        for line in [
            "wanted: 8 of 4M in 2M pages, 3 ready: too many; raise limit",
            "wanted: 2 of 1G in 1G pages on node 1 for /vms, 0 ready: it is being made; ready in about 0.2 s",
            "wanted: 1 of 2M in 2M pages, all ready",
            "wanted: 1 of 6M in 2M pages",
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line}: {text}");
        }
        // Another broker than this command's may not escape it.
        let hostile =
            serde_json::json!({"leased": [{"cgroup": "/\u{1b}[2J"}], "owed_bytes": 4 << 20});
        let hostile = render(&hostile);
        assert!(!hostile.contains('\u{1b}') && hostile.contains("\\u{1b}[2J"), "{hostile}");
        assert!(
            hostile.contains("4M of leases that were given back are still in use"),
            "{hostile}"
        );
        assert!(render(&serde_json::json!({})).contains("wanted: nothing\n"));
        let drained = render(&serde_json::json!({"drained": true}));
        assert!(drained.starts_with("drained: nothing is leased;"), "{drained}");
        assert!(text.contains("leased, by processes that live: nothing\n"), "{text}");
        assert!(text.ends_with("made 6M for 1.3 s of CPU time, 2M of it in vain\n"), "{text}");
    }
}
