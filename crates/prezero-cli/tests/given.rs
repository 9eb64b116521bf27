//! What a program was given reaches it through `prezero run`, `claim` and `try`: all that `/proc/self` shows of it.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

const PREZERO: &str = env!("CARGO_BIN_EXE_prezero");

/// What differs from one process to the next, or is memory.
const OTHERS: [&str; 16] = [
    "Name:",
    "State:",
    "Tgid:",
    "Ngid:",
    "Pid:",
    "PPid:",
    "NStgid:",
    "NSpid:",
    "NSpgid:",
    "NSsid:",
    "Vm",
    "Rss",
    "Huge",
    "voluntary",
    "nonvoluntary",
    "SigQ:",
];

/// What a claim without a lease hands on.
const CLAIMED: &str = " /memfd:ordinary (deleted)";

/// A library that does nothing: here it matters how programs are started.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("libprezero-given.so");
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-x", "c", "/dev/null", "-o"]).arg(&file);
        assert!(cc.status().unwrap().success(), "cc");
        file
    })
}

/// What is given beside the rest.
#[derive(Clone, Copy, Debug)]
struct Given {
    sigpipe: libc::sighandler_t,
    /// The descriptors 0 to 2 that are closed.
    closed: &'static [i32],
}

const GIVEN: [Given; 5] = [
    Given { sigpipe: libc::SIG_DFL, closed: &[] },
    Given { sigpipe: libc::SIG_IGN, closed: &[] },
    Given { sigpipe: libc::SIG_IGN, closed: &[0] },
    Given { sigpipe: libc::SIG_DFL, closed: &[1, 2] },
    Given { sigpipe: libc::SIG_DFL, closed: &[0, 1, 2] },
];

/// What `/proc` says of a shell that was started so, with a parent that gave it these.
fn seen(before: &[&str], given: Given, file: &Path) -> String {
    let script = "for each in status limits cgroup oom_score_adj timerslack_ns; do echo == $each; cat /proc/$$/$each; done
        echo == nice; nice
        echo == descriptors; for each in /proc/$$/fd/*; do echo ${each##*/} $(readlink $each); done";
    // The shell's own redirection, so that its descriptors are those that it was given.
    let script = format!("( {script} ) >{} 2>&1", file.display());
    let mut words: Vec<&str> = before.to_vec();
    words.extend(["sh", "-c", &script]);
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).env_remove("LD_PRELOAD").env("PREZERO_LIB", library());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let set = move || {
        // SAFETY: system calls that are allowed after a fork, with structures that live as long.
        unsafe {
            let mut mask: libc::sigset_t = std::mem::zeroed();
            libc::sigaddset(&raw mut mask, libc::SIGUSR1);
            libc::sigprocmask(libc::SIG_SETMASK, &raw const mask, std::ptr::null_mut());
            for ignored in [libc::SIGUSR2, libc::SIGSEGV, libc::SIGTTOU] {
                libc::signal(ignored, libc::SIG_IGN);
            }
            libc::signal(libc::SIGPIPE, given.sigpipe);
            libc::umask(0o27);
            libc::nice(3);
            let files = libc::rlimit { rlim_cur: 300, rlim_max: 400 };
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const files);
            libc::prctl(libc::PR_SET_TIMERSLACK, 70_000);
            libc::dup2(2, 7);
            for &each in given.closed {
                libc::close(each);
            }
        }
        Ok(())
    };
    // SAFETY: `set` makes system calls only.
    unsafe { command.pre_exec(set) };
    assert!(command.status().unwrap().success(), "{before:?}");
    let text = fs::read_to_string(file).unwrap();
    let others =
        |line: &&str| OTHERS.iter().any(|other| line.starts_with(other)) || line.ends_with(CLAIMED);
    text.lines().filter(|line| !others(line)).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_program_has_what_it_was_given() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("given-{}", std::process::id()));
    for given in GIVEN {
        let plain = seen(&[], given, &file);
        assert!(plain.contains("SigBlk:\t0000000000000200"), "{plain}");
        let run = [PREZERO, "run", "--"];
        assert_eq!(seen(&run, given, &file), plain, "run, {given:?}");
        let claim = [PREZERO, "claim", "--or-plain", "--socket", "/nonexistent", "2M", "--"];
        assert_eq!(seen(&claim, given, &file), plain, "claim without a lease, {given:?}");
    }
    let _ = fs::remove_file(&file);
}

#[test]
fn a_program_that_is_tried_has_the_signals_that_it_was_given() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("tried-{}", std::process::id()));
    let script = format!("grep SigIgn /proc/$$/status >>{}", file.display());
    for given in [libc::SIG_IGN, libc::SIG_DFL] {
        let _ = fs::remove_file(&file);
        let mut command = Command::new(PREZERO);
        command.args(["try", "--pairs", "1", "--", "sh", "-c", &script]).stdout(Stdio::null());
        command.stdin(Stdio::null()).env("PREZERO_LIB", library());
        // SAFETY: one system call.
        unsafe {
            command.pre_exec(move || {
                libc::signal(libc::SIGPIPE, given);
                Ok(())
            })
        };
        let _ = command.status().unwrap();
        let text = fs::read_to_string(&file).unwrap();
        let ignored = |line: &str| {
            let bits = line.rsplit('\t').next().unwrap();
            u64::from_str_radix(bits, 16).unwrap() >> (libc::SIGPIPE - 1) & 1 == 1
        };
        assert!(text.lines().count() >= 3, "{text}");
        assert!(text.lines().all(|line| ignored(line) == (given == libc::SIG_IGN)), "{text}");
    }
    let _ = fs::remove_file(&file);
}
