//! What a machine has that bears on prezero.

use std::fmt::Display;
use std::path::PathBuf;

use prezero_host::pressure::Pressure;

use super::host::Host;

/// How a finding bears on prezero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mark {
    /// As it should be.
    Good,
    /// Worth knowing.
    Note,
    /// It stands in the way.
    Bad,
}

impl Mark {
    /// For people and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Mark::Good => "good",
            Mark::Note => "note",
            Mark::Bad => "bad",
        }
    }
}

/// A finding.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// How it bears.
    pub mark: Mark,
    /// Of what.
    pub what: &'static str,
    /// What is.
    pub is: String,
    /// What that means.
    pub means: String,
    /// What would help.
    pub mend: Option<String>,
}

impl Finding {
    /// As it should be.
    pub fn good(what: &'static str, is: impl Display, means: &str) -> Finding {
        Finding { mark: Mark::Good, what, is: is.to_string(), means: means.into(), mend: None }
    }

    /// Worth knowing.
    pub fn note(what: &'static str, is: impl Display, means: &str, mend: Option<&str>) -> Finding {
        let (is, means, mend) = (is.to_string(), means.into(), mend.map(String::from));
        Finding { mark: Mark::Note, what, is, means, mend }
    }

    /// In the way.
    pub fn bad(what: &'static str, is: impl Display, means: &str, mend: &str) -> Finding {
        Finding { mark: Mark::Bad, ..Finding::note(what, is, means, Some(mend)) }
    }
}

/// All of them.
pub fn all(host: &Host) -> Vec<Finding> {
    let always =
        [cpus(host), overcommit(host), thp(host), shmem(host), prezeroing(host), reporting(host)];
    let rest = [memory_limit(host), cpu_limit(host), address_space(host)];
    let last = [seccomp(host), pools(host), swap(host), pressure(host)];
    always.into_iter().chain(rest).chain(last).collect()
}

/// Of the CPUs, how many the last minute's load left idle at least.
const IDLE: f64 = 0.25;
const HUGE: &str = "sys/kernel/mm/transparent_hugepage";

fn cpus(host: &Host) -> Finding {
    let load = host.text("proc/loadavg");
    let load: f64 = load.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0);
    let is = format!("{}, load {load:.2} of the last minute", host.cpus);
    if (host.cpus as f64) - load >= IDLE {
        return Finding::good("CPUs", is, "some idle, and scrubd clears on those");
    }
    let means = "none idles: nothing is cleared ahead, and a program is as fast as without";
    Finding::bad("CPUs", is, means, "leave a CPU to prezero, or look again when the load is lower")
}

fn overcommit(host: &Host) -> Finding {
    let is = host.text("proc/sys/vm/overcommit_memory");
    if is == "2" {
        let means = "reserved memory counts as used, so `prezero run` makes no zone";
        return Finding::bad("overcommit", is, means, "sysctl vm.overcommit_memory=0");
    }
    Finding::good("overcommit", is, "a zone may reserve address space that it does not use")
}

fn thp(host: &Host) -> Finding {
    let what = "transparent huge pages";
    match host.chosen(&format!("{HUGE}/enabled")).as_deref() {
        None => Finding::note(what, "not in this kernel", "blocks come in pages of 4 KiB", None),
        Some("never") => {
            let means = "a fault for each 4 KiB of a new block; reused blocks are as fast";
            let mend = format!("echo madvise > /{HUGE}/enabled");
            Finding::note(what, "never", means, Some(&mend))
        }
        Some(is) => Finding::good(what, is, "large blocks come in pages of 2 MiB"),
    }
}

fn shmem(host: &Host) -> Finding {
    let what = "huge pages of shared memory";
    let mend = format!("echo advise > /{HUGE}/shmem_enabled");
    match host.chosen(&format!("{HUGE}/shmem_enabled")).as_deref() {
        None => Finding::note(what, "not in this kernel", "leases need a pool (hugetlb)", None),
        Some("deny") => {
            let means = "prezerod leases from a pool alone; `prezero run` does not need them";
            Finding::note(what, "deny", means, Some(&mend))
        }
        Some("never") => {
            let means = "prezerod makes them, slower than with `advise`";
            Finding::note(what, "never", means, Some(&mend))
        }
        Some(is) => Finding::good(what, is, "prezerod makes leases of them"),
    }
}

