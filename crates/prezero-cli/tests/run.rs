//! `prezero run` end to end, with real children. A stand-in library that does nothing
//! takes the place of the real one: what matters here is how programs are started.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use prezero_testing::script;

const PREZERO: &str = env!("CARGO_BIN_EXE_prezero");
const EMULATOR: &str = env!("CARGO_BIN_EXE_prezero-qemu");
const PREZERO_SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");

/// A place for what the tests make.
fn made(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

fn compile(name: &str, source: &str, options: &[&str]) -> PathBuf {
    let (input, output) = (made(&format!("{name}.c")), made(name));
    std::fs::write(&input, source).unwrap();
    let status =
        Command::new("cc").args(options).arg("-o").arg(&output).arg(&input).status().unwrap();
    assert!(status.success(), "cc {name}");
    output
}

fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        compile("libprezero-stand-in.so", "int prezero_stand_in;\n", &["-shared", "-fPIC"])
    })
}

/// `prezero run` with these options and program, in an environment without our variables.
fn run(arguments: &[&str]) -> Command {
    let mut command = Command::new(PREZERO);
    command.arg("run").args(arguments).env("PREZERO_LIB", library()).env_remove("LD_PRELOAD");
    command
}

fn told(output: &Output) -> String {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert!(text.lines().count() <= 1, "more than one line: {text}");
    text.trim_end().to_string()
}

fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap().trim_end().to_string()
}

#[test]
fn the_status_and_the_signal_are_the_programs_own() {
    let status = run(&["--", "sh", "-c", "exit 42"]).status().unwrap();
    assert_eq!(status.code(), Some(42));
    let status = run(&["sh", "-c", "kill -TERM $$"]).status().unwrap();
    assert_eq!(status.signal(), Some(15));
}

