//! What is leased and learnt survives `kill -9` of the broker: stock and marks in the service manager's store, the rest
//! in the state file. This process plays the manager: it keeps descriptors as systemd does.

mod common;

use std::fs::{self, File};
use std::io::Write;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Daemon, MIB, PATIENCE, possible, until, use_up, want};
use prezerod::client::{Client, ClientError, Lease};
use prezerod::protocol::{Drain, Reason};
use rustix::fs::{FallocateFlags, fallocate, fstat};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

/// Two inodes of 4 MiB lie ready, of ordinary memory: a file of a pool cannot be written by a call. A tenant may have 8 MiB.
const CONFIG: &str = "backing = \"thp\"\n[[stock]]\nsize = \"4M\"\nkeep = 2\nmost = 2\n[[tenant]]\nname = \"t\"\n\
                      users = [\"root\", 65534]\nquota = \"8M\"\n";

type Stored = Arc<Mutex<Vec<(String, OwnedFd)>>>;

/// The service manager.
struct Manager {
    stored: Stored,
}

impl Manager {
    fn new(daemon: &Daemon) -> Manager {
        let socket = UnixDatagram::bind(daemon.path("notify")).unwrap();
        let stored = Stored::default();
        let kept = stored.clone();
        std::thread::spawn(move || {
            while let Some((text, file)) = heard(&socket) {
                keep(&kept, &text, file);
            }
        });
        Manager { stored }
    }

    fn names(&self) -> Vec<String> {
        self.stored.lock().unwrap().iter().map(|(name, _)| name.clone()).collect()
    }

    /// Waits until nothing is stored under these names: messages take a moment.
    fn wait_without(&self, names: &[&str]) {
        until("the store without them", || {
            let stored = self.names();
            let gone = !stored.iter().any(|name| names.contains(&name.as_str()));
            if gone { Ok(()) } else { Err(format!("{stored:?} stored")) }
        });
    }

    /// Numbers of the stored inodes of the stock.
    fn inodes(&self) -> Vec<u64> {
        let stored = self.stored.lock().unwrap();
        let stock = stored.iter().filter(|(name, _)| name.starts_with("stock."));
        let mut inodes: Vec<u64> = stock.map(|(_, file)| fstat(file).unwrap().st_ino).collect();
        inodes.sort_unstable();
        inodes
    }

    /// Waits until these inodes are stored: messages take a moment.
    fn wait_for(&self, inodes: &[u64]) {
        let mut expected = inodes.to_vec();
        expected.sort_unstable();
        until("the store", || match self.inodes() {
            stored if stored == expected => Ok(()),
            stored => Err(format!("{stored:?} stored, {expected:?} expected")),
        });
    }

    /// Starts a broker with all that is stored; returns what it says until it serves.
    fn start(&self, daemon: &mut Daemon) -> String {
        let stored = self.stored.lock().unwrap();
        // Out of the way of the numbers that they get.
        let high = |file: &OwnedFd| rustix::io::fcntl_dupfd_cloexec(file, 200).unwrap();
        let files: Vec<OwnedFd> = stored.iter().map(|(_, file)| high(file)).collect();
        let names: Vec<&str> = stored.iter().map(|(name, _)| name.as_str()).collect();
        let mut command = Command::new("sh");
        command.args(["-c", "exec env LISTEN_PID=$$ \"$@\"", "sh"]);
        command.arg(env!("CARGO_BIN_EXE_prezerod"));
        command
            .arg("--config")
            .arg(daemon.path("config.toml"))
            .arg("--socket")
            .arg(daemon.socket());
        command.env("NOTIFY_SOCKET", daemon.path("notify")).stderr(Stdio::piped());
        command.env("LISTEN_FDS", files.len().to_string()).env("LISTEN_FDNAMES", names.join(":"));
        let pass = move || {
            for (number, file) in (3..).zip(&files) {
                // SAFETY: a number of the child, which has no other owner there; it is not closed.
                let mut to = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(number) });
                rustix::io::dup2(file, &mut to)?;
            }
            Ok(())
        };
        // SAFETY: the child makes system calls alone, and allocates nothing.
        unsafe { command.pre_exec(pass) };
        drop(stored);
        daemon.run(command)
    }
}

