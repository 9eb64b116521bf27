//! What a machine has that bears on prezero.

use std::fmt::Display;

use prezero_host::pressure::{Pressure, cpu_quota};

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
        ["good", "note", "bad"][self as usize]
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

/// What is looked at: of what, where that stands, and what it means.
type Look = (&'static str, &'static [&'static str], fn(&Host, &'static str) -> Finding);

const LOOKS: [Look; 13] = [
    ("CPUs", &["proc/loadavg"], cpus),
    ("overcommit", &["proc/sys/vm/overcommit_memory"], overcommit),
    ("transparent huge pages", &["sys/kernel/mm", "proc/self/status"], thp),
    ("huge pages of shared memory", &["sys/kernel/mm"], shmem),
    ("prezeroing by the kernel", &["proc/sys/vm"], prezeroing),
    ("free page reporting", &["sys/bus"], reporting),
    ("memory limit", &["proc/self/cgroup", "sys/fs/cgroup"], memory_limit),
    ("CPU limit", &["proc/self/cgroup", "sys/fs/cgroup"], cpu_limit),
    ("address space", &["proc/self/limits"], address_space),
    ("filters (seccomp)", &["proc/self/status"], seccomp),
    ("huge page pools", &["sys/kernel/mm"], pools),
    ("swap", &["proc/meminfo"], swap),
    ("pressure (PSI)", &["proc/meminfo"], pressure),
];

/// All of them. What does not stand where it should is unknown.
pub fn all(host: &Host) -> Vec<Finding> {
    let look = |(what, sources, look): Look| match sources.iter().find(|it| !host.has(it)) {
        None => look(host, what),
        Some(missing) => {
            let means = format!("/{missing} cannot be read here");
            Finding::note(what, UNKNOWN, &means, Some("look where /proc and /sys are mounted"))
        }
    };
    LOOKS.into_iter().map(look).collect()
}

/// What is, where nothing says it.
pub const UNKNOWN: &str = "unknown";
/// Of the CPUs, how many the last minute's load left idle at least.
const IDLE: f64 = 0.25;
const HUGE: &str = "sys/kernel/mm/transparent_hugepage";

fn cpus(host: &Host, what: &'static str) -> Finding {
    let load = host.text("proc/loadavg");
    let load: f64 = load.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0);
    // The load is the machine's, of which a container may have a few CPUs.
    let stat = host.text("proc/stat");
    let is_one = |line: &&str| line.strip_prefix("cpu").is_some_and(|rest| !rest.starts_with(' '));
    let all = stat.lines().filter(is_one).count().max(host.cpus);
    let of = if all > host.cpus { format!(" of the machine's {all}") } else { String::new() };
    let is = format!("{}{of}, load {load:.2} of the last minute", host.cpus);
    if (all as f64) - load >= IDLE {
        return Finding::good(what, is, "some idle, and scrubd clears on those");
    }
    let means = "none idles: nothing is cleared ahead, and a program is as fast as without";
    Finding::bad(what, is, means, "leave a CPU to prezero, or look again when the load is lower")
}

fn overcommit(host: &Host, what: &'static str) -> Finding {
    let is = host.text("proc/sys/vm/overcommit_memory");
    if is == "2" {
        let means = "reserved memory counts as used, so `prezero run` makes no zone";
        return Finding::bad(what, is, means, "sysctl vm.overcommit_memory=0");
    }
    Finding::good(what, is, "a zone may reserve address space that it does not use")
}

