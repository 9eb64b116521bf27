//! Nobody who can stop it: a broker whose log cannot be written, and clients that mean harm.

mod common;

use std::fs::{File, OpenOptions};
use std::io::PipeReader;
use std::os::fd::OwnedFd;
use std::process::Stdio;

use common::{Daemon, until};
use prezerod::client::Client;
use prezerod::protocol::Page;
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
