//! What this host can make: read from sysfs and procfs, never written.

pub mod accounts;
pub mod cgroup;
pub mod file_cache;
pub mod neighbours;
pub mod view;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::protocol::{Backing, Page};
use file_cache::FileCache;

/// The host's files, below a root (`/` but for tests).
#[derive(Clone, Debug)]
pub struct Host {
    root: PathBuf,
    files: FileCache,
}

const SHMEM_ENABLED: &str = "sys/kernel/mm/transparent_hugepage/shmem_enabled";

/// Hierarchies that tell processes apart, by what stands in `/proc/PID/cgroup`; version 2 first.
const TELLING: [&str; 3] = ["", "name=systemd", "memory"];

/// One node's hugetlb pool, in pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pool {
    /// All that the administrator reserved.
    pub total: u64,
    /// Those beyond: the pool was made smaller while they were in use.
    pub surplus: u64,
    /// Neither in use nor promised to a mapping.
    pub free: u64,
}

impl Host {
    /// Reads below `root`.
    pub fn new(root: impl Into<PathBuf>) -> Host {
        Host { root: root.into(), files: FileCache::default() }
    }

    /// It is this time: what was read a moment ago holds.
    pub fn at(&self, now_ns: u64) {
        self.files.at(now_ns);
    }

    /// Pages were made: nothing that was read holds.
    pub fn forget(&self) {
        self.files.forget();
    }

    /// NUMA nodes that are online, at least one.
    pub fn nodes(&self) -> Vec<u16> {
        let online = self.text("sys/devices/system/node/online");
        let nodes = online.as_deref().and_then(number_list).unwrap_or_default();
        if nodes.is_empty() { vec![0] } else { nodes }
    }

    /// CPUs of a node; empty: not known.
    pub fn cpus(&self, node: u16) -> Vec<u16> {
        let list = self.text(&format!("sys/devices/system/node/node{node}/cpulist"));
        list.as_deref().and_then(number_list).unwrap_or_default()
    }

    /// The hugetlb pool of a node.
    pub fn pool(&self, node: u16, page: Page) -> Pool {
        let size = format!("hugepages-{}kB", page.bytes() >> 10);
        let of_node = format!("sys/devices/system/node/node{node}/hugepages/{size}");
        let whole = format!("sys/kernel/mm/hugepages/{size}");
        let total = |dir: &str| self.number(&format!("{dir}/nr_hugepages"));
        let (dir, total) = match total(&of_node) {
            Some(total) => (&of_node, total),
            None => (&whole, total(&whole).unwrap_or(0)),
        };
        // Pages that mappings were promised are free, but not for us. The kernel counts them
        // for the machine only, so on each node we leave as many.
        let promised = self.number(&format!("{whole}/resv_hugepages")).unwrap_or(0);
        let free = self.number(&format!("{dir}/free_hugepages")).unwrap_or(0);
        let surplus = self.number(&format!("{dir}/surplus_hugepages")).unwrap_or(0);
        let total = total.saturating_sub(surplus);
        Pool { total, surplus, free: free.saturating_sub(promised) }
    }

    /// Bytes of such pages, of all pools, that are in use.
    pub fn pooled(&self, page: Page) -> u64 {
        let dir = format!("sys/kernel/mm/hugepages/hugepages-{}kB", page.bytes() >> 10);
        let number = |file: &str| self.number(&format!("{dir}/{file}")).unwrap_or(0);
        number("nr_hugepages").saturating_sub(number("free_hugepages")) * page.bytes()
    }

    /// Pages in the pools of all nodes.
    pub fn pages(&self, page: Page) -> u64 {
        let file =
            format!("sys/kernel/mm/hugepages/hugepages-{}kB/nr_hugepages", page.bytes() >> 10);
        self.number(&file).unwrap_or(0)
    }

    /// Whether transparent huge pages of shared memory can be made here.
    pub fn thp(&self) -> bool {
        self.shmem_enabled().is_some_and(|setting| !setting.contains("[deny]"))
    }

    /// What would allow transparent pages of shared memory; `None`: the kernel has none, or allows
    /// them.
    pub fn shmem_mend(&self) -> Option<String> {
        let denied = self.shmem_enabled()?.contains("[deny]");
        denied.then(|| format!("echo advise > /{SHMEM_ENABLED}"))
    }

    fn shmem_enabled(&self) -> Option<Arc<str>> {
        self.text(SHMEM_ENABLED)
    }

