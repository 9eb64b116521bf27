//! `dlsym`, in front of glibc's: what a program looks up by name counts as what it links.
//!
//! glibc's function reads its return address to know which library asks, so this one jumps to it and does not call it,
//! unless the name is one of [`names`].

use std::ffi::{CStr, c_char, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use super::names;

#[cfg(target_env = "gnu")]
prezero_glibc::names!(pthread_create);

/// glibc's.
static REAL: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// Finds this library's function of a name of libc's.
pub static OF_LIBC: OnceLock<fn(&CStr) -> Option<*const ()>> = OnceLock::new();

/// What `dlsym` returns, if `is_answer`.
#[repr(C)]
struct Answer {
    address: *mut c_void,
    is_answer: usize,
}

/// glibc's, which is looked up once; two threads find the same.
fn real() -> *mut c_void {
    let known = REAL.load(Relaxed);
    if !known.is_null() {
        return known;
    }
    // SAFETY: a name that ends in NUL.
    let mut found = unsafe { prezero_glibc::names::find(libc::RTLD_NEXT, c"dlsym".as_ptr()) };
    if found.is_null() {
        // A program of glibc before 2.34 without libdl.
        found = prezero_glibc::names::find as *mut c_void;
    }
    REAL.store(found, Relaxed);
    found
}

/// Looks a name up as the program would.
pub fn look_up(handle: *mut c_void, name: &CStr) -> *mut c_void {
    // SAFETY: glibc's function, and a name that ends in NUL; a handle is the caller's or one of the constants.
    unsafe {
        let real: extern "C" fn(*mut c_void, *const c_char) -> *mut c_void =
            std::mem::transmute(real());
        real(handle, name.as_ptr())
    }
}

unsafe extern "C" fn answer(handle: *mut c_void, name: *const c_char) -> Answer {
    real();
    let none = Answer { address: null_mut(), is_answer: 0 };
    if name.is_null() || handle == libc::RTLD_NEXT {
        return none;
    }
    // SAFETY: the caller's string, which ends in NUL.
    let name = unsafe { CStr::from_ptr(name) };
    if let Some(ours) = OF_LIBC.get().and_then(|find| find(name)) {
        // By a handle of libc: the next library that has the name. Others' functions stay theirs.
        let address = look_up(handle, name);
        let is_libcs = !address.is_null() && address == look_up(libc::RTLD_NEXT, name);
        let address = if is_libcs { ours.cast_mut().cast() } else { address };
        return Answer { address, is_answer: 1 };
    }
    let Some(known) = names::known(name) else { return none };
    let mut address = look_up(handle, known.slot.symbol);
    if address == known.ours.cast_mut().cast() {
        if known.slot.real().is_none() {
            // This library alone has the name: the program hears that there is no such function.
            address = look_up(libc::RTLD_NEXT, known.slot.symbol);
        }
    } else if !address.is_null() {
        known.slot.learn(address);
        address = known.ours.cast_mut().cast();
    }
    Answer { address, is_answer: 1 }
}

/// # Safety
/// As for `dlsym(3)`.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    #[cfg(target_arch = "x86_64")]
    std::arch::naked_asm!(
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {answer}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "test rdx, rdx",
        "jne 2f",
        "mov r11, qword ptr [rip + {real}]",
        "jmp r11",
        "2: ret",
        answer = sym answer,
        real = sym REAL,
    );
    #[cfg(target_arch = "aarch64")]
    std::arch::naked_asm!(
        "stp x29, x30, [sp, #-32]!",
        "stp x0, x1, [sp, #16]",
        "bl {answer}",
        "cbnz x1, 2f",
        "ldp x0, x1, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        "adrp x16, {real}",
        "ldr x16, [x16, :lo12:{real}]",
        "br x16",
        "2: ldp x29, x30, [sp], #32",
        "ret",
        answer = sym answer,
        real = sym REAL,
    );
}
