//! Brokers of others: each command escapes what commands a terminal, turns or hides text, and each client takes another
//! user's broker only by its name.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Output};

use prezero_sys::escape::is_plain;
use prezerod::protocol::{Answer, MAX_REQUEST, Reason, Report, Request};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept, bind,
    listen, recv, send, socket_with,
};

/// A title, a cleared screen, C1 controls, an override of the direction, isolates, marks, what shows nothing.
const HOSTILE: &str = "/a\u{1b}]0;owned\u{7}\u{1b}[2J\r\u{9b}31m\u{202e}gnp\u{2066}x\u{2069}\u{200e}\u{200f}\u{200b}\u{feff}\u{3164}\u{e0041}b";
const LEFT: &str = "owned";

/// A broker that says this wherever it may say anything.
fn serve_at(path: &Path) {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let door = socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap();
    bind(&door, &SocketAddrUnix::new(path).unwrap()).unwrap();
    listen(&door, 8).unwrap();
    std::thread::spawn(move || {
        while let Ok(peer) = accept(&door) {
            std::thread::spawn(move || serve(&peer));
        }
    });
}

fn serve(peer: &OwnedFd) -> io::Result<()> {
    let mut frame = [0; MAX_REQUEST];
    loop {
        let (len, _) = recv(peer, &mut frame, RecvFlags::empty())?;
        let Ok((tag, request)) = Request::decode(&frame[..len]) else { return Ok(()) };
        let answer = match request {
            Request::Report { report: Report::Stock, .. } => {
                Answer::Part { next: 0, text: stock().to_string() }
            }
            Request::Report { report: Report::Metrics, .. } => {
                let label = HOSTILE.replace('\r', "");
                let text = format!("prezerod_tenant_bytes{{tenant=\"{label}\"}} 5\n# EOF\n");
                Answer::Part { next: 0, text }
            }
            Request::Report { report: Report::Log, .. } => {
                Answer::Part { next: 0, text: format!("{}\n", log()) }
            }
            Request::LeaseOrPlain { .. } => {
                let text = HOSTILE.to_owned();
                Answer::When { estimate_ns: u64::MAX, reason: Reason::Empty, text }
            }
            _ => Answer::No(Reason::Denied, HOSTILE.into()),
        };
        send(peer, &answer.encode(tag), SendFlags::NOSIGNAL)?;
    }
}

fn stock() -> serde_json::Value {
    let piece = serde_json::json!({
        "page_bytes": 2 << 20, "backing": HOSTILE, "node": 0, "bytes": 4 << 20, "charged": HOSTILE,
        "tenant": HOSTILE, "cgroup": HOSTILE, "pid": 7, "uid": 7, "target": 2, "ready": 0,
        "shortage": {"reason": HOSTILE, "why": HOSTILE},
    });
    serde_json::json!({"ready": [piece], "leased": [piece], "wanted": [piece], HOSTILE: HOSTILE})
}

fn log() -> serde_json::Value {
    serde_json::json!({"tenant": HOSTILE, "answer": HOSTILE, "reason": HOSTILE, "why": HOSTILE, "pid": HOSTILE})
}

fn said(arguments: &[&str], socket: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_prezero"));
    command.args(arguments).env("PREZERO_SOCKET", socket).output().unwrap()
}

#[test]
fn no_command_shows_what_a_terminal_would_obey() {
    let socket = std::env::temp_dir().join(format!("prezero-hostile-{}", std::process::id()));
    serve_at(&socket);
    for arguments in [
        &["stock"][..],
        &["stock", "--json"],
        &["stock", "--metrics"],
        &["stock", "--drain"],
        &["log"],
        &["log", "--json"],
        &["top", "--once"],
        &["top", "--once", "--json"],
        &["claim", "2M"],
        &["claim", "2M", "--or-plain", "--", "true"],
    ] {
        let output = said(arguments, &socket);
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8(text).unwrap();
        let plain = |letter: char| letter == '\n' || is_plain(letter);
        assert!(text.chars().all(plain), "{arguments:?}: {text:?}");
        assert!(text.contains(LEFT), "{arguments:?} shows nothing of it: {text}");
    }
    // What is for programs means what it meant.
    let json = said(&["stock", "--json"], &socket).stdout;
    assert_eq!(serde_json::from_slice::<serde_json::Value>(&json).unwrap(), stock());
    std::fs::remove_file(socket).unwrap();
}

/// A broker of another user that refuses each request, and says so.
const FALSE_BROKER: &str = "
import os, socket, struct, sys
os.makedirs(sys.argv[1])
door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
door.bind(sys.argv[1] + '/prezerod.sock')
os.chmod(sys.argv[1] + '/prezerod.sock', 0o777)
door.listen(8)
print(flush=True)
while True:
    peer, _ = door.accept()
    frame = peer.recv(200)
    if len(frame) < 8:
        continue
    tag = struct.unpack_from('<I', frame, 4)[0]
    peer.send(struct.pack('<2sBBIII', b'PZ', 1, 130, tag, 5, 5) + b'FALSE')
";

