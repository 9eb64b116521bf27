//! `prezero ctl`: the knobs and figures of a process that runs under prezero.
//!
//! Through the process's panel (`prezero_report::panel`): shared memory that its scrubd looks at
//! whenever it looks around. No thread is interrupted, and what cannot be answered now is said so.

use std::io::ErrorKind;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use prezero::Value;
use prezero_report::panel::{Panel, Reading, Refusal};

use crate::stat::Stat;
use prezero_command::outcome;

/// How long an answer may take: scrubd that has work looks within milliseconds, one that holds
/// idle memory within a quarter of a second.
const PATIENCE: Duration = Duration::from_secs(1);

/// The command line of `prezero ctl`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    prezero ctl 4711 set scrub-rate 500M    no more than that a second from now on\n  \
    prezero ctl 4711 set scrub-start never  no scrubbing until it is a number\n  \
    prezero ctl 4711 get                    every knob\n  \
    prezero ctl 4711 stats                  every counter and gauge\n\
    Knobs have the names of prezero run's options; scrub_start is scrub-start too.")]
pub struct Ctl {
    /// The process; prezero top lists them
    #[arg(value_name = "PID")]
    pid: u32,
    #[command(subcommand)]
    action: Action,
}

/// What to do with it.
#[derive(clap::Subcommand)]
enum Action {
    /// Show a knob, counter or fact; without a name all knobs
    #[command(after_help = "Example: prezero ctl 4711 get scrub_rate")]
    Get {
        /// Its name
        key: Option<String>,
    },
    /// Turn a knob
    #[command(after_help = "Example: prezero ctl 4711 set scrub_rate 500M")]
    Set {
        /// Its name
        key: String,
        /// Its value, as prezero run takes it
        #[arg(allow_hyphen_values = true)]
        value: String,
    },
    /// Show every counter and gauge
    #[command(after_help = "Example: prezero ctl 4711 stats --json | jq .values.hits")]
    Stats {
        /// As one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Give all idle memory back to the kernel, now
    #[command(after_help = "Example: prezero ctl 4711 release")]
    Release,
}

impl Ctl {
    /// Asks and prints.
    pub fn run(&self) -> Result<()> {
        let panel = open(self.pid)?;
        let ask = |request: &str| {
            let outcome = match panel.ask(request, PATIENCE) {
                Err(Refusal::Pending) if has_ended(self.pid) => {
                    Err(anyhow!("the process has ended, and nobody will do it"))
                }
                Err(Refusal::Pending)
                    if Stat::of(self.pid).is_some_and(|stat| stat.is_stopped()) =>
                {
                    Err(anyhow!("not yet: the process is stopped; when it goes on it will be done"))
                }
                outcome => outcome.map_err(Into::into),
            };
            outcome.with_context(|| format!("{}: {request}", self.pid))
        };
        match &self.action {
            Action::Get { key: None } => {
                for (name, value) in panel.read().knobs {
                    prezero_sys::print!("{name} {value}\n")?;
                }
                Ok(())
            }
            Action::Get { key: Some(key) } => {
                prezero_sys::print!("{}\n", found(&panel.read(), key)?)?;
                Ok(())
            }
            Action::Set { key, value } => {
                known(&panel.read(), key, value)?;
                ask(&format!("set {} {value}", dashed(key)))
            }
            Action::Release => ask("release"),
            Action::Stats { json } => {
                let reading = panel.read();
                if *json {
                    let text = serde_json::to_string_pretty(&as_json(&reading))?;
                    prezero_sys::print!("{text}\n")?;
                } else {
                    prezero_sys::print!("{}", as_text(&reading))?;
                }
                Ok(())
            }
        }
    }
}

/// The panel of a process.
pub fn open(pid: u32) -> Result<Panel> {
    let words = match prezero_sys::panel::of_process(pid) {
        Ok(words) => words,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            if has_ended(pid) {
                bail!("{pid}: no such process");
            }
            bail!(
                "{pid}: no panel: it does not run under prezero, or has not yet freed enough for scrubd \
                 to start ({} MiB)",
                prezero::internal::START_BYTES >> 20
            )
        }
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            bail!("{pid}: another user's process; ask as its owner or as root")
        }
        Err(error) => return Err(error).context(pid.to_string()),
    };
    Panel::new(words).with_context(|| format!("{pid}: a panel of another version of prezero"))
}

/// Whether there is no such process, or hardly any more.
fn has_ended(pid: u32) -> bool {
    Stat::of(pid).is_none_or(|stat| stat.is_ending())
}

fn dashed(key: &str) -> String {
    key.replace('_', "-")
}

/// Whether the process has such a knob.
fn known(reading: &Reading, key: &str, value: &str) -> Result<()> {
    let names = || reading.knobs.iter().map(|(name, _)| *name);
    if names().any(|name| name == dashed(key)) {
        return Ok(());
    }
    bail!("{}: set {key} {value}: no such knob{}", reading.pid, meant(key, names()))
}

