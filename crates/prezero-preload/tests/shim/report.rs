//! The account at the end: which process writes it, where, and that it is written once.

use std::path::PathBuf;
use std::process::{Command, Output};

use crate::run::{HERE, bare, compile, describe, ends, shim, shimmed, text};

/// Runs a command as `prezero run` does: `PREZERO_PID` names the process that reports.
fn started(arguments: &str, stats: &str) -> Output {
    runs(compile("start_main.c", &[]), arguments, stats)
}

fn runs(program: PathBuf, arguments: &str, stats: &str) -> Output {
    let mut command: Command = bare("sh");
    command
        .arg("-c")
        .arg(format!("PREZERO_PID=$$ LD_PRELOAD=$SHIM exec $PROGRAM {arguments}"))
        .env("SHIM", shim())
        .env("PROGRAM", program)
        .env("PREZERO_STATS", stats)
        .current_dir(HERE);
    ends(&mut command)
}

fn summaries(output: &Output) -> usize {
    // However many lines it has, only its first can be the one about requests.
    let lines = text(&output.stderr);
    lines.lines().filter(|line| line.contains(" for zeroed memory")).count()
}

#[test]
fn summary_is_written_once_by_the_process_that_was_started() {
    for (how, code) in [("", 0), ("_exit", 7), ("quick_exit", 8), ("fork", 0)] {
        let output = started(how, "summary");
        assert_eq!(output.status.code(), Some(code), "{how}: {}", describe(&output));
        assert_eq!(summaries(&output), 1, "{how}: {}", describe(&output));
        assert_eq!(text(&output.stdout), "zone\n");
    }
}

#[test]
fn no_report_without_prezero_run_or_when_turned_off() {
    let output = ends(&mut shimmed(compile("start_main.c", &[])));
    assert_eq!(text(&output.stderr), "", "nobody was named to report");
    assert_eq!(text(&started("", "off").stderr), "");
}

#[test]
fn floats_of_the_program_are_left_alone() {
    for (traps, stats) in [("traps", "summary"), ("traps", "-"), ("flags", "summary")] {
        let output = runs(compile("report_floats.c", &["-Wl,--no-as-needed", "-lm"]), traps, stats);
        assert_eq!(text(&output.stdout), "good\n", "{traps}: {}", describe(&output));
        assert!(
            output.status.success() && text(&output.stderr).len() > 100,
            "{traps}: {}",
            describe(&output)
        );
    }
}

#[test]
fn dash_prints_every_counter() {
    let lines = text(&started("", "-").stderr);
    for name in ["zero_requests", "scrubbed_bytes", "verify_failures"] {
        assert!(lines.contains(name), "{name} in {lines}");
    }
}

#[test]
fn file_gets_json_and_a_bad_path_gets_a_line() {
    let path =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{}.json", std::process::id()));
    let output = started("", path.to_str().expect("a path in UTF-8"));
    assert_eq!(text(&output.stderr), "", "{}", describe(&output));
    let json = std::fs::read_to_string(&path).expect("the file was written");
    assert!(json.starts_with("{\"") && json.ends_with("}\n"), "{json}");
    assert!(json.contains("\"zero_requests\":1,"), "{json}");
    std::fs::remove_file(path).expect("the file is ours");

    // The second is a disk that is full.
    for path in ["/nowhere/at/all.json", "/dev/full"] {
        let output = started("", path);
        assert!(output.status.success(), "{}", describe(&output));
        let line = text(&output.stderr);
        assert!(line.starts_with(&format!("prezero: PREZERO_STATS={path}: ")), "{line}");
        assert_eq!(line.lines().count(), 1, "{line}");
    }
}

#[test]
fn each_process_with_a_zone_writes_a_file_of_its_own_if_the_name_has_its_number() {
    let folder =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-each", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder to write to");
    let output = started("fork", folder.join("of-%p.json").to_str().expect("a path in UTF-8"));
    assert_eq!(text(&output.stderr), "", "{}", describe(&output));
    let files = std::fs::read_dir(&folder).expect("it was made");
    let names: Vec<_> = files.map(|file| file.expect("it is readable").file_name()).collect();
    std::fs::remove_dir_all(&folder).expect("the folder is ours");
    let number = |name: &std::ffi::OsString| {
        let name = name.to_string_lossy();
        name.strip_prefix("of-")?.strip_suffix(".json")?.parse::<u32>().ok()
    };
    assert_eq!(names.iter().filter_map(number).count(), 2, "parent and fork: {names:?}");
}