/// The patch series in `linux/` of this repository.
fn prezeroing(host: &Host) -> Finding {
    const ORDER: &str = "proc/sys/vm/prezero_order";
    let what = "prezeroing by the kernel";
    match host.text(ORDER).as_str() {
        "" => Finding::good(what, "not in this kernel", "it clears a page at the first touch"),
        "never" => {
            let means = "the kernel clears a page at the first touch";
            Finding::note(what, "off", means, Some("sysctl vm.prezero_order=9"))
        }
        order => {
            let mib = |name: &str| {
                let text = host.field("proc/meminfo", name).unwrap_or_default();
                let kib = text.split(' ').next().and_then(|kib| kib.parse::<u64>().ok());
                kib.unwrap_or(0) >> 10
            };
            let (zero, free) = (mib("MemZero"), mib("MemFree"));
            let is = format!("from order {order}, {zero} of {free} MiB free are zero");
            Finding::good(what, is, "a first touch of those costs no clear")
        }
    }
}

fn reporting(host: &Host) -> Finding {
    const BALLOONS: &str = "sys/bus/virtio/drivers/virtio_balloon";
    /// `VIRTIO_BALLOON_F_REPORTING`, as sysfs writes it: a digit for each bit.
    const REPORTING: usize = 5;
    let reports = host.names(BALLOONS).iter().any(|device| {
        let features = host.text(format!("{BALLOONS}/{device}/features"));
        features.as_bytes().get(REPORTING) == Some(&b'1')
    });
    let what = "free page reporting";
    if !reports {
        return Finding::good(what, "off", "free memory stays with this machine");
    }
    let means = "the hypervisor takes free memory; a new huge page may take milliseconds, so \
                 blocks begin with small pages";
    Finding::note(what, "on", means, Some("on the host: free-page-reporting=off for the balloon"))
}

fn memory_limit(host: &Host) -> Finding {
    let what = "memory limit";
    // Version 1 has a number for no limit.
    let total = host.field("proc/meminfo", "MemTotal:").unwrap_or_default();
    let total = total.split(' ').next().and_then(|kib| kib.parse::<u64>().ok());
    let is_one = |bytes: &u64| total.is_none_or(|kib| *bytes < kib << 10);
    match Pressure::new(&host.root).limit().filter(is_one) {
        None => Finding::good(what, "none (cgroup)", "idle memory goes back by age and pressure"),
        Some(bytes) => {
            let means = "idle memory is offered to the kernel within it, and counts against it";
            Finding::note(what, format!("{} MiB (cgroup)", bytes >> 20), means, None)
        }
    }
}

/// The cgroup of version 2, its innermost folder first.
fn groups(host: &Host) -> Vec<PathBuf> {
    let table = host.text("proc/self/cgroup");
    let own = table.lines().find_map(|line| line.strip_prefix("0::/"));
    let own = PathBuf::from(own.unwrap_or_default());
    own.ancestors().map(|path| PathBuf::from("sys/fs/cgroup").join(path)).collect()
}

fn cpu_limit(host: &Host) -> Finding {
    let quota = |group: &PathBuf| {
        let text = host.text(group.join("cpu.max"));
        let (quota, period) = text.split_once(' ')?;
        Some(quota.parse::<f64>().ok()? / period.parse::<f64>().ok().filter(|p| *p > 0.0)?)
    };
    let least = groups(host).iter().filter_map(quota).min_by(f64::total_cmp);
    match least {
        None => Finding::good("CPU limit", "none (cgroup)", "scrubd costs idle CPUs alone"),
        Some(cpus) => {
            let means = "scrubd's CPU time counts against it";
            let mend = "--scrub-rate or --scrub-start never, where the quota is short";
            Finding::note("CPU limit", format!("{cpus:.2} CPUs (cgroup)"), means, Some(mend))
        }
    }
}

fn address_space(host: &Host) -> Finding {
    let line = host.field("proc/self/limits", "Max address space").unwrap_or_default();
    let soft = line.split_whitespace().next().unwrap_or("unlimited").to_string();
    let what = "address space";
    match soft.parse::<u64>() {
        Err(_) => Finding::good(what, "not limited", "a zone may grow to all of memory"),
        Ok(bytes) if bytes < 8 * (64 << 20) => {
            let means = "too little for a zone, which takes an eighth of it and 64 MiB at least";
            Finding::bad(
                what,
                format!("{} MiB (ulimit)", bytes >> 20),
                means,
                "ulimit -v unlimited",
            )
        }
        Ok(bytes) => {
            let means = "a zone takes an eighth of it at most; it keeps mapped what it once used";
            Finding::note(what, format!("{} MiB (ulimit)", bytes >> 20), means, None)
        }
    }
}

