//! A scrubd that ends for a call, and the next: the zone goes on, and so does its panel. One zone: a
//! tool finds a process, not a zone.
#![allow(unsafe_code)]

mod common;

use prezero::internal::Change;
use prezero::{Counter, Verify};
use prezero_report::panel::Panel;

use common::{ask, config, until, use_and_free, zone};

/// The threads of that name.
fn scrubds() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm"));
    tasks.filter_map(|task| name(task).ok()).filter(|it| it == "scrubd\n").count()
}

#[test]
fn no_scrubd_lives_through_a_call_and_the_next_goes_on() {
    let mut config = config(256 << 20);
    config.verify = Verify::Full;
    let zone = zone(&config);
    let pid = std::process::id();
    assert_eq!(zone.without_scrubd(Change::Rights, || 1), 1, "none was there");
    prezero::allow_scrubd(zone);

    for (round, change) in [Change::Rights, Change::View, Change::Rights].into_iter().enumerate() {
        let scrubbed = zone.snapshot().get(Counter::ScrubbedBytes);
        let panel = until("a scrubd that clears, and its panel", || {
            use_and_free(zone);
            let clears = zone.snapshot().get(Counter::ScrubbedBytes) > scrubbed;
            prezero_sys::panel::of_process(pid).ok().and_then(Panel::new).filter(|_| clears)
        });
        let knobs = panel.read().knobs;
        let rate = knobs.iter().find(|(name, _)| *name == "scrub-rate").unwrap().1.as_str();
        assert_eq!(rate, if round == 0 { "off" } else { "9G" }, "a knob stays as it was turned");
        ask(zone, &panel, "set scrub-rate 9G").unwrap();

        zone.without_scrubd(change, || {
            assert_eq!(scrubds(), 0);
            use_and_free(zone);
            assert_eq!(scrubds(), 0, "none is born meanwhile");
            // Inside of another, as in a handler.
            zone.without_scrubd(Change::Rights, || assert_eq!(scrubds(), 0));
            assert_eq!(scrubds(), 0);
        });

        assert!(panel.is_over() && panel.read().number("frees") > 0.0);
    }
    assert_eq!(zone.snapshot().get(Counter::VerifyFailures), 0);
}