/// A message and its descriptor; `None`: the socket is gone.
fn heard(socket: &UnixDatagram) -> Option<(String, Option<OwnedFd>)> {
    let mut packet = [0u8; 4096];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let slices = &mut [std::io::IoSliceMut::new(&mut packet)];
    let len = recvmsg(socket, slices, &mut control, RecvFlags::CMSG_CLOEXEC).ok()?.bytes;
    let file = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    Some((std::str::from_utf8(&packet[..len]).unwrap().to_owned(), file))
}

/// What systemd does with a message; a barrier is over when its descriptor is closed.
fn keep(stored: &Stored, text: &str, file: Option<OwnedFd>) {
    let mut stored = stored.lock().unwrap();
    let name = text.lines().find_map(|line| line.strip_prefix("FDNAME="));
    if text.starts_with("FDSTOREREMOVE=1") {
        stored.retain(|(other, _)| Some(other.as_str()) != name);
    } else if let (true, Some(name), Some(file)) = (text.starts_with("FDSTORE=1"), name, file) {
        assert!(text.contains("FDPOLL=0"), "{text}");
        stored.push((name.to_owned(), file));
    }
}

/// A broker that has such a manager, with its stock ready and stored.
fn started() -> Option<(Daemon, Manager)> {
    if !possible() || !rustix::process::geteuid().is_root() {
        prezero_sys::tell!("skipped: run it as root, with transparent huge pages of shared memory");
        return None;
    }
    let mut daemon = Daemon::start("");
    daemon.kill();
    daemon.configure(CONFIG);
    fs::remove_file(daemon.path("socket.state")).ok();
    let manager = Manager::new(&daemon);
    manager.start(&mut daemon);
    daemon.wait_for_ready(2);
    manager.wait_for(&ready(&daemon));
    Some((daemon, manager))
}

/// Numbers of the inodes in stock cannot be told by a client; the manager's can. What was given back is closed a moment
/// later, by a thread of the broker.
fn ready(daemon: &Daemon) -> Vec<u64> {
    let ready = daemon.stock()["ready"].as_array().unwrap().clone();
    assert_eq!(ready.len(), 2, "{ready:?}");
    until("the inodes in stock alone", || {
        let open = open_inodes(daemon);
        if open.len() == ready.len() { Ok(open) } else { Err(format!("{open:?} are open")) }
    })
}

/// Numbers of the inodes that a broker has open.
fn open_inodes(daemon: &Daemon) -> Vec<u64> {
    let proc = format!("/proc/{}/fd", daemon.pid().as_raw_nonzero());
    let files = fs::read_dir(proc).unwrap().flatten().map(|entry| entry.path());
    let ours = files.filter(|path| {
        let link = fs::read_link(path).unwrap_or_default();
        link.to_str().is_some_and(|link| link.starts_with("/memfd:prezero"))
    });
    // One that was closed meanwhile does not count.
    ours.filter_map(|path| Some(fstat(File::open(path).ok()?).unwrap().st_ino)).collect()
}

fn ask(daemon: &Daemon) -> Result<Lease, ClientError> {
    Client::connect(&daemon.socket()).unwrap().lease(want(4), Duration::ZERO)
}