const C_CLIENT: &str = "
#define _GNU_SOURCE
#include <prezero_lease.h>
int main(void)
{
    struct prezero_lease lease;
    int broker = prezero_connect(NULL);
    if (broker < 0)
        return perror(\"connect\"), 1;
    prezero_lease(broker, 1 << 21, PREZERO_2M, -1, 0, &lease);
    return puts(lease.text), 0;
}
";

/// A broker that is stopped takes connections, and answers nothing.
#[test]
fn no_client_waits_without_end_for_a_broker_that_is_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let (socket, program) = (dir.path().join("socket"), dir.path().join("client"));
    let kind = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let door = socket_with(kind.0, kind.1, SocketFlags::CLOEXEC, None).unwrap();
    bind(&door, &SocketAddrUnix::new(&socket).unwrap()).unwrap();
    listen(&door, 8).unwrap();
    let ends = |mut command: Command, what: &str| {
        let Ok(output) = command.env("PREZERO_SOCKET", &socket).output() else {
            return prezero_sys::tell!("skipped: {command:?}");
        };
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(text.contains("does not answer; is it stopped?"), "{what}: {text}");
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut python = Command::new(std::env::var("PYTHON").unwrap_or_else(|_| "python3".into()));
    python.arg("-c").arg(
        "import prezero_lease as p\nfor ask in ('lease(1 << 21, wait=0.1)', 'available()', 'log()'):\n \
         try: eval('p.Client(patience=0.1).' + ask)\n except TimeoutError as error: print(error)",
    );
    python.env("PYTHONPATH", root.join("bindings/python"));
    ends(python, "Python");
    std::fs::write(dir.path().join("client.c"), C_CLIENT).unwrap();
    let mut cc = Command::new("cc");
    cc.arg("-DPREZERO_PATIENCE_MS=100").arg("-I").arg(root.join("crates/prezerod/include"));
    cc.arg(dir.path().join("client.c")).arg("-o").arg(&program);
    match cc.output() {
        Ok(built) => {
            assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
            ends(Command::new(program), "C");
        }
        Err(_) => prezero_sys::tell!("skipped: the client in C needs cc"),
    }
}

/// Each client with its environment, in a mount namespace in which `/run` is empty, or has the directory of another user.
#[test]
fn every_client_takes_another_users_broker_only_by_its_name() {
    use std::io::Read;
    use std::os::unix::process::CommandExt;
    if !rustix::process::getuid().is_root() {
        return prezero_sys::tell!("skipped: only root becomes another user");
    }
    let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".into());
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let theirs = path("theirs");
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    std::fs::create_dir(&theirs).unwrap();
    std::os::unix::fs::chown(&theirs, Some(65534), Some(65534)).unwrap();
    let mut broker = Command::new(&python);
    broker
        .args(["-c", FALSE_BROKER])
        .arg(theirs.join("prezero"))
        .uid(65534)
        .gid(65534)
        .current_dir("/");
    let Ok(mut broker) = broker.stdout(std::process::Stdio::piped()).spawn() else {
        return prezero_sys::tell!("skipped: no {python}");
    };
    broker.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    // A directory of one's own in which another user's lies.
    std::fs::create_dir(path("own")).unwrap();
    std::os::unix::fs::symlink(theirs.join("prezero"), path("own/prezero")).unwrap();

    let prezero = env!("CARGO_BIN_EXE_prezero").to_owned();
    let script = "import prezero_lease; prezero_lease.Client().available()";
    let mut clients = vec![
        vec![prezero.clone(), "claim".into(), "2M".into()],
        vec![prezero.clone(), "stock".into()],
        vec![python, "-c".into(), script.into()],
    ];
    std::fs::write(path("client.c"), C_CLIENT).unwrap();
    let mut cc = Command::new("cc");
    cc.arg("-I")
        .arg(root.join("crates/prezerod/include"))
        .arg(path("client.c"))
        .arg("-o")
        .arg(path("c"));
    match cc.output() {
        Ok(built) => {
            assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
            clients.push(vec![path("c").display().to_string()]);
        }
        Err(_) => prezero_sys::tell!("skipped: the client in C needs cc"),
    }
    let mut go = Command::new("go");
    go.args(["test", "-c", "-o"])
        .arg(path("go"))
        .arg("./internal/broker")
        .current_dir(root.join("kubernetes"));
    match go.output() {
        Ok(built) if built.status.success() => {
            let test = "-test.run=TestTheBrokerThatAnotherTestStarted";
            clients.push(vec![path("go").display().to_string(), test.into(), "-test.v".into()]);
        }
        _ => prezero_sys::tell!("skipped: the client in Go needs go and its modules"),
    }
    // The variable that names a socket, whether `/run/prezero` is another user's, and whether a client takes that broker.
    let socket = theirs.join("prezero/prezerod.sock");
    for (variable, value, run, taken) in [
        ("PREZERO_SOCKET", &socket, "", true),
        ("XDG_RUNTIME_DIR", &theirs, "", false),
        ("XDG_RUNTIME_DIR", &path("own"), "", false),
        ("XDG_RUNTIME_DIR", &theirs, "theirs", false),
        ("NONE", &theirs, "theirs", false),
    ] {
        for client in &clients {
            let place = format!("ln -s {} /run/prezero;", theirs.join("prezero").display());
            let place = if run.is_empty() { "" } else { &place };
            let script = format!("mount -t tmpfs none /run; {place} exec \"$@\"");
            let mut command = Command::new("unshare");
            command.args(["-m", "sh", "-c", &script, "sh"]).args(client);
            for name in ["PREZERO_SOCKET", "XDG_RUNTIME_DIR"] {
                command.env_remove(name);
            }
            command.env(variable, value).env("PYTHONPATH", root.join("bindings/python"));
            let output = command.env("PYTHONDONTWRITEBYTECODE", "1").output().unwrap();
            let said = [output.stdout, output.stderr].concat();
            let said = String::from_utf8_lossy(&said);
            assert_eq!(said.contains("FALSE"), taken, "{client:?}, {variable} {run}: {said}");
            assert!(
                taken
                    || said.contains("65534")
                    || said.contains("ermission")
                    || said.contains("o such file"),
                "{said}"
            );
        }
    }
    broker.kill().unwrap();
    broker.wait().unwrap();
}
