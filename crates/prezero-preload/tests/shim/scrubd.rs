//! The thread that clears, beside what the program does.

use std::process::Stdio;
use std::time::Duration;

use prezero_core::panel::{Panel, Refusal};

use crate::run::{compile, describe, run_c, shimmed, text, until};

/// `BLOCKS` of `scrubd_chores.c`, which pauses for 2 ms in each round and loads the library in the hundredth.
const BLOCKS_A_ROUND: u32 = 24;

/// In debug builds the library ends a program whose scrubd calls a function of the malloc family, be it by
/// way of libc.
#[test]
fn scrubd_does_all_its_work_without_libcs_heap() {
    let locals = compile("scrubd_chores_library.c", &["-shared", "-fPIC"]);
    let mut program = shimmed(compile("scrubd_chores.c", &[]));
    program.arg(locals).env("PREZERO_DECAY", "300");
    program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = program.spawn().expect("it starts");
    // `timeout` stands before the program.
    let children = format!("/proc/{0}/task/{0}/children", child.id());
    let panel = until("a panel", || {
        let own = std::fs::read_to_string(&children).unwrap_or_default();
        let found =
            own.trim().parse().ok().and_then(|pid| prezero_sys::panel::of_process(pid).ok());
        found.and_then(Panel::new)
    });
    let ask = |request: &str| {
        let answer = until(request, || match panel.ask(request, Duration::from_millis(500)) {
            Err(Refusal::Pending | Refusal::Busy(_)) => None,
            answer => Some(answer),
        });
        answer.unwrap_or_else(|refusal| panic!("{request}: {refusal}"));
    };
    let reaches = |name: &str, least: f64| {
        until(name, || panel.read().number(name) >= least);
    };
    reaches("scrubbed_bytes", f64::from(64 << 20));
    for request in ["set scrub-cache 1M", "set verify sample", "set scrub-rate 9G", "drain"] {
        ask(request);
        ask("release");
    }
    // Past the round in which the library comes, and for longer than memory may lie idle.
    reaches("frees", panel.read().number("frees") + f64::from(200 * BLOCKS_A_ROUND));
    assert!(panel.read().number("released_bytes") > 0.0);
    drop(child.stdin.take());
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", describe(&output));
    assert_eq!((text(&output.stdout).as_str(), text(&output.stderr).as_str()), ("good\n", ""));
}

#[test]
fn scrubd_lives_through_no_change_of_user_namespace_or_root() {
    assert_eq!(run_c("scrubd_rights.c"), "good\n");
}