#[test]
fn children_in_the_same_memory_are_counted_with_their_parent_and_once() {
    let program = compile("report_shared.c", &[]);
    let ways = ["vfork", "exec", "spawn", "shared", "beside", "thread"];
    for (way, as_root) in ways.iter().flat_map(|way| [(way, true), (way, false)]) {
        let begin = if as_root { "exec $PROGRAM $WAY" } else { "$PROGRAM $WAY; exit 0" };
        let mut command: Command = bare("sh");
        let script = "PREZERO_PID=$$ LD_PRELOAD=$SHIM exec sh -c \"$BEGIN\"";
        command.args(["-c", script]).env("BEGIN", begin).env("WAY", way).env("PROGRAM", &program);
        let tree = format!("/dev/shm/prezero-tree-test-{}-{way}-{as_root}", std::process::id());
        command.env("SHIM", shim()).env("PREZERO_STATS", "-").env("PREZERO_TREE", tree);
        let output = ends(&mut command);
        assert!(output.status.success(), "{way}: {}", describe(&output));
        let said = text(&output.stdout);
        let lines = text(&output.stderr);
        let mut words = lines.split_whitespace().skip_while(|word| *word != "zero_requests");
        let counted = words.nth(1);
        assert_eq!(counted, Some(said.trim()), "{way}, {as_root}: {lines}");
    }
}

/// The tree of `report_tree.c` behind a shell, as `prezero run -- ./start.sh` starts it.
fn tree(stats: &str, before: &str) -> (Output, PathBuf) {
    let file = PathBuf::from(format!("/dev/shm/prezero-tree-test-{}-{before}", std::process::id()));
    let script = "PREZERO_PID=$$ LD_PRELOAD=$SHIM exec sh -c '$PROGRAM; $PROGRAM ends; exit 0'";
    let mut command: Command = bare("sh");
    command
        .args(["-c", script])
        .env("SHIM", shim())
        .env("PROGRAM", compile("report_tree.c", &[]))
        .env("PREZERO_STATS", stats)
        .env("PREZERO_TREE", &file);
    (ends(&mut command), file)
}

#[test]
fn children_are_counted_whatever_their_end() {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-t", std::process::id()));
    let (output, file) = tree(path.to_str().expect("a path in UTF-8"), "file");
    assert!(output.status.success(), "{}", describe(&output));
    assert_eq!(text(&output.stderr), "", "{}", describe(&output));
    assert!(!file.exists(), "it is removed when it was read");
    let json = std::fs::read_to_string(&path).expect("the file was written");
    std::fs::remove_file(path).expect("the file is ours");
    let value = |name: &str| {
        let at = json.find(&format!("\"{name}\":")).unwrap_or_else(|| panic!("{name}: {json}"));
        let rest = &json[at + name.len() + 3..];
        rest.split([',', '}']).next().unwrap().parse::<u64>().unwrap()
    };
    // What ends, closes all, and is forked: 1 + 3 + 2 x 4 + 1 + 1; the one that is killed may have told.
    assert!((6..=7).contains(&value("zero_requests")), "{json}");
    assert_eq!(value("count"), 5 + value("zero_requests") - 6, "{json}");
    assert_eq!((value("cut_short"), value("running")), (1, 0), "{json}");
    let first = json.split("\"largest\":[").nth(1).and_then(|rest| rest.split('}').next());
    let first = first.expect("the largest");
    assert!(first.contains("\"requested_bytes\":8388608"), "{first}");
    assert!(first.contains("\"name\":\"report_tree"), "{first}");
}

