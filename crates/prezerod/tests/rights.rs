//! Descriptors that clients send: the broker closes none, whatever its kernel can refuse.

mod common;

use std::io::{BufRead, BufReader, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::{Daemon, PATIENCE, answer, raw, socket, until};
use prezero_testing::alone;
use prezerod::protocol::{Answer, Page, Reason, Request};
use rustix::io::Errno;
use rustix::net::{
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, bind, listen, send,
    sendmsg,
};

fn available() -> Vec<u8> {
    Request::Available { page: Page::Huge, node: None }.encode(1)
}

fn send_with(socket: &OwnedFd, frame: &[u8], file: &impl AsFd) -> Result<usize, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = [file.as_fd()];
    assert!(control.push(SendAncillaryMessage::ScmRights(&files)));
    sendmsg(socket, &[IoSlice::new(frame)], &mut control, SendFlags::NOSIGNAL)
}

/// A TCP socket that lingers for an hour when it is closed, and the other end, which reads nothing.
fn lingering() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    near.set_nonblocking(true).unwrap();
    while near.write(&[0; 65536]).is_ok() {}
    let hour = Some(Duration::from_secs(3600));
    rustix::net::sockopt::set_socket_linger(&near, hour).unwrap();
    (near, far)
}

fn open_files(daemon: &Daemon) -> usize {
    let fds = format!("/proc/{}/fd", daemon.pid().as_raw_nonzero());
    std::fs::read_dir(fds).unwrap().count()
}

/// A broker that has ended, and how many files it had open.
fn stopped() -> (Daemon, usize) {
    let mut daemon = Daemon::start("");
    let own = open_files(&daemon);
    daemon.kill();
    let _ = std::fs::remove_file(daemon.socket());
    (daemon, own)
}

/// A socket as of a service manager, in the broker's place.
fn listener(daemon: &Daemon) -> OwnedFd {
    let listener = socket();
    bind(&listener, &SocketAddrUnix::new(daemon.socket()).unwrap()).unwrap();
    listen(&listener, 64).unwrap();
    listener
}

/// Starts the broker, which serves on that.
fn inherit(daemon: &mut Daemon, listener: OwnedFd) {
    let script = "exec 3<&0 </dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh", env!("CARGO_BIN_EXE_prezerod"), "--config"]);
    command.arg(daemon.path("config.toml")).stdin(listener).stderr(Stdio::piped());
    daemon.run(command);
}

/// Waits until no more files are open. The broker serves meanwhile.
fn wait_for_files(daemon: &Daemon, own: usize) {
    until("the descriptors to be closed", || {
        serves(daemon);
        match open_files(daemon) {
            open if open <= own => Ok(()),
            open => Err(format!("{open} files are open, {own} were")),
        }
    });
}

/// Fails where it does not.
fn serves(daemon: &Daemon) {
    let other = raw(daemon);
    send(&other, &available(), SendFlags::NOSIGNAL).unwrap();
    assert!(matches!(answer(&other), Answer::Available(_)));
}

#[test]
fn a_descriptor_that_a_client_sends_holds_nothing_up_and_is_not_kept() {
    let _alone = alone();
    let daemon = Daemon::start("");
    daemon.client().available(Page::Huge, None).unwrap();
    let before = open_files(&daemon);
    let (near, _far) = lingering();
    let client = raw(&daemon);
    match send_with(&client, &available(), &near) {
        // The connection is as good as before.
        Err(Errno::PERM) => {
            send(&client, &available(), SendFlags::NOSIGNAL).unwrap();
            assert!(matches!(answer(&client), Answer::Available(_)));
            // It is this test's alone, which would wait for the hour to pass.
            rustix::net::sockopt::set_socket_linger(&near, None).unwrap();
        }
        sent => {
            sent.unwrap();
            assert!(matches!(answer(&client), Answer::No(Reason::Malformed, _)));
        }
    }
    drop((near, client));
    serves(&daemon);
    until("its descriptors", || match open_files(&daemon) {
        open if open <= before => Ok(()),
        open => Err(format!("{open} are open, {before} were")),
    });
}

/// As from a service manager: its socket takes descriptors, and clients connect before the broker
/// can refuse them.
#[test]
fn descriptors_that_were_sent_before_it_came_hold_nothing_up() {
    let _alone = alone();
    let (mut daemon, own) = stopped();
    let listener = listener(&daemon);
    let (near, _far) = lingering();
    let clients: Vec<OwnedFd> = (0..4).map(|_| raw(&daemon)).collect();
    // An empty packet looks like the end.
    send(&clients[0], &[], SendFlags::NOSIGNAL).unwrap();
    for client in &clients {
        send_with(client, &available(), &near).unwrap();
        send_with(client, b"nonsense", &near).unwrap();
    }
    drop(near);
    let mut clients = clients.into_iter();
    drop(clients.next());

    inherit(&mut daemon, listener);

    daemon.client().available(Page::Huge, None).unwrap();
    for client in clients {
        assert!(matches!(answer(&client), Answer::No(Reason::Malformed, _)));
    }
    daemon.client().available(Page::Huge, None).unwrap();
    wait_for_files(&daemon, own);
}

