//! Words of others on the terminal: each command that shows a broker's escapes what commands a terminal, turns or hides text.

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
