//! The panel of a real scrubd: what a tool sees, and what it can ask for. One zone: a tool
//! finds a process, not a zone.
#![allow(unsafe_code)]

mod common;

use std::sync::atomic::Ordering::Relaxed;

use prezero::{Counter, internal};
use prezero_report::panel::{Panel, Reading};

use common::{BLOCK, config, until, use_and_free, zone};

fn knob<'a>(reading: &'a Reading, name: &str) -> &'a str {
    &reading.knobs.iter().find(|(each, _)| *each == name).unwrap().1
}

#[test]
fn figures_are_shown_and_knobs_are_turned() {
    let zone = zone(&config(256 << 20));
    let pid = std::process::id();
    assert!(prezero_sys::panel::of_process(pid).is_err(), "no scrubd, no panel");

    prezero::allow_scrubd(zone);
    until("scrubd clears", || {
        use_and_free(zone);
        zone.snapshot().get(Counter::ScrubbedBytes) > 0
    });
    let panel = until("a panel", || prezero_sys::panel::of_process(pid).ok().and_then(Panel::new));

    // The panel shows the zone's figures, soon.
    until("the figures agree", || {
        let (shown, zone) = (panel.read(), zone.snapshot());
        shown.number("frees") as u64 == zone.get(Counter::Frees)
            && shown.number("scrubbed_bytes") as u64 == zone.get(Counter::ScrubbedBytes)
            && shown.number("zone_bytes") as u64 == zone.gauges.zone_bytes
    });
    let shown = panel.read();
    assert_eq!(shown.pid, pid);
    assert!(shown.values.iter().any(|(name, ..)| name == "free_blocks_absent_9"));
    assert_eq!(shown.fact("trust"), "whole");
    assert_eq!(knob(&shown, "scrub-start"), "4");

    let ask = |request: &str| common::ask(zone, &panel, request);
    ask("set scrub-rate 8M").unwrap();
    ask("set verify full").unwrap();
    ask("set scrub-cache 1M").unwrap();
    ask("set scrub-start 2").unwrap();
    let shown = panel.read();
    assert_eq!([knob(&shown, "scrub-rate"), knob(&shown, "verify")], ["8M", "full"]);
    assert_eq!(knob(&shown, "scrub-start"), "2");
    assert!(ask("set limit 1G").unwrap_err().contains("when the process begins"));
    assert!(ask("set engine warp").unwrap_err().contains("no such clear engine"));
    assert!(ask("set colour red").unwrap_err().contains("no such knob"));
    assert!(ask("dance").unwrap_err().contains("no such request"));
    // Whatever is written into its words, it keeps what can be.
    let words = prezero_sys::panel::of_process(pid).unwrap();
    let knobs = &internal::panel::Panel::of(&words).knobs;
    let kept = |name| {
        let nth = internal::KNOBS.iter().position(|knob| knob.name == name).unwrap();
        knobs[nth].load(Relaxed)
    };
    let before = ["scrub-rate", "limit", "huge"].map(kept);
    for (knob, word) in internal::KNOBS.iter().zip(knobs) {
        word.store(if knob.name == "scrub-rate" { 1 } else { 1 << 40 }, Relaxed);
    }
    ask("release").unwrap();
    assert_eq!(["scrub-rate", "limit", "huge"].map(kept), before, "refused");
    assert_eq!([kept("scrub-start"), kept("verify")], [18, 2], "clamped");
    ask("set scrub-start 2").unwrap();

    // Turned, not only shown.
    let verified = zone.snapshot().get(Counter::VerifiedPages);
    ask("set scrub-rate off").unwrap();
    until("all that is handed out is verified", || {
        use_and_free(zone);
        zone.snapshot().get(Counter::VerifiedPages) > verified + u64::from(BLOCK)
    });
    ask("set scrub-start never").unwrap();
    let scrubbed = zone.snapshot().get(Counter::ScrubbedBytes);
    for _ in 0..5 {
        use_and_free(zone);
        let freed = zone.snapshot().get(Counter::Frees);
        until("scrubd has looked at that", || panel.read().number("frees") as u64 >= freed);
    }
    assert_eq!(zone.snapshot().get(Counter::ScrubbedBytes), scrubbed, "never is never");
    ask("set decay 1000").unwrap();
    use_and_free(zone);
    let released = zone.snapshot().get(Counter::ReleasedBytes);
    ask("release").unwrap();
    assert!(zone.snapshot().get(Counter::ReleasedBytes) > released);
}
