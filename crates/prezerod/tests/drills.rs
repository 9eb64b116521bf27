//! What goes wrong on purpose: nonsense, clients that vanish, processes that are killed.

mod common;

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{Daemon, MIB, PATIENCE, ended, possible, python, until, use_up, want, watch};
use prezerod::client::{Client, ClientError, Door};
use prezerod::protocol::{Answer, Drain, Page, Reason, Report, Request};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    send, socket_with,
};
use rustix::process::{Signal, kill_process};

const STOCK: &str = "[[stock]]\nsize = \"4M\"\nkeep = 4\n";

fn raw(daemon: &Daemon) -> OwnedFd {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap();
    connect(&socket, &SocketAddrUnix::new(daemon.socket()).unwrap()).unwrap();
    socket
}

/// One good frame of each kind.
fn good_frames() -> Vec<Vec<u8>> {
    let requests = [
        Request::Lease { want: want(2), wait_ms: 0 },
        Request::LeaseOrPlain { want: want(2), wait_ms: 0 },
        Request::Expect { want: want(2), seconds: 1, pieces: 1 },
        Request::Available { page: Page::Huge, node: None },
        Request::Report { report: Report::Stock, from: 0 },
    ];
    requests.into_iter().map(|request| request.encode(1)).collect()
}

#[test]
fn ten_thousand_malformed_frames_are_answered_and_it_serves_on() {
    const FRAMES: u64 = 10_000;
    // Changed frames may be odd requests: what they ask for stays small.
    let daemon = Daemon::start("limit = \"16M\"\n");
    let mut random = fastrand::Rng::with_seed(5);
    let good = good_frames();
    let (mut refused, mut odd) = (0u64, 0u64);
    while refused < FRAMES {
        let mut frame = good[random.usize(..good.len())].clone();
        match random.u8(..4) {
            0 => frame = (0..random.usize(1..200)).map(|_| random.u8(..)).collect(),
            1 => (0..random.usize(1..4)).for_each(|_| {
                let at = random.usize(..frame.len());
                frame[at] ^= random.u8(1..);
            }),
            2 => frame.truncate(random.usize(1..frame.len())),
            _ => frame.extend(vec![random.u8(..); random.usize(1..4000)]),
        }
        let socket = raw(&daemon);
        send(&socket, &frame, SendFlags::NOSIGNAL).unwrap();
        if Request::decode(&frame).is_ok() {
            // It may wait for its answer, this client does not.
            odd += 1;
            continue;
        }
        let mut answer = [0u8; 600];
        let (len, _) = recv(&socket, &mut answer, RecvFlags::empty()).unwrap();
        let (_, answer) = Answer::decode(&answer[..len]).unwrap();
        assert!(matches!(answer, Answer::No(Reason::Malformed, _)), "{frame:?}: {answer:?}");
        refused += 1;
    }
    assert!(odd > 100, "{odd} frames were changed and good");
    assert_eq!(daemon.counter("malformed_frames_total"), FRAMES);
    daemon.client().available(Page::Huge, None).unwrap();
}

#[test]
fn a_thousand_clients_vanish_and_the_next_is_served() {
    if !possible() {
        return;
    }
    let daemon = Daemon::start(STOCK);
    daemon.wait_for_ready(4);
    for round in 0..1000 {
        let socket = raw(&daemon);
        // At once, while it waits, with an answer unread, with a lease unread.
        let request = match round % 4 {
            0 => None,
            1 => Some(Request::Lease { want: want(64), wait_ms: 60_000 }),
            2 => Some(Request::Available { page: Page::Huge, node: None }),
            _ => Some(Request::Lease { want: want(4), wait_ms: 0 }),
        };
        if let Some(request) = request {
            send(&socket, &request.encode(1), SendFlags::NOSIGNAL).unwrap();
        }
    }
    use_up(&daemon.lease(4).unwrap());
    // It hears of the last that went when it has a CPU.
    daemon.wait_for_stock(|stock| stock["waiting"] == 0);
}

