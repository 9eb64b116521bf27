//! What is charged, in real cgroups: of version 1 or 2, whichever this host has for memory and
//! for hugetlb pages. Needs root; what it makes and enables is undone.
//!
//! One test, because the pool and the hierarchies are the machine's.

mod common;

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use common::{Daemon, MIB, PATIENCE, Reserved, possible, until, use_up, want};
use prezerod::client::ClientError;
use prezerod::host::cgroup::Cgroups;
use prezerod::protocol::{Backing, Charged, Page, Reason};

/// A cgroup in each hierarchy that charges memory, removed when dropped.
struct Cgroup {
    name: String,
    cgroups: Cgroups,
    /// Files of version 2 in which a controller was enabled here.
    enabled: Vec<(PathBuf, &'static str)>,
}

impl Cgroup {
    fn new() -> Option<Cgroup> {
        let name = format!("/prezero-test-{}", std::process::id());
        let cgroups = Cgroups::new(Path::new("/"));
        let mut cgroup = Cgroup { name, cgroups, enabled: vec![] };
        for (backing, controller) in [(Backing::Thp, "memory"), (Backing::Hugetlb, "hugetlb")] {
            let Some(dir) = cgroup.dir(backing) else { continue };
            let control = dir.parent().unwrap().join("cgroup.subtree_control");
            if let Ok(before) = fs::read_to_string(&control)
                && !before.split_whitespace().any(|word| word == controller)
                && fs::write(&control, format!("+{controller}")).is_ok()
            {
                cgroup.enabled.push((control, controller));
            }
            if !dir.is_dir() {
                fs::create_dir(&dir).ok()?;
            }
        }
        Some(cgroup)
    }

    fn dir(&self, backing: Backing) -> Option<PathBuf> {
        self.cgroups.dir(&self.name, backing)
    }

    /// The file of that purpose, by what it is called in version 2 and in version 1.
    fn file(&self, backing: Backing, names: [&str; 2]) -> Option<PathBuf> {
        let dir = self.dir(backing)?;
        names.into_iter().map(|name| dir.join(name)).find(|file| file.exists())
    }

    fn used(&self, backing: Backing) -> Option<u64> {
        let file = match backing {
            Backing::Hugetlb => ["hugetlb.2MB.current", "hugetlb.2MB.usage_in_bytes"],
            _ => ["memory.current", "memory.usage_in_bytes"],
        };
        fs::read_to_string(self.file(backing, file)?).unwrap().trim().parse().ok()
    }

    fn limit(&self, backing: Backing, names: [&str; 2], value: &str) {
        fs::write(self.file(backing, names).unwrap(), value).unwrap();
    }