    /// Physical memory and what of it could be had now, bytes.
    pub fn memory(&self) -> (u64, u64) {
        let text = self.text("proc/meminfo");
        let text = text.as_deref().unwrap_or_default();
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
        };
        let kib = |name| field(name).unwrap_or(0) << 10;
        (kib("MemTotal:"), kib("MemAvailable:"))
    }

    /// What each CPU has spent its time on: `/proc/stat`; empty: not known.
    pub fn cpu_times(&self) -> String {
        self.text("proc/stat").as_deref().unwrap_or_default().to_owned()
    }

    /// The backing that pages of this size would come from on this node: the pool where it
    /// has any, transparent huge pages otherwise.
    pub fn backing(&self, node: u16, page: Page) -> Option<Backing> {
        if self.pool(node, page).total > 0 {
            return Some(Backing::Hugetlb);
        }
        (page == Page::Huge && self.thp()).then_some(Backing::Thp)
    }

    /// What would make this host better for its clients, in one line.
    pub fn advice(&self) -> Option<String> {
        let pools = self.nodes().iter().any(|&node| self.pool(node, Page::Huge).total > 0);
        match (pools, self.thp()) {
            (true, _) => None,
            (false, true) => {
                let better = "2M pages come from ordinary memory and can be short when it is \
                              fragmented; reserve some for guaranteed leases: sysctl \
                              vm.nr_hugepages=512 (1 GiB)";
                // The kernel then puts mappings of such files where huge pages fit.
                let aligned = "; and for clients that let the kernel choose an address: echo \
                               advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled";
                let never = self.shmem_enabled().is_some_and(|setting| setting.contains("[never]"));
                Some(format!("{better}{}", if never { aligned } else { "" }))
            }
            (false, false) => {
                let mend = self.shmem_mend().unwrap_or_else(|| {
                    "take a kernel with transparent huge pages of shared memory".into()
                });
                Some(format!(
                    "this host has no huge pages at all; reserve some (sysctl vm.nr_hugepages=512 is \
                     1 GiB), or {mend}"
                ))
            }
        }
    }

    fn text(&self, path: &str) -> Option<Arc<str>> {
        self.files.text(&self.root.join(path))
    }

    fn number(&self, path: &str) -> Option<u64> {
        self.text(path)?.trim().parse().ok()
    }

    /// Where a process is: its cgroup of version 2, and on hosts that have hierarchies of version 1
    /// beside it those of the service manager and of memory. A hybrid host tells processes apart
    /// by these alone.
    pub fn cgroups(&self, pid: i32) -> Vec<String> {
        // Read anew: the number may be another process's by now.
        let table = self.root.join(format!("proc/{pid}/cgroup"));
        let table = std::fs::read_to_string(table).unwrap_or_default();
        let lines = || table.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
        let of = |known: &str| {
            let mut found = lines().filter(|(all, _)| all.split(',').any(|one| one == known));
            found.next().map(|(_, path)| path.to_owned())
        };
        let mut paths: Vec<String> = TELLING.into_iter().filter_map(of).collect();
        if paths.is_empty() {
            paths.extend(lines().next().map(|(_, path)| path.to_owned()));
        }
        let mut seen = std::collections::BTreeSet::new();
        paths.retain(|path| seen.insert(path.clone()));
        paths
    }

    /// Whether the process of this pidfd lives in a PID namespace below the one that `/proc` shows: the kernel then
    /// lists a number for each. What cannot be read counts as such. A process's own status tells it too, behind its
    /// groups, of which it may have 65,536.
    pub fn is_contained(&self, pidfd: i32) -> bool {
        let info = std::fs::read_to_string(self.root.join(format!("proc/self/fdinfo/{pidfd}")));
        let info = info.unwrap_or_default();
        let numbers = info.lines().find_map(|line| line.strip_prefix("NSpid:"));
        numbers.is_none_or(|numbers| numbers.split_whitespace().count() != 1)
    }
}

impl AsRef<Path> for Host {
    fn as_ref(&self) -> &Path {
        &self.root
    }
}

