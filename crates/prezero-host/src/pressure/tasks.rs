//! Whether the limits of tasks and of CPU time leave room for a thread that the program can do without.

use std::path::{Path, PathBuf};

use prezero_sys::process;

use super::cgroup::v1_dirs;
use super::{read, read_number};

/// Tasks that are left to the program, and to all others under the same limit.
/// Fixed: a pipeline of a shell, and its helpers.
const LEFT: u64 = 8;
/// A limit of a user's tasks below this is meant for a program that has few. The kernel does not say how many there are.
/// Fixed: less than a desktop or a service starts with.
const FEW: u64 = 64;

/// Whether too few are left of the tasks that this file allows.
fn is_full(max: &Path, current: impl FnOnce() -> Option<u64>) -> bool {
    read_number(max).is_some_and(|max| current().is_some_and(|now| max.saturating_sub(now) < LEFT))
}

/// The files that say so.
#[derive(Debug)]
pub(super) struct Tasks {
    /// Of the pids cgroups: what the group has, and may have.
    groups: Vec<[PathBuf; 2]>,
    machine: [PathBuf; 2],
}

impl Tasks {
    /// `dirs` are those of the cgroup v2.
    pub(super) fn new(root: &Path, dirs: &[PathBuf]) -> Tasks {
        let files = |dir: &PathBuf| [dir.join("pids.current"), dir.join("pids.max")];
        let groups = dirs.iter().chain(&v1_dirs(root, "pids")).map(files).collect();
        let machine = ["proc/loadavg", "proc/sys/kernel/threads-max"].map(|file| root.join(file));
        Tasks { groups, machine }
    }

    /// Whether one task more is one too many, or its time is counted against the program.
    pub(super) fn are_few(&self) -> bool {
        let all = |text: &str| text.split_whitespace().nth(3)?.split_once('/')?.1.parse().ok();
        let [loadavg, most] = &self.machine;
        let mut groups = self.groups.iter();
        process::limit(process::RLIMIT_NPROC).is_some_and(|most| most < FEW)
            || process::limit(process::RLIMIT_CPU).is_some()
            || groups.any(|[current, max]| is_full(max, || read_number(current)))
            || is_full(most, || read(loadavg, all))
    }
}