fn seccomp(host: &Host) -> Finding {
    let mode = host.field("proc/self/status", "Seccomp:").unwrap_or_else(|| "0".into());
    if mode == "0" {
        return Finding::good("filters (seccomp)", "none", "prezero may make its system calls");
    }
    let means = "`prezero run` tries what a zone calls, and says where a filter ends it";
    let count = host.field("proc/self/status", "Seccomp_filters:").unwrap_or(mode);
    Finding::note("filters (seccomp)", count, means, None)
}

fn pools(host: &Host) -> Finding {
    const POOLS: &str = "sys/kernel/mm/hugepages";
    let mut told = vec![];
    for pool in host.names(POOLS) {
        let count = |name: &str| host.text(format!("{POOLS}/{pool}/{name}"));
        let (all, free) = (count("nr_hugepages"), count("free_hugepages"));
        let kib = pool.strip_prefix("hugepages-").and_then(|size| size.strip_suffix("kB"));
        let mib = kib.and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) >> 10;
        if all != "0" && !all.is_empty() {
            told.push(format!("{all} of {mib} MiB, {free} free"));
        }
    }
    let what = "huge page pools";
    if told.is_empty() {
        let means = "prezerod leases transparent huge pages; `prezero run` needs no pool";
        return Finding::good(what, "none (hugetlb)", means);
    }
    Finding::good(what, told.join("; "), "prezerod leases from them")
}

fn swap(host: &Host) -> Finding {
    let devices = host.text("proc/swaps").lines().count().saturating_sub(1);
    if devices == 0 {
        return Finding::good("swap", "none", "idle memory is given back, never written to a disk");
    }
    let swappiness = host.text("proc/sys/vm/swappiness");
    let is = format!("{devices}, swappiness {swappiness}");
    let means = "idle memory may be written to it before scrubd gives it back";
    Finding::note("swap", is, means, Some("a shorter --decay, where it swaps"))
}

