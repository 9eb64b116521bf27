//! Whether others hook the calls by which pages leave their addresses.
//!
//! A registration cache remembers by address which pages a device was told of. It must hear when other pages come
//! there, or the device sends what the old ones hold. UCX and Open MPI overwrite the beginning of libc's functions
//! with a jump to their own. A system call that does not go through libc is not heard.
//!
//! A hook may lock and allocate, so only a thread that libc knows of runs into one.

use std::ffi::{CStr, c_int, c_void};
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// Functions that each such cache hooks. The first is the one to [`tell`] by.
const NAMES: [&CStr; 3] = [c"madvise", c"munmap", c"mremap"];
/// Where libc has them; null: not looked for yet, or not there.
static FUNCTIONS: [AtomicPtr<c_void>; NAMES.len()] =
    [const { AtomicPtr::new(ptr::null_mut()) }; NAMES.len()];

/// Bytes of the longest jump, with what marks the target of an indirect call before it.
const JUMP: usize = 20;

/// Looks the functions up. Asks the dynamic linker once, which may take its locks.
pub fn look_up() {
    let unknown = |(function, _): &(&AtomicPtr<c_void>, &CStr)| function.load(Relaxed).is_null();
    for (function, name) in FUNCTIONS.iter().zip(NAMES).filter(unknown) {
        // Behind this object: it may have functions of these names itself.
        // SAFETY: the name ends in NUL.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        function.store(found, Relaxed);
        if found.is_null() {
            // No error that the program should hear of.
            // SAFETY: no terms.
            unsafe { libc::dlerror() };
        }
    }
}

/// Whether others hook these functions now.
pub fn are_there() -> bool {
    FUNCTIONS.iter().any(|function| {
        let code = function.load(Relaxed).cast::<[u8; JUMP]>();
        // SAFETY: the beginning of a function of libc, whose code is readable and longer than that. Another thread may
        // write a jump there meanwhile, hence volatile; it has no block in hand then that this look is about.
        !code.is_null() && is_jump(unsafe { code.read_volatile() })
    })
}

/// Lets the code that hooks these functions hear that a range holds other pages from now on.
///
/// # Safety
/// The caller owns the pages of the range and needs nothing of what they hold. It is a thread that libc knows of.
pub unsafe fn tell(first: *mut c_void, len: usize) {
    let madvise = FUNCTIONS[0].load(Relaxed);
    if madvise.is_null() || !are_there() {
        return;
    }
    // SAFETY: libc's function of that name; the range is the caller's. `errno` is this thread's own.
    unsafe {
        type Madvise = unsafe extern "C" fn(*mut c_void, usize, c_int) -> c_int;
        let errno = *libc::__errno_location();
        mem::transmute::<*mut c_void, Madvise>(madvise)(first, len, libc::MADV_DONTNEED);
        *libc::__errno_location() = errno;
    }
}

/// Whether a function that begins so goes elsewhere at once.
#[cfg(target_arch = "x86_64")]
fn is_jump(code: [u8; JUMP]) -> bool {
    let code = code.strip_prefix(&[0xf3, 0x0f, 0x1e, 0xfa]).unwrap_or(&code); // endbr64
    match code {
        // jmp near; jmp through memory
        [0xe9, ..] | [0xff, 0x25, ..] => true,
        // mov register, address; jmp register
        [0x48, 0xb8..=0xbf, _, _, _, _, _, _, _, _, 0xff, 0xe0..=0xe7, ..]
        | [0x49, 0xb8..=0xbf, _, _, _, _, _, _, _, _, 0x41, 0xff, 0xe0..=0xe7, ..] => true,
        _ => false,
    }
}

/// Whether a function that begins so goes elsewhere at once.
#[cfg(target_arch = "aarch64")]
fn is_jump(code: [u8; JUMP]) -> bool {
    let mut words = code.chunks_exact(4).map(|w| u32::from_le_bytes([w[0], w[1], w[2], w[3]]));
    // b, or br behind the moves that bring the address.
    words.clone().next().is_some_and(|word| word & 0xfc00_0000 == 0x1400_0000)
        || words.any(|word| word & 0xffff_fc1f == 0xd61f_0000)
}

/// No library is known to hook functions elsewhere.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn is_jump(_: [u8; JUMP]) -> bool {
    false
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    fn begins(code: &[u8]) -> bool {
        let mut all = [0x90; JUMP];
        all[..code.len()].copy_from_slice(code);
        is_jump(all)
    }

    #[test]
    fn jumps_are_told_from_what_libc_begins_with() {
        let far = [0x49, 0xbb, 1, 2, 3, 4, 5, 6, 7, 8, 0x41, 0xff, 0xe3];
        let marked: Vec<u8> = [&[0xf3, 0x0f, 0x1e, 0xfa], far.as_slice()].concat();
        for jump in [&[0xe9, 0x1b, 0x60, 0x14, 0][..], &[0xff, 0x25, 0, 0, 0, 0], &far, &marked] {
            assert!(begins(jump), "{jump:x?}");
        }
        // munmap and mremap of glibc 2.36; munmap of one that marks the targets of indirect calls.
        let call = [0xb8, 0x0b, 0, 0, 0, 0x0f, 0x05, 0x48, 0x3d, 1, 0xf0, 0xff, 0xff];
        let longer = [0x48, 0x83, 0xec, 0x58, 0x4c, 0x89, 0x44, 0x24, 0x40, 0x64, 0x48, 0x8b];
        let marked = [0xf3, 0x0f, 0x1e, 0xfa, 0xb8, 0x0b, 0, 0, 0, 0x0f, 0x05];
        for code in [&call[..], &longer, &marked] {
            assert!(!begins(code), "{code:x?}");
        }
    }

    #[test]
    fn no_test_runs_hooked() {
        look_up();
        assert!(!are_there());
    }
}
