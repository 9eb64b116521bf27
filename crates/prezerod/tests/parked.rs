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
fn a_parked_lease_outlives_client_and_broker_and_is_found_under_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let (true, Some(mounted)) =
        (possible(), Mounted::new(&dir.path().join("2M"), "tmpfs", "size=64M"))
    else {
        return;
    };
    let stock = "[[stock]]\nsize = \"4M\"\nkeep = 1\ntenant = \"k8s\"\n";
    let mut daemon = Daemon::start(&config(&mounted.0, stock));
    daemon.wait_for_ready(1);
    let (parked, path) = daemon.client().park(name("a"), want(4), Duration::ZERO).unwrap();
    assert_eq!((parked.backing, parked.page, parked.since), (Backing::Thp, Page::Huge, Since::Now));
    assert!(parked.age_ns > 0, "from stock");
    assert_eq!(path, mounted.0.join("a"));
    let info = path.metadata().unwrap();
    assert_eq!((info.ino(), info.len(), info.blocks() * 512), (parked.inode, 4 * MIB, 4 * MIB));
    assert!(is_zero(&path));

    daemon.kill();
    daemon.again();
    let (again, _) = daemon.client().park(name("a"), want(8), PATIENCE).unwrap();
    assert_eq!((again.since, again.inode, again.bytes), (Since::Before, parked.inode, 4 * MIB));

    std::fs::remove_file(&path).unwrap();
    let (other, _) = daemon.client().park(name("a"), want(8), PATIENCE).unwrap();
    assert_eq!((other.since, other.bytes), (Since::Now, 8 * MIB));
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn a_name_has_one_lease_whoever_asks_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let (true, Some(mounted)) =
        (possible(), Mounted::new(&dir.path().join("2M"), "tmpfs", "size=64M"))
    else {
        return;
    };
    let daemon = Daemon::start(&config(&mounted.0, ""));
    let ask = || daemon.client().park(name("one"), want(4), PATIENCE).unwrap().0;
    let answers = std::thread::scope(|scope| {
        let asked: Vec<_> = (0..6).map(|_| scope.spawn(ask)).collect();
        asked.into_iter().map(|one| one.join().unwrap()).collect::<Vec<_>>()
    });
    let first = answers.iter().filter(|parked| parked.since == Since::Now).count();
    assert_eq!(first, 1, "{answers:?}");
    assert!(answers.iter().all(|parked| parked.inode == answers[0].inode));
    // The lease of the name counts, and what else was made for it does not.
    until("one lease in the report", || {
        let stock = daemon.stock();
        let leased = stock["leased"].as_array().unwrap();
        (leased.len() == 1).then_some(()).ok_or_else(|| stock.clone())
    });
    std::fs::remove_file(mounted.0.join("one")).unwrap();
    daemon.wait_for_stock(|stock| stock["leased"].as_array().unwrap().is_empty());
}

#[test]
fn what_cannot_be_parked_is_refused_with_the_mend() {
    let dir = tempfile::tempdir().unwrap();
    let (true, Some(mounted)) =
        (possible(), Mounted::new(&dir.path().join("2M"), "tmpfs", "size=16M"))
    else {
        return;
    };
    let refused = |daemon: &Daemon, mib| match daemon.client().park(name("a"), want(mib), PATIENCE)
    {
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
fn pages_of_a_pool_are_parked_and_come_back_when_the_file_is_removed() {
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
    let (parked, path) = daemon.client().park(name("a"), want(8), PATIENCE).unwrap();
    assert_eq!(parked.backing, Backing::Hugetlb);
    assert!(is_zero(&path));
    daemon.kill();
    wait_for_free(start - 4);
    std::fs::remove_file(&path).unwrap();
    wait_for_free(start);
}
