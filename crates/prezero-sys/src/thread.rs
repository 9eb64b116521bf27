//! A thread that stays out of everybody's way, and what it needs to know of CPUs and time.

use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;
use std::num::NonZeroU64;
use std::sync::atomic::AtomicU32;

use rustix::fd::BorrowedFd;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::thread::{self as kernel, CpuSet, futex};
use rustix::time::{ClockId, Timespec, clock_gettime};

mod life;
mod spawner;
mod unheard;

pub use life::Life;
pub use spawner::{Pthread, Spawner};
pub use unheard::Unheard;

const NS_PER_S: u64 = 1_000_000_000;

/// What [`spawn_detached`] and each [`Spawner`] start.
pub type Entry = extern "C" fn(*mut c_void) -> *mut c_void;

/// Starts a detached thread with all signals blocked, so that none of the program's
/// handlers ever runs on it. `stack` is in bytes. Goes through libc, which allocates; leaves
/// `errno` as it was, because who frees memory does not expect it to change.
///
/// # Safety
/// `arg` is what `entry` expects and may be used from another thread; `entry` does not
/// unwind.
///
/// # Errors
/// The error number of the `pthread` call that failed: `EAGAIN` when the process may not
/// have another thread, `EINVAL` when `stack` is too small for the thread library.
pub unsafe fn spawn_detached(stack: usize, entry: Entry, arg: *mut c_void) -> Result<(), i32> {
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    let attributes = attributes.as_mut_ptr();
    // SAFETY: init gets room for the attributes; the others get what it initialised. `errno` is
    // this thread's own.
    unsafe {
        let errno = *libc::__errno_location();
        check(libc::pthread_attr_init(attributes))?;
        let started = check(libc::pthread_attr_setstacksize(attributes, stack))
            .and_then(|()| {
                let detached = libc::PTHREAD_CREATE_DETACHED;
                check(libc::pthread_attr_setdetachstate(attributes, detached))
            })
            .and_then(|()| create_masked(attributes, entry, arg));
        libc::pthread_attr_destroy(attributes);
        *libc::__errno_location() = errno;
        started
    }
}

/// A new thread inherits the mask of the one that makes it: blocked for that moment only.
///
/// # Safety
/// As for [`spawn_detached`], with initialised attributes.
unsafe fn create_masked(
    attributes: *const libc::pthread_attr_t,
    entry: Entry,
    arg: *mut c_void,
) -> Result<(), i32> {
    let mut all = MaybeUninit::uninit();
    let mut before = MaybeUninit::uninit();
    let mut thread = MaybeUninit::uninit();
    // SAFETY: every out-parameter has room, `all` and `before` are filled before they are
    // read; entry and arg are the caller's promise. libc keeps its own signals unblocked.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        check(libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()))?;
        let created = libc::pthread_create(thread.as_mut_ptr(), attributes, entry, arg);
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut());
        check(created)
    }
}

fn check(error: c_int) -> Result<(), i32> {
    if error == 0 { Ok(()) } else { Err(error) }
}

/// Puts the calling thread into the idle scheduling class, and lets its sleeps end when
/// they are due (timer slack 1 ns instead of 50 us).
///
/// # Errors
/// The error number: `EPERM` when a seccomp filter or a security module forbids it.
pub fn become_idle_class() -> Result<(), i32> {
    let priority = libc::sched_param { sched_priority: 0 };
    // SAFETY: the kernel reads one sched_param. The raw call, because musl's wrapper
    // always fails; 0 is the calling thread.
    let rc = unsafe {
        libc::syscall(libc::SYS_sched_setscheduler, 0, libc::SCHED_IDLE, &raw const priority)
    };
    if rc != 0 {
        return Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EPERM));
    }
    kernel::set_current_timer_slack(NonZeroU64::new(1)).map_err(|e| e.raw_os_error())
}

/// The calling thread's number.
pub fn current_id() -> i32 {
    kernel::gettid().as_raw_nonzero().get()
}

/// Has a thread of this process run as any other, or in the idle class again. The kernel
/// lets a thread out of the idle class only where the caller may raise priorities
/// (`CAP_SYS_NICE`, `RLIMIT_NICE`); nothing happens where he may not.
pub fn hurry(thread: i32, class: Class) {
    let priority = libc::sched_param { sched_priority: 0 };
    let policy = match class {
        Class::Normal => libc::SCHED_OTHER,
        Class::Idle => libc::SCHED_IDLE,
    };
    // SAFETY: the kernel reads one sched_param; a thread that is gone is an error, no more.
    // The raw call leaves `errno` changed, so it is put back.
    unsafe {
        let errno = *libc::__errno_location();
        libc::syscall(libc::SYS_sched_setscheduler, thread, policy, &raw const priority);
        *libc::__errno_location() = errno;
    }
}

