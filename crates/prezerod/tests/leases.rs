//! Leases from a real broker: what they are, which clients get them, how the daemon is run.

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{Daemon, MIB, PATIENCE, possible, until, use_up, want};
use prezerod::client::ClientError;
use prezerod::protocol::{Backing, Drain, Page, Reason, Report, Want};
use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with};
use rustix::process::Signal;

#[test]
fn a_lease_is_zero_populated_sealed_and_reachable_by_path() {
    if !possible() {
        return;
    }
    let daemon = Daemon::start("");
    let lease = daemon.lease(8).unwrap();
    let path = format!("/proc/self/fd/{}", lease.file.as_raw_fd());
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    let info = file.metadata().unwrap();
    assert_eq!((info.len(), info.blocks() * 512), (8 * MIB, 8 * MIB));
    assert!(file.set_len(4 * MIB).is_err() && file.set_len(16 * MIB).is_err());
    use_up(&lease);
}

#[test]
fn on_a_tmpfs_a_lease_is_the_same_but_for_the_seals() {
    if !possible() || !rustix::process::getuid().is_root() {
        prezero_sys::tell!("skipped: mounting a tmpfs needs root");
        return;
    }
    let daemon = Daemon::start("backing = \"tmpfs\"\n[[stock]]\nsize = \"8M\"\nkeep = 1\n");
    daemon.wait_for_ready(1);
    let lease = daemon.client().lease(want(8), Duration::ZERO).unwrap();
    assert_eq!(lease.granted.backing, Backing::Tmpfs);
    let path = format!("/proc/self/fd/{}", lease.file.as_raw_fd());
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    let info = file.metadata().unwrap();
    assert_eq!((info.len(), info.blocks() * 512), (8 * MIB, 8 * MIB));
    // It can be cut short, but takes no more memory than was leased.
    file.set_len(16 * MIB).unwrap();
    let beyond = rustix::io::pwrite(&file, &[1], 8 * MIB);
    assert_eq!(beyond, Err(rustix::io::Errno::NOSPC));
    use_up(&lease);
    let other = daemon.lease(8).unwrap();
    assert_ne!((other.granted.lease, other.granted.inode), (lease.granted.lease, 0));
    use_up(&other);
}

#[test]
fn no_lease_ever_holds_what_another_wrote() {
    if !possible() {
        return;
    }
    let daemon = Daemon::start("audit = \"full\"");
    let mut inodes = std::collections::BTreeSet::new();
    let mut kept = vec![];
    for round in 0..8 {
        let lease = daemon.lease(4).unwrap();
        assert!(inodes.insert(lease.granted.lease));
        use_up(&lease);
        if round % 2 == 0 {
            kept.push(lease);
        }
    }
}

#[test]
fn what_is_kept_in_stock_is_leased_at_once() {
    if !possible() {
        return;
    }
    let daemon = Daemon::start("[[stock]]\nsize = \"4M\"\nkeep = 3\n");
    daemon.wait_for_ready(3);
    let mut client = daemon.client();
    assert_eq!(client.available(Page::Huge, None).unwrap().ready, 12 * MIB);
    for _ in 0..3 {
        let lease = client.lease(want(4), Duration::ZERO).unwrap();
        assert_eq!(lease.granted.waited_ns, 0);
        assert!(lease.granted.age_ns > 0);
        use_up(&lease);
    }
    assert_eq!(daemon.counter("lease_hits_total"), 3);
}

#[test]
fn each_claim_of_a_stream_finds_the_next_lease_ready() {
    if !possible() {
        return;
    }
    let daemon = Daemon::start("");
    let mut client = daemon.client();
    use_up(&client.lease(want(16), PATIENCE).unwrap());
    for _ in 0..11 {
        daemon.wait_for_ready(1);
        use_up(&client.lease(want(16), Duration::ZERO).unwrap());
    }
    assert_eq!(daemon.counter("lease_hits_total"), 11);
    daemon.wait_for_ready(1);
    let ready = daemon.stock()["ready"].as_array().unwrap().len();
    assert!(ready <= 3, "{ready} lie ready for one client after the other");
}

#[test]
fn what_holds_a_filler_back_is_said_in_the_report() {
    if !possible() {
        return;
    }
    // Half a minute for each piece.
    let daemon = Daemon::start("rate = \"2M\"\n[[stock]]\nsize = \"64M\"\nkeep = 2\n");
    daemon.wait_for_ready(1);
    let stock = daemon.wait_for_stock(|stock| stock["wanted"][0]["shortage"]["reason"] == "rate");
    let shortage = &stock["wanted"][0]["shortage"];
    assert_eq!(shortage["why"], "rate holds it back to 2M/s; raise rate", "{shortage}");
    let seconds = shortage["ready_in_seconds"].as_f64().unwrap();
    assert!((1.0..=33.0).contains(&seconds), "{shortage}");
}