#[test]
fn a_descriptor_that_a_scraper_sends_keeps_no_other_from_the_counters() {
    let _alone = alone();
    let mut daemon = Daemon::start("");
    let place = daemon.path("metrics.sock");
    daemon.kill();
    daemon.configure(&format!("metrics = \"{}\"\n", place.display()));
    daemon.again();
    let (near, _far) = lingering();
    let hostile = OwnedFd::from(UnixStream::connect(&place).unwrap());
    let sent = send_with(&hostile, b"GET", &near);
    // It is this test's alone, which would wait for the hour to pass.
    rustix::net::sockopt::set_socket_linger(&near, None).unwrap();
    let (own, _other) = UnixStream::pair().unwrap();
    match prezero_sys::peer::refuse_rights(own.as_fd()) {
        Ok(()) => assert_eq!(sent, Err(Errno::PERM)),
        Err(error) => assert_eq!((error, sent), (Errno::NOPROTOOPT, Ok(3))),
    }
    let mut scrape = UnixStream::connect(&place).unwrap();
    scrape.set_read_timeout(Some(PATIENCE)).unwrap();
    scrape.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let mut text = String::new();
    scrape.read_to_string(&mut text).unwrap();
    assert!(text.ends_with("# EOF\n"), "{text}");
}

/// Mounts a FUSE file system that never answers a close, for itself and a child, which connects. For each line that the
/// child reads it sends a descriptor from there over the next connection and prints the kind of the answer.
const NEVER_ANSWERS: &str = r#"
import array, ctypes, os, socket, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
folder = sys.argv[1] + ".fuse"
os.mkdir(folder)
fuse = os.open("/dev/fuse", os.O_RDWR)
options = f"fd={fuse},rootmode=40000,user_id=0,group_id=0".encode()
if libc.unshare(0x20000) or libc.mount(None, b"/", None, 0x44000, None) or \
        libc.mount(b"never", folder.encode(), b"fuse", 0, options):
    sys.exit(print("not", os.strerror(ctypes.get_errno()), flush=True))
INIT, LOOKUP, GETATTR, OPEN, FLUSH, FORGET = 26, 1, 3, 14, 25, 2

def attributes(node, mode):
    return struct.pack("<QQQQQQIIIIIIIIII", node, 0, 0, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)

def serve():
    while True:
        request = os.read(fuse, 1 << 18)
        _, call, number, node = struct.unpack_from("<IIQQ", request)
        if call in (FLUSH, FORGET):
            continue
        body, error = b"", 0
        if call == INIT:
            body = struct.pack("<IIIIHHIIHHI", 7, 31, 0, 0, 12, 10, 1 << 17, 1, 0, 0, 0) + bytes(28)
        elif call == LOOKUP:
            body = struct.pack("<QQQQII", 2, 0, 1000, 1000, 0, 0) + attributes(2, 0o100666)
        elif call == GETATTR:
            body = struct.pack("<QII", 1000, 0, 0) + attributes(node, 0o40755 if node == 1 else 0o100666)
        elif call == OPEN:
            body = struct.pack("<QII", 1, 0, 0)
        else:
            error = -38
        os.write(fuse, struct.pack("<IiQ", 16 + len(body), error, number) + body)

if os.fork():
    os.close(0)
    os.close(1)
    serve()
os.close(fuse)
file = os.open(folder + "/x", os.O_RDWR)
brokers = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(12)]
for broker in brokers:
    broker.connect(sys.argv[1])
print("mounted", flush=True)
for broker, _ in zip(brokers, sys.stdin):
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [file] * 9))]
    broker.sendmsg([struct.pack("<2sBBIQi", b"PZ", 1, 5, 1, 2 << 20, -1)], rights)
    print(broker.recv(512)[3], flush=True)
sys.stdin.read()
"#;

/// Killed when dropped, and with it its file system: what waits for that goes on, and its child reads to the end.
struct Attacker(Child);

impl Drop for Attacker {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// The kernel of this host may refuse descriptors: so these clients connect before the broker is there.
#[test]
fn a_file_system_that_never_answers_holds_nothing_up() {
    let _alone = alone();
    let (mut daemon, own) = stopped();
    let listener = listener(&daemon);
    let mut command = daemon.python(NEVER_ANSWERS);
    let attacker = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut attacker = Attacker(attacker);
    let mut said = BufReader::new(attacker.0.stdout.take().unwrap()).lines();
    let mut says = move || said.next().map_or(String::new(), Result::unwrap);
    let begins = says();
    if begins != "mounted" {
        return prezero_sys::tell!("skipped: no FUSE file system can be mounted here: {begins}");
    }
    inherit(&mut daemon, listener);
    for _ in 0..12 {
        writeln!(attacker.0.stdin.as_ref().unwrap()).unwrap();
        assert_eq!(says(), "130");
        serves(&daemon);
    }
    wait_for_files(&daemon, own);
}
