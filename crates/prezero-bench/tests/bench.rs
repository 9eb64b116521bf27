//! `prezero bench` end to end: small grids on real workers.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn bench(arguments: &[&str]) -> Output {
    loaded("0.1", arguments)
}

/// On a machine with that load before.
fn loaded(load: &str, arguments: &[&str]) -> Output {
    let mut bench = Command::new(env!("CARGO_BIN_EXE_prezero-bench"));
    bench.env("PREZERO_BENCH_LOAD", load).args(arguments).output().unwrap()
}

fn report(arguments: &[&str]) -> Value {
    let output = bench(&[arguments, &["--json"]].concat());
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["machine"]["cpus"].as_u64().unwrap() > 0 && report["complete"] == true);
    report
}

/// The figures of a sheet that one allocator has of that name.
fn figures<'a>(report: &'a Value, sheet: usize, who: &str, name: &str) -> Vec<&'a Value> {
    let all = report["sheets"][sheet]["figures"].as_array().unwrap().iter();
    let found: Vec<_> = all.filter(|each| each["who"] == who && each["name"] == name).collect();
    assert!(found.iter().all(|each| each["value"].as_f64() > Some(0.0)), "{found:?}");
    found
}

fn samples(figure: &Value) -> Vec<f64> {
    figure["samples"].as_array().unwrap().iter().filter_map(Value::as_f64).collect()
}

#[test]
fn a_small_grid_has_every_cell_with_enough_samples() {
    let peers = ["--peers", "glibc,glibc-keep", "--passes-s", "1"];
    let cells = ["grid", "--idle", "off", "--sizes", "64K,128K", "--lines", "1,64"];
    let report = report(&[&cells[..], &peers].concat());

    for who in ["glibc", "glibc-keep", "limit"] {
        let cells = figures(&report, 0, who, "round");
        let of: Vec<_> = cells.iter().map(|each| each["of"].to_string()).collect();
        let all = ["[\"64K\",\"1\"]", "[\"64K\",\"64\"]", "[\"128K\",\"1\"]", "[\"128K\",\"64\"]"];
        assert_eq!(of, all, "{who}");
        assert!(cells.iter().all(|each| samples(each).len() >= 15), "{who}");
    }
    assert_eq!(figures(&report, 1, "glibc", "user").len(), 1, "{}", report["sheets"][1]);
}

#[test]
fn pairs_are_counted_for_every_thread_and_ring() {
    let cells = ["pair", "--runs", "9", "--threads", "1,3", "--ring", "2", "--peers", "glibc"];
    let report = report(&cells);

    let of = |sheet: usize| {
        let cells = figures(&report, sheet, "glibc", "wall");
        assert!(cells.iter().all(|each| samples(each).len() == 9));
        cells.iter().map(|each| each["of"][1].as_str().unwrap().to_string()).collect::<Vec<_>>()
    };
    assert_eq!((of(0), of(1)), (vec!["1".into(), "3".into()], vec!["2".to_string()]));
}

#[test]
fn a_pattern_is_played_and_told_burst_by_burst() {
    let report = report(&["waste", "--only", "never", "--times", "0.1", "--peers", "glibc"]);

    let bursts = figures(&report, 0, "glibc", "burst");
    assert_eq!((bursts.len(), bursts[0]["of"][0].as_str()), (1, Some("never")));
    assert_eq!(figures(&report, 0, "glibc", "CPU").len(), 1);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/waste.py");
    assert!(Command::new("python3").args([script, "--test"]).status().unwrap().success());
}

#[test]
fn requests_to_a_fleet_are_played_under_each_rule() {
    let day = report(&["fleet", "--hosts", "2", "--days", "1", "--only", "hourly"]);
    let hits = figures(&day, 0, "prezerod", "hits");
    assert_eq!((hits.len(), hits[0]["of"][0].as_str()), (1, Some("hourly")));
    assert!(hits[0]["value"].as_f64() > Some(90.0), "{hits:?}");
    assert_eq!(figures(&day, 0, "most in 10 s", "idle").len(), 1);

    let file = std::env::temp_dir().join(format!("prezero-trace-{}.csv", std::process::id()));
    let row = |nth: u64| format!("host-{},{},2G\n", nth % 2, 60 * (nth + 1));
    let rows: String = (0..200).map(row).collect();
    std::fs::write(&file, format!("host,seconds,size\n{rows}")).unwrap();
    let trace = report(&["fleet", "--stocked", "1", "--trace", file.to_str().unwrap()]);
    std::fs::remove_file(&file).unwrap();
    assert_eq!(figures(&trace, 0, "prezerod", "hits")[0]["value"], 100.0, "one is kept");
    assert_eq!(figures(&trace, 0, "one of each", "idle")[0]["of"][0], "trace");
}