#[test]
fn a_drained_broker_gives_its_memory_back_and_leases_again_when_it_is_told() {
    if !possible() {
        return;
    }
    let daemon = Daemon::start("[[stock]]\nsize = \"8M\"\nkeep = 2\n");
    daemon.wait_for_ready(2);
    let lease = daemon.client().lease(want(8), Duration::ZERO).unwrap();
    let mut client = daemon.client();
    client.drain(Drain::On).unwrap();
    let report = || client_report(&daemon);
    let drained = report();
    assert_eq!(
        (drained["drained"].as_bool(), drained["leased"].as_array().unwrap().len()),
        (Some(true), 1)
    );
    common::until("nothing is ready, and nothing is made", || {
        let now = report();
        let left =
            now["ready"].as_array().unwrap().len() as u64 + now["making_bytes"].as_u64().unwrap();
        if left == 0 { Ok(()) } else { Err(now.to_string()) }
    });
    match daemon.client().lease(want(4), Duration::from_secs(5)) {
        Err(ClientError::No(Reason::Drained, text)) => {
            assert!(text.contains("--undrain"), "{text}")
        }
        other => panic!("{other:?}"),
    }
    // Its owner has it still.
    use_up(&lease);
    client.drain(Drain::Off).unwrap();
    daemon.wait_for_ready(2);
    use_up(&daemon.lease(8).unwrap());
}

