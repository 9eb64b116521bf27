//! scrubd does nothing that libc needs a lock for: in debug builds the library ends a program whose
//! scrubd calls a function of the malloc family, be it by way of libc.

use std::process::Stdio;
use std::time::{Duration, Instant};

use prezero_core::panel::{Panel, Refusal};

mod common;
use common::{compile, describe, shimmed, text};

const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn scrubd_does_all_its_work_without_libcs_heap() {
    let locals = compile("locals.c", &["-shared", "-fPIC"]);
    let mut program = shimmed(compile("chores.c", &[]));
    program.arg(locals).env("PREZERO_DECAY", "300");
    program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = program.spawn().expect("it starts");
    let began = Instant::now();
    // `timeout` stands before the program.
    let children = format!("/proc/{0}/task/{0}/children", child.id());
    let panel = loop {
        let own = std::fs::read_to_string(&children).unwrap_or_default();
        let found =
            own.trim().parse().ok().and_then(|pid| prezero_sys::panel::of_process(pid).ok());
        if let Some(panel) = found.and_then(Panel::new) {
            break panel;
        }
        assert!(began.elapsed() < PATIENCE, "a panel");
        std::thread::sleep(Duration::from_millis(2));
    };
    let ask = |request: &str| {
        let began = Instant::now();
        while let Err(refusal) = panel.ask(request, Duration::from_millis(500)) {
            let waits = matches!(refusal, Refusal::Pending | Refusal::Busy(_));
            assert!(waits && began.elapsed() < PATIENCE, "{request}: {refusal}");
        }
    };
    while panel.read().number("scrubbed_bytes") < f64::from(64 << 20) {
        assert!(began.elapsed() < PATIENCE, "something is cleared");
        std::thread::sleep(Duration::from_millis(10));
    }
    for request in ["set scrub-cache 1M", "set verify sample", "set scrub-rate 9G", "drain"] {
        ask(request);
        ask("release");
    }
    std::thread::sleep(Duration::from_millis(500));
    let released = panel.read().number("released_bytes");
    drop(child.stdin.take());
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", describe(&output));
    assert_eq!((text(&output.stdout).as_str(), text(&output.stderr).as_str()), ("good\n", ""));
    assert!(released > 0.0);
}
