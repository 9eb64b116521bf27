//! Pressure, read from a directory that plays `/`.

use super::*;
use std::sync::atomic::{AtomicU32, Ordering};

const SECOND: u64 = 1_000_000_000;

/// A directory that plays `/`, gone when dropped.
struct FakeRoot(PathBuf);

impl FakeRoot {
    fn new() -> FakeRoot {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = format!("prezero-pressure-{}-{id}", std::process::id());
        FakeRoot(std::env::temp_dir().join(dir))
    }

    fn with(self, path: &str, content: &str) -> FakeRoot {
        self.set(path, content);
        self
    }

    fn set(&self, path: &str, content: &str) {
        let path = self.0.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    fn set_stalls(&self, path: &str, some_us: u64, full_us: u64) {
        let averages = "avg10=1.50 avg60=0.46 avg300=0.10";
        let text = format!("some {averages} total={some_us}\nfull {averages} total={full_us}\n");
        self.set(path, &text);
    }

    fn pressure(&self) -> Pressure {
        Pressure::new(&self.0)
    }

    fn memory(&self) -> Memory {
        self.pressure().sample(SECOND).memory
    }
}

impl Drop for FakeRoot {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn in_group() -> FakeRoot {
    FakeRoot::new().with("proc/self/cgroup", "4:memory:/legacy\n0::/outer/inner\n")
}

#[test]
fn nothing_to_read_is_no_information() {
    let root = FakeRoot::new();
    let mut pressure = root.pressure();

    let verdicts = [pressure.sample(0), pressure.sample(SECOND)];

    let quiet = Verdict { memory: Memory::Fine, limit: None, room: Room::Enough };
    assert_eq!(verdicts, [quiet, quiet]);
}

#[test]
fn text_in_another_form_is_no_information() {
    let root = in_group()
        .with("proc/pressure/memory", "some total=\nfull\n")
        .with("proc/meminfo", "MemTotal: many kB\nMemAvailable: 0 kB\n")
        .with("sys/fs/cgroup/outer/inner/memory.current", "-1\n")
        .with("sys/fs/cgroup/outer/inner/memory.high", "0\n");
    let mut pressure = root.pressure();

    let verdicts = [pressure.sample(0), pressure.sample(SECOND)];

    for verdict in verdicts {
        assert_eq!(verdict.memory, Memory::Fine);
    }
}

#[test]
fn stalls_count_between_samples_not_since_boot() {
    let root = FakeRoot::new();
    let psi = "proc/pressure/memory";
    root.set_stalls(psi, 900_000_000, 800_000_000);
    let mut pressure = root.pressure();

    let first = pressure.sample(SECOND).memory;
    root.set_stalls(psi, 900_090_000, 800_010_000);
    let nine_percent = pressure.sample(2 * SECOND).memory;
    root.set_stalls(psi, 900_200_000, 800_010_000);
    let eleven_percent = pressure.sample(3 * SECOND).memory;
    let none = pressure.sample(4 * SECOND).memory;
    root.set_stalls(psi, 900_230_000, 800_040_000);
    let three_percent_of_all = pressure.sample(5 * SECOND).memory;

    assert_eq!([first, nine_percent, none], [Memory::Fine; 3]);
    assert_eq!([eleven_percent, three_percent_of_all], [Memory::Tight; 2]);
}

#[test]
fn stalls_of_the_machine_count_where_the_machine_is_short() {
    let psi = "proc/pressure/memory";
    let vmstat = |stalls: u32| {
        format!("nr_free_pages 9\nallocstall_normal {stalls}\nallocstall_movable 3\n")
    };
    for (left_kib, reclaims, memory) in
        [(900, 0, Memory::Fine), (90, 0, Memory::Tight), (900, 1, Memory::Tight)]
    {
        let root = FakeRoot::new()
            .with("proc/meminfo", &format!("MemTotal: 1000 kB\nMemAvailable: {left_kib} kB\n"))
            .with("proc/vmstat", &vmstat(5))
            // Of the root all that the machine has counts, and again.
            .with("proc/self/cgroup", "0::/\n")
            .with("sys/fs/cgroup/memory.pressure", "some total=0\nfull total=0\n");
        root.set_stalls(psi, 0, 0);
        let mut pressure = root.pressure();
        pressure.sample(0);

        // A cgroup thrashes at its own limit.
        root.set_stalls(psi, 900_000, 500_000);
        root.set_stalls("sys/fs/cgroup/memory.pressure", 900_000, 500_000);
        root.set("proc/vmstat", &vmstat(5 + reclaims));

        let said = pressure.sample(SECOND).memory;
        assert_eq!(said, memory, "{left_kib} kB left, {reclaims} reclaims");
    }
}

#[test]
fn stalls_of_the_own_cgroup_count() {
    let root = in_group();
    let psi = "sys/fs/cgroup/outer/inner/memory.pressure";
    root.set_stalls(psi, 0, 0);
    let mut pressure = root.pressure();
    pressure.sample(0);

    root.set_stalls(psi, 500_000, 0);

    assert_eq!(pressure.sample(SECOND).memory, Memory::Tight);
}

#[test]
fn a_source_that_comes_back_starts_anew() {
    let root = FakeRoot::new();
    let psi = "proc/pressure/memory";
    root.set_stalls(psi, 0, 0);
    let mut pressure = root.pressure();
    pressure.sample(0);
    root.set(psi, "");
    pressure.sample(SECOND);

    root.set_stalls(psi, 5_000_000, 0);

    assert_eq!(pressure.sample(2 * SECOND).memory, Memory::Fine);
}

#[test]
fn samples_too_close_repeat_the_verdict_and_keep_the_interval() {
    let root = FakeRoot::new();
    let psi = "proc/pressure/memory";
    root.set_stalls(psi, 0, 0);
    let mut pressure = root.pressure();
    pressure.sample(SECOND);
    root.set_stalls(psi, 40_000, 0);

    let soon = pressure.sample(SECOND + MIN_INTERVAL_NS - 1).memory;
    let later = pressure.sample(SECOND + MIN_INTERVAL_NS).memory;

    assert_eq!((soon, later), (Memory::Fine, Memory::Tight));
}

#[test]
fn a_clock_that_steps_back_is_survived() {
    let root = FakeRoot::new();
    root.set_stalls("proc/pressure/memory", 0, 0);
    let mut pressure = root.pressure();
    pressure.sample(9 * SECOND);
    root.set_stalls("proc/pressure/memory", 900_000, 0);

    let back = pressure.sample(SECOND).memory;
    root.set_stalls("proc/pressure/memory", 1_800_000, 0);
    let on = pressure.sample(2 * SECOND).memory;

    assert_eq!((back, on), (Memory::Fine, Memory::Tight));
}

#[test]
fn little_memory_available_is_tight() {
    let meminfo = |kb: u32| format!("MemTotal: 100000 kB\nMemFree: 1 kB\nMemAvailable: {kb} kB\n");

    let scarce = FakeRoot::new().with("proc/meminfo", &meminfo(2_999)).memory();
    let enough = FakeRoot::new().with("proc/meminfo", &meminfo(3_000)).memory();

    assert_eq!((scarce, enough), (Memory::Tight, Memory::Fine));
}

#[test]
fn the_tightest_cgroup_up_the_tree_counts() {
    let bounded = |group: &str, high: &str, max: &str| {
        let dir = format!("sys/fs/cgroup/{group}");
        in_group()
            .with("sys/fs/cgroup/outer/inner/memory.current", "960\n")
            .with("sys/fs/cgroup/outer/memory.current", "960\n")
            .with("sys/fs/cgroup/memory.current", "960\n")
            .with(&format!("{dir}/memory.high"), high)
            .with(&format!("{dir}/memory.max"), max)
            .memory()
    };

    assert_eq!(bounded("outer/inner", "max\n", "max\n"), Memory::Fine);
    assert_eq!(bounded("outer/inner", "1020\n", "max\n"), Memory::Fine);
    assert_eq!(bounded("outer/inner", "1000\n", "max\n"), Memory::Tight);
    assert_eq!(bounded("outer/inner", "max\n", "1000\n"), Memory::Tight);
    assert_eq!(bounded("outer", "1000\n", "2000\n"), Memory::Tight);
    assert_eq!(bounded(".", "max\n", "1000\n"), Memory::Tight);
    assert_eq!(bounded("elsewhere", "1\n", "1\n"), Memory::Fine);
}

#[test]
fn the_lowest_bound_up_the_tree_is_the_limit() {
    let limit = |high: &str, max: &str, above: &str| {
        let root = in_group()
            .with("sys/fs/cgroup/outer/inner/memory.high", high)
            .with("sys/fs/cgroup/outer/inner/memory.max", max)
            .with("sys/fs/cgroup/outer/memory.max", above);
        root.pressure().limit()
    };

    assert_eq!(limit("max\n", "max\n", "max\n"), None);
    assert_eq!(limit("max\n", "7000\n", "9000\n"), Some(7000));
    assert_eq!(limit("6000\n", "7000\n", "9000\n"), Some(6000));
    assert_eq!(limit("max\n", "7000\n", "5000\n"), Some(5000));
}

/// A system with version 1 of the memory controller, of which this much is mounted there.
fn in_old_group(top: &str, mount: &str) -> FakeRoot {
    let mounts = format!(
        "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs ro,mode=755\n\
         32 31 0:29 / /sys/fs/cgroup/cpu rw shared:1 - cgroup cgroup rw,cpu\n\
         35 31 0:32 {top} {mount} rw,relatime shared:2 master:1 - cgroup cgroup rw,memory\n"
    );
    FakeRoot::new()
        .with("proc/self/cgroup", "5:cpu:/\n4:hugetlb,memory:/outer/inner\n0::/\n")
        .with("proc/self/mountinfo", &mounts)
}

#[test]
fn limits_of_version_1_count_up_the_tree_wherever_it_is_mounted() {
    let of = |root: FakeRoot, dir: &str, limit: &str| {
        root.set(&format!("{dir}/memory.limit_in_bytes"), limit);
        root.set(&format!("{dir}/memory.usage_in_bytes"), "960\n");
        let pressure = root.pressure();
        (
            pressure.limit(),
            pressure
                .groups
                .iter()
                .any(|group| group.bound().is_some_and(|bound| group.is_full(bound))),
        )
    };
    let old = || in_old_group("/", "/sys/fs/cgroup/memory");

    assert_eq!(of(old(), "sys/fs/cgroup/memory/outer/inner", "1000\n"), (Some(1000), true));
    assert_eq!(of(old(), "sys/fs/cgroup/memory/outer", "1000\n"), (Some(1000), true));
    assert_eq!(of(old(), "sys/fs/cgroup/memory", "2000\n"), (Some(2000), false));
    assert_eq!(of(old(), "sys/fs/cgroup/memory/other", "1000\n"), (None, false));
    let container = || in_old_group("/outer/inner", "/mnt/memory");
    assert_eq!(of(container(), "mnt/memory", "1000\n"), (Some(1000), true));
    assert_eq!(of(container(), "mnt", "1000\n"), (None, false));
    let unmounted = in_old_group("/elsewhere", "/sys/fs/cgroup/memory");
    assert_eq!(of(unmounted, "sys/fs/cgroup/memory", "1000\n"), (None, false));
    let unlisted = FakeRoot::new().with("proc/self/cgroup", "4:memory:/outer\n");
    assert_eq!(of(unlisted, "sys/fs/cgroup/memory/outer", "1000\n"), (Some(1000), true));
}

#[test]
fn idle_file_cache_does_not_fill_a_group_of_version_1() {
    let dir = "sys/fs/cgroup/memory/outer/inner";
    let with_cache = |cache: u32| {
        in_old_group("/", "/sys/fs/cgroup/memory")
            .with(&format!("{dir}/memory.usage_in_bytes"), "1000\n")
            .with(&format!("{dir}/memory.limit_in_bytes"), "1000\n")
            .with(
                &format!("{dir}/memory.stat"),
                &format!("inactive_file 0\ntotal_inactive_file {cache}\n"),
            )
            .memory()
    };

    assert_eq!((with_cache(900), with_cache(10)), (Memory::Fine, Memory::Tight));
}

#[test]
fn idle_file_cache_does_not_fill_a_cgroup() {
    let dir = "sys/fs/cgroup/outer/inner";
    let with_cache = |cache: u32| {
        in_group()
            .with(&format!("{dir}/memory.current"), "1000\n")
            .with(&format!("{dir}/memory.max"), "1000\n")
            .with(&format!("{dir}/memory.stat"), &format!("anon 5\ninactive_file {cache}\n"))
            .memory()
    };

    assert_eq!((with_cache(900), with_cache(10)), (Memory::Fine, Memory::Tight));
}

#[test]
fn a_cgroup_outside_the_mount_is_not_looked_for() {
    let escape = |path: &str| {
        FakeRoot::new()
            .with("proc/self/cgroup", path)
            .with("sys/fs/cgroup/a/x", "")
            .with("sys/fs/memory.current", "9\n")
            .with("sys/fs/memory.max", "9\n")
            .memory()
    };

    assert_eq!(escape("0::/..\n"), Memory::Fine);
    assert_eq!(escape("0::/a/../..\n"), Memory::Fine);
    assert_eq!(escape("4:memory:/..\n"), Memory::Fine);
}

#[test]
fn who_runs_now_is_counted_where_the_kernel_says_so() {
    let counted = |text: &str| running(&FakeRoot::new().with("proc/loadavg", text).0);
    assert_eq!(counted("1.75 0.46 0.10 3/87 3834\n"), Some(3));
    for text in ["", "1.75 0.46 0.10", "1.75 0.46 0.10 x/87 1"] {
        assert_eq!(counted(text), None, "{text:?}");
    }
    assert!(running(Path::new("/")).is_some_and(|running| running >= 1));
}

#[test]
fn no_descriptor_stays_open() {
    let root = in_group().with("proc/loadavg", "1.75 0.46 0.10 1/87 3834\n");
    root.set_stalls("proc/pressure/memory", 0, 0);
    let mut pressure = root.pressure();

    pressure.sample(0);

    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    let ours = open
        .filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok())
        .filter(|target| target.starts_with(&root.0));
    assert_eq!(ours.count(), 0);
}

#[test]
fn the_real_machine_can_be_sampled() {
    assert_eq!(Pressure::new(Path::new("/")).sample(0).room, Room::Enough);
}

#[test]
fn room_ends_before_the_last_task_of_any_limit() {
    let room = |root: &FakeRoot| root.pressure().sample(SECOND).room;
    let root = in_group()
        .with("sys/fs/cgroup/outer/inner/pids.max", "max\n")
        .with("sys/fs/cgroup/outer/inner/pids.current", "90\n");
    assert_eq!(room(&root), Room::Enough, "no bound");
    root.set("sys/fs/cgroup/outer/pids.max", "100\n");
    assert_eq!(room(&root), Room::Enough, "what a group has is not known");
    root.set("sys/fs/cgroup/outer/pids.current", "92\n");
    assert_eq!(room(&root), Room::Enough);
    root.set("sys/fs/cgroup/outer/pids.current", "93\n");
    assert_eq!(room(&root), Room::Little, "a group above");

    let old = FakeRoot::new().with("proc/self/cgroup", "8:cpu,pids:/a\n4:memory:/b\n");
    old.set("sys/fs/cgroup/pids/a/pids.max", "2\n");
    old.set("sys/fs/cgroup/pids/a/pids.current", "1\n");
    assert_eq!(room(&old), Room::Little, "version 1");

    let machine = FakeRoot::new().with("proc/sys/kernel/threads-max", "1000\n");
    machine.set("proc/loadavg", "0.1 0.2 0.3 2/991 77\n");
    assert_eq!(room(&machine), Room::Enough);
    machine.set("proc/loadavg", "0.1 0.2 0.3 2/998 77\n");
    assert_eq!(room(&machine), Room::Little, "the machine");
}
