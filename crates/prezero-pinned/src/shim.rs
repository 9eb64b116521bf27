//! What this process has of the lease, and the knobs: read before the program begins.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};

use crate::arena::{Arena, number};
use crate::said;

/// See the module.
pub struct Shim {
    /// `None`: no lease reached this process.
    pub arena: Option<Arena>,
    /// Smaller requests get what they would have got.
    pub threshold: usize,
    /// Whether pinned memory that is not of the lease is populated by all CPUs of the node.
    pub or_plain: bool,
    /// Of the program that `prezero claim` became.
    first: u32,
}

static SHIM: OnceLock<Shim> = OnceLock::new();
static NOTHING: Shim = NONE;
const NONE: Shim = Shim { arena: None, threshold: usize::MAX, or_plain: false, first: 0 };

/// What is to be said with the first request: standard error may not be noted yet when this is read.
static UNSAID: AtomicU8 = AtomicU8::new(SAID);
const SAID: u8 = 0;
const LOST: u8 = 1;
const NO_SHM: u8 = 2;

/// This process's.
pub fn shim() -> &'static Shim {
    let Some(shim) = SHIM.get() else { return &NOTHING };
    if UNSAID.load(Relaxed) != SAID {
        match UNSAID.swap(SAID, Relaxed) {
            LOST => said::LOST.say(format_args!(
                "the lease does not reach this process, whose memory is the kernel's: \
                the program that prezero claim became has ended, or closed its descriptors"
            )),
            NO_SHM => said::NO_SHM.say(format_args!(
                "no tmpfs of its own at /dev/shm: memory that is shared by name is not of the lease"
            )),
            _ => {}
        }
    }
    shim
}

fn look() -> Shim {
    let Some(threshold) = number("PREZERO_PINNED_THRESHOLD") else { return NONE };
    let has_lease = number("PREZERO_PINNED_BOARD").is_some();
    let arena = Arena::begin();
    if has_lease && arena.is_none() {
        UNSAID.store(LOST, Relaxed);
    }
    let first =
        number("PREZERO_LEASE_PID").and_then(|first| u32::try_from(first).ok()).unwrap_or(0);
    if let Some(arena) = &arena
        && !arena.has_shm()
        && first == std::process::id()
    {
        UNSAID.store(NO_SHM, Relaxed);
    }
    Shim { arena, threshold, or_plain: number("PREZERO_PINNED_PLAIN") == Some(1), first }
}

/// Before the program begins: an allocator that calls this library from inside `malloc` must not find it in the middle of that.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = {
    extern "C" fn begin() {
        prezero_sys::say::panics();
        let shim = SHIM.get_or_init(look);
        if shim.arena.is_some() {
            // SAFETY: the three are a lock's, and its release in both processes.
            unsafe { pthread_atfork(before_fork, after_fork, in_child) };
        }
    }
    begin
};

/// Says what the lease served, at the end of the program that `prezero claim` became.
#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = {
    extern "C" fn end() {
        told();
    }
    end
};

/// Says it once, if this is that program.
pub fn told() {
    static TOLD: AtomicBool = AtomicBool::new(false);
    let shim = shim();
    let is_first = || shim.first == std::process::id() && !TOLD.swap(true, Relaxed);
    if let Some(arena) = shim.arena.as_ref().filter(|_| is_first()) {
        arena.report();
    }
}

unsafe extern "C" {
    fn pthread_atfork(
        before: extern "C" fn(),
        after: extern "C" fn(),
        child: extern "C" fn(),
    ) -> i32;
}

extern "C" fn before_fork() {
    if let Some(arena) = &shim().arena {
        arena.before_fork();
    }
}

extern "C" fn after_fork() {
    if let Some(arena) = &shim().arena {
        arena.after_fork();
    }
}

extern "C" fn in_child() {
    if let Some(arena) = &shim().arena {
        arena.in_child();
    }
}