fn thp(host: &Host, what: &'static str) -> Finding {
    // Of this size alone, in newer kernels.
    let sized = format!("{HUGE}/hugepages-2048kB/enabled");
    let own = host.chosen(&sized).filter(|is| is != "inherit").map(|is| (is, sized));
    let all = || Some((host.chosen(&format!("{HUGE}/enabled"))?, format!("{HUGE}/enabled")));
    let Some((is, file)) = own.or_else(all) else {
        return Finding::note(what, "not in this kernel", "blocks come in pages of 4 KiB", None);
    };
    if is == "never" {
        let means = "a fault for each 4 KiB of a new block; reused blocks are as fast";
        return Finding::note(what, is, means, Some(&format!("echo madvise > /{file}")));
    }
    if host.field("proc/self/status", "THP_enabled:").as_deref() == Some("0") {
        let means = "blocks come in pages of 4 KiB, in all that is started from here";
        let mend = "start it where nothing has set PR_SET_THP_DISABLE, which is inherited";
        return Finding::note(
            what,
            format!("{is}, but off for this process (prctl)"),
            means,
            Some(mend),
        );
    }
    if reports(host) {
        let means = "large blocks begin with pages of 4 KiB: see free page reporting";
        return Finding::note(what, is, means, None);
    }
    Finding::good(what, is, "large blocks come in pages of 2 MiB")
}