#[test]
fn stock_quota_and_marks_survive_kill_9_and_a_lease_ends_with_its_memory_all_the_same() {
    let Some((mut daemon, manager)) = started() else { return };
    let lease = ask(&daemon).unwrap();
    daemon.wait_for_ready(2);
    let stock = ready(&daemon);
    assert!(!stock.contains(&lease.granted.inode));
    manager.wait_for(&stock);
    // The state is saved a moment after what it tells of.
    until("the state", || {
        let text = fs::read_to_string(daemon.path("socket.state")).unwrap_or_default();
        text.contains(&format!("\"inode\":{}", lease.granted.inode)).then_some(())
    });
    daemon.kill();

    manager.start(&mut daemon);
    let said = daemon.wait_for("stored inodes are");
    assert!(said.contains("2 of 2 stored inodes are zero and kept"), "{said}");
    let mut same = ready(&daemon);
    same.sort_unstable();
    assert_eq!(same, manager.inodes(), "the same stock, in the store as before");
    assert_eq!(daemon.counter("made_bytes_total"), 0, "nothing was made anew");
    assert_eq!(daemon.stock()["leased"][0]["bytes"], 4 * MIB);

    // 4 of 8 MiB are still out: one more lease, and no third.
    let second = ask(&daemon).unwrap();
    assert!(same.contains(&second.granted.inode));
    let third = ask(&daemon);
    assert!(matches!(third, Err(ClientError::No(Reason::Quota, _))), "{third:?}");
    use_up(&second);
    use_up(&lease);
    // This process lives, so only the marks that came back tell that the memory is gone.
    if daemon.stock()["leased"][0]["ends_with"] == "memory" {
        drop(lease);
        use_up(&until("the quota to be free", || daemon.client().lease(want(4), PATIENCE)));
    }
}

#[test]
fn what_came_back_and_is_not_zero_whole_or_fresh_is_given_back() {
    let Some((mut daemon, manager)) = started() else { return };
    daemon.kill();
    let harm = |harm: &dyn Fn(&OwnedFd)| {
        let stored = manager.stored.lock().unwrap();
        let (_, file) = stored.iter().find(|(name, _)| name.starts_with("stock.")).unwrap();
        harm(file);
    };
    // A byte that is not zero, anywhere.
    harm(&|file| assert_eq!(rustix::io::pwrite(file, &[1], 3 * MIB + 4097), Ok(1)));
    manager.start(&mut daemon);
    let said = daemon.wait_for("stored inodes are");
    assert!(said.contains("1 of 2 stored inodes are zero and kept"), "{said}");
    daemon.wait_for_ready(2);
    manager.wait_for(&ready(&daemon));
    use_up(&ask(&daemon).unwrap());
    daemon.wait_for_ready(2);
    manager.wait_for(&ready(&daemon));
    daemon.kill();

    // A hole, and what is no inode of a broker.
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    harm(&|file| fallocate(file, hole, 0, 2 * MIB).unwrap());
    let mut other = tempfile::tempfile().unwrap();
    other.write_all(&vec![0; 4 << 20]).unwrap();
    let name = "stock.2M.thp.0.12345.".to_owned();
    manager.stored.lock().unwrap().push((name.clone(), other.into()));
    manager.start(&mut daemon);
    let said = daemon.wait_for("stored inodes are");
    assert!(said.contains("1 of 3 stored inodes are zero and kept"), "{said}");
    daemon.wait_for_ready(2);
    manager.wait_without(&[&name]);
    use_up(&ask(&daemon).unwrap());
}

#[test]
fn a_lease_that_the_store_still_has_is_refused() {
    let Some((mut daemon, manager)) = started() else { return };
    let lease = ask(&daemon).unwrap();
    daemon.wait_for_ready(2);
    manager.wait_for(&ready(&daemon));
    daemon.kill();
    // The broker was killed before the manager read that it was leased.
    let name = format!("stock.2M.thp.0.{}.", lease.granted.inode);
    let copy = lease.file.as_fd().try_clone_to_owned().unwrap();
    manager.stored.lock().unwrap().push((name.clone(), copy));
    // And one of the stock lies there twice.
    let twice = {
        let mut stored = manager.stored.lock().unwrap();
        let (_, file) =
            stored.iter().find(|(other, _)| other.starts_with("stock.") && *other != name).unwrap();
        let twice = (format!("stock.2M.thp.0.{}.", u64::MAX), file.try_clone().unwrap());
        stored.push((twice.0.clone(), twice.1));
        twice.0
    };
    manager.start(&mut daemon);
    let said = daemon.wait_for("stored inodes are");
    assert!(said.contains("2 of 4 stored inodes are zero and kept"), "{said}");
    assert!(!ready(&daemon).contains(&lease.granted.inode));
    manager.wait_without(&[&name, &twice]);
}