/// A scheduling class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// What threads are born in.
    Normal,
    /// Runs where nobody else wants to.
    Idle,
}

/// Names the calling thread; the kernel keeps the first 15 bytes.
pub fn name_current(name: &CStr) {
    // A thread without a name works as well.
    let _ = kernel::set_name(name);
}

/// Gives the calling thread a table of file descriptors of its own, empty: what it opens
/// from now on the program cannot close, and it keeps no file of the program's open.
///
/// # Errors
/// `NOSYS` before Linux 5.9, or what a seccomp filter answers.
pub fn own_descriptors() -> Result<(), Errno> {
    // SAFETY: without CLOSE_RANGE_UNSHARE this would close the program's files; with it
    // the kernel copies the table first and closes the copies, for this thread alone.
    let done =
        unsafe { libc::syscall(libc::SYS_close_range, 0u32, u32::MAX, libc::CLOSE_RANGE_UNSHARE) };
    if done == 0 { Ok(()) } else { Err(Errno::NOSYS) }
}

/// Writes a text to standard error, straight through the kernel. What cannot be written is
/// dropped.
#[cold]
pub fn complain(text: &str) {
    // SAFETY: descriptor 2 is borrowed for the call only; a closed one makes the write fail.
    write_all(unsafe { BorrowedFd::borrow_raw(libc::STDERR_FILENO) }, text.as_bytes());
}

fn write_all(file: BorrowedFd<'_>, mut rest: &[u8]) {
    while !rest.is_empty() {
        match rustix::io::write(file, rest) {
            Ok(written @ 1..) => rest = &rest[written..],
            Err(Errno::INTR) => {}
            Ok(0) | Err(_) => return,
        }
    }
}

/// The CPU this thread runs on at this moment. Through libc, because glibc reads it from
/// memory where rustix calls into the vDSO; it neither locks nor allocates.
#[inline]
pub fn current_cpu() -> usize {
    // SAFETY: no arguments, no preconditions.
    usize::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(0)
}

/// CPUs that this system can ever have, as one more than the highest number: an index from
/// [`current_cpu`] is always below. Neither allocates nor locks.
pub fn cpu_count() -> usize {
    possible_cpus().unwrap_or_else(kernel_mask_bits)
}

fn possible_cpus() -> Option<usize> {
    let path = c"/sys/devices/system/cpu/possible";
    let file = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut text = [0u8; 256];
    let len = rustix::io::read(&file, &mut text).ok()?;
    one_past_last(&text[..len])
}

/// One past the last number of a kernel CPU list, such as `0-3,8-11`.
fn one_past_last(list: &[u8]) -> Option<usize> {
    let last = list.trim_ascii().rsplit(|byte| matches!(byte, b'-' | b',')).next()?;
    std::str::from_utf8(last).ok()?.parse::<usize>().ok()?.checked_add(1)
}

/// Without sysfs: the bits of the kernel's own CPU mask, whose size the raw call returns;
/// the number of CPUs rounded up to a word.
fn kernel_mask_bits() -> usize {
    let mut mask = [0u64; 1024];
    // SAFETY: the kernel writes at most the size given. 0 is the calling thread.
    let bytes = unsafe {
        libc::syscall(libc::SYS_sched_getaffinity, 0, size_of_val(&mask), mask.as_mut_ptr())
    };
    usize::try_from(bytes).map_or(CpuSet::MAX_CPU, |bytes| bytes * 8)
}

/// A set of CPUs, numbered up to 1023.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CpuMask(CpuSet);

impl CpuMask {
    /// One CPU; empty, which [`set_affinity`] refuses, for a number above 1023.
    pub fn only(cpu: usize) -> CpuMask {
        let mut set = CpuSet::new();
        if cpu < CpuSet::MAX_CPU {
            set.set(cpu);
        }
        CpuMask(set)
    }

    /// These CPUs; numbers above 1023 are left out.
    pub fn of(cpus: impl IntoIterator<Item = usize>) -> CpuMask {
        let mut set = CpuSet::new();
        cpus.into_iter().filter(|&cpu| cpu < CpuSet::MAX_CPU).for_each(|cpu| set.set(cpu));
        CpuMask(set)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.count() as usize
    }

