//! `vfork` in a program with a zone.
//!
//! Its child runs in the parent's memory, with the thread-local storage of the thread that
//! called, while that thread waits and all others run on: a [guest](prezero_sys::birth::is_guest).
//! To a zone it is one thread more. But no scrubd starts in it, since it would end with the child,
//! and no limit that the child sets on itself is taken for the parent's.
//!
//! A function that returns twice on one stack cannot be written in Rust, nor forwarded to:
//! this is glibc's own, with a call where the kernel refused.
//!
//! Accepted: a child that a program makes with `clone(CLONE_VM)` and no thread-local storage
//! of its own, without libc, must not call `malloc`, which would be wrong with glibc's too.

use std::ffi::c_int;

use crate::compat::errno::Errno;
use crate::process::shortage::is_worth_another;

/// libc's `vfork`.
///
/// # Safety
/// As in libc.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfork() -> c_int {
    // The return address waits in a register: the child's calls overwrite it on the stack.
    std::arch::naked_asm!(
        "2:",
        "pop rdi",
        "mov eax, {vfork}",
        "syscall",
        "push rdi",
        "test eax, eax",
        "js 3f",
        "ret",
        "3:",
        "sub rsp, 8",
        "mov edi, eax",
        "call {failed}",
        "add rsp, 8",
        "test eax, eax",
        "jz 2b",
        "ret",
        failed = sym failed,
        vfork = const libc::SYS_vfork,
    );
}

/// With the kernel's answer: 0 if the call is to be made again, else the function's own.
extern "C" fn failed(answer: c_int) -> c_int {
    if is_worth_another(-answer) {
        return 0;
    }
    Errno::set(-answer);
    -1
}