/// CPU time of a thread of the broker, ns; `None`: it has no such thread.
fn thread_ns(daemon: &Daemon, name: &str) -> Option<u64> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", daemon.pid().as_raw_nonzero())).unwrap();
    let is_it = |task: &std::path::PathBuf| {
        std::fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.trim() == name)
    };
    let task = tasks.flatten().map(|task| task.path()).find(is_it)?;
    let stat = std::fs::read_to_string(task.join("schedstat")).ok()?;
    stat.split(' ').next()?.parse().ok()
}

#[test]
fn memory_that_goes_back_is_freed_beside_the_loop() {
    if !possible() {
        return;
    }
    let daemon = Daemon::start(STOCK);
    daemon.wait_for_ready(4);
    assert_eq!(thread_ns(&daemon, "close"), None, "there was nothing to close");
    daemon.client().drain(Drain::On).unwrap();
    assert_eq!(daemon.stock()["ready"].as_array().unwrap().len(), 0);
    // The kernel frees 16 MiB in some 50 us.
    const LEAST_NS: u64 = 10_000;
    until("what the thread has closed", || {
        thread_ns(&daemon, "close").filter(|spent| *spent > LEAST_NS)
    });
}

#[test]
fn a_client_that_reads_nothing_is_dropped_and_others_are_served() {
    let daemon = Daemon::start("");
    let greedy = raw(&daemon);
    let frame = Request::Available { page: Page::Huge, node: None }.encode(1);
    let mut sent = 0;
    // Ends when the broker hangs up; its queue holds some hundred answers.
    while send(&greedy, &frame, SendFlags::NOSIGNAL).is_ok() {
        sent += 1;
        assert!(sent < 1_000_000, "it is never dropped");
    }
    daemon.client().available(Page::Huge, None).unwrap();
}

#[test]
fn without_descriptors_it_serves_who_is_there_and_later_the_rest() {
    let mut daemon = Daemon::start("");
    daemon.kill();
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 40; exec \"$@\"", "sh"]).arg(env!("CARGO_BIN_EXE_prezerod"));
    command.arg("--socket").arg(daemon.socket()).stderr(Stdio::piped());
    daemon.run(command);
    let mut first = daemon.client();
    first.available(Page::Huge, None).unwrap();
    let burst: Vec<OwnedFd> = (0..100).map(|_| raw(&daemon)).collect();
    first.available(Page::Huge, None).unwrap();
    drop(burst);
    // A client that connects before the crowd has gone is told to ask again.
    until("a place", || daemon.client().available(Page::Huge, None));
}

#[test]
fn a_broker_that_is_killed_harms_no_lease_and_its_successor_serves() {
    if !possible() {
        return;
    }
    let mut daemon = Daemon::start(STOCK);
    daemon.wait_for_ready(4);
    let lease = daemon.lease(4).unwrap();
    let map = lease.map().unwrap();
    map.touch(0, map.len(), 4096);
    // A filler is in the middle of this one when the broker dies.
    let mut waiting = daemon.client();
    let patient = std::thread::spawn(move || waiting.lease(want(512), PATIENCE));
    let fillers: Vec<OwnedFd> = daemon.wait_for_fillers(2).into_iter().map(watch).collect();

    daemon.kill();

    fillers.iter().for_each(ended);
    assert!(matches!(patient.join().unwrap(), Err(ClientError::Gone(_)) | Ok(_)));
    drop(map);
    use_up(&lease);
    daemon.again();
    use_up(&daemon.lease(4).unwrap());
}

#[test]
fn a_filler_that_is_killed_costs_one_answer_at_most() {
    if !possible() {
        return;
    }
    let daemon = Daemon::start("");
    let socket = daemon.socket();
    let patient =
        std::thread::spawn(move || Client::connect(&socket).unwrap().lease(want(1024), PATIENCE));
    for filler in daemon.wait_for_fillers(1) {
        // One that has ended by itself is gone already.
        let _ = kill_process(filler, Signal::KILL);
    }
    match patient.join().unwrap() {
        Ok(_) | Err(ClientError::No(Reason::Kernel, _)) => {}
        other => panic!("{other:?}"),
    }
    use_up(&daemon.lease(4).unwrap());
}