    /// Whether `cpu` is in the set.
    pub fn contains(&self, cpu: usize) -> bool {
        cpu < CpuSet::MAX_CPU && self.0.is_set(cpu)
    }
}

/// The CPUs that the calling thread may run on; all, where the kernel will not say.
pub fn affinity() -> CpuMask {
    affinity_of(None)
}

/// The CPUs that the process's first thread may run on: what `taskset` set, whatever
/// other threads were pinned to.
pub fn process_affinity() -> CpuMask {
    affinity_of(Some(rustix::process::getpid()))
}

fn affinity_of(thread: Option<rustix::process::Pid>) -> CpuMask {
    CpuMask(kernel::sched_getaffinity(thread).unwrap_or_else(|_| {
        let mut all = CpuSet::new();
        (0..CpuSet::MAX_CPU).for_each(|cpu| all.set(cpu));
        all
    }))
}

/// Keeps the calling thread on these CPUs.
///
/// # Errors
/// `INVAL` when none of them exists or may be used.
pub fn set_affinity(mask: &CpuMask) -> Result<(), Errno> {
    kernel::sched_setaffinity(None, &mask.0)
}

/// Nanoseconds since some fixed moment; never steps back.
pub fn monotonic_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

/// CPU time that the calling thread has used, in nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::ThreadCPUTime))
}

/// CPU time that all threads of the process have used, in nanoseconds.
pub fn process_cpu_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::ProcessCPUTime))
}

fn nanoseconds(time: Timespec) -> u64 {
    time.tv_sec as u64 * NS_PER_S + time.tv_nsec as u64
}

/// How a [`futex_wait`] ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waited {
    /// Somebody woke us, or the kernel did for no reason: look at the word again.
    Woken,
    /// The time is over.
    TimedOut,
    /// The word did not hold what was expected; nothing was waited for.
    Changed,
}

/// Sleeps until `word` is woken, at most for `timeout_ns` nanoseconds (`None`: for ever),
/// if it holds `expected`. Private to the process.
pub fn futex_wait(word: &AtomicU32, expected: u32, timeout_ns: Option<u64>) -> Waited {
    let timeout = timeout_ns.map(|ns| Timespec {
        // u64::MAX nanoseconds are 585 years: no second count overflows.
        tv_sec: (ns / NS_PER_S) as i64,
        tv_nsec: (ns % NS_PER_S) as _,
    });
    match futex::wait(word, futex::Flags::PRIVATE, expected, timeout.as_ref()) {
        Err(Errno::TIMEDOUT) => Waited::TimedOut,
        Err(Errno::AGAIN) => Waited::Changed,
        // INTR is a spurious wake; nothing else is possible for a valid word.
        Ok(()) | Err(_) => Waited::Woken,
    }
}

