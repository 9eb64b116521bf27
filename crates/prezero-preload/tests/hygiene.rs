//! What is wrong with a program shows, what it freed does not.

mod common;
use common::{bare, compile, describe, ends, run, shim, shimmed, text};

#[test]
fn who_writes_through_dangling_pointers_is_told_once_and_gets_zeroes() {
    let program = compile("scribble.c", &[]);
    let output = ends(shimmed(&program).arg("found"));
    assert!(output.status.success(), "{}", describe(&output));
    assert_eq!(text(&output.stdout), "all zero\n");
    let line = text(&output.stderr);
    assert!(line.starts_with("prezero: a free page that should be zero was written to"), "{line}");
    assert_eq!(line.lines().count(), 1, "{line}");

    // The default sees some of it. What it sees first is said once, and all is cleared from
    // then on.
    let output = ends(shimmed(&program).env("PREZERO_VERIFY", "sample"));
    assert!(output.status.success(), "{}", describe(&output));
    assert!(text(&output.stderr).lines().count() <= 1, "{}", describe(&output));
}

#[test]
fn what_is_freed_is_gone_where_that_is_wanted() {
    let program = compile("cleared.c", &[]);
    assert_eq!(run(shimmed(&program).env("PREZERO_ZERO_ON_FREE", "on")), "good\n");
    let threads = compile("threads.c", &[]);
    assert_eq!(run(shimmed(threads).arg("2").env("PREZERO_ZERO_ON_FREE", "on")), "good\n");
}

#[test]
fn idle_memory_is_left_out_of_core_dumps() {
    let program = compile("dumped.c", &[]);
    assert_eq!(run(shimmed(program).env("PREZERO_DECAY", "1000")), "good\n");
}

#[test]
fn sanitizer_serves_all_of_its_program() {
    let program = compile("overflow.c", &["-fsanitize=address"]);
    let options = "verify_asan_link_order=0:detect_leaks=0";
    let output = ends(shimmed(program).env("ASAN_OPTIONS", options));
    assert!(!output.status.success(), "{}", describe(&output));
    assert_eq!(text(&output.stdout), "allocated\n", "{}", describe(&output));
    assert!(text(&output.stderr).contains("heap-buffer-overflow"), "{}", describe(&output));
}

#[test]
fn valgrind_serves_all_of_its_program() {
    if std::process::Command::new("valgrind").arg("--version").output().is_err() {
        return println!("not tried: valgrind is not installed");
    }
    let program = compile("main.c", &[]);
    for tool in ["none", "memcheck"] {
        let mut ways = [bare("valgrind"), bare("valgrind")];
        for valgrind in &mut ways {
            valgrind.args(["-q", &format!("--tool={tool}")]).arg(&program);
        }
        ways[1].env("LD_PRELOAD", shim());
        let said = ways.map(|mut valgrind| run(&mut valgrind));
        assert_eq!(said[0], said[1], "{tool}");
    }
    let mut valgrind = bare("sh");
    valgrind.args(["-c", "PREZERO_PID=$$ exec valgrind -q --tool=none \"$0\""]).arg(&program);
    let output = ends(valgrind.env("LD_PRELOAD", shim()));
    assert_eq!(text(&output.stdout), "next\n", "{}", describe(&output));
    assert_eq!(text(&output.stderr).lines().count(), 1, "{}", describe(&output));
    assert!(text(&output.stderr).contains("valgrind serves it"), "{}", describe(&output));
}

#[test]
fn library_with_a_libc_of_its_own_keeps_its_allocator() {
    let plugin = compile("plugin.c", &["-shared", "-fPIC"]);
    assert_eq!(run(shimmed(compile("namespaces.c", &[])).arg(plugin)), "good\n");
}

#[test]
fn program_with_one_thread_stays_one_to_libc() {
    let program = compile("single.c", &[]);
    assert_eq!(run(&mut shimmed(&program)), "good\n");
    assert_eq!(run(shimmed(&program).arg("last")), "good\n", "it ends with its own last thread");
}

#[test]
fn knob_makes_scrubd_a_thread_that_libc_knows_of() {
    let program = compile("single.c", &[]);
    let with =
        |value: &str| run(shimmed(&program).arg("several").env("PREZERO_BARE_THREAD", value));
    assert_eq!(with("off"), "good\n");
    let output = ends(shimmed(&program).arg("several").env("PREZERO_BARE_THREAD", "on"));
    assert!(!output.status.success(), "nothing but the knob does it: {}", describe(&output));
}

/// `link/hot.ld` names what a hit runs through; after a function is renamed it would say nothing of it.
#[test]
fn what_a_hit_runs_through_lies_together() {
    let listed = run(bare("objdump").arg("--syms").arg(shim()));
    let together = [" .text.hit\t", " .data.hit\t"];
    let there = listed.lines().filter(|line| together.iter().any(|section| line.contains(section)));
    let names: Vec<&str> = there.filter_map(|line| line.rsplit(' ').next()).collect();
    let script = include_str!("../../../link/hot.ld");
    let places =
        script.lines().filter_map(|line| line.trim().strip_prefix("*(")?.strip_suffix(')'));
    let patterns: Vec<_> = places.flat_map(str::split_whitespace).collect();
    assert!(patterns.len() > 20, "{patterns:?}");
    for pattern in patterns {
        let (_, name) = pattern[1..].split_once('.').expect("a section has a name");
        let (begin, parts) = name.split_once('*').unwrap_or((name, ""));
        let matches = |of: &str| {
            let mut rest = of.strip_prefix(begin);
            for part in parts.split('*') {
                rest = rest.and_then(|rest| Some(rest.split_once(part)?.1));
            }
            rest.is_some()
        };
        let is_there = names.iter().any(|name| matches(name));
        assert!(is_there, "{pattern}: nothing that lies there has such a name");
    }
}