/// A kernel that finds no huge page at first: the calls of `MADV_COLLAPSE` up to `FAILURES` fail in each filler.
const NO_PAGE_AT_FIRST: &str = r#"
#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
int madvise(void *at, size_t len, int advice)
{
	static int calls;
	if (advice == 25 && calls++ < atoi(getenv("FAILURES"))) {
		errno = calls % 2 ? ENOMEM : EAGAIN;
		return -1;
	}
	return syscall(SYS_madvise, at, len, advice);
}
"#;

#[test]
fn a_huge_page_that_the_kernel_has_a_moment_later_is_waited_for_and_not_without_end() {
    if !possible() || Command::new("cc").arg("--version").output().is_err() {
        return;
    }
    let mut daemon = Daemon::start("backing = \"thp\"\n");
    let (source, library) = (daemon.path("no_page.c"), daemon.path("no_page.so"));
    std::fs::write(&source, NO_PAGE_AT_FIRST).unwrap();
    let built =
        Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).status();
    assert!(built.unwrap().success());
    for (failures, why) in [("5", None), ("1000000", Some("no 2M page left"))] {
        daemon.kill();
        let mut command = daemon.command();
        command.env("LD_PRELOAD", &library).env("FAILURES", failures);
        daemon.run(command);
        match (daemon.lease(4), why) {
            (Ok(lease), None) => use_up(&lease),
            (Err(ClientError::No(Reason::Kernel, said)), Some(why)) => {
                assert!(said.contains(why), "{said}");
            }
            (answer, _) => panic!("after {failures} failures: {answer:?}"),
        }
    }
}

#[test]
fn leases_of_a_process_that_is_killed_are_counted_no_more() {
    if !possible() || python().arg("-V").output().is_err() {
        return;
    }
    let uid = rustix::process::getuid().as_raw();
    let tenant = format!("[[tenant]]\nname = \"t\"\nusers = [{uid}]\nquota = \"4M\"\n");
    let daemon = Daemon::start(&tenant);
    let script = "
import sys
from prezero_lease import Client
lease = Client(sys.argv[1]).lease(4 << 20, wait=60.0)
print('held', flush=True)
sys.stdin.read()
";
    let mut holder =
        daemon.python(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut held = [0u8; 5];
    std::io::Read::read_exact(holder.stdout.as_mut().unwrap(), &mut held).unwrap();
    let full = daemon.client().lease(want(4), Duration::ZERO);
    assert!(matches!(full, Err(ClientError::No(Reason::Quota, _))), "{full:?}");

    holder.kill().unwrap();
    holder.wait().unwrap();

    // A filler that has not come back to a CPU since may have it open for a moment.
    use_up(&until("the quota to be free", || daemon.lease(4)));
}

/// Plays the service manager: takes what is stored, answers barriers by closing them.
fn manager(socket: &UnixDatagram, until: impl Fn(&str) -> bool) -> Vec<(String, OwnedFd)> {
    use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, recvmsg};
    let mut stored = vec![];
    loop {
        let mut packet = [0u8; 4096];
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let slices = &mut [std::io::IoSliceMut::new(&mut packet)];
        let len = recvmsg(socket, slices, &mut control, RecvFlags::CMSG_CLOEXEC).unwrap().bytes;
        let text = std::str::from_utf8(&packet[..len]).unwrap().to_owned();
        let file = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut files) => files.next(),
            _ => None,
        });
        if let (true, Some(file)) = (text.starts_with("FDSTORE=1"), file) {
            let name = text.lines().find_map(|line| line.strip_prefix("FDNAME=")).unwrap();
            stored.push((name.to_owned(), file));
        }
        if until(&text) {
            return stored;
        }
    }
}

