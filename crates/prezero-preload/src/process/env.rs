//! What the environment says: on or off, the knobs, and which process reports.
//!
//! | variable | meaning |
//! |---|---|
//! | `PREZERO_DISABLE=1` | no zone: every call goes to the next allocator |
//! | `PREZERO_BARE_THREAD=off` | scrubd is a thread that libc knows of |
//! | `PREZERO_DEEPBIND=keep` | `dlopen` gets `RTLD_DEEPBIND` where the program says so |
//! | `PREZERO_PID=N` | process N writes the statistics when it ends (set by `prezero run`) |
//! | `PREZERO_TRIED=N` | the first N filters of system calls let a zone live (set by `prezero run`) |
//! | `PREZERO_TREE=FILE` | where its children tell it what they did (set by `prezero run`) |
//! | the rest | the knobs of [`Config`] |
//!
//! Reads with libc's `getenv`, which needs no heap.

use std::ffi::{CStr, c_char};

use prezero_core::{Config, ConfigError, Machine};

unsafe extern "C" {
    static environ: *const *const c_char;
}

/// Whether libc has been given its environment: not so while the dynamic linker is
/// still starting it, and an empty one must not be taken for "nothing is set".
pub fn is_there() -> bool {
    // SAFETY: libc's own variable; a word that is read whole.
    unsafe { !(&raw const environ).read().is_null() }
}

/// Whether valgrind runs the program: it knows neither restartable sequences nor the idle class,
/// and wants to see every block. Its own preloaded part is there for every tool of it.
pub fn is_valgrind() -> bool {
    preloaded().is_some_and(|libraries| libraries.contains("/vgpreload_"))
}

/// The libraries in front of each program, with spaces and colons between.
pub fn preloaded() -> Option<&'static str> {
    get("LD_PRELOAD")
}

/// Whether the user wants no zone.
pub fn disabled() -> bool {
    get("PREZERO_DISABLE") == Some("1")
}

/// Whether scrubd may be a thread that libc does not know of.
pub fn wants_bare_thread() -> bool {
    get("PREZERO_BARE_THREAD") != Some("off")
}

/// Whether `dlopen` binds deeply where the program says so.
pub fn keeps_deepbind() -> bool {
    get("PREZERO_DEEPBIND") == Some("keep")
}

/// The process that writes the statistics.
pub fn reporter() -> Option<libc::pid_t> {
    get("PREZERO_PID")?.parse().ok()
}

/// Where children tell the process that writes the statistics what they did.
pub fn tree() -> Option<&'static str> {
    get("PREZERO_TREE").filter(|name| name.starts_with('/'))
}

/// So many filters of system calls were tried by `prezero run`.
pub fn tried_filters() -> Option<u32> {
    get("PREZERO_TRIED")?.parse().ok()
}

/// The knobs.
///
/// # Errors
/// Names the variable, its value and the mend.
pub fn config() -> Result<Config, ConfigError> {
    let machine = Machine {
        memory: memory(),
        engine: prezero_core::engine_named,
        reports_free: prezero_sys::guest::reports_free_memory(),
    };
    Config::from_env(&machine, get)
}

/// Whether the kernel counts reserved memory as used (`vm.overcommit_memory` = 2): a zone as
/// large as the machine would leave nothing to others.
pub fn overcommits_never() -> bool {
    let path = c"/proc/sys/vm/overcommit_memory";
    let mut mode = 0u8;
    // The system calls themselves: libc's wrappers are points at which a thread is cancelled.
    // SAFETY: the path ends in NUL; the byte is there for the call to fill; the descriptor was
    // opened here.
    unsafe {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        let file = libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags);
        if file >= 0 {
            libc::syscall(libc::SYS_read, file, &raw mut mode, 1usize);
            libc::syscall(libc::SYS_close, file);
        }
    }
    mode == b'2'
}

fn get(name: &str) -> Option<&'static str> {
    let mut buffer = [0u8; 64];
    buffer.get_mut(..name.len())?.copy_from_slice(name.as_bytes());
    let name = CStr::from_bytes_until_nul(&buffer).ok()?;
    // SAFETY: the name ends in NUL. The value lies in the environment, which the
    // program must not change while others read it; libc's own terms.
    let value = unsafe {
        let value = libc::getenv(name.as_ptr());
        if value.is_null() {
            return None;
        }
        CStr::from_ptr(value)
    };
    // Not UTF-8: no knob takes it, and its error message will show the mark.
    Some(value.to_str().unwrap_or("\u{fffd}"))
}

/// Physical memory in bytes.
fn memory() -> usize {
    // Not sysconf: older versions of it open /proc with stdio, which allocates.
    // SAFETY: a struct of integers, for which zero is valid, that the call fills.
    let info = unsafe {
        let mut info: libc::sysinfo = std::mem::zeroed();
        libc::sysinfo(&mut info);
        info
    };
    (info.totalram as usize).saturating_mul(info.mem_unit as usize)
}