#[test]
fn the_summary_tells_of_the_tree_in_one_line_and_a_killed_run_leaves_no_trap() {
    let (output, file) = tree("summary", "summary");
    let lines = text(&output.stderr);
    assert_eq!(lines.matches("prezero: in all of ").count(), 1, "{lines}");
    assert!(lines.contains("the largest: report_tree") && lines.contains("8.0 MiB"), "{lines}");
    assert!(lines.contains("1 ended without a last word"), "{lines}");
    // A file that is no tree is left alone.
    std::fs::write(&file, vec![b'x'; 1 << 20]).expect("a place for it");
    let (output, file) = tree("summary", "summary");
    assert!(output.status.success() && !text(&output.stderr).contains("in all of"));
    let _ = std::fs::remove_file(file);
}

#[test]
fn nothing_is_written_to_a_descriptor_that_became_another_file() {
    let program = compile("report_reused.c", &[]);
    let data =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{}.db", std::process::id()));
    let end = |how: &str, start: &str, threshold: &str| {
        let mut command: Command = bare("sh");
        command
            .arg("-c")
            // As `prezero run` does it.
            .arg(format!(
                "exec {start}; export PREZERO_STDERR=$(stat -L -c %d:%i /proc/$$/fd/2 || echo closed);
                 PREZERO_PID=$$ LD_PRELOAD=$SHIM exec $PROGRAM {how} $DATA"
            ))
            .env("SHIM", shim())
            .env("PROGRAM", &program)
            .env("DATA", &data)
            .env("PREZERO_STATS", "summary")
            .env("PREZERO_VERIFY", "full")
            .env("PREZERO_THRESHOLD", threshold);
        let output = ends(&mut command);
        assert!(output.status.success(), "{how} {start}: {}", describe(&output));
        let written = std::fs::read_to_string(&data).expect("the program makes it");
        assert_eq!(written, "record 1\n", "{how} {start} {threshold}");
        output
    };
    for how in ["close", "late", "dup2", "_exit", "exec"] {
        // Closed from the start, too; and a line about a knob, which the first request says.
        for start in ["", "2>&-", "2>/dev/null"] {
            end(how, start, "64K");
            end(how, start, "much");
        }
    }
    // The child's line is not its parent's.
    let output = end("fork", "", "64K");
    assert_eq!(summaries(&output), 1, "{}", describe(&output));
    std::fs::remove_file(data).expect("the file is ours");
}

#[test]
fn client_of_a_program_that_has_a_socket_for_all_three_is_told_nothing() {
    let program = compile("report_reused.c", &[]);
    let (own, theirs) = std::os::unix::net::UnixStream::pair().expect("two sockets");
    let mut child = shimmed(&program);
    let end = || std::os::fd::OwnedFd::from(theirs.try_clone().expect("one more"));
    // The line about this knob is one that the first request says.
    child.args(["after exec", "none"]).env("PREZERO_THRESHOLD", "much");
    child.stdin(end()).stdout(end()).stderr(end());
    assert!(child.status().expect("it starts").success());
    drop((child, theirs));
    let mut heard = String::new();
    std::io::Read::read_to_string(&mut { own }, &mut heard).expect("the sockets are closed");
    assert_eq!(heard, "");
}

#[test]
fn program_with_its_log_as_standard_error_from_the_start_has_the_account_there() {
    let log =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{}.log", std::process::id()));
    let output = started(&format!("2>>{}", log.display()), "summary");
    assert!(output.status.success(), "{}", describe(&output));
    let written = std::fs::read_to_string(&log).expect("the shell makes it");
    std::fs::remove_file(log).expect("the file is ours");
    assert!(written.contains(" for zeroed memory"), "{written}");
}

#[test]
fn what_is_written_raises_no_signal() {
    let program = compile("report_signals.c", &[]);
    let tree = format!("/dev/shm/prezero-tree-test-{}-signals", std::process::id());
    let file =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-limit", std::process::id()));
    for how in ["child", "pipe", "file", "terminal"] {
        for does in ["dies", "handles", "ignores", "blocks"] {
            for verify in ["off", "full"] {
                let script = "PREZERO_PID=$$ LD_PRELOAD=$SHIM exec $PROGRAM $HOW $DOES 2>$FILE";
                let mut command: Command = bare("sh");
                command
                    .args(["-c", script])
                    .env("SHIM", shim())
                    .env("PROGRAM", &program)
                    .env("HOW", how)
                    .env("DOES", does)
                    .env("FILE", &file)
                    .env("PREZERO_STATS", "summary")
                    .env("PREZERO_TREE", &tree)
                    .env("PREZERO_VERIFY", verify);
                let output = ends(&mut command);
                assert!(output.status.success(), "{how} {does}: {}", describe(&output));
                assert_eq!(text(&output.stdout).lines().last(), Some("good"), "{how} {does}");
                assert!(!PathBuf::from(&tree).exists(), "{how} {does}");
            }
        }
    }
    std::fs::remove_file(file).expect("the file is ours");
}