#[test]
fn a_real_program_is_measured_from_outside() {
    let report =
        report(&["real", "--only", "sort", "--runs", "1", "--text-mib", "1", "--peers", "glibc"]);

    for name in ["wall", "peak", "CPU"] {
        assert_eq!(figures(&report, 0, "glibc", name).len(), 1, "{name}");
    }
}

#[test]
fn a_guest_is_restored_in_each_way_that_needs_no_pool() {
    if !Path::new(env!("CARGO_BIN_EXE_prezero-bench")).with_file_name("prezerod").exists() {
        return println!("left out: restores: prezerod is not built");
    }
    let image = ["--sizes", "32M", "--zero", "50", "--cache", "warm", "--runs", "1"];
    let report = report(&[&["restore"], &image[..]].concat());

    for way in ["map", "populate", "read", "sparse", "daemon", "lazy", "uffd"] {
        assert_eq!(figures(&report, 0, way, "answer").len(), 1, "{way}");
        assert_eq!(figures(&report, 0, way, "own").len(), 1, "{way}");
    }
}

#[test]
fn a_module_that_is_missing_leaves_its_row_out_and_a_wrong_sum_is_told() {
    let file = std::env::temp_dir().join(format!("prezero-python-{}", std::process::id()));
    // It stands in for a Python without PyTorch, and prints this sum.
    let says = |sum: &str| {
        let text = format!(
            "#!/bin/sh\ncase \"$*\" in '-c import torch') exit 1;; -c*) exit 0;; esac\n\
             echo '{{\"ms\": 2, \"cpu_ms\": 3, \"faults\": 4, \"checksum\": '{sum}'}}'\n"
        );
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .unwrap();
        [
            "real",
            "--only",
            "cnn,join",
            "--runs",
            "1",
            "--peers",
            "glibc,glibc-keep",
            "--python",
            file.to_str().unwrap(),
        ]
    };
    let whole = report(&says("1"));
    assert_eq!(figures(&whole, 0, "glibc-keep", "CPU")[0]["value"], 3.0);
    assert_eq!(figures(&whole, 0, "glibc", "round").len(), 1, "cnn is left out");
    assert!(
        whole["notes"][0].as_str().unwrap().starts_with("left out: cnn: "),
        "{}",
        whole["notes"]
    );
    let output = bench(&says("${MALLOC_TRIM_THRESHOLD_:+2}1"));
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(
        !output.status.success() && told.contains("join: another checksum under glibc-keep"),
        "{told}"
    );
    std::fs::remove_file(file).unwrap();
}

