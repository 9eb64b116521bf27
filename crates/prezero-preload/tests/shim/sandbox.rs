//! Filters of system calls that end a process: its own, and those that it begins under.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::run::{bare, compile, describe, ends, run, shimmed, text};

#[test]
fn confined_process_makes_no_call_that_malloc_would_not() {
    let program = compile("sandbox_own.c", &[]);
    for how in ["prctl", "seccomp", "tsync"] {
        for when in ["first", "late"] {
            for verify in ["full", "sample"] {
                let mut confined = shimmed(&program);
                let confined = confined.args([how, when]).env("PREZERO_VERIFY", verify);
                assert_eq!(run(confined), "good\n", "{how} {when}");
            }
        }
    }
}

/// The kernel may have a handler of the program's make each system call.
#[cfg(target_arch = "x86_64")]
#[test]
fn blocks_cost_no_more_dispatched_calls_than_without_the_shim() {
    /// What the change itself may take.
    const MORE: u32 = 20;
    let program = compile("sandbox_dispatch.c", &[]);
    for blocks in ["new", "before"] {
        let counted = |mut program: Command| {
            let output = ends(program.arg(blocks));
            if output.status.code() == Some(77) {
                return None;
            }
            let count = text(&output.stdout).trim().parse::<u32>();
            Some(count.unwrap_or_else(|_| panic!("{}", describe(&output))))
        };
        let Some(plain) = counted(bare(&program)) else {
            return println!("not tried: no syscall user dispatch");
        };
        let ours = counted(shimmed(&program)).expect("it is there");
        assert!(ours <= plain + MORE, "{blocks}: {ours}, not {plain}");
    }
}

#[test]
fn account_of_a_confined_process_is_written_before_its_filter_comes() {
    let mut confined = shimmed(compile("sandbox_own.c", &[]));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("own-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    confined.env("PREZERO_PID", "1").env("PREZERO_STATS", folder.join("%p.json"));
    assert_eq!(run(confined.args(["tsync", "late"])), "good\n");
    let written = std::fs::read_dir(&folder).expect("it is there").count();
    std::fs::remove_dir_all(&folder).expect("the folder is ours");
    assert_eq!(written, 1);
}

/// What systemd calls `@resources`.
const RESOURCES: [libc::c_long; 12] = [
    libc::SYS_ioprio_set,
    libc::SYS_mbind,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setattr,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setscheduler,
    libc::SYS_set_mempolicy,
    libc::SYS_setpriority,
    libc::SYS_setrlimit,
    libc::SYS_prlimit64,
];

/// What a zone and scrubd call or might, and a program with large blocks does not. Not `prctl`, which asks whether
/// there is a filter.
const OURS: [libc::c_long; 33] = [
    libc::SYS_capset,
    libc::SYS_chdir,
    libc::SYS_clock_gettime,
    libc::SYS_close_range,
    libc::SYS_fchmod,
    libc::SYS_fcntl,
    libc::SYS_ftruncate,
    libc::SYS_getcpu,
    libc::SYS_getcwd,
    libc::SYS_getpid,
    libc::SYS_getrlimit,
    libc::SYS_gettid,
    libc::SYS_ioctl,
    libc::SYS_kill,
    libc::SYS_lseek,
    libc::SYS_memfd_create,
    libc::SYS_mincore,
    libc::SYS_msync,
    libc::SYS_nanosleep,
    libc::SYS_poll,
    libc::SYS_readlink,
    libc::SYS_rt_sigprocmask,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_yield,
    libc::SYS_statx,
    libc::SYS_sysinfo,
    libc::SYS_tgkill,
    libc::SYS_uname,
    libc::SYS_userfaultfd,
    libc::SYS_vfork,
];

fn list(calls: &[libc::c_long]) -> String {
    calls.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// A program under a filter that is there when it begins.
struct Filtered {
    filter: PathBuf,
    program: PathBuf,
}

impl Filtered {
    fn compiled() -> Filtered {
        let [filter, program] = ["sandbox_given.c", "sandbox_work.c"].map(|it| compile(it, &[]));
        Filtered { filter, program }
    }

    fn end(&self, refusal: &str, calls: &[libc::c_long]) -> Output {
        ends(shimmed(&self.filter).args([refusal, &list(calls)]).arg(&self.program))
    }
}

#[test]
fn filter_that_ends_no_program_ends_none_with_the_shim() {
    let filtered = Filtered::compiled();
    let next = AtomicUsize::new(0);
    // Each program waits for some of its time.
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while let Some(call) = OURS.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let ended = filtered.end("kill", &[*call]);
                    assert!(ended.status.success(), "call {call}: {}", describe(&ended));
                    assert_eq!(text(&ended.stderr), "", "call {call}");
                }
            });
        }
    });
}

#[test]
fn filter_of_many_units_leaves_the_program_to_the_next_allocator() {
    let filtered = Filtered::compiled();
    let ended = filtered.end("kill", &RESOURCES[..11]);
    assert_eq!(text(&ended.stdout), "next\n", "{}", describe(&ended));
    assert!(ended.status.success() && ended.stderr.is_empty(), "{}", describe(&ended));
}

#[test]
fn only_filters_that_were_tried_before_are_not_tried_again() {
    let filtered = Filtered::compiled();
    // That they were tried is a lie here: the filter ends a process that believes it.
    for (tried, lives) in [("0", true), ("1", false), ("2", true)] {
        let mut program = shimmed(&filtered.filter);
        program.args(["kill", &list(&RESOURCES[..11])]).arg(&filtered.program);
        let ended = ends(program.env("PREZERO_TRIED", tried));
        assert_eq!(ended.status.success(), lives, "{tried}: {}", describe(&ended));
    }
}

#[test]
fn filter_that_answers_with_an_error_leaves_a_zone() {
    let ended = Filtered::compiled().end("errno", &RESOURCES);
    assert_eq!(text(&ended.stdout), "zone\n", "{}", describe(&ended));
    assert!(ended.status.success() && ended.stderr.is_empty(), "{}", describe(&ended));
}
