//! Tries in a child what a filter may forbid, since a filter may end the process for it.
//!
//! The child is a plain copy of the process, made without libc, so that no handler of the program's runs. It has no
//! signal for its end, and no name that the program would wait for. Of the calls only the number counts: the
//! arguments are such that nothing changes.
//!
//! The test `sandbox` of the preloaded library forbids one call after another and finds what the list lacks.

use std::ffi::{CStr, c_long};
use std::ptr;

/// What came of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trial {
    /// The filter lets each call through, or answers with an error.
    Lives,
    /// The filter ends the process for one of them; or no child could be made.
    Ends,
}

/// Tries all that a zone and scrubd call. Neither locks nor allocates. Leaves `errno` as it was.
///
/// Makes a child and waits for it (`clone`, `wait4`); a filter that ends the process for these ends it.
pub fn trial() -> Trial {
    // SAFETY: `errno` is this thread's own. Without a flag and a stack the child is a copy of the process, in
    // which this thread goes on alone; `child` keeps to system calls, and does not return.
    unsafe {
        let errno = *libc::__errno_location();
        let child = libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0);
        if child == 0 {
            try_all();
            libc::syscall(libc::SYS_exit_group, 0);
        }
        let trial = if child > 0 { end_of(child) } else { Trial::Ends };
        *libc::__errno_location() = errno;
        trial
    }
}

/// Waits for the child.
fn end_of(child: c_long) -> Trial {
    let mut status = 0i32;
    loop {
        let none = ptr::null_mut::<u8>();
        // SAFETY: the kernel writes one word. `__WALL`, because the child's end has no signal.
        let done =
            unsafe { libc::syscall(libc::SYS_wait4, child, &raw mut status, libc::__WALL, none) };
        if done == child {
            if status == 0 {
                super::was_tried();
                return Trial::Lives;
            }
            return Trial::Ends;
        }
        // SAFETY: `errno` is this thread's own.
        if done >= 0 || unsafe { *libc::__errno_location() } != libc::EINTR {
            return Trial::Ends;
        }
    }
}

/// Bytes of the memory that calls are tried on.
const SCRATCH: usize = 2 * 4096;
/// No descriptor: the kernel refuses it after the filter let the call through.
const NO_FILE: i32 = -1;