#[test]
fn the_program_keeps_the_pid_its_name_and_its_arguments() {
    let child = run(&["--", "sh", "-c", "echo $$ ${PREZERO_PID%%:*} $0 $1", "--limit", "a b"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id();
    let words = printed(&child.wait_with_output().unwrap());
    assert_eq!(words, format!("{pid} {pid} --limit a b"));
}

#[test]
fn the_library_goes_first_and_what_was_preloaded_stays_behind() {
    let other = compile("libother.so", "int other;\n", &["-shared", "-fPIC"]);
    let ours = library().canonicalize().unwrap();
    let output = run(&["--", "sh", "-c", "echo $LD_PRELOAD"]).env("LD_PRELOAD", &other).output();
    assert_eq!(printed(&output.unwrap()), format!("{}:{}", ours.display(), other.display()));
}

#[test]
fn knobs_reach_the_library_checked_and_in_one_spelling() {
    let script = "echo $PREZERO_LIMIT $PREZERO_SCRUB_START $PREZERO_DECAY $PREZERO_VERIFY";
    let output = run(&[
        "--limit",
        "1.5GiB",
        "--scrub-start=never",
        "--decay",
        "0.5",
        "--",
        "sh",
        "-c",
        script,
    ])
    .env("PREZERO_LIMIT", "64M")
    .env("PREZERO_VERIFY", "full")
    .output();
    assert_eq!(printed(&output.unwrap()), "1536M never 0.5 full");
}

#[test]
fn the_statistics_go_where_the_command_was_started() {
    let output = run(&["--stats", "s.json", "--", "sh", "-c", "cd /; echo $PREZERO_STATS"])
        .current_dir(env!("CARGO_TARGET_TMPDIR"))
        .output();
    assert_eq!(printed(&output.unwrap()), made("s.json").to_str().unwrap());
}

#[test]
fn a_program_that_is_not_there_is_named_and_ends_in_127() {
    let output = run(&["--", "no-such-program"]).output().unwrap();
    assert_eq!(output.status.code(), Some(127));
    let line = told(&output);
    assert!(line.starts_with("prezero: run: no such program: no-such-program ("), "{line}");
}

#[test]
fn a_program_under_a_filter_that_ends_it_runs_as_it_is_and_one_line_says_so() {
    let filter = "#include <linux/filter.h>\n#include <linux/seccomp.h>\n#include <sys/prctl.h>\n\
        #include <sys/syscall.h>\n#include <unistd.h>\n\
        int main(int n, char **v) { struct sock_filter code[] = { BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),\n\
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sched_setscheduler, 0, 1),\n\
        BPF_STMT(BPF_RET | BPF_K, *v[1] == 'k' ? SECCOMP_RET_KILL_PROCESS : SECCOMP_RET_ERRNO | 1),\n\
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW) }; struct sock_fprog all = { 4, code };\n\
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &all)) return 1;\n\
        execv(v[2], v + 2); return 1; }\n";
    let filter = compile("filter", filter, &[]);
    let under = |refusal: &str| {
        let mut command = Command::new(&filter);
        command.args([refusal, PREZERO, "run", "--", "sh", "-c", "echo ${LD_PRELOAD:+set}"]);
        command.env("PREZERO_LIB", library()).env_remove("LD_PRELOAD").output().unwrap()
    };
    let (ended, refused) = (under("kill"), under("errno"));
    assert_eq!((printed(&ended).as_str(), printed(&refused).as_str()), ("", "set"));
    assert!(told(&ended).contains("a filter (seccomp)"), "{ended:?}");
    assert_eq!(told(&refused), "");
}

#[test]
fn a_file_that_is_not_executable_ends_in_126() {
    let text = made("text");
    std::fs::write(&text, "no program").unwrap();
    let output = run(&["--", text.to_str().unwrap()]).output().unwrap();
    assert_eq!(output.status.code(), Some(126));
    assert!(told(&output).contains("not executable: "), "{output:?}");
}

#[test]
fn a_static_program_runs_as_it_is_and_one_line_says_so() {
    let source = "#include <stdio.h>\n#include <stdlib.h>\n\
        int main(void) { puts(getenv(\"LD_PRELOAD\") ? \"set\" : \"unset\"); return 7; }\n";
    let program = compile("static", source, &["-static"]);
    let output = run(&["--limit", "1G", "--", program.to_str().unwrap()]).output().unwrap();
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(output.stdout, b"unset\n");
    assert!(told(&output).contains("is statically linked: prezero cannot help it"), "{output:?}");

    let script = made("script");
    script::write(&script, &format!("#! {}\n", program.display()));
    let output = run(&["--", script.to_str().unwrap()]).output().unwrap();
    assert_eq!(output.status.code(), Some(7), "the interpreter of a script is what counts");
    assert!(told(&output).contains("is statically linked"), "{output:?}");
}

#[test]
fn a_program_with_a_sanitizer_runs_as_it_is() {
    let source = "#include <stdio.h>\n#include <stdlib.h>\n\
        int main(void) { free(malloc(9)); puts(getenv(\"LD_PRELOAD\") ? \"set\" : \"unset\"); }\n";
    let program = compile("sanitized", source, &["-fsanitize=address"]);
    let path = program.to_str().unwrap();
    let output = run(&["--", path]).output().unwrap();
    assert_eq!(printed(&output), "unset");
    assert!(told(&output).contains("is built with a sanitizer"), "{output:?}");
}

#[test]
fn no_variable_but_prezeros_own_and_the_preloaded_libraries_is_set() {
    let names = |output: Output| {
        let lines = printed(&output);
        let of = |line: &str| line.split('=').next().unwrap().to_string();
        let own = |name: &String| !name.starts_with("PREZERO_") && name != "LD_PRELOAD";
        lines.lines().map(of).filter(own).collect::<Vec<_>>()
    };
    let plain = names(Command::new("env").output().unwrap());
    assert_eq!(names(run(&["--", "env"]).output().unwrap()), plain);
}

#[test]
fn a_script_without_a_first_line_goes_to_the_shell() {
    let script = made("bare");
    script::write(&script, "echo $PREZERO_PID; exit 3\n");
    let output = run(&["--", script.to_str().unwrap()]).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(!output.stdout.trim_ascii().is_empty(), "{output:?}");
}

#[test]
fn bad_values_are_refused_in_one_line_before_the_program_starts() {
    for (arguments, start) in [
        (&["--limit", "1M", "--", "true"][..], "prezero: run: --limit 1M: "),
        (&["--scrub-start", "19", "--", "true"], "prezero: run: --scrub-start 19: not an order"),
        (&["--threshold", "-5", "--", "true"], "prezero: run: --threshold -5: not a size"),
        (&["--engine", "warp", "--", "true"], "prezero: run: --engine warp: no such clear engine"),
        (&["--stats", "/no/such/f", "--", "true"], "prezero: run: --stats /no/such/f: no such dir"),
        (&["--frobnicate", "true"], "prezero: run: unexpected argument '--frobnicate'"),
        (&[], "prezero: run: the following required arguments were not provided: <PROGRAM>"),
    ] {
        let output = run(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{arguments:?}");
        let line = told(&output);
        assert!(line.starts_with(start), "{line}");
    }
}

#[test]
fn what_would_never_begin_or_end_is_refused_at_once() {
    let told_by = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(arguments).env_remove("PREZERO_SOCKET").env("PREZERO_QEMU", EMULATOR);
        let output = command.output().unwrap();
        (output.status.code().unwrap(), told(&output))
    };
    for (arguments, status, said) in [
        (
            &["claim", "3M", "--", "true"][..],
            125,
            "claim: 3M is no multiple of the page, 2M; round up to 4M",
        ),
        (&["claim", "0"], 125, "the page, 2M; round up to 2M"),
        (&["claim", "2M", "--pinned", "--pinned-threshold", "1", "true"], 125, "give 2M or more"),
        (&["try", "--for", "0", "--", "true"], 2, "give 10s or more"),
        (&["try", "--measure", "", "--", "true"], 2, "give the command of the load"),
        (&["try", "--figure", "(", "--", "true"], 2, "--figure (: "),
        (&["try", "--status", "256", "--", "true"], 2, "256 is not in 0..=255"),
        (&["top", "--delay", "0"], 2, "give seconds, 0.05 to 3600"),
        (&["run", "--", ""], 127, "no such program: \"\" (its name is empty)"),
    ] {
        let (ended, text) = told_by(PREZERO, arguments);
        assert!(ended == status && text.contains(said), "{arguments:?}: {ended}: {text}");
    }
    let (ended, text) = told_by(EMULATOR, &["-m", "1G"]);
    assert!(ended == 127 && text.ends_with("is prezero-qemu itself; name a QEMU"), "{text}");
}

/// `prezero try` of a script of the shell: how it ends, and what it prints and says.
fn tried(options: &[&str], script: &str, input: Stdio) -> (Option<i32>, String, String) {
    let mut command = Command::new(PREZERO);
    command.arg("try").args(options).args(["--", "sh", "-c", script]).stdin(input);
    let output = command.env("PREZERO_LIB", library()).env_remove("LD_PRELOAD").output().unwrap();
    let [printed, said] = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap());
    (output.status.code(), printed, said)
}

#[test]
fn a_program_that_fails_is_not_tried_unless_that_is_how_it_ends() {
    let script = "echo oh no >&2; exit 3";
    let (status, printed, said) = tried(&[], script, Stdio::null());
    assert_eq!((status, printed.as_str(), said.lines().count()), (Some(1), "", 1), "{said}");
    let told = "exit status: 3; it said: oh no; give --status 3 if that is how it ends";
    assert!(said.trim_end().ends_with(told), "{said}");
    let (status, printed, said) = tried(&["--pairs", "1", "--status", "3"], script, Stdio::null());
    assert_eq!(status, Some(0), "{said}");
    let first = printed.lines().next().unwrap();
    assert!(first.ends_with(": each run: exit status: 3; it said: oh no"), "{printed}");
    let (status, _, said) = tried(&["--pairs", "1"], "test -z \"$LD_PRELOAD\"", Stdio::null());
    let told = "prezero ends with exit status: 1, and without prezero with exit status: 0";
    assert!(status == Some(1) && said.contains(told), "{said}");
}

#[test]
fn a_trial_says_how_long_it_takes_and_ends_with_what_can_be_said() {
    for options in [&["--pairs", "1"][..], &["--pairs", "2"], &["--for", "1ms"]] {
        let (status, printed, said) = tried(options, "exit 0", Stdio::null());
        assert!(status == Some(0) && said.starts_with("prezero: try: a run takes "), "{said}");
        assert!(printed.contains("\nwall ") || printed.contains("\nwall\n"), "{printed}");
        assert!(!printed.contains("tell nothing"), "{printed}");
    }
}

#[test]
fn every_run_of_a_trial_reads_what_came_through_a_pipe() {
    let (ours, mut theirs) = std::io::pipe().unwrap();
    std::io::Write::write_all(&mut theirs, b"two words\n").unwrap();
    drop(theirs);
    let (status, _, said) = tried(&["--pairs", "1"], "test \"$(cat)\" = 'two words'", ours.into());
    assert_eq!(status, Some(0), "{said}");
}

#[test]
fn a_bad_variable_is_named_as_a_variable() {
    let output = run(&["--", "true"]).env("PREZERO_DECAY", "soon").output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(told(&output).starts_with("prezero: run: PREZERO_DECAY=soon: "), "{output:?}");
}

#[test]
fn a_missing_library_comes_with_its_mend() {
    let output = run(&["--", "true"]).env("PREZERO_LIB", "/no/libprezero.so").output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(told(&output).starts_with("prezero: run: PREZERO_LIB=/no/libprezero.so: "));
}

#[test]
fn what_is_no_library_is_named() {
    for other in ["/etc/passwd", PREZERO_SOURCE] {
        let output = run(&["--", "true"]).env("PREZERO_LIB", other).output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{output:?}");
        let line = told(&output);
        assert!(
            line.starts_with(&format!("prezero: run: PREZERO_LIB={other}: no library")),
            "{line}"
        );
    }
}

#[test]
fn a_command_that_cannot_be_preloaded_runs_the_program_and_one_line_says_why() {
    for (folder, library) in [("my dir", true), ("my:dir", true), ("$LIB", true), ("alone", false)]
    {
        let folder = made(folder);
        std::fs::create_dir_all(&folder).unwrap();
        let command = folder.join("prezero");
        script::copy(Path::new(PREZERO), &command);
        if library {
            script::copy(self::library(), &folder.join("libprezero.so"));
        }
        let mut command = Command::new(&command);
        command.args(["run", "--", "sh", "-c", "echo ${LD_PRELOAD:-plain}; exit 3"]);
        let output = command.env_remove("LD_PRELOAD").env_remove("PREZERO_LIB").output().unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        assert_eq!(output.stdout, b"plain\n");
        let line = told(&output);
        assert!(
            line.starts_with("prezero: run: sh: ") && line.ends_with("it runs as it is"),
            "{line}"
        );
    }
}

#[test]
fn a_command_finds_its_library_without_proc() {
    let folder = made("without-proc");
    std::fs::create_dir_all(&folder).unwrap();
    script::copy(Path::new(PREZERO), &folder.join("prezero"));
    script::copy(library(), &folder.join("libprezero.so"));
    let script = format!(
        "mount -t tmpfs none /proc && exec {}/prezero run -- sh -c 'echo $LD_PRELOAD'",
        folder.display()
    );
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &script]).env_remove("LD_PRELOAD").env_remove("PREZERO_LIB");
    let output = command.output();
    let ours = folder.join("libprezero.so").canonicalize().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    match output {
        Ok(output) if output.status.success() => {
            assert_eq!(printed(&output), ours.to_str().unwrap());
        }
        other => println!("not tried: only root takes /proc away: {other:?}"),
    }
}

