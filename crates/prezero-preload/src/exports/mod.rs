//! What the program calls: functions of libc's names, and those of `prezero.h`.
//!
//! | module | holds |
//! |---|---|
//! | [`family`], [`realloc`] | the malloc family, and which allocator serves what |
//! | [`figures`] | what libc tells of its heap, and is told |
//! | [`syscalls`], `numbered` | the table of system calls, and calls by their number |
//! | [`limits`] | limits that the program sets on itself |
//! | [`rights`], [`filters`], [`forks`], [`exit`] | calls that scrubd and the report must know of |
//! | [`tasks`], `vfork` | calls for which scrubd gives up its task |
//! | [`sanitizer`] | what a sanitizer asks the program |
//! | `dlopen`, `caller`, `deep` | libraries that would find another `malloc`, and where they are looked for |
//! | [`capi`], [`pool`] | the `prezero_*` functions of `prezero.h` |

use std::ffi::c_void;

use prezero_core::InvalidPointer;

use crate::compat::message::Line;
use crate::process;

#[cfg(target_arch = "x86_64")]
mod caller;
pub mod capi;
#[cfg(target_arch = "x86_64")]
mod deep;
#[cfg(target_arch = "x86_64")]
pub mod dlopen;
pub mod exit;
pub mod family;
pub mod figures;
pub mod filters;
pub mod forks;
pub mod limits;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub mod numbered;
pub mod pool;
pub mod realloc;
pub mod rights;
pub mod sanitizer;
pub mod syscalls;
pub mod tasks;
#[cfg(target_arch = "x86_64")]
pub mod vfork;

/// The function that the program calls by this name, for those that a libc makes of another: that
/// one, which it may bring along without them, gets their blocks. The dynamic linker knows, where
/// the compiler must not.
#[inline(always)]
fn the_programs<F>(ours: F) -> F {
    std::hint::black_box(ours)
}

/// In debug builds: scrubd, of which libc does not know, must call nothing that comes here, be it
/// by way of libc.
#[inline(always)]
fn not_from_scrubd(function: &str) {
    if cfg!(debug_assertions) && process::bare::is_current() {
        // Its own table of descriptors has no standard error; that of the first thread does.
        // SAFETY: a path that ends in NUL; a new descriptor, in a table that this thread alone has.
        unsafe {
            let path = c"/proc/self/fd/2".as_ptr();
            let file = libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path, libc::O_WRONLY);
            libc::syscall(libc::SYS_dup3, file, libc::STDERR_FILENO, 0);
        }
        Line::fatal(format_args!("prezero: scrubd called {function}()"))
    }
}

/// Ends the process as glibc does, and says why.
#[cold]
fn abort(function: &str, ptr: *mut c_void, _: InvalidPointer) -> ! {
    let why = "is not the start of a live block (invalid pointer or double free)";
    Line::fatal(format_args!("prezero: {function}(): {ptr:p} {why}"))
}