/// Wakes one sleeper on `word`, if there is one.
pub fn futex_wake_one(word: &AtomicU32) {
    // It cannot fail for a valid word.
    let _ = futex::wake(word, futex::Flags::PRIVATE, 1);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::Shutdown;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc;

    /// What a thread found out about itself, sent to the test that started it.
    struct Seen {
        blocked: Vec<c_int>,
        policy: c_int,
        slack: u64,
        name: Vec<u8>,
    }

    extern "C" fn look(arg: *mut c_void) -> *mut c_void {
        // SAFETY: `arg` is the boxed sender that the test gave away.
        let report = unsafe { Box::from_raw(arg.cast::<mpsc::Sender<Seen>>()) };
        name_current(c"looker");
        become_idle_class().unwrap();
        let seen = Seen {
            blocked: blocked_signals(),
            // SAFETY: no preconditions; 0 is this thread.
            policy: unsafe { libc::sched_getscheduler(0) },
            slack: kernel::current_timer_slack().unwrap(),
            name: std::fs::read("/proc/thread-self/comm").unwrap(),
        };
        report.send(seen).unwrap();
        std::ptr::null_mut()
    }

    fn blocked_signals() -> Vec<c_int> {
        let mut mask = MaybeUninit::uninit();
        // SAFETY: a null set only asks; the answer is written before it is read.
        unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), mask.as_mut_ptr());
            (1..=64).filter(|&signal| libc::sigismember(mask.as_ptr(), signal) == 1).collect()
        }
    }

    #[test]
    fn spawned_thread_blocks_signals_and_runs_idle() {
        let before = blocked_signals();
        let (sender, receiver) = mpsc::channel::<Seen>();
        let arg = Box::into_raw(Box::new(sender)).cast();
        // SAFETY: `look` takes the boxed sender over and does not unwind past a failure
        // that this test would not report anyway.
        unsafe { spawn_detached(256 << 10, look, arg) }.unwrap();
        let seen = receiver.recv().unwrap();

        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGUSR1, libc::SIGPROF, libc::SIGCHLD] {
            assert!(seen.blocked.contains(&signal), "signal {signal}");
        }
        // The thread library's own: setuid in all threads, cancellation.
        assert!(!seen.blocked.contains(&32) && !seen.blocked.contains(&33));
        assert_eq!(seen.policy, libc::SCHED_IDLE);
        assert_eq!(seen.slack, 1);
        assert_eq!(seen.name, b"looker\n");
        assert_eq!(blocked_signals(), before);
    }

    #[test]
    fn spawn_with_a_tiny_stack_is_refused() {
        // SAFETY: the thread never starts, so the argument is never used.
        let refused = unsafe { spawn_detached(1, look, std::ptr::null_mut()) };
        assert_eq!(refused, Err(libc::EINVAL));
    }

    #[test]
    fn spawn_leaves_errno_alone_where_the_kernel_refuses() {
        // SAFETY: `errno` is this thread's own; no address space holds the stack, so the thread
        // never starts and the argument is never used.
        let (refused, errno) = unsafe {
            *libc::__errno_location() = 77;
            let refused = spawn_detached(1 << 50, look, std::ptr::null_mut());
            (refused, *libc::__errno_location())
        };
        assert_eq!((refused, errno), (Err(libc::EAGAIN), 77));
    }

    #[test]
    fn text_is_written_whole_and_a_closed_reader_is_no_error() {
        let (writer, mut reader) = UnixStream::pair().unwrap();
        // SAFETY: the socket stays open to the end of the test.
        let file = unsafe { BorrowedFd::borrow_raw(writer.as_raw_fd()) };
        write_all(file, b"one line\n");
        writer.shutdown(Shutdown::Write).unwrap();
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "one line\n");
        write_all(file, b"into the void");
    }

    #[test]
    fn cpu_lists_end_where_the_kernel_says() {
        assert_eq!(one_past_last(b"0-1\n"), Some(2));
        assert_eq!(one_past_last(b"0\n"), Some(1));
        assert_eq!(one_past_last(b"0-3,8-11\n"), Some(12));
        assert_eq!(one_past_last(b""), None);
        assert_eq!(one_past_last(b"none"), None);
    }

    #[test]
    fn every_usable_cpu_is_below_the_count() {
        let mask = affinity();
        let count = cpu_count();
        assert!(current_cpu() < count);
        assert!((count..CpuSet::MAX_CPU).all(|cpu| !mask.contains(cpu)));
        assert!(kernel_mask_bits() >= count);
        assert!(!mask.contains(usize::MAX));
    }

    #[test]
    fn affinity_set_is_affinity_read() {
        let before = affinity();
        let cpu = current_cpu();
        set_affinity(&CpuMask::only(cpu)).unwrap();
        assert_eq!(affinity(), CpuMask::only(cpu));
        assert_eq!(current_cpu(), cpu);
        set_affinity(&before).unwrap();
        assert_eq!(affinity(), before);
    }

    #[test]
    fn affinity_to_no_cpu_is_refused() {
        assert_eq!(set_affinity(&CpuMask::only(usize::MAX)), Err(Errno::INVAL));
    }

    #[test]
    fn clocks_advance() {
        let (wall, cpu) = (monotonic_ns(), thread_cpu_ns());
        while thread_cpu_ns() == cpu {}
        assert!(monotonic_ns() > wall);
    }

    #[test]
    fn wait_for_another_value_returns_at_once() {
        assert_eq!(futex_wait(&AtomicU32::new(1), 0, None), Waited::Changed);
    }

    #[test]
    fn wait_ends_with_its_timeout() {
        let start = monotonic_ns();
        assert_eq!(futex_wait(&AtomicU32::new(0), 0, Some(100_000)), Waited::TimedOut);
        assert!(monotonic_ns() - start >= 100_000);
    }

    #[test]
    fn wake_ends_a_wait() {
        let word = AtomicU32::new(0);
        let long = Some(60 * NS_PER_S);
        let waited = std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| futex_wait(&word, 0, long));
            // The word never changes: only a wake that finds the sleeper ends it.
            while !sleeper.is_finished() {
                futex_wake_one(&word);
            }
            sleeper.join().unwrap()
        });
        assert_eq!(waited, Waited::Woken);
    }
}
