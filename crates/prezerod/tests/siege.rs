//! What cannot stop it: a broker whose log cannot be written, and clients that mean harm.

mod common;

use std::fs::{File, OpenOptions};
use std::io::{PipeReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{Daemon, MIB, PATIENCE, answer, possible, raw, until, use_up, want};
use prezerod::client::{Client, ClientError};
use prezerod::protocol::{Answer, MAX_ANSWER, Page, Reason, Report, Request};
use rustix::net::{SendFlags, send};
use rustix::process::Signal;

/// Reads its configuration again, which it tells on standard error, and serves on.
fn reload_and_serve(daemon: &Daemon) {
    daemon.configure("connections = 7\nlimit = \"1G\"\n");
    daemon.signal(Signal::HUP);
    daemon.client().available(Page::Huge, None).unwrap();
}

/// Starts it with this as standard error; it cannot say that it serves.
fn with_log(log: Stdio) -> Daemon {
    let mut daemon = Daemon::start("");
    daemon.kill();
    let mut command = daemon.command();
    daemon.attach_unheard(command.stderr(log).spawn().unwrap());
    until("a broker that serves", || {
        Client::connect(&daemon.socket()).map_err(|error| error.to_string())
    });
    daemon
}

#[test]
fn a_log_that_cannot_be_written_ends_nothing() {
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    reload_and_serve(&with_log(full.into()));

    let read_only = File::open("/dev/null").unwrap();
    reload_and_serve(&with_log(read_only.into()));

    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    reload_and_serve(&with_log(writer.into()));
}

#[test]
fn a_log_that_nobody_reads_holds_nothing_up() {
    let (reader, writer) = full_pipe();
    let daemon = with_log(writer.into());
    for _ in 0..3 {
        reload_and_serve(&daemon);
    }
    drop(reader);
    reload_and_serve(&daemon);
}

/// A pipe without room for a line.
fn full_pipe() -> (PipeReader, OwnedFd) {
    let (reader, writer) = std::io::pipe().unwrap();
    let writer = OwnedFd::from(writer);
    let size = rustix::pipe::fcntl_getpipe_size(&writer).unwrap();
    assert_eq!(rustix::io::write(&writer, &vec![b'.'; size]), Ok(size));
    (reader, writer)
}

#[test]
fn a_check_whose_answer_cannot_be_written_fails_in_one_line() {
    let daemon = Daemon::start("");
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_prezerod"));
    let output = command.arg("--check").arg(daemon.path("config.toml")).stdout(full).output();
    let output = output.unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    assert!(said.starts_with("prezerod: standard output: No space left"), "{said}");
}

/// Asks for all that the operator may, and prints the kinds of the answers.
const OPERATES: &str = r#"
import socket, struct, sys
for kind, body in ((10, struct.pack("<I", 1)), (9, struct.pack("<QQ", 1 << 40, 2 << 20))):
    broker = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    broker.connect(sys.argv[1])
    broker.send(struct.pack("<2sBBI", b"PZ", 1, kind, 1) + body)
    print(broker.recv(512)[3])
"#;

#[test]
fn root_of_a_container_drains_nothing() {
    if !rustix::process::geteuid().is_root() {
        prezero_sys::tell!("skipped: a PID namespace needs root");
        return;
    }
    const NO: &str = "130\n130\n";
    const DONE: &str = "135\n135\n";
    let daemon = Daemon::start("");
    let said = |command: &mut Command| {
        String::from_utf8_lossy(&command.output().unwrap().stdout).into_owned()
    };
    let plain = daemon.python(OPERATES);
    let mut contained = Command::new("unshare");
    contained.args(["--pid", "--fork"]).arg(plain.get_program()).args(plain.get_args());
    assert_eq!(said(&mut contained), NO);
    daemon.client().available(Page::Huge, None).unwrap();
    assert_eq!(said(&mut daemon.python(OPERATES)), DONE, "outside it is the operator");
}

#[test]
fn leases_that_nobody_reads_are_bounded() {
    if !possible() {
        return;
    }
    let daemon = Daemon::start("[[stock]]\nsize = \"2M\"\nkeep = 18\n");
    daemon.wait_for_ready(18);
    let lease = Request::Lease { want: want(2), wait_ms: 60_000 }.encode(1);
    let greedy = raw(&daemon);
    for _ in 0..17 {
        send(&greedy, &lease, SendFlags::NOSIGNAL).unwrap();
    }
    // The broker goes through them all before this client reads its first.
    until("the refusal", || match daemon.counter("refusals_total{reason=\"busy\"}") {
        0 => None,
        refused => Some(refused),
    });
    let mut answers: Vec<Answer> = (0..17).map(|_| answer(&greedy)).collect();
    let last = answers.pop().unwrap();
    assert!(answers.iter().all(|answer| matches!(answer, Answer::Lease(_))), "{answers:?}");
    assert!(matches!(&last, Answer::No(Reason::Busy, text) if text.contains("unread")), "{last:?}");
    // It has read them, and so has more.
    send(&greedy, &lease, SendFlags::NOSIGNAL).unwrap();
    assert!(matches!(answer(&greedy), Answer::Lease(_)));
}

#[test]
fn a_report_is_whole_however_long_and_an_old_client_hears_why_it_has_none() {
    if !possible() {
        return;
    }
    let daemon = Daemon::start("[[stock]]\nsize = \"2M\"\nkeep = 20\n");
    let mut client = daemon.client();
    let leases: Vec<_> = (0..200).map(|_| client.lease(want(2), PATIENCE).unwrap()).collect();
    let text = client.report(Report::Stock).unwrap();
    assert!(text.len() > 2 * MAX_ANSWER, "{} bytes", text.len());
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["leased"].as_array().unwrap().len(), leases.len());

    let old = raw(&daemon);
    let frame = [&b"PZ\x01\x06"[..], &[9, 0, 0, 0], &[1, 0, 0, 0]].concat();
    send(&old, &frame, SendFlags::NOSIGNAL).unwrap();
    let refused = answer(&old);
    assert!(
        matches!(&refused, Answer::No(Reason::Malformed, text) if text.contains("another version"))
    );
}