#[test]
fn stock_survives_an_orderly_restart_and_a_lease_that_comes_back_is_refused() {
    if !possible() {
        return;
    }
    let mut daemon = Daemon::start("");
    daemon.kill();
    daemon.configure("[[stock]]\nsize = \"4M\"\nkeep = 1\nmost = 1\n");
    let notify = UnixDatagram::bind(daemon.path("notify")).unwrap();
    let mut command = daemon.command();
    command.env("NOTIFY_SOCKET", daemon.path("notify"));
    daemon.run(command);
    manager(&notify, |text| text.starts_with("READY=1"));
    daemon.wait_for_ready(1);

    // Stopped with one inode in stock, and one leased.
    let lease = daemon.lease(4).unwrap();
    daemon.wait_for_ready(1);
    daemon.signal(Signal::TERM);
    notify.set_nonblocking(false).unwrap();
    notify.set_read_timeout(Some(PATIENCE)).unwrap();
    // It lives until the manager has read what it stores.
    let stored = manager(&notify, |text| text.starts_with("BARRIER=1"));
    assert!(daemon.wait());
    // It was stored when it was made: the last one that the manager heard of.
    let stock = |(name, _): &&(String, OwnedFd)| name.starts_with("stock.");
    let Some((name, fresh)) = stored.iter().rfind(stock) else { panic!("{stored:?}") };

    // The manager hands over both: the stock, and what it should not have kept.
    let mut command = Command::new("sh");
    let number = |file: &OwnedFd| {
        let flags = rustix::io::fcntl_getfd(file).unwrap() - rustix::io::FdFlags::CLOEXEC;
        rustix::io::fcntl_setfd(file, flags).unwrap();
        std::os::fd::AsRawFd::as_raw_fd(file)
    };
    // Numbers that the redirections below do not overwrite.
    let high = |file: &OwnedFd| rustix::io::fcntl_dupfd_cloexec(file, 100).unwrap();
    let (a, b) = (high(fresh), high(&lease.file));
    let script = format!(
        "exec env LISTEN_PID=$$ LISTEN_FDS=2 LISTEN_FDNAMES={name}:{name} \"$@\" 3<>/proc/self/fd/{} 4<>/proc/self/fd/{}",
        number(&a),
        number(&b)
    );
    command.args(["-c", &script, "sh"]).arg(env!("CARGO_BIN_EXE_prezerod"));
    command.arg("--config").arg(daemon.path("config.toml")).arg("--socket").arg(daemon.socket());
    command.env("NOTIFY_SOCKET", daemon.path("notify")).stderr(Stdio::piped());
    let inode = rustix::fs::fstat(fresh).unwrap().st_ino;
    let barrier = std::thread::spawn(move || {
        manager(&notify, |text| text.starts_with("BARRIER=1"));
        notify
    });
    let process = command.spawn().unwrap();
    daemon.attach(process);
    let said = daemon.wait_for("stored inodes are");
    drop(barrier.join().unwrap());

    assert!(said.contains("1 of 2 stored inodes are zero and kept"), "{said}");
    let next = daemon.client().lease(want(4), Duration::ZERO).unwrap();
    assert_eq!(next.granted.inode, inode);
    assert_ne!(next.granted.inode, lease.granted.inode);
    assert_eq!(next.granted.bytes, 4 * MIB);
    use_up(&next);
}

/// It is root's, and may be stopped as any process: its queue is full, and the watchdog's word is one of many.
#[test]
fn a_service_manager_that_is_stopped_stops_no_client() {
    let mut daemon = Daemon::start("");
    daemon.kill();
    let manager = UnixDatagram::bind(daemon.path("notify")).unwrap();
    let mut command = daemon.command();
    command.env("NOTIFY_SOCKET", daemon.path("notify")).env("WATCHDOG_USEC", "2");
    daemon.run(command);
    let filler = UnixDatagram::unbound().unwrap();
    filler.set_nonblocking(true).unwrap();
    while filler.send_to(b"STATUS=full", daemon.path("notify")).is_ok() {}
    for _ in 0..20 {
        let door = Door::named(&daemon.socket());
        let mut client = Client::enter_within(&door, PATIENCE).unwrap();
        assert!(!client.report(Report::Metrics).unwrap().is_empty());
    }
    drop(manager);
}