fn client_report(daemon: &Daemon) -> serde_json::Value {
    let text = daemon.client().report(Report::Stock).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[test]
fn nonsense_is_refused_and_the_connection_lives_on() {
    let daemon = Daemon::start("");
    let mut client = daemon.client();
    for (bad, expected) in [
        (Want { bytes: 5, ..want(2) }, Reason::Size),
        (Want { node: Some(999), ..want(2) }, Reason::Node),
        (Want { bytes: 1 << 43, ..want(2) }, Reason::Pressure),
    ] {
        match client.lease(bad, Duration::ZERO) {
            Err(ClientError::No(reason, text)) => assert_eq!(reason, expected, "{text}"),
            other => panic!("{bad:?}: {other:?}"),
        }
    }
    client.available(Page::Huge, None).unwrap();
}

#[test]
fn a_changed_configuration_holds_after_sighup_and_a_bad_one_changes_nothing() {
    let mut daemon = Daemon::start("");
    daemon.client().available(Page::Huge, None).unwrap();

    daemon.configure("[[tenant]]\nname = \"nobody here\"\nusers = [4294967]\n");
    daemon.signal(Signal::HUP);
    daemon.wait_for("configuration read again");
    let refused = daemon.client().available(Page::Huge, None);
    assert!(matches!(refused, Err(ClientError::No(Reason::Denied, _))), "{refused:?}");

    daemon.configure("metrics = \"127.0.0.1:1\"\n");
    daemon.signal(Signal::HUP);
    let said = daemon.wait_for("configuration read again");
    assert!(said.contains("metrics has changed; restart prezerod"), "{said}");
    daemon.client().available(Page::Huge, None).unwrap();
    daemon.configure("[[tenant]]\nname = \"nobody here\"\nusers = [4294967]\n");
    daemon.signal(Signal::HUP);
    daemon.wait_for("configuration read again");

    daemon.configure("tenants = 3\n");
    daemon.signal(Signal::HUP);
    let said = daemon.wait_for("the configuration stays as it was");
    assert!(said.contains("config.toml:1: unknown field `tenants`"), "{said}");
    assert!(daemon.client().available(Page::Huge, None).is_err());
}

#[test]
fn check_reads_the_shipped_example_and_refuses_a_bad_file_in_one_line() {
    let check = |file: &std::path::Path| {
        Command::new(env!("CARGO_BIN_EXE_prezerod")).arg("--check").arg(file).output().unwrap()
    };
    let example = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("prezerod.toml");
    assert!(check(&example).status.success());
    let dir = tempfile::tempdir().unwrap();
    let bad = dir.path().join("bad.toml");
    std::fs::write(&bad, "\n\nrates = 3\n").unwrap();
    let output = check(&bad);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    assert!(
        said.contains("bad.toml:3: unknown field `rates`") && said.lines().count() == 1,
        "{said}"
    );
    // Files that would take each other's place.
    for (text, words) in [
        ("socket = \"/run/a.state\"", "prezerod has a file of that name"),
        ("socket = \"/run/a.lock\"", "prezerod has a file of that name"),
        ("socket = \"/run/a\"\nmetrics = \"/run/a\"", "the socket or a file of prezerod"),
        ("socket = \"/run/a.s\"\nmetrics = \"/run/a.state\"", "the socket or a file of prezerod"),
    ] {
        std::fs::write(&bad, text).unwrap();
        let output = check(&bad);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains(words), "{text}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

#[test]
fn only_one_broker_serves_on_a_socket() {
    let daemon = Daemon::start("");
    let second = daemon.command().stderr(Stdio::piped()).output().unwrap();
    let said = String::from_utf8(second.stderr).unwrap();
    assert!(!second.status.success() && said.contains("another prezerod serves on"), "{said}");
    daemon.client().available(Page::Huge, None).unwrap();
}

#[test]
fn an_orderly_end_takes_the_socket_away() {
    let mut daemon = Daemon::start("");
    daemon.signal(Signal::TERM);
    assert!(daemon.wait());
    assert!(!common::exists(&daemon.socket()));
}

/// A port of loopback. As long as the socket has it the kernel gives it to no other, and a broker may listen there.
fn held_port() -> (OwnedFd, SocketAddr) {
    let socket =
        socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
    set_socket_reuseaddr(&socket, true).unwrap();
    bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let place = getsockname(&socket).unwrap().try_into().unwrap();
    (socket, place)
}

#[test]
fn prometheus_reads_the_counters_over_a_socket_or_loopback() {
    let mut daemon = Daemon::start("");
    let path = daemon.path("metrics");
    daemon.kill();
    daemon.configure(&format!("metrics = {path:?}\n"));
    daemon.again();
    let get = |request: &str| {
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let answer = get("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
    assert!(body.contains("prezerod_lease_hits_total 0") && body.ends_with("# EOF\n"));
    assert!(get("GET /metrics?all=1 HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200"));
    assert!(get("GET /metrics HTTP/1.1\nHost: x\n\n").starts_with("HTTP/1.1 200"), "no CR");
    for unknown in ["/passwd", "/metrics2"] {
        let answer = get(&format!("GET {unknown} HTTP/1.1\r\n\r\n"));
        assert!(answer.starts_with("HTTP/1.1 404") && answer.contains("text/plain"), "{answer}");
    }

    // On loopback.
    let (_held, place) = held_port();
    daemon.kill();
    daemon.configure(&format!("metrics = \"{place}\"\n"));
    daemon.again();
    let mut stream = TcpStream::connect(place).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("# EOF\n"), "{answer}");
}

#[test]
fn the_python_client_leases_writes_and_is_refused() {
    let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".into());
    if !possible() || Command::new(&python).arg("-V").output().is_err() {
        return;
    }
    let daemon = Daemon::start("");
    let script = "
import sys
from prezero_lease import Client, NotNow, Refused
with Client(sys.argv[1]) as broker:
    with broker.lease(4 << 20, wait=60.0) as lease:
        memory = lease.map()
        assert memory[:] == bytes(4 << 20)
        memory[:5] = b'hello'
        assert open(lease.path, 'rb').read(5) == b'hello'
    for size, reason in ((5, 'size'), (1 << 43, 'pressure')):
        try:
            broker.lease(size)
        except Refused as error:
            assert error.reason == reason, error
        else:
            raise AssertionError(size)
    assert broker.available()['quota_left'] == (1 << 64) - 1
    assert broker.stock()['leased'][0]['bytes'] == 4 << 20
    assert 'prezerod_lease_misses_total 1' in broker.metrics()
";
    let bindings = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bindings/python");
    let output = Command::new(python)
        .args(["-c", script])
        .arg(daemon.socket())
        .env("PYTHONPATH", bindings)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_python_client_has_a_lease_or_hears_at_once_that_plain_memory_is_better() {
    if !possible() || common::python().arg("-V").output().is_err() {
        return;
    }
    let daemon = Daemon::start("[[stock]]\nsize = \"4M\"\nkeep = 1\n");
    let run = |script| {
        let output = daemon.python(script).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(()) } else { Err(said) }
    };
    let miss = "
import sys
from prezero_lease import Client, NotNow
try:
    Client(sys.argv[1]).lease(64 << 20, wait=60.0, or_plain=True)
except NotNow:
    pass
else:
    raise AssertionError('made to order')
";
    run(miss).unwrap();
    let hit = "
import sys
from prezero_lease import Client
lease = Client(sys.argv[1]).lease(4 << 20, wait=60.0, or_plain=True)
assert lease.map()[:] == bytes(4 << 20)
";
    // The kernel may lack a page for a moment.
    until("a lease", || run(hit));
}

#[test]
fn the_c_client_leases_writes_and_is_refused() {
    if !possible() || Command::new("cc").arg("--version").output().is_err() {
        return;
    }
    let daemon = Daemon::start("");
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = daemon.path("lease");
    let built = Command::new("cc")
        .args(["-std=c99", "-O2", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(here.join("include"))
        .arg(here.join("examples/lease.c"))
        .arg("-o")
        .arg(&program)
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let output = Command::new(program).env("PREZERO_SOCKET", daemon.socket()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for words in ["or plain memory: ", "64 MiB on node", "made at", "round up to 2M"] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
}
