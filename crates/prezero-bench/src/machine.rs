//! What the numbers were taken on.

use std::fs::read_to_string;
use std::process::Command;

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
    /// Of the first CPU, as the kernel writes it; empty if it does not say.
    pub l2: String,
    /// Of the first CPU, as the kernel writes it; empty if it does not say.
    pub l3: String,
    /// Release.
    pub kernel: String,
    /// Transparent huge pages: always, madvise or never.
    pub thp: String,
    /// The C library that all share.
    pub libc: String,
    /// Processes that wanted a CPU during the last minute, on average: idle mode must not share its
    /// CPUs with them.
    pub load: f64,
}

/// Names the load before a report began: what its own benchmarks add is not others'.
pub const LOAD_VARIABLE: &str = "PREZERO_BENCH_LOAD";

impl Machine {
    /// All but what else it does, in words.
    pub fn named(&self) -> String {
        format!(
            "{}, {} CPUs, L2 {}, L3 {}, {:.1} GiB, Linux {}, THP {}, {}",
            self.cpu,
            self.cpus,
            self.l2,
            self.l3,
            self.memory_bytes as f64 / (1u64 << 30) as f64,
            self.kernel,
            self.thp,
            self.libc
        )
    }

    /// This one.
    pub fn here() -> Machine {
        let cpuinfo = read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model =
            cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
        let thp = line("/sys/kernel/mm/transparent_hugepage/enabled");
        Machine {
            cpu: model
                .map_or_else(|| std::env::consts::ARCH.into(), |(_, name)| name.trim().into()),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: prezero::Machine::here().memory,
            l2: cache(2),
            l3: cache(3),
            kernel: line("/proc/sys/kernel/osrelease"),
            thp: chosen(&thp).unwrap_or("none").into(),
            load: load(),
            libc: output("getconf", &["GNU_LIBC_VERSION"]).unwrap_or_default(),
        }
    }
}

/// Of the last minute, or as the report that runs this benchmark found it.
pub fn load() -> f64 {
    let given = std::env::var(LOAD_VARIABLE).ok();
    let text = given.unwrap_or_else(|| line("/proc/loadavg"));
    text.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0)
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

/// The word in brackets: `always [madvise] never`.
fn chosen(words: &str) -> Option<&str> {
    words.split_once('[')?.1.split_once(']').map(|(word, _)| word)
}

fn cache(level: u32) -> String {
    let folders = (0..8).map(|index| format!("/sys/devices/system/cpu/cpu0/cache/index{index}"));
    let at_level = |folder: &String| line(&format!("{folder}/level")) == level.to_string();
    folders
        .filter(at_level)
        .map(|folder| line(&format!("{folder}/size")))
        .next()
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chosen_word_is_the_one_in_brackets() {
        assert_eq!(chosen("always [madvise] never"), Some("madvise"));
        assert_eq!(chosen(""), None);
    }

    #[test]
    fn a_command_that_fails_has_no_output() {
        assert_eq!(output("false", &[]), None);
        assert_eq!(output("echo", &["x"]).as_deref(), Some("x"));
    }
}