/// Makes the calls, in a process that nothing depends on.
///
/// # Safety
/// This is the child, which ends next.
#[inline(never)]
unsafe fn try_all() {
    let (zero, none) = (0usize, ptr::null_mut::<u8>());
    let mut words = [0u64; 128];
    let some = words.as_mut_ptr();
    let name: fn(&'static CStr) -> *const i8 = |name| name.as_ptr().cast();
    macro_rules! call {
        ($number:ident $(, $argument:expr)*) => {
            libc::syscall(libc::$number $(, $argument)*)
        };
    }
    // SAFETY: each pointer is null or to `words`, which are as long as the kernel is told, or to names that end in
    // NUL; the memory that is advised, moved and unmapped is this child's own and new.
    unsafe {
        // First of all no handler of the program's runs here, and no core is dumped.
        let every = [u64::MAX; 1];
        call!(SYS_rt_sigprocmask, libc::SIG_BLOCK, every.as_ptr(), none, size_of::<u64>());
        call!(SYS_rt_sigpending, some, size_of::<u64>());
        call!(SYS_rt_sigtimedwait, every.as_ptr(), none, [0i64; 2].as_ptr(), size_of::<u64>());
        call!(SYS_prctl, libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
        // The kernel's log names the process that was ended.
        call!(SYS_prctl, libc::PR_SET_NAME, name(c"prezero-trial"), 0, 0, 0);
        call!(SYS_prctl, libc::PR_SET_TIMERSLACK, 0, 0, 0, 0);
        call!(SYS_prctl, libc::PR_GET_SECCOMP, 0, 0, 0, 0);

        // The machine, and the limits of the process.
        call!(SYS_sysinfo, some);
        call!(SYS_uname, some);
        call!(SYS_prlimit64, 0, libc::RLIMIT_AS, none, some);
        call!(SYS_getpid);
        call!(SYS_gettid);
        call!(SYS_clock_gettime, libc::CLOCK_MONOTONIC, some);
        call!(SYS_clock_gettime, libc::CLOCK_THREAD_CPUTIME_ID, some);

        // Files of /proc and /sys.
        let root = name(c"/");
        let file = call!(SYS_openat, libc::AT_FDCWD, root, libc::O_RDONLY | libc::O_CLOEXEC);
        call!(SYS_statx, file, name(c""), libc::AT_EMPTY_PATH, 0, some);
        call!(SYS_newfstatat, file, name(c""), some, libc::AT_EMPTY_PATH);
        call!(SYS_fstat, file, some);
        call!(SYS_lseek, file, 0, libc::SEEK_CUR);
        call!(SYS_read, file, some, zero);
        call!(SYS_fcntl, file, libc::F_GETFD);
        call!(SYS_close, file);
        #[cfg(target_arch = "x86_64")]
        call!(SYS_open, root, libc::O_RDONLY | libc::O_CLOEXEC);
        call!(SYS_chdir, root);
        call!(SYS_write, NO_FILE, some, zero);

        // Memory.
        let (both, new) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let map = call!(SYS_mmap, none, SCRATCH, both, new | libc::MAP_NORESERVE, NO_FILE, zero);
        let half = SCRATCH / 2;
        call!(SYS_mprotect, map, half, both);
        for advice in [
            libc::MADV_DONTNEED,
            libc::MADV_FREE,
            libc::MADV_HUGEPAGE,
            libc::MADV_NOHUGEPAGE,
            libc::MADV_DONTFORK,
            libc::MADV_WIPEONFORK,
            libc::MADV_KEEPONFORK,
            libc::MADV_DONTDUMP,
            libc::MADV_DODUMP,
        ] {
            call!(SYS_madvise, map, half, advice);
        }
        call!(SYS_mincore, map, half, some);
        call!(SYS_msync, map, half, libc::MS_ASYNC | libc::MS_INVALIDATE);
        let to = map + half as c_long;
        let moves = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
        call!(SYS_mremap, map, half, half, moves, to);
        call!(SYS_munmap, map, SCRATCH);
        call!(SYS_memfd_create, name(c""), u32::MAX);
        call!(SYS_ftruncate, NO_FILE, zero);
        call!(SYS_fchmod, NO_FILE, 0);

        // The thread. Not the idle class itself: where CPUs are busy the child would not get to its end.
        call!(SYS_close_range, 1u32, 0u32, libc::CLOSE_RANGE_UNSHARE);
        let (word, moment) = (0u32, [0i64; 2]);
        let private = libc::FUTEX_PRIVATE_FLAG;
        call!(SYS_futex, &raw const word, libc::FUTEX_WAIT | private, 1, none);
        call!(SYS_futex, &raw const word, libc::FUTEX_WAKE | private, 1);
        call!(SYS_nanosleep, moment.as_ptr(), none);
        call!(SYS_sched_yield);
        call!(SYS_kill, 0, 0);
        call!(SYS_tgkill, call!(SYS_getpid), call!(SYS_gettid), 0);
        call!(SYS_getcpu, none, none, none);
        let bytes = call!(SYS_sched_getaffinity, 0, size_of_val(&words), some);
        call!(SYS_sched_setaffinity, 0, bytes.max(0), some);
        let priority = 0i32;
        call!(SYS_sched_setscheduler, 0, libc::SCHED_OTHER, &raw const priority);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_forbidden_here_and_no_child_is_left() {
        assert_eq!(trial(), Trial::Lives);
        // SAFETY: no memory is given. Other tests' children end with a signal.
        assert_eq!(unsafe { libc::waitpid(-1, ptr::null_mut(), libc::__WCLONE) }, -1);
    }
}