#[test]
fn what_counts_is_memory_that_lives() {
    if !possible() {
        return;
    }
    let uid = rustix::process::getuid().as_raw();
    let quota = format!("[[tenant]]\nname = \"t\"\nusers = [{uid}]\nquota = \"8M\"\n");
    let daemon = Daemon::start(&quota);
    if daemon.lease(2).unwrap().granted.bytes != 2 * MIB || !watched(&daemon) {
        return;
    }
    // One process has many leases, one after the other.
    let mut client = daemon.client();
    for _ in 0..6 {
        // A filler without a CPU may have the last one open still.
        use_up(&until("room for the next", || client.lease(want(6), PATIENCE)));
    }
    // One that has ended left its lease to another, which has it mapped, or open.
    for keep in ["map = lease.map(); lease.close()", "os.set_inheritable(lease.fd, True)"] {
        // Nor does the heir wait for it.
        daemon.wait_for_stock(|stock| stock["leased"].as_array().unwrap().is_empty());
        let mut heir = heir(&daemon, keep);
        let refused = daemon.client().lease(want(4), Duration::ZERO).unwrap_err();
        assert!(matches!(refused, ClientError::No(Reason::Quota, _)), "{keep}: {refused}");
        let stock = daemon.stock();
        assert_eq!(stock["leased"][0]["bytes"].as_u64(), Some(6 * MIB), "{keep}: {stock}");
        drop(heir.stdin.take());
        heir.wait().unwrap();
        until("the quota to be free", || daemon.client().lease(want(4), PATIENCE));
    }
}

/// Whether this kernel tells when the memory of a lease is gone.
fn watched(daemon: &Daemon) -> bool {
    let mut client = daemon.client();
    let _lease = client.lease(want(2), PATIENCE).unwrap();
    daemon.stock()["leased"][0]["ends_with"] == "memory"
}

/// The child of a process that got a lease and has ended. It ends with its standard input.
fn heir(daemon: &Daemon, keep: &str) -> std::process::Child {
    let script = format!(
        "
import os, sys
from prezero_lease import Client, Refused
from until import until
def look():
    try:
        return Client(sys.argv[1]).lease(6 << 20, wait=60.0)
    except Refused:
        pass
# What was given back counts until its memory is gone.
lease = until('the quota to be free', look)
{keep}
if os.fork() == 0:
    print('there', flush=True)
    sys.stdin.read()
os._exit(0)
"
    );
    let mut child =
        daemon.python(&script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0u8; 5]).unwrap();
    child
}

#[test]
fn scrapers_that_say_nothing_keep_nobody_out() {
    let daemon = Daemon::start("");
    let place = daemon.path("metrics.sock");
    let mut daemon = daemon;
    daemon.kill();
    daemon.configure(&format!("metrics = \"{}\"\n", place.display()));
    daemon.again();
    let silent: Vec<UnixStream> = (0..200).map(|_| UnixStream::connect(&place).unwrap()).collect();
    let mut scrape = UnixStream::connect(&place).unwrap();
    scrape.set_read_timeout(Some(PATIENCE)).unwrap();
    scrape.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let mut text = String::new();
    scrape.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 200 OK") && text.ends_with("# EOF\n"), "{text}");
    drop(silent);
}

#[test]
fn strangers_are_told_and_cost_little() {
    if !rustix::process::getuid().is_root() {
        return prezero_sys::tell!("skipped: only root becomes another user");
    }
    let daemon = Daemon::start("");
    open_to_all(&daemon);
    let script = "
import sys
from prezero_lease import Client, Refused
for _ in range(300):
    try:
        Client(sys.argv[1]).available()
        sys.exit('a stranger is let in')
    except Refused as error:
        assert error.reason == 'denied' and 'no tenant for uid 65534' in str(error), error
";
    let output = daemon.python(script).current_dir("/").uid(65534).gid(65534).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(daemon.counter("connections_refused_total"), 300);
}

fn open_to_all(daemon: &Daemon) {
    use std::os::unix::fs::PermissionsExt;
    let all = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(daemon.dir.path(), all).unwrap();
}