/// `; did you mean scrub-rate?`
fn meant<'a>(key: &str, names: impl Iterator<Item = &'a str>) -> String {
    let similar = outcome::similar(&dashed(key), names);
    similar.map_or(String::new(), |name| format!("; did you mean {name}?"))
}

/// A knob by either spelling, or else a value or fact.
fn found(reading: &Reading, key: &str) -> Result<String> {
    let knob = reading.knobs.iter().find(|(name, _)| **name == dashed(key));
    if let Some((_, value)) = knob.or(reading.facts.iter().find(|(name, _)| *name == key)) {
        return Ok(value.clone());
    }
    let value = reading.values.iter().find(|(name, ..)| name == key);
    let (.., number) = value.with_context(|| {
        let names = reading.knobs.iter().map(|(name, _)| *name);
        let names = names.chain(reading.values.iter().map(|(name, ..)| name.as_str()));
        let meant = meant(key, names);
        let pid = reading.pid;
        format!("{key}: no such knob, counter or fact{meant}; prezero ctl {pid} get lists knobs")
    })?;
    Ok(match number {
        Value::Int(n) => n.to_string(),
        Value::Float(x) => x.to_string(),
    })
}

/// Everything, names as on the panel.
pub fn as_json(reading: &Reading) -> serde_json::Value {
    let number = |number: &Value| match number {
        Value::Int(n) => serde_json::Value::from(*n),
        Value::Float(x) => serde_json::Value::from(*x),
    };
    let values = reading.values.iter().map(|(name, _, value)| (name.clone(), number(value)));
    let texts = |texts: &[(&str, String)]| -> serde_json::Map<String, serde_json::Value> {
        texts.iter().map(|(name, value)| (name.to_string(), value.as_str().into())).collect()
    };
    serde_json::json!({
        "pid": reading.pid,
        "age_s": reading.age.as_secs_f64(),
        "consistent": reading.consistent,
        "values": values.collect::<serde_json::Map<_, _>>(),
        "knobs": texts(&reading.knobs),
        "facts": texts(&reading.facts),
    })
}

fn as_text(reading: &Reading) -> String {
    use std::fmt::Write;
    let mut text = format!("process {}, {:.1} s ago\n", reading.pid, reading.age.as_secs_f64());
    for (name, unit, number) in &reading.values {
        // Of the many blocks by order and state, those that are.
        if name.starts_with("free_blocks_") && number.as_f64() == 0.0 {
            continue;
        }
        let number = match number {
            Value::Int(n) => n.to_string(),
            Value::Float(x) => format!("{x:.2}"),
        };
        let _ = writeln!(text, "{name:<28} {number:>18} {unit}");
    }
    for (name, fact) in &reading.facts {
        let _ = writeln!(text, "{name:<28} {fact:>18}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading() -> Reading {
        Reading {
            pid: 7,
            age: Duration::from_millis(1500),
            consistent: true,
            values: vec![
                ("hits".into(), "count", Value::Int(u64::MAX)),
                ("free_blocks_zero_3".into(), "count", Value::Int(0)),
                ("clear_ns_per_page".into(), "ns/page", Value::Float(40.5)),
            ],
            knobs: vec![("scrub-start", "4".into())],
            facts: vec![("trust", "whole".into())],
        }
    }

    #[test]
    fn a_knob_has_two_spellings_and_numbers_lose_nothing() {
        let reading = reading();
        for key in ["scrub-start", "scrub_start"] {
            assert_eq!(found(&reading, key).unwrap(), "4");
        }
        assert_eq!(found(&reading, "hits").unwrap(), u64::MAX.to_string());
        assert_eq!(found(&reading, "trust").unwrap(), "whole");
        assert!(
            found(&reading, "scrub_strt")
                .unwrap_err()
                .to_string()
                .contains("did you mean scrub-start?")
        );
        assert!(known(&reading, "scrub_start", "4").is_ok());
        let none = known(&reading, "scrub_stat", "4").unwrap_err().to_string();
        assert_eq!(none, "7: set scrub_stat 4: no such knob; did you mean scrub-start?");
        assert!(
            found(&reading, "colour").unwrap_err().to_string().starts_with("colour: no such knob")
        );
        assert_eq!(as_json(&reading)["values"]["hits"], u64::MAX);
    }

    #[test]
    fn orders_without_blocks_are_not_shown() {
        let text = as_text(&reading());
        assert!(!text.contains("free_blocks_zero_3") && text.contains("40.50 ns/page"), "{text}");
    }

    #[test]
    fn who_has_no_panel_is_told_why() {
        let told = |pid| open(pid).unwrap_err().to_string();
        assert!(told(u32::MAX).ends_with("no such process"));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        while !has_ended(child.id()) {
            std::thread::yield_now();
        }
        assert!(told(child.id()).ends_with("no such process"), "nobody has waited for it yet");
        child.wait().unwrap();
        assert!(told(std::process::id()).contains("no panel"));
    }
}