#[test]
fn a_script_whose_interpreter_is_missing_is_named_with_it_and_ends_in_126() {
    let script = made("no-interpreter");
    for (first, mend) in [
        ("#!/no/such/python3\n", "no such interpreter: \"/no/such/python3\" (install that"),
        (
            "#!/bin/sh\r\n",
            "no such interpreter: \"/bin/sh\\r\" (the first line ends in a carriage return",
        ),
    ] {
        script::write(&script, first);
        for command in ["run", "claim"] {
            let mut prezero = Command::new(PREZERO);
            prezero.arg(command).env("PREZERO_LIB", library()).env_remove("LD_PRELOAD");
            if command == "claim" {
                prezero.args(["--or-plain", "--socket", "/nonexistent", "2M"]);
            }
            let output = prezero.arg("--").arg(&script).output().unwrap();
            assert_eq!(output.status.code(), Some(126), "{output:?}");
            let text = String::from_utf8_lossy(&output.stderr);
            assert!(text.contains(&format!("{}: {mend}", script.display())), "{text}");
        }
    }
}

#[test]
fn statistics_that_cannot_be_written_are_refused_before_the_program_starts() {
    for file in ["/proc/version", "/tmp"] {
        let output = run(&["--stats", file, "--", "true"]).output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{output:?}");
        assert!(
            told(&output).starts_with(&format!("prezero: run: --stats {file}: ")),
            "{output:?}"
        );
    }
}