/// A list as the kernel writes it: `0-3,8`.
fn number_list(text: &str) -> Option<Vec<u16>> {
    let mut numbers = Vec::new();
    for range in text.trim().split(',').filter(|range| !range.is_empty()) {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        numbers.extend(from.parse::<u16>().ok()?..=to.parse::<u16>().ok()?);
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{PidfdFlags, getpid, pidfd_open};
    use std::fs;
    use std::os::fd::AsRawFd;

    fn host(files: &[(&str, &str)]) -> (tempfile::TempDir, Host) {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let host = Host::new(dir.path());
        (dir, host)
    }

    #[test]
    fn a_process_of_a_namespace_below_is_contained_and_so_is_one_that_cannot_be_read() {
        let (_dir, host) = host(&[
            ("proc/self/fdinfo/7", "pos:\t0\nPid:\t70\nNSpid:\t70\n"),
            ("proc/self/fdinfo/8", "pos:\t0\nPid:\t80\nNSpid:\t80\t1\n"),
            ("proc/self/fdinfo/9", "pos:\t0\n"),
        ]);
        assert!(!host.is_contained(7));
        assert!([8, 9, 10].into_iter().all(|pidfd| host.is_contained(pidfd)));
        let own = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
        assert!(!Host::new("/").is_contained(own.as_raw_fd()));
    }

    const SHMEM: &str = "sys/kernel/mm/transparent_hugepage/shmem_enabled";

    #[test]
    fn a_host_that_says_nothing_has_one_node_and_no_huge_pages() {
        let (_dir, host) = host(&[]);
        assert_eq!(host.nodes(), [0]);
        assert_eq!(host.pool(0, Page::Huge), Pool::default());
        assert_eq!((host.thp(), host.memory()), (false, (0, 0)));
        assert_eq!(host.backing(0, Page::Huge), None);
        assert!(host.advice().unwrap().contains("nr_hugepages"));
    }

    #[test]
    fn the_pool_of_a_node_comes_before_the_pool_of_the_machine() {
        let (_dir, host) = host(&[
            ("sys/devices/system/node/online", "0-1,4\n"),
            ("sys/devices/system/node/node1/cpulist", "2-3,7\n"),
            ("sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages", "8\n"),
            ("sys/devices/system/node/node1/hugepages/hugepages-2048kB/free_hugepages", "3\n"),
            ("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "64\n"),
            ("sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages", "1\n"),
            ("proc/meminfo", "MemTotal:       4096 kB\nMemAvailable:   1024 kB\n"),
            (SHMEM, "always within_size advise [never] deny force\n"),
        ]);
        assert_eq!(host.nodes(), [0, 1, 4]);
        assert_eq!((host.cpus(1), host.cpus(0)), (vec![2, 3, 7], vec![]));
        assert_eq!(host.pool(1, Page::Huge), Pool { total: 8, surplus: 0, free: 2 });
        assert_eq!(host.pool(0, Page::Huge).total, 64);
        assert_eq!(host.memory(), (4 << 20, 1 << 20));
        assert_eq!(host.backing(1, Page::Huge), Some(Backing::Hugetlb));
        assert_eq!(host.backing(1, Page::Giant), None);
        assert_eq!(host.advice(), None);
    }

    #[test]
    fn transparent_pages_are_had_unless_denied() {
        let (_dir, never) = host(&[(SHMEM, "always within_size advise [never] deny force\n")]);
        let (_other, deny) = host(&[(SHMEM, "always within_size advise never [deny] force\n")]);
        assert_eq!(never.backing(0, Page::Huge), Some(Backing::Thp));
        assert_eq!(never.backing(0, Page::Giant), None);
        assert_eq!(deny.backing(0, Page::Huge), None);
        let (_third, advise) = host(&[(SHMEM, "always within_size [advise] never deny force\n")]);
        assert!(never.advice().unwrap().contains("echo advise"));
        assert!(!advise.advice().unwrap().contains("echo advise"));
    }

    #[test]
    fn a_process_is_where_any_hierarchy_tells_it_apart() {
        let (_dir, host) = host(&[
            ("proc/7/cgroup", "4:memory:/vms.slice/a\n0::/vms.slice/a\n"),
            ("proc/8/cgroup", "4:cpu,memory:/old:er\n3:pids:/p\n"),
            ("proc/9/cgroup", "5:memory:/machine/q\n1:name=systemd:/s\n2:cpu:/c\n0::/\n"),
            ("proc/10/cgroup", "2:freezer:/f\n"),
        ]);
        assert_eq!(host.cgroups(7), ["/vms.slice/a"]);
        assert_eq!(host.cgroups(8), ["/old:er"]);
        assert_eq!(host.cgroups(9), ["/", "/s", "/machine/q"], "a hybrid host");
        assert_eq!(host.cgroups(10), ["/f"]);
        assert!(host.cgroups(11).is_empty());
    }
}
