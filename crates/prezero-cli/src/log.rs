//! `prezero log`: which claims prezerod served, delayed or refused, and why.

use std::fmt::Write;
use std::path::PathBuf;

use anyhow::Result;
use prezero::Size;
use prezero_sys::escape::{self, escape};
use prezerod::client::{Client, Door};
use prezerod::protocol::Report;
use serde_json::Value;

use crate::stock::PATIENCE;

/// The command line of `prezero log`.
#[derive(clap::Args)]
#[command(after_help = "Example: prezero log --tenant vms")]
pub struct Log {
    /// Only what this tenant was answered; "": processes of no tenant
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// Print a JSON object for each line
    #[arg(long)]
    json: bool,
    /// Socket of prezerod [the user's own, or /run/prezero/prezerod.sock]
    #[arg(long, value_name = "PATH", env = "PREZERO_SOCKET", hide_env_values = true)]
    socket: Option<PathBuf>,
}

impl Log {
    /// Asks and prints.
    pub fn run(&self) -> Result<()> {
        let door = Door::find(self.socket.as_deref());
        let text = Client::enter_within(&door, PATIENCE)?.report(Report::Log)?;
        let (mut shown, mut any) = (String::new(), false);
        for line in text.lines() {
            let entry: Value = serde_json::from_str(line)?;
            if self.tenant.as_deref().is_some_and(|tenant| entry["tenant"] != tenant) {
                continue;
            }
            any = true;
            shown += &if self.json { escape::json(line) } else { sentence(&entry) };
            shown.push('\n');
        }
        if !any && !self.json {
            shown = "no claims since prezerod started\n".into();
        }
        Ok(prezero_sys::print!("{shown}")?)
    }
}

fn sentence(entry: &Value) -> String {
    let text = |name: &str| escape(entry[name].as_str().unwrap_or(""));
    let number = |name: &str| entry[name].as_u64().unwrap_or(0);
    let seconds = |name: &str| entry[name].as_f64().unwrap_or(0.0);
    let tenant = Some(text("tenant")).filter(|name| !name.is_empty()).unwrap_or("-".into());
    let mut line =
        format!("{:>9.1} s ago  {tenant:12}  {:8}", seconds("age_seconds"), text("answer"));
    // Writing to a string does not fail.
    let _ = match number("bytes") {
        0 => write!(line, "  a connection"),
        bytes => {
            let page = Size(number("page_bytes") as usize);
            write!(line, "  {} in {page} pages", Size(bytes as usize))
        }
    };
    if let Some(node) = entry["node"].as_u64() {
        let _ = write!(line, " on node {node}");
    }
    if seconds("waited_seconds") > 0.0 {
        let _ = write!(line, " after {:.1} s", seconds("waited_seconds"));
    }
    if number("times") > 1 {
        let _ = write!(line, ", {} times", number("times"));
    }
    let _ = write!(line, "  (pid {}, uid {})", number("pid"), number("uid"));
    if let Some(why) = entry["why"].as_str() {
        let _ = write!(line, "  {}: {}", text("reason"), escape(why));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_the_tenant_what_it_asked_for_what_it_got_and_why() {
        let refused = serde_json::json!({
            "age_seconds": 61.23, "tenant": "vms", "uid": 107, "pid": 5, "bytes": 1u64 << 30, "page_bytes": 2 << 20,
            "node": 1, "answer": "refused", "reason": "quota", "why": "2G left\u{1b}; raise it", "waited_seconds": 1.5,
            "times": 3
        });
        assert_eq!(
            sentence(&refused),
            "     61.2 s ago  vms           refused   1G in 2M pages on node 1 after 1.5 s, 3 times  (pid 5, uid 107)  \
             quota: 2G left\\u{1b}; raise it"
        );
        let stranger = serde_json::json!({"tenant": "", "uid": 9, "pid": 0, "answer": "refused"});
        assert!(
            sentence(&stranger).contains("  -             refused   a connection  (pid 0, uid 9)")
        );
    }
}
