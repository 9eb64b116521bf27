//! Leases that are files under a name: they outlive client and broker, and a name has one.

mod common;

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use common::{Daemon, MIB, PATIENCE, free_pages, possible, wait_for_free, want};
use common::{Reserved, until};
use prezerod::client::ClientError;
use prezerod::protocol::{Backing, Name, Page, Reason, Since};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

/// A file system of its own, unmounted when dropped.
struct Mounted(PathBuf);

impl Mounted {
    /// Says why not where this user may not mount.
    fn new(dir: &Path, kind: &str, options: &str) -> Option<Mounted> {
        std::fs::create_dir_all(dir).unwrap();
        let options = std::ffi::CString::new(options).unwrap();
        match mount(kind, dir, kind, MountFlags::NOSUID | MountFlags::NODEV, options.as_c_str()) {
            Ok(()) => Some(Mounted(dir.to_owned())),
            Err(error) => {
                prezero_sys::tell!("skipped: mounting a {kind}: {error}");
                None
            }
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn config(dir: &Path, more: &str) -> String {
    let dir = dir.display();
    format!("{more}[[tenant]]\nname = \"k8s\"\nusers = [0]\nfiles = [\"{dir}\"]\n")
}

fn is_zero(path: &Path) -> bool {
    let mut bytes = vec![];
    File::open(path).unwrap().read_to_end(&mut bytes).unwrap();
    bytes.iter().all(|&byte| byte == 0)
}

#[test]
fn what_is_no_lease_stays_and_its_name_is_refused_with_the_mend() {
    let dir = tempfile::tempdir().unwrap();
    let (true, Some(mounted)) =
        (possible(), Mounted::new(&dir.path().join("2M"), "tmpfs", "size=64M,mode=0755"))
    else {
        return;
    };
    let proc = Mounted::new(&mounted.0.join("proc"), "proc", "");
    std::fs::create_dir(mounted.0.join("own")).unwrap();
    let mut daemon = Daemon::start(&config(&mounted.0, ""));
    let (_, lease) = daemon.client().lease_named(name("a"), want(4), PATIENCE).unwrap();
    for taken in ["proc", "own"] {
        match daemon.client().lease_named(name(taken), want(4), PATIENCE) {
            Err(ClientError::No(Reason::Kernel, text)) => {
                assert!(text.contains("remove it, or"), "{text}")
            }
            other => panic!("{other:?}"),
        }
    }
    daemon.kill();
    daemon.again();
    assert!(mounted.0.join("own").exists() && lease.exists());
    assert!(proc.is_none() || mounted.0.join("proc/self").exists());

    let check = |dir: &Path| {
        daemon.configure(&config(dir, ""));
        let program = env!("CARGO_BIN_EXE_prezerod");
        let output = std::process::Command::new(program)
            .arg("--check")
            .arg(daemon.path("config.toml"))
            .output();
        let output = output.unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (good, said) = check(&mounted.0);
    assert!(good && said.contains("own is no lease") && !said.contains("2M/a "), "{said}");
    let (good, said) = check(Path::new("/proc"));
    assert!(!good && said.contains("files = /proc") && said.contains("mount a tmpfs"), "{said}");
    std::fs::remove_file(lease).unwrap();
}

#[test]
fn a_named_lease_outlives_client_and_broker_and_is_found_under_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let (true, Some(mounted)) =
        (possible(), Mounted::new(&dir.path().join("2M"), "tmpfs", "size=64M,mode=0755"))
    else {
        return;
    };
    let stock = "[[stock]]\nsize = \"4M\"\nkeep = 1\ntenant = \"k8s\"\n";
    let mut daemon = Daemon::start(&config(&mounted.0, stock));
    daemon.wait_for_ready(1);
    let (lease, path) = daemon.client().lease_named(name("a"), want(4), Duration::ZERO).unwrap();
    assert_eq!((lease.backing, lease.page, lease.since), (Backing::Thp, Page::Huge, Since::Now));
    assert!(lease.age_ns > 0, "from stock");
    assert_eq!(path, mounted.0.join("a/lease"));
    let info = path.metadata().unwrap();
    assert_eq!((info.ino(), info.len(), info.blocks() * 512), (lease.inode, 4 * MIB, 4 * MIB));
    assert!(is_zero(&path));

    daemon.kill();
    daemon.again();
    let (again, _) = daemon.client().lease_named(name("a"), want(8), PATIENCE).unwrap();
    assert_eq!((again.since, again.inode, again.bytes), (Since::Before, lease.inode, 4 * MIB));

    std::fs::remove_file(&path).unwrap();
    let (other, _) = daemon.client().lease_named(name("a"), want(8), PATIENCE).unwrap();
    assert_eq!((other.since, other.bytes), (Since::Now, 8 * MIB));
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn a_directory_in_which_others_may_write_hands_out_no_strangers_file() {
    let (dir, strangers) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir_in("/dev/shm").unwrap());
    // As tmpfs are mounted without a mode.
    let (true, Some(mounted)) =
        (possible(), Mounted::new(&dir.path().join("2M"), "tmpfs", "size=64M,mode=1777"))
    else {
        return;
    };
    std::fs::write(strangers.path().join("lease"), [1; 4096]).unwrap();
    std::os::unix::fs::symlink(strangers.path(), mounted.0.join("guest")).unwrap();
    let daemon = Daemon::start(&config(&mounted.0, ""));
    match daemon.client().lease_named(name("guest"), want(4), PATIENCE) {
        Err(ClientError::No(Reason::Host, text)) => assert!(text.contains("mode=0755"), "{text}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_name_has_one_lease_whoever_asks_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let (true, Some(mounted)) =
        (possible(), Mounted::new(&dir.path().join("2M"), "tmpfs", "size=64M,mode=0755"))
    else {
        return;
    };
    let daemon = Daemon::start(&config(&mounted.0, ""));
    let ask = || daemon.client().lease_named(name("one"), want(4), PATIENCE).unwrap().0;
    let answers = std::thread::scope(|scope| {
        let asked: Vec<_> = (0..6).map(|_| scope.spawn(ask)).collect();
        asked.into_iter().map(|one| one.join().unwrap()).collect::<Vec<_>>()
    });
    let first = answers.iter().filter(|lease| lease.since == Since::Now).count();
    assert_eq!(first, 1, "{answers:?}");
    assert!(answers.iter().all(|lease| lease.inode == answers[0].inode));
    // The lease of the name counts, and what else was made for it does not.
    until("one lease in the report", || {
        let stock = daemon.stock();
        let leased = stock["leased"].as_array().unwrap();
        (leased.len() == 1).then_some(()).ok_or_else(|| stock.clone())
    });
    std::fs::remove_file(mounted.0.join("one/lease")).unwrap();
    daemon.wait_for_stock(|stock| stock["leased"].as_array().unwrap().is_empty());
}

#[test]
fn what_cannot_be_named_is_refused_with_the_mend() {
    let dir = tempfile::tempdir().unwrap();
    let (true, Some(mounted)) =
        (possible(), Mounted::new(&dir.path().join("2M"), "tmpfs", "size=16M,mode=0755"))
    else {
        return;
    };
    let refused =
        |daemon: &Daemon, mib| match daemon.client().lease_named(name("a"), want(mib), PATIENCE) {
            Err(ClientError::No(reason, text)) => (reason, text),
            other => panic!("{other:?}"),
        };
    let daemon = Daemon::start(&config(&mounted.0, ""));
    let (reason, text) = refused(&daemon, 32);
    assert!(reason == Reason::Host && text.contains("mount it larger"), "{text}");
    match daemon.lease(4) {
        Err(ClientError::No(Reason::Denied, text)) => assert!(text.contains("by name"), "{text}"),
        other => panic!("{other:?}"),
    }
    let daemon = Daemon::start("");
    let (reason, text) = refused(&daemon, 4);
    assert!(reason == Reason::Denied && text.contains("`files`"), "{text}");
    let daemon = Daemon::start(&config(dir.path(), ""));
    let (reason, text) = refused(&daemon, 4);
    assert!(reason == Reason::Host && text.contains("mount a tmpfs"), "{text}");
}

#[test]
fn pages_of_a_pool_are_named_and_come_back_when_the_file_is_removed() {
    const PAGES: u64 = 16;
    let dir = tempfile::tempdir().unwrap();
    let Some(_reserved) = Reserved::new(Page::Huge, PAGES) else {
        prezero_sys::tell!("skipped: no hugetlb pages can be reserved here");
        return;
    };
    let Some(mounted) = Mounted::new(&dir.path().join("2M"), "hugetlbfs", "pagesize=2M") else {
        return;
    };
    let start = free_pages();
    let mut daemon = Daemon::start(&config(&mounted.0, ""));
    let (lease, path) = daemon.client().lease_named(name("a"), want(8), PATIENCE).unwrap();
    assert_eq!(lease.backing, Backing::Hugetlb);
    assert!(is_zero(&path));
    daemon.kill();
    wait_for_free(start - 4);
    std::fs::remove_file(&path).unwrap();
    wait_for_free(start);
}

#[test]
fn a_lease_takes_no_more_than_its_size_and_counts_until_its_last_user_is_gone() {
    use std::os::unix::fs::FileExt;
    for kind in ["tmpfs", "hugetlbfs"] {
        let dir = tempfile::tempdir().unwrap();
        let reserved = Reserved::new(Page::Huge, 16);
        let options = if kind == "tmpfs" { "size=16M,mode=0755" } else { "pagesize=2M,size=16M" };
        let (true, true, Some(mounted)) = (
            possible(),
            kind == "tmpfs" || reserved.is_some(),
            Mounted::new(&dir.path().join("2M"), kind, options),
        ) else {
            continue;
        };
        let daemon = Daemon::start(&config(&mounted.0, ""));
        let (_, path) = daemon.client().lease_named(name("a"), want(4), PATIENCE).unwrap();
        let kept = File::options().read(true).write(true).open(&path).unwrap();
        let _ = kept.set_len(16 * MIB);
        let full = vec![1; 1 << 20];
        let grown = (4..16).any(|mib| kept.write_all_at(&full, mib * MIB).is_ok());
        let blocks = || kept.metadata().unwrap().blocks() * 512;
        assert!(!grown && blocks() <= 4 * MIB, "{kind}: {} bytes", blocks());
        assert!(File::create(path.with_file_name("other")).is_err(), "{kind}: a second file");
        let (_, other) = daemon.client().lease_named(name("b"), want(12), PATIENCE).unwrap();
        std::fs::remove_file(&other).unwrap();

        // Given back with its content, and still open: its content counts, or cannot come back.
        kept.set_len(0).unwrap();
        std::fs::remove_file(&path).unwrap();
        if kind == "tmpfs" {
            let (_, other) = daemon.client().lease_named(name("c"), want(16), PATIENCE).unwrap();
            assert!(kept.set_len(4 * MIB).is_ok() && kept.write_all_at(&full, 0).is_err());
            std::fs::remove_file(&other).unwrap();
        } else {
            match daemon.client().lease_named(name("c"), want(16), Duration::ZERO) {
                Err(ClientError::No(Reason::Host, text)) => {
                    assert!(text.contains("12M free"), "{text}")
                }
                other => panic!("{other:?}"),
            }
        }
        drop(kept);
        until("its room is free again", || {
            daemon
                .client()
                .lease_named(name("d"), want(16), PATIENCE)
                .map(|_| ())
                .map_err(|e| e.to_string())
        });
        std::fs::remove_file(mounted.0.join("d/lease")).unwrap();
        until("its directory is gone", || {
            let left = std::fs::read_dir(&mounted.0).unwrap().count();
            (left == 0).then_some(()).ok_or(left)
        });
    }
}
