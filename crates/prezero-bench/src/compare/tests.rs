//! What is found, and what is noise.

use super::*;
use serde_json::json;

fn run(median: f64, reversed: bool) -> Value {
    let cell = |allocator: &str, median: f64| {
        let ns = json!({"median": median, "p10": median * 0.95, "p90": median * 1.05,
                        "samples": vec![median; 25]});
        json!({"allocator": allocator, "ns": ns})
    };
    let mut results = vec![cell("glibc", 100.0), cell("prezero", median)];
    if reversed {
        results.reverse();
    }
    json!({"benchmark": "grid", "machine": {"cpu": "x"}, "modes": [
        {"mode": "idle", "cells": [{"bytes": 4096, "lines": 1, "results": results}]}
    ]})
}

#[test]
fn figures_are_found_by_what_they_are_of() {
    let report = compared(&run(50.0, false), &run(60.0, true), None);
    assert_eq!((report.compared, report.unmatched, report.changed.len()), (2, 0, 1));
    let change = &report.changed[0];
    assert_eq!(change.what, "idle / 4K lines 1 / prezero / ns");
    assert!((change.change - 0.2).abs() < 1e-9 && change.noise.unwrap() < 0.05, "{change:?}");
    assert!(report.render().contains("1 of 2 figures changed beyond noise (1 up, 0 down)"));
}

#[test]
fn what_lies_within_the_noise_is_no_change() {
    let report = compared(&run(50.0, false), &run(50.9, false), None);
    assert!(report.changed.is_empty(), "{report:?}");
    let only = compared(&run(50.0, false), &run(80.0, false), Some("glibc"));
    assert_eq!((only.compared, only.changed.len()), (1, 0));
}

#[test]
fn what_changed_with_what_prezero_has_no_part_in_is_noise() {
    let run = |of: &dyn Fn(usize) -> f64, prezero: f64| {
        let cell = |nth: usize| {
            let figure = |median: f64| {
                json!({"median": median, "p10": median * 0.99,
                                              "p90": median * 1.01, "samples": vec![median; 25]})
            };
            json!({"lines": nth, "results": [
                {"allocator": "glibc", "ns": figure(of(nth))},
                {"allocator": "prezero", "ns": figure(prezero)},
            ]})
        };
        json!({"benchmark": "grid", "cells": (1..=20).map(cell).collect::<Vec<_>>()})
    };
    let (still, drifted) = (|_: usize| 10.0, |nth: usize| 10.0 + nth as f64 / 10.0);
    // One of twenty may have changed by more.
    let report = compared(&run(&still, 5.0), &run(&drifted, 5.9), None);
    assert!((report.between["ns"] - 0.19).abs() < 1e-9, "{report:?}");
    assert!(report.changed.iter().all(|change| change.what.contains("glibc")), "{report:?}");
    assert!(report.changed.len() <= 1, "{report:?}");
    let report = compared(&run(&still, 5.0), &run(&drifted, 7.0), Some("prezero"));
    assert_eq!((report.compared, report.changed.len()), (20, 20));
    assert!(report.render().contains("95 % changed by less than 19.0 %"), "{}", report.render());
    // Where nothing else moved, little is much.
    let report = compared(&run(&still, 5.0), &run(&still, 5.2), Some("prezero"));
    assert_eq!(report.changed.len(), 20);
}

#[test]
fn too_few_others_say_nothing_of_noise_between_runs() {
    let report = compared(&run(50.0, false), &run(60.0, false), None);
    assert!(report.between.is_empty(), "{report:?}");
    assert!(report.render().starts_with("between the runs: nothing is known"));
}

#[test]
fn one_sample_says_nothing_of_noise() {
    let once = |median: f64| {
        json!({"benchmark": "seeds", "columns": [{"name": "user s"}, {"name": "flt/cpu/s"}],
            "rows": [{"level": "post", "labels": ["1", "yes"], "figures": [null, {"median": median}]}]})
    };
    let report = compared(&once(1.0), &once(2.0), None);
    assert_eq!((report.changed.len(), report.unknown.len()), (0, 1));
    assert_eq!(report.unknown[0].what, "post 1, yes / flt/cpu/s");
}

#[test]
fn pairs_are_told_by_their_names_and_the_lists_that_hold_them() {
    let run = |first: &str, second: &str| {
        let of = |way: &str, median: f64| json!([way, {"median": median, "p10": 0.9 * median, "p90": 1.1 * median}]);
        json!({"benchmark": "lease", "sizes": [{"bytes": 2 << 20,
            "ways": [of(first, 1.0), of(second, 9.0)], "cost_ms": [of(first, 5.0)]}]})
    };
    let report = compared(&run("own", "lease"), &run("lease", "thp"), None);
    // Neither by their places nor one list's with the other's.
    assert_eq!((report.compared, report.unmatched), (1, 4), "{report:?}");
    assert_eq!(report.changed[0].what, "2M / ways / lease");
}

#[test]
fn what_a_run_counted_is_no_name() {
    let run = |hit: u64| {
        json!({"benchmark": "waste", "patterns": [{"pattern": "steady",
            "bytes": {"hit": hit, "made": hit}, "load": {"chase": 4096}, "us": {"median": 1.0}}]})
    };
    let report = compared(&run(1), &run(2), None);
    assert_eq!((report.compared, report.unmatched), (1, 0), "{report:?}");
    assert_eq!(inside(&run(1)["patterns"], "")[0].0, "steady chase 4096");
}

#[test]
fn two_of_one_name_are_not_compared() {
    let row = |median: f64| json!({"program": "QEMU", "ms": {"median": median}});
    let run = json!({"benchmark": "start", "rows": [row(1.0), row(2.0)]});
    let report = compared(&run, &run, None);
    assert_eq!((report.compared, report.unmatched), (0, 2), "{report:?}");
}

#[test]
fn figures_have_four_digits() {
    let all = [0.0, 0.01234, 0.5, 12.3456, 1234.56, 1_234_567.0];
    assert_eq!(all.map(digits), ["0.000000000", "0.01234", "0.5000", "12.35", "1235", "1234567"]);
}
