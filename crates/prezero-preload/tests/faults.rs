//! The kernel refuses, limits are reached, threads cannot start: the program goes on.

mod common;
use common::{bare, compile, run, run_c, shimmed};

#[test]
fn what_the_kernel_refuses_is_done_without() {
    let program = compile("refused.c", &[]);
    let calls = [
        ("madvise", libc::SYS_madvise, libc::ENOMEM),
        ("madvise", libc::SYS_madvise, libc::EINVAL),
        ("mincore", libc::SYS_mincore, libc::ENOSYS),
        ("membarrier", libc::SYS_membarrier, libc::EPERM),
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
fn handlers_allocate_and_threads_end_anywhere() {
    assert_eq!(run_c("handlers.c"), "good\n");
}

#[test]
fn limit_of_data_that_suffices_without_the_shim_suffices_with_it() {
    let program = compile("limited.c", &["-DLIMIT=RLIMIT_DATA"]);
    for limit in ["64", "256", "1024"] {
        assert_eq!(run(bare(&program).arg(limit)), "good\n");
        assert_eq!(run(shimmed(&program).arg(limit)), "good\n", "{limit} MiB");
    }
}