/// Runs a script with the program of `report_children.c` in it; the account that it leaves, and what it said.
fn children(script: &str, name: &str) -> (Output, String) {
    let place = |end: &str| format!("{}-{name}.{end}", std::process::id());
    let json = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(place("json"));
    let _ = std::fs::remove_file(&json);
    let mut command: Command = bare("sh");
    command
        .args(["-c", script])
        .env("SHIM", shim())
        .env("PROGRAM", compile("report_children.c", &[]))
        .env("SIMPLE", compile("start_main.c", &[]))
        .env("PREZERO_STATS", &json)
        .env("PREZERO_VERIFY", "full")
        .env("PREZERO_TREE", format!("/dev/shm/prezero-tree-test-{}", place("tree")));
    let output = ends(&mut command);
    assert!(output.status.success(), "{name}: {}", describe(&output));
    let written = std::fs::read_to_string(&json).unwrap_or_default();
    let _ = std::fs::remove_file(json);
    (output, written)
}

fn zero_requests(json: &str) -> u64 {
    let rest = json.split("\"zero_requests\":").nth(1).unwrap_or_default();
    rest.split(',').next().unwrap_or_default().parse().unwrap_or(u64::MAX)
}

#[test]
fn child_is_counted_once_and_in_full_however_it_was_made() {
    for how in ["fork", "_Fork", "clone", "syscall", "clone3"] {
        let script = format!("PREZERO_PID=$$ LD_PRELOAD=$SHIM exec $PROGRAM {how}");
        let (_, json) = children(&script, how);
        assert_eq!(zero_requests(&json), 10, "{how}: {json}");
    }
    let (_, json) = children("PREZERO_PID=$$ LD_PRELOAD=$SHIM exec $PROGRAM unseen", "unseen");
    assert!((4..=10).contains(&zero_requests(&json)), "never the parent's again: {json}");
}

#[test]
fn first_process_of_a_namespace_is_not_the_one_that_reports() {
    let new = "unshare --pid --fork --mount-proc sh -c";
    if !ends(bare("unshare").args(["--pid", "--fork", "--mount-proc", "true"])).status.success() {
        eprintln!("left out: namespaces need root");
        return;
    }
    // The reporter is the first process of one, and makes another.
    let own = "$(sed 's/.*) //' /proc/$$/stat | cut -d' ' -f20):$(stat -L -c %i /proc/$$/ns/pid)";
    let start = format!("{new} 'PREZERO_PID=$$ LD_PRELOAD=$SHIM exec $PROGRAM init'");
    let (_, json) = children(&start, "init");
    assert_eq!(zero_requests(&json), 6, "{json}");

    // One with another number is counted where the one that reports asked for nothing.
    let start =
        format!("export PREZERO_PID=$$:{own}; LD_PRELOAD=$SHIM exec unshare --pid --fork $SIMPLE");
    let (_, json) = children(&start, "elsewhere");
    assert_eq!(zero_requests(&json), 1, "{start}: {json}");

    // The same by exec.
    let start = format!(
        "{new} \"export PREZERO_PID=\\$\\$:{}; LD_PRELOAD=\\$SHIM exec sh -c \
        '\\$SIMPLE; unshare --pid --fork \\$SIMPLE; test ! -e \\$PREZERO_STATS; \\$SIMPLE'\"",
        own.replace('$', "\\$")
    );
    let (output, json) = children(&start, "exec");
    assert_eq!(text(&output.stdout), "zone\n".repeat(3), "{}", describe(&output));
    assert_eq!(zero_requests(&json), 3, "{start}: {json}");
}
