//! How short of memory and tasks the machine and this process's cgroup are.
//!
//! Sources: PSI (`/proc/pressure/memory`), `/proc/{meminfo,vmstat}`, and of the
//! process's cgroup v2 and all above it `memory.{current,high,max}`, of its own
//! `memory.pressure`; of its pids cgroups `pids.{current,max}`, and of the machine `threads-max`; of its memory cgroup v1 and all above it `memory.{usage,limit}_in_bytes`.
//! A file that is missing, unreadable or in another form is *no information*, never an error:
//! a kernel without PSI or with cgroup v1 only leaves less to judge by.
//!
//! - **No descriptor outlives a read.** A program that closes every descriptor it finds would
//!   close one of these. One race stays: the program closes this read's descriptor and opens a file
//!   of its own under the same number, within the read. A thread with a descriptor table of its own
//!   (`CLOSE_RANGE_UNSHARE`) is free of it, so scrubd samples from such a thread.
//! - **No heap after [`Pressure::new`]** for paths below 256 bytes, which are copied to the stack; a longer cgroup path costs a short-lived allocation for each read.
//! - The cgroup is looked up once. A process that moves later is judged by its old cgroup.

use std::path::{Path, PathBuf};

use prezero_sys::file;

mod cgroup;
mod tasks;

use cgroup::Group;
pub use cgroup::cpu_quota;
use tasks::Tasks;

/// Within this time of the last sample [`Pressure::sample`] repeats its verdict without a system
/// call. A single stall must not fill the interval, and the files must cost next to no CPU time.
/// Moved by: counter `scrubd_cpu_ns`.
const MIN_INTERVAL_NS: u64 = 200_000_000;

/// Share of the interval in which *some* task waited for memory. Reclaim that keeps up stays well
/// below; a larger share is felt.
/// Moved by: tests of `pressure`.
const SOME_STALL_SHARE: f32 = 0.10;

/// Share of the interval in which *every* task waited for memory. That time is lost to all, so less
/// of it counts.
/// Moved by: tests of `pressure`.
const FULL_STALL_SHARE: f32 = 0.02;

/// Share of `MemTotal` still available. It lies above the kernel's watermarks, so that idle memory
/// goes back before other programs lose pages to reclaim.
/// Moved by: tests of `pressure`.
const AVAILABLE_SHARE: f64 = 0.03;

/// Share of `MemTotal` below which stalls of the machine count. Above it they may be those of a cgroup
/// that thrashes at its own limit, and count only where the machine itself reclaims, too.
/// Moved by: tests of `pressure`.
const AMPLE_SHARE: f64 = 0.10;

/// Bytes of a file that are looked at. The largest is `memory.stat`, whose `inactive_file`
/// stands in its first kilobyte.
const READ_BYTES: usize = 4096;

/// Whether memory should be given back now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Memory {
    /// No source says that memory is short.
    Fine,
    /// The machine or the cgroup is short: keep nothing that is idle.
    Tight,
}

/// What a sample found.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Verdict {
    /// Memory of the machine and of the cgroup, whichever is tighter.
    pub memory: Memory,
    /// What the cgroup and those above it may hold at most, bytes.
    pub limit: Option<u64>,
    /// Whether there is room for a thread that the program can do without.
    pub room: Room,
}

/// What the limits of tasks (of pids cgroups, the user, the machine) and of CPU time leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    /// A thread more takes nothing from the program.
    Enough,
    /// It may take the last task, or its time is counted against the program.
    Little,
}

/// The sampler. Belongs to one thread.
#[derive(Debug)]
pub struct Pressure {
    memory_stalls: [Stalls; 2],
    machine: Machine,
    /// The process's cgroup, then each above it.
    groups: Vec<Group>,
    tasks: Tasks,
    last: Option<(u64, Verdict)>,
}

impl Pressure {
    /// Prepares the paths below `root` (`/` but for tests) and finds the process's cgroup.
    pub fn new(root: &Path) -> Pressure {
        let dirs = cgroup::dirs(root);
        // Of the groups above, neighbours that thrash at their own limits would count too.
        // The root's are the machine's.
        let own = dirs.first().filter(|_| dirs.len() > 1);
        let own = own.map_or_else(PathBuf::new, |dir| dir.join("memory.pressure"));
        Pressure {
            memory_stalls: [Stalls::new(root.join("proc/pressure/memory")), Stalls::new(own)],
            machine: Machine::new(root),
            groups: Group::of_both(root, &dirs),
            tasks: Tasks::new(root, &dirs),
            last: None,
        }
    }

    /// Judges the time since the last sample; `now_ns` is any clock that does not run
    /// backward, in nanoseconds. Stall shares need two samples, so the first knows none.
    /// Sampling again within 200 ms costs nothing and tells nothing new.
    pub fn sample(&mut self, now_ns: u64) -> Verdict {
        if let Some((_, verdict)) = self.last
            && !self.is_due(now_ns)
        {
            return verdict;
        }
        let (scarce, short) = self.machine.advance();
        // No short circuit: each source moves its baseline.
        let [of_machine, of_own] = &mut self.memory_stalls;
        let of_machine = of_machine.advance(now_ns).are_felt() && short;
        let of_own = of_own.advance(now_ns).are_felt();
        let mut tight = scarce || of_machine || of_own;
        let mut limit = None;
        for group in &self.groups {
            let bound = group.bound();
            tight = tight || bound.is_some_and(|bound| group.is_full(bound));
            limit = limit.into_iter().chain(bound).min();
        }
        let verdict = Verdict {
            memory: if tight { Memory::Tight } else { Memory::Fine },
            limit,
            room: if self.tasks.are_few() { Room::Little } else { Room::Enough },
        };
        self.last = Some((now_ns, verdict));
        verdict
    }