#[test]
fn demand_survives_kill_9_and_a_broken_state_costs_one_line() {
    if !possible() {
        return;
    }
    let mut daemon = Daemon::start("");
    let leases: Vec<Lease> =
        (0..3).map(|_| daemon.client().lease(want(6), PATIENCE).unwrap()).collect();
    let target = |daemon: &Daemon| {
        let stock = daemon.stock();
        let wanted = stock["wanted"].as_array().unwrap().clone();
        wanted.iter().find(|row| row["bytes"] == 6 * MIB).map(|row| row["target"].clone())
    };
    let learnt = target(&daemon).unwrap();
    let state = daemon.path("socket.state");
    until("the state", || {
        let text = fs::read_to_string(&state).unwrap_or_default();
        let last = format!("\"inode\":{}", leases[2].granted.inode);
        text.contains(&last).then_some(())
    });
    daemon.kill();
    daemon.again();
    assert_eq!(target(&daemon), Some(learnt), "without a request since");
    daemon.kill();

    let whole = fs::read(&state).unwrap();
    // Each length is tried beside the code; here the broker starts with some of them.
    for len in [0, 1, whole.len() / 2, whole.len() - 1] {
        fs::write(&state, &whole[..len]).unwrap();
        let command = daemon.command();
        daemon.run(command);
        assert_eq!(target(&daemon), None, "of {len} bytes");
        daemon.kill();
    }
}

#[test]
fn a_drain_survives_kill_9_from_its_answer_on_and_its_end_does_too() {
    let mut daemon = Daemon::start("");
    for (drain, expected) in [(Drain::On, true), (Drain::Off, false), (Drain::On, true)] {
        daemon.client().drain(drain).unwrap();
        daemon.kill();
        daemon.again();
        assert_eq!(daemon.stock()["drained"], expected, "after {drain:?} and a kill");
        let answer = daemon.client().lease(want(2), Duration::ZERO);
        let is_refused = matches!(answer, Err(ClientError::No(Reason::Drained, _)));
        assert_eq!(is_refused, expected, "{answer:?}");
    }
    daemon.kill();
    let mut command = daemon.command();
    daemon.attach(command.spawn().unwrap());
    let said = daemon.wait_for("serving on");
    assert!(said.contains("prezero stock --undrain ends it"), "{said}");
}

#[test]
fn what_the_disk_has_no_room_for_is_answered_no_and_is_not_done() {
    use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
    let dir = tempfile::tempdir().unwrap();
    let small = c"size=64k,mode=0700";
    if let Err(error) = mount("tmpfs", dir.path(), "tmpfs", MountFlags::empty(), small) {
        return prezero_sys::tell!("skipped: mounting a tmpfs: {error}");
    }
    let mut daemon = Daemon::start("");
    daemon.kill();
    let start = |daemon: &mut Daemon| {
        let mut command = daemon.command();
        command.env("STATE_DIRECTORY", dir.path());
        daemon.run(command);
    };
    start(&mut daemon);
    let full = dir.path().join("full");
    let _ = fs::write(&full, vec![1; 1 << 20]);
    let is_refused = |answer: Result<(), ClientError>| match answer {
        Err(ClientError::No(Reason::Kernel, text)) => text.contains("would not survive"),
        _ => false,
    };
    assert!(is_refused(daemon.client().drain(Drain::On)));
    assert!(is_refused(daemon.client().expect(want(6), 2, Duration::from_secs(60))));
    let is_so = |daemon: &Daemon| {
        let stock = daemon.stock();
        let expected = |row: &serde_json::Value| row["bytes"] == 6 * MIB && row["target"] != 0;
        (stock["drained"] == true, stock["wanted"].as_array().unwrap().iter().any(expected))
    };
    assert_eq!(is_so(&daemon), (false, false));
    daemon.kill();
    start(&mut daemon);
    assert_eq!(is_so(&daemon), (false, false));
    fs::remove_file(&full).unwrap();
    daemon.client().expect(want(6), 2, Duration::from_secs(60)).unwrap();
    daemon.client().drain(Drain::On).unwrap();
    daemon.kill();
    start(&mut daemon);
    assert_eq!(is_so(&daemon), (true, true));
    daemon.kill();
    unmount(dir.path(), UnmountFlags::DETACH).unwrap();
}

