//! What the numbers were taken on.

use std::fs::read_to_string;
use std::path::Path;
use std::process::Command;
use std::thread::{available_parallelism, sleep};
use std::time::Duration;

use anyhow::{Result, ensure};
use prezero_command::spent::cpu_times;
use prezero_host::{Size, Topology};
use serde::{Deserialize, Serialize};

/// The machine, as far as it bears on clearing memory.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Machine {
    /// As the kernel calls it.
    pub cpu: String,
    /// CPUs that this process may use.
    pub cpus: usize,
    /// Physical memory.
    pub memory_bytes: usize,
    /// Of the first CPU; 0 if the kernel does not say.
    pub l2: String,
    /// Of the first CPU; 0 if the kernel does not say.
    pub l3: String,
    /// Release.
    pub kernel: String,
    /// Transparent huge pages: always, madvise or never.
    pub thp: String,
    /// The C library that all share.
    pub libc: String,
    /// CPUs that were busy just before it began, on average: idle mode must not share its CPUs with others.
    pub load: f64,
}

/// Names the load before a report began: what its own benchmarks add is not others'.
pub const LOAD_VARIABLE: &str = "PREZERO_BENCH_LOAD";

impl Machine {
    /// All but what else it does, in words.
    pub fn named(&self) -> String {
        let Machine { cpu, cpus, l2, l3, kernel, thp, libc, .. } = self;
        let gib = self.memory_bytes as f64 / (1u64 << 30) as f64;
        format!(
            "{cpu}, {cpus} CPUs, L2 {l2}, L3 {l3}, {gib:.1} GiB, Linux {kernel}, THP {thp}, {libc}"
        )
    }

    /// This one.
    pub fn here() -> Machine {
        let cpuinfo = read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model =
            cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
        let topology = Topology::read(Path::new(Topology::ROOT));
        // always [madvise] never
        let thp = line("/sys/kernel/mm/transparent_hugepage/enabled");
        Machine {
            cpu: model
                .map_or_else(|| std::env::consts::ARCH.into(), |(_, name)| name.trim().into()),
            cpus: cpus(),
            memory_bytes: prezero::Machine::here().memory,
            l2: Size(topology.l2).to_string(),
            l3: Size(topology.l3).to_string(),
            kernel: line("/proc/sys/kernel/osrelease"),
            thp: thp.split(['[', ']']).nth(1).unwrap_or("none").into(),
            load: load(),
            libc: output("getconf", &["GNU_LIBC_VERSION"]).unwrap_or_default(),
        }
    }
}

/// In half a second from now, or as the report that runs this benchmark found it. The kernel's own average of a minute would
/// count the benchmark before.
pub fn load() -> f64 {
    if let Ok(given) = std::env::var(LOAD_VARIABLE) {
        return given.parse().unwrap_or(0.0);
    }
    let before = cpu_times();
    sleep(Duration::from_millis(500));
    let now = cpu_times();
    let busy = 1.0 - (now.0 - before.0) / (now.1 - before.1).max(1.0);
    (busy * cpus() as f64 * 100.0).round() / 100.0
}

fn cpus() -> usize {
    available_parallelism().map_or(1, usize::from)
}

/// Above this load a figure of idle CPUs is one of busy ones.
pub const QUIET: f64 = 0.5;

/// # Errors
/// The machine is not quiet: its figures would have no verdict, and are not kept.
pub fn quiet() -> Result<()> {
    let load = load();
    ensure!(load <= QUIET, "--keep: {load} CPUs are busy: wait until {QUIET} are, or leave it out");
    Ok(())
}

impl std::fmt::Display for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, load {} at the start", self.named(), self.load)
    }
}

/// What a command that succeeds prints, trimmed.
pub fn output(command: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(command).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_string())
}

fn line(path: &str) -> String {
    read_to_string(path).unwrap_or_default().trim().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_fails_has_no_output() {
        assert_eq!(output("false", &[]), None);
        assert_eq!(output("echo", &["x"]).as_deref(), Some("x"));
    }
}
