//! `_dl_find_object`, by which the unwinder finds the table of a function.
//!
//! glibc has it since 2.35, and no other libc. The unwinder that is linked in asks for it by name, and the loader of
//! a libc without it would end each program that has this library in front. So the name is this library's, hidden
//! from all others, and asks for glibc's when it is called: in a panic's way up the stack, hence never twice.

use std::ffi::{c_int, c_void};

type Find = unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int;

macro_rules! hidden {
    ($jump:literal) => {
        std::arch::global_asm!(
            ".globl _dl_find_object",
            ".hidden _dl_find_object",
            ".type _dl_find_object, %function",
            "_dl_find_object:",
            $jump,
            ".size _dl_find_object, . - _dl_find_object",
            find = sym find,
        );
    };
}

#[cfg(target_arch = "x86_64")]
hidden!("jmp {find}");
#[cfg(target_arch = "aarch64")]
hidden!("b {find}");

unsafe extern "C" fn find(address: *mut c_void, result: *mut c_void) -> c_int {
    const NOT_FOUND: c_int = -1;
    // SAFETY: the name ends in NUL, and glibc's function of that name has this type; the caller's terms are its.
    unsafe {
        let found = libc::dlsym(libc::RTLD_NEXT, c"_dl_find_object".as_ptr());
        if found.is_null() {
            return NOT_FOUND;
        }
        std::mem::transmute::<*mut c_void, Find>(found)(address, result)
    }
}
