//! `vfork` in a program with a zone.
//!
//! Its child runs in the parent's memory, with the thread-local storage of the thread that
//! called, while that thread waits and all others run on. To a zone it is one thread more. But
//! no scrubd starts meanwhile, since it would end with the child, and no limit that the child
//! sets on itself is taken for the parent's.
//!
//! A function that returns twice on one stack cannot be written in Rust, nor forwarded to:
//! this is glibc's own, with a call before and one after.
//!
//! Accepted: a child that a program makes with `clone(CLONE_VM)` and no thread-local storage
//! of its own, without libc, must not call `malloc`, which would be wrong with glibc's too.

use std::ffi::c_int;

use prezero_sys::thread::vfork as under_way;

use crate::compat::errno::Errno;

/// libc's `vfork`.
///
/// # Safety
/// As in libc.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfork() -> c_int {
    // The return address waits in a register: the child's calls overwrite it on the stack.
    std::arch::naked_asm!(
        "sub rsp, 8",
        "call {before}",
        "add rsp, 8",
        "pop rdi",
        "mov eax, {vfork}",
        "syscall",
        "push rdi",
        "test eax, eax",
        "jne 2f",
        "ret",
        "2:",
        "sub rsp, 8",
        "mov edi, eax",
        "call {after}",
        "add rsp, 8",
        "ret",
        before = sym before,
        after = sym after,
        vfork = const libc::SYS_vfork,
    );
}

extern "C" fn before() {
    under_way::begins();
}

/// In the parent, with the kernel's answer; the function's own.
extern "C" fn after(answer: c_int) -> c_int {
    under_way::is_over();
    if answer < 0 {
        Errno::set(-answer);
        return -1;
    }
    answer
}