    /// Whether a sample now reads files.
    pub fn is_due(&self, now_ns: u64) -> bool {
        let since = self.last.and_then(|(at_ns, _)| now_ns.checked_sub(at_ns));
        since.is_none_or(|since| since >= MIN_INTERVAL_NS)
    }

    /// What the cgroup and those above it may hold at most now, bytes.
    pub fn limit(&self) -> Option<u64> {
        self.groups.iter().filter_map(Group::bound).min()
    }
}

/// One PSI file and what it said last.
#[derive(Debug)]
struct Stalls {
    path: PathBuf,
    last: Option<StallTotals>,
}

/// Microseconds stalled since boot, and when they were read.
#[derive(Clone, Copy, Debug)]
struct StallTotals {
    at_ns: u64,
    some_us: u64,
    full_us: u64,
}

/// Shares of the time between two reads, 0 to 1.
#[derive(Clone, Copy, Default)]
struct StallShares {
    some: f32,
    full: f32,
}

impl StallShares {
    fn are_felt(self) -> bool {
        self.some > SOME_STALL_SHARE || self.full > FULL_STALL_SHARE
    }
}

/// How much memory the machine has left, and whether its programs had to reclaim some.
#[derive(Debug)]
struct Machine {
    meminfo: PathBuf,
    vmstat: PathBuf,
    /// Allocations that reclaimed memory of the machine since boot. Those at a cgroup's limit are not
    /// among them.
    reclaims: Option<u64>,
}

impl Machine {
    fn new(root: &Path) -> Machine {
        let (meminfo, vmstat) = (root.join("proc/meminfo"), root.join("proc/vmstat"));
        Machine { meminfo, vmstat, reclaims: None }
    }

    /// Whether hardly any memory is left, and whether the machine is short enough for stalls to be of
    /// that. A machine that tells neither may be.
    fn advance(&mut self) -> (bool, bool) {
        let left = read(&self.meminfo, |text| {
            let (available, total) = (field(text, "MemAvailable:")?, field(text, "MemTotal:")?);
            Some(available as f64 / total.max(1) as f64)
        });
        let now = read(&self.vmstat, |text| {
            let counts = text.lines().filter(|line| line.starts_with("allocstall"));
            let counts = counts.filter_map(|line| line.split_whitespace().nth(1)?.parse().ok());
            counts.reduce(|sum: u64, count| sum + count)
        });
        let before = std::mem::replace(&mut self.reclaims, now);
        let reclaimed = match (before, now) {
            (Some(before), Some(now)) => Some(now > before),
            _ => None,
        };
        let scarce = left.is_some_and(|left| left < AVAILABLE_SHARE);
        let short = match (left.map(|left| left < AMPLE_SHARE), reclaimed) {
            (None, None) => true,
            (few, reclaimed) => few.unwrap_or(false) || reclaimed.unwrap_or(false),
        };
        (scarce, short)
    }
}

impl Stalls {
    fn new(path: PathBuf) -> Stalls {
        Stalls { path, last: None }
    }

    fn advance(&mut self, now_ns: u64) -> StallShares {
        let last = self.last.take();
        self.last = read_stalls(&self.path, now_ns);
        let (Some(then), Some(now)) = (last, self.last) else { return StallShares::default() };
        let elapsed_ns = now.at_ns.saturating_sub(then.at_ns);
        let share = |then_us: u64, now_us: u64| {
            let stalled_ns = now_us.saturating_sub(then_us).saturating_mul(1000);
            if elapsed_ns == 0 { 0.0 } else { (stalled_ns as f32 / elapsed_ns as f32).min(1.0) }
        };
        StallShares {
            some: share(then.some_us, now.some_us),
            full: share(then.full_us, now.full_us),
        }
    }
}

/// How many threads run at this moment or wait for a CPU, the caller included.
pub fn running(root: &Path) -> Option<usize> {
    read(&root.join("proc/loadavg"), |text| {
        text.split_whitespace().nth(3)?.split('/').next()?.parse().ok()
    })
}

fn read_number(path: &Path) -> Option<u64> {
    read(path, |text| text.trim().parse().ok())
}

fn read_stalls(path: &Path, at_ns: u64) -> Option<StallTotals> {
    read(path, |text| {
        let total = |kind: &str| {
            let line = text.lines().find(|line| line.split_whitespace().next() == Some(kind))?;
            line.split_whitespace().find_map(|word| word.strip_prefix("total="))?.parse().ok()
        };
        Some(StallTotals { at_ns, some_us: total("some")?, full_us: total("full").unwrap_or(0) })
    })
}

/// The number after `name` at the beginning of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        if words.next() == Some(name) { words.next()?.parse().ok() } else { None }
    })
}

/// Opens, reads at most [`READ_BYTES`], closes, and hands the text to `parse`.
fn read<T>(path: &Path, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
    if path.as_os_str().is_empty() {
        return None;
    }
    parse(std::str::from_utf8(file::read(path, &mut [0u8; READ_BYTES]).ok()?).ok()?)
}

#[cfg(test)]
mod tests;
