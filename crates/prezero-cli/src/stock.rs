//! `prezero stock`: what prezerod has ready, and who holds what.

use std::path::PathBuf;

use anyhow::Result;
use comfy_table::{CellAlignment, Table, presets::UTF8_BORDERS_ONLY};
use prezero::Size;
use prezerod::client::{Client, socket_path};
use prezerod::protocol::Report;
use serde_json::Value;

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
    /// Socket of prezerod [the user's own, or /run/prezero/prezerod.sock]
    #[arg(long, value_name = "PATH", env = "PREZERO_SOCKET", hide_env_values = true)]
    socket: Option<PathBuf>,
}

impl Stock {
    /// Asks and prints.
    pub fn run(&self) -> Result<()> {
        let socket = self.socket.clone().unwrap_or_else(socket_path);
        let mut client = Client::connect(&socket)?;
        let report = if self.metrics { Report::Metrics } else { Report::Stock };
        let text = client.report(report)?;
        if self.metrics {
            print!("{text}");
        } else if self.json {
            println!("{text}");
        } else {
            print!("{}", render(&serde_json::from_str(&text)?));
        }
        Ok(())
    }
}

fn render(report: &Value) -> String {
    let number = |name: &str| report[name].as_u64().unwrap_or(0);
    let of = |row: &Value, name: &str| row[name].as_u64().unwrap_or(0);
    let bytes = |row: &Value, name: &str| Size(of(row, name) as usize).to_string();
    let seconds = |row: &Value, name: &str| format!("{:.1}", row[name].as_f64().unwrap_or(0.0));
    let text = |row: &Value, name: &str| row[name].as_str().unwrap_or("-").to_owned();
    let payer = |row: &Value| row["charged"].as_str().unwrap_or("broker").to_owned();
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
    format!(
        "{}{}making {}, {} waiting, {} reserved; {} hits, {} misses; made {} for {:.1} s of CPU time, \
         {} of it in vain\n",
        shown("ready", ready, "nothing"),
        shown("leased, by processes that live", leased, "nothing"),
        Size(number("making_bytes") as usize),
        number("waiting"),
        number("reserved"),
        number("hits"),
        number("misses"),
        Size(number("made_bytes") as usize),
        report["made_cpu_seconds"].as_f64().unwrap_or(0.0),
        Size(number("waste_bytes") as usize),
    )
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
            "leased": [], "making_bytes": 4 << 20, "waiting": 1, "reserved": 0, "hits": 3,
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
        assert!(text.contains("leased, by processes that live: nothing\n"), "{text}");
        assert!(text.ends_with("made 6M for 1.3 s of CPU time, 2M of it in vain\n"), "{text}");
    }
}