#[test]
fn a_variable_that_nothing_reads_is_told_and_the_program_runs() {
    let output = run(&["--", "sh", "-c", "exit 4"]).env("PREZERO_LIMT", "1G").output().unwrap();
    assert_eq!(output.status.code(), Some(4));
    let line = told(&output);
    assert!(
        line.contains("PREZERO_LIMT: no such variable")
            && line.ends_with("did you mean PREZERO_LIMIT?"),
        "{line}"
    );
    for (name, value) in [("PREZERO_DISABLE", "yes"), ("PREZERO_BARE_THREAD", "no")] {
        let output = run(&["--", "true"]).env(name, value).output().unwrap();
        assert_eq!(output.status.code(), Some(125));
        assert!(
            told(&output).starts_with(&format!("prezero: run: {name}={value}: ")),
            "{output:?}"
        );
    }
}

#[test]
fn help_says_each_knob_with_its_variable() {
    let help = printed(&run(&["--help"]).output().unwrap());
    for knob in prezero::internal::KNOBS {
        let option = help.lines().find(|line| line.contains(&format!("--{} ", knob.name)));
        assert!(option.is_some(), "--{}", knob.name);
        let variable = format!("PREZERO_{}", knob.name.to_uppercase().replace('-', "_"));
        assert_eq!(knob.variable, variable, "as the help's rule says");
    }
    assert!(help.contains("Each is a variable too: PREZERO_SCRUB_RATE."), "{help}");
}

