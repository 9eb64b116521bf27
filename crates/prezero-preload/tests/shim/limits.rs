//! The kernel refuses, limits are reached, threads cannot start: the program goes on.

use std::process::Command;

use crate::run::{bare, compile, run, run_c, shimmed};

#[test]
fn what_the_kernel_refuses_is_done_without() {
    let program = compile("limits_refused.c", &[]);
    let calls = [
        ("madvise", libc::SYS_madvise, libc::ENOMEM),
        ("madvise", libc::SYS_madvise, libc::EINVAL),
        ("mincore", libc::SYS_mincore, libc::ENOSYS),
        ("sched_setaffinity", libc::SYS_sched_setaffinity, libc::EPERM),
        ("sched_setscheduler", libc::SYS_sched_setscheduler, libc::EPERM),
        ("openat", libc::SYS_openat, libc::EMFILE),
        ("mremap", libc::SYS_mremap, libc::ENOMEM),
    ];
    for (name, call, error) in calls {
        println!("{name} answers {error}");
        let arguments = [error.to_string(), call.to_string()];
        assert_eq!(run(bare(&program).args(&arguments)), "good\n", "{name} without the shim");
        assert_eq!(run(shimmed(&program).args(&arguments)), "good\n", "{name}");
    }
}

#[test]
fn what_the_kernel_pretends_to_do_is_not_believed() {
    let (given, program) = (compile("sandbox_given.c", &[]), compile("limits_pretended.c", &[]));
    let advice = |advice| format!("{}:{advice}", libc::SYS_madvise);
    let calls = [
        ("nothing", libc::SYS_vhangup.to_string(), "zone\n"),
        ("every advice", libc::SYS_madvise.to_string(), "next\n"),
        ("MADV_DONTNEED", advice(libc::MADV_DONTNEED), "next\n"),
        ("MADV_FREE", advice(libc::MADV_FREE), "zone\n"),
        ("MADV_WIPEONFORK", advice(libc::MADV_WIPEONFORK), "zone\n"),
        ("MADV_DONTDUMP", advice(libc::MADV_DONTDUMP), "zone\n"),
        ("MADV_HUGEPAGE", advice(libc::MADV_HUGEPAGE), "zone\n"),
        ("mincore", libc::SYS_mincore.to_string(), "zone\n"),
        ("mremap", libc::SYS_mremap.to_string(), "zone\n"),
    ];
    for (name, call, zone) in calls {
        for verify in ["full", "sample"] {
            let mut pretended = shimmed(&given);
            let pretended = pretended.args(["pretend", &call]).arg(&program);
            assert_eq!(run(pretended.env("PREZERO_VERIFY", verify)), zone, "{name}, {verify}");
        }
    }
}

#[test]
fn limit_of_data_that_suffices_without_the_shim_suffices_with_it() {
    let program = compile("limits_given.c", &["-DLIMIT=RLIMIT_DATA"]);
    for limit in ["64", "256", "1024"] {
        assert_eq!(run(bare(&program).arg(limit)), "good\n");
        assert_eq!(run(shimmed(&program).arg(limit)), "good\n", "{limit} MiB");
    }
}

/// A memory cgroup of its own, gone with the value.
struct Cgroup(std::path::PathBuf);