fn pressure(host: &Host) -> Finding {
    let what = "pressure (PSI)";
    if host.text("proc/pressure/memory").is_empty() {
        let means = "scrubd does not see that others wait for memory; decay and limits hold";
        return Finding::note(what, "not there", means, Some("boot with psi=1"));
    }
    Finding::good(what, "there", "idle memory goes back when others wait for it")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine with these files, in a folder that goes with it.
    struct Machine(Host);

    impl Machine {
        fn with(name: &str, files: &[(&str, &str)]) -> Machine {
            let folder = format!("prezero-doctor-{}-{name}", std::process::id());
            let root = std::env::temp_dir().join(folder);
            for (file, text) in files {
                let path = root.join(file);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, text).unwrap();
            }
            Machine(Host { root, cpus: 2 })
        }

        fn marks(&self, mark: Mark) -> Vec<&'static str> {
            let all = all(&self.0);
            all.iter().filter(|each| each.mark == mark).map(|each| each.what).collect()
        }

        fn found(&self, what: &str) -> Finding {
            all(&self.0).into_iter().find(|each| each.what == what).unwrap()
        }
    }

    impl Drop for Machine {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0.root);
        }
    }

    const BALLOON: &str = "sys/bus/virtio/drivers/virtio_balloon/virtio3/features";
    const GOOD: [(&str, &str); 9] = [
        ("proc/loadavg", "0.30 0.2 0.1 1/2 3\n"),
        ("proc/sys/vm/overcommit_memory", "0\n"),
        ("proc/sys/kernel/osrelease", "6.18.44-x\n"),
        ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
        ("sys/kernel/mm/transparent_hugepage/shmem_enabled", "never [advise] deny\n"),
        (BALLOON, "1110000000\n"),
        ("proc/self/status", "Name:\tx\nSeccomp:\t0\nSeccomp_filters:\t0\n"),
        ("proc/pressure/memory", "some avg10=0.00\n"),
        ("proc/swaps", "Filename Type Size Used Priority\n"),
    ];

    fn changed(name: &str, changes: &[(&str, &str)]) -> Machine {
        Machine::with(name, &[&GOOD[..], changes].concat())
    }

    #[test]
    fn a_machine_as_it_should_be_has_nothing_to_mend() {
        let machine = Machine::with("good", &GOOD);
        assert_eq!((machine.marks(Mark::Bad).len(), machine.marks(Mark::Note)), (0, vec![]));
        assert_eq!(machine.found("CPUs").is, "2, load 0.30 of the last minute");
    }

    #[test]
    fn what_stands_in_the_way_has_its_mend() {
        let machine = changed(
            "bad",
            &[
                ("proc/loadavg", "1.90 1 1 1/2 3\n"),
                ("proc/sys/vm/overcommit_memory", "2\n"),
                ("proc/self/limits", "Max address space  104857600  unlimited  bytes\n"),
            ],
        );
        assert_eq!(machine.marks(Mark::Bad), ["CPUs", "overcommit", "address space"]);
        assert!(all(&machine.0).iter().all(|it| it.mark != Mark::Bad || it.mend.is_some()));
        assert_eq!(machine.found("address space").is, "100 MiB (ulimit)");
    }

    #[test]
    fn settings_limits_and_filters_are_noted() {
        let machine = changed(
            "notes",
            &[
                ("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n"),
                ("sys/kernel/mm/transparent_hugepage/shmem_enabled", "always never [deny]\n"),
                (BALLOON, "111001\n"),
                ("proc/sys/kernel/osrelease", "5.4.0-generic\n"),
                ("proc/self/cgroup", "0::/a/b\n"),
                ("sys/fs/cgroup/a/cpu.max", "50000 100000\n"),
                ("sys/fs/cgroup/a/b/cpu.max", "max 100000\n"),
                ("sys/fs/cgroup/a/b/memory.max", "268435456\n"),
                ("sys/fs/cgroup/a/b/memory.current", "1000\n"),
                ("proc/self/status", "Seccomp:\t2\nSeccomp_filters:\t3\n"),
                ("proc/swaps", "Filename\n/dev/sda2 partition 1 0 -2\n"),
                ("proc/sys/vm/swappiness", "60\n"),
                ("proc/pressure/memory", ""),
            ],
        );
        assert_eq!(machine.marks(Mark::Note).len(), 8, "{:?}", machine.marks(Mark::Note));
        assert_eq!(machine.found("CPU limit").is, "0.50 CPUs (cgroup)");
        assert_eq!(machine.found("memory limit").is, "256 MiB (cgroup)");
        assert_eq!(machine.found("filters (seccomp)").is, "3");
        let above = [("proc/meminfo", "MemTotal:  1024 kB\n"), ("proc/self/cgroup", "0::/a\n")];
        let above =
            [&above[..], &[("sys/fs/cgroup/a/memory.max", "9223372036854771712\n")]].concat();
        assert_eq!(changed("above", &above).found("memory limit").is, "none (cgroup)");
        assert_eq!(machine.found("swap").is, "1, swappiness 60");
        let mend = machine.found("transparent huge pages").mend.unwrap();
        assert_eq!(mend, "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled");
    }

    #[test]
    fn a_kernel_that_prezeroes_says_how_much_is_zero() {
        let of = |order| {
            let meminfo = "MemTotal: 4194304 kB\nMemFree:  2097152 kB\nMemZero:  1048576 kB\n";
            let files = [("proc/sys/vm/prezero_order", order), ("proc/meminfo", meminfo)];
            changed(order, &files).found("prezeroing by the kernel")
        };
        assert_eq!(of("9").is, "from order 9, 1024 of 2048 MiB free are zero");
        assert_eq!(of("9").mark, Mark::Good);
        let off = of("never");
        assert_eq!(
            (off.mark, off.mend.as_deref()),
            (Mark::Note, Some("sysctl vm.prezero_order=9"))
        );
        let machine = Machine::with("plain", &GOOD);
        assert_eq!(machine.found("prezeroing by the kernel").is, "not in this kernel");
    }

    #[test]
    fn pools_are_told_by_size() {
        let pool = "sys/kernel/mm/hugepages/hugepages-2048kB";
        let files =
            [(format!("{pool}/nr_hugepages"), "8\n"), (format!("{pool}/free_hugepages"), "5")];
        let files: Vec<_> = files.iter().map(|(file, text)| (file.as_str(), *text)).collect();
        assert_eq!(changed("pool", &files).found("huge page pools").is, "8 of 2 MiB, 5 free");
        assert_eq!(Machine::with("none", &GOOD).found("huge page pools").is, "none (hugetlb)");
    }

    #[test]
    fn this_machine_can_be_looked_at() {
        assert_eq!(all(&Host::here()).len(), 13);
    }
}
