//! `dlopen` without `RTLD_DEEPBIND`.
//!
//! A library that is opened with that flag finds libc's own `malloc` and `free` before this one's. The rest of the program,
//! libc's `getline` and `strdup` included, allocates here. So its `free` would end the program at the first large
//! block that it did not allocate itself. Without the flag it finds these, as each other library does.
//!
//! `PREZERO_DEEPBIND=keep` leaves the flag, for a library that brings names of its own which the program has too.
//! Where there is to be no zone it is left as well.
//!
//! The function is no more than a detour on the way to libc's, which looks at the return address: the caller's
//! `RUNPATH` and namespace count, not those of this library. That cannot be written in Rust.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::process;
use crate::process::env;

/// libc's, from the first call on.
static NEXT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// libc's `dlopen`.
///
/// # Safety
/// As in libc.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void {
    std::arch::naked_asm!(
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "mov edi, esi",
        "call {flags}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "mov esi, eax",
        "jmp qword ptr [rip + {next}]",
        flags = sym flags_of,
        next = sym NEXT,
    )
}

/// The flags that libc gets for these. It is known after that.
extern "C" fn flags_of(flags: c_int) -> c_int {
    if NEXT.load(Ordering::Relaxed).is_null() {
        // SAFETY: the name ends in NUL; RTLD_NEXT searches behind this library.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, c"dlopen".as_ptr()) };
        let none: extern "C" fn() -> *mut c_void = opens_nothing;
        NEXT.store(if found.is_null() { none as *mut c_void } else { found }, Ordering::Relaxed);
    }
    let deep = flags & libc::RTLD_DEEPBIND != 0;
    if deep && process::may_have_zone() && !env::keeps_deepbind() {
        flags & !libc::RTLD_DEEPBIND
    } else {
        flags
    }
}

/// Stands in where no library behind this one opens others.
extern "C" fn opens_nothing() -> *mut c_void {
    ptr::null_mut()
}