impl Cgroup {
    fn with_limit(bytes: usize) -> std::io::Result<Cgroup> {
        let own = std::fs::read_to_string("/proc/self/cgroup")?;
        let first = own.lines().find_map(|line| line.split_once(":memory:")).map(|(_, path)| path);
        let (root, limit) = match first {
            Some(path) => (format!("/sys/fs/cgroup/memory{path}"), "memory.limit_in_bytes"),
            None => ("/sys/fs/cgroup".to_string(), "memory.max"),
        };
        let group =
            Cgroup(std::path::Path::new(&root).join(format!("prezero-{}", std::process::id())));
        std::fs::create_dir(&group.0)?;
        std::fs::write(group.0.join(limit), bytes.to_string())?;
        Ok(group)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn what_idles_does_not_end_a_program_at_its_memory_limit() {
    // 64 MiB idle and 44 in small blocks do not fit into it; either does.
    let group = match Cgroup::with_limit(88 << 20) {
        Ok(group) => group,
        Err(error) => return println!("not tried: no memory cgroup can be made here: {error}"),
    };
    let program = compile("limits_cgroup.c", &[]);
    assert_eq!(run(bare(&program).arg(&group.0)), "good\n");
    for how in ["idle", "at once", "in parts"] {
        let mut crowded = shimmed(&program);
        let crowded = crowded.arg(&group.0).arg(how).env("PREZERO_DECAY", "1000");
        assert_eq!(run(crowded), "good\n", "{how}");
    }
}

#[test]
fn limits_that_a_program_sets_on_itself_leave_it_what_they_would_without_the_shim() {
    let program = compile("limits_lowered.c", &[]);
    for what in ["as", "number", "data", "lock"] {
        assert_eq!(run(shimmed(&program).arg(what)), "good\n", "{what}");
    }
}

#[test]
fn program_that_may_have_no_thread_goes_on_without_one() {
    assert_eq!(run_c("limits_no_thread.c"), "good\n");
}

#[test]
fn the_last_task_that_a_user_may_have_is_the_programs() {
    // SAFETY: no terms.
    if unsafe { libc::geteuid() } != 0 {
        return println!("not tried: it takes root to be a user that has no other task");
    }
    let program = compile("limits_tasks.c", &[]);
    let calls = [
        ["fork", "vfork", "_Fork", "clone", "shared", "number", "clone3"].as_slice(),
        &["pthread_create", "thrd_create", "posix_spawn", "posix_spawnp"],
        &["system", "popen", "daemon"],
    ];
    let first = 0x4000_0000 + std::process::id() * 64;
    for (call, user) in calls.concat().into_iter().zip((first..).step_by(2)) {
        let as_user =
            |mut command: Command, user: u32| run(command.args([call, &user.to_string()]));
        assert_eq!(as_user(bare(&program), user), "good\n", "{call} without the shim");
        assert_eq!(as_user(shimmed(&program), user + 1), "good\n", "{call}");
    }
}

#[test]
fn address_space_limit_that_suffices_without_the_shim_suffices_with_it() {
    let program = compile("limits_given.c", &[]);
    for limit in ["64", "100", "256", "600", "1024", "6000"] {
        assert_eq!(run(bare(&program).arg(limit)), "good\n");
        assert_eq!(run(shimmed(&program).arg(limit)), "good\n", "{limit} MiB");
    }
}

#[test]
fn address_space_that_idles_is_the_programs_when_it_finds_no_more() {
    /// MiB of the library and its records, and the ends of blocks that are out; of free blocks there are 60.
    const OWN: i64 = 16;
    let program = compile("limits_space.c", &[]);
    let number = |said: String| said.trim().parse::<i64>().expect("a number");
    for way in ["small", "zeroed", "mapped", "grown", "threads"] {
        let without = number(run(bare(&program).arg(way)));
        let with = number(run(shimmed(&program).arg(way)));
        assert!(with >= without - OWN, "{way}: {with} MiB, {without} without the shim");
    }
}

#[test]
fn memory_that_a_program_locks_stays_and_is_no_more_than_it_has() {
    let program = compile("limits_locked.c", &[]);
    for arguments in [&[][..], &["zone first"], &["zone first", "on fault"]] {
        assert_eq!(run(bare(&program).args(arguments)), "next\n");
        let zone = if arguments.len() == 2 { "zone\n" } else { "next\n" };
        for verify in ["full", "sample"] {
            let mut locked = shimmed(&program);
            assert_eq!(run(locked.args(arguments).env("PREZERO_VERIFY", verify)), zone);
        }
    }
}

#[test]
fn address_space_grows_with_what_a_program_uses() {
    let program = compile("limits_outside.c", &[]);
    assert_eq!(run(&mut bare(&program)), "good\n");
    assert_eq!(run(shimmed(&program).env("PREZERO_DECAY", "1")), "good\n");
}

#[test]
fn a_call_that_lacked_no_task_is_made_once() {
    let program = compile("limits_once.c", &[]);
    let said = program.with_extension("said");
    for verify in ["sample", "full"] {
        let _ = std::fs::remove_file(&said);
        assert_eq!(run(shimmed(&program).arg(&said).env("PREZERO_VERIFY", verify)), "good\n");
    }
}