#[test]
fn a_program_that_changes_its_rights_runs_as_it_is_and_one_line_says_so() {
    let program = compile(
        "changes-rights",
        "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <stdio.h>\n#include <unistd.h>\n\
         int main(void) { printf(\"%d %s\\n\", geteuid(), dlsym(RTLD_DEFAULT, \"prezero_stand_in\") ? \
         \"with\" : \"without\"); return 0; }\n",
        &[],
    );
    let name = program.to_str().unwrap();
    assert!(printed(&run(&["--", name]).output().unwrap()).ends_with(" with"), "as it was made");
    // Only root gives a file to another user.
    let nobody = 65534;
    if std::os::unix::fs::chown(&program, Some(nobody), None).is_err() {
        println!("not tried: only root can make a setuid program of somebody else's");
        return;
    }
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o4755)).unwrap();
    let output = run(&["--", name]).output().unwrap();
    assert!(printed(&output).ends_with(" without"), "{output:?}");
    let line = told(&output);
    assert!(line.contains("changes its rights when it starts"), "{line}");
}

#[test]
fn a_claim_without_a_lease_below_a_limit_of_files_runs_its_program_or_says_why() {
    let claim = |program: &[&str]| {
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -f 8; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_prezero")]);
        command.args(["claim", "--or-plain", "--socket", "/nonexistent", "2M", "--"]);
        command.args(program).output().unwrap()
    };
    assert!(claim(&["true"]).status.success());
    let output = claim(&["cat", "{lease}"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(said.contains("raise the limit of files (ulimit -f)"), "{said}");
}
