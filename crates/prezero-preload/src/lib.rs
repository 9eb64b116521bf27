//! `libprezero.so`: the malloc family of an unmodified program, from a prezero zone.
//!
//! Loaded with `LD_PRELOAD` (which `prezero run` does) it takes over `malloc` and its
//! kin. A request of at least the threshold is served from the process's one zone,
//! where freed memory is zeroed ahead of time; everything smaller, and everything that
//! the zone refuses, goes to the allocator that the program had.
//!
//! # Contract
//! - Every function does what glibc's does, error codes and corner cases included,
//!   because bad arguments are passed on to it. What differs: a block from the zone is
//!   a whole number of pages long (`malloc_usable_size` says so) and starts at a
//!   multiple of 64 KiB.
//! - A block belongs to the allocator that its address says: zone, arena of the start, or the next
//!   allocator. Any thread may free it, before or after a fork.
//! - Giving back an address of the zone at which no live block starts ends the process
//!   with one line that says so.
//! - `errno` is left alone, except for what `malloc` itself reports.
//! - Nothing here locks; a request larger than all before it may wait for a lock of the next allocator, which
//!   is shown its size ([`compat::learn`]). What the library itself keeps on a heap (scrubd a little, a
//!   request nothing) comes from the kernel, never from the program's allocator.
//!
//! # Parts, in the order of a request
//!
//! | folder | holds |
//! |---|---|
//! | [`exports`] | the functions that the program calls, and which allocator serves what |
//! | [`process`] | the one heap: made at the first large request, or never; scrubd's thread, forks, the report |
//! | [`compat`] | libc and the next allocator |
//!
//! Each folder uses those below it.
//!
//! Layers: compat, process, exports

pub mod compat;
pub mod exports;
pub mod process;

use compat::next;
use process::{bare, confine, fork, report, root};

/// Runs when the library is loaded: after libc, before the program's own code.
extern "C" fn load() {
    next::resolve();
    prezero_sys::say::panics();
    if process::stands_aside().is_some() {
        process::never();
    }
    bare::look();
    confine::at_load();
    root::remember();
    fork::register();
    report::remember();
}

#[used]
#[unsafe(link_section = ".init_array")]
static LOAD: extern "C" fn() = load;

#[used]
#[unsafe(link_section = ".fini_array")]
static UNLOAD: extern "C" fn() = report::at_exit;
