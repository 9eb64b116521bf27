//! The thread that libc does not know of, by itself: its file is compiled into this test, where
//! Rust's allocator is libc's and libc knows of several threads.
#![cfg(all(target_arch = "x86_64", target_env = "gnu"))]

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};

use prezero_sys::thread::{Life, Spawner, Unheard, current_cpu, current_id};

#[path = "../src/process/bare.rs"]
mod bare;

use bare::{Bare, is_current, look as look_at_libc};

use prezero_testing::until;

const STACK: usize = 128 << 10;

static BARE: Bare = Bare::new();
static LIFE: Life = Life::new();

/// What a bare thread found out about itself; it must not allocate, as a channel would.
#[derive(Default)]
struct Seen {
    number: AtomicI32,
    errno_at: AtomicUsize,
    cpu: AtomicUsize,
    blocked: AtomicU64,
    is_bare: AtomicBool,
    permitted: AtomicU64,
    can_leave: AtomicBool,
    at_root: AtomicBool,
}

extern "C" fn look(arg: *mut c_void) -> *mut c_void {
    // SAFETY: the test's own, which waits for the end of this thread.
    let seen = unsafe { &*arg.cast::<Seen>() };
    BARE.arrive(&LIFE);
    let mut blocked = 0u64;
    let mut header = [0x2008_0522u32, 0];
    let mut sets = [u32::MAX; 6];
    // SAFETY: every out-parameter has room; a null set only asks.
    unsafe {
        let (none, old) = (ptr::null::<u64>(), &raw mut blocked);
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_BLOCK, none, old, size_of::<u64>());
        libc::syscall(libc::SYS_capget, header.as_mut_ptr(), sets.as_mut_ptr());
        seen.errno_at.store(libc::__errno_location().addr(), Ordering::Relaxed);
    }
    let mut path = [0u8; 8];
    // SAFETY: the kernel writes at most the size given.
    let length = unsafe { libc::syscall(libc::SYS_getcwd, path.as_mut_ptr(), path.len()) };
    seen.at_root.store(length == 2 && path[0] == b'/', Ordering::Relaxed);
    seen.number.store(current_id(), Ordering::Relaxed);
    seen.blocked.store(blocked, Ordering::Relaxed);
    // Permitted and effective, of both words.
    let sum = [sets[0], sets[1], sets[3], sets[4]].map(u64::from).iter().sum();
    seen.permitted.store(sum, Ordering::Relaxed);
    seen.is_bare.store(is_current(), Ordering::Relaxed);
    seen.cpu.store(current_cpu(), Ordering::Relaxed);
    while !seen.can_leave.load(Ordering::Acquire) {
        std::hint::spin_loop();
    }
    BARE.leave(&LIFE);
    ptr::null_mut()
}

/// # Safety
/// As for [`Bare::prepare`].
unsafe fn prepared(bare: &Bare) -> bool {
    look_at_libc();
    // SAFETY: the caller's promise.
    unsafe { bare.prepare() }
}

fn until_over(life: &Life) {
    until("it ends", || {
        life.wait();
        life.is_over()
    });
}

#[test]
fn bare_thread_has_what_libc_gives_its_own_and_no_rights() {
    let before = std::env::current_dir().unwrap();
    // SAFETY: `look` allocates nothing; all threads here have one life.
    assert!(unsafe { prepared(&BARE) && BARE.prepare() });
    assert!(!is_current());
    // The second lives where the first did.
    for _ in 0..2 {
        let seen = Box::leak(Box::new(Seen::default()));
        let arg = ptr::from_mut(seen).cast();
        {
            let _quiet = Unheard::new();
            // SAFETY: `look` takes a `Seen`, calls nothing that locks, and lives alone here.
            unsafe { BARE.start(STACK, look, arg, &LIFE) }.unwrap();
        }
        assert!(!LIFE.is_over());
        seen.can_leave.store(true, Ordering::Release);
        until_over(&LIFE);

        // SAFETY: this thread's own variable.
        let own = unsafe { libc::__errno_location().addr() };
        let errno_at = seen.errno_at.load(Ordering::Relaxed);
        assert!(errno_at != 0 && errno_at != own);
        assert!(seen.cpu.load(Ordering::Relaxed) < prezero_sys::thread::cpu_count());
        // All but the two that cannot be blocked.
        let unblockable = 1 << (libc::SIGKILL - 1) | 1 << (libc::SIGSTOP - 1);
        assert_eq!(seen.blocked.load(Ordering::Relaxed) | unblockable, u64::MAX);
        assert!(seen.is_bare.load(Ordering::Relaxed));
        assert_eq!(seen.permitted.load(Ordering::Relaxed), 0);
        assert!(seen.at_root.load(Ordering::Relaxed));
        let number = seen.number.load(Ordering::Relaxed);
        assert!(!std::path::Path::new(&format!("/proc/self/task/{number}")).exists());
    }
    assert_eq!(std::env::current_dir().unwrap(), before, "its directory is its own");
}

#[test]
fn what_is_not_prepared_starts_nothing() {
    static LIFE: Life = Life::new();
    // SAFETY: no thread starts.
    let refused = unsafe { Bare::new().start(STACK, look, ptr::null_mut(), &LIFE) };
    assert_eq!(refused, Err(libc::ENOSYS));
    assert!(LIFE.is_over());
}

#[test]
fn without_room_for_a_stack_nothing_starts_and_errno_stays() {
    static LIFE: Life = Life::new();
    let bare = Bare::new();
    // SAFETY: no thread starts.
    assert!(unsafe { prepared(&bare) });
    // SAFETY: no address space holds the stack; `errno` is this thread's own.
    let (refused, errno) = unsafe {
        *libc::__errno_location() = 77;
        let refused = bare.start(1 << 50, look, ptr::null_mut(), &LIFE);
        (refused, *libc::__errno_location())
    };
    assert_eq!((refused, errno), (Err(libc::ENOMEM), 77));
    assert!(LIFE.is_over());
}