#[test]
fn what_a_later_version_stored_is_kept_and_said_and_the_broker_starts() {
    let Some((mut daemon, manager)) = started() else { return };
    daemon.kill();
    let names = ["ledger.v2", "stored", "stock.2M.cxl.0.77.", "metrics"].map(str::to_owned);
    for name in &names {
        let file = prezero_sys::shared::memfd("later", rustix::fs::MemfdFlags::empty()).unwrap();
        manager.stored.lock().unwrap().push((name.clone(), file));
    }
    let state = daemon.path("socket.state");
    fs::write(&state, "prezerod-state 2 x\nof a later version").unwrap();
    let said = manager.start(&mut daemon) + &daemon.wait_for("stored inodes are");
    for name in &names {
        assert!(
            said.contains(&format!("{name:?}, which this version does not know")),
            "{name}: {said}"
        );
    }
    assert!(said.contains("2 of 2 stored inodes are zero and kept"), "{said}");
    assert!(said.contains("kept aside"), "{said}");
    assert!(fs::read_to_string(daemon.path("socket.unread")).unwrap().contains("later version"));
    assert!(names.iter().all(|name| manager.names().contains(name)));
    use_up(&ask(&daemon).unwrap());
}

#[test]
fn what_is_expected_back_survives_kill_9_and_is_made_again_before_its_time_is_over() {
    if !possible() {
        return;
    }
    let mut daemon = Daemon::start("");
    let pieces = |daemon: &Daemon| {
        let stock = daemon.stock();
        let wanted = stock["wanted"].as_array().unwrap().iter();
        wanted
            .filter(|row| row["bytes"] == 6 * MIB)
            .filter_map(|row| row["target"].as_u64())
            .sum::<u64>()
    };
    // What is saved of it: the number of pieces, and the time that is left, ns.
    let saved = |daemon: &Daemon| {
        let text = fs::read_to_string(daemon.path("socket.state")).unwrap_or_default();
        // Its first line is the version and a checksum.
        let state: serde_json::Value = serde_json::from_str(text.split_once('\n')?.1).ok()?;
        let one = state["expected"][0].clone();
        Some((one["pieces"].as_u64()?, one["left"].as_u64()?))
    };
    let hour = Duration::from_secs(3600);
    daemon.client().expect(want(6), 2, hour).unwrap();
    let (_, left) = until("the state", || saved(&daemon).filter(|(pieces, _)| *pieces == 2));
    daemon.kill();
    daemon.again();
    assert_eq!(pieces(&daemon), 2, "from the next broker's first answer on");
    daemon.wait_for_ready(2);
    use_up(&daemon.client().lease(want(6), Duration::ZERO).unwrap());
    let (_, then) = until("the state", || saved(&daemon).filter(|(pieces, _)| *pieces == 1));
    assert!(then < left, "its time went on: {left} ns, then {then}");

    // Over while there is no broker, or soon after.
    daemon.kill();
    fs::remove_file(daemon.path("socket.state")).unwrap();
    daemon.again();
    daemon.client().expect(want(6), 2, Duration::from_secs(1)).unwrap();
    daemon.kill();
    daemon.again();
    until("the end of it", || (pieces(&daemon) == 0).then_some(()));
}