#[test]
fn mistakes_are_refused_in_one_line() {
    for (arguments, line) in [
        (&["grid", "--runs", "3"][..], "prezero: bench: --runs 3: too few; give 15 or more"),
        (&["disturb", "--rounds", "2"], "prezero: bench: --rounds 2: too few; give 5 or more"),
        (&["disturb", "--seconds", "60"], "prezero: bench: --seconds 60: give 0.05 to 10"),
        (
            &["disturb", "--scenes", "all"],
            "prezero: bench: disturb: invalid value 'all' for '--scenes",
        ),
        (&["grid", "--peers", "hoard"], "prezero: bench: --peers hoard: no such peer"),
        (&["grid", "--sizes", "5"], "prezero: bench: grid: invalid value '5' for '--sizes"),
        (&["pair", "--runs", "3"], "prezero: bench: --runs 3: too few; give 9 or more"),
        (&["pair", "--threads", "0"], "prezero: bench: pair: invalid value '0' for '--threads"),
        (&["grid", "--idle", "maybe"], "prezero: bench: grid: invalid value 'maybe' for '--idle"),
        (&["waste", "--only", "often"], "prezero: bench: --only often: no such row"),
        (&["waste", "--times", "0"], "prezero: bench: waste: invalid value '0' for '--times"),
        (&["fleet", "--only", "often"], "prezero: bench: --only often: no such pattern"),
        (&["fleet", "--hosts", "0"], "prezero: bench: --hosts 0: give 1 to 1000000"),
        (&["fleet", "--trace", "/dev/null"], "prezero: bench: --trace /dev/null: line 1 names"),
        (&["plan", "--goal", "101"], "prezero: bench: --goal 101: give 0 to 100"),
        (&["plan", "--room", "1G"], "prezero: bench: --room 1G: give the size of a start"),
        (&["plan", "--all", "0"], "prezero: bench: --all: give 1 to 1000000"),
        (&["real", "--only", "doom"], "prezero: bench: --only doom: no such row"),
        (&["real", "--runs", "0"], "prezero: bench: --runs 0: nothing to measure"),
        (&["numpy", "--python", "/bin/false"], "prezero: bench: --python /bin/false: "),
    ] {
        let output = bench(arguments);
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(told.starts_with(line) && told.lines().count() == 1, "{told}");
    }
}

#[test]
fn a_program_of_ours_says_its_figures_in_each_way() {
    let report = report(&["small", "--runs", "2"]);

    let rounds = figures(&report, 0, "glibc", "round");
    let of: Vec<_> = rounds.iter().map(|each| each["of"].to_string()).collect();
    assert_eq!(of, ["[\"1\",\"4\"]", "[\"6\",\"4\"]", "[\"20\",\"16\"]", "[\"1\",\"0\"]"]);
    assert!(rounds.iter().all(|each| samples(each).len() == 2));
}

#[test]
fn all_mechanisms_are_told_and_none_is_measured() {
    let report = report(&["ablate", "--plan"]);

    let notes = report["notes"].as_array().unwrap();
    assert!(notes.len() > 5 && report["sheets"].as_array().unwrap().is_empty());
}

#[test]
fn figures_are_kept_and_indexed() {
    let folder = std::env::temp_dir().join(format!("prezero-kept-{}", std::process::id()));
    let folder = folder.to_str().unwrap();
    std::fs::create_dir_all(folder).unwrap();
    let file = format!("{folder}.json");
    let taken = bench(&["ablate", "--plan", "--json", &file]);
    assert!(taken.status.success(), "{taken:?}");

    let keep = bench(&["results", "--folder", folder, "--commit", "abc1234", &file]);
    assert!(keep.status.success(), "{keep:?}");
    let index = std::fs::read_to_string(format!("{folder}/README.md")).unwrap();
    assert!(index.contains("### ablate: ") && index.contains("[abc1234]("), "{index}");
    let check = || bench(&["results", "--folder", folder, "--check"]);
    assert!(check().status.success());

    let before = bench(&["busy", "--only", "nothing", "--keep", folder]);
    assert_eq!(before.status.code(), Some(2), "a quiet machine measures: {before:?}");
    let before = loaded("0.6", &["ablate", "--plan", "--keep", folder]);
    assert_eq!(
        before.status.code(),
        Some(2),
        "a busy machine measures what is not kept: {before:?}"
    );
    let taken = loaded("0.6", &["ablate", "--plan", "--json", &file]);
    assert!(taken.status.success(), "{taken:?}");
    let keep = bench(&["results", "--folder", folder, "--commit", "def5678", &file]);
    assert_eq!(keep.status.code(), Some(1), "what has no verdict is kept: {keep:?}");
    assert!(check().status.success(), "the refused file has changed something");

    std::fs::write(format!("{folder}/README.md"), "something else").unwrap();
    assert_eq!(check().status.code(), Some(1));
    let own = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/results");
    let told = bench(&["results", "--folder", own, "--check"]);
    assert!(told.status.success(), "the repository's: {told:?}");
    std::fs::remove_dir_all(folder).unwrap();
    std::fs::remove_file(file).unwrap();
}