fn shmem(host: &Host, what: &'static str) -> Finding {
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
fn prezeroing(host: &Host, what: &'static str) -> Finding {
    const ORDER: &str = "proc/sys/vm/prezero_order";
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

/// Whether the hypervisor takes what this machine has free.
fn reports(host: &Host) -> bool {
    const BALLOONS: &str = "sys/bus/virtio/drivers/virtio_balloon";
    /// `VIRTIO_BALLOON_F_REPORTING`, as sysfs writes it: a digit for each bit.
    const REPORTING: usize = 5;
    host.names(BALLOONS).iter().any(|device| {
        let features = host.text(format!("{BALLOONS}/{device}/features"));
        features.as_bytes().get(REPORTING) == Some(&b'1')
    })
}

fn reporting(host: &Host, what: &'static str) -> Finding {
    if !reports(host) {
        return Finding::good(what, "off", "free memory stays with this machine");
    }
    let means = "the hypervisor takes free memory; a new huge page may take milliseconds, so \
                 blocks begin with small pages";
    Finding::note(what, "on", means, Some("on the host: free-page-reporting=off for the balloon"))
}

fn memory_limit(host: &Host, what: &'static str) -> Finding {
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

fn cpu_limit(host: &Host, what: &'static str) -> Finding {
    match cpu_quota(&host.root) {
        None => Finding::good(what, "none (cgroup)", "scrubd costs idle CPUs alone"),
        Some(cpus) => {
            let means = "scrubd's CPU time counts against it";
            let mend = "--scrub-rate or --scrub-start never, where the quota is short";
            Finding::note(what, format!("{cpus:.2} CPUs (cgroup)"), means, Some(mend))
        }
    }
}

fn address_space(host: &Host, what: &'static str) -> Finding {
    let line = host.field("proc/self/limits", "Max address space").unwrap_or_default();
    let soft = line.split_whitespace().next().unwrap_or("unlimited").to_string();
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

fn seccomp(host: &Host, what: &'static str) -> Finding {
    let mode = host.field("proc/self/status", "Seccomp:").unwrap_or_else(|| "0".into());
    if mode == "0" {
        return Finding::good(what, "none", "prezero may make its system calls");
    }
    let means = "`prezero run` tries what a zone calls, and says where a filter ends it";
    let count = host.field("proc/self/status", "Seccomp_filters:").unwrap_or(mode);
    Finding::note(what, count, means, None)
}

fn pools(host: &Host, what: &'static str) -> Finding {
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
    if told.is_empty() {
        let means = "prezerod leases transparent huge pages; `prezero run` needs no pool";
        return Finding::good(what, "none (hugetlb)", means);
    }
    Finding::good(what, told.join("; "), "prezerod leases from them")
}

fn swap(host: &Host, what: &'static str) -> Finding {
    let devices = host.text("proc/swaps").lines().count().saturating_sub(1);
    if devices == 0 {
        return Finding::good(what, "none", "idle memory is given back, never written to a disk");
    }
    let swappiness = host.text("proc/sys/vm/swappiness");
    let is = format!("{devices}, swappiness {swappiness}");
    let means = "idle memory may be written to it before scrubd gives it back";
    Finding::note(what, is, means, Some("a shorter --decay, where it swaps"))
}

fn pressure(host: &Host, what: &'static str) -> Finding {
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
    const GOOD: [(&str, &str); 13] = [
        ("proc/meminfo", "MemTotal: 4194304 kB\n"),
        ("proc/self/cgroup", "0::/\n"),
        ("proc/self/limits", "Max address space  unlimited  unlimited  bytes\n"),
        ("sys/fs/cgroup/cgroup.procs", "1\n"),
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
    fn a_quota_of_version_1_and_a_container_of_a_large_host_are_seen() {
        let v1 = "4:cpu,cpuacct:/docker/x\n0::/\n";
        let mount =
            "30 25 0:26 /docker/x /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n";
        let folder = "sys/fs/cgroup/cpu,cpuacct";
        let (quota, period) =
            (format!("{folder}/cpu.cfs_quota_us"), format!("{folder}/cpu.cfs_period_us"));
        let files = |of| {
            [
                ("proc/self/cgroup", v1),
                ("proc/self/mountinfo", mount),
                (quota.as_str(), of),
                (period.as_str(), "100000\n"),
                ("proc/loadavg", "5.00 5 5 1/2 3\n"),
                ("proc/stat", "cpu  1 2\ncpu0 1\ncpu1 1\ncpu2 1\ncpu3 1\ncpu4 1\ncpu5 1\nctxt 1\n"),
            ]
        };
        let machine = changed("v1", &files("150000\n"));
        assert_eq!(machine.found("CPU limit").is, "1.50 CPUs (cgroup)");
        assert_eq!(changed("v1-none", &files("-1\n")).found("CPU limit").is, "none (cgroup)");
        let cpus = machine.found("CPUs");
        assert_eq!(
            (cpus.mark, cpus.is.as_str()),
            (Mark::Good, "2 of the machine's 6, load 5.00 of the last minute")
        );
        let busy =
            changed("busy", &[&files("-1\n")[..], &[("proc/loadavg", "6.5 1 1 1/2 3\n")]].concat());
        assert_eq!(busy.found("CPUs").mark, Mark::Bad);
    }

    #[test]
    fn huge_pages_are_not_promised_where_they_do_not_come() {
        let of =
            |name, files: &[(&str, &str)]| changed(name, files).found("transparent huge pages");
        let disabled = of("prctl", &[("proc/self/status", "Seccomp:\t0\nTHP_enabled:\t0\n")]);
        assert_eq!(disabled.mark, Mark::Note);
        assert_eq!(disabled.is, "madvise, but off for this process (prctl)");
        assert_eq!(of("thp", &[("proc/self/status", "THP_enabled:\t1\n")]).mark, Mark::Good);
        let sized = format!("{HUGE}/hugepages-2048kB/enabled");
        let never = of("sized", &[(&sized, "always inherit madvise [never]\n")]);
        assert_eq!(never.mend, Some(format!("echo madvise > /{sized}")));
        assert_eq!(of("inherit", &[(&sized, "always [inherit] never\n")]).is, "madvise");
        let reported = of("reported", &[(BALLOON, "111001\n")]);
        assert!(!reported.means.contains("2 MiB") && reported.mark == Mark::Note, "{reported:?}");
    }

    #[test]
    fn what_is_not_there_to_be_read_is_unknown() {
        let machine = Machine::with("empty", &[("proc/keep", ""), ("sys/keep", "")]);
        let all = super::all(&machine.0);
        assert!(all.iter().all(|it| it.is == UNKNOWN && it.mark == Mark::Note), "{all:?}");
        for (nth, (hidden, _)) in GOOD.iter().enumerate() {
            let rest = [&GOOD[..nth], &GOOD[nth + 1..]].concat();
            let machine = Machine::with(&format!("without-{nth}"), &rest);
            let sure = |it: &&Finding| {
                LOOKS.iter().any(|look| look.0 == it.what && look.1.contains(hidden))
            };
            let all = super::all(&machine.0);
            assert!(all.iter().filter(sure).all(|it| it.is == UNKNOWN), "{hidden}: {all:?}");
        }
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
