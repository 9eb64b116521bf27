//! `prezero bench` end to end: small grids on real workers.

use std::process::{Command, Output};

fn bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_prezero-bench")).args(arguments).output().unwrap()
}

#[test]
fn a_small_grid_has_every_cell_with_enough_samples() {
    let output = bench(&[
        "grid",
        "--json",
        "--idle",
        "off",
        "--sizes",
        "64K,128K",
        "--lines",
        "1,64",
        "--peers",
        "glibc,glibc-keep",
        "--passes-s",
        "1",
    ]);
    assert!(output.status.success(), "{output:?}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();

    let cells = report["modes"][0]["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 4);
    for cell in cells {
        for result in cell["results"].as_array().unwrap() {
            assert!(result["ns"]["samples"].as_array().unwrap().len() >= 15, "{result}");
            assert!(result["ns"]["median"].as_f64().unwrap() > 0.0, "{result}");
        }
        let keep = &cell["results"][1];
        assert_eq!(keep["allocator"], "glibc-keep");
        assert!(keep["faults_per_round"].as_f64().unwrap() < 0.1, "it keeps: {keep}");
    }
    assert!(report["machine"]["cpus"].as_u64().unwrap() > 0);
}

#[test]
fn pairs_are_counted_for_every_thread_and_ring() {
    let output = bench(&[
        "pair",
        "--json",
        "--runs",
        "9",
        "--threads",
        "1,3",
        "--ring",
        "2",
        "--peers",
        "glibc",
    ]);
    assert!(output.status.success(), "{output:?}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();

    let cells = report["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 3);
    assert_eq!((&cells[1]["threads"], &cells[2]["ring"]), (&3.into(), &2.into()));
    for result in cells.iter().flat_map(|cell| cell["results"].as_array().unwrap()) {
        assert_eq!(result["ns"]["samples"].as_array().unwrap().len(), 9, "{result}");
        assert!(result["pairs_per_s"].as_f64().unwrap() > 0.0, "{result}");
    }
}

#[test]
fn a_pattern_is_played_and_told_burst_by_burst() {
    let output =
        bench(&["waste", "--only", "never", "--times", "0.1", "--peers", "glibc", "--json"]);
    assert!(output.status.success(), "{output:?}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();

    let played = &report["patterns"][0];
    assert_eq!(played["pattern"], "never");
    let glibc = &played["phases"][0]["times"][0];
    assert!(glibc["allocator"] == "glibc" && glibc["us"]["median"].as_f64() > Some(0.0), "{glibc}");
    assert!(played["costs"][0]["cpu_s"].as_f64() > Some(0.0), "{played}");
}

#[test]
fn a_real_program_is_measured_from_outside() {
    let arguments =
        ["real", "--only", "sort", "--runs", "1", "--text-mib", "1", "--peers", "glibc"];
    let output = bench(&[&arguments[..], &["--json"]].concat());
    assert!(output.status.success(), "{output:?}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();

    let glibc = &report["programs"][0]["results"][0];
    assert_eq!(glibc["allocator"], "glibc");
    for figure in ["wall_s", "cpu_s", "rss_mib"] {
        assert!(glibc[figure]["median"].as_f64() > Some(0.0), "{figure}: {glibc}");
    }
}

#[test]
fn a_later_run_of_a_real_program_goes_on_from_an_earlier_one() {
    let file = std::env::temp_dir().join(format!("prezero-onto-{}.json", std::process::id()));
    let file = file.to_str().unwrap();
    let run = |arguments: &[&str]| {
        let common = ["real", "--runs", "2", "--text-mib", "1", "--pairs-s", "0", "--json", file];
        bench(&[&common[..], arguments].concat())
    };
    let first = run(&["--only", "sort,ripgrep", "--peers", "glibc"]);
    assert!(first.status.success(), "{first:?}");
    let read =
        || -> serde_json::Value { serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap() };
    let before = read();
    let second = run(&["--only", "sort", "--peers", "glibc", "--onto", file]);
    assert!(second.status.success(), "{second:?}");
    let after = read();

    let walls = |report: &serde_json::Value, program: usize| {
        report["programs"][program]["results"][0]["wall_s"]["samples"].as_array().unwrap().clone()
    };
    assert_eq!(walls(&before, 0).len(), 2);
    assert_eq!(walls(&after, 0)[..2], walls(&before, 0));
    assert_eq!(walls(&after, 0).len(), 4);
    assert_eq!(after["programs"][1], before["programs"][1], "not asked for: as it was");
    assert_eq!(after["runs"], 4);

    let others = run(&["--only", "sort", "--peers", "glibc-keep", "--onto", file]);
    let told = String::from_utf8(others.stderr).unwrap();
    assert_eq!(others.status.code(), Some(1), "{told}");
    let line = format!("prezero: bench: --onto {file}: taken with other peers; ");
    assert!(told.starts_with(&line) && told.lines().count() == 1, "{told}");
    assert_eq!(read(), after, "and the file is as it was");
    std::fs::remove_file(file).unwrap();
}

#[test]
fn mistakes_are_refused_in_one_line() {
    for (arguments, status, line) in [
        (&["grid", "--runs", "3"][..], 1, "prezero: bench: --runs 3: too few; give 15 or more"),
        (&["disturb", "--rounds", "2"], 1, "prezero: bench: --rounds 2: too few; give 5 or more"),
        (&["disturb", "--seconds", "60"], 1, "prezero: bench: --seconds 60: give 0.05 to 10"),
        (
            &["disturb", "--scenes", "all"],
            2,
            "prezero: bench: disturb: invalid value 'all' for '--scenes",
        ),
        (&["grid", "--peers", "hoard"], 1, "prezero: bench: --peers hoard: no such peer"),
        (&["grid", "--sizes", "5"], 2, "prezero: bench: grid: invalid value '5' for '--sizes"),
        (&["pair", "--runs", "3"], 1, "prezero: bench: --runs 3: too few; give 9 or more"),
        (&["pair", "--threads", "0"], 2, "prezero: bench: pair: invalid value '0' for '--threads"),
        (
            &["grid", "--idle", "maybe"],
            2,
            "prezero: bench: grid: invalid value 'maybe' for '--idle",
        ),
        (&["waste", "--only", "often"], 1, "prezero: bench: --only often: no such pattern"),
        (&["waste", "--times", "0"], 1, "prezero: bench: --times 0: give 0.05 to 100"),
        (&["real", "--only", "doom"], 1, "prezero: bench: --only doom: no such program"),
        (&["real", "--runs", "0"], 1, "prezero: bench: --runs 0: nothing to measure"),
        (&["numpy", "--python", "/bin/false"], 1, "prezero: bench: --python /bin/false: "),
    ] {
        let output = bench(arguments);
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "{told}");
        assert!(told.starts_with(line) && told.lines().count() == 1, "{told}");
    }
}