    /// The kernel gives charges back a moment after the last user is gone.
    fn wait_for_used(&self, backing: Backing, good: impl Fn(u64) -> bool) {
        until("charges", || {
            let used = self.used(backing).unwrap();
            if good(used) { Ok(()) } else { Err(format!("{used} used")) }
        });
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for backing in [Backing::Thp, Backing::Hugetlb] {
            // Busy until the kernel has let go of its last process.
            if let Some(dir) = self.dir(backing) {
                until("the cgroup goes", || match fs::remove_dir(&dir) {
                    Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
                    _ => Ok(()),
                });
            }
        }
        for (control, controller) in &self.enabled {
            let _ = fs::write(control, format!("-{controller}"));
        }
    }
}

fn config(backing: Backing, charge: &str) -> String {
    let uid = rustix::process::getuid().as_raw();
    format!(
        "backing = \"{}\"\n[[tenant]]\nname = \"payer\"\nusers = [{uid}]\ncharge = \"{charge}\"\n\
         [[stock]]\nsize = \"8M\"\nkeep = 1\nmost = 1\ntenant = \"payer\"\n",
        backing.name()
    )
}

fn refused(daemon: &Daemon, mib: u64, why: Reason, words: &str) {
    match daemon.client().lease(want(mib), PATIENCE) {
        Err(ClientError::No(reason, text)) => {
            assert_eq!(reason, why, "{text}");
            assert!(text.contains(words) && !text.contains('\n'), "{text:?} lacks {words:?}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_made_for_a_tenant_is_charged_to_its_cgroup_within_its_limits() {
    if !rustix::process::getuid().is_root() {
        prezero_sys::tell!("skipped: making cgroups needs root");
        return;
    }
    let Some(cgroup) = Cgroup::new() else {
        prezero_sys::tell!("skipped: no cgroup can be made here");
        return;
    };
    if possible() && cgroup.used(Backing::Thp).is_some() {
        transparent(&cgroup);
    } else {
        prezero_sys::tell!("skipped: the memory controller cannot be had here");
    }
    let limit = ["hugetlb.2MB.max", "hugetlb.2MB.limit_in_bytes"];
    match Reserved::new(Page::Huge, 32) {
        Some(_pool) if cgroup.file(Backing::Hugetlb, limit).is_some() => {
            pool(&cgroup, limit);
            own_limit(&cgroup, limit);
        }
        _ => prezero_sys::tell!(
            "skipped: no hugetlb pages, or no hugetlb controller, can be had here"
        ),
    }
}

fn transparent(cgroup: &Cgroup) {
    let thp = Backing::Thp;
    let daemon = Daemon::start(&config(thp, &cgroup.name));
    // The stock itself is the tenant's.
    daemon.wait_for_ready(1);
    assert_eq!(daemon.stock()["ready"][0]["charged"], cgroup.name.as_str());
    assert!(cgroup.used(thp).unwrap() >= 8 * MIB, "{:?}", cgroup.used(thp));

    let lease = daemon.client().lease(want(8), Duration::ZERO).unwrap();
    assert_eq!(lease.granted.charged, Charged::Tenant);
    assert_eq!(daemon.stock()["leased"][0]["charged"], cgroup.name.as_str());
    let label = format!("charged=\"{}\"", cgroup.name);
    let metrics = daemon.client().report(prezerod::protocol::Report::Metrics).unwrap();
    assert!(metrics.contains(&label), "{metrics}");

    // A limit holds before anything is made: the cgroup's own processes feel nothing.
    let used = cgroup.used(thp).unwrap();
    let limits = ["memory.max", "memory.limit_in_bytes"];
    cgroup.limit(thp, limits, &(used + 16 * MIB).to_string());
    refused(&daemon, 64, Reason::Quota, "64M asked, ");
    refused(&daemon, 64, Reason::Quota, "raise that limit");
    assert_eq!(daemon.counter("make_failures_total"), 0);
    assert_eq!(daemon.counter("filler_deaths_total"), 0);

    // The memory, and its charge, outlive the broker and end with the client.
    use_up(&lease);
    drop(daemon);
    cgroup.wait_for_used(thp, |used| (8 * MIB..12 * MIB).contains(&used));
    drop(lease);
    cgroup.wait_for_used(thp, |used| used < 4 * MIB);

    // A cgroup that cannot be entered: nothing is charged elsewhere instead.
    let daemon = Daemon::start(&config(thp, "/prezero-nowhere/leaf"));
    refused(&daemon, 8, Reason::Kernel, "make that cgroup");
}

fn pool(cgroup: &Cgroup, limit: [&str; 2]) {
    let hugetlb = Backing::Hugetlb;
    cgroup.limit(hugetlb, limit, &(16 * MIB).to_string());
    let daemon = Daemon::start(&config(hugetlb, &cgroup.name));
    daemon.wait_for_ready(1);
    assert_eq!(cgroup.used(hugetlb), Some(8 * MIB));
    let lease = daemon.client().lease(want(8), Duration::ZERO).unwrap();
    assert_eq!(lease.granted.charged, Charged::Tenant);
    use_up(&lease);
    refused(&daemon, 10, Reason::Quota, "10M asked, ");

    // Reservations have a limit of their own.
    drop(daemon);
    cgroup.wait_for_used(hugetlb, |used| used == 8 * MIB);
    let reservations = ["hugetlb.2MB.rsvd.max", "hugetlb.2MB.rsvd.limit_in_bytes"];
    if cgroup.file(hugetlb, reservations).is_some() {
        cgroup.limit(hugetlb, reservations, &(8 * MIB).to_string());
        let daemon = Daemon::start(&config(hugetlb, &cgroup.name));
        refused(&daemon, 2, Reason::Quota, "rsvd");
    }
    drop(lease);
    cgroup.wait_for_used(hugetlb, |used| used == 0);
}

/// A broker that lives below a limit itself, without tenants, says so.
fn own_limit(cgroup: &Cgroup, limit: [&str; 2]) {
    let hugetlb = Backing::Hugetlb;
    let reservations = ["hugetlb.2MB.rsvd.max", "hugetlb.2MB.rsvd.limit_in_bytes"];
    cgroup.limit(hugetlb, limit, &(4 * MIB).to_string());
    if cgroup.file(hugetlb, reservations).is_some() {
        cgroup.limit(hugetlb, reservations, &(32 * MIB).to_string());
    }
    let mut daemon = Daemon::start("");
    daemon.kill();
    daemon.configure("backing = \"hugetlb\"\n");
    let mut command = std::process::Command::new("sh");
    let procs = cgroup.dir(hugetlb).unwrap().join("cgroup.procs");
    command.args(["-c", "echo 0 > \"$1\"; shift; exec \"$@\"", "sh"]).arg(procs);
    command.arg(env!("CARGO_BIN_EXE_prezerod")).arg("--config").arg(daemon.path("config.toml"));
    command.arg("--socket").arg(daemon.socket()).stderr(std::process::Stdio::piped());
    daemon.run(command);
    refused(&daemon, 6, Reason::Quota, "6M asked, 4M left");
    let lease = daemon.lease(4).unwrap();
    assert_eq!(lease.granted.charged, Charged::Broker);
    assert_eq!(cgroup.used(hugetlb), Some(4 * MIB));
    use_up(&lease);
}
